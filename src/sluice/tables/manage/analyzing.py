"""ANALYZE: statistics of data files that lack them, so that readers can skip these files.

Files that sluice writes have statistics from the beginning. Files of converted tables and of other engines may lack some, and so may
files that are older than a property which indexes more columns. They are taken from a file's footer or, if that lacks them, its columns
are read. The commit adds the same files again (`dataChange` is false), on the latest version and under a lease, without files that have
changed meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Change, Commit, Reads, bounding, submit, within_this_call
from ...coordinator.errors import ConcurrentModification
from ...coordinator.rules.intent import Kind, Terms
from ...storage.actions import AddFile
from ...storage.actions.filetable import add_rows, adds_of, picked
from ...storage.actions.records import merged, wide
from ...storage.actions.uris import absolute, object_at
from ...storage.caches import at_once
from ...storage.data.scan import TableScan
from ...storage.data.statistics import Leaf, StatsCollector, leaves, read_footer
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.log.snapshot import Snapshot
from ...storage.schema.mapping import logical_name, named_as, physical, physical_path
from ...storage.schema.schema import StructType, field_at, to_arrow
from ..client.open_table import OpenTable
from ..client.property_rules import indexed_columns_of, path_of
from ..write.requirements import snapshot_for_change
from .restoring import alone

_log = logging.getLogger(__name__)
_FILES_PER_COMMIT: Final = 10_000
"""So many files have their statistics committed at once: an interrupted call keeps what it has done."""
_READERS: Final = 4
_ROWS_AT_ONCE: Final = 16_384
_ATTEMPTS: Final = 5
"""How often a commit is tried: only transactions that were filed before the lease can come first."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of `Table.analyze`: its last commit, None if nothing was to be done, and numbers of files.

    `files` are those of the table, `lacking` those that lacked statistics; of these `from_footers` got them from their footers, and
    `from_rows` from their rows, of `bytes_read` in all. `elsewhere` are files that lack some and lie outside the table's location (a
    shallow clone's): their own table is to be analyzed.
    """

    commit: Commit | None
    files: int
    lacking: int
    from_footers: int
    from_rows: int
    bytes_read: int
    elsewhere: int


@dataclass(frozen=True, slots=True)
class _Found:
    """The statistics of a file, and whether its rows had to be read for them."""

    add: AddFile
    stats: str | None
    read_rows: bool


def analyze(table: OpenTable, columns: str | Iterable[str] | None, terms: Terms) -> Analysis:
    """Give the files of the latest version the statistics that they lack, of these columns (None: those that have statistics).

    The terms' time is that of each commit. With `if_version` nothing may come between that version and its commits. Raises InvalidRequest
    for unknown columns, MissingObject, and what committing raises.
    """
    snapshot = snapshot_for_change(table, terms.if_version)
    schema = snapshot.metadata.schema
    wanted = _wanted(columns, schema, snapshot)
    work = _Work(table, snapshot, schema, wanted)
    lacking = elsewhere = footers = rows = nbytes = 0
    commit: Commit | None = None
    for share in _shares(snapshot, wanted):
        own = [add for add in share if absolute(table.location, add.path) is None]
        elsewhere += len(share) - len(own)
        completed = [
            each for each in at_once(within_this_call(work.found), own, _READERS, "sluice-analyze") if each.stats != each.add.stats
        ]
        lacking += len(own)
        rows += sum(each.read_rows for each in completed)
        footers += sum(not each.read_rows for each in completed)
        nbytes += sum(each.add.size for each in completed if each.read_rows)
        last = _commit(table, completed, terms) if completed else None
        if last is not None:
            terms = terms if terms.if_version is None else replace(terms, if_version=last.version)
            commit = last if commit is None else replace(last, commits=commit.commits + 1)
    if commit is None:
        _log.info("the files of %s lack no statistics: no version was made", table.location)
    return Analysis(commit, snapshot.num_files, lacking, footers, rows, nbytes, elsewhere)


def _wanted(columns: str | Iterable[str] | None, schema: StructType, snapshot: Snapshot) -> tuple[Leaf, ...]:
    """The columns, under their names in files."""
    in_files, partitions = physical(schema), snapshot.metadata.physical_partitions
    if columns is None:
        return leaves(in_files, partitions, indexed_columns_of(snapshot.configuration))
    every = leaves(in_files, partitions, -1)
    chosen: list[Leaf] = []
    for name in [columns] if isinstance(columns, str) else columns:
        path = path_of(name, schema)
        field_at(schema, path)
        path = physical_path(path, schema)
        if path[0] in partitions:
            raise InvalidRequest(f"{name!r} is a partition column, whose values the log has: leave it out", column=name)
        chosen += [leaf for leaf in every if leaf.path[: len(path)] == path and leaf not in chosen]
    return tuple(chosen)


def _shares(snapshot: Snapshot, wanted: Sequence[Leaf]) -> Iterator[list[AddFile]]:
    """The files that lack statistics, so many at a time."""
    share: list[AddFile] = []
    for batch in snapshot.files.to_batches(max_chunksize=_ROWS_AT_ONCE):
        chosen = pa.array([lacks(text, wanted) for text in batch.column("stats").to_pylist()], pa.bool_())
        for add in adds_of(pa.Table.from_batches([batch]).filter(chosen)):
            share.append(add)
            if len(share) == _FILES_PER_COMMIT:
                yield share
                share = []
    if share:
        yield share


def lacks(stats: str | None, wanted: Sequence[Leaf]) -> bool:
    """Whether statistics say less than they could: the number of rows, of nulls in each column, and a bound of each that has values."""
    try:
        known: Any = orjson.loads(stats or "null")
    except orjson.JSONDecodeError:
        return True
    if not isinstance(known, dict) or type(known.get("numRecords")) is not int:
        return True
    rows = known["numRecords"]
    for leaf in wanted:
        nulls = _at(known.get("nullCount"), leaf.path)
        if nulls is None:
            return True
        has_bounds = any(_at(known.get(name), leaf.path) is not None for name in ("minValues", "maxValues"))
        if leaf.kind is not None and nulls != rows and not has_bounds:
            return True
    return False


def _at(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values


@dataclass(frozen=True, slots=True)
class _Work:
    """Finds statistics of a version's files; thread-safe."""

    table: OpenTable
    snapshot: Snapshot
    schema: StructType
    wanted: tuple[Leaf, ...]

    def found(self, add: AddFile) -> _Found:
        """The statistics of a file, from its footer or else from its rows."""
        text = add.stats
        store, key = object_at(self.table.store, add.path)
        try:
            text = merged(text, read_footer(store, key).statistics(self._columns, (), -1))
        except SchemaMismatch as strange:
            _log.info("the footer of %s has no usable statistics: %s", add.path, strange)
        read_rows = lacks(text, self.wanted)
        if read_rows:
            scan = TableScan(self.table.store, self.schema, self.snapshot.partition_columns, self.snapshot.version)
            collector = StatsCollector(self._columns, (), -1)
            names = [logical_name(name, self.schema) for name in self._columns.names]
            for batch in scan.batches(add_rows([replace(add, deletion_vector=None)]), names):
                collector.update(named_as(pa.Table.from_batches([batch]), to_arrow(self._columns)))
            text = merged(text, collector.to_json())
        # counts and bounds are those of all rows, also of deleted ones
        return _Found(add, text if add.deletion_vector is None else wide(text), read_rows)

    @property
    def _columns(self) -> StructType:
        """The columns, under their names in files."""
        return StructType(physical(self.schema).named(name) for name in dict.fromkeys(leaf.path[0] for leaf in self.wanted))


def _commit(table: OpenTable, files: Sequence[_Found], terms: Terms) -> Commit | None:
    """Commit the statistics of those files that are as they were; None if none is."""
    stats = {each.add.key: each for each in files}
    for attempt in range(1, _ATTEMPTS + 1):
        with bounding(terms.timeout_s, table.clock) as deadline, alone(table, deadline, "ANALYZE"):
            table.fresh_head()
            change = _change(table, stats, terms)
            if change is None:
                return None
            try:
                return submit(table, change, timeout_s=deadline)
            except ConcurrentModification:
                if attempt == _ATTEMPTS or terms.if_version is not None:
                    raise
    raise AssertionError("the last attempt returns or raises")


def _change(table: OpenTable, stats: dict[tuple[str, str], _Found], terms: Terms) -> Change | None:
    latest = snapshot_for_change(table, terms.if_version)
    paths = pa.array([path for path, _ in stats], pa.string())
    there = picked(latest.files, pc.is_in(latest.files["path"].combine_chunks().cast(pa.string()), value_set=paths))
    adds = [
        replace(add, stats=analyzed.stats, data_change=False)
        for add in adds_of(there)
        for analyzed in (stats.get(add.key),)
        if analyzed is not None and analyzed.add.stats == add.stats
    ]
    if not adds:
        return None
    return Change(
        table.new_transaction_id(),
        "COMPUTE STATS",
        latest,
        adds,
        # nobody can have removed one of the files, or deleted rows of it: it would come back
        terms=replace(terms, if_version=latest.version),
        reads=Reads(),
        metrics={"numFiles": str(len(adds))},
        schema=latest.metadata.schema,
        kind=Kind.MINOR,
    )
