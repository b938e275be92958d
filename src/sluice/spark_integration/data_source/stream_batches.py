"""What the process of a streaming query does: it holds the table's stream and plans its batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType as SparkStruct

from ...storage.actions import Metadata
from ...storage.errors import SchemaMismatch
from ...storage.schema.schema import StructType, schema_to_json, to_arrow
from ...tables.client.open_table import open_table
from ...tables.read.streams.offsets import Limits, StreamOffset
from ...tables.read.streams.table_stream import StreamRead, TableStream
from ...tables.read.versions import ChangePlace, published_versions
from ..schemas import requested
from ..stream_options import StreamReadOptions
from .read_plan import columns_of, shown_for, tracking_of
from .reader import RowsPart, balanced


class StreamPlan:
    """A query's access to its table; offsets are in the form in which Spark keeps them."""

    def __init__(self, options: StreamReadOptions, schema: SparkStruct, base: tuple[int, Metadata] | None) -> None:
        """Raises the errors of opening a table, SchemaMismatch for a column that it lacks."""
        self._options = options
        self._tracking = tracking_of(options)
        if self._tracking is not None:
            base = base or shown_for(options)
            if self._tracking.shown() is None:
                self._tracking.show(*base)
        self._table = table = open_table(options.address, consistency=options.consistency)
        self.stream = TableStream(table, published_versions(table, options.poll_s), options.rules, base, options.where)
        """The table as this query's source."""
        requested(schema, columns_of(options, self.stream.shown.metadata))
        self._initial: dict[str, Any] | None = None
        self.place: StreamOffset | None = None
        """Where the batch ends that was planned last; None before the query has begun."""

    def initial_offset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins; Spark asks for it until the first batch is done."""
        if self._initial is None:
            self._initial = self.stream.initial_offset(self._options.start).to_json()
        return self._initial

    def latest_offset(self, start: dict[str, Any], files: int | None, size: int | None) -> dict[str, Any]:
        """Where a batch ends that takes so many files and bytes; `start` if there is nothing new."""
        try:
            self.place = self.stream.latest_offset(StreamOffset.of_json(start), Limits(files, size))
        except SchemaMismatch as changed:  # everything before that version is read, and written by the sink
            if self._tracking is not None:
                version = int(changed.details["version"])
                self._tracking.show(version, self._table.at(version).metadata)
            raise
        return self.place.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        self.place = StreamOffset.of_json(end)
        reads = list(self.stream.reads(StreamOffset.of_json(start), self.place))
        if not self._options.rules.changes:
            return list(self._of_rows(reads))
        return [*self._of_rows(each for each in reads if each.first), *self._of_changes([each for each in reads if not each.first])]

    def _of_rows(self, reads: Iterable[StreamRead]) -> Iterator[InputPartition]:
        """Tasks for files; those of several versions are read alike."""
        for (first, rows), some in groupby(reads, key=lambda read: (read.first, read.rows)):
            same = list(some)
            beside = None
            if first and self._options.rules.changes:
                from ...tables.read.changes import CHANGE_COLUMNS

                columns, version = to_arrow(StructType(CHANGE_COLUMNS)), same[0].version
                values = ("insert", version, self.stream.first_timestamp_ms(version) * 1000)
                arrays = [pa.array([value], field.type) for value, field in zip(values, columns, strict=True)]
                beside = pa.table(arrays, schema=columns)
            files = pa.concat_tables(read.files for read in same)
            # tasks do not need statistics: files that they exclude are already gone
            files = files.drop_columns(["stats"]).append_column("stats", pa.nulls(files.num_rows, pa.string()))
            if files.num_rows:
                shown = self.stream.shown.metadata
                parts = (RowsPart(part, rows, schema_to_json(shown.schema), shown.partition_columns, beside) for part in balanced(files))
                yield from map(InputPartition, parts)

    def _of_changes(self, reads: Sequence[StreamRead]) -> Iterator[InputPartition]:
        """Tasks for versions, and for parts of them: as many as there are processors."""
        if not reads:
            return
        from ...tables.read.changes import ChangesPart

        metadata, parts = self.stream.shown.metadata, os.cpu_count() or 1
        groups: list[Sequence[StreamRead]] = []
        if len(reads) >= parts:
            groups += [reads[begin:end] for begin, end in _ranges(len(reads), parts)]
        else:
            for each in reads:  # the files of a version are divided if its changes can be
                count = 1 if each.whole else min(-(-parts // len(reads)), len(each.part))
                groups += [[replace(each, part=each.part[begin:end])] for begin, end in _ranges(len(each.part), count)]
        for some in groups:
            after, up_to = some[0].version - 1, some[-1].version
            begin, end = ChangePlace(after, some[0].part.start), ChangePlace(up_to - 1, some[-1].part.stop)
            yield InputPartition(ChangesPart(self._options.address, after, up_to, metadata, begin, end))


def _ranges(length: int, count: int) -> Iterator[tuple[int, int]]:
    """So many ranges of about equal length that follow one another."""
    return pairwise(length * number // count for number in range(count + 1))
