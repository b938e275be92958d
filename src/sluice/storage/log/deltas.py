"""The commits behind a checkpoint, read from the log: each by itself, or several from one log compaction file.

A log compaction file holds the reconciled actions of its versions ("Log Compaction Files" in PROTOCOL.md): each key once. One that
holds a key twice was not reconciled, and the order of its lines says nothing; then the commits it stands for are read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from ..actions.codec import actions_of
from ..actions.records import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from ..actions.texts import stored_text
from ..stores.objects import ObjectStore
from .paths import LogKind
from .segment import LogFile, LogSegment

__all__ = ["fetch_actions", "read_deltas"]

# Requests for log files under way at once; they are small, so latency is what counts.
_FETCHES_MAX: Final = 8


def read_deltas(store: ObjectStore, segment: LogSegment) -> Iterator[Iterable[Action]]:
    """The actions that follow the segment's checkpoint, in the order of the versions.

    Raises CorruptLogFile for a file that cannot be decoded, and ObjectNotFound for one that is gone since it was listed.
    """
    for file, actions in zip(segment.deltas, fetch_actions(store, segment.deltas), strict=True):
        if file.path.kind is LogKind.COMPACTED and not _is_reconciled(actions):
            covered = [each for each in segment.commits if file.path.version <= each.path.version <= file.path.end_version]
            yield from fetch_actions(store, covered)
        else:
            yield actions


def fetch_actions(store: ObjectStore, files: Sequence[LogFile]) -> Iterator[Iterable[Action]]:
    """The actions of each file, in order; several files are fetched at once, and long ones while somebody goes through their actions.

    Raises what `read_deltas` raises.
    """
    if len(files) <= 1:
        for each in files:
            yield actions_of(stored_text(store, each.key), name=each.key)
        return
    with ThreadPoolExecutor(min(_FETCHES_MAX, len(files))) as pool:
        for each, text in zip(files, pool.map(partial(stored_text, store), [each.key for each in files]), strict=True):
            yield actions_of(text, name=each.key)


def _is_reconciled(actions: Iterable[Action]) -> bool:
    """Whether no two of the actions are about the same thing."""
    keys = [key for action in actions if (key := _key(action)) is not None]
    return len(set(keys)) == len(keys)


def _key(action: Action) -> Hashable:
    """What reconciliation goes by; None for an action that is not reconciled."""
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
