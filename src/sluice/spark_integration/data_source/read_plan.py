"""Plans a read through the data source: the table and its version, or the changes of some versions."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from ...coordinator.api import SystemClock
from ...coordinator.limits import DEFAULT_TIMEOUT_S
from ...storage.actions import Metadata
from ...storage.errors import VersionNotFound
from ...storage.log.timetravel import version_at
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import StructType
from ...tables.client.open_table import open_table
from ...tables.read.streams.offsets import another_table
from ...tables.read.streams.table_stream import SchemaTracking
from ...tables.read.table_snapshot import TableSnapshot
from ..options import ReadOptions
from ..stream_options import StreamReadOptions

if TYPE_CHECKING:
    from ...tables.read.changes import ChangesPart


def snapshot_for(options: ReadOptions) -> TableSnapshot:
    """The version in the options, the latest by default. Raises TableNotFound, VersionNotFound and the like."""
    table = open_table(options.address, consistency=options.consistency)
    version = options.version if options.timestamp_ms is None else version_at(table.store, options.timestamp_ms)
    return TableSnapshot(table.store, table.read(version, timeout_s=DEFAULT_TIMEOUT_S))


def changes_for(options: ReadOptions) -> tuple[list[ChangesPart], Predicate | None]:
    """The changes selected by the options, in parts, and the condition on their rows. Raises VersionNotFound if some of the versions do not
    exist (any more).
    """
    from ...tables.read.changes import split_changes

    selected = options.changes
    assert selected is not None
    table = open_table(options.address, consistency=options.consistency)
    parts = split_changes(table, selected.after, selected.up_to, {"by": selected.by}, os.cpu_count() or 1)
    return parts, None if options.where is None else Predicate.parse(options.where, parts[0].schema)


def shown_for(options: StreamReadOptions) -> tuple[int, Metadata]:
    """The version, and its metadata, from which a stream has its columns: the latest one, unless it tracks schemas.

    Raises TableNotFound and the like; VersionNotFound for a beginning that the table does not have yet, before a sink is created;
    InvalidRequest for a stream that tracks the schemas of another table.
    """
    table = open_table(options.address, consistency=options.consistency)
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
    struct = metadata.schema
    if not options.rules.changes:
        return struct
    from ...tables.read.changes import changes_schema

    return changes_schema(struct)


def tracking_of(options: StreamReadOptions) -> SchemaTracking | None:
    """Where the stream notes which schema it shows; None if it does not."""
    return None if options.tracking is None else SchemaTracking(options.tracking, options.address.storage_options)
