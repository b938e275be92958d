"""Plans a read through the data source: the table and its version."""

from __future__ import annotations

from contextlib import suppress

from ...coordinator.api import SystemClock
from ...coordinator.limits import DEFAULT_TIMEOUT_S
from ...storage.actions import Metadata
from ...storage.errors import VersionNotFound
from ...storage.log.timetravel import version_at
from ...storage.schema.schema import StructType, parse_schema
from ...tables.client.open_table import ReadTable, open_table
from ...tables.read.streams.offsets import another_table
from ...tables.read.streams.schema_tracking import SchemaTracking
from ...tables.read.table_snapshot import TableSnapshot
from ..options import ReadOptions
from ..stream_options import StreamReadOptions


def access_for(options: ReadOptions | StreamReadOptions) -> ReadTable:
    """The table in the options, for reading only. Raises TableNotFound and the like."""
    return open_table(options.address, consistency=options.consistency)


def snapshot_for(options: ReadOptions) -> TableSnapshot:
    """The version in the options, the latest by default. Raises TableNotFound, VersionNotFound and the like."""
    table = access_for(options)
    version = options.version if options.timestamp_ms is None else version_at(table.store, options.timestamp_ms)
    return TableSnapshot(table.store, table.read(version, timeout_s=DEFAULT_TIMEOUT_S))


def shown_for(options: StreamReadOptions) -> tuple[int, Metadata]:
    """The version, and its metadata, from which a stream has its columns: the latest one, unless it tracks schemas.

    Raises TableNotFound and the like; VersionNotFound for a beginning that the table does not have yet, before a sink is created;
    InvalidRequest for a stream that tracks the schemas of another table.
    """
    table = access_for(options)
    latest = table.read(timeout_s=DEFAULT_TIMEOUT_S)
    shown, begins = latest.version, options.start.version
    options.start.require_begun(options.address.location, shown, SystemClock().now_ms())
    tracking = tracking_of(options)
    if tracking is not None:
        known = tracking.shown()
        if known is not None:
            if known[1].id != latest.metadata.id:
                raise another_table(options.address.location, known[1].id, latest.metadata.id)
            return known
        if begins is not None and begins < shown:
            with suppress(VersionNotFound):  # where failOnDataLoss=false, the stream begins later
                return begins, table.at(begins).metadata
    return shown, latest.metadata


def columns_of(options: StreamReadOptions, metadata: Metadata) -> StructType:
    """The columns of a stream that shows this schema. Raises InvalidRequest if one of them is named like a column of changes."""
    struct = parse_schema(metadata.schema_string)
    if not options.rules.changes:
        return struct
    from ...tables.read.changes import changes_schema

    return changes_schema(struct)


def tracking_of(options: StreamReadOptions) -> SchemaTracking | None:
    """Where the stream notes which schema it shows; None if it does not."""
    return None if options.tracking is None else SchemaTracking(options.tracking, options.address.storage_options)
