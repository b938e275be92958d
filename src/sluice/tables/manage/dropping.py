"""Removes tables: dropping a table, and forgetting the nodes of a table whose folder is gone.

A drop has steps, which any client can repeat that finds the previous one done:

1. a last commit (`DROP TABLE`) closes the table to all other commits, after everything that was filed before it;
2. the nodes are closed in one multi and removed; a tombstone stays that says whether data are still to be deleted;
3. the data files are deleted, then the log. Files that nothing attributes to the table stay.

Clients that have the table open get `TableDropped` from step 2 on. The location may have another table at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from ...coordinator import api
from ...coordinator.api import Timeout
from ...coordinator.errors import table_dropped
from ...storage.actions import CommitInfo, decode_commit
from ...storage.arguments import checked
from ...storage.constants import LOG_FOLDER
from ...storage.dataclass import dataclass
from ...storage.errors import Corrupt, InvalidRequest, NotATable, TableNotFound
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import KeepsFolders, KeepsUnfinished, ObjectInfo, ObjectStore
from ..client.address import TableAddress
from ..client.open_table import OpenTable, open_coordinated
from ..maintain.garbage import Shown, belongs_to, inner_tables
from .creation import detach

_OPERATION: Final = "DROP TABLE"
_DELETIONS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class DropReport:
    """The result of a drop: the table's last version, the number and bytes of deleted objects, and the keys of remaining files.

    `kept` are files that nothing attributes to the table, hidden ones and tables inside the folder; () if the data were kept.
    """

    location: str
    version: int
    deleted: int = 0
    size_bytes: int = 0
    kept: tuple[str, ...] = ()


def drop(address: TableAddress, *, keep_data: bool = False, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S) -> DropReport:
    """Remove a table from the coordinator, and delete its files or, with `keep_data`, leave them as a plain Delta table.

    Finishes an interrupted drop. Raises TableNotFound, NotATable, WrongCoordinator, TableDropped if another client drops it at this
    moment, TreeReplaced if it made another one, Unavailable while another client deletes the files, LeaseHeld beside a lease.
    """
    if type(keep_data) is not bool:
        raise InvalidRequest(f"keep_data is {keep_data!r}; give True or False", keep_data=keep_data)
    table = OpenTable.of(address)
    api.remove_closed_tree(table.context)
    tombstone = api.read_tombstone(table.context)
    if tombstone is None or not tombstone.deleting:
        if not _closed_for_drop(table):
            detach(open_coordinated(address), operation="DETACH" if keep_data else _OPERATION, for_good=True, timeout_s=timeout_s)
        head = table.head()
        if not head.detached:  # another client did the rest meanwhile, and this is a new table
            raise table_dropped(table.location)
        api.bury_tree(table.context, head, deleting=not keep_data, forgotten=not keep_data)
        tombstone = api.read_tombstone(table.context)
    if keep_data:
        return DropReport(address.location, Snapshot.load(table.store).version)
    if tombstone is None or not tombstone.deleting:
        raise table_dropped(table.location)
    with api.deletion(table.context, tombstone) as held:
        deleted, size_bytes, kept = _delete_data(table.store, held)
        held.done()
    return DropReport(address.location, tombstone.last, deleted, size_bytes, kept)


def _closed_for_drop(table: api.CoordinatedTable) -> bool:
    """Whether a drop's last commit is the log's latest version, and nobody has attached the table since."""
    if not api.check_tree(table.context):
        return False
    head = table.head()
    if not head.detached:
        return False
    table.publish(up_to_date=True)  # its client may have died right after the decision
    if latest_version(table.store) != head.version:
        return False
    actions = decode_commit(table.store.get(commit_path(head.version)), name=commit_path(head.version))
    return any(isinstance(each, CommitInfo) and each.operation == _OPERATION for each in actions)


def _delete_data(store: ObjectStore, held: api.Deletion) -> tuple[int, int, tuple[str, ...]]:
    """Delete what is the table's, its log last; returns the number of deleted objects, their bytes, and the rest.

    If this client's session expires, another one may finish the drop. A new table at the location has log files of the same names, so the
    right to delete is checked before each of them.
    """
    shown, created_ms = Shown(store.location), float("inf")
    # An interrupted drop that deleted part of the log had deleted the data files before.
    with suppress(TableNotFound, NotATable, Corrupt):
        snapshot = Snapshot.load(store)
        shown.add_files(snapshot, 0)
        created_ms = snapshot.metadata.created_time or 0
    listed = list(store.list_from("", recursive=True))
    inner = inner_tables(listed)
    ours = [each for each in listed if not each.key.startswith(inner) and belongs_to(each, shown, created_ms)]
    # check: who-may-delete-is-looked-at-again
    held.require()
    _delete(store, [each for each in ours if not each.key.startswith(LOG_FOLDER)])
    if isinstance(store, KeepsUnfinished):
        unfinished = list(store.unfinished())
        held.require()
        for begun in unfinished:
            if not begun.key.startswith(inner) and belongs_to(ObjectInfo(begun.key, 0, begun.begun_ms), shown, created_ms):
                store.abandon(begun)
    # check: who-may-delete-is-looked-at-again (without , first=held.require)
    _delete(store, [each for each in ours if each.key.startswith(LOG_FOLDER)], first=held.require)
    if isinstance(store, KeepsFolders):  # the next table's log is in a folder of its own, where a prepared deletion removes nothing
        held.require()
        store.remove_empty(LOG_FOLDER)
    gone = {each.key for each in ours}
    return len(ours), sum(each.size for each in ours), tuple(each.key for each in listed if each.key not in gone)


def _delete(store: ObjectStore, objects: Sequence[ObjectInfo], first: Callable[[], None] = lambda: None) -> None:
    """Delete objects; `first` runs before each one, and may raise. All are tried; the first failure is raised then.

    A process may be stopped between that look and its deletion for any time, so the deletion is prepared before.
    """

    def delete(key: str) -> None:
        with store.prepared_deletion(key) as delete_now:
            first()
            delete_now()

    with ThreadPoolExecutor(_DELETIONS_MAX, thread_name_prefix="sluice-drop") as pool:
        for done in [pool.submit(delete, each.key) for each in objects]:
            done.result()


@checked
def forget(
    location: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    lose_unpublished: bool = False,
    timeout_s: Timeout = api.DEFAULT_TIMEOUT_S,
) -> int:
    """Remove the coordinator's nodes of a table whose log is gone (its folder was moved or deleted); returns its last version.

    Versions that were ratified and not published are in these nodes only: then it refuses with InvalidRequest. Put the folder back and open
    the table, which publishes them, or lose them on purpose with `lose_unpublished`. Clients that have the table open get TableDropped.
    Raises InvalidRequest while the log exists, TableNotFound if the coordinator knows no table.
    """
    address = TableAddress.of(location, coordinator, storage_options, "forget")
    with api.bounding(timeout_s):
        table = OpenTable.of(address)
        api.remove_closed_tree(table.context)
        if not api.check_tree(table.context):
            raise TableNotFound(
                f"the coordinator knows no table at {address.location}: there is nothing to forget", location=address.location
            )
        head = table.head()
        version = latest_version(table.store)
        if version is not None and not head.detached:
            raise InvalidRequest(
                f"there is a table at {address.location}, at version {version}: drop it (sluice drop), or detach it (sluice detach)",
                location=address.location,
                version=version,
            )
        published = head.version if lose_unpublished else table.published_version()
        if published < head.version:
            first = published + 1
            lost = f"version {first} is" if first == head.version else f"versions {first} to {head.version} are"
            raise InvalidRequest(
                f"{lost} ratified and not published, so only the coordinator has what {address.location} got there: put the folder back "
                "and open the table, which publishes it; or lose it on purpose with sluice forget --lose-unpublished "
                "(lose_unpublished=True in Python)",
                location=address.location,
                published=published,
                version=head.version,
            )
        if head.version < 0:
            api.remove_new_tree(table.context)
        else:
            api.bury_tree(table.context, head, deleting=False, forgotten=version is None)
        return head.version
