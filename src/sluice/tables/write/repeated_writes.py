"""Whether an application's transaction was committed before: in one table, and in several at once.

In several tables it is in all of them or in none, since one request ratified it. A look may still show a difference: another process may
commit it between two looks, so the tables without it are looked at again; or the coordinator lost all data after it was published in some
tables only. Then their log names the versions of the others, and a half-done transaction is never reported as done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...coordinator.api import Commit, commit_by_application
from ...coordinator.errors import HalfCommitted
from ...coordinator.rules.winner import Winner
from ...storage.errors import LogGap
from ...storage.log.segment import list_versions
from ...storage.log.snapshot import Snapshot
from ..client.open_table import OpenTable
from .terms import KEY_PREFIX, require_same_rows

_CLEANED_UP = Commit(-1, -1, 0, "", repeated=True)


def done_before(
    table: OpenTable, application: tuple[str, int], ack: str, *, since: int | None = None, shown: Snapshot | None = None
) -> Commit | None:
    """The commit that wrote an application's transaction, as `shown` (None: by the latest version); version -1 if its log was cleaned up.

    That is the commit that wrote its number, or a higher one that existed at version `since`, when the transaction was begun (None: now).
    With `ack` = "published", waits until it is published, as if it had been made now.
    """
    snapshot = table.latest() if shown is None else shown
    app, number = application
    require_same_rows(snapshot.app_transactions, application, table.location)
    recorded = snapshot.app_transactions.get(app)
    if recorded is None or recorded.version < number:
        return None
    began = snapshot.version if since is None else since
    later = False
    for winner in _writers(table, application, snapshot.version):
        if winner.version <= began or winner.app_versions[app] == number:
            return commit_by_application(table, winner, winner.ordinal_of_app(app), ack)
        later = True  # the application has gone on past this number, which refuses what was begun before
    return None if later else _CLEANED_UP


def done_in_all(accesses: Mapping[str, OpenTable], application: tuple[str, int], ack: str, since: Mapping[str, int]) -> dict[str, Commit]:
    """The commits that wrote an application's transaction in several tables, by location; empty if no table has it.

    Omits tables that the transaction did not write. `since` are the versions on which it was begun. Raises HalfCommitted.
    """
    done = {at: done_before(table, application, ack, since=since[at]) for at, table in accesses.items()}
    found = {at: commit for at, commit in done.items() if commit is not None}
    for at in list(found):
        if len(found) == len(accesses):
            break
        for winner in _writers(accesses[at], application, found[at].version):
            _look_again(accesses, application, ack, found, at, winner)
    return found


def _look_again(
    accesses: Mapping[str, OpenTable], application: tuple[str, int], ack: str, found: dict[str, Commit], at: str, winner: Winner
) -> None:
    """Look again, up to date, in tables that a version names as written but that did not show it. Raises HalfCommitted."""
    entry = winner.entry(winner.ordinal_of_app(application[0]))
    joint, transaction_id = entry.get("joint"), str(entry.get("id", ""))
    named = dict(joint) if isinstance(joint, Mapping) else {}
    missing: dict[str, int] = {}
    for other in sorted(named.keys() & (accesses.keys() - found.keys())):
        table, version = accesses[other], int(named[other])
        head = table.fresh_head()
        commit = done_before(table, application, ack, shown=table.at(head.version))
        if commit is None and version <= head.version:  # other engines may have forgotten its number
            written = _version(table, version)
            ordinal = None if written is None else written.ordinal_of(transaction_id)
            if written is not None and ordinal is not None:
                commit = commit_by_application(table, written, ordinal, ack)
        if commit is None:
            missing[other] = version
        else:
            found[other] = commit
    # check: half-is-not-told-to-be-done
    if missing:
        app = application[0]
        argument = f"key={app.removeprefix(KEY_PREFIX)!r}" if app.startswith(KEY_PREFIX) else f"transaction={application!r}"
        parts: list[str] = []
        for other, version in missing.items():
            cleaned_up = version < min(list_versions(accesses[other].store).commits, default=-1)  # it is unknown what it was
            doubt = ", which was cleaned up since: look for its rows first" if cleaned_up else ""
            parts.append(f"{accesses[other].location} (there as version {version}{doubt})")
        raise HalfCommitted(
            f"transaction {transaction_id} was committed under {argument} as version {winner.version} of {at}, and together with it in "
            f"{', '.join(parts)}, which lacks it now: that part was lost "
            f"with the coordinator's data before it was published. Write only the missing part, by that Table's own methods under the "
            f"same {argument}; or undo version {winner.version} of {at}, and repeat all of it under another one",
            transaction_id=transaction_id,
            location=at,
            version=winner.version,
            missing=missing,
        )


def _writers(table: OpenTable, application: tuple[str, int], upto: int) -> Iterator[Winner]:
    """The versions that wrote an application's transaction, or a higher number; newest first, as far back as the log goes."""
    app, number = application
    for version in range(upto, -1, -1):
        winner = _version(table, version)
        if winner is None:
            return
        wrote = winner.app_versions.get(app, number - 1)
        if wrote >= number:
            yield winner
        if wrote == number:
            return


def _version(table: OpenTable, version: int) -> Winner | None:
    """A version as a winner; None if it was cleaned up."""
    try:
        return table.log.winner(version)
    except LogGap:
        if version >= min(list_versions(table.store).commits, default=-1):
            raise
        return None
