"""The queue of a table: its slots, and the intents in them. A transaction with a slot will be decided, even if its owner dies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import BadChecksum, CorruptLogFile, InvariantBroken, LogGap, MissingObject
from ..errors import UnknownFormat
from ..formats import MalformedRecord
from ..nodes.context import TableContext, TableState
from ..nodes.layout import SlotName, TableTree
from ..nodes.records import Head, Published, read_intent
from ..publication.ratified_log import RatifiedLog, staged_actions
from ..rules.intent_checks import require_readable, require_sound
from ..rules.winner import Member, Winner
from ..service.store import ApplyRefused, Create, Delete, Node, Op, ReplyLost, Write
from .decision import Queued, window_start, windows_of

WINDOW_VERSIONS_MAX: Final = 10_000
"""The maximum number of versions read to decide one transaction."""


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
        """Whether this is the first undecided slot.

        The parent of a generation's slots counts nothing else, so the slot before this one has the next lower number. If
        that number was skipped, only the end of patience resolves it.
        """
        return head.generation == self.generation and head.slot >= self.slot - 1

    def is_next(self, published: Published) -> bool:
        """Whether all earlier slots are published."""
        return published.covers(self.generation, self.slot - 1)

    def path(self, tree: TableTree) -> str:
        """The slot's node."""
        return tree.slot(self.generation, SlotName(self.slot, self.transaction_id))


def undecided(names: Iterable[str], head: Head) -> list[SlotName]:
    """The slots after the head's among the children of its generation, in slot order.

    The coordinator gives each number once: if two slots have one number, a name was made up, and the first by name counts.
    """
    slots = (SlotName.parse(name) for name in names)
    found: dict[int, SlotName] = {}
    # check: slots-are-sorted (sorted -> (lambda slots: sorted(slots, reverse=True)))
    for slot in sorted(s for s in slots if s is not None and s.sequence > head.slot):
        # check: one-slot-of-each-number (slot.sequence -> hash(slot))
        found.setdefault(slot.sequence, slot)
    return list(found.values())


def find_slot(context: TableContext, transaction_id: str, head: Head) -> Claim | None:
    """The slot of a transaction in the head's generation; None if it has none (any more).

    No earlier generation has slots: each is empty when the next one opens (`open_generation`).
    """
    slots = filter(None, map(SlotName.parse, context.coordination.children(context.tree.slots(head.generation)) or ()))
    slot = min((slot for slot in slots if slot.transaction_id == transaction_id), default=None)
    return None if slot is None else Claim(transaction_id, head.generation, slot.sequence)


def open_generation(context: TableContext, state: TableState) -> None:
    """Replace a generation of slots, all of which are decided and published, by the next one, in which their numbers begin again.

    The coordinator removes no node that has children: a slot that was filed since the look prevents it, so none can come too late. Nothing
    is changed then, nor if anything was decided or published since; another client may have done it.
    """
    tree, generation = context.tree, state.head.generation
    # check: generations-open-on-the-head-that-was-read (state.head_node.version -> -1)
    ops: list[Op] = [
        Write(tree.head, replace(state.head, generation=generation + 1, slot=-1).encode(), state.head_node.version),
        Write(tree.published, replace(state.published, generation=generation + 1, slot=-1).encode(), state.published_node.version),
        *(Delete(f"{tree.slots(generation)}/{name}") for name in state.slots),  # what a publisher left behind
        Delete(tree.slots(generation)),
        Create(tree.slots(generation + 1)),
    ]
    try:
        context.coordination.apply([*ops, *context.liveness_checks()])
    except ApplyRefused as refused:
        context.was_restored(getattr(refused.cause, "path", ""))
    except ReplyLost:
        context.barrier()


def claim_of(transaction_id: str, generation: int, path: str) -> Claim:
    """The claim on a slot, from the path that the coordinator gave it."""
    name = SlotName.parse(path.rpartition("/")[2])
    if name is None:
        raise InvariantBroken(f"the coordinator made a slot with the name {path}")
    return Claim(transaction_id, generation, name.sequence)


def read_queue(context: TableContext, state: TableState) -> Sequence[Queued]:
    """The undecided slots with their intents, in slot order; empty if the head moved on meanwhile.

    They end before one that only a newer release understands. Raises UnknownFormat if that is the first.
    """
    head = state.head
    names = undecided(state.slots, head)[: context.limits.batch_slots_max]
    nodes = context.coordination.read_many([context.tree.slot(head.generation, name) for name in names])
    queue: list[Queued] = []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            # check: slots-that-vanish-stop-the-look (return () -> continue)
            return ()
        try:
            queue.append(queued_in(context, name, node, head))
        except UnknownFormat:
            # check: unknown-formats-stop-nobody-before-them (always)
            if not queue:
                raise
            break  # the slots before it can be decided
    return queue


def queued_in(context: TableContext, name: SlotName, node: Node, head: Head) -> Queued:
    """A slot's contents, with its actions. Raises UnknownFormat if only a newer release understands them."""
    try:
        # check: large-intents-are-not-read
        require_readable(node.data)
        intent = read_intent(node.data, head)
        # check: slot-and-intent-are-of-one-id
        if intent.transaction_id != name.transaction_id:
            raise MalformedRecord(f"it names transaction {intent.transaction_id!r}, its slot {name.transaction_id!r}")
        # check: large-intents-are-not-read
        require_readable(node.data, intent)
        actions = staged_actions(context, intent)
        # check: intents-are-checked (require_sound(intent, actions) -> None)
        member = Member(intent, actions, (), require_sound(intent, actions))
    # check: staged-actions-are-there (without MissingObject,)
    except (MalformedRecord, MissingObject, BadChecksum, CorruptLogFile) as problem:
        return Queued(name.sequence, name.transaction_id, None, str(problem))
    return Queued(name.sequence, name.transaction_id, member)


def with_winners(log: RatifiedLog, head: Head, queue: Sequence[Queued]) -> tuple[Sequence[Queued], Mapping[int, Winner]]:
    """The queue, and the versions it must be decided against.

    A transaction is refused if it knows so little that too many versions would have to be read, or some that the log no
    longer has: its owner knew more when it was filed.
    """
    queue = _knowing(queue, head, head.version - WINDOW_VERSIONS_MAX)
    while True:
        try:
            return queue, {w.version: w for w in log.winners(range(window_start(head, queue) + 1, head.version + 1))}
        except LogGap as gap:
            known = _knowing(queue, head, gap.version)
            if known == queue:
                raise
            queue = known


def _knowing(queue: Sequence[Queued], head: Head, version: int) -> list[Queued]:
    """The slots, with a problem for those that need versions after one before this."""
    windows = windows_of(head, queue)
    return [each if window >= version else _too_old(each, head) for each, window in zip(queue, windows, strict=True)]


def _too_old(queued: Queued, head: Head) -> Queued:
    known = queued.member.intent.validated_through if queued.member is not None else -1
    return replace(queued, member=None, problem=f"it was validated up to version {known} only, and cannot be decided at {head.version}")
