"""A transaction in one of its tables, and the next step of a transaction: one pure function for one table and for several.

A transaction has a leg in each of its tables. The driver looks at every leg, asks `next_step`, performs the answer, and looks again::

            +----------------------------- look at every leg <------------------------------+
            v                                                                               |
        next_step --> WAIT          nothing to do until something moves, or patience ends --+
                  --> Decide        its turn has come, or others did not decide in time ----+
                  --> Publish       others did not publish in time -------------------------+
                  --> ReadVerdicts  a table has a verdict: read it -------------------------+
                  --> FINISHED      the outcome is known: done
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from ...storage.dataclass import dataclass
from ..nodes.context import TableState
from ..nodes.records import BatchRecord, Published
from ..publication.waiting import Patience
from ..rules.intent import Intent
from ..service.clock import Event
from .outcomes import Claim, Commit, commit_of
from .table import CoordinatedTable


class Phase(Enum):
    """How far a transaction is in one of its tables."""

    QUEUED = "queued"
    """Its slot is undecided, and its owner leaves the decision to others for now."""
    NEXT = "next"
    """Its slot is the first undecided one, and publication keeps up: its owner decides."""
    DECIDED = "decided"
    """The table has a verdict on it that is not published yet."""
    PUBLISHED = "published"
    """The table has a verdict on it, and has published the result."""
    GONE = "gone"
    """The coordinator has no such table (any more)."""


_UNDECIDED: Final = frozenset({Phase.QUEUED, Phase.NEXT, Phase.GONE})


class LegState(NamedTuple):
    """One leg as the last look showed it."""

    phase: Phase
    patient: bool = True
    """Whether others still have time to do their work."""
    verdict_read: bool = False


class Progress(NamedTuple):
    """The state of the whole transaction: which verdict it has, if any, and what is to be reached."""

    committed: bool = False
    refused: bool = False
    until_published: bool = True
    """Whether its caller waits for publication."""
    withdrawn: bool = False
    """Whether its owner wants it refused if it is undecided."""
    home: int | None = None
    """The leg whose slot is decided in any case before the end."""


class Rest(Enum):
    """Nothing is to be done."""

    WAIT = "wait"
    """Wait until a table moves, or until patience ends."""
    FINISHED = "finished"
    """Return the outcome to the caller."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Decide the queue of this leg's table; `overdue` legs used up their patience waiting for that."""

    leg: int
    overdue: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish what is ratified in the tables of these legs."""

    legs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadVerdicts:
    """Read the verdicts in the tables of these legs."""

    legs: tuple[int, ...]


Step: TypeAlias = Rest | Decide | Publish | ReadVerdicts
WAIT, FINISHED = Rest.WAIT, Rest.FINISHED


def next_step(progress: Progress, legs: Sequence[LegState]) -> Step:
    """The next step of a transaction, from what was seen of its legs. Pure."""
    if progress.refused:
        home = progress.home
        return Decide(home) if home is not None and legs[home].phase in (Phase.QUEUED, Phase.NEXT) else FINISHED
    if progress.committed:
        pending = [i for i, leg in enumerate(legs) if leg.phase is not Phase.PUBLISHED]
        # check: answered-when-published (always)
        if not pending or not progress.until_published:
            return FINISHED
        overdue = tuple([i for i in pending if not legs[i].patient])
        # check: patience-publishes (overdue else -> False else)
        return Publish(overdue) if overdue else WAIT
    unread = tuple([i for i, leg in enumerate(legs) if leg.phase in (Phase.DECIDED, Phase.PUBLISHED) and not leg.verdict_read])
    if unread:
        return ReadVerdicts(unread)
    # the undecided legs are decided by their owner in its turn, by any client after a patience (I8)
    undecided = [i for i, leg in enumerate(legs) if leg.phase in _UNDECIDED]
    overdue = tuple([i for i in undecided if not legs[i].patient])
    queued = [i for i in undecided if legs[i].phase in (Phase.QUEUED, Phase.NEXT)]
    mine = [i for i in queued if legs[i].phase is Phase.NEXT]
    # check: patience-decides (without or overdue)
    if queued and (progress.withdrawn or overdue or mine == undecided):
        return Decide(mine[0] if mine else queued[0], overdue)
    return WAIT


@dataclass(slots=True)
class Leg:
    """One leg of a transaction, as one client follows it.

    `claim` is None if it has no slot (any more). `intent` is None if it cannot be read (the slot will be refused), and in a
    transaction over several tables that another client filed. `alone`: the transaction has no other leg. `grouped`:
    it may share a version with others, as far as is known, and so waits until publication keeps up. `commit` is its commit here once it
    is known, and `verdict_read` says that its verdict was read. Its `patience` begins now; `state` and `published` were read last.
    """

    table: CoordinatedTable
    transaction_id: str
    claim: Claim | None
    intent: Intent | None = None
    alone: bool = True
    grouped: bool = False
    commit: Commit | None = None
    verdict_read: bool = False
    patience: Patience = field(init=False)
    state: TableState | None = None
    published: Published | None = None
    phase: Phase = Phase.QUEUED

    def __post_init__(self) -> None:
        self.patience = Patience(self.table.context.limits, self.table.context.clock)

    @property
    def seen(self) -> LegState:
        """Its state as of the last look."""
        return LegState(self.phase, self.patience.left_s > 0, self.verdict_read)

    def look(self, wake: Event, progress: Progress) -> None:
        """Read how far the table is, and its head only if that can change the next step.

        `wake` is set when publication moves and, if the caller does not wait until it is published, when anything is decided.
        """
        self.phase = self._phase(wake, progress)
        if self.phase is Phase.PUBLISHED:
            self.published_here()

    def _phase(self, wake: Event, progress: Progress) -> Phase:
        self.state = None
        if self.commit.published if self.commit is not None else self.claim is None:
            return Phase.PUBLISHED
        context, claim = self.table.context, self.claim
        read = context.read_published(wake.set)
        if read is None:
            return Phase.GONE
        published = self.published = read[0]
        self.patience.see(published)
        if claim is None:  # a commit without a slot is published by its version
            assert self.commit is not None
            return Phase.PUBLISHED if self.commit.version <= published.version else Phase.DECIDED
        if published.covers(claim.generation, claim.slot):
            return Phase.PUBLISHED
        if self.commit is not None:
            return Phase.DECIDED
        if not progress.until_published:
            context.read_head(wake.set)
        # a grouped append waits until everything before it is published: the head cannot change anything yet
        elif (
            not progress.withdrawn and self.grouped and not published.covers(claim.generation, claim.slot - 1) and self.patience.left_s > 0
        ):
            return Phase.QUEUED
        state = self.state = context.look()
        if state is None:
            return Phase.GONE
        self.patience.see(state.head)
        if claim.is_decided(state.head):
            return Phase.DECIDED
        if not claim.is_first(state.head) or (self.alone and self.intent is None):
            return Phase.QUEUED
        # Publishing sets the pace: a version of grouped appends waits until no other publication is in progress, so that the
        # queue fills meanwhile; other versions may run a few ahead.
        keeps_up = state.is_published if self.grouped else state.backlog < context.limits.backlog_versions_max
        return Phase.NEXT if keeps_up else Phase.QUEUED

    def read_verdict(self) -> None:
        """Read the verdict of this table; `commit` stays None if no record has it. Raises the refusal."""
        after = -1 if self.alone or self.intent is None else self.intent.validated_through
        if self.claim is not None:
            published = self.published if self.phase is Phase.PUBLISHED else None
            recorded = self.table.verdicts.find(self.claim, published, after=after)
            if recorded is not None or self.alone:
                self.commit = None if recorded is None else commit_of(recorded, published=self.phase is Phase.PUBLISHED)
                self.verdict_read = True
                return
        outcome = self.table.context.up_to_date(lambda: self.table.verdicts.search(self.transaction_id, after=after))
        if outcome.error is not None:
            raise outcome.error
        self.commit, self.verdict_read = outcome.commit, True

    def take_verdict(self, record: BatchRecord) -> None:
        """Take the verdict, if any, from the record of a batch that this client ratified. Raises the refusal."""
        recorded = self.table.verdicts.recorded_by(record, self.claim)
        if recorded is not None and recorded.verdict.transaction_id == self.transaction_id:
            self.commit, self.verdict_read = commit_of(recorded, published=False), True

    def published_here(self) -> None:
        """Note that what came of it is published."""
        self.phase = Phase.PUBLISHED
        if self.commit is not None and not self.commit.published:
            self.commit = replace(self.commit, published=True)

    def publish_pending(self) -> bool:
        """Publish what is ratified in the table, because patience is over; whether publication moved since the last look."""
        self.patience.used()
        return self.table.publisher.publish_pending() != self.published
