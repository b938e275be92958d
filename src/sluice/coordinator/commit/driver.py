"""The driver: follows a transaction from its slots to its outcome, in one table or several.

::

              file_intents               decide + ratify              put <v>.json
    staged --------------> intent filed ----------------> ratified ----------------> published ---> acknowledged
                                                             |                           |
                                                             | refused: NotCommitted     | trouble here is never a failure (I12):
                                                             v                           v  "committed, publication pending"

A waiting owner looks when publication moves, and when its patience ends. The owner of the first undecided slot decides the
queue at once; any other client may, after a patience: so a slow, paused or dead client delays others only briefly (I8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from ...storage.errors import SluiceError
from ..errors import NotCommitted, OutcomeUnknown, UnknownFormat
from ..nodes.context import TableState
from ..rules.refusal import forgotten, refusal_error
from ..service.clock import Deadline, bounded_s
from .decider import Decider, QueueView, Withdrawal
from .leg import Leg
from .next_step import FINISHED, Decide, Phase, Progress, Publish, ReadVerdicts, Step, next_step
from .outcomes import Commit
from .ratification import Batch
from .table import TROUBLE

_log = logging.getLogger(__name__)
_PAUSE_AFTER_TROUBLE_S = 0.2


class CommitLoop:
    """One transaction on its way, from its slots to its outcome in every table."""

    def __init__(
        self,
        decider: Decider,
        legs: Sequence[Leg],
        deadline: Deadline,
        *,
        ack: str = "published",
        withdrawal: Withdrawal | None = None,
        home: int | None = None,
    ) -> None:
        """With `withdrawal` it is refused for that reason if it is undecided.

        `home` is the leg whose slot is decided, too, after another table refused the transaction.
        """
        self._decider = decider
        self._legs = legs
        self._until_published = ack != "ratified"
        self._withdrawal = withdrawal
        self._home = home
        self._clock = legs[0].table.context.clock
        self._wake = self._clock.event()
        self._limit = deadline
        self._committed = False
        self._refusal: NotCommitted | None = None
        self._unknown: UnknownFormat | None = None
        self._conclude()

    def run(self, ratified: Sequence[Batch] = ()) -> dict[str, Commit]:
        """Look, step, look again, until it is decided and, with `ack` = "published", published; its commits by location.

        `ratified` are batches that decided it already, and that this client has to publish. Raises the refusal;
        OutcomeUnknown if the deadline passes before the decision.
        """
        self._take(ratified)
        while not (self._known and self._next() is FINISHED):
            self._wake.clear()
            known, acted = self._known, False
            try:
                step = self._look()
                if step is not FINISHED:
                    acted = self._perform(step)
            # check: trouble-with-deciding-is-waited-out
            except TROUBLE as trouble:
                self._note(trouble)
                self._wake.wait(min(_PAUSE_AFTER_TROUBLE_S, self._limit.left_s))
            if self._limit.over and self._known == known:
                self._give_up()
                break
            if not acted:
                left = min((leg.patience.left_s for leg in self._legs if not leg.is_published), default=0.0)
                self._wake.wait(min(max(left, 0.001), self._limit.left_s))
        refusal, self._refusal = self._refusal, None  # no circle of references: it would hold the transaction until the next collection
        try:
            if refusal is not None:
                raise refusal
        finally:
            del refusal
        return {leg.table.location: leg.commit for leg in self._legs if leg.commit is not None}

    @property
    def _known(self) -> bool:
        return self._committed or self._refusal is not None

    def _look(self) -> Step:
        """Look at every leg; returns the next step."""
        for leg in self._legs:
            leg.look(self._wake, until_published=self._until_published, withdrawn=self._withdrawal is not None)
        if all(leg.phase is Phase.GONE for leg in self._legs):
            raise self._legs[0].table.context.missing_error()
        return self._next()

    def _next(self) -> Step:
        """The next step, from what is known of the legs."""
        progress = Progress(
            committed=self._committed,
            refused=self._refusal is not None,
            until_published=self._until_published,
            withdrawn=self._withdrawal is not None,
            home=self._home,
        )
        return next_step(progress, [leg.seen for leg in self._legs])

    def _perform(self, step: Step) -> bool:
        """Perform a step; returns whether it may have changed what the next look shows."""
        if isinstance(step, ReadVerdicts):
            self._take_verdicts(*(self._legs[i].read_verdict for i in step.legs))
        elif isinstance(step, Publish):
            for i in step.legs:
                self._legs[i].publish_pending()
        elif isinstance(step, Decide):
            return self._decide(step)
        else:
            return False
        return True

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _decide(self, step: Decide) -> bool:
        leg = self._legs[step.leg]
        for i in step.overdue:
            self._legs[i].patience.used()
        if step.leg in step.overdue and self._moves(leg):
            return True
        state: TableState | None = leg.state or leg.table.context.look()
        batches = () if state is None else self._decider.decide(QueueView(leg.table, state), self._withdrawal)
        self._take(batches)
        return bool(batches)

    def _moves(self, leg: Leg) -> bool:
        """Publish what its table waits for; whether that moved. Trouble with it prevents no decision: deciding keeps to the room left."""
        try:
            return leg.publish_pending()
        except UnknownFormat:  # a client of the newer release goes on, and this one neither publishes nor decides
            raise
        # check: trouble-with-publishing-is-no-obstacle
        except TROUBLE as trouble:
            self._note(trouble)
            return False

    def _take(self, batches: Sequence[Batch]) -> None:
        """Take the verdicts from batches that this client ratified, and publish them.

        Trouble with publishing is left to the waiting for publication (I12).
        """
        for batch in batches:
            leg = next((each for each in self._legs if each.table is batch.table), None)
            if leg is not None:
                leg.table.alone = len(batch.record.verdicts) == 1
                self._take_verdicts(partial(leg.take_verdict, batch.record))
                # check: answered-when-published (without and not self._until_published)
            if leg is not None and leg.commit is not None and not self._until_published:
                batch.table.background.submit(batch.publish)
                continue
            try:
                if batch.publish() and leg is not None and leg.commit is not None:
                    leg.published_here()
            # check: trouble-with-publishing-is-no-failure
            except TROUBLE as trouble:
                self._note(trouble)

    # -- the outcome -------------------------------------------------------------------------------------------------

    def _take_verdicts(self, *verdicts: Callable[[], object]) -> None:
        """Take verdicts; the first refusal counts."""
        try:
            for each in verdicts:
                each()
        except NotCommitted as refusal:
            self._refusal = self._refusal or refusal
        self._conclude()

    def _conclude(self) -> None:
        """Determine the outcome from the verdicts once those of all tables were read.

        If a table has no record of the decision, the other tables' answer applies (I11). That happens in a table that was
        only read, after the record of its batch was pruned: no version in its log has it.
        """
        if self._known or not all(leg.verdict_read for leg in self._legs):
            return
        lead = self._legs[0]
        # check: forgotten-where-it-was-read (any -> all)
        if any(leg.commit is not None for leg in self._legs):
            self._committed = True
            self._limit = Deadline.after(bounded_s(lead.table.context.limits.publication_wait_s), self._clock)
        else:
            self._refusal = refusal_error(forgotten(lead.transaction_id), lead.transaction_id)

    # -- trouble -----------------------------------------------------------------------------------------------------

    def _note(self, trouble: SluiceError) -> None:
        _log.info("transaction %s waits: %s", self._legs[0].transaction_id, trouble)
        self._unknown = trouble if isinstance(trouble, UnknownFormat) else None

    def _give_up(self) -> None:
        """Return to the caller at the end of the time: what is ratified is committed. Raises OutcomeUnknown for the rest."""
        transaction_id = self._legs[0].transaction_id
        if self._committed:
            versions = {leg.table.location: leg.commit.version for leg in self._legs if leg.commit is not None}
            _log.warning("transaction %s is committed as %s; publication is pending", transaction_id, versions)
            return
        unknown, self._unknown = self._unknown, None
        why = f": {unknown.message}" if unknown is not None else ""
        raise OutcomeUnknown(
            f"transaction {transaction_id} was filed and will be decided, but not within the time given{why}; ask outcome(transaction_id)",
            transaction_id=transaction_id,
            stage="intent",
        ) from unknown
