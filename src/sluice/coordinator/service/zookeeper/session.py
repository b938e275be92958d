"""CoordinationStore over kazoo; the only file that imports kazoo.

It adds what kazoo leaves to its user:

- A lost connection fails everything in flight with ConnectionLoss. Reads, barriers and `ensure_path` are sent again until
  `retry_s` (or their call's time) is over; everything else becomes ReplyLost and is never repeated here.
- After a session expires, kazoo silently opens another one, without the old one's ephemeral nodes. Here the client ends at
  that moment: one store is one session.
- A request above the server's limit looks like a lost connection, again and again: sizes are checked before sending.
- A failed multi comes back as a list of exception objects.
- A client inherited through a fork hangs: using one raises an error that says so.
- A client that is ahead of an ensemble (which lost its data) retries for ever: here its session ends. A server that is behind a
  client closes the client's connection without an answer, so that the client tries another server; after the ensemble lost its
  data, all servers do so for ever. So a client without a connection also asks each host, as a new client, to make a transaction
  in the quorum. If most hosts answer with numbers (zxid) below one that this client saw before, the ensemble counts anew.
- Nodes are open to everybody by default: with credentials (`trust.py`) they are closed to all others.

The callers' threads wait for replies; callbacks on kazoo's threads only set flags.
"""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import make_acl

from ....storage.errors import AccessDenied, InvalidRequest
from ....storage.observing import observed
from ...errors import SessionLost
from ..clock import bounded_s
from ..store import ANY_VERSION, ApplyRefused, ChangingNodes, Check, Create, Node, Op, ReplyLost, StoreError, check_ops, check_path
from .errors import WHERE, is_refusal, no_answer, translate, unavailable
from .trust import Discreet, Line, Trust, ready
from .wire import Bell, Watch, Watches, answer_of, below, call_at_once, log, pipelined, polled, result_of, send, stop, warn_if_open

CONNECT_TIMEOUT_S = 15.0
"""How long `connect` tries before it gives up, in seconds."""

PIPELINE = 500
"""How many reads are in flight at once; a server stops reading from its clients at 1,000 outstanding requests."""

_PAUSE_S = 0.02
"""The mean pause before a read is sent again."""

_LOSS_PAUSE_S = 1.0
_LOSS_PAUSE_S_MAX = 10.0
"""The pauses before the first and before later questions whether the ensemble lost its data."""

_REFUSED_FOR_S = 1.0
"""How long other servers are tried after the first refusal, in seconds."""

_CLOSING_S = 3.0
"""How long `close` waits for the server to end the session, in seconds."""

_ASKING_S = 5.0
"""How long each question whether the ensemble lost its data may take, in seconds."""

log.addFilter(Discreet())
_T = TypeVar("_T")
_UNANSWERED = (kazoo.KazooException, KazooTimeoutError, RuntimeError)
"""What waiting for an answer may raise. A RuntimeError comes from the library's thread: an answer out of order has ended it."""


@observed("coordinator", read="read", children="read", look="read", barrier="barrier", _change="write", _lose="lose")
class ZooKeeperStore(ChangingNodes):
    """One session with a ZooKeeper ensemble; made by `connect`, finished when the session is. Thread-safe."""

    def __init__(self, hosts: str, *, retry_s: float, session_timeout_s: float, trust: Trust) -> None:
        self._line = None if trust.tls is None else Line(trust.tls)
        self._client: Any = _client(hosts, session_timeout_s, trust, self._line)  # its results are typed as optional
        self._hosts = hosts
        self._trust = trust
        self._who = f"{trust}, at {hosts}"
        self._root = ""
        self._prefix_bytes = 0
        """How many bytes each operation has beside what it says: the chroot, and the access list of a node that it creates."""
        self._retry_s = retry_s
        self._pid = os.getpid()
        self._watches = Watches()
        self._changed = threading.Condition()
        self._lost: str | None = None
        self._denied = False
        self.session_id: int = 0
        """Given by ZooKeeper."""

    @classmethod
    def connect(
        cls,
        hosts: str,
        *,
        chroot: str = "/sluice",
        retry_s: float = 120.0,
        session_timeout_s: float = 10.0,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        trust: Trust | None = None,
    ) -> ZooKeeperStore:
        """Open a session with one of `hosts` ("h1:2181,h2:2181"); creates the chroot if it does not exist.

        Raises CoordinatorUnavailable if nobody answers within `connect_timeout_s`, AccessDenied if client and server do not
        accept each other's credentials or certificates (`trust`), InvalidRequest for malformed hosts. `retry_s` limits later
        waits for a connection.
        """
        check_path(chroot)
        trust = trust or Trust()
        store = cls(hosts, retry_s=retry_s, session_timeout_s=session_timeout_s, trust=trust)
        client = store._client
        client.add_listener(store._notice)
        client.start_async()
        try:
            store._await_first(bounded_s(connect_timeout_s))
            store.ensure_path(chroot)
            if trust.access is not None:
                acl = store._repeat(f"who may use {chroot}", lambda wait_s: client.get_acls_async(chroot).get(timeout=wait_s)[0])
                warn_if_open(chroot, acl)
        except BaseException:
            store.close()
            raise
        store._root = "" if chroot == "/" else chroot
        store._prefix_bytes = len(store._root) + sum(len(part.encode()) for part in trust.access or ())
        store.session_id = (client.client_id or (0,))[0]
        return store

    @property
    def connected(self) -> bool:
        """Whether the session is alive and a server answers, as far as this side knows."""
        return self._lost is None and bool(self._client.connected)

    @property
    def lost(self) -> bool:
        """Whether the session is over: expired or closed."""
        return self._lost is not None

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node or None; `watch` is called once when that changes. Passing the same callable again does not register it twice."""
        node: Node | None = self._look("data", path, watch, self._client.get_async)
        return node

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """The names of the children or None; `watch` as for read."""
        names: list[str] | None = self._look("children", path, watch, self._client.get_children_async)
        return names

    def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes, requested without waiting for each reply."""
        return self.look(paths, ())[0]

    def look(self, nodes: Sequence[str], parents: Sequence[str]) -> tuple[list[Node | None], list[list[str] | None]]:
        """The nodes, then the names of children, requested without waiting for each reply."""
        asks = [(self._client.get_async, path) for path in nodes] + [(self._client.get_children_async, path) for path in parents]
        found: list[Any] = []
        for _, path in asks:
            check_path(path)
        for start in range(0, len(asks), PIPELINE):
            some = asks[start : start + PIPELINE]
            found += self._repeat(f"read {len(some)} nodes, {some[0][1]} first", partial(pipelined, some, self._root, kazoo.NoNodeError))
        return found[: len(nodes)], found[len(nodes) :]

    def barrier(self) -> None:
        """A multi of one check: unlike `sync`, it goes through the quorum like a write; it changes nothing."""
        self._repeat("barrier", lambda wait_s: self._settle([Check("/", ANY_VERSION)], wait_s))

    # -- changing --------------------------------------------------------------------------------------------------

    def ensure_path(self, path: str) -> None:
        """Create the node and its missing parents, empty. Repeated when a reply is lost, since repeating it is harmless."""
        check_path(path)
        if self.read(path) is not None:
            return
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            create = Create("/" + "/".join(parts[:depth]))
            self._repeat(f"creating {create.path}", partial(self._settle, [create], unless=kazoo.NodeExistsError))

    def _change(self, verb: str, ops: Sequence[Op]) -> list[str | int | None]:
        check_ops(ops, prefix=self._prefix_bytes)
        if not ops:
            self._require_usable()
            return []
        results = self._send_once(ops)
        failed = [index for index, result in enumerate(results) if isinstance(result, Exception)]
        if not failed:
            return [result_of(op, result, self._root) for op, result in zip(ops, results, strict=True)]
        refusal = next((index for index in failed if is_refusal(results[index])), failed[0])
        op = ops[refusal]
        cause = translate(results[refusal], op.path, self._who)
        if not isinstance(cause, StoreError):
            raise cause
        message = f"operation {refusal} of {len(ops)} ({type(op).__name__.lower()} {op.path}) was refused: {cause}"
        raise ApplyRefused(message, index=refusal, cause=cause)

    def close(self) -> None:
        """End the session; its ephemeral nodes vanish at once. Harmless in a process forked from the owner."""
        if os.getpid() == self._pid:
            wait_s = bounded_s(_CLOSING_S) if self._client.connected else 0.0  # a hanging server must not delay the close
            self._finish(f"the session with ZooKeeper at {self._hosts} was closed", wait_s)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _require_usable(self) -> None:
        if os.getpid() != self._pid:
            raise InvalidRequest(
                f"this coordination store belongs to process {self._pid} and cannot be used in process {os.getpid()}, which was "
                "forked from it: connect again here",
                owner=self._pid,
            )
        if self._lost is not None and self._denied:
            raise AccessDenied(self._lost, hosts=self._hosts)
        if self._lost is not None:
            raise SessionLost(self._lost, hosts=self._hosts)

    def _notice(self, state: str) -> None:
        """The connection's state changed; runs on kazoo's thread, so it only sets flags."""
        if state == KazooState.LOST and self._lost is None:
            # A server that goes away during a later connection attempt ends it in the same way, so a new session is worth
            # trying.
            self._denied = self._client.client_state == KeeperState.AUTH_FAILED and self.session_id == 0
            expired = f"the session with ZooKeeper at {self._hosts} has expired: connect again"
            self._lose(f"{self._hosts} does not know {self._trust}: check {WHERE}" if self._denied else expired)
        if state == KazooState.SUSPENDED and self.session_id and self._lost is None:
            threading.Thread(target=self._watch_for_loss, args=(self._client.last_zxid,), name="sluice-zookeeper-loss", daemon=True).start()
        with self._changed:
            self._changed.notify_all()

    def _watch_for_loss(self, seen: int) -> None:
        """While there is no connection: end the session when the ensemble's transactions begin again below `seen`."""
        pause_s = _LOSS_PAUSE_S
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._client.connected or self._lost is not None, pause_s):
                    return
            newest = self._newest_transaction()
            # check: lost-data-are-noticed
            if newest is not None and newest < seen:
                self._lose(f"ZooKeeper at {self._hosts} has lost its data, and this session with them: connect again")
                return
            pause_s = min(2 * pause_s, _LOSS_PAUSE_S_MAX)

    def _newest_transaction(self) -> int | None:
        """The number of a transaction that the quorum makes now; None unless most hosts, each asked by itself, answer.

        A host that was removed from the ensemble with its old data, but is still in the address, is a quorum of its own.
        """
        hosts, found = self._hosts.split(","), list[int]()
        for each in hosts:
            newest = self._newest_of(each)
            found += [] if newest is None else [newest]
            if found and found[-1] >= self._client.last_zxid:
                return found[-1]
        # check: a-loss-is-told-by-most-hosts (max(found) if 2 * len(found) > len(hosts) else None -> max(found, default=None))
        return max(found) if 2 * len(found) > len(hosts) else None

    def _newest_of(self, host: str) -> int | None:
        """The number of a transaction made now for a new client of that host. Opening a session may not make one (local sessions)."""
        trust = self._trust
        client: Any = _client(host, _ASKING_S, trust, None if trust.tls is None else Line(trust.tls))
        try:
            client.start_async().wait(_ASKING_S)
            send(client, [Check("/", ANY_VERSION)], "").get(timeout=_ASKING_S)
        except _UNANSWERED:
            return None
        else:
            return int(client.last_zxid)
        finally:
            stop(client)

    def _lose(self, why: str) -> None:
        """Mark the session as over, which this side did not want."""
        self._finish(why)

    def _finish(self, why: str, wait_s: float = 0.0) -> None:
        """Mark the session as over, unless it is, and stop the client in a thread, since it may be busy; wait at most so long for that."""
        with self._changed:
            if self._lost is not None:
                return
            self._lost = why
            self._changed.notify_all()
        self._watches.end()
        stopping = threading.Thread(target=stop, args=(self._client,), name="sluice-zookeeper-stop", daemon=True)
        try:
            stopping.start()
        except RuntimeError:  # the interpreter is ending and starts no threads
            stop(self._client)
        else:
            stopping.join(wait_s)

    def _await_first(self, timeout_s: float) -> None:
        """Wait for the first connection. Raises CoordinatorUnavailable or AccessDenied.

        The first refusal does not end the wait: another host may accept this client.
        """
        now = time.monotonic()
        deadline, patience = now + timeout_s, None
        with self._changed:
            while not self._client.connected and self._lost is None and now < min(deadline, patience or deadline):
                if patience is None and self._line is not None and self._line.refused:
                    patience = now + _REFUSED_FOR_S
                self._changed.wait(deadline - now if self._line is None else _PAUSE_S)
                now = time.monotonic()
        if self._client.connected or self._lost is not None:
            return self._require_usable()
        raise no_answer(self._hosts, timeout_s, self._line)

    def _await_connection(self, what: str, wait_s: float, deadline: float) -> None:
        self._require_usable()
        with self._changed:
            while not self._client.connected and self._lost is None:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise unavailable(self._hosts, wait_s, what, self._line)
                self._changed.wait(remaining)
        self._require_usable()

    def _repeat(self, what: str, look: Callable[[float], _T]) -> _T:
        """Repeat a request that changes nothing until it is answered or the time is up."""
        deadline = time.monotonic() + (wait_s := bounded_s(self._retry_s))
        while True:
            self._await_connection(what, wait_s, deadline)
            try:
                return look(max(deadline - time.monotonic(), 0.0))
            except _UNANSWERED as error:
                meant = translate(error, what, self._who)
                if not isinstance(meant, ReplyLost):
                    raise meant from error
            if time.monotonic() >= deadline:
                raise unavailable(self._hosts, wait_s, what, self._line)
            time.sleep(random.uniform(0, 2 * _PAUSE_S))  # noqa: S311

    def _look(self, kind: str, path: str, watch: Watch | None, request: Callable[..., Any]) -> Any:
        """The answer to a request, or None if the node does not exist; the watch is left in either case."""
        check_path(path)
        bell = None if watch is None else Bell(self._watches, kind, path, watch)

        def look(wait_s: float) -> Any:
            while True:
                if bell is not None:
                    self._watches.add(bell)  # before it can ring
                try:
                    return answer_of(path, request(below(self._root, path), watch=bell).get(timeout=wait_s))
                except kazoo.NoNodeError:
                    if bell is None or watch is None:
                        return None
                    self._watches.answered(bell)
                    absent = Bell(self._watches, "data", path, watch)
                    self._watches.add(absent)
                    if self._client.exists_async(below(self._root, path), watch=absent).get(timeout=wait_s) is None:
                        return None
                    self._watches.answered(absent)

        return self._repeat(f"reading {path}", look)

    def _settle(self, ops: Sequence[Op], wait_s: float, unless: type[Exception] | tuple[()] = ()) -> None:
        """Send operations that are safe to repeat, and raise the refusal, if any."""
        for result in send(self._client, ops, self._root).get(timeout=wait_s):
            if isinstance(result, Exception) and not isinstance(result, unless):
                raise result

    def _send_once(self, ops: Sequence[Op]) -> list[Any]:
        """Send a change once a connection is up. If the outcome stays open, also because the session ended, raises ReplyLost."""
        what = f"{len(ops)} operations" if len(ops) > 1 else f"{type(ops[0]).__name__.lower()} {ops[0].path}"
        deadline = time.monotonic() + (wait_s := bounded_s(self._retry_s))
        self._await_connection(what, wait_s, deadline)
        try:
            results: list[Any] = send(self._client, ops, self._root).get(timeout=max(deadline - time.monotonic(), 0.0))
        except _UNANSWERED as error:
            meant = translate(error, what, self._who)
            if not isinstance(meant, ReplyLost | SessionLost):
                raise meant from error
        else:
            if self._lost is None:
                return results
        raise ReplyLost(f"the reply to {what} was lost: it may have taken effect", paths=[op.path for op in ops])


def _client(hosts: str, session_timeout_s: float, trust: Trust, line: Line | None) -> KazooClient:
    """The library's client, not started."""
    forever = KazooRetry(max_tries=-1, delay=0.02, backoff=2, max_jitter=0.2, max_delay=0.5)
    handler: Any = SequentialThreadingHandler()
    handler.dispatch_callback = call_at_once
    if hasattr(select, "poll"):  # not on Windows
        handler.select = polled
    if line is not None:
        handler.create_connection, handler.select = line.connect, ready(handler.select)
    try:
        return KazooClient(
            hosts,
            timeout=session_timeout_s,
            connection_retry=forever,
            logger=log,
            handler=handler,
            use_ssl=line is not None,
            auth_data=trust.auth_data,
            sasl_options=trust.sasl_options,
            default_acl=None if trust.access is None else [make_acl(*trust.access, all=True)],
        )
    except ValueError as error:
        message = f"{hosts!r} is not a list of ZooKeeper servers: write host:port,host:port"
        raise InvalidRequest(message, hosts=hosts) from error
