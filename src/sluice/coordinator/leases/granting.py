"""The lease queue: requests that meet are granted in the order they were made.

::

            one multi: a node in each place            one multi: every place's Grants, if all nodes still exist
    asked ------------------------------------> queued ---------------------------------------------------------> held
                                                 |  ^
                                                 |  | the nearest request in the way is gone
                                                 +--+

Requests are sequential nodes, so a server that shows one shows all earlier ones: once no earlier request is in the way, none
can appear. A request watches only the nearest request in its way, so a release wakes only those who waited for it. All
requests of one call are created in one multi, so any two calls have the same order in every place.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Final, NoReturn

from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..errors import DeadlockDetected, LeaseHeld, LeaseLost, SessionLost
from ..nodes.layout import FENCE, NAMES, TABLES, WAITS, LeaseName, Place
from ..nodes.records import Grants, LeaseNode, WaitNode, is_closed, need_here, tokens_from
from ..rules.intent import ClientName
from ..service.clock import Clock, Deadline, SystemClock, bounding
from ..service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Create, Delete, Node, NoNode, Op, ReplyLost, Write
from .blocking import find_cycle
from .guard import breaker, held_facts, held_in_words, make_child
from .scopes import clash

_log = logging.getLogger(__name__)
_LOOK_AGAIN_S: Final = 10.0
"""A waiting request looks again after this time even if nothing woke it: its own node may have been broken."""
_LETTING_GO_S: Final = 1.0
"""How long a release waits for a coordinator that may hang."""
_PAUSE_S: Final = 0.5


def run_in_background(work: Callable[[], None], name: str) -> None:
    """Run work in a thread that does not keep the process alive."""
    threading.Thread(target=work, name=name, daemon=True).start()


@dataclass(frozen=True, slots=True)
class LeaseClient:
    """How a client reaches the coordinator that keeps its leases; `coordinator` distinguishes it from others."""

    connect: Callable[[], CoordinationStore]
    coordinator: str = ""
    clock: Clock = field(default_factory=SystemClock)
    client: ClientName = field(default_factory=ClientName)
    in_background: Callable[[Callable[[], None], str], None] = run_in_background
    """Runs background work: watching held leases, and removing nodes that could not be removed at once."""


@dataclass(frozen=True, slots=True, order=True)
class Wanted:
    """One lease to request."""

    place: Place
    mode: str
    where: str = ""
    partition_types: tuple[tuple[str, str], ...] = ()
    name: str = ""


class LeaseRequest:
    """One call's requests, from asking to the grant. Used by one thread."""

    def __init__(self, home: LeaseClient, wanted: Sequence[Wanted], holds: Sequence[str]) -> None:
        """`holds` are the nodes of the leases that the caller holds already."""
        self.home = home
        self.guid = uuid.uuid4().hex
        self._guids = {self.guid}
        self.nodes: dict[str, LeaseNode] = {}
        """The requests by the paths of their nodes."""
        self.store = home.connect()
        self.token = 0
        now = home.clock.now_ms()
        self._asked = [
            (w.place, LeaseNode(w.mode, w.where, dict(w.partition_types), w.name, home.client, now, tuple(holds))) for w in sorted(wanted)
        ]
        self._places = sorted({w.place for w in wanted})
        announces = len(self._places) > 1 or bool(holds)
        self._wait = WaitNode(self.guid, tuple(p.leases for p in self._places), tuple(holds)) if announces else None
        self._seen: dict[str, LeaseNode] = {}
        self.met: tuple[str, LeaseNode] | None = None
        """The oldest request that was in the way at the first look: the holder, not those who wait for it, too."""

    # -- the three steps ---------------------------------------------------------------------------------------------

    def obtain(self, deadline: Deadline | None) -> None:
        """Queue up and wait for the grant (None: without limit).

        Raises LeaseHeld when the deadline passes, DeadlockDetected, LeaseLost if the request or a lease the caller holds was
        lost, CoordinatorUnavailable. If it raises, nothing of the request is left behind.
        """
        try:
            while True:
                try:
                    self._file()
                    self._await(deadline)
                except SessionLost as lost:
                    if deadline is not None and deadline.over:
                        raise
                    self._begin_again(lost)
                else:
                    return
        except BaseException:
            let_go(self.home, self.store, [*self.nodes, *([] if self._wait is None else [self._wait.path])])
            raise

    def _begin_again(self, lost: SessionLost) -> None:
        """Queue again after the session was lost, and the place in the queue with it. Leases held in that session are lost, too."""
        if any(node.holds for _, node in self._asked):
            why = f"the session with the coordinator was lost ({lost.message})"
            raise LeaseLost(f"{why}, and with it the leases held in it: take them again") from lost
        _log.info("a waiting request for %s lost its session and queues again", ", ".join(map(str, self._places)))
        self.store = self.home.connect()
        self.nodes, self._seen = {}, {}
        # ZooKeeper may end the lost session later than its client did: until then the nodes of the old name are there
        # check: a-new-session-requests-under-a-new-name (uuid.uuid4().hex -> self.guid)
        self.guid = uuid.uuid4().hex
        self._guids.add(self.guid)
        self._wait = self._wait and replace(self._wait, guid=self.guid)

    def _file(self) -> None:
        ops: list[Op] = [
            Create(place.node(LeaseName.prefix(self.guid)), node.encode(), ephemeral=True, sequential=True) for place, node in self._asked
        ]
        if self._wait is not None:
            ops.append(Create(self._wait.path, self._wait.encode(), ephemeral=True))
        while True:
            try:
                created = [str(path) for path in self.store.apply(ops)[: len(self._asked)]]
                self.nodes = {path: node for path, (_, node) in zip(created, self._asked, strict=True)}
            except ApplyRefused as refused:
                if not isinstance(refused.cause, NoNode):
                    raise
                self._make_places()
                continue
            except ReplyLost:
                self.store.barrier()
                # check: lost-request-is-looked-for (always)
                if not self._found():
                    continue
            return

    def _found(self) -> bool:
        """Whether a multi whose reply was lost took effect: the nodes carry its GUID."""
        self.nodes = {}
        for place in self._places:
            names = [n for n in map(LeaseName.parse, self.store.children(place.leases) or ()) if n is not None and n.guid == self.guid]
            own_nodes = [node for at, node in self._asked if at == place]
            self.nodes |= {place.node(name): node for name, node in zip(sorted(names), own_nodes, strict=False)}
        return bool(self.nodes)

    def _make_places(self) -> None:
        self.store.ensure_path(NAMES)
        self.store.ensure_path(WAITS)
        for place in self._places:
            if place.root.startswith(f"{TABLES}/"):
                make_child(self.store, place.leases, str(place))
            else:
                self.store.ensure_path(place.leases)

    def _await(self, deadline: Deadline | None) -> None:
        asked_about_cycles = False
        wake = self.home.clock.event()
        while True:
            wake.clear()
            in_the_way = self._nearest()
            if in_the_way is None:
                if self._grant():
                    self._number()
                    return
                continue
            if not asked_about_cycles:
                # check: circles-are-found
                self._refuse_cycle()
                asked_about_cycles = True
            path, holder = in_the_way
            if deadline is not None and deadline.over:
                facts = held_facts(path, holder)
                message = f"{self._in_words()} was not granted in time: another client has {held_in_words(facts)}"
                raise LeaseHeld(message, facts=facts, filed=False)
            if self.store.read(path, wake.set) is not None:
                wake.wait(_LOOK_AGAIN_S if deadline is None else min(_LOOK_AGAIN_S, deadline.left_s))

    # -- looking -----------------------------------------------------------------------------------------------------

    def _nearest(self) -> tuple[str, LeaseNode] | None:
        """The last earlier request in this one's way, in the first place that has one. Raises LeaseLost."""
        for place in self._places:
            children = sorted(filter(None, map(LeaseName.parse, self.store.children(place.leases) or ())))
            new = [path for name in children if name.guid not in self._guids and (path := place.node(name)) not in self._seen]
            for path, node in zip(new, self.store.read_many(new), strict=True) if new else ():
                if node is not None:
                    self._seen[path] = LeaseNode.understood(node.data)
            # a server that lags may still show requests of a former session
            mine = [(name, own) for name in children if (own := self.nodes.get(place.node(name))) is not None]
            if len(mine) != sum(at == place for at, _ in self._asked):
                self._lost(place)
            before = [name for name in children if name.guid not in self._guids and name < max(mine)[0]]
            in_the_way: list[tuple[str, LeaseNode]] = []
            # check: nearest-in-the-way-is-waited-for (reversed(before) -> reversed(before[:1]))
            for name in reversed(before):
                path = place.node(name)
                theirs = self._seen.get(path)
                # check: who-asked-before-is-before (name < my_name -> name > my_name)
                if theirs is not None and any(name < my_name and clash(my_node, theirs, path) for my_name, my_node in mine):
                    in_the_way.append((path, theirs))
                    if self.met is not None:
                        break
            if in_the_way:
                self.met = self.met or in_the_way[-1]
                return in_the_way[0]
        return None

    def _see_tables(self) -> list[Node | None]:
        """The fence and then this call's requests. Raises TableMoved if a table went to another coordinator: its leases are there."""
        tables = [place for place in self._places if place.root.startswith(f"{TABLES}/")]
        read = self.store.read_many([*(place.root for place in tables), FENCE, *self.nodes])
        for place, root in zip(tables, read, strict=False):
            # check: no-lease-on-a-table-that-moved
            if root is None or is_closed(root):
                need_here(self.store, str(place))
        return read[len(tables) :]

    def _number(self) -> None:
        """Set the fencing token of what was granted.

        A table that arrives raises the fence (`raise_tokens`). A request reads it while it holds its lease, so those who get the lease
        later read it later, and no token is below an earlier one.
        """
        fence, *nodes = self._see_tables()
        requests = [node for node in nodes if node is not None]
        # check: a-token-is-of-a-lease-still-held
        if len(requests) < len(nodes):
            self._lost(self._places[0])
        self.token = tokens_from(fence) + max(node.created_zxid for node in requests)

    def _lost(self, place: Place) -> NoReturn:
        self._see_tables()
        how = breaker(self.store, self.nodes)
        raise LeaseLost(f"the request for {self._in_words()} is gone{how}: ask again", facts={"place": str(place)})

    def _refuse_cycle(self) -> None:
        """Raise DeadlockDetected if the requests in the way wait for leases held here, and this request is the newest of the cycle.

        A cycle needs more than one lease. The newest request closes the cycle and sees all others, so each waiter checks
        only once.
        """
        if self._wait is None:
            return
        circle = find_cycle(self.store, self._wait)
        if circle:
            raise DeadlockDetected(
                f"{self._in_words()} waits for a client that waits for a lease held here ({'; '.join(circle)}): release the leases held, "
                "and take all of them in one request",
                facts={"circle": list(circle)},
            )

    def _in_words(self) -> str:
        return ", ".join(f"the {node.mode} lease on {place}{f' ({node.where})' if node.where else ''}" for place, node in self._asked)

    # -- granting ----------------------------------------------------------------------------------------------------

    def _grant(self) -> bool:
        """Write the grant in every place, in one multi that checks that all requests exist. False means: look again."""
        # check: grants-are-of-requests-that-stand ([Check(path, ANY_VERSION) for path in self.nodes] -> [])
        ops: list[Op] = [Check(path, ANY_VERSION) for path in self.nodes]
        if self._wait is not None:
            ops.append(Delete(self._wait.path))
        for place in self._places:
            node = self.store.read(place.leases)
            if node is None:
                self._lost(place)
            # List after reading the grants, so that the list has every granted node that exists.
            children = self.store.children(place.leases) or []
            grants = Grants.understood(node.data, children)
            names = [path.rpartition("/")[2] for path in self.nodes if Place.of_node(path) == place]
            # check: grants-are-written-by-comparison (node.version -> ANY_VERSION)
            ops.append(Write(place.leases, grants.with_granted(names, existing=children).encode(), node.version))
        try:
            self.store.apply(ops)
        except ApplyRefused as refused:
            if isinstance(refused.cause, NoNode):
                self._lost(self._places[0])
            return False  # another client was granted a lease meanwhile
        except ReplyLost:
            self.store.barrier()
            first = self.store.read(self._places[0].leases)
            now = None if first is None else Grants.readable(first.data)
            mine = {path.rpartition("/")[2] for path in self.nodes}
            # check: lost-grant-is-looked-for
            return now is not None and not mine.isdisjoint(now.granted) and None not in self.store.read_many(list(self.nodes))
        return True


def let_go(home: LeaseClient, store: CoordinationStore, paths: Sequence[str]) -> None:
    """Delete nodes of this session. Those that cannot be deleted soon are deleted in the background, or go with the session."""
    with bounding(_LETTING_GO_S, home.clock):
        left = _deleted(store, paths)
    if not left:
        return

    def go_on() -> None:
        remaining = left
        while remaining:
            home.clock.sleep(_PAUSE_S)
            remaining = _deleted(store, remaining)

    home.in_background(go_on, "sluice-let-go")


def _deleted(store: CoordinationStore, paths: Sequence[str]) -> list[str]:
    """Try to delete each node; returns those that may be left."""
    left: list[str] = []
    for path in paths:
        try:
            store.delete(path)
        except (NoNode, SessionLost):
            continue  # gone, with the session at the latest
        except ReplyLost:
            left.append(path)
        except Unavailable as away:
            _log.warning("the node %s is removed later: %s", path, away)
            left.append(path)
    return left
