"""The commits after a checkpoint, read from the log: single commits, or several from one log compaction file.

A log compaction file has the reconciled actions of its versions ("Log Compaction Files" in PROTOCOL.md): each key once. If a
key appears twice, the file was not reconciled and the order of its lines means nothing, so the single commits are read
instead.
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
    with ThreadPoolExecutor(min(_FETCHES_MAX, len(files))) as pool:
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
