"""OPTIMIZE: rewriting files as fewer, larger or ordered ones, and its metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..coordinator.api import Commit
from ..storage.actions import AddFile
from ..storage.dataclass import dataclass
from ..tables.client.property_rules import indexed_columns_of
from ..tables.read.history import HistoryEntry, entries_of
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from .reports import Answer, optimized


@dataclass(frozen=True, slots=True)
class Optimize:
    """An OPTIMIZE to run: `mode` and `target_file_size` are those of `Table.compact`."""

    where: tuple[str, ...] = ()
    mode: str = "minor"
    target_file_size: int | str | None = None
    z_order_by: tuple[str, ...] | None = None


def optimize(table: Table, asked: Optimize, user_metadata: str | None = None, if_version: int | None = None) -> Answer:
    """Run it; the metrics have Delta's names, and null for what sluice does not measure."""
    where = " AND ".join(f"({each})" for each in asked.where) or None
    before = table.refresh("latest").snapshot()
    started_ms = _now_ms()
    commit = table.compact(
        asked.mode,
        where,
        target_file_size=asked.target_file_size,
        z_order_by=asked.z_order_by,
        if_version=if_version,
        user_metadata=user_metadata,
    )
    numbers = _numbers(table, before, where, commit, ordered=asked.z_order_by is not None or bool(table.clustering_columns))
    return optimized(table.location, {**numbers, "startTimeMs": started_ms, "endTimeMs": _now_ms()})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _numbers(table: Table, before: TableSnapshot, where: str | None, commit: Commit | None, *, ordered: bool) -> dict[str, Any]:
    """The metrics, from the commits' own entries in the history and the files they added."""
    entries = [] if commit is None else _entries(table, commit, after=before.version)
    added = _added(table, {each.version for each in entries}, {each.transaction_id for each in entries})

    def total(name: str) -> int:
        return sum(int(each.metrics.get(name) or 0) for each in entries)

    removed, considered = total("numRemovedFiles"), before.files(where).num_rows
    partitions = len({tuple(sorted(each.partition_values.items(), key=str)) for each in added})
    cube = {"num": removed, "size": total("numRemovedBytes")}
    none = {"num": 0, "size": 0}
    z_order = {
        "strategyName": "all",
        "inputCubeFiles": none,
        "inputOtherFiles": cube,
        "inputNumCubes": 0,
        "mergedFiles": cube,
        "numOutputCubes": partitions,
    }
    return {
        "numFilesAdded": len(added),
        "numFilesRemoved": removed,
        "filesAdded": _sizes([each.size for each in added]),
        "filesRemoved": {"avg": cube["size"] / removed if removed else 0.0, "totalFiles": removed, "totalSize": cube["size"]},
        "partitionsOptimized": partitions,
        "zOrderStats": z_order if ordered and entries else None,
        "numBatches": len(entries),
        "totalConsideredFiles": considered,
        "totalFilesSkipped": max(0, considered - removed),
        "preserveInsertionOrder": not ordered,
        "deletionVectorStats": {"numDeletionVectorsRemoved": total("numDeletionVectorsRemoved")},
        "numTableColumns": len(before.struct.fields),
        "numTableColumnsWithStats": _indexed(before),
    }


def _entries(table: Table, commit: Commit, *, after: int) -> list[HistoryEntry]:
    """The entries of the call's commits in the history: of the last, and of those before it that this process made."""
    first = commit.version if commit.commits == 1 else after + 1
    since = [each for version in range(commit.version, first - 1, -1) for each in reversed(entries_of(table.access, version))]
    last = next(each for each in since if each.transaction_id == commit.transaction_id)
    mine = [each for each in since if each.operation == "OPTIMIZE" and (each.host, each.pid) == (last.host, last.pid)]
    return [last] if commit.commits == 1 else mine[: commit.commits]


def _added(table: Table, versions: set[int], owners: set[str]) -> list[AddFile]:
    """The files that these transactions added: their names carry the transaction's id."""
    actions = (action for _, each in table.coordinated.log.commits(sorted(versions)) for action in each)
    return [each for each in actions if isinstance(each, AddFile) and any(owner in each.path for owner in owners)]


def _sizes(sizes: Sequence[int]) -> dict[str, Any]:
    if not sizes:
        return {"avg": 0.0, "totalFiles": 0, "totalSize": 0}
    return {"min": min(sizes), "max": max(sizes), "avg": sum(sizes) / len(sizes), "totalFiles": len(sizes), "totalSize": sum(sizes)}


def _indexed(snapshot: TableSnapshot) -> int:
    """How many columns have statistics."""
    most, columns = indexed_columns_of(snapshot.raw.configuration), len(snapshot.struct.fields)
    return columns if most < 0 else min(most, columns)
