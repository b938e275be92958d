"""Plans a write through the data source, or a stream's batch: everything that can be refused without the rows is refused here.

The table is there before a stream's first batch, so that what a killed batch leaves is a table's garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql.types import StructType as SparkStruct

from ...coordinator.api import bounding
from ...storage.actions.features import FEATURE_PREFIX, writer_features
from ...storage.errors import InvalidRequest, TableExists, TableNotFound, UnsupportedFeature
from ...storage.schema.schema import StructType, to_arrow
from ...tables.client.property_rules import spelled
from ...tables.manage.creation import new_table
from ...tables.planned_writes import abandon_plan, commit_creation, plan_creation, plan_write
from ...tables.table import Table
from ...tables.write.data_writing import WritePlan
from ...tables.write.redefinition import Replaced
from ...tables.write.terms import require_same_rows
from ..errors import in_options
from ..options import WriteOptions
from ..schemas import for_new_table, from_spark
from .write_commit import open_table


def plan_for(options: WriteOptions, schema: SparkStruct) -> tuple[WritePlan, bool]:
    """The plan of a write, or of creating the table if it does not exist; and whether its application has written it before.

    Raises SchemaMismatch if the columns do not fit, InvalidRequest if the table differs from the options, and the conflict
    if rows to replace have changed since the version that the write is based on.
    """
    data = from_spark(schema)
    # Spark loses the case of options
    options = replace(options, properties={spelled(key): value for key, value in options.properties.items()})
    try:
        table = open_table(options)
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
    plan = replace(
        plan,
        leases=(*plan.leases, *options.leases),
        max_records_per_file=options.max_records_per_file,
        compression=options.compression,
        source_known=options.source_known,
    )
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
    return replace(
        plan,
        mode=options.mode,
        where=options.where,
        leases=options.leases,
        max_records_per_file=options.max_records_per_file,
        compression=options.compression,
    )


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
        raise InvalidRequest(
            f"partitionBy is {', '.join(told)!r}, but {table.location} {is_partitioned}; leave the option out",
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


def create_if_missing(options: WriteOptions, schema: SparkStruct, require_new: Callable[[], None] = lambda: None) -> None:
    """Create the table that the options describe, without rows, unless it is there or another client is faster.

    `require_new` is called first where it is not there, and raises if it should be.
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
        commit_creation(
            plan,
            (),
            only_new=True,
            name=options.name,
            managed=options.managed,
            operation="CREATE TABLE",
        )
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
