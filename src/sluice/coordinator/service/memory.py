"""The deterministic twin of ZooKeeper: a tree in memory, shared by many sessions, with faults on demand.

    coordination = MemoryCoordination()
    one, other = coordination.connect(), coordination.connect()
    coordination.inject(Fault.REPLY_LOST, verb="apply")        # the next multi takes effect, its reply is lost

The fault model, which is everything that can happen to a session here (and to one of ZooKeeper):

- *A request is lost* (`Fault.REQUEST_LOST`): the connection breaks before the request arrives. No effect; a mutating verb
  raises ReplyLost. The store itself repeats reads and barriers, as the contract says.
- *A reply is lost* (`Fault.REPLY_LOST`): the connection breaks after the effect. A lagging server does not show it before a
  barrier.
- *The session expires* before (`EXPIRED_BEFORE`) or after (`EXPIRED_AFTER`) the request took effect, or between two calls
  (`session.expire()`). The call in flight raises ReplyLost if it could have changed something, everything later
  SessionLost. The session's ephemeral nodes go at once.
- *The connection is gone for a while* (`session.disconnect()` until `session.reconnect()`): every verb raises
  CoordinatorUnavailable and sends nothing; the real store raises the same after waiting.
- *The server lags* (`session.lag = n`): reads show the tree as it was n transactions ago, though never older than what
  the session already saw; its own writes and barriers catch up with everything before them. Watches are delayed
  likewise.
- *Time passes* between any two steps of any two sessions: `before` and `after` are called around every call, outside all
  locks, and may sleep, wait for another thread, run another session's steps, or raise to simulate a crash of the caller.

What cannot happen, here or in ZooKeeper: acknowledged changes are not lost, requests of one session are not reordered, and a
lost request does not arrive later than the session's next request.

Watches are delivered exactly once, in the order of the changes, by the thread whose call made the change, after the locks
are released. All state is behind one lock; sessions may be shared by threads.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, ClassVar, TypeVar

from ...storage.caches import ForkSafeLock
from ...storage.dataclass import dataclass
from ...storage.observing import observed
from ..errors import CoordinatorUnavailable, SessionLost
from .store import ANY_VERSION, ApplyRefused, ChangingNodes, Check, Create, Node, NodeExists, Op, ReplyLost, check_ops, check_path
from .tree import Change, Tree


class Fault(Enum):
    """What happens to one call; the module documents the fault model."""

    REQUEST_LOST = "the request is lost"
    REPLY_LOST = "the reply is lost"
    EXPIRED_BEFORE = "the session expires before the request"
    EXPIRED_AFTER = "the session expires after the request took effect"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a verb, as hooks see it. `number` counts the calls of all sessions from 1; `ops` are its changes."""

    number: int
    session_id: int
    verb: str
    path: str
    ops: tuple[Op, ...] = ()


Hook = Callable[[Call], "Fault | None"]


@dataclass(slots=True)
class _Scripted:
    """A fault that happens once, to the call that matches after `skip` matching ones; None matches everything."""

    fault: Fault
    verb: str | None
    path: str | None
    session_id: int | None
    skip: int

    def matches(self, call: Call) -> bool:
        paths = (call.path, *(op.path for op in call.ops))
        return (
            self.verb in (None, call.verb)
            and self.session_id in (None, call.session_id)
            and (self.path is None or any(self.path in path for path in paths))
        )


Watch = Callable[[], None]
Watched = tuple[str, str]
"""What a watch is left on: `read` or `children`, and the path."""
_T = TypeVar("_T")


class MemoryCoordination:
    """The service: one tree, its sessions, and the faults to come.

    `before(call)` may return a Fault for that call; `after(call)` is called when the call is done. `split(n)` says how many
    of n nodes are read before others may change the rest. `calls` counts the calls by verb. Tests may read `tree`, but
    change it through sessions only.
    """

    _named: ClassVar[dict[str, MemoryCoordination]] = {}
    _named_lock: ClassVar[ForkSafeLock] = ForkSafeLock()

    def __init__(self) -> None:
        self.tree = Tree()
        self.before: Hook | None = None
        self.after: Callable[[Call], None] | None = None
        self.split: Callable[[int], int] | None = None
        self.calls: Counter[str] = Counter()
        self._script: list[_Scripted] = []
        self._sessions: dict[int, MemorySession] = {}
        self.watchers: defaultdict[Watched, set[int]] = defaultdict(set)
        self.late: set[int] = set()
        self._last_session = 0
        self._last_call = 0
        self.lock = ForkSafeLock(reentrant=True)
        self.outbox: deque[Watch] = deque()
        self._delivering = ForkSafeLock()

    @classmethod
    def named(cls, name: str) -> MemoryCoordination:
        """The service behind `memory://name` in this process; the first call makes it."""
        with cls._named_lock:
            return cls._named.setdefault(name, cls())

    def connect(self) -> MemorySession:
        """Open a session."""
        with self.lock:
            self._last_session += 1
            session = MemorySession(self, self._last_session)
            self._sessions[session.session_id] = session
            return session

    def inject(
        self, fault: Fault, *, verb: str | None = None, path: str | None = None, session: MemorySession | None = None, skip: int = 0
    ) -> None:
        """Make `fault` happen once, to the call that matches after `skip` matching ones; `path` is part of a path."""
        with self.lock:
            self._script.append(_Scripted(fault, verb, path, session.session_id if session else None, skip))

    # -- used by the sessions ---------------------------------------------------------------------------------------

    @contextmanager
    def calling(self, session_id: int, verb: str, path: str, ops: Sequence[Op]) -> Iterator[Fault | None]:
        """Count the call, and find its fault; at the end deliver the watches that it triggered.

        Entered without the lock, since the hooks may take their time.
        """
        with self.lock:
            self.calls[verb] += 1
            self._last_call += 1
            call = Call(self._last_call, session_id, verb, path, tuple(ops))
            scripted = None
            for each in [each for each in self._script if each.matches(call)]:
                if each.skip == 0:
                    self._script.remove(each)
                    scripted = each.fault
                    break
                each.skip -= 1
        asked = self.before(call) if self.before else None
        try:
            yield asked or scripted
        finally:
            self.deliver()
            if self.after:
                self.after(call)

    def publish(self, changes: Sequence[Change]) -> None:
        """Show changes to the sessions that watch for them or lag behind; the lock is held."""
        concerned = {*self.late}
        for change in changes:
            for each in change.triggered:
                concerned |= self.watchers.pop(each, set())
        for session_id in sorted(concerned & self._sessions.keys()):
            self._sessions[session_id].notice(changes)

    def deliver(self) -> None:
        """Call what is in the outbox, in order. If another thread is already doing so, leave the work to it."""
        while self.outbox and self._delivering.acquire(blocking=False):
            try:
                while self.outbox:
                    self.outbox.popleft()()
            finally:
                self._delivering.release()

    def end_session(self, session: MemorySession) -> None:
        """Forget the session and delete its ephemeral nodes; the lock is held."""
        del self._sessions[session.session_id]
        self.publish(self.tree.end_session(session.session_id))


@observed("coordinator", read="read", children="read", look="read", barrier="barrier", _change="write", expire="lose")
class MemorySession(ChangingNodes):
    """One session of a MemoryCoordination; implements CoordinationStore."""

    def __init__(self, coordination: MemoryCoordination, session_id: int) -> None:
        self._coordination = coordination
        self.session_id = session_id
        """From 1."""
        self._expiry = f"session {session_id} has expired"
        self._lost: str | None = None
        self._connected = True
        self._seen = 0
        self._lag = 0
        self._watches: dict[Watched, list[Watch]] = {}
        self._held_back: list[tuple[int, Watch]] = []

    @property
    def connected(self) -> bool:
        """Whether the session is alive and its connection is up."""
        return self._connected and self._lost is None

    @property
    def lost(self) -> bool:
        """Whether the session is over: expired or closed."""
        return self._lost is not None

    # -- faults of this session ------------------------------------------------------------------------------------

    @property
    def lag(self) -> int:
        """How many transactions this session's server lags behind."""
        return self._lag

    @lag.setter
    def lag(self, transactions: int) -> None:
        with self._coordination.lock:
            self._lag = transactions
            self._catch_up()
        self._coordination.deliver()

    def disconnect(self) -> None:
        """Cut the connection; the session and its ephemeral nodes live on."""
        self._set_connected(False)

    def reconnect(self) -> None:
        """Restore the connection."""
        self._set_connected(True)

    def expire(self) -> None:
        """Expire the session on the server's side."""
        self._end(self._expiry)

    def close(self) -> None:
        """End the session; doing so again does nothing."""
        self._end(f"session {self.session_id} was closed")

    # -- verbs -----------------------------------------------------------------------------------------------------

    def ensure_path(self, path: str) -> None:
        """Create the node and its missing parents, empty."""
        check_path(path)
        parts = path.strip("/").split("/") if path != "/" else []
        for depth in range(1, len(parts) + 1):
            while True:
                try:
                    self._change_one("ensure_path", Create("/" + "/".join(parts[:depth])))
                except ReplyLost:
                    continue
                except NodeExists:
                    break

    def read(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node as this session's server knows it, or None."""
        return self._watched("read", path, watch, Tree.node)

    def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes as of one zxid (which the protocol does not promise), or of two if the service's `split` says so."""
        return self._together("read_many", paths, ())[0]

    def look(self, nodes: Sequence[str], parents: Sequence[str]) -> tuple[list[Node | None], list[list[str] | None]]:
        """The nodes, then the names of children, read like `read_many`."""
        return self._together("look", nodes, parents)

    def _together(self, verb: str, nodes: Sequence[str], parents: Sequence[str]) -> tuple[list[Node | None], list[list[str] | None]]:
        reads: list[tuple[Callable[[Tree, str, int], Any], str]] = [(Tree.node, path) for path in nodes]
        reads += [(Tree.children, path) for path in parents]
        for _, path in reads:
            check_path(path)
        first = len(reads) if self._coordination.split is None else self._coordination.split(len(reads))
        answers: list[Any] = []
        for some in (reads[:first], reads[first:]) if first < len(reads) else (reads,):
            with self._looking(verb, some[0][1] if some else "/") as view:
                answers += [show(self._coordination.tree, path, view) for show, path in some]
        return answers[: len(nodes)], answers[len(nodes) :]

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """The names of the children in no order, or None."""
        return self._watched("children", path, watch, Tree.children)

    def barrier(self) -> None:
        """Catch up with every change made so far."""
        with self._looking("barrier", "/"):
            self._execute([Check("/", ANY_VERSION)])

    # -- inside ----------------------------------------------------------------------------------------------------

    def _change(self, verb: str, ops: Sequence[Op]) -> list[str | int | None]:
        check_ops(ops)
        path = ops[0].path if ops else "/"
        with self._coordination.calling(self.session_id, verb, path, ops) as fault, self._coordination.lock:
            self._require_usable()
            results: list[str | int | None] = []
            try:
                if fault in (None, Fault.REPLY_LOST, Fault.EXPIRED_AFTER):
                    results = self._execute(ops, answered=fault is None)
            except ApplyRefused:
                if fault is None:
                    raise
            if fault is not None:
                self._suffer(fault)
                raise ReplyLost(f"the reply to {verb} {path} was lost: it may have taken effect", path=path)
            return results

    @contextmanager
    def _looking(self, verb: str, path: str) -> Iterator[int]:
        """One call that changes nothing, under the lock; yields the zxid of this session's server."""
        with self._coordination.calling(self.session_id, verb, path, ()) as fault, self._coordination.lock:
            self._require_usable()
            if fault is not None:
                self._suffer(fault)
                self._require_usable()
            yield self._view()

    def _watched(self, verb: str, path: str, watch: Watch | None, show: Callable[[Tree, str, int], _T]) -> _T:
        """What `show` has of a path, as this session's server knows it; the watch is left there."""
        check_path(path)
        tree = self._coordination.tree
        with self._looking(verb, path) as view:
            if watch is not None:
                for change in tree.changes_after(view) if view < tree.zxid else ():
                    if (verb, path) in change.triggered:
                        self._held_back.append((change.zxid, watch))
                        self._held_back.sort(key=lambda held: held[0])
                        self._coordination.late.add(self.session_id)
                        break
                else:
                    self._watches.setdefault((verb, path), []).append(watch)
                    self._coordination.watchers[verb, path].add(self.session_id)
            return show(tree, path, view)

    def _execute(self, ops: Sequence[Op], *, answered: bool = True) -> list[str | int | None]:
        """Change the tree. A session that gets no answer may continue at a server that does not show the change yet."""
        try:
            results, changes = self._coordination.tree.execute(ops, session=self.session_id)
            self._coordination.publish(changes)
            return results
        finally:
            if answered:
                self._seen = self._coordination.tree.zxid
                self._catch_up()

    def _view(self) -> int:
        """The zxid of this session's server; never falls."""
        tree = self._coordination.tree
        self._seen = max(self._seen, tree.zxid - self._lag, tree.oldest_view)
        return self._seen

    def _require_usable(self) -> None:
        if self._lost:
            raise SessionLost(self._lost, session_id=self.session_id)
        if not self._connected:
            message = "the connection to the coordinator in memory is down: reconnect() the session"
            raise CoordinatorUnavailable(message, session_id=self.session_id)

    def _suffer(self, fault: Fault) -> None:
        if fault in (Fault.EXPIRED_BEFORE, Fault.EXPIRED_AFTER):
            self._end_locked(self._expiry)
        else:
            self._release_watches()

    def _set_connected(self, connected: bool) -> None:
        with self._coordination.lock:
            if self._connected != connected:
                self._connected = connected
                self._release_watches()
        self._coordination.deliver()

    def _end(self, why: str) -> None:
        with self._coordination.lock:
            self._end_locked(why)
        self._coordination.deliver()

    def _end_locked(self, why: str) -> None:
        if not self._lost:
            self._lost = why
            self._coordination.end_session(self)
            self._release_watches()

    def notice(self, changes: Sequence[Change]) -> None:
        """Collect the watches that the changes trigger, also in the session that made the changes."""
        for change in changes:
            for each in change.triggered:
                for watch in self._watches.pop(each, ()):
                    self._held_back.append((change.zxid, watch))
        self._catch_up()

    def _catch_up(self) -> None:
        view = self._view()
        while self._held_back and self._held_back[0][0] <= view:
            self._coordination.outbox.append(self._held_back.pop(0)[1])
        if self._held_back:
            self._coordination.late.add(self.session_id)
        else:
            self._coordination.late.discard(self.session_id)

    def _release_watches(self) -> None:
        """The connection's state changed: every watch fires."""
        self._coordination.outbox += [
            *(watch for _, watch in self._held_back),
            *(watch for each in self._watches.values() for watch in each),
        ]
        for each in self._watches:
            self._coordination.watchers[each].discard(self.session_id)
        self._held_back.clear()
        self._watches.clear()
        self._coordination.late.discard(self.session_id)
