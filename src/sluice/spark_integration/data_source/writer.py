"""Writes by tasks in Python. Those of `format("sluice")`, also of streams, are planned and committed beside the driver.

Tasks upload files that nothing refers to; `commit` makes one transaction of them, of a micro-batch once. A failure before that leaves only
such files. `abort` deletes nothing: Spark also calls it after a commit whose reply it did not receive.

Spark makes a writer for each batch of a stream, which it pickles for the tasks, and another one in the process that commits. So the plan
of a batch travels with the tasks' messages.

Tasks load this module, so it imports only what they need; other processes import what plans and commits.
"""

from __future__ import annotations

import sys
import zipimport
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType as SparkStruct

from ...storage.actions import AddFile
from ...storage.dataclass import dataclass
from ...tables.write.data_writing import WritePlan
from ..options import WriteOptions

# PySpark's own zip files, which do not change while a worker runs.
_LIBRARIES: Final = ("pyspark.zip", "-src.zip")


def forget_finders() -> None:
    """Spare the worker's next task 0.1 s: before each task PySpark invalidates the caches of imports, upon which Python reads the
    directory of PySpark's zip file again for each of its packages that was imported from. Later imports make new finders.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and finder.archive.endswith(_LIBRARIES):
            del sys.path_importer_cache[path]


def attempt(label: str) -> str:
    """A label for the files of this attempt at this task, so that attempts do not collide."""
    context = TaskContext.get()
    name = "local" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
    return f"{label}-{name}" if label else name


def task_number() -> int:
    """The number of this task among those of its job."""
    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


@dataclass(frozen=True)
class FilesWritten(WriterCommitMessage):
    """A task's message to the commit: the data files it wrote."""

    files: tuple[AddFile, ...]


class SluiceWriter(DataSourceArrowWriter):
    """Writes the rows of one job and commits them as one transaction."""

    def __init__(self, options: WriteOptions, schema: SparkStruct) -> None:
        from .write_plan import plan_for, require_filling

        self._options = options
        self._plan, self._is_repeated = plan_for(options, schema)
        require_filling(self._plan, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """In a task: write the rows as data files, named after the task's attempt, so that attempts do not collide."""
        if self._is_repeated:
            return FilesWritten(())
        files = self._plan.write(iterator, label=attempt(""), task=task_number())
        forget_finders()
        return FilesWritten(files)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote, once however often it is called. Raises the errors of `Table.append`."""
        from .write_plan import commit

        commit(self._plan, self._options, [each for message in messages if isinstance(message, FilesWritten) for each in message.files])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log it, and leave the files to garbage collection: Spark also calls this after a commit that succeeded."""
        from .write_plan import abort

        abort(self._plan, self._options)


QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's local property with the id of the query that a thread, or a task, works for."""


@dataclass(frozen=True)
class BatchWritten(WriterCommitMessage):
    """A task's message to the commit: the data files it wrote, by which plan, and the query's id."""

    files: tuple[AddFile, ...]
    plan: WritePlan
    query: str


class SluiceStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of one micro-batch and commits them as one transaction."""

    def __init__(self, options: WriteOptions, schema: SparkStruct, checkpoint: str | None) -> None:
        self._options = options
        self._schema = schema
        self._checkpoint = checkpoint
        self._plan: WritePlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state for tasks, with a plan: the writer that commits is never pickled, and plans nothing."""
        if self._plan is None:
            from .write_plan import plan_batch

            self._plan = plan_batch(self._options, self._schema)
        return dict(self.__dict__)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        """In a task: write the rows as data files, named after the task's attempt, so that attempts do not collide."""
        assert self._plan is not None
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(QUERY_ID)
        assert query is not None
        return BatchWritten(self._plan.write(iterator, label=attempt(""), task=task_number()), self._plan, query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Commit what the tasks wrote, once however often the batch is repeated. Raises the errors of `Table.append`."""
        from .write_plan import commit_batch

        written = [each for each in messages if isinstance(each, BatchWritten)]
        if written:  # without a task there are no rows
            files = [file for each in written for file in each.files]
            commit_batch(written[0].plan, self._options, files, (written[0].query, batchId), self._checkpoint)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        """Log it, and leave the files to garbage collection: Spark also calls this after a commit that succeeded."""
        from .write_plan import abort

        plan = next((each.plan for each in messages if isinstance(each, BatchWritten)), None)
        if plan is not None:
            abort(plan, self._options)
