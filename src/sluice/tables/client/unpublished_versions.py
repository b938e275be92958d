"""What the log of a table does not show yet when it is opened: ratified versions whose publisher died, or is about to publish.

Whether there is a table, and whether it is sluice's, is told by the log alone to everybody else; here what is ratified counts.
"""

from __future__ import annotations

from ...coordinator.commit.committer import Committer
from ...coordinator.nodes.context import TableContext
from ...coordinator.nodes.creation import check_tree, require_head
from ...storage.errors import LogGap, NotATable, TableNotFound
from ...storage.log.snapshot import Snapshot

__all__ = ["all_published", "first_published"]


def first_published(context: TableContext) -> Snapshot:
    """The snapshot of a table that the coordinator knows and the log did not show: its first version may be on its way."""
    state = context.read_published()
    if state is not None and state[0].version < 0:
        Committer(context).publisher.publish_pending()
    try:
        return Snapshot.load(context.objects)
    except (TableNotFound, NotATable) as missing:
        version = require_head(context).version
        raise LogGap(
            f"the coordinator keeps a table at {context.tree.location}, at version {version}, but its log is gone ({missing.message}): "
            f"restore the log from a copy, or let go of the table: sluice forget {context.tree.location}",
            location=context.tree.location,
            version=version,
        ) from missing


def all_published(context: TableContext, snapshot: Snapshot) -> Snapshot:
    """The table after everything that is ratified, which is published here where nobody has done so yet.

    Before it is said that a table is sluice's, or is not: the version that attached it, or gave it back, may be one of those.
    Raises ForeignCommit when another engine wrote in its place, and Unavailable.
    """
    if not check_tree(context):
        return snapshot
    context.up_to_date(Committer(context).publisher.publish_pending)
    return snapshot.refresh(context.objects)
