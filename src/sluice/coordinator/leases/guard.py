"""Leases as the commit path sees them: which are granted on a table, which commits they stop, and the checks that tie a batch to that view.

A grant changes the data version of the table's `leases` node, and every ratifying multi checks that version, so nothing is
ratified on a view older than a grant. A client that saw no grants at one data version needs no further read until the
version changes: the usual commit costs one more check. Releases do not change the version; a view that shows leases is
always read anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from ...storage.dataclass import dataclass
from ...storage.errors import NotATable, Unavailable
from ...storage.times import text_of
from ..nodes.context import TableContext
from ..nodes.layout import LeaseName, Place
from ..nodes.records import EXCLUSIVE, PASSING, TURN, Broken, Grants, LeaseNode, need_here
from ..rules.intent import Intent
from ..rules.refusal import Refusal, refusal_error
from ..rules.winner import Member
from ..service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Op, make_node
from .scopes import reads_in, scopes_meet, writes_in

HELD: Final = "lease-held"
LOST: Final = "lease-lost"


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a lease: the name and the path of its node, what it says, the fencing token of its holder, and when it was made.

    `made_ms` is by the coordinator's clock.
    """

    name: LeaseName
    path: str
    node: LeaseNode
    token: int
    made_ms: int


def read_requests(store: CoordinationStore, place: Place, names: Iterable[str] | None = None) -> list[Request]:
    """The requests of a place, or those of these names, in the order they were made."""
    children = names if names is not None else store.children(place.leases) or ()
    ordered = sorted(filter(None, map(LeaseName.parse, children)))
    nodes = store.read_many([place.node(name) for name in ordered])
    return [
        Request(name, node.path, LeaseNode.understood(node.data), node.created_zxid, node.created_ms)
        for name, node in zip(ordered, nodes, strict=True)
        if node is not None
    ]


def read_granted(store: CoordinationStore, place: Place) -> tuple[int, tuple[Request, ...]] | None:
    """The version of a place's `leases` node, then the granted requests; None if there is no such node.

    In this order, no grant of that version is missed.
    """
    node = store.read(place.leases)
    if node is None:
        return None
    if not node.data:
        return node.version, ()
    children = store.children(place.leases) or ()
    granted = Grants.understood(node.data, children).granted
    return node.version, tuple(read_requests(store, place, [name for name in children if name in granted]))


def held_in_words(facts: Mapping[str, Any]) -> str:
    """The holder of a lease, and since when: "an exclusive lease 'load' on p = 'a', held by job on host-7 (process 12) since ...Z".

    `facts` are those of an error, as `held_facts` gives them.
    """
    of = facts.get
    name = f" {of('name')!r}" if of("name") else ""
    scope = f" on {of('where')}" if of("where") else ""
    who = f"{of('holder') or 'somebody'} on {of('host')} (process {of('pid')})"
    mode = of("mode")
    what = "an exclusive lease" if mode == EXCLUSIVE else "a reserved turn" if mode == TURN else f"a {mode} lease"
    return f"{what}{name}{scope}, held by {who} since {text_of(of('since_ms', 0))}"


def held_facts(path: str, lease: LeaseNode) -> dict[str, Any]:
    """The holder of a lease as facts of an error."""
    holder = {"holder": lease.client.application, "host": lease.client.host, "pid": lease.client.pid, "since_ms": lease.since_ms}
    return {"lease": path, "mode": lease.mode, "where": lease.where, "name": lease.name, **holder}


def list_broken(store: CoordinationStore, place: Place) -> tuple[Broken, ...]:
    """The last leases of a place that were broken, oldest first."""
    node = store.read(place.leases)
    return () if node is None else Grants.understood(node.data, ()).broken


def breaker(store: CoordinationStore, paths: Collection[str]) -> str:
    """The words after "is gone" that name the user who broke one of these leases; "" if no record names one."""
    for place in dict.fromkeys(place for path in paths if (place := Place.of_node(path)) is not None):
        for broken in list_broken(store, place):
            if place.node(broken.node) in paths:
                return f", broken by {broken.by}{f' ({broken.reason})' if broken.reason else ''}"
    return ""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """The leases granted on a table as of one version of its `leases` node, and the nodes named by intents that are not granted.

    `gone` maps each of the latter to who broke it, in words that follow "is gone" ("" if nobody did).
    """

    path: str = ""
    version: int = ANY_VERSION
    granted: tuple[Request, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)

    def objection(self, member: Member) -> Refusal | None:
        """The refusal that leases cause for a transaction, or None. Pure, like every decision (I4)."""
        intent = member.intent
        for lost in intent.leases:
            if lost in self.gone:
                name, place = lost.rpartition("/")[2], Place.of_node(lost) or "nothing"
                how = self.gone[lost] or ": its session expired, or somebody broke it"
                message = f"the lease {name} on {place} is gone{how}; take the lease again and repeat the work done under it"
                return Refusal(LOST, "LeaseLost", message, facts={"lease": lost})
        for lease in self.granted:
            if self._stops(member, lease):
                facts = held_facts(lease.path, lease.node)
                message = f"another client has {held_in_words(facts)}; wait until it is released, or see `sluice leases`"
                return Refusal(HELD, "LeaseHeld", message, facts=facts)
        return None

    def _stops(self, member: Member, lease: Request) -> bool:
        intent, mine, theirs = member.intent, member.footprint, lease.node
        if lease.path in intent.leases or theirs.mode == PASSING:
            return False
        if theirs.mode == TURN:
            # check: appends-pass-turns (without not mine.plain_append and)
            # check: turns-stop-others (return -> return False and)
            return not mine.plain_append and writes_in(mine, theirs)
        if theirs.mode == EXCLUSIVE:
            return writes_in(mine, theirs) or reads_in(mine, theirs)
        own = [each.node for each in self.granted if each.path in intent.leases]  # granted beside this shared lease
        return writes_in(mine, theirs) and not any(
            scopes_meet(each.where, each.partition_types, theirs.where, theirs.partition_types) for each in own
        )

    def checks(self, committed: Iterable[Intent], refused: Iterable[Refusal]) -> list[Check]:
        """The checks with which a batch is ratified: of the view, each lease relied on (I9), and each lease that caused a refusal."""
        if not self.path:
            return []
        relied_on = {path for intent in committed for path in intent.leases}
        in_the_way = {str(each.facts["lease"]) for each in refused if each.rule == HELD}
        # check: leases-relied-on-are-checked (without relied_on |)
        # check: leases-in-the-way-are-checked (without | in_the_way)
        # check: grants-are-compared (without Check(self.path, self.version),)
        return [Check(self.path, self.version), *[Check(path, ANY_VERSION) for path in sorted(relied_on | in_the_way)]]


NO_LEASES: Final = LeaseView()


def make_child(store: CoordinationStore, path: str, location: str) -> None:
    """Make a node in a table's tree when it is first needed; an existing one is left as it is. Raises NotATable, TableMoved."""

    def no_table(session: CoordinationStore) -> None:
        need_here(session, location)
        raise NotATable(f"the coordinator knows no table at {location}", location=location)

    make_node(store, path, b"", no_table)


class LeaseGuard:
    """One client's knowledge of the leases of one table. Safe for several threads."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._place = Place.of_table(context.tree)
        self._free: LeaseView | None = None
        """The last view, if it showed no grants."""

    def view(self, intents: Iterable[Intent] = ()) -> LeaseView:
        """The leases to decide these intents by. Reads nothing if there are no grants and no intent depends on a lease."""
        needed = sorted({path for intent in intents for path in intent.leases})
        if self._free is not None and not needed:
            return self._free
        session, place = self._context.coordination, self._place
        while (there := read_granted(session, place)) is None:
            make_child(session, place.leases, self._context.tree.location)  # the tree was made by a release without leases
        version, granted = there
        view = LeaseView(place.leases, version, granted)
        self._free = None if granted else view
        if not needed:
            return view
        held = {each.path for each in granted}
        elsewhere = {at for path in needed if path not in held and (at := Place.of_node(path)) is not None} - {place}
        for at in elsewhere:
            _, leases = read_granted(self._context.coordination, at) or (0, ())
            held |= {each.path for each in leases}
        # check: lost-leases-are-found (set(needed) - held -> set())
        gone = set(needed) - held
        return replace(view, gone={path: breaker(self._context.coordination, [path]) for path in gone})

    def require_free(self, member: Member) -> None:
        """Raise LeaseHeld or LeaseLost for a transaction that would be refused now. Nothing is filed, and its id stays unused.

        Looks only if a lease was granted when this client looked last; otherwise the ratifying multi finds out.
        """
        intent = member.intent
        if intent.filed_again or (self._free is not None and not intent.leases):
            return
        try:
            against = self.view((intent,)).objection(member)
        except Unavailable:
            return  # the decision looks again
        if against is not None:
            raise refusal_error(against, intent.transaction_id, filed=False)

    def was_outdated(self, refused: ApplyRefused, ops: Sequence[Op]) -> bool:
        """Whether a ratifying multi failed on a check of the view. If so, the next view is read anew."""
        path = ops[refused.index].path
        outdated = path == self._place.leases or Place.of_node(path) is not None
        # check: outdated-views-are-forgotten
        if outdated:
            self._free = None
        return outdated
