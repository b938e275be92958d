"""Plans a stream's batches: the table is there before the first one, so that what a killed batch leaves is a table's garbage."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql.types import StructType as SparkStruct

from ...storage.errors import TableExists, TableNotFound
from ...tables.planned_writes import abandon_plan, commit_creation
from ...tables.write.data_writing import WritePlan
from ..options import WriteOptions
from .write_commit import open_table
from .write_plan import plan_for, require_filling


def create_if_missing(options: WriteOptions, schema: SparkStruct, require_new: Callable[[], None] = lambda: None) -> None:
    """Create the table that the options describe, without rows, unless it is there or another client is faster.

    `require_new` is called first where it is not there, and raises if it should be.
    """
    try:
        open_table(options)
        return
    except TableNotFound:
        require_new()
        plan, _ = plan_for(options, schema, until_gone=os.getpid())
    if plan.read_version >= 0:
        abandon_plan(plan)
        return
    try:
        commit_creation(plan, (), ack=options.ack, timeout_s=options.timeout_s, only_new=True, name=options.name, managed=options.managed)
    except TableExists:
        abandon_plan(plan)
        if options.name is not None:  # the name may be taken by another table
            raise


def plan_batch(options: WriteOptions, schema: SparkStruct, *, until_gone: int) -> WritePlan:
    """The plan of a batch; creates the table if it is not there. Raises what `plan_for` does."""
    create_if_missing(replace(options, mode="append", where=None), schema)
    # the columns to cluster by may change while the stream runs
    plan = plan_for(replace(options, cluster_by=None), schema, until_gone=until_gone)[0]
    require_filling(plan, schema)
    return plan
