"""Compaction: rewrites a table's files as fewer, larger ones, without deleted rows, or in another order; no row changes.

Readers of the table see the same rows before and after. The commit says, for every file it replaces, where its live rows
went, so that a concurrent delete is carried over to the new file; only a z-order, which shuffles rows, cannot say so. The files of
a clustered table come into the z-order of its columns.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import (
    Change,
    Commit,
    CoordinatedTable,
    Deadline,
    Reads,
    Timeout,
    require_room,
    submit,
    validate,
    within_this_call,
)
from ...coordinator.errors import CoordinatorUnavailable, NotCommitted, OutcomeUnknown
from ...coordinator.rules.intent import Kind, Terms
from ...storage.actions import Action, AddFile
from ...storage.actions.clustering import Path, clustering_columns, dotted
from ...storage.actions.features import check_writable, deletion_vectors
from ...storage.actions.file_removals import Actions, Removals
from ...storage.actions.filetable import rows_at
from ...storage.actions.lineage import Moved
from ...storage.actions.records import record_count
from ...storage.arguments import RULES
from ...storage.data.datafiles import FileFormat
from ...storage.data.row_ids import RowIdColumns
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError, Unavailable
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import StructType, parse_schema
from ..client.open_table import OpenTable
from ..client.property_rules import file_size_of, indexed_columns_of
from ..client.time_limits import in_time
from ..write.requirements import snapshot_for_change
from ..write.row_operations import LISTED_MAX
from .bins import Bin, plan_bins, plan_clusters
from .rewriting import Output, Rewriter, z_columns

_log = logging.getLogger(__name__)
_MODES: Final = ("minor", "major", "full")
_COMPRESSION: Final = "zstd"
# Bins that are written at once; each has a row group in memory.
_WRITERS: Final = 2
_FILES_PER_COMMIT: Final = 50_000
"""The most files that one commit of a compaction replaces. Deciding, adapting and comparing it takes 1.5 KB of memory per file."""
_LOOK_EVERY_S: Final = 2.0
_PART_OF_TIME: Final = 20
"""The checks whether it can still commit take at most one part in so many of a compaction's time."""
# The assumed number of rows of a file whose statistics do not say it.
_ROWS_ASSUMED: Final = 2**31


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """The arguments of a compaction; see `Table.compact`."""

    mode: str = "minor"
    where: str | None = None
    target_file_size: int | str | None = None
    z_order_by: str | Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """What a compaction does, as its request and the table say."""

    mode: str
    where: str | None
    predicate: Predicate | None
    target_bytes: int
    order: tuple[Path, ...]
    is_clustered: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """A compaction of one version, with bins of that version's files."""

    snapshot: Snapshot
    schema: StructType
    rewriting: _Rewriting
    terms: Terms
    bins: Sequence[Bin] = ()


@dataclass(frozen=True, slots=True)
class StagedCompaction:
    """A compaction whose new files are written, but invisible before `commit`."""

    table: OpenTable
    change: Change
    rewriter: Rewriter

    def commit(self, *, timeout_s: Timeout | None = None, filing: Callable[[str], object] | None = None) -> Commit:
        """Commit it. Raises ConcurrentModification if another commit replaced the files meanwhile; then nothing of it remains.

        If the commit is filed under another transaction id, `filing` is called with that id first.
        """
        try:
            return submit(self.table, self.change, timeout_s=timeout_s, filing=filing)
        except (NotCommitted, OutcomeUnknown, CoordinatorUnavailable) as ended:
            if isinstance(ended, NotCommitted) or ended.details.get("stage") == "staged":
                self.rewriter.discard()
            raise


def compact(table: OpenTable, request: CompactionRequest, terms: Terms, *, limit: Timeout | None = None) -> Commit | None:
    """Compact the latest version (see `Table.compact`); None if there is nothing to do.

    `limit` is the time of the whole call (None: no limit), the terms' time that of each commit. Raises the errors of staging and
    committing.
    """
    run = _Run(table, request, terms, None if limit is None else Deadline.of(limit, table.clock))
    return run.work() if run.limit is None else in_time(run.limit, run.work, run.give_up)


class _Run:
    """A compaction in progress: several commits, each complete in itself, so that none has more than `_FILES_PER_COMMIT` files."""

    def __init__(self, table: OpenTable, request: CompactionRequest, terms: Terms, limit: Deadline | None) -> None:
        self.limit = limit
        self._table, self._request, self._terms = table, request, terms
        self._lock = threading.Lock()
        self._last: Commit | None = None
        self._commits = 0
        self._filing: str | None = None
        """The id of the last commit begun; None while the next one is being staged."""
        self._given_up = False

    def work(self) -> Commit | None:
        """Do all of it; returns the last commit."""
        try:
            snapshot = snapshot_for_change(self._table, self._terms.if_version)
            plan = _with_bins(_checked(snapshot, self._request, self._terms), None)
            paths, shares = plan.snapshot.files.column("path"), _shares(plan.bins)
            if not shares:
                _log.info("%s has nothing to compact (%s): no version was made", self._table.location, plan.rewriting.mode)
            for bins in shares:
                if self._commits:  # the previous commit, and others', made versions since
                    self._filing = None
                    # the latest one, or the last commit's own if nothing may come in between
                    last = None if self._terms.if_version is None or self._last is None else self._last.version
                    plan = _checked(self._table.at(last), self._request, self._terms)
                    bins = _still_there(bins, paths, plan)
                if bins:
                    self._commit(_staged(self._table, replace(plan, bins=bins), check=self._require_time))
        except SluiceError as trouble:
            if self._commits:
                trouble.tell(self._what_remains(), commits=self._commits)
            raise
        return self._last

    def give_up(self) -> SluiceError:
        """Commit nothing more; returns the error that says what is certain."""
        with self._lock:
            self._given_up = True
            filing = self._filing
        if filing is not None:
            return OutcomeUnknown(
                f"the time given was over while the compaction was committed as transaction {filing}; ask outcome(transaction_id)"
                f"{self._what_remains()}",
                transaction_id=filing,
                stage="intent",
                commits=self._commits,
            )
        return OutcomeUnknown(
            f"the time given was over before the compaction was committed: the files it wrote are discarded{self._what_remains()}; call it "
            "again with more time, or for one partition after the other (where=...)",
            stage="staged",
            commits=self._commits,
        )

    def _what_remains(self) -> str:
        if self._last is None:
            return ""
        return f"; its earlier commits remain ({self._commits} commits, the last one is version {self._last.version})"

    def _require_time(self) -> None:
        if self._given_up or (self.limit is not None and self.limit.over):
            raise self.give_up()

    def _commit(self, staged: StagedCompaction) -> None:
        with self._lock:
            self._filing = None if self._given_up else staged.change.transaction_id
        if self._given_up:
            staged.rewriter.discard()
            raise self.give_up()
        last = staged.commit(timeout_s=self.limit, filing=self._filed_under)
        with self._lock:
            self._commits += 1
            self._last = last if self._commits == 1 else replace(last, commits=self._commits)

    def _filed_under(self, transaction_id: str) -> None:
        with self._lock:
            self._filing = transaction_id


def _shares(bins: Sequence[Bin]) -> list[list[Bin]]:
    """Which bins are committed together; a bin with more files than that (a partition's, in a z-order) is alone."""
    shares: list[list[Bin]] = []
    room = 0
    for one in bins:
        room -= len(one.indices)
        if not shares or room < 0:
            shares.append([])
            room = _FILES_PER_COMMIT - len(one.indices)
        shares[-1].append(one)
    return shares


def _still_there(bins: Sequence[Bin], paths: pa.ChunkedArray, plan: _Plan) -> list[Bin]:
    """The bins, planned when the files had these `paths`, translated to a later version; without those whose files are gone."""
    before = sorted(index for one in bins for index in one.indices)
    planned = rows_at(pa.table({"path": paths}), before).column("path")
    at = dict(zip(before, pc.index_in(planned, value_set=plan.snapshot.files.column("path")).to_pylist(), strict=True))
    later: list[Bin] = []
    for one in bins:
        indices = tuple(sorted(place for index in one.indices if (place := at[index]) is not None))
        if len(indices) > 1 or (indices and (len(one.indices) == 1 or plan.rewriting.order)):
            later.append(replace(one, indices=indices))
    return later


def stage_compaction(
    table: OpenTable,
    request: CompactionRequest,
    *,
    snapshot: Snapshot | None = None,
    untouched: pa.BooleanArray | None = None,
    transaction_id: str | None = None,
    label: str = "",
) -> StagedCompaction | None:
    """Write the files of a compaction of the latest version, for one commit; None if there is nothing to do.

    A transaction that compacts passes its own `snapshot`, which of its files it left `untouched`, its id, and a label for
    its files' names. Raises InvalidRequest and its kinds before anything is read, ConcurrentModification once it can no
    longer be committed.
    """
    snapshot = table.latest() if snapshot is None else snapshot
    plan = _with_bins(_checked(snapshot, request, Terms()), untouched)
    if not plan.bins:
        _log.info("%s has nothing to compact (%s): no version was made", table.location, plan.rewriting.mode)
        return None
    return _staged(table, plan, transaction_id=transaction_id, label=label)


def _checked(snapshot: Snapshot, request: CompactionRequest, terms: Terms) -> _Plan:
    check_writable(snapshot.protocol, snapshot.metadata)
    schema = parse_schema(snapshot.metadata.schema_string)
    return _Plan(snapshot, schema, _rewriting(snapshot, schema, request), terms)


def _with_bins(plan: _Plan, untouched: pa.BooleanArray | None) -> _Plan:
    snapshot, rewriting = plan.snapshot, plan.rewriting
    scope = _in_scope(snapshot, plan.schema, rewriting, untouched)
    if rewriting.is_clustered:
        clusters = plan_clusters(
            snapshot.files,
            scope,
            rewriting.order,
            full=rewriting.mode == "full",
            base=rewriting.mode == "major",
            files_max=_FILES_PER_COMMIT,
        )
        return replace(plan, bins=clusters)
    bins = plan_bins(
        snapshot.files,
        scope,
        snapshot.partition_columns,
        target_bytes=rewriting.target_bytes,
        base=rewriting.mode == "major",
        reorder=bool(rewriting.order),
        files_max=_FILES_PER_COMMIT,
    )
    return replace(plan, bins=bins)


def _staged(
    table: OpenTable, plan: _Plan, *, transaction_id: str | None = None, label: str = "", check: Callable[[], None] = lambda: None
) -> StagedCompaction:
    """Write the new files; `check` is called between any two pieces of work, and stops it by raising."""
    snapshot, rewriting, bins = plan.snapshot, plan.rewriting, plan.bins
    sources = _sources(snapshot.files, bins)
    require_room(table, sum(map(Removals.least_bytes, sources)))
    layout = FileFormat(
        plan.schema,
        snapshot.partition_columns,
        _COMPRESSION,
        indexed_columns_of(snapshot.configuration),
        rewriting.target_bytes,
        row_ids=RowIdColumns.of(snapshot.metadata, snapshot.protocol),
    )
    owner = transaction_id or table.new_transaction_id()
    tag = f"{owner}-{label}" if label else owner
    rewriter = Rewriter(
        table.store, snapshot.version, plan.schema, layout, tag, rewriting.order, check, is_clustered=rewriting.is_clustered
    )
    change = partial(_change, table, plan, owner, sources)
    lookout = _Lookout(
        table,
        snapshot.version,
        lambda: change([_yet_unwritten(each, rewriting) for each in sources]),
        at_once=plan.terms.if_version is not None,
    )
    return StagedCompaction(table, change(_written(rewriter, bins, sources, lookout)), rewriter)


def _sources(files: pa.Table, bins: Sequence[Bin]) -> list[pa.Table]:
    """The files of each bin, in FILES_SCHEMA."""
    together = rows_at(files, [index for one in bins for index in one.indices])
    starts = accumulate((len(one.indices) for one in bins), initial=0)
    return [together.slice(start, len(one.indices)) for start, one in zip(starts, bins, strict=False)]


def _rewriting(snapshot: Snapshot, schema: StructType, request: CompactionRequest) -> _Rewriting:
    where = request.where
    if request.mode not in _MODES:
        raise InvalidRequest(f"mode is {request.mode!r}; use one of {', '.join(_MODES)}")
    predicate = None
    if where is not None:
        predicate = Predicate.over_partitions(where, schema, snapshot.partition_columns, "a compaction takes whole files")
    clustering = clustering_columns(snapshot.domains)
    if request.z_order_by is not None and clustering:
        raise InvalidRequest(
            f"z_order_by was given, but the table is clustered by {', '.join(map(dotted, clustering))}, and a file has one order: leave "
            "it out, or cluster the table by other columns",
            columns=list(map(dotted, clustering)),
        )
    if request.mode == "full" and not clustering:
        raise InvalidRequest(
            'mode="full" clusters every file, and the table is not clustered: cluster_by([...]) first, or use mode="major"'
        )
    z_order = () if request.z_order_by is None else z_columns(request.z_order_by, schema, snapshot.partition_columns)
    return _Rewriting(
        "major" if z_order else request.mode,
        where,
        predicate,
        _target(request.target_file_size, snapshot.configuration),
        clustering or tuple((name,) for name in z_order),
        bool(clustering),
    )


def _target(size: int | str | None, configuration: Mapping[str, str]) -> int:
    """The size of new files in bytes."""
    if size is None:
        return file_size_of(configuration)
    return size if isinstance(size, int) else RULES["target_file_size"].of_text("target_file_size", size)


def _in_scope(snapshot: Snapshot, schema: StructType, rewriting: _Rewriting, untouched: pa.BooleanArray | None) -> pa.BooleanArray | None:
    if rewriting.predicate is None:
        return untouched
    inside = rewriting.predicate.may_match(snapshot.files, schema=schema, partition_columns=snapshot.partition_columns)
    return inside if untouched is None else pc.and_(inside, untouched)


class _Lookout:
    """Checks, between two bins, whether a compaction can still be committed: commits of others may be in its way for good."""

    def __init__(self, table: OpenTable, version: int, outline: Callable[[], Change], *, at_once: bool) -> None:
        self._table = table
        self._outline = outline
        self._clock = table.clock
        self._lock = threading.Lock()
        self._next_s = self._clock.monotonic_s() + (0 if at_once else _LOOK_EVERY_S)
        self._through = version

    def look(self) -> None:
        """Raise the conflict, if there is one. Comparing very many files is kept to a small part of the time."""
        with self._lock:
            began_s = self._clock.monotonic_s()
            if began_s < self._next_s:
                return
            self._next_s = float("inf")
        try:
            version = self._table.head().version
            if version > self._through:
                validate(self._table, self._outline())
                self._through = version
        except Unavailable as away:
            _log.info("cannot check now whether a compaction of %s can still be committed: %s", self._table.location, away)
        finally:
            took_s = self._clock.monotonic_s() - began_s
            self._next_s = self._clock.monotonic_s() + max(_LOOK_EVERY_S, _PART_OF_TIME * took_s)


def _yet_unwritten(sources: pa.Table, rewriting: _Rewriting) -> Output:
    """A bin's expected result, as far as it matters for conflicts: whether it says where rows went."""
    if rewriting.order:
        return Output((), None)
    counts = map(record_count, sources.column("stats").to_pylist())
    return Output((), tuple((Moved("", 0, _ROWS_ASSUMED if count is None else count, 0),) for count in counts))


def _written(rewriter: Rewriter, bins: Sequence[Bin], sources: Sequence[pa.Table], lookout: _Lookout) -> list[Output]:
    """The bins' new files; removes all of them if one cannot be written or is not needed any more."""

    def write(piece: tuple[int, Bin, pa.Table]) -> Output:
        rewriter.check()
        lookout.look()
        return rewriter.rewrite(*piece)

    try:
        with ThreadPoolExecutor(min(_WRITERS, len(bins)), thread_name_prefix="sluice-compact") as pool:
            try:
                return list(pool.map(within_this_call(write), zip(range(len(bins)), bins, sources, strict=True)))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    except BaseException:
        rewriter.discard()
        raise


def _change(table: CoordinatedTable, plan: _Plan, transaction_id: str, sources: Sequence[pa.Table], outputs: Sequence[Output]) -> Change:
    """The commit: removes every source, saying where its rows went, and adds the new files."""
    snapshot, rewriting = plan.snapshot, plan.rewriting
    now_ms, columns = table.clock.now_ms(), list(map(dotted, rewriting.order))
    # With vectors a delete leaves its file in place, so it is distinguished from changes of the file's other rows.
    is_row_level = deletion_vectors(snapshot.protocol, snapshot.metadata)
    actions: list[Collection[Action]] = []
    for files, output in zip(sources, outputs, strict=True):
        actions += [Removals(files, now_ms, moves=output.moves, data_change=False), output.adds]
    return Change(
        transaction_id=transaction_id,
        operation="OPTIMIZE",
        snapshot=snapshot,
        actions=Actions(*actions),
        reads=Reads(files=() if is_row_level else _listed(sources)),
        parameters={
            "predicate": json.dumps([] if rewriting.where is None else [rewriting.where]),
            "zOrderBy": json.dumps([] if rewriting.is_clustered else columns),
            **({"clusterBy": json.dumps(columns), "isFull": str(rewriting.mode == "full").lower()} if rewriting.is_clustered else {}),
            "auto": "false",
            "mode": rewriting.mode,
        },
        metrics=_metrics(sources, [add for output in outputs for add in output.adds]),
        schema=plan.schema,
        terms=plan.terms if plan.terms.if_version is None else replace(plan.terms, if_version=snapshot.version),
        # every policy allows clustering beside an INSERT, so its class is one that does, too
        kind=Kind.MAJOR if rewriting.mode == "major" and not rewriting.order else Kind.MINOR,
    )


def _listed(sources: Sequence[pa.Table]) -> tuple[str, ...] | None:
    """The paths of all files; None if there are more than a footprint lists."""
    if sum(files.num_rows for files in sources) > LISTED_MAX:
        return None
    return tuple(path for files in sources for path in files["path"].to_pylist())


def _metrics(removed: Sequence[pa.Table], added: Sequence[AddFile]) -> dict[str, str]:
    """Delta's names; the sizes are those of the new files, in bytes."""
    sizes = sorted(add.size for add in added)
    counted = {
        "numRemovedFiles": sum(files.num_rows for files in removed),
        "numAddedFiles": len(added),
        "numRemovedBytes": sum(pc.sum(files["size"]).as_py() for files in removed),
        "numAddedBytes": sum(sizes),
        "numDeletionVectorsRemoved": sum(files.num_rows - files["deletion_vector"].null_count for files in removed),
    }
    places = {"minFileSize": 0.0, "p25FileSize": 0.25, "p50FileSize": 0.5, "p75FileSize": 0.75, "maxFileSize": 1.0}
    if sizes:
        counted |= {name: sizes[round(place * (len(sizes) - 1))] for name, place in places.items()}
    return {name: str(value) for name, value in counted.items()}
