"""BEGIN ATOMIC ... END: the statements of a block as one transaction over all tables in it, for both engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from ...coordinator.api import DEFAULT_TIMEOUT_S
from ...coordinator.rules.isolation import IsolationLevel
from ...statements.compound import Atomic, Part
from ...statements.cursor import Span
from ...statements.reading import IfVersion, Malformed, Other
from ...statements.rows import Delete, Insert, Merge, Truncate, Update
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...tables.joint_transaction import Elsewhere, JointTransaction
from ...tables.table import Table
from ...tables.transact import ATTEMPTS, repeated
from ...tables.transaction import Transaction
from ...tables.write.merging import RowCounts
from ..partitions import partition_condition
from ..place import title
from ..reports import Answer
from ..request import Request
from .expecting import expected_by

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
class Step:
    """A statement of a block at its place, the table that it changes, and those whose latest rows it reads."""

    at: Span
    statement: Changing
    table: Table
    reads: Sequence[Table]


@dataclass(frozen=True, slots=True)
class Done:
    """What a step changed; None: nobody counted."""

    updated: int | None = None
    deleted: int | None = None
    inserted: int | None = None

    @property
    def affected(self) -> int | None:
        """All rows."""
        counts = (self.updated, self.deleted, self.inserted)
        return None if all(each is None for each in counts) else sum(each or 0 for each in counts)


def changing(asked: Request, part: Part) -> Changing:
    """The statement, if it changes rows. Raises InvalidRequest, with the place, for one that cannot be in a block."""
    statement = part.statement.statement if isinstance(part.statement, IfVersion) else part.statement
    if isinstance(statement, Malformed):
        raise asked.refused(statement.at, statement.message)
    if not isinstance(statement, _KINDS):
        first = part.at.of(asked.text).split()[0]
        verb = statement.words[0] if isinstance(statement, Other) and statement.words else first.upper()
        raise asked.refused(Span(part.at.start, part.at.start + len(first)), _INSTEAD.get(verb, _DEFINES))
    return statement


def run_block(
    asked: Request,
    block: Atomic,
    steps: Sequence[Step],
    carry_out: Callable[[JointTransaction, int], Done],
    elsewhere: Elsewhere | None = None,
) -> Answer:
    """Run a block: all of its statements become one commit, or nothing. Answers one row for each statement.

    `carry_out` runs the step of a number, which sees what those before it did; all tables are read as of one moment. The block is repeated
    when other commits came first. Raises InvalidRequest, with the place of the step, for one that fails.
    """
    read = [table for step in steps for table in step.reads]
    taking_part = list({table.location: table for table in (*read, *(step.table for step in steps))}.values())
    key = None if block.key is None else str(asked.value(block.key, "STRING"))
    versions_before = {step.table: version for step, version in expected_by(asked, zip(block.parts, steps, strict=True))}
    ended: list[JointTransaction] = []

    def begin() -> JointTransaction:
        return JointTransaction(
            asked.coordinator,
            tables=taking_part,
            isolation=block.isolation or IsolationLevel.SERIALIZABLE.value,
            key=key,
            storage_options=asked.options,
            elsewhere=elsewhere,
            user_metadata=asked.user_metadata,
            if_version=versions_before,
        )

    def work(joint: JointTransaction) -> list[Done]:
        ended[:] = [joint]
        if joint.repeated() is not None:
            return [Done() for _ in steps]
        return [_placed(asked, joint, step, number, carry_out) for number, step in enumerate(steps)]

    attempts = ATTEMPTS if block.attempts is None else _whole(block.attempts)
    application = taking_part[0].coordinated.application
    done = repeated(begin, work, JointTransaction.leases_on_reads, attempts, DEFAULT_TIMEOUT_S, application)
    versions = {location: commit.version for location, commit in ended[0].commit_info.items()}
    return Answer(
        _COLUMNS,
        tuple(
            (
                number,
                type(step.statement).__name__.upper(),
                title(step.statement.target),
                each.affected,
                each.updated,
                each.deleted,
                each.inserted,
                versions.get(step.table.location),
            )
            for number, (step, each) in enumerate(zip(steps, done, strict=True), 1)
        ),
    )


def _whole(number: str) -> int:
    if not number.isdecimal() or int(number) < 1:
        raise InvalidRequest(f"ATTEMPTS {number}: give a whole number, 1 or more", attempts=number)
    return int(number)


def _placed(asked: Request, joint: JointTransaction, step: Step, number: int, carry_out: Callable[[JointTransaction, int], Done]) -> Done:
    """Run a step. A refusal that does not show a place in the block gets the step's."""
    try:
        return carry_out(joint, number)
    except InvalidRequest as error:
        if error.message.startswith("line "):
            raise
        raise type(error)(asked.shown(step.at, error.message), **error.details) from error


def done_by(statement: Update | Delete | Merge, counts: RowCounts) -> Done:
    """What such a statement changed: of each kind of change that it may make."""
    if isinstance(statement, Merge):
        return Done(counts.updated, counts.deleted, counts.inserted)
    return Done(updated=counts.updated) if isinstance(statement, Update) else Done(deleted=counts.deleted)


def truncated(asked: Request, joint: JointTransaction, statement: Truncate, table: Table) -> Done:
    """Run a TRUNCATE."""
    where = partition_condition(asked, statement.partition, joint.do(table, lambda part: part.struct), table.partition_columns)
    joint.truncate(table, where)
    return Done()


def rows_written(part: Transaction) -> int | None:
    """How many rows the last operation wrote."""
    return part.steps[-1].metrics.get("numOutputRows") if part.steps else None
