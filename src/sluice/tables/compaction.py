"""Compaction: a table's files written again as fewer, larger ones, or without the rows that are dead; no row changes.

What reads the table sees the same rows before and after. The commit says of every file it replaces where its live rows went,
so that a delete which runs at the same time is carried over to the new file; only a z-order, which shuffles rows, cannot say so.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..coordinator.clock import DEFAULT_TIMEOUT_S, Clock, Timeout
from ..coordinator.errors import NotCommitted
from ..coordinator.kinds import Kind
from ..coordinator.outcomes import Commit
from ..storage.actions import AddFile, RemoveFile
from ..storage.errors import InvalidRequest, Unavailable
from ..storage.features import check_writable, deletion_vectors
from ..storage.file_writer import FileFormat
from ..storage.lineage import Moved, with_moves
from ..storage.predicate import Predicate
from ..storage.removals import removal
from ..storage.schema import StructType, parse_schema
from ..storage.snapshot import Snapshot
from ..storage.wide_stats import record_count
from .access import Access
from .bins import Bin, plan_bins
from .rewriting import Output, Rewriter
from .transactions import Change, Reads, commit_change, new_transaction_id, validate
from .writing import file_size_of, indexed_columns_of
from .zorder import z_columns

__all__ = ["StagedCompaction", "compact", "stage_compaction"]

_log = logging.getLogger(__name__)
_MODES: Final = ("minor", "major")
_COMPRESSION: Final = "zstd"
# Bins that are written at once; each holds a row group in memory.
_WRITERS: Final = 2
_LOOK_EVERY_S: Final = 2.0
# Rows of a file whose statistics do not count them.
_ROWS_ASSUMED: Final = 2**31


@dataclass(frozen=True, slots=True)
class _Request:
    """A checked call."""

    mode: str
    where: str | None
    predicate: Predicate | None
    target_bytes: int
    z_order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagedCompaction:
    """A compaction whose new files are written, and which nobody sees before `commit`."""

    access: Access
    change: Change
    rewriter: Rewriter

    def commit(self, *, ack: str = "published", timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> Commit:
        """Commit it. Raises ConcurrentModification when somebody else replaced the files meanwhile; then nothing of it stays."""
        try:
            return commit_change(self.access, self.change, ack=ack, timeout_s=timeout_s)
        except NotCommitted:
            self.rewriter.discard()
            raise


def compact(
    access: Access,
    mode: str,
    where: str | None,
    *,
    target_file_size: int | str | None,
    z_order_by: str | Sequence[str] | None,
    ack: str,
    timeout_s: Timeout,
) -> Commit | None:
    """Compact the latest version (see `Table.compact`); None when there is nothing to do. Raises as its two halves do."""
    staged = stage_compaction(access, mode, where, target_file_size=target_file_size, z_order_by=z_order_by)
    return None if staged is None else staged.commit(ack=ack, timeout_s=timeout_s)


def stage_compaction(
    access: Access,
    mode: str = "minor",
    where: str | None = None,
    *,
    target_file_size: int | str | None = None,
    z_order_by: str | Sequence[str] | None = None,
    snapshot: Snapshot | None = None,
    untouched: pa.BooleanArray | None = None,
    transaction_id: str | None = None,
    label: str = "",
) -> StagedCompaction | None:
    """Write the files of a compaction of the latest version; None when there is nothing to do.

    A transaction that compacts gives its own `snapshot`, which of its files it left `untouched`, its id, and a label for its files'
    names. Raises InvalidRequest and its kinds before anything is read, ConcurrentModification as soon as it can no longer be committed.
    """
    clock = access.ours.context.clock
    snapshot = access.latest() if snapshot is None else snapshot
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.domains)
    schema = parse_schema(snapshot.metadata.schema_string)
    asked = _request(snapshot, schema, mode, where, target_file_size, z_order_by)
    bins = plan_bins(
        snapshot.files,
        _in_scope(snapshot, schema, asked, untouched),
        snapshot.partition_columns,
        target_bytes=asked.target_bytes,
        base=asked.mode == "major",
        reorder=bool(asked.z_order),
    )
    if not bins:
        _log.info("%s has nothing to compact (%s): no version was made", access.address.location, asked.mode)
        return None
    layout = FileFormat(schema, snapshot.partition_columns, _COMPRESSION, indexed_columns_of(snapshot.configuration), asked.target_bytes)
    owner = transaction_id or new_transaction_id(access)
    tag = f"{owner}-{label}" if label else owner
    rewriter = Rewriter(access.store, snapshot.files, snapshot.version, schema, layout, tag, asked.z_order)
    change = partial(_change, clock, snapshot, schema, asked, owner, bins)
    outputs = _written(rewriter, bins, _Lookout(access, change([_yet_unwritten(snapshot, one, asked) for one in bins])))
    return StagedCompaction(access, change(outputs), rewriter)


def _request(
    snapshot: Snapshot,
    schema: StructType,
    mode: str,
    where: str | None,
    target_file_size: int | str | None,
    z_order_by: str | Sequence[str] | None,
) -> _Request:
    if mode not in _MODES:
        raise InvalidRequest(f"mode is {mode!r}; use one of {', '.join(_MODES)}")
    predicate = None
    if where is not None:
        predicate = Predicate.parse(where, schema)
        _, rest = predicate.split(snapshot.partition_columns)
        if rest is not None:
            columns = ", ".join(snapshot.partition_columns)
            remedy = f"name its partition columns ({columns}) only" if columns else "leave it out, the table has no partitions"
            raise InvalidRequest(
                f"where={where!r}: a compaction takes whole files, and {rest.to_sql()} asks for the rows in them; {remedy}", where=where
            )
    z_order = () if z_order_by is None else z_columns(z_order_by, schema, snapshot.partition_columns)
    return _Request("major" if z_order else mode, where, predicate, _target(target_file_size, snapshot.configuration), z_order)


def _target(asked: int | str | None, configuration: Mapping[str, str]) -> int:
    """The size of new files in bytes."""
    if asked is None:
        return file_size_of(configuration)
    if type(asked) is int and asked > 0:
        return asked
    try:
        return file_size_of({"delta.targetFileSize": asked if isinstance(asked, str) else "not a text"})
    except InvalidRequest:
        raise InvalidRequest(
            f"target_file_size is {asked!r}; give a number of bytes, 1 or more, or a size like 128mb", target_file_size=asked
        ) from None


def _in_scope(snapshot: Snapshot, schema: StructType, asked: _Request, untouched: pa.BooleanArray | None) -> pa.BooleanArray | None:
    if asked.predicate is None:
        return untouched
    inside = asked.predicate.may_match(snapshot.files, schema=schema, partition_columns=snapshot.partition_columns)
    return inside if untouched is None else pc.and_(inside, untouched)


class _Lookout:
    """Asks, between two bins, whether a compaction can still be committed: what others committed may be in its way for good."""

    def __init__(self, access: Access, outline: Change) -> None:
        self._access = access
        self._outline = outline
        self._clock = access.ours.context.clock
        self._lock = threading.Lock()
        self._next_s = self._clock.monotonic_s() + _LOOK_EVERY_S

    def look(self) -> None:
        """Raise the conflict, if there is one by now."""
        with self._lock:
            if self._clock.monotonic_s() < self._next_s:
                return
            self._next_s = self._clock.monotonic_s() + _LOOK_EVERY_S
        try:
            validate(self._access, self._outline)
        except Unavailable as away:
            _log.info("whether a compaction of %s can still be committed cannot be told now: %s", self._access.address.location, away)


def _yet_unwritten(snapshot: Snapshot, one: Bin, asked: _Request) -> Output:
    """What a bin will come to, as far as it matters for conflicts: whether its rows' ways are told."""
    if asked.z_order:
        return Output((), None)
    counts = (record_count(add.stats) for add in snapshot.add_files(one.indices))
    return Output((), tuple((Moved("", 0, _ROWS_ASSUMED if count is None else count, 0),) for count in counts))


def _written(rewriter: Rewriter, bins: Sequence[Bin], lookout: _Lookout) -> list[Output]:
    """The bins' new files; none of them stays when one cannot be written, or is not needed any more."""

    def write(number: int, one: Bin) -> Output:
        lookout.look()
        return rewriter.rewrite(number, one)

    try:
        with ThreadPoolExecutor(min(_WRITERS, len(bins)), thread_name_prefix="sluice-compact") as pool:
            try:
                return list(pool.map(write, range(len(bins)), bins))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    except BaseException:
        rewriter.discard()
        raise


def _change(
    clock: Clock,
    snapshot: Snapshot,
    schema: StructType,
    asked: _Request,
    transaction_id: str,
    bins: Sequence[Bin],
    outputs: Sequence[Output],
) -> Change:
    """The commit: every source removed, saying where its rows went, and the new files added."""
    now_ms = clock.now_ms()
    # With vectors a delete leaves its file in place, and is told from what happens to other rows of the file.
    is_row_level = deletion_vectors(snapshot.protocol, snapshot.metadata)
    sources: list[AddFile] = []
    actions: list[RemoveFile | AddFile] = []
    for one, output in zip(bins, outputs, strict=True):
        for number, add in enumerate(snapshot.add_files(one.indices)):
            remove = removal(add, now_ms, data_change=False)
            actions.append(remove if output.moves is None else with_moves(remove, output.moves[number]))
            sources.append(add)
        actions.extend(output.adds)
    return Change(
        transaction_id=transaction_id,
        operation="OPTIMIZE",
        snapshot=snapshot,
        actions=actions,
        reads=Reads(files=() if is_row_level else tuple(add.path for add in sources)),
        parameters={
            "predicate": json.dumps([] if asked.where is None else [asked.where]),
            "zOrderBy": json.dumps(list(asked.z_order)),
            "auto": "false",
            "mode": asked.mode,
        },
        metrics=_metrics(sources, [add for output in outputs for add in output.adds]),
        schema=schema,
        # clustering stands beside an INSERT in every policy, so it is of the class that does
        kind=Kind.MAJOR if asked.mode == "major" and not asked.z_order else Kind.MINOR,
    )


def _metrics(removed: Sequence[AddFile], added: Sequence[AddFile]) -> dict[str, str]:
    """Delta's names; the sizes are those of the new files, in bytes."""
    sizes = sorted(add.size for add in added)
    counted = {
        "numRemovedFiles": len(removed),
        "numAddedFiles": len(added),
        "numRemovedBytes": sum(add.size for add in removed),
        "numAddedBytes": sum(sizes),
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in removed),
    }
    places = {"minFileSize": 0.0, "p25FileSize": 0.25, "p50FileSize": 0.5, "p75FileSize": 0.75, "maxFileSize": 1.0}
    if sizes:
        counted |= {name: sizes[round(place * (len(sizes) - 1))] for name, place in places.items()}
    return {name: str(value) for name, value in counted.items()}
