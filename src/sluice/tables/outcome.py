"""`sluice.outcome`: what became of a transaction, wherever its tables are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from ..coordinator.commit.committer import Committer
from ..coordinator.commit.outcomes import Commit, Outcome
from ..coordinator.nodes.layout import TABLES
from ..coordinator.service.clock import SystemClock, Timeout, bounding
from ..coordinator.service.connect import connect
from ..storage.errors import InvalidRequest, UnknownScheme
from .client.address import TableAddress

__all__ = ["outcome"]

_TIMEOUT_S: Final = 120.0
_RECORDS_ONLY: Final = 2**62
"""A version after which no log has any: what is looked for is found in the coordinator or not at all."""


def outcome(
    transaction_id: str,
    coordinator: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: Timeout = _TIMEOUT_S,
) -> Outcome:
    """What became of a transaction over one table or several, whoever ran it: any process may ask. An undecided one is decided now.

    All tables of the coordinator are looked through: first what it keeps itself, which is quick, then the tables' logs from their
    ends. `Outcome.commits` has the commit of each table. "unknown": no trace of it; it is in no table.
    """
    if not isinstance(transaction_id, str) or not transaction_id:
        raise InvalidRequest(f"transaction_id={transaction_id!r}: give the id of a transaction, as `Transaction.id` tells it")
    with bounding(timeout_s, SystemClock()) as limit:
        committers = [Committer(address.context()) for address in _tables(coordinator, storage_options)]
        found = Outcome("unknown")
        for after in (_RECORDS_ONLY, -1):
            found = _look(committers, transaction_id, limit, after, found)
            if found.error is not None or found.commits:
                break
    return found


def _tables(coordinator: str | None, storage_options: Mapping[str, str] | None) -> Iterator[TableAddress]:
    for name in sorted(connect(coordinator).children(TABLES) or ()):
        try:
            yield TableAddress.of(unquote(name), coordinator, storage_options)
        except (UnknownScheme, InvalidRequest):
            continue  # a node that is no table's


def _look(committers: list[Committer], transaction_id: str, timeout_s: Timeout, after: int, known: Outcome) -> Outcome:
    """What the tables tell of it; what is `known` where they tell nothing more than that one of them was only read."""
    for committer in committers:
        with bounding(timeout_s, committer.context.clock) as deadline:
            found = committer.outcome(transaction_id, deadline, after=after)
        if found.error is not None:
            return found
        if found.commit is not None and found.commit.ordinal >= 0:
            return _with_others(committer, found.commit, committers, timeout_s)
        known = known if found.commit is None else found
    return known


def _with_others(committer: Committer, commit: Commit, committers: list[Committer], timeout_s: Timeout) -> Outcome:
    """The outcome with the commits that were made together with this one."""
    here = committer.context.tree.location
    entry = next((t for t in committer.log.winner(commit.version).transactions if t.get("id") == commit.transaction_id), {})
    commits = {here: commit}
    for other in committers:
        location = other.context.tree.location
        version = entry.get("joint", {}).get(location)
        if version is None or location == here:
            continue
        with bounding(timeout_s, other.context.clock) as deadline:
            theirs = other.outcome(commit.transaction_id, deadline, after=int(version) - 1).commit
        if theirs is not None:
            commits[location] = theirs
    return replace(Outcome.committed(commit), commits=commits)
