"""The intent: everything that any client needs to decide and publish a transaction without its owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson

from ...storage.dataclass import dataclass
from ..fields import MalformedRecord, load, maybe_int, maybe_object, require_known, strings, typed
from ..formats import INTENT_FORMAT, require_format
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
class Intent:
    """A filed transaction: immutable from the moment its slot exists.

    `read_version` is the snapshot it was made on, `validated_through` the last version its owner found no conflict with.
    `actions` are its log lines (newline-delimited JSON), or "" if they are staged in the object `staged`; `actions_digest`
    is their SHA-256. `expected_version`, if given, is the only version it may become. `table_id` is set by a commit that
    creates or attaches the table, with the highest row id given so far in `row_ids` if it tracks rows; `detach` by the one
    that detaches it. `rebased` describes what its owner adapted to commits it met while validating; `metadata_change` and
    `protocol_change` describe the difference that its metaData and protocol actions make. `leases` are the nodes of the
    leases it depends on: it is committed only while they all exist (I9); `turns` are the nodes of turns reserved for it,
    which do not stop it, and on which it does not depend. `joint` names the tables of a transaction over several: it is
    committed in all of them or in none (I11).
    """

    transaction_id: str
    operation: str
    read_version: int
    validated_through: int
    claimed_ms: int
    isolation: str = IsolationLevel.WRITE_SERIALIZABLE.value
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
    format: int = INTENT_FORMAT

    @property
    def only_reads(self) -> bool:
        """Whether this table's share of a transaction over several tables only reads, so that no version comes of it."""
        return self.joint is not None and not self.actions and not self.staged

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Intent:
        """From JSON; raises MalformedRecord, UnknownFormat."""
        f = load(data, "intent")
        require_format(f, INTENT_FORMAT, "intent")
        require_known(f, Intent, "intent")
        client = typed(f.get("client", {}), dict, "intent.client")
        isolation = typed(f.get("isolation"), str, "intent.isolation")
        if isolation not in {level.value for level in IsolationLevel}:
            raise MalformedRecord(f"intent.isolation is {isolation!r}, which is not an isolation level", kind="intent")

        def text(name: str) -> str:
            return typed(f.get(name), str, f"intent.{name}")

        def texts(name: str) -> dict[str, str]:
            return {str(k): str(v) for k, v in typed(f.get(name, {}), dict, f"intent.{name}").items()}

        return Intent(
            transaction_id=text("transaction_id"),
            operation=text("operation"),
            actions=text("actions"),
            staged=text("staged"),
            actions_digest=text("actions_digest"),
            table_id=text("table_id"),
            parameters=texts("parameters"),
            metrics=texts("metrics"),
            read_version=typed(f.get("read_version"), int, "intent.read_version"),
            validated_through=typed(f.get("validated_through"), int, "intent.validated_through"),
            claimed_ms=typed(f.get("claimed_ms"), int, "intent.claimed_ms"),
            isolation=isolation,
            footprint=Footprint.of(typed(f.get("footprint"), dict, "intent.footprint")),
            client=ClientName(
                str(client.get("host", "")), typed(client.get("pid", 0), int, "intent.client.pid"), str(client.get("application", ""))
            ),
            expected_version=maybe_int(f.get("expected_version"), "intent.expected_version"),
            detach=bool(f.get("detach", False)),
            filed_again=bool(f.get("filed_again", False)),
            rebased=strings(f.get("rebased", []), "intent.rebased"),
            metadata_change=maybe_object(f.get("metadata_change"), "intent.metadata_change"),
            protocol_change=maybe_object(f.get("protocol_change"), "intent.protocol_change"),
            row_ids=maybe_int(f.get("row_ids"), "intent.row_ids"),
            leases=strings(f.get("leases", []), "intent.leases"),
            turns=strings(f.get("turns", []), "intent.turns"),
            joint=Joint.of(f.get("joint")),
            format=f["format"],
        )
