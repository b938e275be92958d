"""What one session adds to the client library: operations as its transactions, and callbacks that wait for a node to change.

The library keeps a set of callables per node, empties it when the server reports a change or the connection drops, and forgets
it when the client ends. Two things are added here: a callable passed again with every read is held once, and the end of the
session reaches all waiting callbacks.
"""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ....storage.dataclass import dataclass
from ..store import Check, Create, Delete, Node, Op, Write

log = logging.getLogger("sluice.zookeeper")
log.addHandler(logging.NullHandler())  # quiet unless the program configures logging

Watch = Callable[[], None]
_CHANGING = 2 | 4 | 8 | 16
"""Rights in an access list: to write, to create and delete children, to change the list itself."""


def below(root: str, path: str) -> str:
    """The full path of a node below a chroot ("" for none)."""
    return root + path if path != "/" else root or "/"


def answer_of(path: str, answer: Any) -> Any:
    """A node, from its data and stat, or the names of children."""
    if not isinstance(answer, tuple):
        return list(answer)
    data, stat = answer
    return Node(path, data, stat.version, stat.czxid, stat.ephemeralOwner, stat.ctime, stat.mtime)


def pipelined(asks: Sequence[tuple[Callable[[str], Any], str]], root: str, missing: type[Exception], wait_s: float) -> list[Any]:
    """Request nodes and names of children, then wait for the answers; None for those that are `missing`."""
    replies = [(path, ask(below(root, path))) for ask, path in asks]
    answers: list[Any] = []
    for path, reply in replies:
        try:
            answers.append(answer_of(path, reply.get(timeout=wait_s)))
        except missing:
            answers.append(None)
    return answers


def polled(
    readers: Sequence[Any], writers: Sequence[Any], errors: Sequence[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """The library's `select` for its few sockets, in one system call. Raises ValueError for a closed one.

    The library's own makes and closes an epoll descriptor in each of some six looks per request: two thirds of its thread's
    time.
    """
    _ = errors
    poll = select.poll()
    for each in readers:
        poll.register(each, select.POLLIN)
    for each in writers:  # the library never asks for both in one look
        poll.register(each, select.POLLOUT)
    found = poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
    if len(readers) + len(writers) == 1:  # five looks out of six
        return (list(readers), list(writers), []) if found else ([], [], [])
    able = {number for number, _ in found}
    return [each for each in readers if each.fileno() in able], [each for each in writers if each.fileno() in able], []


def call_at_once(callback: Any) -> None:
    """Call a watch in the library's own thread: it only sets a flag, and waking the library's second thread would cost more."""
    callback.func(*callback.args)


def warn_if_open(path: str, acl: Sequence[Any]) -> None:
    """Warn if everybody may change the parent of nodes that are closed to others."""
    if any(entry.id.scheme == "world" and entry.perms & _CHANGING for entry in acl):
        log.warning(
            "the nodes that sluice creates below %s are closed to others, %s itself is not: others may create nodes in it before sluice "
            "does; let sluice create a chroot of its own, or close this one (setAcl -R)",
            path,
            path,
        )


def send(client: Any, ops: Sequence[Op], root: str) -> Any:
    """Put a multi on the wire, with paths below `root`; returns the library's future of a list of results and exceptions."""
    transaction = client.transaction()
    for op in ops:
        path = below(root, op.path)
        match op:
            case Create():
                transaction.create(path, op.data, ephemeral=op.ephemeral, sequence=op.sequential)
            case Write():
                transaction.set_data(path, op.data, op.version)
            case Delete():
                transaction.delete(path, op.version)
            case Check():
                transaction.check(path, op.version)
    return transaction.commit_async()


def result_of(op: Op, result: Any, root: str) -> str | int | None:
    """An operation's result: the path it created, the version it wrote, or None."""
    if isinstance(op, Create):
        return str(result)[len(root) :]
    return int(result.version) if isinstance(op, Write) else None


def stop(client: Any) -> None:
    """End the session, if any, and free the client's threads and sockets."""
    try:
        client.stop()
        client.close()
    except Exception:
        log.exception("could not stop the ZooKeeper client")


@dataclass(frozen=True)
class Bell:
    """Registered in place of a callback; equal for the same callback on the same node."""

    watches: Watches
    kind: str
    path: str
    watch: Watch

    def __call__(self, event: object) -> None:
        """The library reports a change."""
        if self.watches.answered(self):
            self.ring()

    def ring(self) -> None:
        """Call the callback; its exceptions must not reach the library's threads."""
        try:
            self.watch()
        except Exception:
            log.exception("the watch of %s on %s failed", self.kind, self.path)


class Watches:
    """The bells of one session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Bell] = set()
        self._over = False

    def add(self, bell: Bell) -> None:
        """Add a waiting bell; adding it twice is harmless."""
        with self._lock:
            self._waiting.add(bell)

    def answered(self, bell: Bell) -> bool:
        """Remove a bell; returns whether to ring it, which is False if `end` already rang it."""
        with self._lock:
            self._waiting.discard(bell)
            return not self._over

    def end(self) -> None:
        """The session is over: ring all waiting bells, once."""
        with self._lock:
            waiting, self._waiting, self._over = list(self._waiting), set(), True
        for bell in waiting:
            bell.ring()
