"""Finds an earlier commit of an application's transaction, in the versions since a change was begun."""

from __future__ import annotations

from ..commit.outcomes import Commit
from ..nodes.records import Head
from ..rules.winner import Winner
from .change import Change
from .change_footprint import applications_of
from .table_client import TableClient

__all__ = ["commit_by_application", "written_since"]


def written_since(table: TableClient, change: Change, head: Head, ack: str) -> Commit | None:
    """The commit that wrote the change's application transaction, with all of its numbers, since the change was begun; None if none did."""
    apps = applications_of(change.actions)
    if not apps or change.expected_version is not None:
        return None
    for version in range(head.version, change.began, -1):
        winner = table.log.winner(version)
        # check: repetition-has-every-number (<= -> &)
        if apps.items() <= winner.app_versions.items():
            return commit_by_application(table, winner, winner.ordinal_of_app(next(iter(apps))), ack)
    return None


def commit_by_application(table: TableClient, winner: Winner, ordinal: int, ack: str) -> Commit:
    """The earlier commit of a version; with `ack` = "published", waits until it is published."""
    timestamp = int(table.log.info(winner.version).get("inCommitTimestamp", 0))
    state = table.context.read_published()
    published = state is not None and winner.version <= state[0].version
    transaction_id = str(winner.entry(ordinal).get("id", ""))
    commit = Commit(winner.version, ordinal, timestamp, transaction_id, published=published, repeated=True)
    return commit if ack == "ratified" else table.committer.see_published(commit)
