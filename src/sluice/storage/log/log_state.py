"""The state of a table after the files of a log segment; its lists of files and tombstones are read on first use.

The commits after a checkpoint are read from single commits, or several from one log compaction file. Such a file has the reconciled
actions of its versions ("Log Compaction Files" in PROTOCOL.md): each key once. If a key appears twice, the file was not reconciled and
the order of its lines means nothing, so the single commits are read instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import pyarrow as pa

from ..actions import texts
from ..actions.codec import actions_of, without_files
from ..actions.filetable import LayeredTable, add_rows, remove_rows
from ..actions.records import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from ..actions.texts import stored_text
from ..caches import ForkSafeLock
from ..stores.objects import ObjectStore
from ..threads import threads
from .checkpoint import read_checkpoint
from .paths import LogKind
from .replay import ReplayState
from .segment import LogFile, LogSegment

# Concurrent requests for log files; they are small, so latency dominates.
_FETCHES_MAX: Final = 8


def read_deltas(store: ObjectStore, segment: LogSegment) -> Iterator[Iterable[Action]]:
    """The actions after the segment's checkpoint, in the order of the versions.

    Raises CorruptLogFile for a file that cannot be decoded, and ObjectNotFound for one removed since it was listed.
    """
    for file, actions in zip(segment.deltas, fetch_actions(store, segment.deltas), strict=True):
        # check: compactions-are-reconciled
        if file.path.kind is LogKind.COMPACTED and not _is_reconciled(actions):
            covered = [each for each in segment.commits if file.path.version <= each.path.version <= file.path.end_version]
            yield from fetch_actions(store, covered)
        else:
            yield actions


def fetch_actions(store: ObjectStore, files: Sequence[LogFile]) -> Iterator[Iterable[Action]]:
    """The actions of each file, in order; several files are fetched at once, and long ones during iteration.

    Raises the same as `read_deltas`.
    """
    if len(files) <= 1:
        for each in files:
            yield actions_of(stored_text(store, each.key), name=each.key)
        return
    with threads(min(_FETCHES_MAX, len(files)), "sluice-log") as pool:
        for each, text in zip(files, pool.map(partial(stored_text, store), [each.key for each in files]), strict=True):
            yield actions_of(text, name=each.key)


def _is_reconciled(actions: Iterable[Action]) -> bool:
    """Whether no two of the actions have the same key."""
    keys = [key for action in actions if (key := _key(action)) is not None]
    return len(set(keys)) == len(keys)


def _key(action: Action) -> Hashable:
    """The key of reconciliation; None for an action that is not reconciled."""
    match action:
        case AddFile() | RemoveFile():
            return "file", action.key
        case Txn():
            return "txn", action.app_id
        case DomainMetadata():
            return "domainMetadata", action.domain
        case Protocol() | Metadata():
            return type(action).__name__
        case _:
            return None


def read_state(store: ObjectStore, segment: LogSegment) -> ReplayState:
    """The state that a segment describes. Of long commits, such as one that removes a million files, file actions are not decoded.

    Raises CorruptLogFile for a damaged file, ObjectNotFound for one removed since it was listed. Reading the lists raises
    the same, and the errors of reading a checkpoint's lists.
    """
    begun = ReplayState() if segment.checkpoint is None else read_checkpoint(store, segment.checkpoint)
    if all(each.size <= texts.PIECE_BYTES for each in segment.deltas):
        return begun.after(read_deltas(store, segment))
    replayed = _Replayed(store, segment, begun)
    return replace(
        begun.after(without_files(actions) for actions in read_deltas(store, segment)),
        files=LayeredTable(_List(replayed, "files"), add_rows),
        tombstones=LayeredTable(_List(replayed, "tombstones"), remove_rows),
        lists_at=segment.version,
    )


class _Replayed:
    """A segment replayed with all its actions, on first use."""

    def __init__(self, store: ObjectStore, segment: LogSegment, begun: ReplayState) -> None:
        self._store = store
        self._segment = segment
        self._begun = begun
        self._state: ReplayState | None = None
        self._lock = ForkSafeLock()

    @property
    def known(self) -> ReplayState | None:
        """The state, if it was replayed before."""
        return self._state

    @property
    def state(self) -> ReplayState:
        """The state, including the lists."""
        with self._lock:
            if self._state is None:
                self._state = self._begun.after(read_deltas(self._store, self._segment))
            return self._state


class _List:
    """One list of a state that is replayed later."""

    def __init__(self, replayed: _Replayed, name: Literal["files", "tombstones"]) -> None:
        self._replayed = replayed
        self._name: Literal["files", "tombstones"] = name

    @property
    def table(self) -> pa.Table:
        """The rows."""
        state = self._replayed.state
        return (state.files if self._name == "files" else state.tombstones).table

    @property
    def held(self) -> Mapping[int, int]:
        """The bytes of each table in memory, by its identity."""
        state = self._replayed.known
        return {} if state is None else (state.files if self._name == "files" else state.tombstones).held
