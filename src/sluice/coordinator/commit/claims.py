"""Claiming a slot: the moment from which a transaction's outcome will be decided, even if its owner dies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from ...storage.dataclass import dataclass
from ...storage.errors import InvariantBroken, NotATable
from ..errors import CoordinatorUnavailable, OutcomeUnknown, UnknownFormat
from ..formats import INTENT_FORMAT
from ..nodes.context import TableContext
from ..nodes.layout import SlotName, TableTree
from ..nodes.records import Head, Published
from ..rules.intent import Intent
from ..service.clock import Deadline
from ..service.store import ApplyRefused, Create, Delete, ReplyLost, Write
from .failure_points import point

_PAUSE_S = 0.1

__all__ = [
    "Claim",
    "admitting",
    "claim_slot",
    "filed_elsewhere",
    "find_slot",
    "in_doubt",
    "move_slot",
    "require_time",
    "too_late",
    "undecided",
    "undecided_in_time",
]


@dataclass(frozen=True, slots=True)
class Claim:
    """A slot that exists."""

    transaction_id: str
    generation: int
    slot: int

    def is_decided(self, head: Head) -> bool:
        """Whether the head says that this slot has its verdict; it cannot tell for a closed generation."""
        return head.generation == self.generation and head.slot >= self.slot

    def is_first(self, head: Head) -> bool:
        """Whether this is the first undecided slot.

        The parent of a generation's slots counts nothing else, so the slot before mine is the next lower number. Should
        that number have been left out, patience takes the place of knowing.
        """
        return head.generation == self.generation and head.slot >= self.slot - 1

    def is_next(self, published: Published) -> bool:
        """Whether all slots before mine are published."""
        return published.covers(self.generation, self.slot - 1)

    def path(self, tree: TableTree) -> str:
        """The slot's node."""
        return tree.slot(self.generation, SlotName(self.slot, self.transaction_id))


def undecided(names: Iterable[str], head: Head) -> list[SlotName]:
    """The slots after the head's among the children of its generation, in slot order.

    The coordinator gives a number once: of two slots with one number, a name was made up, and the first by name counts.
    """
    slots = (SlotName.parse(name) for name in names)
    found: dict[int, SlotName] = {}
    for slot in sorted(s for s in slots if s is not None and s.sequence > head.slot):
        found.setdefault(slot.sequence, slot)
    return list(found.values())


def find_slot(context: TableContext, transaction_id: str, head: Head, *, oldest: int = 0) -> Claim | None:
    """The slot of a transaction in this generation or an earlier one down to `oldest`, or None when it has none (any more).

    One that came too late for its generation stands there for as long as nobody files it again: its owner may be dead. Who does
    so moves it to a later generation, so that who looks from the oldest on does not miss it on its way.
    """
    generation, last = oldest, head.generation
    while generation <= last:
        slots = filter(None, map(SlotName.parse, context.coordination.children(context.tree.slots(generation)) or ()))
        slot = min((slot for slot in slots if slot.transaction_id == transaction_id), default=None)
        if slot is not None:
            return Claim(transaction_id, generation, slot.sequence)
        if generation == last:
            state = context.read_head()
            last = last if state is None else max(last, state[0].generation)
        generation += 1
    return None


def _perhaps(transaction_id: str) -> bool:
    """Where nobody looks for verdicts there may be one on any transaction."""
    return bool(transaction_id)


def _nothing_on_record(transaction_id: str) -> None:
    """Where nobody looks for verdicts none is found."""
    _ = transaction_id


def require_time(transaction_id: str, deadline: Deadline, is_decided: Callable[[str], bool] | None = None) -> None:
    """Raise OutcomeUnknown for a transaction that has no slot, when the time for it is over.

    It is certainly not filed, but where `is_decided` looks for it: it was sent then, and may be decided and cleaned up already.
    """
    if deadline.over:
        if is_decided is not None and is_decided(transaction_id):
            raise in_doubt(transaction_id)
        raise OutcomeUnknown(
            f"the time given was over before transaction {transaction_id} was filed: nothing is decided or visible, what is staged is "
            "kept, and commit may be called again",
            transaction_id=transaction_id,
            stage="staged",
        )


def in_doubt(transaction_id: str) -> OutcomeUnknown:
    """The time is over for a transaction of which it is not known whether it was filed: its replies were lost."""
    return OutcomeUnknown(
        f"the coordinator's replies were lost while transaction {transaction_id} was filed, until the time ran out; "
        "ask outcome(transaction_id)",
        transaction_id=transaction_id,
        stage="intent",
    )


def claim_slot(
    context: TableContext,
    intent: Intent,
    head: Head,
    deadline: Deadline,
    is_decided: Callable[[str], bool] = _perhaps,
    raise_refusal: Callable[[str], None] = _nothing_on_record,
) -> Claim:
    """File the intent under a new slot of the head's generation.

    A lost reply is never answered by sending again blindly: a barrier settles whether the first request took effect,
    then the GUID is looked for among the slots and, by `raise_refusal`, in the verdicts: what was refused stays so. Raises
    OutcomeUnknown when the deadline is over, CoordinatorUnavailable when it is and the coordinator was away; `stage` tells
    whether it may be filed, for which `is_decided` looks for a verdict on it. Raises TransactionExpired when its owner was
    taken for dead.
    """
    point("before-claim")
    doubt: Callable[[str], bool] | None = None
    while True:
        require_time(intent.transaction_id, deadline, doubt)
        try:
            head = admitting(context, head)
            path = _file(context, intent, head.generation)
            point("after-claim")
            return _claim(intent.transaction_id, head.generation, path)
        except ReplyLost:
            found = context.after_lost_reply(intent.transaction_id, partial(_filed, context, intent.transaction_id, head, raise_refusal))
            if found is not None:
                point("after-claim")
                return found
            # either it never took effect, or it was committed and cleaned up already: the decision will look for that
            intent, doubt = replace(intent, filed_again=True), is_decided
        except ApplyRefused as refused:
            if not context.after_refusal(refused, intent.transaction_id):
                head = _newer_head(context, head)  # the generation was closed and removed
        except CoordinatorUnavailable as error:  # nothing was sent
            if deadline.over:
                raise (in_doubt(intent.transaction_id) if doubt else too_late(intent.transaction_id, str(error))) from error
            context.clock.sleep(min(_PAUSE_S, deadline.left_s))


def admitting(context: TableContext, head: Head) -> Head:
    """The table's head, which says from now on that its writers file intents of this release's format.

    Older releases then know that an intent of that format is one for newer releases, and not one that somebody made up.
    """
    while head.intents < INTENT_FORMAT:
        state = context.read_head()
        if state is None:
            raise context.vanished()
        head, node = state
        raised = replace(head, intents=max(head.intents, INTENT_FORMAT))
        try:
            context.coordination.apply([Write(context.tree.head, raised.encode(), node.version), *context.standing()])
        except ApplyRefused as refused:  # another client decided something, or did the same
            context.recognise_again(getattr(refused.cause, "path", ""))
        except ReplyLost:
            context.barrier()
        else:
            return raised
    return head


def _filed(context: TableContext, transaction_id: str, head: Head, raise_refusal: Callable[[str], None]) -> Claim | None:
    """The slot that a request made whose reply was lost. Raises what refused the transaction, if that came first.

    Not one in an earlier generation: a slot that came too late there is why the intent is filed again here.
    """
    found = find_slot(context, transaction_id, head, oldest=head.generation)
    if found is None:
        raise_refusal(transaction_id)
    return found


def undecided_in_time(transaction_id: str, unknown: UnknownFormat | None) -> OutcomeUnknown:
    """The time is over for a transaction that has a slot and no verdict; `unknown` is what only a newer release can go on with."""
    why = f": {unknown.message}" if unknown is not None else ""
    return OutcomeUnknown(
        f"transaction {transaction_id} was filed and will be decided, but not within the time given{why}; ask outcome(transaction_id)",
        transaction_id=transaction_id,
        stage="intent",
    )


def too_late(transaction_id: str, trouble: str) -> CoordinatorUnavailable:
    """The coordinator was away until the time was over, and nothing was filed."""
    return CoordinatorUnavailable(
        f"no slot could be claimed for transaction {transaction_id} in time ({trouble}); nothing is decided, the staged "
        "data is kept and commit may be called again",
        transaction_id=transaction_id,
        stage="staged",
    )


def _file(context: TableContext, intent: Intent, generation: int) -> str:
    """Create the slot while the transaction's owner and the tree stand; its path. Raises ApplyRefused, ReplyLost."""
    create = Create(context.tree.slot_prefix(generation, intent.transaction_id), intent.encode(), sequential=True)
    return str(context.coordination.apply([*context.standing(intent.transaction_id), create])[-1])


def filed_elsewhere(context: TableContext, claim: Claim) -> Claim | None:
    """Where somebody else filed again what came too late for its generation, as long as it stands there."""
    state = context.read_head()
    return None if state is None else find_slot(context, claim.transaction_id, state[0], oldest=claim.generation + 1)


def move_slot(context: TableContext, claim: Claim, intent: Intent, head: Head) -> Claim | None:
    """File an intent whose slot came too late for its generation in the present one, under the same GUID; anybody may.

    One multi takes the old slot away and makes the new one, so that there is one of them at any time. None: somebody else did it,
    or the head is another one; look again.
    """
    prefix = context.tree.slot_prefix(head.generation, intent.transaction_id)
    create = Create(prefix, replace(intent, filed_again=True).encode(), sequential=True)
    try:
        path = context.coordination.apply([*context.standing(), Delete(claim.path(context.tree)), create])[-1]
    except ApplyRefused as refused:
        context.recognise_again(getattr(refused.cause, "path", ""))
    except ReplyLost:
        context.barrier()
    else:
        return _claim(intent.transaction_id, head.generation, str(path))
    state = context.read_head()
    return None if state is None else find_slot(context, intent.transaction_id, state[0])


def _newer_head(context: TableContext, head: Head) -> Head:
    state = context.read_head()
    if state is None or state[0] == head:
        raise NotATable(f"the coordinator's tree of {context.tree.location} is gone or incomplete", location=context.tree.location)
    return state[0]


def _claim(transaction_id: str, generation: int, path: str) -> Claim:
    name = SlotName.parse(path.rpartition("/")[2])
    if name is None:
        raise InvariantBroken(f"the coordinator made a slot with the name {path}")
    return Claim(transaction_id, generation, name.sequence)
