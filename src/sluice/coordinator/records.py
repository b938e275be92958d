"""What the nodes of a table hold, as typed records with a JSON codec.

Every record carries what a later client needs to decide or to publish without asking anybody. Unknown fields of a record
are ignored when reading; a change of meaning changes the node protocol number (limits.NODE_PROTOCOL).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar

import orjson

from ..storage.errors import InvalidRequest
from .isolation import ConflictPolicy, IsolationLevel
from .kinds import Kind

__all__ = [
    "NO_SLOT",
    "BatchRecord",
    "ClientName",
    "Footprint",
    "Head",
    "Intent",
    "MalformedRecord",
    "Published",
    "Refusal",
    "Verdict",
    "VersionPlan",
    "digest",
]


NO_SLOT: Final = -1
"""Stands for a slot where a transaction has none."""


class MalformedRecord(InvalidRequest):
    """Raised when a node's data is no record of the expected kind."""


def digest(data: bytes) -> str:
    """The SHA-256 of `data`, in hex: how ratified content is recognised (I5)."""
    return hashlib.sha256(data).hexdigest()


def _load(data: bytes, kind: str) -> dict[str, Any]:
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedRecord(f"a {kind} record does not parse: {error}", kind=kind) from error
    if not isinstance(fields, dict):
        raise MalformedRecord(f"a {kind} record is {type(fields).__name__}, not an object", kind=kind)
    return fields


_T = TypeVar("_T")


def _typed(value: object, kind: type[_T], what: str) -> _T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise MalformedRecord(f"{what} is {value!r}, not of type {kind.__name__}", kind=what)
    return value


def _one_of(kinds: type[Enum], value: object, what: str) -> str:
    named = _typed(value, str, what)
    if named not in {each.value for each in kinds}:
        raise MalformedRecord(f"{what} is {named!r}; use one of {', '.join(str(each.value) for each in kinds)}", kind=what)
    return named


def _strings(value: object, what: str) -> tuple[str, ...]:
    return tuple(_typed(v, str, what) for v in _typed(value, list, what))


@dataclass(frozen=True, slots=True)
class Head:
    """The decided state of a table: everything a decision needs to know without reading the log.

    `version` is the last ratified one (-1 before the first); `slot` the last decided slot of `generation`;
    `timestamp_ms` that version's in-commit timestamp; `metadata_version` the last version that changed metadata or
    protocol; `table_id` Delta's id of the table.
    """

    version: int = -1
    generation: int = 0
    slot: int = -1
    timestamp_ms: int = 0
    metadata_version: int = -1
    table_id: str = ""
    detached: bool = False

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Head:
        """From JSON; raises MalformedRecord."""
        f = _load(data, "head")
        numbers = {n: _typed(f.get(n), int, f"head.{n}") for n in ("version", "generation", "slot", "timestamp_ms", "metadata_version")}
        return Head(**numbers, table_id=_typed(f.get("table_id"), str, "head.table_id"), detached=bool(f.get("detached")))


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
        f = _load(data, "published")
        numbers = {n: _typed(f.get(n), int, f"published.{n}") for n in ("version", "generation", "slot")}
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
class Footprint:
    """What a transaction read and writes, as far as conflicts are concerned.

    `predicates` are the conditions under which it read (SQL text; "" is the whole table as a filter), `partition_types` the
    table's partition columns with their types, `column_types` the data columns that the conditions name, with their types
    as in Delta's schema JSON. `read_files` are the log paths of the files it read for good (None: too many to list, then
    every removal counts as read), `whole_table` says whether it depends on the complete table, `read_apps` are the
    application ids whose `txn` it read. `kind` is what sort of operation it is, `policy` the table's conflict policy,
    `row_level` whether deletion vectors may be merged and carried over, `partitions` those it touches, as compact JSON
    objects with sorted keys (None: too many to list, or all). `scope` is what an overwrite replaces: "" the table, a
    condition, None where it does not matter.
    `removes`, `app_versions`, `domains`, `metadata`, `protocol`, `data_change` restate its own actions.
    """

    predicates: tuple[str, ...] = ()
    partition_types: Mapping[str, str] = field(default_factory=dict)
    read_files: tuple[str, ...] | None = ()
    whole_table: bool = False
    read_apps: tuple[str, ...] = ()
    removes: tuple[str, ...] | None = ()
    app_versions: Mapping[str, int] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    metadata: bool = False
    protocol: bool = False
    data_change: bool = True
    blind_append: bool = False
    column_types: Mapping[str, str] = field(default_factory=dict)
    kind: str = Kind.OTHER.value
    policy: str = ConflictPolicy.DELTA.value
    row_level: bool = False
    partitions: tuple[str, ...] | None = None
    scope: str | None = None

    @staticmethod
    def of(fields: Mapping[str, Any]) -> Footprint:
        """From the JSON object; raises MalformedRecord."""
        files, removes = fields.get("read_files", []), fields.get("removes", [])
        apps = _typed(fields.get("app_versions", {}), dict, "footprint.app_versions")
        types = _typed(fields.get("partition_types", {}), dict, "footprint.partition_types")
        columns = _typed(fields.get("column_types", {}), dict, "footprint.column_types")
        partitions, scope = fields.get("partitions"), fields.get("scope")
        return Footprint(
            predicates=_strings(fields.get("predicates", []), "footprint.predicates"),
            partition_types={str(k): _typed(v, str, "footprint.partition_types") for k, v in types.items()},
            read_files=None if files is None else _strings(files, "footprint.read_files"),
            whole_table=bool(fields.get("whole_table", False)),
            read_apps=_strings(fields.get("read_apps", []), "footprint.read_apps"),
            removes=None if removes is None else _strings(removes, "footprint.removes"),
            app_versions={str(k): _typed(v, int, "footprint.app_versions") for k, v in apps.items()},
            domains=_strings(fields.get("domains", []), "footprint.domains"),
            metadata=bool(fields.get("metadata", False)),
            protocol=bool(fields.get("protocol", False)),
            data_change=bool(fields.get("data_change", True)),
            blind_append=bool(fields.get("blind_append", False)),
            column_types={str(k): _typed(v, str, "footprint.column_types") for k, v in columns.items()},
            kind=_one_of(Kind, fields.get("kind", Kind.OTHER.value), "footprint.kind"),
            policy=_one_of(ConflictPolicy, fields.get("policy", ConflictPolicy.DELTA.value), "footprint.policy"),
            row_level=bool(fields.get("row_level", False)),
            partitions=None if partitions is None else _strings(partitions, "footprint.partitions"),
            scope=None if scope is None else _typed(scope, str, "footprint.scope"),
        )


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction that asks to be committed: immutable from the moment its slot exists.

    `read_version` is the snapshot it was made on, `validated_through` the last version its owner found no conflict
    with. `actions` are its log lines (newline-delimited JSON), or "" when they are staged in the object `staged`;
    `actions_digest` is their SHA-256. `expected_version`, where given, is the only version it may become.
    `table_id` is set by a commit that creates the table or attaches it; `detach` by the one that gives it back.
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

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Intent:
        """From JSON; raises MalformedRecord."""
        f = _load(data, "intent")
        client = _typed(f.get("client", {}), dict, "intent.client")
        isolation = _typed(f.get("isolation"), str, "intent.isolation")
        if isolation not in {level.value for level in IsolationLevel}:
            raise MalformedRecord(f"intent.isolation is {isolation!r}, which is no isolation level", kind="intent")
        expected = f.get("expected_version")

        def text(name: str) -> str:
            return _typed(f.get(name), str, f"intent.{name}")

        def texts(name: str) -> dict[str, str]:
            return {str(k): str(v) for k, v in _typed(f.get(name, {}), dict, f"intent.{name}").items()}

        return Intent(
            transaction_id=text("transaction_id"),
            operation=text("operation"),
            actions=text("actions"),
            staged=text("staged"),
            actions_digest=text("actions_digest"),
            table_id=text("table_id"),
            parameters=texts("parameters"),
            metrics=texts("metrics"),
            read_version=_typed(f.get("read_version"), int, "intent.read_version"),
            validated_through=_typed(f.get("validated_through"), int, "intent.validated_through"),
            claimed_ms=_typed(f.get("claimed_ms"), int, "intent.claimed_ms"),
            isolation=isolation,
            footprint=Footprint.of(_typed(f.get("footprint"), dict, "intent.footprint")),
            client=ClientName(str(client.get("host", "")), int(client.get("pid", 0)), str(client.get("application", ""))),
            expected_version=None if expected is None else _typed(expected, int, "intent.expected_version"),
            detach=bool(f.get("detach", False)),
            filed_again=bool(f.get("filed_again", False)),
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
class VersionPlan:
    """One ratified version: which slots' actions it carries in which order, its in-commit timestamp and its digest."""

    version: int
    timestamp_ms: int
    slots: tuple[int, ...]
    digest: str = ""


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
        return orjson.dumps(asdict(self))

    @staticmethod
    def decode(data: bytes) -> BatchRecord:
        """From JSON; raises MalformedRecord."""
        f = _load(data, "verdict")
        try:
            return BatchRecord(
                batch_id=f["batch_id"],
                generation=f["generation"],
                ratified_ms=f["ratified_ms"],
                verdicts=tuple(
                    Verdict(**{**v, "refusal": None if v.get("refusal") is None else Refusal(**v["refusal"])}) for v in f["verdicts"]
                ),
                versions=tuple(VersionPlan(**{**v, "slots": tuple(v["slots"])}) for v in f["versions"]),
                closes_generation=bool(f.get("closes_generation", False)),
                direct=_typed(f.get("direct", ""), str, "verdict.direct"),
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
