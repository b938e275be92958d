"""Letting go of tables: a table that nobody wants any more, and nodes of a table whose folder is gone.

A drop goes in steps, each of which can be repeated by whoever finds the one before it done:

1. a last commit (`DROP TABLE`) closes the table to all other commits, after everything that was filed before it;
2. the nodes are closed in one multi and removed; what stays is a tombstone that says whether data are still to be deleted;
3. the data files are deleted, then the log. Files that nothing says are the table's stay.

Clients that have the table open get `TableDropped` from step 2 on. The location may have another table at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from ...coordinator.nodes.context import TableContext
from ...coordinator.nodes.creation import check_tree, remove_new_tree, require_head
from ...coordinator.nodes.deletion_claim import Deletion, deletion
from ...coordinator.nodes.removal import bury_tree, read_tombstone, remove_closed_tree
from ...coordinator.service.clock import DEFAULT_TIMEOUT_S, SystemClock, Timeout, bounding
from ...storage.actions import CommitInfo, decode_commit
from ...storage.constants import LOG_FOLDER
from ...storage.dataclass import dataclass
from ...storage.errors import Corrupt, InvalidRequest, NotATable, TableNotFound
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import KeepsUnfinished, ObjectInfo, ObjectStore
from ..client.access import Access
from ..client.address import TableAddress
from ..maintain.garbage import Shown, belongs_to, inner_tables
from .creation import detach

__all__ = ["DropReport", "drop", "forget"]

_OPERATION: Final = "DROP TABLE"
_DELETIONS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class DropReport:
    """What a drop did: the table's last version, how many objects went with how many bytes, and the keys of files that stayed.

    `kept` are files that nothing says are the table's, hidden ones and tables within the folder; where the data were kept it is empty.
    """

    location: str
    version: int
    deleted: int = 0
    size_bytes: int = 0
    kept: tuple[str, ...] = ()


def drop(address: TableAddress, *, keep_data: bool = False, timeout_s: Timeout = DEFAULT_TIMEOUT_S) -> DropReport:
    """Take a table out of the coordinator, and delete its files, or leave them as a Delta table of nobody's (`keep_data`).

    A drop that was interrupted is finished. Raises TableNotFound, NotATable, WrongCoordinator, TableDropped when somebody else
    drops it at this moment, Unavailable while another client deletes the files, LeaseHeld while somebody holds a lease on it.
    """
    if type(keep_data) is not bool:
        raise InvalidRequest(f"keep_data is {keep_data!r}; give True or False", keep_data=keep_data)
    context = address.context()
    remove_closed_tree(context)
    tombstone = read_tombstone(context)
    if tombstone is None or not tombstone.deleting:
        if not _closed_for_drop(context):
            detach(Access.coordinated(address), operation="DETACH" if keep_data else _OPERATION, timeout_s=timeout_s)
        head = require_head(context)
        if not head.detached:  # somebody else did the rest meanwhile, and this is another table
            raise context.dropped()
        bury_tree(context, head, deleting=not keep_data, forgotten=not keep_data)
        tombstone = read_tombstone(context)
    if keep_data:
        return DropReport(address.location, Snapshot.load(context.objects).version)
    if tombstone is None or not tombstone.deleting:
        raise context.dropped()
    with deletion(context, tombstone) as held:
        deleted, size_bytes, kept = _delete_data(context, held)
        held.done()
    return DropReport(address.location, tombstone.last, deleted, size_bytes, kept)


def _closed_for_drop(context: TableContext) -> bool:
    """Whether a drop got as far as its last commit: that one is the latest version of the log, and nobody has attached the table since."""
    if not check_tree(context):
        return False
    head = require_head(context)
    if not head.detached or latest_version(context.objects) != head.version:
        return False
    actions = decode_commit(context.objects.get(commit_path(head.version)), name=commit_path(head.version))
    return any(isinstance(each, CommitInfo) and each.operation == _OPERATION for each in actions)


def _delete_data(context: TableContext, held: Deletion) -> tuple[int, int, tuple[str, ...]]:
    """Delete what is the table's, its log last; how many objects went, their bytes, and what stayed.

    When this client's session expires here, another one may finish the drop. The data files of a new table at the location have other
    names. Its log files have the same names, so it is looked before each log file goes whether this client may still delete.
    """
    store = context.objects
    shown, created_ms = Shown(store.location), float("inf")
    # A drop that was interrupted has deleted a part of the log: then the data files went before it.
    with suppress(TableNotFound, NotATable, Corrupt):
        snapshot = Snapshot.load(store)
        shown.add_files(snapshot)
        shown.add_tombstones(snapshot, 0)
        created_ms = snapshot.metadata.created_time or 0
    listed = list(store.list_from("", recursive=True))
    inner = tuple(inner_tables(listed))
    ours = [each for each in listed if not each.key.startswith(inner) and belongs_to(each, shown, created_ms)]
    held.require()
    _delete(store, [each for each in ours if not each.key.startswith(LOG_FOLDER)])
    if isinstance(store, KeepsUnfinished):
        unfinished = list(store.unfinished())
        held.require()
        for begun in unfinished:
            if not begun.key.startswith(inner) and belongs_to(ObjectInfo(begun.key, 0, begun.begun_ms), shown, created_ms):
                store.abandon(begun)
    _delete(store, [each for each in ours if each.key.startswith(LOG_FOLDER)], first=held.require)
    gone = {each.key for each in ours}
    return len(ours), sum(each.size for each in ours), tuple(each.key for each in listed if each.key not in gone)


def _delete(store: ObjectStore, objects: Sequence[ObjectInfo], first: Callable[[], None] = lambda: None) -> None:
    """Delete objects; before each of them `first` is done, which may raise."""

    def delete(key: str) -> None:
        first()
        store.delete(key)

    with ThreadPoolExecutor(_DELETIONS_MAX, thread_name_prefix="sluice-drop") as pool:
        for done in [pool.submit(delete, each.key) for each in objects]:
            done.result()


def forget(
    location: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> int:
    """Remove the coordinator's nodes of a table whose log is gone (its folder was moved or deleted); its last version.

    What was ratified and not published is lost. Clients that have the table open get TableDropped. Raises InvalidRequest while
    the log is there, TableNotFound where the coordinator knows no table.
    """
    address = TableAddress.of(location, coordinator, storage_options, "forget")
    with bounding(timeout_s, SystemClock()):
        return _forgotten(address, address.context())


def _forgotten(address: TableAddress, context: TableContext) -> int:
    remove_closed_tree(context)
    if not check_tree(context):
        raise TableNotFound(f"the coordinator knows no table at {address.location}: there is nothing to forget", location=address.location)
    head = require_head(context)
    version = latest_version(context.objects)
    if version is not None and not head.detached:
        raise InvalidRequest(
            f"there is a table at {address.location}, at version {version}: drop it (sluice drop), or give it back (sluice detach)",
            location=address.location,
            version=version,
        )
    if head.version < 0:
        remove_new_tree(context)
    else:
        bury_tree(context, head, deleting=False, forgotten=version is None)
    return head.version
