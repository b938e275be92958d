"""What verdict records say: the outcome of a transaction, which the log has later, too; and which versions tables had at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from datetime import datetime
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import LogGap, NotATable, SluiceError, Unavailable
from ...storage.notebook import html_of_fields
from ...storage.times import time_of
from ..errors import CoordinatorUnavailable, SessionLost
from ..nodes.context import TableContext
from ..nodes.layout import SlotName, TableTree, VerdictName, newest_first
from ..nodes.presence import made_ms
from ..nodes.records import BatchRecord, Head, Published, Verdict, gone_error, whereabouts
from ..publication.publisher import find_put_away
from ..publication.ratified_log import RatifiedLog
from ..rules.refusal import Refusal, forgotten, refusal_error
from ..service.clock import Deadline, bounded_s, require_time_left
from ..service.store import CoordinationStore, Node


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed transaction: `version` and `ordinal` are its place in the log (the ID version).

    `timestamp` is the version's in-commit timestamp in milliseconds since the epoch (the time version), or 0 if that
    version's file had already been cleaned up. `published` is False while the version is ratified but other engines cannot
    read it yet. `repeated` is True if this transaction (or its application's number) had been committed before, so that
    nothing was written again. After a lost reply it may be True for the call that committed, and if two calls commit one
    plan at once it may be False for both; the place in the log is the same for all. `commits` is the number of commits made
    by the call: more than one for a compaction of very many files, of which this is the last. `metrics` are the operation's counts
    under Delta's names, such as `numDeletedRows` and `numOutputRows`: of a commit that this process made, else empty.
    """

    version: int
    ordinal: int
    timestamp: int
    transaction_id: str
    published: bool = True
    repeated: bool = False
    commits: int = 1
    metrics: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def time(self) -> datetime | None:
        """The version's in-commit timestamp, in UTC; None if its file had been cleaned up."""
        return time_of(self.timestamp) if self.timestamp else None

    def _repr_html_(self) -> str:
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        return html_of_fields(f"Commit of version {self.version}", shown | {"timestamp": self.time})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a transaction: `state` is "committed" (see `commit`), "refused" (see `error`) or "unknown".

    "unknown" means that there is no trace: it was never filed, or was refused longer ago than refusals are kept. In both
    cases it is not in the table. `sluice.outcome` also fills `commits`: the commit in each of its tables, by location.
    """

    state: str
    commit: Commit | None = None
    error: SluiceError | None = None
    commits: Mapping[str, Commit] = field(default_factory=dict)

    @staticmethod
    def committed(commit: Commit) -> Outcome:
        """The outcome of a committed transaction."""
        return Outcome("committed", commit=commit)

    @staticmethod
    def refused(error: SluiceError) -> Outcome:
        """The outcome of a refused transaction; `error` is the error that its owner got, or would have got."""
        return Outcome("refused", error=error)


@dataclass(frozen=True, slots=True)
class Claim:
    """An existing slot."""

    transaction_id: str
    generation: int
    slot: int

    def is_decided(self, head: Head) -> bool:
        """Whether the head says that this slot has its verdict, as all slots of earlier generations have."""
        # check: slots-count-within-their-generation ((self.generation, self.slot) -> (head.generation, self.slot))
        return (head.generation, head.slot) >= (self.generation, self.slot)

    def is_first(self, head: Head) -> bool:
        """Whether this is the first undecided slot: nothing else is counted, so the slot before it has the next lower number.

        If that number was skipped, only the end of patience resolves it.
        """
        return head.generation == self.generation and head.slot >= self.slot - 1

    def path(self, tree: TableTree) -> str:
        """The slot's node."""
        return tree.slot(self.generation, SlotName(self.slot, self.transaction_id))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A verdict, with the timestamp of its version."""

    verdict: Verdict
    timestamp_ms: int


def commit_of(recorded: Recorded, *, published: bool = True) -> Commit:
    """The commit that a verdict grants; raises the refusal."""
    verdict = recorded.verdict
    if verdict.refusal is not None:
        raise refusal_error(verdict.refusal, verdict.transaction_id)
    return Commit(verdict.version, verdict.ordinal, recorded.timestamp_ms, verdict.transaction_id, published, verdict.repeats)


CLOCKS_DIFFER_MS: Final = 24 * 3600 * 1000
"""How far the clock that made a transaction's id may be ahead of the one that claimed it."""
_LOOKING_S: Final = 10.0
"""How long to look for a verdict if only its existence matters."""
_PAUSE_S: Final = 0.001


class Verdicts:
    """Finds verdicts of one table."""

    def __init__(self, context: TableContext, log: RatifiedLog) -> None:
        self._context = context
        self._log = log

    def find(self, claim: Claim, published: Published | None = None, *, after: int = -1) -> Recorded | None:
        """The verdict on a decided slot; None if it was refused long ago, or only read this table: no version after `after` has it.

        `published` is how far publication is: it repeats the commits of the batch published last.
        """
        if published is not None and claim.transaction_id in published.commits:
            slot, version, ordinal, timestamp_ms = published.commits[claim.transaction_id]
            # check: published-tells-of-its-own-slots (always)
            if (published.generation, slot) == (claim.generation, claim.slot):
                return Recorded(Verdict(slot, claim.transaction_id, version, ordinal), timestamp_ms)
        hint = "" if published is None else published.record
        recorded = self._look(claim, hint, after)
        while recorded is None:  # the session that showed the decision may be over, and the next one's server lag
            session = self._context.coordination.session_id
            self._context.barrier()
            # check: verdicts-are-looked-for-again
            recorded = self._look(claim, hint, after)
            if recorded is None and session == self._context.coordination.session_id:
                if self._context.read_published() is None:
                    raise self._context.missing_error()  # everything was lost since the decision was seen: the log may have it
                return None
            require_time_left(f"the verdict on transaction {claim.transaction_id} could not be read")
        return recorded

    def _look(self, claim: Claim, hint: str, after: int) -> Recorded | None:
        probable = VerdictName.parse(hint)
        recorded = None if probable is None else self._in_record(probable, claim)
        if recorded is None:
            name = min((n for n in self._names() if (n.generation, n.slot) >= (claim.generation, claim.slot)), default=None)
            recorded = None if name is None else self._in_record(name, claim)
        # if its record was pruned, which happens only to published batches, the log has it
        return recorded or self._put_away(claim.transaction_id) or self._in_log(claim.transaction_id, after=after)

    def _on_record(self, transaction_id: str, names: Iterable[VerdictName]) -> Recorded | None:
        """The first verdict on a transaction in these records, whatever its slot."""
        for record in filter(None, map(self._record, names)):
            for verdict in record.verdicts:
                if verdict.transaction_id == transaction_id:
                    return self._recorded(record, verdict)
        return None

    def _put_away(self, transaction_id: str) -> Recorded | None:
        """The separately stored verdict on a transaction; those on record are moved there, so they are to be looked for first."""
        record = find_put_away(self._context, transaction_id)
        return None if record is None else self._recorded(record, record.verdicts[0])

    def recorded_by(self, record: BatchRecord, claim: Claim | None) -> Recorded | None:
        """The verdict on a slot, or on a transaction without one, in its batch's record; None if the record is another batch's."""
        if claim is None:
            return self._recorded(record, record.verdicts[0]) if record.direct else None
        verdict = record.verdict_of(claim.slot) if record.generation == claim.generation else None
        # check: made-up-slot-is-not-mine
        if verdict is not None and verdict.transaction_id != claim.transaction_id:
            refused = Verdict(claim.slot, claim.transaction_id, refusal=forgotten(claim.transaction_id))
            return Recorded(refused, 0)  # somebody made up a slot with this number, which came first
        return None if verdict is None else self._recorded(record, verdict)

    def _in_record(self, name: VerdictName, claim: Claim) -> Recorded | None:
        record = self._record(name)
        return None if record is None else self.recorded_by(record, claim)

    def search(self, transaction_id: str, *, after: int = -1, deadline: Deadline | None = None) -> Outcome:
        """The outcome of a transaction that has no undecided slot, by versions higher than `after`. Raises Unavailable at the deadline."""
        recorded = (
            # check: refusals-are-found (after the next)
            self._on_record(transaction_id, self._names()) or self._put_away(transaction_id)
        )
        if recorded is not None and recorded.verdict.refusal is not None:
            return Outcome.refused(refusal_error(recorded.verdict.refusal, transaction_id))
        if recorded is not None:
            state = self._context.read_published()
            published = state is not None and recorded.verdict.version <= state[0].version
            return Outcome.committed(commit_of(recorded, published=published))
        found = self._in_log(transaction_id, after=after, deadline=deadline)
        return Outcome("unknown") if found is None else Outcome.committed(commit_of(found))

    def knows(self, transaction_id: str) -> bool:
        """Whether a verdict on a transaction exists, or may exist: the coordinator cannot be asked, or not in the time of this call."""
        limit = Deadline.after(bounded_s(_LOOKING_S), self._context.clock)
        try:
            return self._context.up_to_date(lambda: self.search(transaction_id, deadline=limit)).state != "unknown"
        except Unavailable:
            return True

    def refusal_of(self, transaction_id: str) -> Refusal | None:
        """Why a transaction was refused, if that is still on record."""
        # check: refusals-stay (without or self._put_away(transaction_id))
        recorded = self._on_record(transaction_id, (name for name in self._names() if name.refusals)) or self._put_away(transaction_id)
        return None if recorded is None else recorded.verdict.refusal

    def _names(self) -> list[VerdictName]:
        """The records, latest first."""
        return newest_first(self._context.coordination.children(self._context.tree.verdicts) or ())

    def _record(self, name: VerdictName) -> BatchRecord | None:
        node = self._context.coordination.read(self._context.tree.verdict(name))
        return None if node is None else BatchRecord.decode(node.data)

    def _recorded(self, record: BatchRecord, verdict: Verdict) -> Recorded:
        for plan in record.versions:
            if plan.version == verdict.version:
                return Recorded(verdict, plan.timestamp_ms)
        if verdict.refusal is not None:
            return Recorded(verdict, 0)
        # a repetition of something committed in an earlier batch
        return Recorded(verdict, self._timestamp(verdict.version))

    def _timestamp(self, version: int) -> int:
        try:
            info = self._log.info(version)
        except LogGap:  # it is committed, however long ago
            return 0
        return int(info.get("inCommitTimestamp", info.get("timestamp", 0)))

    def _in_log(self, transaction_id: str, *, after: int = -1, deadline: Deadline | None = None) -> Recorded | None:
        """Search the published log from its end down to `after`, the oldest version, or the time when the id was made."""
        state = self._context.read_published()
        version = -1 if state is None else state[0].version
        made = made_ms(transaction_id)
        while version > after:
            if deadline is not None and deadline.over:
                raise Unavailable(
                    f"the versions of {self._context.objects.location} above {version} do not have transaction {transaction_id}, and the "
                    "time given was over before those below were searched: ask again with a longer timeout_s",
                    transaction_id=transaction_id,
                    version=version,
                )
            try:
                winner = self._log.winner(version)
            except LogGap:
                return None
            ordinal = winner.ordinal_of(transaction_id)
            if ordinal is not None:
                return Recorded(Verdict(-1, transaction_id, version, ordinal), self._timestamp(version))
            # check: ids-are-looked-for-before-they-were-made
            # check: clocks-may-differ (without - CLOCKS_DIFFER_MS)
            if made is not None and winner.timestamp_ms is not None and winner.timestamp_ms < made - CLOCKS_DIFFER_MS:
                return None  # a version is not older than its transactions, and these were claimed before this one was begun
            version -= 1
        return None


# -- versions of several tables at one moment, determined by ZooKeeper's order of all changes --------------------------------


def versions_together(contexts: Sequence[TableContext], deadline: Deadline) -> list[int]:
    """The versions of one coordinator's tables as of one moment, with everything acknowledged before this call.

    Raises NotATable, TableDropped, CoordinatorUnavailable, SessionLost.
    """
    first = contexts[0]
    while True:
        versions: list[int] | None = None
        try:
            first.coordination.barrier()
            versions = _versions_together(first.coordination, contexts)
        except SessionLost:  # a read depends on no particular session
            if deadline.over:
                raise
        if versions is not None:
            return versions
        if deadline.over:
            raise CoordinatorUnavailable(f"verdict records of {len(contexts)} tables were removed while they were read; try again")
        first.clock.sleep(min(_PAUSE_S, deadline.left_s))


def _versions_together(session: CoordinationStore, contexts: Sequence[TableContext]) -> list[int] | None:
    """One try of `versions_together`; None if a table came back meanwhile, or this client slept so long that records were pruned.

    A record is made in the multi that moves the head, so its zxid is the moment of its versions. The chosen moment is the
    newest of the heads read. The records are listed after all heads, by the same session: so each list has everything up to
    that moment, and in each table the last record made by then names its version.
    """
    nodes, listed = session.look([context.tree.head for context in contexts], [context.tree.verdicts for context in contexts])
    heads: list[Head] = []
    histories: list[list[VerdictName]] = []
    for context, node, names in zip(contexts, nodes, listed, strict=True):
        if node is None:
            root, tombstone = whereabouts(session, context.tree)
            if tombstone is not None:
                raise gone_error(context.tree.location, tombstone)
            if root is not None:  # it left and came back
                return None
            raise NotATable(f"the coordinator knows no table at {context.tree.location}", location=context.tree.location)
        heads.append(Head.decode(node.data))
        history = _since(heads[-1], names or ())
        if history is None:
            return None
        histories.append(history)
    paths = [context.tree.verdict(name) for context, history in zip(contexts, histories, strict=True) for name in history]
    made = {node.path: node.created_zxid for node in session.read_many(paths) if node is not None}
    if len(made) < len(paths):
        return None
    times = [[made[context.tree.verdict(name)] for name in history] for context, history in zip(contexts, histories, strict=True)]
    moment = max([zxids[0] for zxids in times if zxids], default=0)
    versions: list[int] = []
    for head, history, zxids in zip(heads, histories, times, strict=True):
        # check: one-moment-of-several-heads (without if zxid <= moment)
        stood = [name.version for name, zxid in zip(history, zxids, strict=True) if zxid <= moment]
        versions.append(stood[-1] if stood else head.version)
    return versions


def _since(head: Head, names: Sequence[str]) -> list[VerdictName] | None:
    """The record that was made with the head, and those after it, in order; empty for a head made without a record.

    None if the head's own record is gone: the oldest are removed first.
    """
    position = (head.generation, head.slot, head.version)
    records = newest_first(names)[::-1]
    after = [name for name in records if (name.generation, name.slot, name.version) > position]
    before = records[: len(records) - len(after)]
    if not before:
        return None if after else []
    return [before[-1], *after]


def version_beside(gone_on: Sequence[tuple[TableContext, int]], other: TableContext) -> int | None:
    """The version of `other` while each of the tables that have changed since had its version; None if it is not known any more.

    A verdict record is made in the multi that ratifies, so its zxid is the moment of its versions. Only adjacent commits
    show the moment between them: records are pruned.
    """
    try:
        return _version_beside(gone_on, other)
    except SessionLost:  # a read depends on no particular session
        return _version_beside(gone_on, other)


def _version_beside(gone_on: Sequence[tuple[TableContext, int]], other: TableContext) -> int | None:
    ends: list[int] = []
    for context, version in gone_on:
        after = min((name for name in _records(context) if name.version > version), default=None)
        node = None if after is None else context.coordination.read(context.tree.verdict(after))
        # check: a-moment-that-is-known (without or _first_version(node) != version + 1)
        if node is None or _first_version(node) != version + 1:
            return None
        ends.append(node.created_zxid)
    state = other.read_head()
    if state is None or not ends:
        return None
    following: int | None = None
    for name in _records(other):
        node = other.coordination.read(other.tree.verdict(name))
        if node is None:
            continue
        # check: a-moment-before-all-ends (< min(ends) -> <= max(ends))
        if node.created_zxid < min(ends):
            is_next = name.version >= state[0].version if following is None else name.version + 1 == following
            return name.version if is_next else None
        following = _first_version(node) or following
    return None


def _first_version(record: Node) -> int | None:
    """The first version of a batch; None if all of it was refused, or only read."""
    return min((plan.version for plan in BatchRecord.decode(record.data).versions), default=None)


def _records(context: TableContext) -> list[VerdictName]:
    """The names of a table's records, latest first."""
    return newest_first(context.coordination.children(context.tree.verdicts) or ())
