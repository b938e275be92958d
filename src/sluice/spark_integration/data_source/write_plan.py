"""Plans a write through the data source, or a stream's batch, and commits it, beside the driver.

Everything that can be refused without the rows is refused when it is planned. It is committed once, however often Spark calls or repeats
that. The table is there before a stream's first batch, so that what a killed batch leaves is a table's garbage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from pyspark.sql.types import StructType as SparkStruct

from ...coordinator.api import DEFAULT_TIMEOUT_S, Commit, bounding
from ...storage.actions import AddFile
from ...storage.actions.features import FEATURE_PREFIX, writer_features
from ...storage.errors import InvalidRequest, TableExists, TableNotFound, UnsupportedFeature
from ...storage.schema.schema import StructType, to_arrow
from ...tables.client.address import TableAddress
from ...tables.client.property_rules import spelled
from ...tables.manage.creation import new_table
from ...tables.planned_writes import abandon_plan, commit_creation, plan_creation, plan_write
from ...tables.table import Table
from ...tables.write.data_writing import WritePlan
from ...tables.write.redefinition import Replaced
from ...tables.write.repeated_writes import done_in_all
from ...tables.write.terms import mark_of, marked, require_same_rows
from ..errors import in_options
from ..options import WriteOptions
from ..schemas import for_new_table, from_spark

_log = logging.getLogger(__name__)

# The results of transactions that this process began to commit; missing while unknown.
_begun: set[str] = set()
_done: dict[str, Commit | None] = {}


def open_table(options: WriteOptions) -> Table:
    """The table in the options. Raises TableNotFound and the like."""
    return opened(options.address, ack=options.terms.ack, timeout_s=cast("float", options.terms.timeout_s))  # an option is a number


def opened(address: TableAddress, *, ack: str = "published", timeout_s: float = DEFAULT_TIMEOUT_S) -> Table:
    """The table at an address. Raises TableNotFound and the like."""
    reached: dict[str, Any] = {"coordinator": address.coordinator, "storage_options": address.storage_options}
    return Table.open(address.location, **reached, application=address.application, ack=ack, timeout_s=timeout_s)


def commit(plan: WritePlan, options: WriteOptions, files: Sequence[AddFile], table: Table | None = None) -> None:
    """Commit what the tasks wrote, in the `table` if it is open in this process. Raises the errors of `Table.append`."""
    transaction_id = plan.transaction_id
    if transaction_id not in _done:
        outcome = None
        if transaction_id in _begun:  # then this process may have made the commit already
            with suppress(TableNotFound):
                outcome = open_table(options).outcome(transaction_id)
        _begun.add(transaction_id)
        if outcome is not None and outcome.error is not None:
            raise outcome.error
        done = None if outcome is None else outcome.commit
        if done is None and plan.read_version < 0:
            said = "CREATE TABLE AS SELECT" if options.defines else "WRITE"
            _, done = commit_creation(plan, files, only_new=options.only_new, name=options.name, managed=options.managed, operation=said)
        elif done is None:
            # nobody else writes a checkpoint that is due when this process ends
            with open_table(options) if table is None else table as mine:
                done = mine.commit_write(plan, files)
        _done[transaction_id] = done
    result = _done[transaction_id]
    if result is not None:
        _log.info("transaction %s is version %d of %s", transaction_id, result.version, options.address.location)


def abort(plan: WritePlan, options: WriteOptions) -> None:
    """Log it, and leave the files to garbage collection: Spark also calls this after a commit that succeeded."""
    _log.warning("the write of transaction %s to %s was aborted", plan.transaction_id, options.address.location)
    abandon_plan(plan)


# -- micro-batches -------------------------------------------------------------------------------------------------------


def is_written(tables: Sequence[Table], batch: tuple[str, int]) -> bool:
    """Whether the tables have a batch. Raises ConcurrentTransactionException if one has a later one, or other rows under its number.

    A query repeats at most the batch after the last one that its checkpoint knows to be written: if it repeats others, the checkpoint
    is an old copy. Raises HalfCommitted if some of the tables lost their part of the batch.
    """
    for table in tables:
        require_same_rows(table.snapshot().raw.app_transactions, batch, table.location)
    since = {table.location: table.version for table in tables}
    return bool(done_in_all({table.location: table.coordinated for table in tables}, batch, "published", since))


def commit_batch(plan: WritePlan, options: WriteOptions, files: Sequence[AddFile], batch: tuple[str, int], checkpoint: str | None) -> None:
    """Commit the files of a batch (query id, number), unless it is there. Raises the errors of `Table.append`."""
    mark: int | None = None
    parts = urlsplit(checkpoint or "")
    if parts.scheme in ("", "file"):  # the checkpoint is on this machine's disk
        folder = unquote(parts.path) if parts.scheme else checkpoint or ""
        try:
            mark = mark_of(batch[1], (Path(folder) / "offsets" / str(batch[1])).read_bytes())
        except OSError as missing:
            _log.info("batch %d is committed without a mark of its offsets: %s", batch[1], missing)
    with marked(batch, mark):
        if is_written([open_table(options)], batch):
            _log.info("batch %d of query %s is in %s already", batch[1], batch[0], options.address.location)
            abandon_plan(plan)
            return
        commit(replace(plan, terms=replace(plan.terms, once=batch)), options, files)


def plan_for(options: WriteOptions, schema: SparkStruct, table: Table | None = None) -> tuple[WritePlan, bool]:
    """The plan of a write, or of creating the table if it does not exist; and whether its application has written it before.

    A `table` that is open already is not opened again. Raises SchemaMismatch if the columns do not fit, InvalidRequest if the table differs
    from the options, and the conflict if rows to replace have changed since the version that the write is based on.
    """
    data = from_spark(schema)
    # Spark loses the case of options
    options = replace(options, properties={spelled(key): value for key, value in options.properties.items()})
    try:
        table = open_table(options) if table is None else table
    except TableNotFound:
        return _creation(options, for_new_table(data)), False
    _check_as_told(table, options)
    replaced = Replaced(options.partition_by, options.cluster_by, options.properties if options.replaces else None)
    try:
        with bounding(options.terms.timeout_s, table.access.clock):
            plan = plan_write(
                table.coordinated,
                to_arrow(for_new_table(data) if options.overwrite_schema else data),
                options.terms,
                mode=options.mode,
                where=options.where,
                read_where=options.read_where,
                merge_schema=options.merge_schema,
                replaced=replaced if options.overwrite_schema else None,
            )
        plan.require_fit(to_arrow(data))
    except InvalidRequest as refused:
        raise in_options(refused) from refused
    plan = replace(plan, leases=(*plan.leases, *options.leases), source_known=options.source_known, **options.of_files)
    table.check_write(plan)
    return plan, is_repeated(table, options)


def require_filling(plan: WritePlan, schema: SparkStruct) -> None:
    """Abandon the plan, and raise UnsupportedFeature, if its tasks had to evaluate an expression that they cannot."""
    try:
        plan.require_filling(to_arrow(from_spark(schema)))
    except UnsupportedFeature as refused:
        abandon_plan(plan)
        refused.tell(
            ": df.write in a session of sluice.configure, or sluice.delta; in a stream with foreachBatch. What format('sluice') writes by "
            "itself is written by Python"
        )
        raise


def _creation(options: WriteOptions, schema: StructType) -> WritePlan:
    for option, version in (("readVersion", options.terms.read_version), ("ifVersion", options.terms.if_version)):
        if version is not None:
            raise InvalidRequest(f"{option} is {version}, but there is no table at {options.address.location}", option=option)
    columns = options.partition_by or ()
    if options.mode == "dynamic" and not columns:
        raise InvalidRequest("partitionOverwriteMode=dynamic needs a partitioned table; give partitionBy for the new one")
    new = new_table(schema, columns, options.properties, cluster_by=options.cluster_by or ())
    plan = plan_creation(options.address, new, options.terms, allow_nonempty=options.allow_nonempty)
    # If another client creates it first, this applies to that table.
    return replace(plan, mode=options.mode, where=options.where, leases=options.leases, **options.of_files)


def is_repeated(table: Table, options: WriteOptions) -> bool:
    """Whether the write's application has written it before."""
    once = options.terms.once
    if once is None:
        return False
    app, number = once
    numbers = table.snapshot().raw.app_transactions
    require_same_rows(numbers, once, table.location)
    known = numbers.get(app)
    return known is not None and known.version >= number


def _check_as_told(table: Table, options: WriteOptions) -> None:
    """Check that the options agree with an existing table: they do not change it."""
    if options.overwrite_schema:
        if options.properties and not options.replaces:
            raise InvalidRequest(
                "properties were given with overwriteSchema, which leaves them as they are: use sluice.Table.set_properties, "
                "or writeTo(...).createOrReplace()",
                option="properties",
            )
        return
    grouped = options.cluster_by
    if grouped is not None and [each.lower() for each in grouped] != [each.lower() for each in table.clustering_columns]:
        is_clustered = f"is clustered by {', '.join(table.clustering_columns)}" if table.clustering_columns else "is not clustered"
        raise InvalidRequest(
            f"clusterBy is {', '.join(grouped)!r}, but {table.location} {is_clustered}; leave it out, or change the table "
            "with ALTER TABLE ... CLUSTER BY",
            option="clusterBy",
        )
    told = options.partition_by
    if told is not None and [each.lower() for each in told] != [each.lower() for each in table.partition_columns]:
        is_partitioned = f"is partitioned by {', '.join(table.partition_columns)}" if table.partition_columns else "has no partitions"
        message = f"partitionBy is {', '.join(told)!r}, but {table.location} {is_partitioned}; leave the option out"
        raise InvalidRequest(message, option="partitionBy")
    named = {FEATURE_PREFIX + name: "supported" for name in writer_features(table.snapshot().raw.protocol)} if options.properties else {}
    for key, value in options.properties.items():
        has = named.get(key, table.properties.get(key))
        if has != value:
            raise InvalidRequest(
                f"properties say {key}={value!r}, but {table.location} has {'none of that name' if has is None else repr(has)}; "
                "a write does not change them: leave the option out, or use sluice.Table.set_properties",
                option="properties",
            )


def create_if_missing(options: WriteOptions, schema: SparkStruct, require_new: Callable[[], None] = lambda: None) -> None:
    """Create the table that the options describe, without rows, unless it is there or another client is faster. `require_new` is called
    first where it is not there, and raises if it should be.
    """
    try:
        open_table(options)
        return
    except TableNotFound:
        require_new()
        plan, _ = plan_for(options, schema)
    if plan.read_version >= 0:
        abandon_plan(plan)
        return
    try:
        commit_creation(plan, (), only_new=True, name=options.name, managed=options.managed, operation="CREATE TABLE")
    except TableExists:
        abandon_plan(plan)
        if options.name is not None:  # the name may be taken by another table
            raise


def plan_batch(options: WriteOptions, schema: SparkStruct) -> WritePlan:
    """The plan of a batch; creates the table if it is not there. Raises what `plan_for` does."""
    create_if_missing(replace(options, mode="append", where=None), schema)
    # the columns to cluster by may change while the stream runs
    plan = plan_for(replace(options, cluster_by=None), schema)[0]
    require_filling(plan, schema)
    return plan
