"""Distinguishes a coordinator with old data from an engine that bypasses the coordinator, since the remedies are opposite."""

from __future__ import annotations

from ...storage.errors import ForeignCommit
from ...storage.log.timetravel import leading_commit_info
from ...storage.stores.objects import ObjectStore

__all__ = ["refuse_old_data"]


def refuse_old_data(store: ObjectStore, version: int) -> None:
    """Raise ForeignCommit if the log's version, unknown to the coordinator, was committed through sluice.

    A version put late by a client of a former table at this location does not count: it is older than the version before it.
    """
    before, info = (leading_commit_info(store, each) if each >= 0 else None for each in (version - 1, version))
    if before is None or info is None or "sluice" not in info.fields:
        return
    if (info.in_commit_timestamp or 0) <= (before.in_commit_timestamp or 0):
        return
    raise ForeignCommit(
        f"the coordinator's data of {store.location} are older than its log: they end before version {version}, which is there and was "
        "committed through sluice. Leave the log as it is, and stop the writers. Either the address names a server that was taken out of "
        "its ensemble with its old data: take it out of the address, and end it. Or the data were restored from an old copy: remove them, "
        "and rebuild them from the log (sluice recover)",
        version=version,
        location=store.location,
    )
