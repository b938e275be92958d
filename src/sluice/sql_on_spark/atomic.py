"""BEGIN ATOMIC ... END by Spark: each statement is an operation of the DataFrame API in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from ..delta.joint import TablePart
from ..delta.metrics import frame
from ..spark_integration.files.writing import written_by_executors
from ..spark_integration.rows.reading import rows_so_far
from ..sql_plain.concurrency.blocks import Done, Step, changing, rows_written, run_block, truncated
from ..sql_plain.place import opened
from ..statements.compound import Atomic, Part
from ..statements.rows import Insert, Merge, Truncate, Update
from ..tables.joint_transaction import JointTransaction
from ..tables.table import Table
from .queries import Found, found_in, table_of, views_of
from .rows import change_of, insertion
from .spark_request import Asked


def atomic(asked: Asked, block: Atomic) -> DataFrame:
    """Run a block: all of its statements become one commit, or nothing. Returns one row for each statement."""
    found = [_step(asked, part) for part in block.parts]
    steps = [step for step, _ in found]
    return frame(
        asked.spark,
        run_block(asked, block, steps, lambda joint, number: _run(asked, joint, *found[number]), written_by_executors),
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
        counts = joint.do(table, lambda part: change(part, edits))
        is_merge = isinstance(statement, Merge)
        return Done(
            counts.updated if is_merge or isinstance(statement, Update) else None,
            counts.deleted if is_merge or not isinstance(statement, Update) else None,
            counts.inserted if is_merge else None,
        )


def _is_dynamic(asked: Asked, table: Table) -> bool:
    """Whether an overwrite that names no rows replaces the partitions of the new ones."""
    return bool(table.partition_columns) and str(asked.spark.conf.get("spark.sql.sources.partitionOverwriteMode")).lower() == "dynamic"
