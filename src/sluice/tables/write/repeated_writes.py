"""Whether an application's transaction was committed before: in one table, and in several at once.

In several it is in all of them or in none, for one request ratified it. What is seen of them may differ all the same: when another
process commits it between two looks, so that it is looked for again where it was not yet; and for good, when all data of the
coordinator were lost after it was published in some tables and before it was in others. The log of the former tells then which
versions of the latter belong to it, and what is half done is never told to be done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...coordinator.commit.outcomes import Commit
from ...coordinator.errors import HalfCommitted
from ...coordinator.rules.winner import Winner
from ...storage.errors import LogGap
from ...storage.log.segment import list_versions
from ...storage.log.snapshot import Snapshot
from ..client.access import Access
from .write_once import as_it_was_given

__all__ = ["done_before", "done_in_all", "done_since"]

_CLEANED_UP = Commit(-1, -1, 0, "", repeated=True)


def done_before(access: Access, application: tuple[str, int], ack: str, *, since: int | None = None) -> Commit | None:
    """The commit that wrote an application's transaction; version -1 when the log that tells was cleaned up.

    That is what wrote its number, or was there with a higher one at version `since`, when the transaction was begun (None: now). With
    `ack` = "published" it is seen published, as if it had been made now.
    """
    return _done(access, application, ack, access.latest(), since)


def done_since(access: Access, apps: Mapping[str, int], ack: str, *, after: int, upto: int) -> Commit | None:
    """The commit of versions (after, upto] that wrote one of these application transactions, with just this number, or None."""
    if not apps:
        return None
    log = access.ours.log
    for version in range(upto, after, -1):
        winner = log.winner(version)
        for app, number in apps.items():
            if winner.app_versions.get(app) == number:
                return _commit(access, winner, winner.ordinal_of_app(app), ack)
    return None


def done_in_all(accesses: Mapping[str, Access], application: tuple[str, int], ack: str, since: Mapping[str, int]) -> dict[str, Commit]:
    """The commits that wrote an application's transaction in several tables, by location; none when no table has it.

    A table lacks where that transaction did not write it; what a repetition would write now may be more. `since` are the versions on
    which it was begun. Raises HalfCommitted.
    """
    done = {at: done_before(access, application, ack, since=since[at]) for at, access in accesses.items()}
    found = {at: commit for at, commit in done.items() if commit is not None}
    for at in list(found):
        if len(found) == len(accesses):
            break
        for winner in _writers(accesses[at], application, found[at].version):
            _look_again(accesses, application, ack, found, at, winner)
    return found


def _look_again(
    accesses: Mapping[str, Access], application: tuple[str, int], ack: str, found: dict[str, Commit], at: str, winner: Winner
) -> None:
    """Look, up to date, where a version says that it was written too, and it was not found. Raises HalfCommitted."""
    entry = _entry(winner, winner.ordinal_of_app(application[0]))
    joint, transaction_id = entry.get("joint"), str(entry.get("id", ""))
    named = dict(joint) if isinstance(joint, Mapping) else {}
    missing: dict[str, int] = {}
    for other in sorted(named.keys() & (accesses.keys() - found.keys())):
        commit = _up_to_date(accesses[other], application, ack, int(named[other]), transaction_id)
        if commit is None:
            missing[other] = int(named[other])
        else:
            found[other] = commit
    if missing:
        told = as_it_was_given(application)
        raise HalfCommitted(
            f"transaction {transaction_id} was committed under {told} as version {winner.version} of {at}, and together with it in "
            f"{', '.join(_place(accesses[other], version) for other, version in missing.items())}, which lacks it now: that was lost with "
            f"the coordinator's data before it was published. Write what is missing there alone, by that Table's own methods under the "
            f"same {told}; or undo version {winner.version} of {at}, and repeat all of it under another one",
            transaction_id=transaction_id,
            location=at,
            version=winner.version,
            missing=missing,
        )


def _place(access: Access, version: int) -> str:
    """Where a part is missing, for a person; nobody can tell any more what a version was that was cleaned up."""
    cleaned_up = version < min(list_versions(access.store).commits, default=-1)
    doubt = ", which was cleaned up since: look for its rows first" if cleaned_up else ""
    return f"{access.address.location} (there as version {version}{doubt})"


def _up_to_date(access: Access, application: tuple[str, int], ack: str, version: int, transaction_id: str) -> Commit | None:
    """The same as `done_before`, not older than what anybody was told; and where only the number is gone, which other engines forget."""
    head = access.fresh_head()
    done = _done(access, application, ack, access.at(head.version))
    winner = None if done is not None or version > head.version else _version(access, version)
    ordinal = None if winner is None else winner.ordinal_of(transaction_id)
    return done if winner is None or ordinal is None else _commit(access, winner, ordinal, ack)


def _done(access: Access, application: tuple[str, int], ack: str, snapshot: Snapshot, since: int | None = None) -> Commit | None:
    app, number = application
    known = snapshot.app_transactions.get(app)
    if known is None or known.version < number:
        return None
    began = snapshot.version if since is None else since
    later = False
    for winner in _writers(access, application, snapshot.version):
        if winner.version <= began or winner.app_versions[app] == number:
            return _commit(access, winner, winner.ordinal_of_app(app), ack)
        later = True  # the application went on since, past this number: that refuses what was begun before
    return None if later else _CLEANED_UP


def _writers(access: Access, application: tuple[str, int], upto: int) -> Iterator[Winner]:
    """The versions that wrote an application's transaction, or one with a higher number; the newest first, as far as the log goes back."""
    app, number = application
    for version in range(upto, -1, -1):
        winner = _version(access, version)
        if winner is None:
            return
        wrote = winner.app_versions.get(app, number - 1)
        if wrote >= number:
            yield winner
        if wrote == number:
            return


def _version(access: Access, version: int) -> Winner | None:
    """What a version did; None when it was cleaned up."""
    try:
        return access.ours.log.winner(version)
    except LogGap:
        if version >= min(list_versions(access.store).commits, default=-1):
            raise
        return None


def _entry(winner: Winner, ordinal: int) -> Mapping[str, object]:
    """What a version says of one of its transactions."""
    return next((t for t in winner.transactions if t.get("ordinal") == ordinal), {})


def _commit(access: Access, winner: Winner, ordinal: int, ack: str) -> Commit:
    """A commit that was made before; with `ack` = "published" it is seen published."""
    timestamp = int(access.ours.log.info(winner.version).get("inCommitTimestamp", 0))
    state = access.ours.context.read_published()
    published = state is not None and winner.version <= state[0].version
    transaction_id = str(_entry(winner, ordinal).get("id", ""))
    commit = Commit(winner.version, ordinal, timestamp, transaction_id, published=published, repeated=True)
    return commit if ack == "ratified" else access.ours.see_published(commit)
