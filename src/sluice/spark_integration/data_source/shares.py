"""Which files each task reads."""

from __future__ import annotations

import heapq
import os
from typing import Final

import pyarrow as pa

# Target size of a task, and the cost of opening a file, in bytes.
_TASK_BYTES: Final = 64 * 1024 * 1024
_OPENING_BYTES: Final = 2 * 1024 * 1024


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
