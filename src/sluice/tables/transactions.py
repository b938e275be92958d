"""From what an operation wants to do to a commit: footprint, pre-validation, intent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..coordinator.clock import Deadline, Timeout, bounding
from ..coordinator.conflicts import APPENDED, Finding, refusal
from ..coordinator.content import Winner
from ..coordinator.errors import ConcurrentAppendException, LeaseHeld, TransactionExpired
from ..coordinator.faults import point
from ..coordinator.isolation import ConflictPolicy, IsolationLevel, stricter, table_isolation
from ..coordinator.kinds import Kind
from ..coordinator.outcomes import Commit, refusal_error
from ..coordinator.ratified import store_objects
from ..coordinator.rebase import Attempt, meet
from ..coordinator.records import Head, Intent, digest
from ..coordinator.turns import Turn
from ..storage.actions import Action, DomainMetadata, Metadata, Protocol, encode_all
from ..storage.errors import LogGap
from ..storage.metadata_change import describe, describe_protocol
from ..storage.paths import staged_path
from ..storage.row_tracking import row_id_high_water_mark
from ..storage.schema import StructType
from ..storage.segment import list_versions
from ..storage.snapshot import Snapshot
from .access import Access
from .done_before import done_since
from .footprints import bounded, footprint_of
from .locking import await_turn, lease_paths
from .looking_into import holding_nothing_read
from .scopes import scope_of_change

__all__ = [
    "Change",
    "Reads",
    "commit_change",
    "intent_of",
    "new_transaction_id",
    "prepared",
    "validate",
]

DEFAULT_TIMEOUT_S = 120.0
_LOOKS_MAX = 8


def new_transaction_id(access: Access) -> str:
    """A GUID: the name of a transaction for ever, and part of the names of all its data files, which tell whose they are."""
    return access.ours.context.new_transaction_id()


@dataclass(frozen=True, slots=True)
class Reads:
    """What an operation read: conditions as SQL ("" for the whole table as a filter), files by log path.

    `files` are those whose rows the outcome depends on beyond the rows it changes: a change of rows in a table with deletion
    vectors lists none, for there the rows themselves are compared.
    """

    predicates: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    whole_table: bool = False
    apps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation wants to commit, made on `snapshot` (None: it creates the table)."""

    transaction_id: str
    operation: str
    snapshot: Snapshot | None
    actions: Sequence[Action]
    reads: Reads | None = None
    """None: a blind append."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    schema: StructType | None = None
    expected_version: int | None = None
    table_id: str = ""
    detach: bool = False
    claimed_ms: int | None = None
    filed_after: int | None = None
    """Where it may have been filed before, perhaps by another process: a version up to which it was not committed."""
    kind: Kind = Kind.OTHER
    scope: str | None = None
    """What an overwrite replaces: "" the table, or a partition condition."""
    isolation: IsolationLevel | None = None
    """A stricter level than the table's."""
    once: bool = False
    """Whether its outcome is asked for under this very transaction id, so that it is never filed under another."""
    leases: tuple[str, ...] = ()
    """Nodes of leases it depends on, beside those of the thread that commits it."""


def _validated(access: Access, change: Change, attempt: Attempt, upto: int) -> Attempt:
    """The attempt after every version this client can see, so that the shared decision looks at a short window.

    Raises the conflict. A file that was added where this transaction read is looked into where rows count (see
    `_holds_nothing_read`): only rows that were read are in the way.
    """
    log = access.ours.log
    versions = range(_read_version(change) + 1, upto + 1)
    for winner in _winners(access, change, versions):
        met = meet(attempt, winner, log.rows)
        if isinstance(met, Finding) and met.rule.name == APPENDED and attempt.footprint.row_level:
            cleared = holding_nothing_read(access, change, winner)
            met = meet(replace(attempt, cleared=attempt.cleared | cleared), winner, log.rows)
        if isinstance(met, Finding):
            raise refusal_error(refusal(met), change.transaction_id)
        attempt = met
    return attempt


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


def _attempt(access: Access, change: Change, tables: int = 1) -> Attempt:
    context = access.ours.context
    configuration = change.snapshot.configuration if change.snapshot else {}
    return Attempt(
        transaction_id=change.transaction_id,
        operation=change.operation,
        footprint=footprint_of(change, files_max=max(1, context.limits.footprint_files_max // tables)),
        level=stricter(table_isolation(configuration), change.isolation),
        encoded=encode_all(change.actions),
        now_ms=context.clock.now_ms(),
        only_reads=tables > 1 and not change.actions,
    )


def validate(access: Access, change: Change) -> None:
    """Raise the conflict by which a change can no longer be committed; nothing is written.

    What passes may still be refused: others go on committing.
    """
    attempt = _attempt(access, change)
    if change.expected_version is None:
        known = replace(change, filed_after=_read_version(change))
        _validated(access, change, attempt, _before_itself(access, known, access.head()).version)


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
        attempt, head = prepared(access, change)
        upto = head.version if change.expected_version is None else -1
        repeated = done_since(access, attempt.footprint.app_versions, ack, after=_read_version(change), upto=upto)
        if repeated is not None:
            return repeated
        try:
            return access.ours.commit(intent_of(access, change, attempt, head), head, deadline, ack=ack)
        except LeaseHeld as held:
            if held.filed and change.once:
                raise
            await_turn(turn, access, scope_of_change(change), held, deadline)
            looks += 1
            if not held.filed:
                continue
        except ConcurrentAppendException:
            if not looks or not attempt.footprint.row_level or deadline.over:
                raise
        change = replace(change, transaction_id=access.ours.context.another_transaction_id(change.transaction_id))
        if filing is not None:
            filing(change.transaction_id)


def prepared(access: Access, change: Change, *, tables: int = 1) -> tuple[Attempt, Head]:
    """The change as it may be filed on top of the head it was validated through. Raises the conflict.

    `tables` is over how many tables the transaction goes: they share the room of one request.
    """
    point("data-staged")
    attempt = _attempt(access, change, tables)
    mine = attempt.footprint
    plain = mine.plain_append and mine.policy == ConflictPolicy.DELTA.value
    # a plain append compares nothing but the version of the metadata, so the head it was planned on will do
    head = access.known_head() if plain and not mine.app_versions else access.head()
    head = _before_itself(access, change, head)
    if change.expected_version is None and (not plain or head.metadata_version > _read_version(change)):
        attempt = _validated(access, change, attempt, head.version)
    return attempt, head


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
    staged = ""
    if len(actions) > inline_bytes_max:
        staged = staged_path(change.transaction_id)
        context.objects.put(staged, actions)
        point("actions-staged")
    return Intent(
        transaction_id=change.transaction_id,
        operation=change.operation,
        read_version=_read_version(change),
        validated_through=_read_version(change) if change.expected_version is not None else head.version,
        claimed_ms=attempt.now_ms if change.claimed_ms is None else change.claimed_ms,
        isolation=attempt.level.value,
        footprint=bounded(attempt.footprint, files_max=context.limits.footprint_files_max),
        actions="" if staged else actions.decode(),
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
        **_described(change),
    )


def _row_ids(change: Change) -> int | None:
    """The highest row id given so far, where the change creates or attaches a table that tracks rows."""
    if change.expected_version is None:
        return None
    protocol, metadata = (change.snapshot.protocol, change.snapshot.metadata) if change.snapshot else (None, None)
    domains = dict(change.snapshot.domains) if change.snapshot else {}
    for action in change.actions:
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
        for action in change.actions:
            if isinstance(action, Metadata):
                described["metadata_change"] = describe(change.snapshot.metadata, action)
            elif isinstance(action, Protocol):
                described["protocol_change"] = describe_protocol(change.snapshot.protocol, action)
    return described
