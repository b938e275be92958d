"""The state of a table after the files of a log segment; its lists of files and tombstones are read on first use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from ..actions import texts
from ..actions.codec import without_files
from ..actions.filetable import LayeredTable, add_rows, remove_rows
from ..locks import ForkSafeLock
from ..stores.objects import ObjectStore
from .checkpoint import read_checkpoint
from .deltas import read_deltas
from .replay import ReplayState
from .segment import LogSegment

__all__ = ["read_state"]


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
