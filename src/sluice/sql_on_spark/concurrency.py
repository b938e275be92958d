"""BEGIN ATOMIC ... END, EXPLAIN CONFLICT, LOCK TABLE and UNLOCK TABLE by Spark.

Each statement of a block is an operation of the DataFrame API in one transaction. Statements that are compared are resolved by Spark's
analyser and not run. Locks are those of Spark's sessions, also for the statements under them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, ByteType, DateType, IntegerType, LongType, ShortType, StringType

from ..coordinator.api import Foreseen
from ..delta.joint import TablePart
from ..delta.metrics import frame
from ..delta.metrics import frame as answered
from ..spark_integration.active_session import when_stopped
from ..spark_integration.jvm import quoted
from ..spark_integration.rows.conditions import conjuncts, names_of, predicate_of, predicate_text, resolved
from ..spark_integration.rows.plan_reads import reads_of, written_with_reads
from ..spark_integration.rows.reading import rows_so_far
from ..spark_integration.schemas import to_spark
from ..sql_plain.concurrency import foreseeing, locking
from ..sql_plain.concurrency.blocks import Done, Step, changing, done_by, rows_written, run_block, truncated
from ..sql_plain.concurrency.foreseeing import ANY, ROWS_MAX, Foreseeable, Known
from ..sql_plain.concurrency.locking import Locks
from ..sql_plain.place import at_one_moment, called, opened, source_called
from ..sql_plain.request import Edit
from ..statements.compound import Atomic, ExplainConflict, Part
from ..statements.cursor import Span
from ..statements.locks import Lock, Unlock
from ..statements.maintenance import Optimize
from ..statements.rows import Insert, Merge, Truncate
from ..storage.caches import ForkSafeLock
from ..storage.schema.schema import StructType
from ..tables.joint_transaction import JointTransaction
from ..tables.table import Table
from .queries import Found, found_in, table_of, views_of
from .rows import change_of, insertion, source_rows
from .spark_request import Asked


def atomic(asked: Asked, block: Atomic) -> DataFrame:
    """Run a block: all of its statements become one commit, or nothing. Returns one row for each statement."""
    found = [_step(asked, part) for part in block.parts]
    steps = [step for step, _ in found]
    return frame(
        asked.spark,
        run_block(asked, block, steps, lambda joint, number: _run(asked, joint, *found[number]), written_with_reads),
    )


def _step(asked: Asked, part: Part) -> tuple[Step, Sequence[Found]]:
    statement = changing(asked, part)
    table = table_of(asked, statement.target, "part in transactions")
    found = found_in(asked, getattr(statement, "relations", ()))
    return Step(part.at, statement, table, [opened(each.place) for each in found if each.relation.is_current]), found


def _run(asked: Asked, joint: JointTransaction, step: Step, found: Sequence[Found]) -> Done:
    def so_far(tables: Sequence[Table]) -> Mapping[str, DataFrame]:
        read = {table.location: table for table in tables}
        return {location: joint.do(table, lambda part: rows_so_far(part, asked.spark)) for location, table in read.items()}

    statement, table = step.statement, step.table
    if isinstance(statement, Truncate):
        return truncated(asked, joint, statement, table)
    with views_of(asked, found, so_far) as edits:
        if isinstance(statement, Insert):
            source = insertion(asked, statement, joint.do(table, lambda part: part.struct), table.partition_columns, edits)
            part = TablePart(asked.spark, joint, table)
            if source.mode == "append":
                part.append(source.frame, merge_schema=statement.evolves)
            else:
                where = source.told.get("replaceWhere")
                part.overwrite(source.frame, where, dynamic=where is None and _is_dynamic(asked, table), merge_schema=statement.evolves)
            return Done(inserted=joint.do(table, rows_written))
        change = change_of(asked, statement)
        return done_by(statement, joint.do(table, lambda part: change(part, edits)))


def _is_dynamic(asked: Asked, table: Table) -> bool:
    """Whether an overwrite that names no rows replaces the partitions of the new ones."""
    return bool(table.partition_columns) and str(asked.spark.conf.get("spark.sql.sources.partitionOverwriteMode")).lower() == "dynamic"


# Types whose values in Python mean the same in a condition, whatever the session's time zone.
_PLAIN: Final = (StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, DateType)


def explain_conflict(asked: Asked, statement: ExplainConflict) -> DataFrame:
    """The verdict on two statements, at each isolation level and in both orders."""
    table = partial(table_of, asked, takes_no="part in transactions")
    return answered(asked.spark, foreseeing.explain_conflict(asked, statement, table, partial(_foreseen, asked)))


def _foreseen(asked: Asked, statement: Foreseeable, table: Table) -> Foreseen:
    """What the statement would do, as far as Spark's analyser shows it."""
    schema = table.struct
    if isinstance(statement, (Truncate, Optimize)):
        return foreseeing.without_rows(asked, statement, table, lambda where: _condition(asked, schema, asked.expression(where), None))
    found = found_in(asked, statement.relations)
    with views_of(asked, found, at_one_moment) as edits:
        if isinstance(statement, Insert):
            source = insertion(asked, statement, schema, table.partition_columns, edits)
            replaces = None if source.mode == "append" else source.told.get("replaceWhere") or ANY
            reads = reads_of(source.frame, table.location, schema)
            rows = _values(source.frame, schema)
            return foreseeing.inserting(asked, statement, table, rows, replaces, None if reads is None else reads.where)
        reads_itself = any(each.relation.is_current and opened(each.place).location == table.location for each in found)
        if isinstance(statement, Merge):
            return foreseeing.merging(statement, Known(_matching(asked, statement, schema, edits), reads_itself))
        where = None
        if statement.where is not None:
            where = _condition(asked, schema, asked.expression(statement.where, edits), statement.alias or called(statement.target))
        return foreseeing.changing_rows(asked, statement, Known(where or ANY, reads_itself), schema)


def _condition(asked: Asked, schema: StructType, text: str, alias: str | None) -> str | None:
    """What of a condition sluice can evaluate; None if nothing."""
    frame = asked.spark.createDataFrame([], to_spark(schema))
    frame = frame if alias is None else frame.alias(alias)
    tree = resolved(frame, text, "the statement", subqueries=True)
    predicate, _ = predicate_of(list(conjuncts(tree)), names_of(frame), schema)
    return None if predicate is None else predicate.to_sql()


def _values(frame: DataFrame, schema: StructType) -> str:
    """A condition that rows satisfy which are written in the statement itself; ANY for those that only a run would tell."""
    if not _is_written_out(frame):
        return ANY
    kinds = {each.name.lower(): each for each in to_spark(schema).fields}
    known = [kinds[name.lower()] for name in frame.columns if name.lower() in kinds]
    stored = [frame[quoted(each.name)].cast(each.dataType).alias(each.name) for each in known if isinstance(each.dataType, _PLAIN)]
    if not stored:
        return ANY
    return foreseeing.written_out([row.asDict() for row in frame.select(*stored).take(ROWS_MAX + 1)], schema)


def _is_written_out(frame: DataFrame) -> bool:
    """Whether Spark has the rows at hand: VALUES, or SELECT without FROM."""
    planned: Any = getattr(frame, "_jdf", None)
    if planned is None:
        return False
    plan = planned.queryExecution().optimizedPlan()
    kind = str(plan.nodeName())
    return kind == "LocalRelation" or (kind == "Project" and str(plan.child().nodeName()) == "OneRowRelation")


def _matching(asked: Asked, statement: Merge, schema: StructType, edits: Sequence[Edit]) -> str:
    """What a MERGE's ON says of the table alone."""
    target = asked.spark.createDataFrame([], to_spark(schema))
    alias, source = statement.alias or called(statement.target), source_called(statement)
    target = target if alias is None else target.alias(alias)
    rows = source_rows(asked, statement, edits)
    pairs = target.crossJoin(rows if source is None else rows.alias(source))
    tree = resolved(pairs, asked.expression(statement.on, edits), "the merge", subqueries=True)
    predicate, _ = predicate_of(list(conjuncts(tree)), names_of(target), schema)
    return ANY if predicate is None else predicate.to_sql()


_of_sessions: Final[dict[SparkSession, Locks]] = {}
_guard: Final = ForkSafeLock()


def _locks_of(spark: SparkSession) -> Locks:
    with _guard:
        return _of_sessions.setdefault(spark, Locks())


def lock(asked: Asked, statement: Lock) -> DataFrame:
    """Take leases, all of them or none, for the session. Returns one row for each table: table, mode, condition, token."""

    def condition(table: Table, where: Span) -> str:
        return predicate_text(asked.spark, table.struct, asked.expression(where), "LOCK TABLE ... WHERE")

    return frame(asked.spark, locking.lock(asked, statement, _locks_of(asked.spark), partial(table_of, asked, takes_no="locks"), condition))


def unlock(asked: Asked, statement: Unlock) -> DataFrame:
    """Release leases of the session. Returns their rows. Raises LeaseLost, after it released them, if one of them was lost before."""
    return frame(asked.spark, locking.unlock(asked, statement, _locks_of(asked.spark), partial(table_of, asked, takes_no="locks")))


@contextmanager
def under_locks(spark: SparkSession) -> Iterator[None]:
    """What this thread commits in the block depends on the locks of the session, also those that another thread took."""
    with _guard:
        locks = _of_sessions.get(spark)
    if locks is None:
        yield
        return
    with locks.bound():
        yield


@when_stopped
def _release_all() -> None:
    """Spark stops, and with it all sessions of the process."""
    with _guard:
        everything = list(_of_sessions.values())
        _of_sessions.clear()
    for each in everything:
        each.release()
