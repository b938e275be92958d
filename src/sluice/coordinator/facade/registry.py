"""Registration of tables at the coordinator: making, closing, removing and reopening their nodes."""

from __future__ import annotations

from dataclasses import replace

from ...storage.actions import Metadata
from ...storage.actions.features import is_managed
from ...storage.errors import InvalidRequest, Unavailable
from ...storage.log.paths import commit_path
from ...storage.log.segment import list_versions
from ...storage.log.snapshot import Snapshot
from ..limits import LONGEST_PUT_S, LONGEST_SESSION_S
from ..nodes import creation, removal
from ..nodes.context import TableContext
from ..nodes.coordinator_id import require_own, stamp
from ..nodes.creation import check_tree, reopen_tree
from ..nodes.records import Head
from ..nodes.removal import Deletion, Tombstone, require_no_deleter
from ..publication.log_checks import refuse_old_data
from .table import CoordinatedTable, of_table

__all__ = [
    "Deletion",
    "bury_tree",
    "deletion",
    "make_tree",
    "named_after_coordinator",
    "only_begun",
    "read_tombstone",
    "refuse_old_data",
    "register_beside_log",
    "remove_closed_tree",
    "remove_new_tree",
    "require_own_coordinator",
    "require_settled",
]

bury_tree = of_table(removal.bury_tree)
deletion = of_table(removal.deletion)
make_tree = of_table(creation.make_tree)
only_begun = of_table(creation.only_begun)
read_tombstone = of_table(removal.read_tombstone)
remove_closed_tree = of_table(removal.remove_closed_tree)
remove_new_tree = of_table(creation.remove_new_tree)


# -- which coordinator, and what it knows ---------------------------------------------------------------------------------


def require_own_coordinator(table: CoordinatedTable, snapshot: Snapshot) -> None:
    """Raise WrongCoordinator if the table names another coordinator."""
    configuration = snapshot.configuration if is_managed(snapshot.protocol) else {}
    table.context.in_session(lambda session: require_own(session, table.coordinator, configuration, table.location))


def named_after_coordinator(table: CoordinatedTable, metadata: Metadata) -> Metadata:
    """The metadata with the properties that name the table's coordinator."""
    configuration = table.context.in_session(lambda session: stamp(session, table.coordinator, metadata.configuration))
    return replace(metadata, configuration=configuration)


# -- coming --------------------------------------------------------------------------------------------------------------


def register_beside_log(table: CoordinatedTable, start: Head) -> None:
    """Make the nodes of a table that has a log, or continue those of a detached one from `start`.

    First removes the nodes of a client that saw no log and began to create a table here.
    """
    remove_new_tree(table)
    make_tree(table, start)
    reopen_tree(table.context, start)


def require_settled(table: CoordinatedTable) -> None:
    """Finish the removal of a former table at this location; raise if a new one has to wait.

    That is the case while data of the former table are being deleted, or one of its clients may still interfere with the new
    one.

    A paused client of the former table may still put a version that was published long ago. With a store's conditional put
    this harms no existing version. If it puts one into the empty folder, the version is removed here, by one client at a
    time: a new table may have a version of that name before a paused client removes it.
    """
    context = table.context
    remove_closed_tree(table)
    tombstone = read_tombstone(table)
    if tombstone is None:
        return
    if tombstone.deleting:
        raise InvalidRequest(
            f"the table at {table.location} is being dropped, and not all its data are deleted yet: wait, or finish it with sluice drop",
            location=table.location,
        )
    # check: the-place-rests-after-a-deleter-that-vanished
    require_no_deleter(context)
    store = table.store
    left_ms = tombstone.at_ms + round((LONGEST_SESSION_S + LONGEST_PUT_S) * 1000) - context.clock.now_ms()
    if not store.atomic_put_if_absent and left_ms > 0:
        raise Unavailable(
            f"the table at {table.location} was dropped a moment ago, and its store has no conditional put: a client of it may overwrite "
            f"files of a new one. Try again in {left_ms / 1000:.0f} s, or use another location",
            location=table.location,
            wait_s=left_ms / 1000,
        )
    if _stray(context, tombstone) is None:
        return
    # check: a-stray-version-is-removed-under-a-claim
    with deletion(table, tombstone) as held:
        stray = _stray(context, tombstone)
        if stray is not None:
            with store.prepared_deletion(stray) as delete:
                # check: a-stray-version-is-removed-under-a-claim
                held.require()
                delete()


def _stray(context: TableContext, tombstone: Tombstone) -> str | None:
    """A single version of a former table where no table is: nothing can be read from it.

    More files than that are another table, made or moved there since, or the rest of one; so are all files while the
    coordinator knows a table there.
    """
    known, listing = check_tree(context), list_versions(context.objects)
    alone = not known and len(listing.commits) == 1 and not listing.checkpoints and 0 not in listing.commits
    return commit_path(max(listing.commits)) if alone and max(listing.commits) <= tombstone.last else None
