"""`sluice.outcome`: the outcome of a transaction, in whichever tables it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..coordinator.api import Commit, CoordinatedTable, Outcome, Timeout, bounding, connect, known_locations, outcome_of
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest, UnknownScheme
from .client.address import TableAddress
from .client.open_table import OpenTable

_TIMEOUT_S: Final = 120.0
_RECORDS_ONLY: Final = 2**62
"""Beyond the end of every log, so that only the coordinator's records are searched."""


@checked
def outcome(
    transaction_id: str,
    coordinator: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: Timeout = _TIMEOUT_S,
) -> Outcome:
    """The outcome of any client's transaction over one table or several; any process may ask. Decides an undecided one.

    The search goes through all tables of the coordinator: first the coordinator's records, which is quick, then the tables' logs from
    their ends. `Outcome.commits` has the commit of each table. "unknown" means that there is no trace: no table has the transaction.
    """
    with bounding(timeout_s) as limit:
        tables = [OpenTable.of(address) for address in _tables(coordinator, storage_options)]
        result = Outcome("unknown")
        for after in (_RECORDS_ONLY, -1):
            result = _look(tables, transaction_id, limit, after, result)
            if result.error is not None or result.commits:
                break
    return result


def _tables(coordinator: str | None, storage_options: Mapping[str, str] | None) -> Iterator[TableAddress]:
    for location in known_locations(connect(coordinator)):
        try:
            yield TableAddress.of(location, coordinator, storage_options)
        except (UnknownScheme, InvalidRequest):
            continue  # not a table's node


def _look(tables: Sequence[CoordinatedTable], transaction_id: str, timeout_s: Timeout, after: int, read_only: Outcome) -> Outcome:
    """The outcome in the tables; `read_only` if they only show that one of them was read."""
    for table in tables:
        result = outcome_of(table, transaction_id, timeout_s, after=after)
        if result.error is not None:
            return result
        if result.commit is not None and result.commit.ordinal >= 0:
            return _with_others(table, result.commit, tables, timeout_s)
        read_only = read_only if result.commit is None else result
    return read_only


def _with_others(here: CoordinatedTable, commit: Commit, tables: Sequence[CoordinatedTable], timeout_s: Timeout) -> Outcome:
    """The outcome, with the commits that were made together with this one."""
    entry = next((t for t in here.log.winner(commit.version).transactions if t.get("id") == commit.transaction_id), {})
    commits = {here.location: commit}
    for other in tables:
        version = entry.get("joint", {}).get(other.location)
        if version is None or other.location == here.location:
            continue
        theirs = outcome_of(other, commit.transaction_id, timeout_s, after=int(version) - 1).commit
        if theirs is not None:
            commits[other.location] = theirs
    return replace(Outcome.committed(commit), commits=commits)
