"""Writing through the data source: planned and committed next to the driver, files written by tasks.

What is durable when: tasks upload files that nobody refers to; `commit` makes one transaction of them. Whoever dies before
that leaves only such files. `abort` deletes nothing: Spark also calls it after a commit whose outcome it did not hear.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType as SparkStruct

from ..coordinator.isolation import stricter, table_isolation
from ..coordinator.outcomes import Commit
from ..storage.actions import AddFile
from ..storage.errors import InvalidRequest, TableNotFound
from ..storage.features import FEATURE_PREFIX, writer_features
from ..storage.schema import StructType, conform, to_arrow
from ..tables.commits import abandon_plan, commit_creation, plan_creation
from ..tables.table import Table
from ..tables.writing import WritePlan
from .options import WriteOptions
from .schemas import for_new_table, from_spark

__all__ = ["FilesWritten", "SluiceWriter", "plan_for"]

_log = logging.getLogger(__name__)

# What became of the transactions that this process has begun to commit; absent while that is not known.
_begun: set[str] = set()
_done: dict[str, Commit | None] = {}


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """What a task tells the commit: the data files it wrote."""

    files: tuple[AddFile, ...]


def _open(options: WriteOptions) -> Table:
    address = options.address
    return Table.open(
        address.location,
        coordinator=address.coordinator,
        storage_options=address.storage_options,
        application=address.application,
        ack=options.ack,
        timeout_s=options.timeout_s,
    )


def plan_for(options: WriteOptions, schema: SparkStruct) -> tuple[WritePlan, bool]:
    """The plan of a write, of the table's creation where there is none; and whether its application has written it before.

    Raises SchemaMismatch when the columns do not fit, InvalidRequest when the table is not what the options say of it, and the
    conflict when what it replaces was changed already since the version it is made on.
    """
    data = from_spark(schema)
    try:
        table = _open(options)
    except TableNotFound:
        return _creation(options, for_new_table(data)), False
    _check_as_told(table, options)
    plan = table.plan_write(
        to_arrow(data),
        mode=options.mode,
        where=options.where,
        merge_schema=options.merge_schema,
        transaction=options.transaction,
        read_version=options.read_version,
    )
    conform(to_arrow(data).empty_table(), plan.schema)
    stricter(table_isolation(plan.metadata.configuration), options.isolation)
    plan = replace(plan, isolation=options.isolation, leases=(*plan.leases, *options.leases))
    table.check_write(plan)
    return plan, _is_repeated(table, options)


def _creation(options: WriteOptions, schema: StructType) -> WritePlan:
    if options.read_version is not None:
        raise InvalidRequest(f"readVersion is {options.read_version}, but there is no table at {options.address.location}")
    columns = options.partition_by or ()
    if options.mode == "dynamic" and not columns:
        raise InvalidRequest("partitionOverwriteMode=dynamic needs a partitioned table; give partitionBy for the one that is created")
    plan = plan_creation(options.address, schema, columns, dict(options.properties), options.transaction)
    stricter(table_isolation(plan.metadata.configuration), options.isolation)
    # If somebody else creates it first, this is what happens to that one.
    return replace(plan, mode=options.mode, where=options.where, isolation=options.isolation, leases=options.leases)


def _is_repeated(table: Table, options: WriteOptions) -> bool:
    if options.transaction is None:
        return False
    app, number = options.transaction
    known = table.snapshot().raw.app_transactions.get(app)
    return known is not None and known.version >= number


def _check_as_told(table: Table, options: WriteOptions) -> None:
    """What is said about a table that exists must be true of it: options do not change it."""
    told = options.partition_by
    if told is not None and [each.lower() for each in told] != [each.lower() for each in table.partition_columns]:
        is_partitioned = f"by {', '.join(table.partition_columns)}" if table.partition_columns else "not at all"
        raise InvalidRequest(
            f"partitionBy is {', '.join(told)!r}, but {table.location} is partitioned {is_partitioned}; leave the option out",
            option="partitionBy",
        )
    named = {FEATURE_PREFIX + name: "supported" for name in writer_features(table.snapshot().raw.protocol)} if options.properties else {}
    for key, value in options.properties.items():
        has = named.get(key, table.properties.get(key))
        if has != value:
            raise InvalidRequest(
                f"properties say {key}={value!r}, but {table.location} has {'none of that name' if has is None else repr(has)}; "
                "a write does not change them: leave the option out, or use sluice.Table.set_properties",
                option="properties",
            )


class SluiceWriter(DataSourceArrowWriter):
    """Writes the rows of one job and commits them as one transaction."""

    def __init__(self, options: WriteOptions, schema: SparkStruct) -> None:
        self._options = options
        self._plan, self._is_repeated = plan_for(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """In a task: the rows as data files, named after the task's attempt, so that attempts never meet."""
        if self._is_repeated:
            return FilesWritten(())
        context = TaskContext.get()
        label = "local" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
        return FilesWritten(self._plan.write(iterator, label=label))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote, once however often it is called. Raises what `Table.append` raises."""
        transaction_id = self._plan.transaction_id
        if transaction_id not in _done:
            files = [each for message in messages if isinstance(message, FilesWritten) for each in message.files]
            _done[transaction_id] = self._committed_before() or self._commit(files)
        commit = _done[transaction_id]
        if commit is not None:
            _log.info("transaction %s is version %d of %s", transaction_id, commit.version, self._options.address.location)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Note it, and leave the files to garbage collection: Spark also says this of a commit that succeeded."""
        _log.warning("the write of transaction %s to %s was aborted", self._plan.transaction_id, self._options.address.location)
        abandon_plan(self._plan)

    def _committed_before(self) -> Commit | None:
        """The commit of this transaction, if this process tried before and it succeeded. Raises the refusal it met."""
        transaction_id = self._plan.transaction_id
        if transaction_id not in _begun:
            _begun.add(transaction_id)
            return None
        try:
            outcome = _open(self._options).outcome(transaction_id)
        except TableNotFound:
            return None
        if outcome.error is not None:
            raise outcome.error
        return outcome.commit

    def _commit(self, files: Sequence[AddFile]) -> Commit | None:
        plan, options = self._plan, self._options
        if plan.read_version < 0:
            return commit_creation(plan, files, ack=options.ack, timeout_s=options.timeout_s)[1]
        return _open(options).commit_write(plan, files)
