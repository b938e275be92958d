"""OPTIMIZE, COMPACT, VACUUM, RESTORE, CONVERT, GENERATE and CLONE."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..coordinator.api import Commit
from ..storage.actions import AddFile
from ..storage.errors import TableNotFound
from ..tables.client.property_rules import indexed_columns_of
from ..tables.read.history import HistoryEntry, entries_of
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from ..tables.write.terms import ChangeArgs
from .definitions import settled, struct_of
from .parse.maintenance import Analyze, Attach, Compact, Convert, Detach, Generate, Optimize, Reorganise, Repair, Restore, Vacuum
from .parse.tables import Clone
from .partitions import partition_condition
from .places import catalog_of, exists, opened, required_place
from .request import NOTHING, Answer, Place, Request

if TYPE_CHECKING:
    from typing_extensions import Unpack


RETENTION_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
"""Delta's setting: false lets VACUUM take a time shorter than the table's own."""
_SIZES: Final = "struct<min: bigint, max: bigint, avg: double, totalFiles: bigint, totalSize: bigint>"
_CUBE: Final = "struct<num: bigint, size: bigint>"
_ZORDER: Final = (
    f"struct<strategyName: string, inputCubeFiles: {_CUBE}, inputOtherFiles: {_CUBE}, inputNumCubes: bigint, mergedFiles: {_CUBE}, "
    "numOutputCubes: bigint, mergedNumCubes: bigint>"
)
_PARALLELISM: Final = (
    "struct<maxClusterActiveParallelism: bigint, minClusterActiveParallelism: bigint, maxSessionActiveParallelism: bigint, "
    "minSessionActiveParallelism: bigint>"
)
_OPTIMIZED: Final = (
    f"numFilesAdded: bigint, numFilesRemoved: bigint, filesAdded: {_SIZES}, filesRemoved: {_SIZES}, partitionsOptimized: bigint, "
    f"zOrderStats: {_ZORDER}, numBins: bigint, numBatches: bigint, totalConsideredFiles: bigint, totalFilesSkipped: bigint, "
    "preserveInsertionOrder: boolean, numFilesSkippedToReduceWriteAmplification: bigint, "
    "numBytesSkippedToReduceWriteAmplification: bigint, startTimeMs: bigint, endTimeMs: bigint, totalClusterParallelism: bigint, "
    f"totalScheduledTasks: bigint, autoCompactParallelismStats: {_PARALLELISM}, "
    "deletionVectorStats: struct<numDeletionVectorsRemoved: bigint, numDeletionVectorRowsRemoved: bigint>, "
    "numTableColumns: bigint, numTableColumnsWithStats: bigint"
)
_RESTORED: Final = (
    "table_size_after_restore bigint, num_of_files_after_restore bigint, num_removed_files bigint, num_restored_files bigint, "
    "removed_files_size bigint, restored_files_size bigint"
)


def optimized(
    table: Table,
    conditions: Sequence[str] = (),
    mode: str = "minor",
    target_file_size: int | str | None = None,
    z_order_by: tuple[str, ...] | None = None,
    **terms: Unpack[ChangeArgs],
) -> Answer:
    """Run `Table.compact` where all `conditions` hold.

    Answers one row: path and metrics, which have Delta's names, and null for what sluice does not measure.
    """
    where = " AND ".join(f"({each})" for each in conditions) or None
    before = table.refresh("latest").snapshot()
    started_ns = time.time_ns()
    commit = table.compact(mode, where, target_file_size=target_file_size, z_order_by=z_order_by, **terms)
    numbers = _numbers(table, before, where, commit, ordered=z_order_by is not None or bool(table.clustering_columns))
    numbers.update(startTimeMs=started_ns // 1_000_000, endTimeMs=time.time_ns() // 1_000_000)
    row = (table.location, {name: numbers.get(name) for name in Answer(_OPTIMIZED).struct.names})
    return Answer(f"path string, metrics struct<{_OPTIMIZED}>", (row,))


def _numbers(table: Table, before: TableSnapshot, where: str | None, commit: Commit | None, *, ordered: bool) -> dict[str, Any]:
    """The metrics, from the commits' own entries in the history and the files they added."""
    entries = [] if commit is None else _entries(table, commit, after=before.version)
    owners = {each.transaction_id for each in entries}  # which the names of files carry
    actions = (action for _, each in table.coordinated.log.commits(sorted({each.version for each in entries})) for action in each)
    added = [each for each in actions if isinstance(each, AddFile) and any(owner in each.path for owner in owners)]

    def total(name: str) -> int:
        return sum(int(each.metrics.get(name) or 0) for each in entries)

    removed, considered = total("numRemovedFiles"), before.files(where).num_rows
    columns, indexed = len(before.struct.fields), indexed_columns_of(before.raw.configuration)
    partitions = len({tuple(sorted(each.partition_values.items(), key=str)) for each in added})
    sizes = [each.size for each in added]
    cube = {"num": removed, "size": total("numRemovedBytes")}
    z_order = {
        "strategyName": "all",
        "inputCubeFiles": {"num": 0, "size": 0},
        "inputOtherFiles": cube,
        "inputNumCubes": 0,
        "mergedFiles": cube,
        "numOutputCubes": partitions,
    }
    return {
        "numFilesAdded": len(added),
        "numFilesRemoved": removed,
        "filesAdded": {**_sizes(len(sizes), sum(sizes)), **({"min": min(sizes), "max": max(sizes)} if sizes else {})},
        "filesRemoved": _sizes(removed, cube["size"]),
        "partitionsOptimized": partitions,
        "zOrderStats": z_order if ordered and entries else None,
        "numBatches": len(entries),
        "totalConsideredFiles": considered,
        "totalFilesSkipped": max(0, considered - removed),
        "preserveInsertionOrder": not ordered,
        "deletionVectorStats": {"numDeletionVectorsRemoved": total("numDeletionVectorsRemoved")},
        "numTableColumns": columns,
        "numTableColumnsWithStats": columns if indexed < 0 else min(indexed, columns),
    }


def _entries(table: Table, commit: Commit, *, after: int) -> list[HistoryEntry]:
    """The entries of the call's commits in the history: of the last, and of those before it that this process made."""
    first = commit.version if commit.commits == 1 else after + 1
    since = [each for version in range(commit.version, first - 1, -1) for each in reversed(entries_of(table.access, version))]
    last = next(each for each in since if each.transaction_id == commit.transaction_id)
    mine = [each for each in since if each.operation == "OPTIMIZE" and (each.host, each.pid) == (last.host, last.pid)]
    return [last] if commit.commits == 1 else mine[: commit.commits]


def _sizes(files: int, size: int) -> dict[str, float]:
    return {"avg": size / files if files else 0.0, "totalFiles": files, "totalSize": size}


def optimize(request: Request, statement: Optimize, place: Place) -> Answer:
    """Rewrite files as fewer ones, or in an order. Answers one row: path and metrics."""
    where = () if statement.where is None else (request.expression(statement.where),)
    order = statement.z_order_by or None
    return optimized(opened(place), where, "full" if statement.full else "major" if order else "minor", None, order, **request.terms)


def compact(request: Request, statement: Compact, place: Place) -> Answer:
    """Rewrite files as fewer ones: MINOR small files, MAJOR also those with deleted rows. Answers one row: path and metrics."""
    table = opened(place)
    where = partition_condition(request, statement.partition, table.struct, table.partition_columns)
    return optimized(table, () if where is None else (where,), statement.mode, **request.terms)


def vacuum(request: Request, statement: Vacuum, place: Place) -> Answer:
    """Delete files that no version within retention needs. Answers the paths of a dry run, otherwise the location."""
    table = opened(place)
    hours = None if statement.hours is None else float(statement.hours)
    report = table.vacuum(hours, dry_run=statement.dry_run, force=request.setting(RETENTION_CHECK, "true") == "false")
    paths = [*(each.key for each in report.garbage), *report.log_files] if statement.dry_run else [table.location]
    return Answer("path string", tuple((each,) for each in paths))


def restore(request: Request, statement: Restore, place: Place) -> Answer:
    """Make the table what it was. Answers one row: sizes and numbers of files."""
    version, timestamp = request.moment(statement.is_version, statement.value)
    table = opened(place)
    return restored(table, table.restore(version, timestamp, **request.terms))


def restored(table: Table, commit: Commit | None) -> Answer:
    """The metrics of a RESTORE; without a commit the table was what it should be already, and the counts are 0."""
    if commit is None:
        now = table.snapshot().raw
        numbers: Mapping[str, Any] = {"tableSizeAfterRestore": now.size_bytes, "numOfFilesAfterRestore": now.num_files}
    else:
        [entry] = [each for each in entries_of(table.access, commit.version) if each.transaction_id == commit.transaction_id]
        numbers = entry.metrics
    files = ("numOfFilesAfterRestore", "numRemovedFiles", "numRestoredFiles")
    names = ("tableSizeAfterRestore", *files, "removedFilesSize", "restoredFilesSize")
    return Answer(_RESTORED, (tuple(int(numbers.get(name) or 0) for name in names),))


def convert(request: Request, statement: Convert) -> Answer:
    """Make a folder of Parquet files a table."""
    first, *rest = statement.target.parts
    if first.lower() != "parquet" or len(rest) != 1:
        raise request.refused(statement.target, "name the folder of Parquet files as parquet.`/a/path`")
    schema = struct_of(request, statement.partitioned_by) if statement.partitioned_by else None
    Table.convert(rest[0], schema, coordinator=request.coordinator, storage_options=request.options)
    return NOTHING


def generate(_: Request, statement: Generate, place: Place) -> Answer:
    """Write manifests for engines that read files by lists."""
    opened(place).generate(statement.mode)
    return NOTHING


def clone(request: Request, statement: Clone) -> Answer:
    """Make a table that shares the files of another one, or has copies of them."""
    name, how, source = statement.target, statement.how, opened(required_place(request, statement.source))
    version, timestamp = (None, None) if statement.as_of is None else request.moment(*statement.as_of)
    catalog, at = catalog_of(request), None if name.path is None else Place(name.path, request.coordinator, request.options)

    def is_there() -> bool:
        return catalog.exists(name.quoted) if at is None else exists(at)

    def attempt() -> None:
        if how != "create" and is_there():
            if how == "createIfNotExists":
                return
        elif how == "replace":
            raise request.error(TableNotFound, name, f"there is no table {name.title} to replace: CREATE OR REPLACE makes it")
        args: dict[str, Any] = {
            "deep": not statement.shallow,
            "replace": how in ("replace", "createOrReplace"),
            "properties": statement.properties,
        }
        if at is None:
            catalog.clone(source, name.quoted, version, timestamp, location=statement.location, **args)
        else:
            source.clone(at.location, version, timestamp, **args)

    settled(how, attempt, is_there)
    return NOTHING


def reorganise(request: Request, statement: Reorganise, place: Place) -> Answer:
    """Write files with deleted rows again without them, and merge small ones. Answers one row: path and metrics."""
    where = () if statement.where is None else (request.expression(statement.where),)
    return optimized(opened(place), where, "major", **request.terms)


def repair(request: Request, statement: Repair, place: Place) -> Answer:
    """Take files that the store lacks out of the table; a dry run only names them. Answers their paths, and why."""
    table = opened(place)
    missing = table.missing_files()
    if missing and not statement.dry_run:
        table.repair(**request.terms)
    return Answer("dataFilePath string, reason string", tuple(missing.items()))


def analyze(request: Request, statement: Analyze, place: Place) -> Answer:
    """Give files the statistics that they lack. Answers one row: numbers of files."""
    if statement.refused is not None:
        words, at = statement.refused
        said = f"ANALYZE looks at all files that lack statistics, without {words}: leave it out"
        raise request.unsupported(at, said, f"ANALYZE ... {words}")
    analysis = opened(place).analyze(statement.columns, **request.terms)
    numbers = (analysis.files, analysis.lacking, analysis.from_footers, analysis.from_rows, analysis.bytes_read)
    return Answer("num_files bigint, num_lacking bigint, num_from_footers bigint, num_from_rows bigint, num_bytes_read bigint", (numbers,))


def attach(request: Request, statement: Attach) -> Answer:
    """Bring a Delta table under sluice, and give it a name if the statement has one."""
    path = statement.target.path
    if path is None:
        raise request.refused(statement.target, "name the table by its location: sluice.`/a/path`")
    if statement.name is None:
        Table.attach(path, coordinator=request.coordinator, storage_options=request.options).close()
    else:
        catalog_of(request).register(statement.name.quoted, path)
    return NOTHING


def detach(request: Request, statement: Detach, place: Place) -> Answer:
    """Take a table's name away, and give the table back to other engines."""
    table = opened(place)
    if place.name is not None:
        catalog_of(request).drop(statement.target.quoted, keep_data=True)
    table.detach()
    return NOTHING
