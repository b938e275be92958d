"""BEGIN ATOMIC ... END without Spark: each statement is an operation in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..sql_plain.concurrency.blocks import Done, Step, changing, rows_written, run_block, truncated
from ..sql_plain.place import opened
from ..sql_plain.reports import Answer
from ..statements.compound import Atomic, Part
from ..statements.rows import Insert, Merge, Truncate, Update
from ..tables.joint_transaction import JointTransaction
from ..tables.table import Table
from .changing import change
from .inserting import insert_into
from .plain import Plain
from .queries import SoFar, require_place


def atomic(asked: Plain, block: Atomic) -> Answer:
    """Run a block: all of its statements become one commit, or nothing.

    A statement in it that needs Spark raises UnsupportedFeature ("Spark"), and then nothing of the block has happened.
    """
    steps = [_step(asked, part) for part in block.parts]
    return run_block(asked, block, steps, lambda joint, number: _run(asked, joint, steps[number]))


def _step(asked: Plain, part: Part) -> Step:
    statement = changing(asked, part)
    relations = [each for each in getattr(statement, "relations", ()) if each.is_current and each.changes is None]
    read = [opened(require_place(asked, each.name)) for each in relations]
    return Step(part.at, statement, opened(require_place(asked, statement.target)), read)


def _run(asked: Plain, joint: JointTransaction, step: Step) -> Done:
    statement, table = step.statement, step.table

    def reading(read: Sequence[Table]) -> Mapping[str, SoFar]:
        return {each.location: joint.do(each, SoFar) for each in read}

    if isinstance(statement, Truncate):
        return truncated(asked, joint, statement, table)
    if isinstance(statement, Insert):
        joint.do(table, lambda part: insert_into(asked, statement, part, table.partition_columns, reading))
        return Done(inserted=joint.do(table, rows_written))
    counts = joint.do(table, lambda part: change(asked, statement, part, reading))
    is_merge = isinstance(statement, Merge)
    return Done(
        counts.updated if is_merge or isinstance(statement, Update) else None,
        counts.deleted if is_merge or not isinstance(statement, Update) else None,
        counts.inserted if is_merge else None,
    )
