"""The intent: everything that any client needs to decide and publish a transaction without its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar

from ...storage.dataclass import dataclass
from ..formats import INTENT_FORMAT, Record
from .footprint import Footprint
from .isolation import IsolationLevel
from .joint_tables import Joint

__all__ = ["ClientName", "Intent"]


@dataclass(frozen=True, slots=True)
class ClientName:
    """The client of a transaction, as the history shows it."""

    host: str = ""
    pid: int = 0
    application: str = ""


@dataclass(frozen=True, slots=True)
class Intent(Record):
    """A filed transaction: immutable from the moment its slot exists.

    `read_version` is the snapshot it was made on, `validated_through` the last version its owner found no conflict with.
    `actions` are its log lines (newline-delimited JSON), or "" if they are staged in the object `staged`; `actions_digest`
    is their SHA-256. `expected_version`, if given, is the only version it may become. `table_id` is set by a commit that
    creates or attaches the table, with the highest row id given so far in `row_ids` if it tracks rows; `detach` by the one
    that detaches it. `rebased` describes what its owner adapted to commits it met while validating; `metadata_change` and
    `protocol_change` describe the difference that its metaData and protocol actions make. `leases` are the nodes of the
    leases it depends on: it is committed only while they all exist (I9); `turns` are the nodes of turns reserved for it,
    which do not stop it, and on which it does not depend. `joint` names the tables of a transaction over several: it is
    committed in all of them or in none (I11). `user_metadata` is a text of the
    user's for the history.
    """

    KIND: ClassVar = "intent"
    FORMAT: ClassVar = INTENT_FORMAT

    transaction_id: str
    operation: str
    read_version: int
    validated_through: int
    claimed_ms: int
    isolation: Annotated[str, tuple(level.value for level in IsolationLevel)] = IsolationLevel.WRITE_SERIALIZABLE.value
    footprint: Footprint = field(default_factory=Footprint)
    actions: str = ""
    staged: str = ""
    actions_digest: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    client: ClientName = field(default_factory=ClientName)
    expected_version: int | None = None
    table_id: str = ""
    detach: bool = False
    filed_again: bool = False
    rebased: tuple[str, ...] = ()
    metadata_change: Mapping[str, Any] | None = None
    protocol_change: Mapping[str, Any] | None = None
    row_ids: int | None = None
    leases: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    joint: Joint | None = None
    user_metadata: str = ""
    format: int = INTENT_FORMAT

    @property
    def only_reads(self) -> bool:
        """Whether this table's share of a transaction over several tables only reads, so that no version comes of it."""
        return self.joint is not None and not self.actions and not self.staged
