"""Writes through the data source: planned and committed beside the driver, files written by tasks.

Tasks upload files that nothing refers to; `commit` makes one transaction of them. A failure before that leaves only such
files. `abort` deletes nothing: Spark also calls it after a commit whose reply it did not receive.

Tasks load this module, so it imports only what they need; other processes import what plans and commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType as SparkStruct

from ...storage.actions import AddFile
from ...storage.dataclass import dataclass
from ..options import WriteOptions
from ..workers import forget_finders


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
        context = TaskContext.get()
        label = "local" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
        files = self._plan.write(iterator, label=label)
        forget_finders()
        return FilesWritten(files)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote, once however often it is called. Raises the errors of `Table.append`."""
        from .write_commit import commit

        commit(self._plan, self._options, [each for message in messages if isinstance(message, FilesWritten) for each in message.files])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log it, and leave the files to garbage collection: Spark also calls this after a commit that succeeded."""
        from .write_commit import abort

        abort(self._plan, self._options)
