"""What one task of a streaming batch reads; travels from the query's process to the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from ...storage.actions import Metadata
    from ...storage.pruning.predicate import Predicate
    from ...tables.read.changes import ChangesPart


class RowsPartition(InputPartition):
    """The files of one task, and what is needed to read them."""

    def __init__(self, files: pa.Table, rows: Predicate | None, metadata: Metadata, beside: pa.Table | None) -> None:
        """`rows` is the condition on the rows to read, `beside` one row of the columns that all rows have beside the table's."""
        super().__init__(None)
        self.files, self.rows, self.beside = files, rows, beside
        self.schema = metadata.schema_string
        self.partition_columns = metadata.partition_columns


class ChangedPartition(InputPartition):
    """The versions, or the part of a version, of one task."""

    def __init__(self, part: ChangesPart) -> None:
        super().__init__(None)
        self.part = part
