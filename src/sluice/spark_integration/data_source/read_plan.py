"""Plans a read through the data source: the version, and which of its files each task reads."""

from __future__ import annotations

import heapq
import os
from typing import Final

import pyarrow as pa

from ...coordinator.limits import DEFAULT_TIMEOUT_S
from ...storage.log.timetravel import version_at
from ...tables.client.access import Access
from ...tables.read.table_snapshot import TableSnapshot
from ..options import ReadOptions

__all__ = ["access_for", "balanced", "snapshot_for"]

# Target size of a task, and the cost of opening a file, in bytes.
_TASK_BYTES: Final = 64 * 1024 * 1024
_OPENING_BYTES: Final = 2 * 1024 * 1024


def access_for(options: ReadOptions) -> Access:
    """The table in the options, for reading only. Raises TableNotFound and the like."""
    return Access.opened(options.address, consistency=options.consistency)


def snapshot_for(options: ReadOptions) -> TableSnapshot:
    """The version in the options, the latest by default. Raises TableNotFound, VersionNotFound and the like."""
    access = access_for(options)
    version = options.version if options.timestamp_ms is None else version_at(access.store, options.timestamp_ms)
    return TableSnapshot(access.store, access.read(version, timeout_s=DEFAULT_TIMEOUT_S))


def balanced(files: pa.Table) -> list[pa.Table]:
    """The rows of a file table in at least one part, of about equal bytes each, largest files first."""
    costs = [size + _OPENING_BYTES for size in files.column("size").to_pylist()]
    wanted = max(-(-sum(costs) // _TASK_BYTES), os.cpu_count() or 1)
    count = max(1, min(len(costs), wanted))
    parts: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for row in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        cost, number = heap[0]
        parts[number].append(row)
        heapq.heapreplace(heap, (cost + costs[row], number))
    return [files.take(pa.array(sorted(part), pa.int64())) for part in parts]
