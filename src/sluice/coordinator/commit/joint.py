"""Transactions over several tables, as one client runs them: filed in all tables at once, decided in all or none, seen published.

Each table goes on as always; what is shared is one GUID, one multi that makes all the slots, and one that moves all the
heads. A transaction of one table meets this only where such a slot stands before its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, InvariantBroken, NotATable, Unavailable
from ..errors import CoordinatorUnavailable, NotCommitted, UnknownFormat
from ..nodes.layout import SlotName
from ..nodes.records import Head, Published
from ..rules.intent import Intent
from ..rules.joint_tables import Joint, JointTable
from ..rules.refusal import Refusal, forgotten, refusal_error
from ..service.clock import Deadline, Event, bounded_s
from ..service.store import ApplyRefused, Create, Op, ReplyLost
from .claims import Claim, admitting, find_slot, in_doubt, require_time, too_late, undecided_in_time
from .decision import Queued
from .failure_points import point
from .joint_decide import JointDecider, JointSlot, Neighbours
from .joint_resolve import closed
from .outcomes import Commit, Outcome, settle
from .patience import Patience

if TYPE_CHECKING:
    from .committer import Committer

__all__ = ["Joints", "naming"]

_log = logging.getLogger(__name__)
_PAUSE_S: Final = 0.1
_PAUSE_AFTER_TROUBLE_S: Final = 0.2


@dataclass(slots=True)
class _Leg:
    """A transaction in one of its tables, as seen last. `claim` is None where its slot is gone: it was decided and published.

    Its version there, if it has one, is higher than `after`.
    """

    location: str
    committer: Committer
    claim: Claim | None
    patience: Patience
    after: int = -1
    head: Head | None = None
    published: Published | None = None
    too_late: bool = False

    def look(self, wake: Event, *, at_heads: bool) -> None:
        """Read how far its table is; `wake` is set when publication moves, and with `at_heads` when anything is decided."""
        if self.claim is None:
            return
        context = self.committer.context
        published, head = context.read_published(wake.set), context.read_head(wake.set if at_heads else None)
        if published is None or head is None:
            self.head = self.published = None
            return
        self.published, self.head = published[0], head[0]
        self.patience.see(self.published)
        self.patience.see(self.head)
        claim = self.claim
        if self.published.covers(claim.generation, claim.slot) and self.published.generation != claim.generation:
            self.too_late = context.coordination.read(claim.path(context.tree)) is not None

    @property
    def gone(self) -> bool:
        """Whether the coordinator does not have the table any more."""
        return self.head is None

    @property
    def is_queued(self) -> bool:
        """Whether its slot is among those that are yet to be decided here."""
        if self.claim is None or self.head is None:
            return False
        return self.head.generation <= self.claim.generation and not self.claim.is_decided(self.head)

    @property
    def is_published(self) -> bool:
        """Whether it was decided here and nothing more is to be done for it."""
        if self.claim is None or self.published is None:
            return self.claim is None
        return not self.too_late and self.published.covers(self.claim.generation, self.claim.slot)

    @property
    def is_decided(self) -> bool:
        """Whether the verdict on it stands here."""
        return self.is_published or (self.claim is not None and self.head is not None and self.claim.is_decided(self.head))

    @property
    def is_closed(self) -> bool:
        """Whether its generation is over: when that is published, it shows whether it was decided or came too late."""
        return self.claim is not None and self.head is not None and self.claim.generation < self.head.generation

    @property
    def may_be_next(self) -> bool:
        """Whether it is the first undecided one here, and publication keeps up."""
        if self.claim is None or self.head is None or self.published is None:
            return False
        backlog = self.head.version - self.published.version
        return self.claim.is_first(self.head) and backlog < self.committer.context.limits.backlog_versions_max

    def commit(self, transaction_id: str) -> Commit | None:
        """The commit of a transaction that is decided here, published or not; None where nothing tells it. Raises the refusal."""
        if self.claim is None:
            return self.on_record(transaction_id)
        told = self.committer.verdicts.find(self.claim, after=self.after)
        return None if told is None else replace(settle(told), published=self.is_published)

    def on_record(self, transaction_id: str) -> Commit | None:
        """The commit of a transaction, whatever slot it came from. Raises the refusal."""
        outcome = self.committer.verdicts.search(transaction_id, after=self.after)
        if outcome.error is not None:
            raise outcome.error
        return outcome.commit


@contextmanager
def naming(location: str) -> Iterator[None]:
    """Whatever refuses a transaction in the block names this table."""
    try:
        yield
    except NotCommitted as refusal:
        facts = {**refusal.details.get("facts", {}), "table": location}
        raise type(refusal)(f"{location}: {refusal.message}", **{**refusal.details, "facts": facts}) from refusal


class Joints:
    """What a committer does about transactions over several tables. Safe for several threads."""

    def __init__(self, lead: Committer) -> None:
        self._lead = lead
        self._neighbours = Neighbours(lead)
        self._decider = JointDecider(self._neighbours)

    def decide(self, first: Queued, generation: int, deadline: Deadline) -> None:
        """Decide a transaction over several tables that is the first undecided one here, and publish what comes of it."""
        name = SlotName(first.slot, first.transaction_id)
        self._decider.decide(JointSlot(self._lead.context.tree.location, generation, name), deadline)

    def commit(
        self, committers: Sequence[Committer], intents: Mapping[str, Intent], deadline: Deadline, *, ack: str = "published"
    ) -> dict[str, Commit]:
        """Get one verdict on the intents of one transaction, by location, and with `ack` = "published" see all of it published.

        The committers share a session. Raises the conflict, which names its table (`facts["table"]`), LeaseHeld, LeaseLost or Refused;
        CoordinatorUnavailable when no slots could be made; OutcomeUnknown when the deadline passed after they were.
        """
        self._neighbours.know(committers)
        for location, intent in sorted(intents.items()):
            with naming(location):
                self._neighbours.at(location).publisher.neighbourhood.require_sound()
                self._neighbours.at(location).leases.require_free(intent)
        legs = self._claim(intents, deadline)
        for leg in legs:
            leg.after = intents[leg.location].validated_through
        commits = self._see_through(legs, next(iter(intents.values())).transaction_id, deadline, ack)
        for location, commit in commits.items():
            committer = self._neighbours.at(location)
            committer.last_committed = max(committer.last_committed, commit.version)
            if not commit.published:
                committer.background.note(commit.version)
        point("before-ack")
        return commits

    def outcome(self, intent: Intent, deadline: Deadline, *, against: Refusal | None = None) -> Outcome:
        """What became of a transaction that has a slot here: what it says of its tables is looked after, and decided now.

        With `against` it is refused for that where it is undecided. Raises the refusal, when its slot here is decided, too;
        OutcomeUnknown.
        """
        assert intent.joint is not None
        legs = self._find(intent.transaction_id, intent.joint.locations)
        try:
            commits = self._see_through(legs, intent.transaction_id, deadline, "published", against=against)
        except NotCommitted:  # as soon as one table refused it: here its slot may wait yet, and others before it
            self._decide_here(legs, intent.transaction_id, deadline)
            raise
        here = commits.get(self._lead.context.tree.location)
        return Outcome("unknown") if here is None else Outcome.committed(here)

    # -- filing ------------------------------------------------------------------------------------------------------

    def _claim(self, intents: Mapping[str, Intent], deadline: Deadline) -> list[_Leg]:
        """File the intents in all tables with one multi; like `claim_slot`, it never sends again blindly."""
        transaction_id = next(iter(intents.values())).transaction_id
        lead = self._lead.context
        again = any(intent.filed_again for intent in intents.values())
        doubt: Callable[[str], bool] | None = None
        point("before-claim")
        while True:
            require_time(transaction_id, deadline, doubt)
            try:
                generations = {location: self._generation(location) for location in sorted(intents)}
                results = lead.coordination.apply(self._filing(intents, generations, filed_again=again))
                point("after-claim")
                return self._legs(generations, [str(r) for r in results[-len(intents) :]], transaction_id)
            except ReplyLost:
                found = lead.after_lost_reply(transaction_id, lambda: self._filed(transaction_id, sorted(intents)))
                if any(leg.claim is not None for leg in found):
                    point("after-claim")
                    return found
                again, doubt = True, partial(self._known, list(intents))  # or all is published already: the decision will look for that
            except ApplyRefused as refused:  # unless its owner was away, a generation was closed and removed
                lead.after_refusal(refused, transaction_id)
                for location in intents:
                    self._neighbours.at(location).context.recognise_again(getattr(refused.cause, "path", ""))
                lead.clock.sleep(min(_PAUSE_S, deadline.left_s))
            except CoordinatorUnavailable as error:  # nothing was sent
                if deadline.over:
                    raise (in_doubt(transaction_id) if doubt else too_late(transaction_id, str(error))) from error
                lead.clock.sleep(min(_PAUSE_S, deadline.left_s))

    def _known(self, locations: Sequence[str], transaction_id: str) -> bool:
        """Whether there is a verdict on a transaction, or may be; a table that was only read does not keep it."""
        return any(self._neighbours.at(location).verdicts.knows(transaction_id) for location in locations)

    def _generation(self, location: str) -> int:
        context = self._neighbours.at(location).context
        state = context.read_head()
        if state is None:
            raise NotATable(f"the coordinator knows no table at {location} (any more)", location=location)
        return admitting(context, state[0]).generation

    def _filing(self, intents: Mapping[str, Intent], generations: Mapping[str, int], *, filed_again: bool) -> list[Op]:
        """All slots, or none, while the trees and the transaction's owner stand."""
        joint = Joint.checked([JointTable(location, generation) for location, generation in generations.items()])
        standing: list[Op] = []
        slots: list[Op] = []
        for location, generation in generations.items():
            intent = replace(intents[location], joint=joint, filed_again=filed_again)
            context = self._neighbours.at(location).context
            standing += context.standing(None if slots else intent.transaction_id)
            slots.append(Create(context.tree.slot_prefix(generation, intent.transaction_id), intent.encode(), sequential=True))
        return [*standing, *slots]

    def _legs(self, generations: Mapping[str, int], paths: Sequence[str], transaction_id: str) -> list[_Leg]:
        claims: dict[str, Claim | None] = {}
        for (location, generation), path in zip(generations.items(), paths, strict=True):
            name = SlotName.parse(path.rpartition("/")[2])
            if name is None:
                raise InvariantBroken(f"the coordinator made a slot with the name {path}")
            claims[location] = Claim(transaction_id, generation, name.sequence)
        return [self._leg(location, claim) for location, claim in claims.items()]

    def _leg(self, location: str, claim: Claim | None) -> _Leg:
        committer = self._neighbours.at(location)
        return _Leg(location, committer, claim, Patience(committer.context.limits, committer.context.clock))

    def _find(self, transaction_id: str, locations: Sequence[str]) -> list[_Leg]:
        """The transaction's slots, as far as they stand."""
        found: list[_Leg] = []
        for location in locations:
            context = self._neighbours.at(location).context
            state = context.read_head()
            found.append(self._leg(location, None if state is None else find_slot(context, transaction_id, state[0])))
        return found

    def _filed(self, transaction_id: str, locations: Sequence[str]) -> list[_Leg]:
        """The slots that a request made whose reply was lost. Raises what refused the transaction, if that came first."""
        found = self._find(transaction_id, locations)
        if all(leg.claim is None for leg in found):
            for leg in found:
                leg.committer.verdicts.raise_refusal(transaction_id)
        return found

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _see_through(
        self, legs: Sequence[_Leg], transaction_id: str, deadline: Deadline, ack: str, *, against: Refusal | None = None
    ) -> dict[str, Commit]:
        """See a transaction decided and, unless `ack` is "ratified", published in all its tables. Raises the refusal, OutcomeUnknown."""
        clock = self._lead.context.clock
        wake = clock.event()
        ratified: dict[str, Commit] | None = None
        unknown: UnknownFormat | None = None
        pending = Deadline.after(bounded_s(self._lead.context.limits.publication_wait_s), clock)
        while True:
            wake.clear()
            acted = False
            try:
                for leg in legs:
                    leg.look(wake, at_heads=ack == "ratified")
                decided = self._commits(legs, transaction_id)
                if decided is not None:
                    if ratified is None:
                        pending = Deadline.after(bounded_s(self._lead.context.limits.publication_wait_s), clock)
                    ratified = decided
                    if ack == "ratified" or all(commit.published for commit in ratified.values()):
                        return ratified
                acted = self._act(legs, deadline, ratified=ratified is not None, against=against)
            except (Unavailable, InvalidRequest) as trouble:
                unknown = trouble if isinstance(trouble, UnknownFormat) else None
                _log.info("transaction %s waits: %s", transaction_id, trouble)
                wake.wait(_PAUSE_AFTER_TROUBLE_S)
            limit = pending if ratified is not None else deadline
            if limit.over:
                return self._give_up(transaction_id, ratified, unknown)
            if acted:
                continue
            left = min((leg.patience.left_s for leg in legs if not leg.is_published), default=_PAUSE_S)
            wake.wait(min(max(left, 0.001), limit.left_s))

    def _commits(self, legs: Sequence[_Leg], transaction_id: str) -> dict[str, Commit] | None:
        """The commit in each table that tells of it, None while it is undecided. Raises the refusal as soon as one table gave it.

        Where nothing more comes and nothing tells how it was decided, it is as the others say (I11). So it is in a table that was
        only read, when the record of its batch was pruned: there is no version of it in that log. So it is where a slot came too
        late after the transaction was committed from another one.
        """
        late = [leg for leg in legs if leg.too_late]
        decided = [leg for leg in legs if leg.is_decided]
        told = {leg.location: leg.commit(transaction_id) for leg in decided}
        if len(late) + len(decided) < len(legs):
            return None
        for leg in legs:
            if told.get(leg.location) is None:  # nor on the word of a server that is behind
                told[leg.location] = leg.committer.context.up_to_date(partial(leg.on_record, transaction_id))
        commits = {location: commit for location, commit in told.items() if commit is not None}
        if not commits and late:  # elsewhere it was refused for that, which is not on record any more
            raise refusal_error(closed(late[0].location), transaction_id)
        if not commits and any(leg.claim is not None for leg in legs):
            raise refusal_error(forgotten(transaction_id), transaction_id)
        return commits or None

    def _act(self, legs: Sequence[_Leg], deadline: Deadline, *, ratified: bool, against: Refusal | None = None) -> bool:
        """Do what it is time for, one's own work at once and that of others after a patience; whether anything was done."""
        impatient = [leg for leg in legs if not leg.is_published and leg.patience.left_s == 0]
        told_by_publication = [leg for leg in impatient if ratified or leg.is_closed]
        for leg in told_by_publication:
            leg.committer.publisher.publish_pending()
            leg.patience.used()
        if ratified or told_by_publication:
            return bool(told_by_publication)
        for leg in impatient:  # also where nothing can be done, as while the coordinator's data are lost
            leg.patience.used()
        open_ones = [leg for leg in legs if leg.claim is not None and not leg.is_decided and not leg.too_late and not leg.gone]
        if not open_ones or not (against is not None or impatient or all(leg.may_be_next for leg in open_ones)):
            return False
        leg = next((each for each in open_ones if each.may_be_next), open_ones[0])
        assert leg.claim is not None
        name = SlotName(leg.claim.slot, leg.claim.transaction_id)
        self._decider.decide(JointSlot(leg.location, leg.claim.generation, name), deadline, against=against)
        return True

    def _decide_here(self, legs: Sequence[_Leg], transaction_id: str, deadline: Deadline) -> None:
        """See the slot in this table decided of a transaction that another table refused. Raises OutcomeUnknown.

        Who reads "serial" here waits for all that is queued, and the transaction's files are no garbage while it is undecided.
        """
        clock = self._lead.context.clock
        leg = next(each for each in legs if each.location == self._lead.context.tree.location)
        while leg.is_queued and leg.claim is not None:
            name = SlotName(leg.claim.slot, transaction_id)
            try:
                self._decider.decide(JointSlot(leg.location, leg.claim.generation, name), deadline)
                leg.look(clock.event(), at_heads=False)
            except (Unavailable, InvalidRequest) as trouble:
                _log.info("transaction %s waits to be refused in %s: %s", transaction_id, leg.location, trouble)
            if leg.is_queued and deadline.over:
                self._give_up(transaction_id, None)
            if leg.is_queued:
                clock.sleep(min(_PAUSE_S, deadline.left_s))

    def _give_up(self, transaction_id: str, ratified: dict[str, Commit] | None, unknown: UnknownFormat | None = None) -> dict[str, Commit]:
        if ratified is not None:
            _log.warning("transaction %s is committed in %s; publication is pending", transaction_id, sorted(ratified))
            return ratified
        raise undecided_in_time(transaction_id, unknown) from unknown
