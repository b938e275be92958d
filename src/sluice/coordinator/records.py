"""What the nodes of a table hold, as typed records with a JSON codec.

Every record carries what a later client needs to decide or to publish without asking anybody. Unknown fields of a record
are ignored when reading, but for those of an intent: it is decided by what it says, so that one who does not understand all
of it refuses it. A change of meaning changes the node protocol number (limits.NODE_PROTOCOL).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from .fields import MalformedRecord, load, maybe_int, maybe_object, require_known, strings, typed
from .footprint import Footprint
from .isolation import IsolationLevel
from .joint_records import Joint

__all__ = [
    "NO_SLOT",
    "BatchRecord",
    "ClientName",
    "Footprint",
    "Head",
    "Intent",
    "MalformedRecord",
    "Published",
    "Rebased",
    "Refusal",
    "Verdict",
    "VersionPlan",
    "digest",
]


NO_SLOT: Final = -1
"""Stands for a slot where a transaction has none."""


def digest(data: bytes) -> str:
    """The SHA-256 of `data`, in hex: how ratified content is recognised (I5)."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Head:
    """The decided state of a table: everything a decision needs to know without reading the log.

    `version` is the last ratified one (-1 before the first); `slot` the last decided slot of `generation`;
    `timestamp_ms` that version's in-commit timestamp; `metadata_version` the last version that changed metadata or
    protocol; `table_id` Delta's id of the table; `row_ids` the highest row id given so far (-1: none), None when the table
    does not track rows.
    """

    version: int = -1
    generation: int = 0
    slot: int = -1
    timestamp_ms: int = 0
    metadata_version: int = -1
    table_id: str = ""
    detached: bool = False
    row_ids: int | None = None

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Head:
        """From JSON; raises MalformedRecord."""
        f = load(data, "head")
        numbers = {n: typed(f.get(n), int, f"head.{n}") for n in ("version", "generation", "slot", "timestamp_ms", "metadata_version")}
        return Head(
            **numbers,
            table_id=typed(f.get("table_id"), str, "head.table_id"),
            detached=bool(f.get("detached")),
            row_ids=maybe_int(f.get("row_ids"), "head.row_ids"),
        )


@dataclass(frozen=True, slots=True)
class Published:
    """How far publication got: `version` is in the log, and every slot up to (`generation`, `slot`) needs nothing more.

    Slots that needed nothing more are removed together with raising this; one of a closed generation that still stands
    came too late for it. `record` names the verdict record of the batch that was published last.
    """

    version: int = -1
    generation: int = 0
    slot: int = -1
    record: str = ""

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Published:
        """From JSON; raises MalformedRecord."""
        f = load(data, "published")
        numbers = {n: typed(f.get(n), int, f"published.{n}") for n in ("version", "generation", "slot")}
        return Published(**numbers, record=str(f.get("record", "")))

    def covers(self, generation: int, slot: int) -> bool:
        """Whether a decided slot is published too (or was refused, and the refusal is recorded)."""
        return (self.generation, self.slot) >= (generation, slot)


@dataclass(frozen=True, slots=True)
class ClientName:
    """Who a transaction belongs to, as shown in the history."""

    host: str = ""
    pid: int = 0
    application: str = ""


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction that asks to be committed: immutable from the moment its slot exists.

    `read_version` is the snapshot it was made on, `validated_through` the last version its owner found no conflict
    with. `actions` are its log lines (newline-delimited JSON), or "" when they are staged in the object `staged`;
    `actions_digest` is their SHA-256. `expected_version`, where given, is the only version it may become.
    `table_id` is set by a commit that creates the table or attaches it, with the highest row id given so far in `row_ids`
    where it tracks rows; `detach` by the one that gives it back. `rebased` says what its owner adapted to commits it met
    while validating; `metadata_change` and `protocol_change` describe the difference that its metaData and protocol
    actions make. `leases` are the nodes of the leases it depends on: it is committed only while they all exist (I9).
    `joint` names the tables of a transaction over several: it is committed in all of them or in none (I11).
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
    joint: Joint | None = None

    @property
    def only_reads(self) -> bool:
        """Whether it is the share of a table that a transaction over several reads and does not write: no version comes of it."""
        return self.joint is not None and not self.actions and not self.staged

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Intent:
        """From JSON; raises MalformedRecord."""
        f = load(data, "intent")
        require_known(f, Intent, "intent")
        client = typed(f.get("client", {}), dict, "intent.client")
        isolation = typed(f.get("isolation"), str, "intent.isolation")
        if isolation not in {level.value for level in IsolationLevel}:
            raise MalformedRecord(f"intent.isolation is {isolation!r}, which is no isolation level", kind="intent")

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
            joint=Joint.of(f.get("joint")),
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an intent was not committed: the rule, the error class to raise, and the winner where there is one."""

    rule: str
    error: str
    message: str
    winning_version: int | None = None
    winning_operation: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one slot: committed as (`version`, `ordinal`), or refused; `repeats` when it was committed before."""

    slot: int
    transaction_id: str
    version: int = -1
    ordinal: int = -1
    refusal: Refusal | None = None
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Rebased:
    """What became of the actions of a slot when they were adapted to commits that came first; `what` says it in words.

    The actions stand in `actions`, or in the object `staged`; `digest` is their SHA-256.
    """

    slot: int
    what: tuple[str, ...]
    actions: str = ""
    staged: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """One ratified version: which slots' actions it carries in which order, its in-commit timestamp and its digest.

    `rebased` replaces the actions that a slot's intent holds; `first_row_id` is where the row ids of its new files begin,
    None in a table that does not track rows. `joint` has the versions that were ratified together with it in other tables, by
    location, and its own.
    """

    version: int
    timestamp_ms: int
    slots: tuple[int, ...]
    digest: str = ""
    rebased: tuple[Rebased, ...] = ()
    first_row_id: int | None = None
    joint: Mapping[str, int] | None = None

    @staticmethod
    def of(fields: Mapping[str, Any]) -> VersionPlan:
        """From the JSON object; raises KeyError or TypeError for what is none."""
        rebased = tuple(Rebased(**{**r, "what": tuple(r["what"])}) for r in fields.get("rebased", ()))
        return VersionPlan(**{**fields, "slots": tuple(fields["slots"]), "rebased": rebased})


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What one ratifying multi decided. `ratified_ms` is the ratifier's wall clock (told, never decided on).

    `closes_generation`: it was the generation's last batch; slots that arrive there later are not decided there.
    `direct` is the intent of a transaction that was ratified without a slot; its verdict and version name slot NO_SLOT.
    """

    batch_id: str
    generation: int
    ratified_ms: int
    verdicts: tuple[Verdict, ...]
    versions: tuple[VersionPlan, ...]
    closes_generation: bool = False
    direct: str = ""

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> BatchRecord:
        """From JSON; raises MalformedRecord."""
        f = load(data, "verdict")
        try:
            return BatchRecord(
                batch_id=f["batch_id"],
                generation=f["generation"],
                ratified_ms=f["ratified_ms"],
                verdicts=tuple(
                    Verdict(**{**v, "refusal": None if v.get("refusal") is None else Refusal(**v["refusal"])}) for v in f["verdicts"]
                ),
                versions=tuple(VersionPlan.of(v) for v in f["versions"]),
                closes_generation=bool(f.get("closes_generation", False)),
                direct=typed(f.get("direct", ""), str, "verdict.direct"),
            )
        except (KeyError, TypeError) as error:
            raise MalformedRecord(f"a verdict record lacks or misnames a field: {error}", kind="verdict") from error

    @property
    def last_version(self) -> int | None:
        """The highest version this batch ratified, or None when it only refused."""
        return self.versions[-1].version if self.versions else None

    def verdict_of(self, slot: int) -> Verdict | None:
        """The verdict of one slot, or None when this batch did not decide it."""
        return next((v for v in self.verdicts if v.slot == slot), None)
