"""BEGIN ATOMIC ... END: the statements of a block as one transaction over all tables in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from pyspark.sql import DataFrame

from ..coordinator.facade.values import DEFAULT_TIMEOUT_S
from ..coordinator.rules.isolation import IsolationLevel
from ..delta.joint import TablePart
from ..spark_integration.active_session import user_metadata_of
from ..spark_integration.files.writing import written_by_executors
from ..spark_integration.rows.reading import rows_so_far
from ..sql_plain.partitions import partition_condition
from ..sql_plain.place import opened, title
from ..statements.compound import Atomic, Part
from ..statements.cursor import Span
from ..statements.reading import Malformed, Other
from ..statements.rows import Delete, Insert, Merge, Truncate, Update
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..tables.joint_transaction import JointTransaction
from ..tables.table import Table
from ..tables.transact import ATTEMPTS, repeated
from ..tables.transaction import Transaction
from .asked import Asked
from .queries import Found, found_in, table_of, views_of
from .rows import change_of, insertion

__all__ = ["Changing", "atomic", "changing"]

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
_DEFINES: Final = "a block changes rows, and this is none of INSERT, UPDATE, DELETE, MERGE and TRUNCATE: run it before or after the block"


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement of a block at its place, the table that it changes, and those that it reads."""

    at: Span
    statement: Changing
    table: Table
    found: Sequence[Found]


@dataclass(frozen=True, slots=True)
class _Done:
    """What a step changed; None: nobody counted."""

    updated: int | None = None
    deleted: int | None = None
    inserted: int | None = None

    @property
    def affected(self) -> int | None:
        counts = (self.updated, self.deleted, self.inserted)
        return None if all(each is None for each in counts) else sum(each or 0 for each in counts)


def atomic(asked: Asked, block: Atomic) -> DataFrame:
    """Run a block: all of its statements become one commit, or nothing. Returns one row for each statement.

    Each statement sees what those before it did; all tables are read as of one moment. The block is repeated when other commits came
    first. Raises InvalidRequest, before anything is written, for a statement that cannot be in a block.
    """
    steps = [_step(asked, part) for part in block.parts]
    taking_part = _tables(steps)
    key = None if block.key is None else str(asked.value(block.key, "STRING"))
    attempts = ATTEMPTS if block.attempts is None else _whole(block.attempts)
    ended: list[JointTransaction] = []

    def begin() -> JointTransaction:
        return JointTransaction(
            asked.coordinator,
            tables=taking_part,
            isolation=block.isolation or IsolationLevel.SERIALIZABLE.value,
            key=key,
            storage_options=asked.options,
            elsewhere=written_by_executors,
            user_metadata=user_metadata_of(asked.spark),
        )

    def work(joint: JointTransaction) -> list[_Done]:
        ended[:] = [joint]
        if joint.repeated() is not None:
            return [_Done() for _ in steps]
        return [_placed(asked, joint, each) for each in steps]

    application = taking_part[0].access.ours.application
    done = repeated(begin, work, JointTransaction.leases_on_reads, attempts, DEFAULT_TIMEOUT_S, application)
    versions = {location: commit.version for location, commit in ended[0].commit_info.items()}
    rows = [
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
    ]
    return asked.spark.createDataFrame(rows, _COLUMNS)


def _whole(number: str) -> int:
    if not number.isdecimal() or int(number) < 1:
        raise InvalidRequest(f"ATTEMPTS {number}: give a whole number, 1 or more", attempts=number)
    return int(number)


def changing(asked: Asked, part: Part, refusal: Callable[[str], str]) -> Changing:
    """The statement, if it changes rows. Raises InvalidRequest with the place; `refusal` tells why another one is refused, by its verb."""
    statement = part.statement
    if isinstance(statement, Malformed):
        raise asked.refused(statement.at, statement.message)
    if not isinstance(statement, _KINDS):
        verb = statement.words[0] if isinstance(statement, Other) and statement.words else part.at.of(asked.text).split()[0].upper()
        raise asked.refused(Span(part.at.start, part.at.start + len(part.at.of(asked.text).split()[0])), refusal(verb))
    return statement


def _step(asked: Asked, part: Part) -> _Step:
    statement = changing(asked, part, lambda verb: _INSTEAD.get(verb, _DEFINES))
    return _Step(
        part.at, statement, table_of(asked, statement.target, "part in transactions"), found_in(asked, getattr(statement, "relations", ()))
    )


def _tables(steps: Sequence[_Step]) -> list[Table]:
    """All tables that are changed, or read as they are now."""
    read = [opened(each.place) for step in steps for each in step.found if each.relation.is_current]
    return list({table.location: table for table in (*read, *(step.table for step in steps))}.values())


def _placed(asked: Asked, joint: JointTransaction, step: _Step) -> _Done:
    """Run a step. A refusal that does not show a place in the block gets the step's."""
    try:
        return _run(asked, joint, step)
    except InvalidRequest as error:
        if error.message.startswith("line "):
            raise
        raise type(error)(asked.shown(step.at, error.message), **error.details) from error


def _run(asked: Asked, joint: JointTransaction, step: _Step) -> _Done:
    def so_far(tables: Sequence[Table]) -> Mapping[str, DataFrame]:
        read = {table.location: table for table in tables}
        return {location: joint.do(table, lambda part: rows_so_far(part, asked.spark)) for location, table in read.items()}

    statement, table = step.statement, step.table
    if isinstance(statement, Truncate):
        where = partition_condition(asked, statement.partition, joint.do(table, lambda part: part.struct), table.partition_columns)
        joint.truncate(table, where)
        return _Done()
    with views_of(asked, step.found, so_far) as edits:
        if isinstance(statement, Insert):
            source = insertion(asked, statement, joint.do(table, lambda part: part.struct), table.partition_columns, edits)
            part = TablePart(asked.spark, joint, table)
            if source.mode == "append":
                part.append(source.frame, merge_schema=statement.evolves)
            else:
                where = source.told.get("replaceWhere")
                part.overwrite(source.frame, where, dynamic=where is None and _is_dynamic(asked, table), merge_schema=statement.evolves)
            return _Done(inserted=joint.do(table, _rows_written))
        change = change_of(asked, statement)
        counts = joint.do(table, lambda part: change(part, edits))
        is_merge = isinstance(statement, Merge)
        return _Done(
            counts.updated if is_merge or isinstance(statement, Update) else None,
            counts.deleted if is_merge or isinstance(statement, Delete) else None,
            counts.inserted if is_merge else None,
        )


def _rows_written(part: Transaction) -> int | None:
    return part.steps[-1].metrics.get("numOutputRows") if part.steps else None


def _is_dynamic(asked: Asked, table: Table) -> bool:
    """Whether an overwrite that names no rows replaces the partitions of the new ones."""
    return bool(table.partition_columns) and str(asked.spark.conf.get("spark.sql.sources.partitionOverwriteMode")).lower() == "dynamic"
