"""A transaction in one of its tables: its slot, and the result of the last look."""

from __future__ import annotations

from dataclasses import replace

from ...storage.dataclass import dataclass
from ..nodes.context import TableState
from ..nodes.records import BatchRecord, Published
from ..publication.waiting import Patience
from ..rules.intent import Intent
from ..service.clock import Event
from .next_step import LegState, Phase
from .outcomes import Commit, commit_of
from .queue import Claim
from .table import CoordinatedTable


@dataclass(slots=True)
class Leg:
    """One leg of a transaction, as one client follows it.

    `claim` is None if it has no slot (any more). `intent` is None if it cannot be read (the slot will be refused), and in a
    transaction over several tables that another client filed. `alone`: the transaction has no other leg. `grouped`:
    it may share a version with others, as far as is known, and so waits until publication keeps up. `after`: its version here, if any,
    is higher.

    `state` and `published` were read last. `commit` is its commit here once it is known, and `verdict_read` says that its verdict was read.
    """

    table: CoordinatedTable
    transaction_id: str
    claim: Claim | None
    intent: Intent | None
    patience: Patience
    alone: bool
    grouped: bool
    after: int = -1
    state: TableState | None = None
    published: Published | None = None
    phase: Phase = Phase.QUEUED
    commit: Commit | None = None
    verdict_read: bool = False

    @staticmethod
    def of(
        table: CoordinatedTable,
        transaction_id: str,
        claim: Claim | None,
        intent: Intent | None = None,
        *,
        alone: bool = True,
        grouped: bool = False,
    ) -> Leg:
        """A leg whose patience begins now."""
        after = -1 if alone or intent is None else intent.validated_through
        return Leg(table, transaction_id, claim, intent, Patience(table.context.limits, table.context.clock), alone, grouped, after)

    @staticmethod
    def ratified(table: CoordinatedTable, commit: Commit) -> Leg:
        """The leg of a transaction that is committed but, as far as is known, not published."""
        leg = Leg.of(table, commit.transaction_id, None)
        leg.committed(commit)
        return leg

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def seen(self) -> LegState:
        """Its state as of the last look."""
        return LegState(self.phase, self.patience.left_s > 0, self.verdict_read)

    @property
    def is_published(self) -> bool:
        """Whether it needs nothing more."""
        return self.phase is Phase.PUBLISHED and self.verdict_read

    def look(self, wake: Event, *, until_published: bool, withdrawn: bool) -> None:
        """Read how far the table is.

        `wake` is set when publication moves and, if the caller does not wait `until_published`, when anything is decided.
        The head is read only if it can change the next step.
        """
        self.phase = self._phase(wake, until_published=until_published, withdrawn=withdrawn)
        if self.phase is Phase.PUBLISHED:
            self.published_here()

    def _phase(self, wake: Event, *, until_published: bool, withdrawn: bool) -> Phase:
        self.state = None
        if self.commit.published if self.commit is not None else self.claim is None:
            return Phase.PUBLISHED
        context, claim = self.table.context, self.claim
        found = context.read_published(wake.set)
        if found is None:
            return Phase.GONE
        published = self.published = found[0]
        self.patience.see(published)
        if self.commit is not None:
            return Phase.PUBLISHED if self._reached(self.commit, published) else Phase.DECIDED
        assert claim is not None
        if published.covers(claim.generation, claim.slot):
            return Phase.PUBLISHED
        if until_published and not withdrawn and self._only_waits(claim, published):
            return Phase.QUEUED
        if not until_published:
            context.read_head(wake.set)
        state = self.state = context.look()
        return Phase.GONE if state is None else self._by_head(claim, state)

    def _reached(self, commit: Commit, published: Published) -> bool:
        """Whether the commit is published, by its slot; by its version if it has no slot in this table."""
        if self.claim is None:
            return commit.version <= published.version
        return published.covers(self.claim.generation, self.claim.slot)

    def _only_waits(self, claim: Claim, published: Published) -> bool:
        """Whether reading the head cannot change anything yet: a grouped append waits until everything before it is published."""
        return self.grouped and not claim.is_next(published) and self.patience.left_s > 0

    def _by_head(self, claim: Claim, state: TableState) -> Phase:
        self.patience.see(state.head)
        if claim.is_decided(state.head):
            return Phase.DECIDED
        return Phase.NEXT if self._my_turn(claim, state) else Phase.QUEUED

    def _my_turn(self, claim: Claim, state: TableState) -> bool:
        """Whether to decide at once: this is the first undecided slot, and publication keeps up.

        Publishing sets the pace: a version of grouped appends waits until no other publication is in progress, so that the
        queue fills meanwhile; other versions may run a few ahead.
        """
        if not claim.is_first(state.head):
            return False
        if self.alone and self.intent is None:
            return False
        if self.grouped:
            return state.is_published
        return state.backlog < self.table.context.limits.backlog_versions_max

    # -- the verdict -------------------------------------------------------------------------------------------------

    def read_verdict(self) -> None:
        """Read the verdict of this table; `commit` stays None if no record has it. Raises the refusal."""
        if self.claim is not None:
            published = self.published if self.phase is Phase.PUBLISHED else None
            recorded = self.table.verdicts.find(self.claim, published, after=self.after)
            if recorded is not None or self.alone:
                self.commit = None if recorded is None else commit_of(recorded, published=self.phase is Phase.PUBLISHED)
                self.verdict_read = True
                return
        found = self.table.context.up_to_date(lambda: self.table.verdicts.search(self.transaction_id, after=self.after))
        if found.error is not None:
            raise found.error
        self.commit, self.verdict_read = found.commit, True

    def take_verdict(self, record: BatchRecord) -> None:
        """Take the verdict, if any, from the record of a batch that this client ratified. Raises the refusal."""
        recorded = self.table.verdicts.recorded_by(record, self.claim)
        if recorded is not None and recorded.verdict.transaction_id == self.transaction_id:
            self.committed(commit_of(recorded, published=False))

    def committed(self, commit: Commit) -> None:
        """Note the commit."""
        self.verdict_read, self.commit = True, commit

    def published_here(self) -> None:
        """Note that what came of it is published."""
        self.phase = Phase.PUBLISHED
        if self.commit is not None and not self.commit.published:
            self.commit = replace(self.commit, published=True)

    # -- acting ------------------------------------------------------------------------------------------------------

    def publish_pending(self) -> bool:
        """Publish what is ratified in the table, because patience is over; whether publication moved since the last look."""
        self.patience.used()
        return self.table.publisher.publish_pending() != self.published
