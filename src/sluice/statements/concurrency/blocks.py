"""BEGIN ATOMIC ... END: the statements of a block as one transaction over all tables in it. IF VERSION, in a block or without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ...coordinator.rules.isolation import IsolationLevel
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...tables.joint_transaction import JointTransaction
from ...tables.table import Table
from ...tables.write.transaction_end import ATTEMPTS, repeated
from ..engine import Engine, R
from ..parse.altering import Alter, DropPartitions
from ..parse.compound import Atomic, Part
from ..parse.cursor import Span
from ..parse.maintenance import Analyze, Compact, CopyInto, Optimize, Reorganise, Repair, Restore
from ..parse.reading import IfVersion, Malformed, Other
from ..parse.rows import Delete, Insert, Merge, Truncate, Update
from ..parse.tables import Create
from ..partitions import partition_condition
from ..places import SluiceRelation, relations_of_sluice, table_of, title
from ..reports import Answer
from ..request import Request
from ..sources import TransactionRows, current_tables, sources_of

Changing: TypeAlias = Insert | Update | Delete | Merge | Truncate
"""The statements that a block may have."""

_COLUMNS: Final = (
    "statement int, operation string, table string, num_affected_rows bigint, num_updated_rows bigint, num_deleted_rows bigint, "
    "num_inserted_rows bigint, version bigint"
)
_KINDS: Final = (Insert, Update, Delete, Merge, Truncate)
_INSTEAD: Final[Mapping[str, str]] = {
    "SELECT": "a query's rows have nowhere to go: run it after the block, or INSERT them into a table",
    "WITH": "a query's rows have nowhere to go: run it after the block, or INSERT them into a table",
    "OPTIMIZE": "a block changes rows, and this changes none: run it after the block",
    "VACUUM": "this deletes files, which nothing takes back: run it after the block",
    "BEGIN": "a block has no blocks in it: leave BEGIN and its END out",
}
_DEFINES: Final = "the statements of a block are INSERT, UPDATE, DELETE, MERGE and TRUNCATE: run this one before or after the block"


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement of a block at its place, the table that it changes, and those that it reads."""

    at: Span
    statement: Changing
    table: Table
    relations: Sequence[SluiceRelation]


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many rows a step changed; None: nobody counted."""

    updated: int | None = None
    deleted: int | None = None
    inserted: int | None = None

    @property
    def affected(self) -> int | None:
        """All rows."""
        counts = (self.updated, self.deleted, self.inserted)
        return None if all(each is None for each in counts) else sum(each or 0 for each in counts)


def atomic(engine: Engine[R, Any], request: R, block: Atomic) -> Answer:
    """Run a block: all of its statements become one commit, or nothing. Answers one row for each statement.

    Each step sees what those before it did; all tables are read as of one moment. The block is repeated when other commits came first.
    Raises InvalidRequest, with the place of the step, for one that fails.
    """
    steps = [_step(request, part) for part in block.parts]
    read = [table for step in steps for table in current_tables(step.relations)]
    taking_part = list({table.location: table for table in (*read, *(step.table for step in steps))}.values())
    key = None if block.key is None else str(request.value(block.key, "STRING"))
    versions_before = {step.table: version for step, version in expected_by(request, zip(block.parts, steps, strict=True))}

    def begin(after: JointTransaction | None) -> JointTransaction:
        return JointTransaction(
            request.coordinator,
            tables=taking_part,
            isolation=block.isolation or IsolationLevel.SERIALIZABLE.value,
            key=key,
            storage_options=request.options,
            user_metadata=request.terms.get("user_metadata"),
            if_version=versions_before,
            after=after,
        )

    def work(joint: JointTransaction) -> tuple[JointTransaction, list[_Counts]]:
        if joint.repeated() is not None:
            return joint, [_Counts() for _ in steps]
        return joint, [_run(engine, request, joint, step) for step in steps]

    attempts = ATTEMPTS if block.attempts is None else _whole(block.attempts)
    joint, counts = repeated(begin, work, attempts)
    versions = {location: commit.version for location, commit in joint.commit_info.items()}
    rows = zip(steps, counts, strict=True)
    return Answer(_COLUMNS, tuple(_row(number, step, count, versions) for number, (step, count) in enumerate(rows, 1)))


def _row(number: int, step: _Step, counts: _Counts, versions: Mapping[str, int]) -> tuple[Any, ...]:
    verb, name = type(step.statement).__name__.upper(), title(step.statement.target)
    return (number, verb, name, counts.affected, counts.updated, counts.deleted, counts.inserted, versions.get(step.table.location))


def _step(request: Request, part: Part) -> _Step:
    """The step of a statement. Raises InvalidRequest, with the place, for one that cannot be in a block."""
    statement = part.statement.statement if isinstance(part.statement, IfVersion) else part.statement
    if isinstance(statement, Malformed):
        raise request.refused(statement.at, statement.message)
    if not isinstance(statement, _KINDS):
        first = part.at.of(request.text).split()[0]
        verb = statement.words[0] if isinstance(statement, Other) and statement.words else first.upper()
        raise request.refused(Span(part.at.start, part.at.start + len(first)), _INSTEAD.get(verb, _DEFINES))
    table = table_of(request, statement.target, "part in transactions")
    return _Step(part.at, statement, table, relations_of_sluice(request, getattr(statement, "relations", ())))


def _whole(number: str) -> int:
    if not number.isdecimal() or int(number) < 1:
        raise InvalidRequest(f"ATTEMPTS {number}: give a whole number, 1 or more", attempts=number)
    return int(number)


def _run(engine: Engine[R, Any], request: R, joint: JointTransaction, step: _Step) -> _Counts:
    """Run a step. A refusal that shows no place in the block gets the step's."""
    try:
        return _changed(engine, request, joint, step)
    except InvalidRequest as error:
        if "place" in error.details:
            raise
        raise request.error(type(error), step.at, error.message, **error.details) from error


def _changed(engine: Engine[R, Any], request: R, joint: JointTransaction, step: _Step) -> _Counts:
    statement, table, part = step.statement, step.table, joint.part(step.table)
    if isinstance(statement, Truncate):
        part.truncate(partition_condition(request, statement.partition, part.struct, table.partition_columns))
        return _Counts()
    current = {each.location: TransactionRows(joint.part(each)) for each in current_tables(step.relations)}
    sources = sources_of(request, step.relations, current)
    if isinstance(statement, Insert):
        engine.insert(request, statement, part, table, sources)
        return _Counts(inserted=part.steps[-1].metrics.get("numOutputRows") if part.steps else None)
    counts = engine.change(request, statement, part, sources)
    if isinstance(statement, Merge):
        return _Counts(counts.updated, counts.deleted, counts.inserted)
    return _Counts(updated=counts.updated) if isinstance(statement, Update) else _Counts(deleted=counts.deleted)


NOT_OURS: Final = "IF VERSION compares versions of a table of sluice, and this is none: leave it out"
_TAKE_IT: Final = (Insert, Update, Delete, Merge, Truncate, DropPartitions, Optimize, Compact, Reorganise, Restore, Repair, Analyze, Alter)
_NO_VERSION: Final[Mapping[type, str]] = {
    Create: "one that makes a table has no version before it, and sluice.Table.replace(if_version=...) replaces one",
    CopyInto: "COPY INTO loads each file once, whatever the version: leave it out",
}
_OF_BLOCKS: Final = "write it before each statement of the block that is about such a table, after BEGIN ATOMIC"
_COMMIT_ONE: Final = (
    "this one commits no version of a table: leave it out, or write it before INSERT, UPDATE, DELETE, MERGE, TRUNCATE, ALTER TABLE, "
    "OPTIMIZE, COMPACT, REORG, RESTORE, FSCK REPAIR or ANALYZE"
)


def expected(request: Request, clause: IfVersion) -> int:
    """The version after which the statement is to commit. Raises InvalidRequest, with the place, if it cannot take one."""
    statement = clause.statement
    if isinstance(statement, Malformed):
        raise request.refused(statement.at, statement.message)
    if not isinstance(statement, _TAKE_IT) or (isinstance(statement, Alter) and statement.action == "rename"):
        is_block = isinstance(statement, Other) and statement.words[:2] == ("BEGIN", "ATOMIC")
        why = _OF_BLOCKS if is_block else _NO_VERSION.get(type(statement), _COMMIT_ONE)
        raise request.refused(clause.at, f"IF VERSION is for statements that commit to a table: {why}")
    version, _ = request.moment(True, clause.version)
    assert version is not None
    return version


def expected_by(request: Request, parts: Iterable[tuple[Part, Any]]) -> Iterator[tuple[Any, int]]:
    """The steps of a block that say a version, and that version. Raises InvalidRequest for two different ones of a table."""
    before: dict[str, int] = {}
    for part, step in parts:
        if isinstance(part.statement, IfVersion):
            version = expected(request, part.statement)
            first = before.setdefault(step.table.location, version)
            if first != version:
                said = f"an earlier statement of the block says IF VERSION {first} of this table, and a block is one commit: give one"
                raise request.refused(part.statement.at, said)
            yield step, version
