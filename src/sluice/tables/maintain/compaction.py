"""Compaction: rewrites a table's files as fewer, larger ones, without deleted rows, or in another order; no row changes.

The commit says, for every file it replaces, where its live rows went, so that a concurrent delete is carried over to the new file, also
where they were put into another order: of a z-order's columns, or along the Hilbert curve of a clustered table's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Change, Commit, CoordinatedTable, Deadline, Reads, Timeout, require_room, submit, validate, within_this_call
from ...coordinator.errors import CoordinatorUnavailable, NotCommitted, OutcomeUnknown
from ...coordinator.rules.intent import Kind, Terms
from ...storage.actions import Action
from ...storage.actions.features import Path, RowIdColumns, check_writable, clustering_columns, deletion_vectors, dotted
from ...storage.actions.file_removals import Actions, Moved, Removals
from ...storage.actions.filetable import rows_at
from ...storage.actions.records import record_count
from ...storage.arguments import RULES
from ...storage.caches import at_once
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError, Unavailable
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.mapping import physical_path
from ...storage.schema.schema import StructType
from ..client.open_table import OpenTable
from ..client.property_rules import file_size_of, layout_of
from ..client.time_limits import in_time
from ..write.requirements import snapshot_for_change
from ..write.row_operations import LISTED_MAX
from .bins import Bin, packed, plan_bins, plan_clusters
from .rewriting import Output, Rewriter, z_columns

_log = logging.getLogger(__name__)
_MODES: Final = ("minor", "major", "full")
_COMPRESSION: Final = "zstd"
_WRITERS: Final = 2
"""Bins that are written at once; each has a row group in memory."""
_FILES_PER_COMMIT: Final = 50_000
"""The most files that one commit of a compaction replaces. Deciding, adapting and comparing it takes 1.5 KB of memory per file."""
_LOOK_EVERY_S: Final = 2.0
_PART_OF_TIME: Final = 20
"""The checks whether it can still commit take at most one part in so many of a compaction's time."""
_SIZES_TOLD: Final = {"minFileSize": 0.0, "p25FileSize": 0.25, "p50FileSize": 0.5, "p75FileSize": 0.75, "maxFileSize": 1.0}
"""Delta's names of the sizes of new files, and which of them, in order, these are."""
_ROWS_ASSUMED: Final = 2**31
"""Of a file whose statistics do not say it."""


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """The arguments of a compaction; see `Table.compact`."""

    mode: str = "minor"
    where: str | None = None
    target_file_size: int | str | None = None
    z_order_by: str | Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """A compaction of one version, as its request and the table say, with bins of that version's files."""

    snapshot: Snapshot
    schema: StructType
    terms: Terms
    mode: str
    where: str | None
    predicate: Predicate | None
    target_bytes: int
    order: tuple[Path, ...]
    is_clustered: bool
    bins: Sequence[Bin] = ()


@dataclass(frozen=True, slots=True)
class StagedCompaction:
    """A compaction whose new files are written, but invisible before `commit`."""

    table: OpenTable
    change: Change
    rewriter: Rewriter

    def commit(self, *, timeout_s: Timeout | None = None, filing: Callable[[str], object] | None = None) -> Commit:
        """Commit it; `filing` gets another transaction id before it is filed under that one.

        Raises ConcurrentModification if another commit replaced the files meanwhile; then nothing of it remains.
        """
        try:
            return submit(self.table, self.change, timeout_s=timeout_s, filing=filing)
        except (NotCommitted, OutcomeUnknown, CoordinatorUnavailable) as ended:
            if isinstance(ended, NotCommitted) or ended.details.get("stage") == "staged":
                self.rewriter.discard()
            raise


def compact(table: OpenTable, request: CompactionRequest, terms: Terms, *, limit: Timeout | None = None) -> Commit | None:
    """Compact the latest version (see `Table.compact`); None if there is nothing to do. `limit` is for all, the terms' for each commit."""
    run = _Run(table, request, terms, None if limit is None else Deadline.of(limit, table.clock))
    return run.work() if run.limit is None else in_time(run.limit, run.work, run.give_up)


@dataclass(slots=True)
class _Run:
    """A compaction in progress: several commits, each complete in itself, so that none has more than `_FILES_PER_COMMIT` files."""

    table: OpenTable
    request: CompactionRequest
    terms: Terms
    limit: Deadline | None
    _lock: Lock = field(default_factory=Lock)
    _last: Commit | None = None
    _commits: int = 0
    _filing: str | None = None
    """The id of the last commit begun; None while the next one is being staged."""
    _given_up: bool = False

    def work(self) -> Commit | None:
        """Do all of it; returns the last commit."""
        try:
            plan = _with_bins(_checked(snapshot_for_change(self.table, self.terms.if_version), self.request, self.terms), None)
            paths, planned = plan.snapshot.files.column("path"), plan.bins
            # a bin with more files than one commit takes (a partition's, in a z-order) is alone
            for share in packed([len(one.indices) for one in planned], _FILES_PER_COMMIT, None):
                bins = planned[share.start : share.stop]
                if self._commits:  # the previous commit, and others', made versions since
                    self._filing = None
                    # the latest one, or the last commit's own if nothing may come in between
                    last = None if self.terms.if_version is None or self._last is None else self._last.version
                    plan = _checked(self.table.at(last), self.request, self.terms)
                    bins = _still_there(bins, paths, plan)
                if not bins:
                    continue
                staged = _staged(self.table, replace(plan, bins=bins), check=self._require_time)
                with self._lock:
                    self._filing = None if self._given_up else staged.change.transaction_id
                if self._given_up:
                    staged.rewriter.discard()
                    raise self.give_up()
                done = staged.commit(timeout_s=self.limit, filing=self._filed_under)
                with self._lock:
                    self._commits += 1
                    self._last = done if self._commits == 1 else replace(done, commits=self._commits)
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

    def _filed_under(self, transaction_id: str) -> None:
        with self._lock:
            self._filing = transaction_id


def _still_there(bins: Sequence[Bin], paths: pa.ChunkedArray, plan: _Plan) -> list[Bin]:
    """The bins, planned when the files had these `paths`, translated to a later version; without those whose files are gone."""
    before = sorted(index for one in bins for index in one.indices)
    planned = rows_at(pa.table({"path": paths}), before).column("path")
    at = dict(zip(before, pc.index_in(planned, value_set=plan.snapshot.files.column("path")).to_pylist(), strict=True))
    later: list[Bin] = []
    for one in bins:
        indices = tuple(sorted(place for index in one.indices if (place := at[index]) is not None))
        if len(indices) > 1 or (indices and (len(one.indices) == 1 or plan.order)):
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

    A transaction that compacts passes its own `snapshot`, which of its files it left `untouched`, its id, and a label for its files' names.
    Raises InvalidRequest and its kinds before anything is read, ConcurrentModification once it can no longer be committed.
    """
    snapshot = table.latest() if snapshot is None else snapshot
    plan = _with_bins(_checked(snapshot, request, Terms()), untouched)
    return _staged(table, plan, transaction_id=transaction_id, label=label) if plan.bins else None


def _checked(snapshot: Snapshot, request: CompactionRequest, terms: Terms) -> _Plan:
    """The plan without bins. Raises InvalidRequest and its kinds."""
    check_writable(snapshot.protocol, snapshot.metadata)
    schema = snapshot.metadata.schema
    where, size = request.where, request.target_file_size
    if request.mode not in _MODES:
        raise InvalidRequest(f"mode is {request.mode!r}; use one of {', '.join(_MODES)}")
    predicate = None
    if where is not None:
        predicate = Predicate.over_partitions(where, schema, snapshot.partition_columns, "a compaction takes whole files")
    clustering = clustering_columns(snapshot.domains, schema)
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
    if size is None:
        size = file_size_of(snapshot.configuration)
    elif isinstance(size, str):
        size = RULES["target_file_size"].of_text("target_file_size", size)
    order = clustering or tuple((name,) for name in z_order)
    return _Plan(snapshot, schema, terms, "major" if z_order else request.mode, where, predicate, size, order, bool(clustering))


def _with_bins(plan: _Plan, untouched: pa.BooleanArray | None) -> _Plan:
    snapshot, scope, is_major = plan.snapshot, untouched, plan.mode == "major"
    files, partition_columns = snapshot.files, snapshot.partition_columns
    if plan.predicate is not None:
        inside = plan.predicate.may_match(files, schema=plan.schema, partition_columns=partition_columns)
        scope = inside if untouched is None else pc.and_(inside, untouched)
    if plan.is_clustered:
        order = [physical_path(path, plan.schema) for path in plan.order]
        bins = plan_clusters(files, scope, order, full=plan.mode == "full", base=is_major, files_max=_FILES_PER_COMMIT)
    else:
        partitions, reorder = snapshot.metadata.physical_partitions, bool(plan.order)
        bins = plan_bins(
            files, scope, partitions, target_bytes=plan.target_bytes, base=is_major, reorder=reorder, files_max=_FILES_PER_COMMIT
        )
    if not bins:
        _log.info("%s has nothing to compact (%s): no version was made", snapshot.location, plan.mode)
    return replace(plan, bins=bins)


def _staged(
    table: OpenTable, plan: _Plan, *, transaction_id: str | None = None, label: str = "", check: Callable[[], None] = lambda: None
) -> StagedCompaction:
    """Write the new files; `check` is called between any two pieces of work, and stops it by raising."""
    snapshot, bins = plan.snapshot, plan.bins
    together = rows_at(snapshot.files, [index for one in bins for index in one.indices])
    starts = accumulate((len(one.indices) for one in bins), initial=0)
    sources = [together.slice(start, len(one.indices)) for start, one in zip(starts, bins, strict=False)]
    require_room(table, sum(map(Removals.least_bytes, sources)))
    ids = RowIdColumns.of(snapshot.metadata, snapshot.protocol)
    layout = layout_of(snapshot.metadata, compression=_COMPRESSION, target_file_bytes=plan.target_bytes, row_ids=ids)
    owner = transaction_id or table.new_transaction_id()
    tag = f"{owner}-{label}" if label else owner
    followed = deletion_vectors(snapshot.protocol, snapshot.metadata)
    rewriter = Rewriter(
        table.store, snapshot.version, plan.schema, layout, tag, plan.order, check, is_clustered=plan.is_clustered, is_followed=followed
    )
    change = partial(_change, table, plan, owner, sources)
    first_look_s = table.clock.monotonic_s() + (_LOOK_EVERY_S if plan.terms.if_version is None else 0)
    lookout = _Lookout(table, snapshot.version, lambda: change(list(map(_yet_unwritten, sources))), first_look_s)

    def write(piece: tuple[int, Bin, pa.Table]) -> Output:
        check()
        lookout.look()
        return rewriter.rewrite(*piece)

    try:
        pieces = list(zip(range(len(bins)), bins, sources, strict=True))
        written = at_once(within_this_call(write), pieces, _WRITERS, "sluice-compact", "groups of files rewritten")
    except BaseException:  # one cannot be written, or is not needed any more
        rewriter.discard()
        raise
    return StagedCompaction(table, change(written), rewriter)


@dataclass(slots=True)
class _Lookout:
    """Checks, between two bins, whether a compaction can still be committed: commits of others may be in its way for good."""

    table: OpenTable
    through: int
    """The version up to which there is no conflict."""
    outline: Callable[[], Change]
    next_s: float
    lock: Lock = field(default_factory=Lock)

    def look(self) -> None:
        """Raise the conflict, if there is one. Comparing very many files is kept to a small part of the time."""
        clock = self.table.clock
        with self.lock:
            began_s = clock.monotonic_s()
            if began_s < self.next_s:
                return
            self.next_s = float("inf")
        try:
            if (version := self.table.head().version) > self.through:
                validate(self.table, self.outline())
                self.through = version
        except Unavailable as away:
            _log.info("cannot check now whether a compaction of %s can still be committed: %s", self.table.location, away)
        finally:
            ended_s = clock.monotonic_s()
            self.next_s = ended_s + max(_LOOK_EVERY_S, _PART_OF_TIME * (ended_s - began_s))


def _yet_unwritten(sources: pa.Table) -> Output:
    """A bin's expected result, as far as it matters for conflicts: it says where rows went."""
    counts = map(record_count, sources.column("stats").to_pylist())
    return Output((), tuple((Moved("", 0, _ROWS_ASSUMED if count is None else count, 0),) for count in counts))


def _change(table: CoordinatedTable, plan: _Plan, transaction_id: str, sources: Sequence[pa.Table], outputs: Sequence[Output]) -> Change:
    snapshot = plan.snapshot
    now_ms, columns = table.clock.now_ms(), list(map(dotted, plan.order))
    sizes = sorted([add.size for output in outputs for add in output.adds])
    counted = {
        "numRemovedFiles": sum(files.num_rows for files in sources),
        "numAddedFiles": len(sizes),
        "numRemovedBytes": sum(pc.sum(files["size"]).as_py() for files in sources),
        "numAddedBytes": sum(sizes),
        "numDeletionVectorsRemoved": sum(files.num_rows - files["deletion_vector"].null_count for files in sources),
    }
    if sizes:
        counted |= {name: sizes[round(place * (len(sizes) - 1))] for name, place in _SIZES_TOLD.items()}
    # With vectors a delete leaves its file in place, so it is distinguished from changes of the file's other rows.
    reads = Reads()
    if not deletion_vectors(snapshot.protocol, snapshot.metadata):
        is_listed = sum(files.num_rows for files in sources) <= LISTED_MAX
        reads = Reads(files=tuple(path for files in sources for path in files["path"].to_pylist()) if is_listed else None)
    actions: list[Collection[Action]] = []
    for files, output in zip(sources, outputs, strict=True):
        actions += [Removals(files, now_ms, moves=output.moves, data_change=False), output.adds]
    return Change(
        transaction_id=transaction_id,
        operation="OPTIMIZE",
        snapshot=snapshot,
        actions=Actions(*actions),
        reads=reads,
        parameters={
            "predicate": json.dumps([] if plan.where is None else [plan.where]),
            "zOrderBy": json.dumps([] if plan.is_clustered else columns),
            **({"clusterBy": json.dumps(columns), "isFull": str(plan.mode == "full").lower()} if plan.is_clustered else {}),
            "auto": "false",
            "mode": plan.mode,
        },
        metrics={name: str(value) for name, value in counted.items()},
        schema=plan.schema,
        terms=plan.terms if plan.terms.if_version is None else replace(plan.terms, if_version=snapshot.version),
        # every policy allows clustering beside an INSERT, so its class is one that does, too
        kind=Kind.MAJOR if plan.mode == "major" and not plan.order else Kind.MINOR,
    )
