"""From what an operation wants to do to a commit: footprint, pre-validation, intent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ...coordinator.commit.decision import DETACHED
from ...coordinator.commit.failure_points import point
from ...coordinator.commit.outcomes import Commit
from ...coordinator.commit.ratified_log import store_objects
from ...coordinator.errors import ConcurrentAppendException, ConcurrentModification, CoordinatorUnavailable, LeaseHeld, TransactionExpired
from ...coordinator.leases.queueing_commits import Turn
from ...coordinator.leases.reserved_turns import turns_of_thread
from ...coordinator.limits import Limits
from ...coordinator.nodes.records import Head, digest
from ...coordinator.rules.conflicts import APPLICATION, BY_STATISTICS, Encounter, Finding, check, refusal, version_taken
from ...coordinator.rules.intent import Intent
from ...coordinator.rules.isolation import ConflictPolicy, stricter, table_isolation
from ...coordinator.rules.rebase import Attempt, meet
from ...coordinator.rules.refusal import refusal_error
from ...coordinator.rules.winner import Winner
from ...coordinator.service.clock import DEFAULT_TIMEOUT_S, Deadline, Timeout, bounding
from ...storage.actions import DomainMetadata, Metadata, Protocol, Txn, encode
from ...storage.actions.metadata_change import describe, describe_protocol
from ...storage.actions.removals import besides_removals
from ...storage.actions.row_tracking import row_id_high_water_mark
from ...storage.actions.texts import put_text, spooled
from ...storage.errors import InvalidRequest, LogGap
from ...storage.log.paths import staged_path
from ...storage.log.segment import list_versions
from ..client.access import Access
from ..client.leasing import await_turn, lease_paths
from .added_rows import holding_nothing_read
from .change import Change
from .footprints import applications_of, bounded, footprint_of
from .repeated_writes import done_since
from .scopes import scope_of_change

__all__ = [
    "attempt_of",
    "commit_change",
    "intent_of",
    "new_transaction_id",
    "prepared",
    "require_room",
    "validate",
]

_LOOKS_MAX = 8


def new_transaction_id(access: Access) -> str:
    """A GUID: the name of a transaction for ever, and part of the names of all its data files, which tell whose they are.

    Raises LogGap or TableDropped where the log of the table is gone: then nothing is written.
    """
    access.require_log()
    return access.ours.context.new_transaction_id()


def _validated(access: Access, change: Change, attempt: Attempt, head: Head) -> Attempt:
    """The attempt after every version up to the head, so that the shared decision looks at a short window.

    Raises the conflict, or Refused for a table that was detached meanwhile. A file that was added where this transaction read
    is looked into where rows count (see `looking_into`): only rows that were read are in the way.
    """
    log = access.ours.log
    if attempt.footprint.app_versions:
        _require_number(access, change, attempt)
    versions = range(_read_version(change) + 1, head.version + 1)
    for winner in _winners(access, change, versions):
        met = meet(attempt, winner, log.rows)
        if isinstance(met, Finding) and met.rule.name in BY_STATISTICS and attempt.footprint.compares_rows:
            cleared = holding_nothing_read(access, change, winner)
            met = meet(replace(attempt, cleared=attempt.cleared | cleared), winner, log.rows)
        if isinstance(met, Finding):
            raise refusal_error(DETACHED if head.detached else refusal(met), change.transaction_id)
        attempt = met
    return attempt


def _require_number(access: Access, change: Change, attempt: Attempt) -> None:
    """Raise the conflict when the application went on between the version that its number was free at and the one it is made on."""
    for winner in _winners(access, change, range(_began(change) + 1, _read_version(change) + 1)):
        found = check(Encounter(attempt.footprint, winner, attempt.level), APPLICATION)
        if found is not None:
            raise refusal_error(refusal(found), change.transaction_id)


def _began(change: Change) -> int:
    """The version from which on a change depends on its application."""
    return _read_version(change) if change.numbered_since is None else min(change.numbered_since, _read_version(change))


def _winners(access: Access, change: Change, versions: range) -> Iterator[Winner]:
    """What the versions since a change was made did. Raises TransactionExpired when the log no longer tells."""
    try:
        yield from access.ours.log.winners(versions)
    except LogGap as gap:
        if gap.details.get("version", -1) >= min(list_versions(access.store).commits, default=-1):
            raise
        raise TransactionExpired(
            f"transaction {change.transaction_id} was begun on version {_read_version(change)} of {access.address.location}, and the log "
            "of what came next has been cleaned up (delta.logRetentionDuration); begin it again",
            transaction_id=change.transaction_id,
        ) from gap


def _read_version(change: Change) -> int:
    """The version a change was made on; -1 before the first."""
    return change.snapshot.version if change.snapshot else -1


def attempt_of(access: Access, change: Change, tables: int = 1, *, only_reads: bool = False) -> Attempt:
    """The change before it met anybody; over so many `tables`, that share the room of one request."""
    context = access.ours.context
    configuration = change.snapshot.configuration if change.snapshot else {}
    return Attempt(
        transaction_id=change.transaction_id,
        operation=change.operation,
        footprint=footprint_of(change, files_max=max(1, context.limits.footprint_files_max // tables)),
        level=stricter(table_isolation(configuration), change.isolation),
        encoded=spooled(encode(action) + b"\n" for action in change.actions),
        now_ms=context.clock.now_ms(),
        only_reads=only_reads or (tables > 1 and not change.actions),
    )


def turns_for(change: Change) -> tuple[str, ...]:
    """The turns that do not stop a change: its own, and those of other transactions of the calling thread."""
    return tuple(dict.fromkeys((*change.turns, *turns_of_thread())))


def validate(access: Access, change: Change) -> None:
    """Raise the conflict by which a change can no longer be committed; nothing is written.

    What passes may still be refused: others go on committing. What its application has written since is committed already.
    """
    known = replace(change, filed_after=_read_version(change))
    head = _before_itself(access, known, access.head())
    _require_next(access, change, head)
    if change.expected_version is None:
        try:
            _validated(access, change, attempt_of(access, change), head)
        except ConcurrentModification:
            if written_since(access, change, access.head(), "ratified") is None:
                raise


def commit_change(
    access: Access,
    change: Change,
    *,
    ack: str = "published",
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    filing: Callable[[str], object] | None = None,
) -> Commit:
    """Validate, file and see committed. Raises the conflict, LeaseHeld, LeaseLost, OutcomeUnknown, CoordinatorUnavailable.

    A refusal that only a look into added files can confirm is looked into, and the change is filed again under a new
    transaction id when it was none; never for a change whose outcome is asked for by its id (`once`). `filing` is told the
    new id before that. A lease of somebody else that covers the change is waited for in the same way, outside the queue.
    """
    with bounding(timeout_s, access.ours.context.clock) as deadline, Turn() as turn:
        return _committed(access, change, ack, deadline, filing, turn)


def _committed(access: Access, change: Change, ack: str, deadline: Deadline, filing: Callable[[str], object] | None, turn: Turn) -> Commit:
    looks = 1 if change.once else _LOOKS_MAX
    while True:
        looks -= 1
        try:
            attempt, head = prepared(access, change)
        except ConcurrentModification:
            repeated = written_since(access, change, access.head(), ack)
            if repeated is None:
                raise
            return repeated
        except CoordinatorUnavailable as away:
            raise _not_filed(change, away) from away
        repeated = written_since(access, change, head, ack)
        if repeated is not None:
            return repeated
        try:
            return access.ours.commit(intent_of(access, change, attempt, head), head, deadline, ack=ack)
        except LeaseHeld as held:
            if held.filed and change.once:
                raise
            await_turn(turn, access, scope_of_change(change), held, deadline, turns_for(change))
            looks += 1
            if not held.filed:
                continue
        except ConcurrentAppendException:
            if not looks or not attempt.footprint.compares_rows or deadline.over:
                raise
        change = replace(change, transaction_id=access.ours.context.another_transaction_id(change.transaction_id))
        if filing is not None:
            filing(change.transaction_id)


def _not_filed(change: Change, away: CoordinatorUnavailable) -> CoordinatorUnavailable:
    """The error of a coordinator that was away before the change was filed; it says so where no other process may have filed it."""
    if change.filed_after is not None:
        return away
    return type(away)(away.message, **{**away.details, "transaction_id": change.transaction_id, "stage": "staged"})


def written_since(access: Access, change: Change, head: Head, ack: str) -> Commit | None:
    """The commit that wrote the change's application transaction since it was begun, or None; whatever else that is in the way of."""
    upto = head.version if change.expected_version is None else -1
    return done_since(access, applications_of(change.actions), ack, after=_began(change), upto=upto)


def prepared(access: Access, change: Change, *, tables: int = 1) -> tuple[Attempt, Head]:
    """The change as it may be filed on top of the head it was validated through. Raises the conflict.

    `tables` is over how many tables the transaction goes: they share the room of one request.
    """
    point("data-staged")
    attempt = attempt_of(access, change, tables)
    mine = attempt.footprint
    plain = mine.plain_append and not ConflictPolicy(mine.policy).by_classes
    # a plain append compares nothing but the version of the metadata, so the head it was planned on will do
    head = access.known_head() if plain and not mine.app_versions else access.head()
    head = _before_itself(access, change, head)
    _require_next(access, change, head)
    compared = not plain or mine.app_versions or head.metadata_version > _read_version(change)
    if change.expected_version is None and compared:
        attempt = _validated(access, change, attempt, head)
    return attempt, head


def _require_next(access: Access, change: Change, head: Head) -> None:
    """Raise ConcurrentModification where a change may become one version only, and another transaction is that version."""
    version = change.expected_version
    if version is None or change.table_id or any(isinstance(action, Txn) for action in change.actions):
        return  # an application's number may be what that version wrote: the decision tells
    if version <= head.version:
        raise refusal_error(version_taken(access.ours.log.winner(version)), change.transaction_id, filed=False)


def _before_itself(access: Access, change: Change, head: Head) -> Head:
    """The head; for a change that another process commits at once, as it was before that: the decision finds it, and says where.

    The snapshot that an append is made on may have that commit in it already, so it is looked for in all that came since it was
    known not to be there.
    """
    if change.filed_after is not None:
        for winner in _winners(access, change, range(change.filed_after + 1, head.version + 1)):
            if winner.ordinal_of(change.transaction_id) is not None:
                return replace(head, version=winner.version - 1)
    return head


def intent_of(access: Access, change: Change, attempt: Attempt, head: Head, *, tables: int = 1) -> Intent:
    """What is to be filed; what it needs is stored."""
    context = access.ours.context
    inline_bytes_max = min(context.limits.inline_bytes_max, context.limits.batch_bytes_max // (2 * tables))
    store_objects(context, attempt.objects)
    actions = attempt.lines()
    require_room(len(actions), context.limits)
    inline, staged = "", ""
    if isinstance(actions, bytes) and len(actions) <= inline_bytes_max:
        inline = actions.decode()
    else:
        staged = staged_path(change.transaction_id)
        put_text(context.objects, staged, actions)
        point("actions-staged")
    return Intent(
        transaction_id=change.transaction_id,
        operation=change.operation,
        read_version=_read_version(change),
        validated_through=_read_version(change) if change.expected_version is not None else head.version,
        claimed_ms=attempt.now_ms if change.claimed_ms is None else change.claimed_ms,
        isolation=attempt.level.value,
        footprint=bounded(attempt.footprint, files_max=context.limits.footprint_files_max),
        actions=inline,
        staged=staged,
        actions_digest=digest(actions),
        parameters=change.parameters,
        metrics=change.metrics,
        client=context.client,
        expected_version=change.expected_version,
        table_id=change.table_id,
        detach=change.detach,
        filed_again=change.filed_after is not None,
        rebased=attempt.rebased,
        row_ids=_row_ids(change),
        leases=tuple(dict.fromkeys((*change.leases, *lease_paths(access)))),
        turns=turns_for(change),
        **_described(change),
    )


def require_room(size: int, limits: Limits) -> None:
    """Raise InvalidRequest when the actions of a transaction would be larger than everybody else reads."""
    if size > limits.staged_bytes_max:
        raise InvalidRequest(
            f"the actions of this transaction have {size:,} bytes, and Limits.staged_bytes_max is {limits.staged_bytes_max:,}: change "
            "fewer files at once, such as one partition after the other (where=...); nothing was committed",
            bytes=size,
            limit="staged_bytes_max",
        )


def _row_ids(change: Change) -> int | None:
    """The highest row id given so far, where the change creates or attaches a table that tracks rows."""
    if change.expected_version is None or not change.table_id:
        return None
    protocol, metadata = (change.snapshot.protocol, change.snapshot.metadata) if change.snapshot else (None, None)
    domains = dict(change.snapshot.domains) if change.snapshot else {}
    for action in besides_removals(change.actions):
        match action:
            case Protocol():
                protocol = action
            case Metadata():
                metadata = action
            case DomainMetadata():
                domains[action.domain] = action
            case _:
                continue
    return None if protocol is None or metadata is None else row_id_high_water_mark(domains, metadata, protocol)


def _described(change: Change) -> dict[str, Any]:
    """What a change of metadata or protocol changes, for those who come after it."""
    described: dict[str, Any] = {"metadata_change": None, "protocol_change": None}
    if change.snapshot is not None:
        for action in besides_removals(change.actions):
            if isinstance(action, Metadata):
                described["metadata_change"] = describe(change.snapshot.metadata, action)
            elif isinstance(action, Protocol):
                described["protocol_change"] = describe_protocol(change.snapshot.protocol, action)
    return described
