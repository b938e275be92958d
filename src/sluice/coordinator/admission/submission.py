"""Gets a transaction committed: compares it, files it (again, if need be), and lets it wait for leases outside the queue.

A change is compared with every commit since it was begun before it is filed, so that the shared decision has a short window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ...storage.actions import AddFile, DomainMetadata, Metadata, Protocol, Txn, encode
from ...storage.actions.features import row_id_high_water_mark
from ...storage.actions.file_removals import besides_removals
from ...storage.actions.filetable import add_rows
from ...storage.actions.metadata_change import describe, describe_protocol
from ...storage.actions.texts import Text, sha256, spooled
from ...storage.data.scan import TableScan
from ...storage.errors import InvalidRequest, LogGap, SluiceError, Unavailable
from ...storage.log.paths import staged_path
from ...storage.log.segment import list_versions
from ...storage.pruning.predicate import Predicate
from ...storage.stores.objects import ObjectStore
from ..commit.decision import DETACHED
from ..commit.outcomes import Commit
from ..commit.queue import Filing
from ..commit.table import CoordinatedTable
from ..commit.transactions import commit_filings, outcome_of, see_published
from ..errors import (
    ConcurrentAppendException,
    ConcurrentModification,
    CoordinatorUnavailable,
    LeaseHeld,
    NotCommitted,
    OutcomeUnknown,
    QuotaExceeded,
    TableMoved,
    TransactionExpired,
)
from ..leases.lease import WaitingCommit
from ..nodes.context import beside, naming
from ..nodes.quotas import KnownQuotas
from ..nodes.records import Head
from ..publication.failure_points import point
from ..publication.ratified_log import store_objects
from ..rules.conflicts import APPLICATION, Comparison, Conflict, check, refusal, version_taken
from ..rules.intent import ConflictPolicy, Intent, stricter, table_isolation
from ..rules.intent_checks import INTENT_BYTES_MAX
from ..rules.read_scope import ReadScope
from ..rules.rebase import Candidate, check_against, check_against_all
from ..rules.refusal import refusal_error
from ..rules.winner import Member, Winner, footprint_of
from ..service.clock import Deadline, Timeout, bounding
from ..service.store import MAX_REQUEST_BYTES
from .change import Change, Reads, bounded, declared_reads, touched_by
from .commit_events import Course, reported
from .waiting_room import admit

_LOOKS_MAX: Final = 8
_BYTES_READ_MAX: Final = 64 * 1024 * 1024
"""The most that is read of the files that another commit added."""


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
    limit = change.terms.timeout_s if timeout_s is None else timeout_s
    with reported(changes) as course, bounding(limit, table.clock) as deadline, ExitStack() as until_decided:
        while True:
            submission = _Submission(changes, filing, done_before, course)
            try:
                commits = submission.run(deadline, until_decided)
                break
            except TableMoved as moved:
                changes, commits = submission.elsewhere(moved, deadline)
                if commits:
                    break
        course.commits = commits
    made = {table.location: change for table, change in changes}
    return {location: made[location].measured(commit) if location in made else commit for location, commit in commits.items()}


class _Submission:
    """A transaction on its way to a verdict, perhaps under one id after the other."""

    def __init__(
        self,
        changes: Sequence[tuple[CoordinatedTable, Change]],
        filing: Callable[[str], object] | None,
        done_before: Callable[[], Mapping[str, Commit]] | None,
        course: Course,
    ) -> None:
        self._course = course
        self._alone = len(changes) == 1
        self._changes, self._tables = changes, [table for table, _ in changes]
        lead, first = changes[0]
        if not self._alone:
            # each change knows whether the transaction read rows of another table
            reading = {table.location for table, change in changes if change.reads is not None and not change.reads.nothing}
            elsewhere = [change.reads_elsewhere or bool(reading - {table.location}) for table, change in changes]
            self._changes = [(each, replace(change, reads_elsewhere=read)) for (each, change), read in zip(changes, elsewhere, strict=True)]
            # all tables use the first one's session
            session = lead.context.coordination
            self._tables = [
                each if each.context.coordination is session else CoordinatedTable(beside(lead.context, each.context))
                for each in self._tables
            ]
        self._keeps_id, self._ack = first.keeps_id, first.terms.ack
        self._may_be_filed = first.filed_after is not None  # by another process
        self._filing, self._done_before = filing, done_before
        self._naming: Callable[[str], AbstractContextManager[object]] = nullcontext if done_before is None else naming
        self._waiting: WaitingCommit | None = None
        presence = lead.context.presence
        self._quotas = None if presence is None else presence.quotas
        self._slots: ExitStack | None = None

    def run(self, deadline: Deadline, until_decided: ExitStack) -> Mapping[str, Commit]:
        """Returns the commits by location; a place in the queue of leases is kept until `until_decided` is left."""
        looks = 1 if self._keeps_id else _LOOKS_MAX
        while True:
            looks -= 1
            self._course.attempts += 1
            try:
                quotas = self._quotas if self._slots is None else None
                # check: quotas-are-kept
                if quotas is not None and (quotas.read[0] != quotas.changes or quotas.read[1].quotas) and not self._holds_others_up():
                    self._slots = until_decided.enter_context(self._admitted(quotas, deadline))
                seen: list[tuple[Candidate, Head]] = []
                for table, change in self._changes:
                    with self._naming(table.location):
                        seen.append(prepared(table, change, tables=len(self._changes)))
            except QuotaExceeded as over:
                return self._done_elsewhere(over, deadline)
            except ConcurrentModification:
                repeated = self._written_before([table.head() for table, _ in self._changes])
                # check: repeated-before-refused (always)
                if not repeated:
                    raise
                return repeated
            except CoordinatorUnavailable as away:
                change = self._changes[0][1]
                if change.filed_after is not None:  # another process may have filed it
                    raise
                raise type(away)(away.message, **{**away.details, "transaction_id": change.transaction_id, "stage": "staged"}) from away
            repeated = self._written_before([head for _, head in seen])
            if repeated:
                return repeated
            filings = self._filings(seen)
            self._may_be_filed = True
            try:
                with self._naming(self._changes[0][0].location) if self._alone else nullcontext():
                    return commit_filings(filings, deadline, ack=self._ack)
            except LeaseHeld as held:
                if held.filed and self._keeps_id:
                    raise
                table, change = self._changes[self._refused_in(held)]
                # check: nobody-waits-for-a-lease-with-a-slot
                if self._slots is not None:
                    self._slots.close()
                    self._slots = None
                self._waiting = self._waiting or until_decided.enter_context(WaitingCommit())
                with self._course.waiting(held):
                    self._waiting.wait(table.leases, touched_by(change), held, deadline, change.leases)
                looks += 1
                if not held.filed:
                    continue
            except ConcurrentAppendException as appended:
                if not looks or not filings[self._refused_in(appended)].member.footprint.compares_rows or deadline.over:
                    raise
                self._course.repeats(appended)
            self._changes = self._under_another_id()

    def _admitted(self, quotas: KnownQuotas, deadline: Deadline) -> ExitStack:
        """Wait until this transaction is within its application's quotas; closing what is returned gives its slots back."""
        began_s = deadline.clock.monotonic_s()
        try:
            return admit(self._changes, quotas, deadline)
        finally:
            self._course.held_back(deadline.clock.monotonic_s() - began_s)

    def _holds_others_up(self) -> bool:
        """Whether others wait for this transaction, or for its thread: it has a lease, or its turn among those who wait for one.

        It waits for no quota, or others would, too, whatever their own quotas are.
        """
        held = any(change.leases or table.leases.of_this_thread() for table, change in self._changes)
        return self._waiting is not None or held

    def _done_elsewhere(self, over: QuotaExceeded, deadline: Deadline) -> Mapping[str, Commit]:
        """The commits of what another process, or another call for the same number, committed while this one waited for a quota.

        Raises `over` if there are none, and never will be; OutcomeUnknown if another process may yet file it.
        """
        repeated = self._written_before([table.head() for table, _ in self._changes])
        if not repeated:
            table, change = self._changes[0]
            if change.filed_after is None:
                raise over
            outcome = outcome_of(table, change.transaction_id, deadline, after=change.filed_after)
            if outcome.commit is None or not self._alone:
                said = f"this call committed nothing, and another process may yet commit the same plan: {over.message}"
                raise outcome.error or OutcomeUnknown(said, transaction_id=change.transaction_id, stage="staged") from over
            repeated = {table.location: outcome.commit}
        return repeated

    def _under_another_id(self) -> list[tuple[CoordinatedTable, Change]]:
        """The changes after a refusal that is on record under their id."""
        another = self._tables[0].context.another_transaction_id(self._changes[0][1].transaction_id)
        if self._filing is not None:
            self._filing(another)
        return [(table, replace(change, transaction_id=another)) for table, change in self._changes]

    def elsewhere(self, moved: TableMoved, deadline: Deadline) -> tuple[Sequence[tuple[CoordinatedTable, Change]], Mapping[str, Commit]]:
        """The changes at the coordinator that the table moved to, and the commits if they were decided before it left.

        Raises the refusal by which they were; `moved` for several tables, which need one coordinator, and beside leases, which stay where
        they were taken.
        """
        table, change = self._changes[0]
        # check: leases-do-not-move-along (or change.leases or table.leases.of_this_thread() -> or False)
        if not self._alone or change.leases or table.leases.of_this_thread():
            raise moved
        after = change.read_version if change.filed_after is None else change.filed_after
        try:
            table = table.follow(moved)
            outcome = outcome_of(table, change.transaction_id, deadline, after=after)
        except Unavailable as away:
            # check: filed-before-it-left-is-unknown (always)
            if not self._may_be_filed:
                raise
            raise OutcomeUnknown(
                f"{table.location} moved while transaction {change.transaction_id} was filed, and its outcome cannot be asked now "
                f"({away.message}); ask outcome(transaction_id), or call commit again",
                transaction_id=change.transaction_id,
                stage="intent",
            ) from away
        if isinstance(outcome.error, LeaseHeld) and not self._keeps_id:  # it waited for that lease, which may be the mover's
            [(_, change)] = self._under_another_id()
        # check: decided-before-it-left
        elif outcome.error is not None:
            raise outcome.error
        return [(table, change)], {} if outcome.commit is None else {table.location: outcome.commit}

    def _filings(self, seen: Sequence[tuple[Candidate, Head]]) -> list[Filing]:
        """The intents to file, whose objects are stored once all of them may be filed. Raises InvalidRequest."""
        many, filings, needed = len(self._changes), [], []
        for (table, change), own, (candidate, head) in zip(self._changes, self._tables, seen, strict=True):
            with self._naming(table.location):
                member, objects = member_of(table, change, candidate, head, tables=many)
                filings.append(Filing(own, member, head if self._alone else None))
                needed.append(objects)
        sizes = [len(each.member.intent.encode()) for each in filings]
        names = 0 if self._alone else many * sum([len(table.location) + 40 for table, _ in self._changes])
        for size, most in ((max(sizes), INTENT_BYTES_MAX), (sum(sizes) + names, MAX_REQUEST_BYTES * 9 // 10)):
            if size > most:
                raise InvalidRequest(
                    f"the conditions, parameters and partitions of transaction {self._changes[0][1].transaction_id} have {size:,} bytes, "
                    f"and may have {most:,}: put long lists and texts into a table, and merge it; nothing was committed",
                    bytes=size,
                    limit=most,
                    filed=False,
                )
        for (table, _), objects, filing in zip(self._changes, needed, filings, strict=True):
            with self._naming(table.location):
                store_objects(table.context, objects)
            if filing.member.intent.staged:
                point("actions-staged")
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


def prepared(table: CoordinatedTable, change: Change, *, tables: int = 1) -> tuple[Candidate, Head]:
    """The change as it may be filed on top of the head it was validated through; `tables` share a request's room. Raises the conflict."""
    point("data-staged")
    candidate = candidate_of(table, change, tables)
    mine = candidate.footprint
    plain = mine.plain_append and not ConflictPolicy(mine.policy).by_classes
    # a plain append compares only the version of the metadata, so the head it was planned on is enough
    head = table.known_head() if plain and not mine.app_versions else table.head()
    head = head_to_compare(table, change, head)
    compared = not plain or mine.app_versions or head.metadata_version > change.read_version
    if change.terms.if_version is None and compared:
        candidate = validated(table, change, candidate, head)
    return candidate, head


def member_of(
    table: CoordinatedTable, change: Change, candidate: Candidate, head: Head, *, tables: int = 1
) -> tuple[Member, Mapping[str, Text]]:
    """The intent to file with its footprint, and the objects that it needs."""
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
        # check: commits-name-their-leases
        leases=tuple(dict.fromkeys((*change.leases, *table.leases.of_this_thread()))),
        user_metadata=change.terms.user_metadata or "",
        **_of_table(change),
    )
    objects: dict[str, Text] = {**candidate.objects}
    if not is_inline:
        objects[intent.staged] = actions
    return Member(intent, intent.actions.encode(), (), footprint), objects


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


def _of_table(change: Change) -> dict[str, Any]:
    """What the change makes of the table's metadata and protocol; if it creates or attaches one that tracks rows, the highest row id."""
    snapshot = change.snapshot
    protocol, metadata = (None, None) if snapshot is None else (snapshot.protocol, snapshot.metadata)
    domains: dict[str, DomainMetadata] = {}
    said: dict[str, Any] = {"metadata_change": None, "protocol_change": None, "row_ids": None}
    for action in besides_removals(change.actions):
        match action:
            case Protocol():
                protocol = action
                said["protocol_change"] = None if snapshot is None else describe_protocol(snapshot.protocol, action)
            case Metadata():
                metadata = action
                said["metadata_change"] = None if snapshot is None else describe(snapshot.metadata, action)
            case DomainMetadata():
                domains[action.domain] = action
            case _:
                continue
    if change.terms.if_version is not None and change.table_id and protocol is not None and metadata is not None:
        before = {} if snapshot is None else snapshot.domains
        said["row_ids"] = row_id_high_water_mark({**before, **domains}, metadata, protocol)
    return said


# -- comparing with what came first --------------------------------------------------------------------------------------


def validate(table: CoordinatedTable, change: Change, *, only_reads: bool = False) -> None:
    """Raise the conflict, if any, by which a change can no longer be committed; writes nothing.

    Others go on committing, so it may still be refused. If its application has written it since, it is committed already.
    """
    head = head_to_compare(table, replace(change, filed_after=change.read_version), table.head())
    if change.terms.if_version is None:
        with reported([(table, change)], commits=False):
            try:
                validated(table, change, candidate_of(table, change, only_reads=only_reads), head)
            except ConcurrentModification:
                if written_since(table, change, table.head(), "ratified") is None:
                    raise


def head_to_compare(table: CoordinatedTable, change: Change, head: Head) -> Head:
    """The head; if another process is committing the same change, the head before that: the decision finds the commit.

    An append's snapshot may already have it, so it is looked for in everything since it was known not to exist.
    Raises ConcurrentModification if a change may become only one version, and another transaction has become it.
    """
    if change.filed_after is not None:
        for winner in _winners(table, change, range(change.filed_after + 1, head.version + 1)):
            if winner.ordinal_of(change.transaction_id) is not None:
                head = replace(head, version=winner.version - 1)
                break
    if_version = change.terms.if_version
    if if_version is None or change.table_id or any(isinstance(action, Txn) for action in change.actions):
        return head  # that version may have written the application's number: the decision finds out
    if if_version < head.version:
        raise refusal_error(version_taken(table.log.winner(if_version + 1)), change.transaction_id, filed=False)
    return head


def validated(table: CoordinatedTable, change: Change, candidate: Candidate, head: Head) -> Candidate:
    """The candidate after every version up to the head, so that the shared decision looks at a short window.

    Raises the conflict, or Refused if the table was detached meanwhile.
    """
    if candidate.footprint.app_versions:
        # check: applications-are-depended-on-from-the-plan-on (change.began + 1 -> change.read_version + 1)
        for winner in _winners(table, change, range(change.began + 1, change.read_version + 1)):
            conflict = check(Comparison(candidate.footprint, winner, candidate.level), APPLICATION)
            if conflict is not None:
                raise refusal_error(refusal(conflict), change.transaction_id)
    # check: validated-up-to-the-head (head.version + 1 -> head.version)
    versions = range(change.read_version + 1, head.version + 1)
    looking = partial(holding_nothing_read, table.context.objects, change)
    checked = check_against_all(candidate, _winners(table, change, versions), table.log.rows, looking)
    if isinstance(checked, Conflict):
        raise refusal_error(DETACHED if head.detached else refusal(checked), change.transaction_id)
    return checked


def _winners(table: CoordinatedTable, change: Change, versions: range) -> Iterator[Winner]:
    """The versions since a change was made, as winners. Raises TransactionExpired if the log does not have them any more."""
    try:
        yield from table.log.winners(versions)
    except LogGap as gap:
        if gap.details.get("version", -1) >= min(list_versions(table.context.objects).commits, default=-1):
            raise
        raise TransactionExpired(
            f"transaction {change.transaction_id} was begun on version {change.read_version} of {table.location}, and the log "
            "of what came next has been cleaned up (delta.logRetentionDuration); begin it again",
            transaction_id=change.transaction_id,
        ) from gap


def candidate_of(table: CoordinatedTable, change: Change, tables: int = 1, *, only_reads: bool = False) -> Candidate:
    """The change before it is checked against any winner; several `tables` share the room of one request."""
    context = table.context
    configuration = change.snapshot.configuration if change.snapshot else {}
    return Candidate(
        transaction_id=change.transaction_id,
        operation=change.operation,
        footprint=footprint_of(declared_reads(change, files_max=max(1, context.limits.footprint_files_max // tables)), change.actions),
        # check: stricter-levels-count (stricter(table_isolation(configuration), change.terms.isolation) -> table_isolation(configuration))
        level=stricter(table_isolation(configuration), change.terms.isolation),
        encoded=spooled(encode(action) + b"\n" for action in change.actions),
        now_ms=context.clock.now_ms(),
        only_reads=only_reads or (tables > 1 and not change.actions),
    )


def written_since(table: CoordinatedTable, change: Change, head: Head, ack: str) -> Commit | None:
    """The commit that wrote all numbers of the change's application transaction since the change was begun; None if none did."""
    apps = {action.app_id: action.version for action in besides_removals(change.actions) if isinstance(action, Txn)}
    if not apps or change.terms.if_version is not None:
        return None
    for version in range(head.version, change.began, -1):
        winner = table.log.winner(version)
        # check: repetition-has-every-number (<= -> &)
        if apps.items() <= winner.app_versions.items():
            return commit_by_application(table, winner, winner.ordinal_of_app(next(iter(apps))), ack)
    return None


def commit_by_application(table: CoordinatedTable, winner: Winner, ordinal: int, ack: str) -> Commit:
    """The earlier commit of a version; with `ack` = "published", waits until it is published."""
    timestamp = int(table.log.info(winner.version).get("inCommitTimestamp", 0))
    state = table.context.read_published()
    published = state is not None and winner.version <= state[0].version
    transaction_id = str(winner.entry(ordinal).get("id", ""))
    commit = Commit(winner.version, ordinal, timestamp, transaction_id, published=published, repeated=True)
    return commit if ack == "ratified" else see_published(table, commit)


def holding_nothing_read(store: ObjectStore, change: Change, winner: Winner) -> frozenset[str]:
    """The log paths of a winner's new files without any row that the change would have read.

    Empty if there is too much to read, or if a file cannot be read (any more).
    """
    added = [add for add in winner.adds if add.data_change]
    if change.reads is None or change.schema is None or change.snapshot is None or sum(add.size for add in added) > _BYTES_READ_MAX:
        return frozenset()
    if change.reads.whole_table or "" in change.reads.predicates:
        return frozenset()
    predicates = [Predicate.parse(sql, change.schema) for sql in change.reads.predicates]
    scan = TableScan(store, change.schema, change.snapshot.partition_columns, winner.version)
    cleared: set[str] = set()
    for add in added:
        files = add_rows([add])
        try:
            found = any(batch.num_rows for predicate in predicates for batch in scan.batches(files, [], predicate))
        except SluiceError:
            continue  # unknown, so it stays a conflict
        # check: looking-into-files-finds-rows (always)
        if not found:
            cleared.add(add.path)
    return frozenset(cleared)


def operation_that_lost(
    table: CoordinatedTable, change: Change, operations: Sequence[tuple[str, Reads | None]], lost: ConcurrentModification
) -> tuple[int, str] | None:
    """The number (from 1) and the name of the first operation that conflicts with the winner; None if unknown.

    `operations` are those of the change in order, each with what it read. The answer is for people: statistics decide if rows are unknown.
    """
    if len(operations) == 1:
        return 1, operations[0][0]
    version = lost.details.get("winning_version")
    if version is None:
        return None
    try:
        winner = table.log.winner(version)
        parts = [
            (number, name, candidate_of(table, replace(change, actions=(), reads=reads), only_reads=True))
            for number, (name, reads) in enumerate(operations, start=1)
            if reads is not None
        ]
        for number, name, candidate in parts:
            if isinstance(check_against(candidate, winner, table.log.rows), Conflict):
                return number, name
        # files that both remove were found by the operations' conditions
        removed = [AddFile(r.path, r.partition_values or {}, 0, 0, True, stats=r.stats) for r in winner.removed.values()]
        for number, name, candidate in parts:
            mine = candidate.footprint
            if ReadScope.of(mine.predicates, mine.partition_types, mine.column_types).touched(removed):
                return number, name
        return None
    except SluiceError:
        return None
