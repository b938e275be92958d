"""Gets a transaction committed: compares it, files it (again, if need be), and lets it wait for leases outside the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any, Final

from ...storage.actions import DomainMetadata, Metadata, Protocol
from ...storage.actions.file_removals import besides_removals
from ...storage.actions.metadata_change import describe, describe_protocol
from ...storage.actions.texts import put_text, sha256
from ...storage.data.row_ids import row_id_high_water_mark
from ...storage.errors import InvalidRequest
from ...storage.log.paths import staged_path
from ..commit.filing import Filing
from ..commit.outcomes import Commit
from ..commit.table import CoordinatedTable
from ..commit.transactions import commit_filings
from ..errors import ConcurrentAppendException, ConcurrentModification, CoordinatorUnavailable, LeaseHeld, NotCommitted, naming
from ..leases.lease import WaitingCommit
from ..nodes.records import Head
from ..publication.failure_points import point
from ..publication.ratified_log import store_objects
from ..rules.intent import Intent
from ..rules.intent_checks import INTENT_BYTES_MAX
from ..rules.isolation import ConflictPolicy
from ..rules.rebase import Candidate
from ..rules.winner import Member
from ..service.clock import Deadline, Timeout, bounding
from ..service.store import MAX_REQUEST_BYTES
from .change import Change, bounded, touched_by
from .validation import before_itself, candidate_of, require_next, validated, written_since

_LOOKS_MAX: Final = 8


def submit(
    table: CoordinatedTable,
    change: Change,
    *,
    timeout_s: Timeout | None = None,
    filing: Callable[[str], object] | None = None,
) -> Commit:
    """Commit a change of one table; see `submit_together`."""
    return submit_together([(table, change)], timeout_s=timeout_s, filing=filing)[table.location]


def submit_together(
    changes: Sequence[tuple[CoordinatedTable, Change]],
    *,
    timeout_s: Timeout | None = None,
    filing: Callable[[str], object] | None = None,
    done_before: Callable[[], Mapping[str, Commit]] | None = None,
) -> Mapping[str, Commit]:
    """Commit the changes of one transaction in all their tables or in none; returns the commits by location.

    Compares each change with the commits since it began, then files it. Files it again under a new transaction id, which `filing` gets
    first, after a wait (outside the queue) for another client's lease, and if it was refused for added files whose rows were not
    looked at; never a change whose outcome is asked for by its id (`keeps_id`). An application's transaction is not written twice: if a
    table shows it, its commits are returned. A transaction over several tables passes `done_before`, which returns these commits, and
    gets refusals that name their table. The changes have the same terms, whose time counts unless `timeout_s` is what is left of it.

    Raises the conflict, LeaseHeld, LeaseLost, Refused, OutcomeUnknown, CoordinatorUnavailable.
    """
    table, change = changes[0]
    with bounding(change.terms.timeout_s if timeout_s is None else timeout_s, table.clock) as deadline, ExitStack() as until_decided:
        commits = _Submission(changes, filing, done_before).run(deadline, until_decided)
    made = {table.location: change for table, change in changes}
    return {location: made[location].measured(commit) if location in made else commit for location, commit in commits.items()}


class _Submission:
    """A transaction on its way to a verdict, perhaps under one id after the other."""

    def __init__(
        self,
        changes: Sequence[tuple[CoordinatedTable, Change]],
        filing: Callable[[str], object] | None,
        done_before: Callable[[], Mapping[str, Commit]] | None,
    ) -> None:
        self._alone = len(changes) == 1
        self._changes = changes if self._alone else _with_reads_elsewhere(changes)
        first = changes[0][1]
        self._keeps_id, self._ack = first.keeps_id, first.terms.ack
        self._filing, self._done_before = filing, done_before
        self._naming: Callable[[str], AbstractContextManager[object]] = nullcontext if done_before is None else naming
        tables = [table for table, _ in changes]
        self._tables = tables if self._alone else _on_one_session(tables)
        self._waiting: WaitingCommit | None = None

    def run(self, deadline: Deadline, until_decided: ExitStack) -> Mapping[str, Commit]:
        """Returns the commits by location; a place in the queue of leases is kept until `until_decided` is left."""
        looks = 1 if self._keeps_id else _LOOKS_MAX
        while True:
            looks -= 1
            try:
                seen: list[tuple[Candidate, Head]] = []
                for table, change in self._changes:
                    with self._naming(table.location):
                        seen.append(prepared(table, change, tables=len(self._changes)))
            except ConcurrentModification:
                repeated = self._written_before([table.head() for table, _ in self._changes])
                # check: repeated-before-refused (always)
                if not repeated:
                    raise
                return repeated
            except CoordinatorUnavailable as away:
                raise _not_filed(self._changes[0][1], away) from away
            repeated = self._written_before([head for _, head in seen])
            if repeated:
                return repeated
            filings = self._filings(seen)
            try:
                with self._naming(self._changes[0][0].location) if self._alone else nullcontext():
                    return commit_filings(filings, deadline, ack=self._ack)
            except LeaseHeld as held:
                if held.filed and self._keeps_id:
                    raise
                table, change = self._changes[self._refused_in(held)]
                self._waiting = self._waiting or until_decided.enter_context(WaitingCommit())
                self._waiting.wait(table.leases, touched_by(change), held, deadline, change.leases)
                looks += 1
                if not held.filed:
                    continue
            except ConcurrentAppendException as appended:
                if not looks or not filings[self._refused_in(appended)].member.footprint.compares_rows or deadline.over:
                    raise
            self._take_another_id()

    def _filings(self, seen: Sequence[tuple[Candidate, Head]]) -> list[Filing]:
        """The intents to file, whose objects are stored once all of them may be filed. Raises InvalidRequest."""
        many, filings, writes = len(self._changes), [], []
        for (table, change), own, (candidate, head) in zip(self._changes, self._tables, seen, strict=True):
            with self._naming(table.location):
                member, store = member_of(table, change, candidate, head, tables=many)
                filings.append(Filing(own, member, head if self._alone else None))
                writes.append((table, store))
        _require_fileable(
            [each.member.intent for each in filings],
            0 if self._alone else many * sum(len(table.location) + 40 for table, _ in self._changes),
        )
        for table, store in writes:
            with self._naming(table.location):
                store()
        return filings

    def _written_before(self, heads: Sequence[Head]) -> Mapping[str, Commit]:
        """The commits of the application's transaction, when a table shows one since its change was begun."""
        for (table, change), head in zip(self._changes, heads, strict=True):
            commit = written_since(table, change, head, self._ack)
            if commit is not None:
                return {table.location: commit} if self._done_before is None else self._done_before()
        return {}

    def _refused_in(self, refusal: NotCommitted) -> int:
        """Which of the changes a refusal speaks of."""
        return 0 if self._alone else [table.location for table, _ in self._changes].index(str(refusal.details["facts"]["table"]))

    def _take_another_id(self) -> None:
        another = self._tables[0].context.another_transaction_id(self._changes[0][1].transaction_id)
        if self._filing is not None:
            self._filing(another)
        self._changes = [(table, replace(change, transaction_id=another)) for table, change in self._changes]


def _with_reads_elsewhere(changes: Sequence[tuple[CoordinatedTable, Change]]) -> Sequence[tuple[CoordinatedTable, Change]]:
    """The changes, each of which knows whether the transaction read rows of another table."""
    reading = [change for _, change in changes if change.reads is not None and not change.reads.nothing]
    elsewhere = [change.reads_elsewhere or any(each is not change for each in reading) for _, change in changes]
    return [(table, replace(change, reads_elsewhere=read)) for (table, change), read in zip(changes, elsewhere, strict=True)]


def _on_one_session(tables: Sequence[CoordinatedTable]) -> list[CoordinatedTable]:
    """The same tables, all using the first one's session."""
    first = tables[0].context
    session = first.coordination
    return [
        each
        if each.context.coordination is session
        else CoordinatedTable(replace(each.context, connect=first.connect, presence=first.presence))
        for each in tables
    ]


def _not_filed(change: Change, away: CoordinatorUnavailable) -> CoordinatorUnavailable:
    """The error if the coordinator was away before the change was filed; says so unless another process may have filed it."""
    if change.filed_after is not None:
        return away
    return type(away)(away.message, **{**away.details, "transaction_id": change.transaction_id, "stage": "staged"})


def prepared(table: CoordinatedTable, change: Change, *, tables: int = 1) -> tuple[Candidate, Head]:
    """The change as it may be filed on top of the head it was validated through. Raises the conflict.

    `tables` is the number of the transaction's tables: they share the room of one request.
    """
    point("data-staged")
    candidate = candidate_of(table, change, tables)
    mine = candidate.footprint
    plain = mine.plain_append and not ConflictPolicy(mine.policy).by_classes
    # a plain append compares only the version of the metadata, so the head it was planned on is enough
    head = table.known_head() if plain and not mine.app_versions else table.head()
    head = before_itself(table, change, head)
    require_next(table, change, head)
    compared = not plain or mine.app_versions or head.metadata_version > change.read_version
    if change.terms.if_version is None and compared:
        candidate = validated(table, change, candidate, head)
    return candidate, head


def member_of(
    table: CoordinatedTable, change: Change, candidate: Candidate, head: Head, *, tables: int = 1
) -> tuple[Member, Callable[[], None]]:
    """The intent to file with its footprint, and what stores the objects that it needs."""
    context = table.context
    inline_bytes_max = min(context.limits.inline_bytes_max, context.limits.batch_bytes_max // (2 * tables))
    actions = candidate.lines()
    require_room(table, len(actions))
    is_inline = isinstance(actions, bytes) and len(actions) <= inline_bytes_max
    footprint = bounded(candidate.footprint, files_max=context.limits.footprint_files_max)
    intent = Intent(
        transaction_id=change.transaction_id,
        operation=change.operation,
        read_version=change.read_version,
        # check: validated-is-what-was-looked-at (head.version -> table.head().version)
        validated_through=change.read_version if change.terms.if_version is not None else head.version,
        claimed_ms=candidate.now_ms if change.claimed_ms is None else change.claimed_ms,
        isolation=candidate.level.value,
        reads=footprint.declared,
        actions=actions.decode() if isinstance(actions, bytes) and is_inline else "",
        staged="" if is_inline else staged_path(change.transaction_id),
        actions_digest=sha256(actions),
        parameters=change.parameters,
        metrics=change.metrics,
        client=context.client,
        expected_version=None if change.terms.if_version is None else change.terms.if_version + 1,
        table_id=change.table_id,
        detach=change.detach,
        filed_again=change.filed_after is not None,
        rebased=candidate.rebased,
        row_ids=_row_ids(change),
        # check: commits-name-their-leases
        leases=tuple(dict.fromkeys((*change.leases, *table.leases.of_this_thread()))),
        user_metadata=change.terms.user_metadata or "",
        **_described(change),
    )

    def store() -> None:
        store_objects(context, candidate.objects)
        if not is_inline:
            put_text(context.objects, intent.staged, actions)
            point("actions-staged")

    return Member(intent, intent.actions.encode(), (), footprint), store


def _require_fileable(intents: Sequence[Intent], more: int) -> None:
    """Raise InvalidRequest for intents that others would refuse, or that with `more` bytes do not fit into one request."""
    sizes = [len(each.encode()) for each in intents]
    for size, most in ((max(sizes), INTENT_BYTES_MAX), (sum(sizes) + more, MAX_REQUEST_BYTES * 9 // 10)):
        if size > most:
            raise InvalidRequest(
                f"the conditions, parameters and partitions of transaction {intents[0].transaction_id} have {size:,} bytes, and may have "
                f"{most:,}: put long lists and texts into a table, and merge it; nothing was committed",
                bytes=size,
                limit=most,
                filed=False,
            )


def require_room(table: CoordinatedTable, size: int) -> None:
    """Raise InvalidRequest if the actions of a transaction, of that many bytes, are too large for other clients."""
    limits = table.context.limits
    if size > limits.staged_bytes_max:
        raise InvalidRequest(
            f"the actions of this transaction have {size:,} bytes, and Limits.staged_bytes_max is {limits.staged_bytes_max:,}: change "
            "fewer files at once, such as one partition after the other (where=...); nothing was committed",
            bytes=size,
            limit="staged_bytes_max",
        )


def _row_ids(change: Change) -> int | None:
    """The highest row id given so far, if the change creates or attaches a table that tracks rows."""
    if change.terms.if_version is None or not change.table_id:
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
    """A description of the change's metadata or protocol change, for later commits."""
    described: dict[str, Any] = {"metadata_change": None, "protocol_change": None}
    if change.snapshot is not None:
        for action in besides_removals(change.actions):
            if isinstance(action, Metadata):
                described["metadata_change"] = describe(change.snapshot.metadata, action)
            elif isinstance(action, Protocol):
                described["protocol_change"] = describe_protocol(change.snapshot.protocol, action)
    return described
