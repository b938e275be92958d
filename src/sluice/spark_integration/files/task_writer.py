"""Python tasks that write the rows of a DataFrame which is committed in the user's own process.

Spark runs data sources in separate processes. So a second source beside `format("sluice")` has the executors write the
files by an existing plan, and leaves their list in the table's folder for the driver: no row passes through the driver. If a
task ran twice, one attempt is listed, and nothing refers to the other's files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType as SparkStruct

from ...storage.actions import AddFile, Metadata, decode_commit, encode_all
from ...storage.data.row_ids import RowIdColumns
from ...storage.log.paths import staged_path
from ...tables.client.address import TableAddress
from ...tables.write.data_writing import WritePlan
from ..data_source.writer import FilesWritten, forget_finders

_NAME: Final = "sluice_files"
_STORAGE_PREFIX: Final = "s3."


def written_in_tasks(rows: DataFrame, plan: WritePlan, label: str, ids: RowIdColumns | None = None) -> list[AddFile]:
    """The files that Python tasks write of the rows by a plan; `ids` are columns in which the rows bring their ids along."""
    rows.sparkSession.dataSource.register(FilesSource)
    rows.write.format(_NAME).mode("append").options(**plan_options(plan, label, ids)).save(plan.address.location)
    store, key = plan.address.store(), _key(plan, label)
    listed = store.get(key)
    store.delete(key)
    return [each for each in decode_commit(listed, name=key) if isinstance(each, AddFile)] if listed else []


def _key(plan: WritePlan, label: str) -> str:
    """The key of the list of files."""
    return staged_path(f"{plan.transaction_id}-files{label}")


def plan_options(plan: WritePlan, label: str, ids: RowIdColumns | None = None) -> dict[str, str]:
    """A plan as texts; storage options get names under which Spark hides secrets. `ids` are columns with the ids of copied rows."""
    told = {
        "transaction_id": plan.transaction_id,
        "metadata": encode_all((plan.metadata,)).decode(),
        "mode": plan.mode,
        "where": plan.where,
        "label": label,
        "max_records_per_file": plan.max_records_per_file,
        "compression": plan.compression,
        "planned_ms": plan.planned_ms,
        "computed": plan.computed,
        "row_ids": None if ids is None else ids.names,
    }
    return {"plan": json.dumps(told), **{_STORAGE_PREFIX + name: value for name, value in plan.address.storage_options.items()}}


def plan_of(options: Mapping[str, str]) -> tuple[WritePlan, str]:
    """The plan and its label, from these texts."""
    told = json.loads(options["plan"])
    storage = {key.removeprefix(_STORAGE_PREFIX): value for key, value in options.items() if key.startswith(_STORAGE_PREFIX)}
    [metadata] = [each for each in decode_commit(told["metadata"].encode(), name="plan") if isinstance(each, Metadata)]
    address = TableAddress.of(options["path"], None, storage)
    plan = WritePlan(
        address,
        told["transaction_id"],
        metadata,
        mode=told["mode"],
        where=told["where"],
        max_records_per_file=told["max_records_per_file"],
        compression=told["compression"],
        planned_ms=told["planned_ms"],
        computed=told["computed"],
    )
    return plan, told["label"]


def ids_of(options: Mapping[str, str]) -> RowIdColumns | None:
    """The columns with the ids of copied rows, from these texts."""
    names = json.loads(options["plan"])["row_ids"]
    return None if names is None else RowIdColumns(*names)


def attempt(label: str) -> str:
    """A label for the files of this attempt at this task, so that attempts do not collide."""
    context = TaskContext.get()
    name = "local" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
    return f"{label}-{name}" if label else name


class FilesSource(DataSource):
    """Writes the rows of one DataFrame by a plan; commits nothing."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return _NAME

    def writer(self, schema: SparkStruct, overwrite: bool) -> FilesWriter:
        """A writer for the plan in the options."""
        return FilesWriter(self.options)


class FilesWriter(DataSourceArrowWriter):
    """Writes files in tasks, and lists them at the end."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """In a task: write the rows as data files, named after the task's attempt, so that attempts do not collide."""
        plan, label = plan_of(self._options)
        files = plan.write(iterator, label=attempt(label), row_ids=ids_of(self._options))
        forget_finders()
        return FilesWritten(files)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the list of the tasks' files for the driver."""
        plan, label = plan_of(self._options)
        files = [each for message in messages if isinstance(message, FilesWritten) for each in message.files]
        plan.address.store().put(_key(plan, label), encode_all(files))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing to do: nothing refers to the files."""
