"""The results of statements, with Delta's column names and types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, Final

from ..coordinator.api import Commit
from ..storage.dataclass import dataclass
from ..storage.jsontext import dumps
from ..storage.schema.datatypes import StructType
from ..storage.schema.sqltypes import parse_sql_type
from ..tables.read.history import entries_of
from ..tables.table import Table
from ..tables.write.merging import RowCounts


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows, and their columns as SQL writes them: "path string, size bigint"; "" for none."""

    columns: str
    rows: tuple[tuple[Any, ...], ...] = ()

    @property
    def struct(self) -> StructType:
        """The columns as a schema."""
        struct = parse_sql_type(f"struct<{self.columns}>")
        assert isinstance(struct, StructType)
        return struct


NOTHING: Final = Answer("")
"""No row and no column, as VACUUM returns."""

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
OPTIMIZED: Final = (
    f"numFilesAdded: bigint, numFilesRemoved: bigint, filesAdded: {_SIZES}, filesRemoved: {_SIZES}, partitionsOptimized: bigint, "
    f"zOrderStats: {_ZORDER}, numBins: bigint, numBatches: bigint, totalConsideredFiles: bigint, totalFilesSkipped: bigint, "
    "preserveInsertionOrder: boolean, numFilesSkippedToReduceWriteAmplification: bigint, "
    "numBytesSkippedToReduceWriteAmplification: bigint, startTimeMs: bigint, endTimeMs: bigint, totalClusterParallelism: bigint, "
    f"totalScheduledTasks: bigint, autoCompactParallelismStats: {_PARALLELISM}, "
    "deletionVectorStats: struct<numDeletionVectorsRemoved: bigint, numDeletionVectorRowsRemoved: bigint>, "
    "numTableColumns: bigint, numTableColumnsWithStats: bigint"
)
_HISTORY: Final = (
    "version bigint, timestamp timestamp, userId string, userName string, operation string, operationParameters map<string, string>, "
    "job struct<jobId: string, jobName: string, jobRunId: string, runId: string, jobOwnerId: string, triggerType: string>, "
    "notebook struct<notebookId: string>, clusterId string, readVersion bigint, isolationLevel string, isBlindAppend boolean, "
    "operationMetrics map<string, string>, userMetadata string, engineInfo string"
)
_DETAIL: Final = (
    "format string, id string, name string, description string, location string, createdAt timestamp, lastModified timestamp, "
    "partitionColumns array<string>, clusteringColumns array<string>, numFiles bigint, sizeInBytes bigint, "
    "properties map<string, string>, minReaderVersion int, minWriterVersion int, tableFeatures array<string>"
)
_MERGED: Final = "num_affected_rows bigint, num_updated_rows bigint, num_deleted_rows bigint, num_inserted_rows bigint"
_RESTORED: Final = (
    "table_size_after_restore bigint, num_of_files_after_restore bigint, num_removed_files bigint, num_restored_files bigint, "
    "removed_files_size bigint, restored_files_size bigint"
)


def affected(counts: RowCounts | None) -> Answer:
    """How many rows a DELETE or UPDATE changed; 0 if its key was committed before."""
    return Answer("num_affected_rows bigint", ((0 if counts is None else counts.affected,),))


def merged(counts: RowCounts | None) -> Answer:
    """How many rows a MERGE changed, and how; 0 if its key was committed before."""
    row = (0, 0, 0, 0) if counts is None else (counts.affected, counts.updated, counts.deleted, counts.inserted)
    return Answer(_MERGED, (row,))


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


def history(versions: Iterable[tuple[int, Mapping[str, Any]]]) -> Answer:
    """One row for each version: its commitInfo."""
    columns, rows = Answer(_HISTORY).struct.names, list[tuple[Any, ...]]()
    for version, info in versions:
        job, notebook = info.get("job"), info.get("notebook")
        row = {
            **info,
            "version": version,
            "timestamp": moment(info.get("inCommitTimestamp") or info.get("timestamp")),
            "operationParameters": _texts(info.get("operationParameters")),
            "job": tuple(job.get(name) for name in ("jobId", "jobName", "jobRunId", "runId", "jobOwnerId", "triggerType")) if job else None,
            "notebook": (notebook.get("notebookId"),) if notebook else None,
            "operationMetrics": _texts(info.get("operationMetrics")),
        }
        rows.append(tuple(row.get(name) for name in columns))
    return Answer(_HISTORY, tuple(rows))


def _texts(mapping: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """A map of texts; values that are not texts as JSON."""
    if mapping is None:
        return None
    return {name: value if value is None or isinstance(value, str) else dumps(value).decode() for name, value in mapping.items()}


def detail(table: Table, name: str | None) -> Answer:
    """One row that describes the latest version."""
    described = table.detail()
    row: tuple[Any, ...] = (
        "delta",
        described.id,
        name or described.name,
        described.description,
        described.location,
        moment(described.created_ms),
        moment(described.modified_ms),
        list(described.partition_columns),
        list(described.clustering_columns),
        described.num_files,
        described.size_bytes,
        dict(described.properties),
        described.min_reader_version,
        described.min_writer_version,
        list(described.features),
    )
    return Answer(_DETAIL, (row,))


def moment(milliseconds: int | None) -> datetime | None:
    """A point in time from milliseconds since the epoch."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
