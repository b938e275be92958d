"""Plans a read through the data source: the table and its version."""

from __future__ import annotations

from ...coordinator.limits import DEFAULT_TIMEOUT_S
from ...storage.log.timetravel import version_at
from ...tables.client.access import Access
from ...tables.read.table_snapshot import TableSnapshot
from ..options import ReadOptions
from ..stream_options import StreamReadOptions

__all__ = ["access_for", "latest_for", "snapshot_for"]


def access_for(options: ReadOptions | StreamReadOptions) -> Access:
    """The table in the options, for reading only. Raises TableNotFound and the like."""
    return Access.opened(options.address, consistency=options.consistency)


def snapshot_for(options: ReadOptions) -> TableSnapshot:
    """The version in the options, the latest by default. Raises TableNotFound, VersionNotFound and the like."""
    access = access_for(options)
    version = options.version if options.timestamp_ms is None else version_at(access.store, options.timestamp_ms)
    return TableSnapshot(access.store, access.read(version, timeout_s=DEFAULT_TIMEOUT_S))


def latest_for(options: StreamReadOptions) -> TableSnapshot:
    """The latest version, from which a stream has its columns. Raises TableNotFound and the like."""
    access = access_for(options)
    return TableSnapshot(access.store, access.read(timeout_s=DEFAULT_TIMEOUT_S))
