"""The outcome of a transaction: told by its verdict record, and later by the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import LogGap, SluiceError, Unavailable
from ..nodes.context import TableContext
from ..nodes.identity import made_ms
from ..nodes.layout import VerdictName
from ..nodes.records import BatchRecord, Published, Verdict
from ..rules.refusal import Refusal, forgotten, refusal_error
from ..service.clock import Deadline, bounded_s, require_time_left
from .claims import Claim
from .pruning import find_put_away
from .ratified_log import RatifiedLog

__all__ = ["Commit", "Outcome", "Verdicts", "settle"]


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed transaction: `version` and `ordinal` are its place in the log (the ID version).

    `timestamp` is the version's in-commit timestamp in milliseconds since the epoch (the time version), 0 where it was asked for
    after that version's file was cleaned out of the log. `published` is
    False while the version is ratified and not yet readable by other engines; `repeated` is True when this very
    transaction (or its application's one) had been committed before, and nothing was written again. It is about requests: where a
    reply was lost, the call whose own request had committed it may be told True; and of two calls that commit one plan at once, the one
    whose request was lost may find the other's, and be told False. The place in the log is the same for all. `commits` is how many
    commits the call made, where it is a compaction of very many files: this is the last of them.
    """

    version: int
    ordinal: int
    timestamp: int
    transaction_id: str
    published: bool = True
    repeated: bool = False
    commits: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a transaction: `state` is "committed" (see `commit`), "refused" (see `error`) or "unknown".

    "unknown": no trace of it. It was never filed, or it was refused longer ago than refusals are kept; in both cases
    it is not in the table. `commits` has the commit of each of its tables, by location, where all were asked (`sluice.outcome`).
    """

    state: str
    commit: Commit | None = None
    error: SluiceError | None = None
    commits: Mapping[str, Commit] = field(default_factory=dict)

    @staticmethod
    def committed(commit: Commit) -> Outcome:
        """Committed."""
        return Outcome("committed", commit=commit)

    @staticmethod
    def refused(error: SluiceError) -> Outcome:
        """Refused; `error` is what its owner was (or would have been) told."""
        return Outcome("refused", error=error)


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict together with the timestamp of the version it speaks of."""

    verdict: Verdict
    timestamp_ms: int


def settle(told: Told) -> Commit:
    """The commit that a verdict grants; raises the refusal."""
    verdict = told.verdict
    if verdict.refusal is not None:
        raise refusal_error(verdict.refusal, verdict.transaction_id)
    return Commit(verdict.version, verdict.ordinal, told.timestamp_ms, verdict.transaction_id, repeated=verdict.repeats)


CLOCKS_DIFFER_MS: Final = 24 * 3600 * 1000
"""By how much the clock that a transaction's id was made by may be ahead of the one that it was claimed by."""
_LOOKING_S: Final = 10.0
"""For how long a verdict is looked for when it is only to be known whether there is one."""


class Verdicts:
    """Finds verdicts of one table."""

    def __init__(self, context: TableContext, log: RatifiedLog) -> None:
        self._context = context
        self._log = log

    def published(self, claim: Claim, published: Published) -> Told:
        """The verdict on a slot that `published` covers: told by that itself where it was committed in the batch published last."""
        told = published.commit_of(claim.transaction_id)
        if told is not None and (published.generation, told[0]) == (claim.generation, claim.slot):
            slot, version, ordinal, timestamp_ms = told
            return Told(Verdict(slot, claim.transaction_id, version, ordinal), timestamp_ms)
        return self.of(claim, published.record)

    def of(self, claim: Claim, hint: str = "") -> Told:
        """The verdict on a decided slot; `hint` names the record that most probably holds it."""
        return self.find(claim, hint) or Told(_forgotten(claim), 0)

    def find(self, claim: Claim, hint: str = "", *, after: int = -1) -> Told | None:
        """The same, None where no record and no version after `after` tells it: it was refused long ago, or only read this table."""
        told = self._look(claim, hint, after)
        while told is None:  # the session that showed the decision may be over, and the next one's server behind
            session = self._context.coordination.session_id
            self._context.barrier()
            told = self._look(claim, hint, after)
            if told is None and session == self._context.coordination.session_id:
                if self._context.read_published() is None:
                    raise self._context.vanished()  # all of it was lost since the decision was seen: the log may have it
                return None
            require_time_left(f"the verdict on transaction {claim.transaction_id} could not be read")
        return told

    def _look(self, claim: Claim, hint: str, after: int) -> Told | None:
        probable = VerdictName.parse(hint)
        told = None if probable is None else self._in_record(probable, claim)
        if told is not None:
            return told
        wanted = (claim.generation, claim.slot)
        names = sorted(n for n in self._names() if (n.generation, n.slot) >= wanted)
        told = self._in_record(names[0], claim) if names else None
        if told is None:  # it may have come too late for its generation, and been decided in a later one
            told = self._on_record(claim.transaction_id, [n for n in names if n.generation > claim.generation])
        if told is None:
            told = self._put_away(claim.transaction_id)
        # where its record was pruned, which happens to published batches only, the log tells
        return told if told is not None else self._in_log(claim.transaction_id, after=after)

    def _on_record(self, transaction_id: str, names: Iterable[VerdictName]) -> Told | None:
        """The latest verdict on a transaction in these records, whatever slot it came from."""
        for name in sorted(names, reverse=True):
            record = self._record(name)
            verdict = next((v for v in record.verdicts if v.transaction_id == transaction_id), None) if record else None
            if record is not None and verdict is not None:
                return self._told(record, verdict)
        return None

    def _put_away(self, transaction_id: str) -> Told | None:
        """The verdict on a transaction that was put away. To be asked after the records, which go there meanwhile."""
        record = find_put_away(self._context, transaction_id)
        return None if record is None else self._told(record, record.verdicts[0])

    def told_by(self, record: BatchRecord, claim: Claim) -> Told | None:
        """The verdict on a slot in the record of its batch, or None when that is another batch's."""
        verdict = record.verdict_of(claim.slot) if record.generation == claim.generation else None
        if verdict is not None and verdict.transaction_id != claim.transaction_id:
            return Told(_forgotten(claim), 0)  # somebody made up a slot of this number, and it came first
        return None if verdict is None else self._told(record, verdict)

    def told_directly(self, record: BatchRecord) -> Told:
        """The one verdict of a batch that was ratified without a slot."""
        return self._told(record, record.verdicts[0])

    def _in_record(self, name: VerdictName, claim: Claim) -> Told | None:
        record = self._record(name)
        return None if record is None else self.told_by(record, claim)

    def search(self, transaction_id: str, *, after: int = -1, deadline: Deadline | None = None) -> Outcome:
        """The outcome of a transaction that has no undecided slot, looked for in versions higher than `after`.

        Raises Unavailable when the deadline passes before the log was searched.
        """
        told = self._on_record(transaction_id, self._names()) or self._put_away(transaction_id)
        if told is not None and told.verdict.refusal is not None:
            return Outcome.refused(refusal_error(told.verdict.refusal, transaction_id))
        if told is not None:
            state = self._context.read_published()
            published = state is not None and told.verdict.version <= state[0].version
            return Outcome.committed(replace(settle(told), published=published))
        found = self._in_log(transaction_id, after=after, deadline=deadline)
        return Outcome("unknown") if found is None else Outcome.committed(settle(found))

    def knows(self, transaction_id: str) -> bool:
        """Whether there is a verdict on a transaction, or may be: the coordinator cannot be asked, or not in the time of this call."""
        limit = Deadline.after(bounded_s(_LOOKING_S), self._context.clock)
        try:
            return self._context.up_to_date(lambda: self.search(transaction_id, deadline=limit)).state != "unknown"
        except Unavailable:
            return True

    def refusal_of(self, transaction_id: str) -> Refusal | None:
        """Why a transaction was refused, where that is still told."""
        told = self._on_record(transaction_id, (name for name in self._names() if name.refusals)) or self._put_away(transaction_id)
        return None if told is None else told.verdict.refusal

    def raise_refusal(self, transaction_id: str) -> None:
        """Raise what a transaction was refused for, where that is still told."""
        refusal = self.refusal_of(transaction_id)
        if refusal is not None:
            raise refusal_error(refusal, transaction_id)

    def _names(self) -> Iterator[VerdictName]:
        names = self._context.coordination.children(self._context.tree.verdicts) or ()
        return filter(None, map(VerdictName.parse, names))

    def _record(self, name: VerdictName) -> BatchRecord | None:
        node = self._context.coordination.read(self._context.tree.verdict(name))
        return None if node is None else BatchRecord.decode(node.data)

    def _told(self, record: BatchRecord, verdict: Verdict) -> Told:
        for plan in record.versions:
            if plan.version == verdict.version:
                return Told(verdict, plan.timestamp_ms)
        if verdict.refusal is not None:
            return Told(verdict, 0)
        # a repetition of something committed in an earlier batch
        return Told(verdict, self._timestamp(verdict.version))

    def _timestamp(self, version: int) -> int:
        try:
            info = self._log.info(version)
        except LogGap:  # it is committed, however long ago
            return 0
        return int(info.get("inCommitTimestamp", info.get("timestamp", 0)))

    def _in_log(self, transaction_id: str, *, after: int = -1, deadline: Deadline | None = None) -> Told | None:
        """Search the published log from its end down to `after`, to where the log was cleaned up, or to before the id was made."""
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
                return Told(Verdict(-1, transaction_id, version, ordinal), self._timestamp(version))
            if made is not None and winner.timestamp_ms is not None and winner.timestamp_ms < made - CLOCKS_DIFFER_MS:
                return None  # a version is not older than its transactions, and these were claimed before this one was begun
            version -= 1
        return None


def _forgotten(claim: Claim) -> Verdict:
    return Verdict(claim.slot, claim.transaction_id, refusal=forgotten(claim.transaction_id))
