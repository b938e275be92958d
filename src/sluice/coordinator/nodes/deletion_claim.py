"""The claim to delete the data of a dropped table, held by one client at a time.

The log files of two tables at one location have the same names, and a DELETE under way cannot be taken back. So one client
at a time deletes, under an ephemeral node, and the location is free for another table when that client says it is done. If
it disappears without saying so (killed, or paused beyond its session), another client may finish the drop at once. A second,
persistent node then keeps the location from being used for as long as a request of the lost client may take effect.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import orjson

from ...storage.dataclass import dataclass
from ...storage.errors import Unavailable
from ..errors import CoordinatorUnavailable, SessionLost
from ..limits import LONGEST_PUT_S
from ..service.store import ApplyRefused, BadVersion, Check, CoordinationStore, Create, Delete, Node, NoNode, Op, ReplyLost, Write
from .context import TableContext
from .removal import Tombstone

__all__ = ["Deletion", "deletion", "require_no_deleter"]

_ATTEMPTS: Final = 20
_LETTING_GO_MAX: Final = 5
_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Deletion:
    """One client's right to delete at a dropped table's location: its data, or a version that one of its clients put there later.

    `first` says that no client before it disappeared without finishing. The versions of the tombstone and of the persistent
    node tell this claim from all others: each claim changes the latter, each drop and its end the former.
    """

    context: TableContext
    tombstone: Tombstone
    identity: str
    grave: Node
    left: int
    first: bool

    def require(self) -> None:
        """Raise if the right was lost: TableDropped if the drop is done, Unavailable if the session has ended."""
        tree = self.context.tree

        def look(session: CoordinationStore) -> list[Node | None]:
            session.barrier()
            return session.read_many([tree.tombstone, tree.deleter])

        grave, deleter = self.context.in_connection(look)
        if grave is None or grave.version != self.grave.version:
            raise self.context.dropped()
        if deleter is None or _content(deleter)["id"] != self.identity:
            raise Unavailable(f"the claim to delete the data of {tree.location} is gone: repeat the drop", location=tree.location)

    def done(self) -> None:
        """Record that the data are deleted. Raises what `require` does."""
        content = orjson.dumps({**orjson.loads(self.grave.data), "deleting": False})
        for _ in range(_ATTEMPTS):
            self.require()
            try:
                self.context.connect().apply([Write(self.grave.path, content, self.grave.version), *self._gone()])
                return
            except ReplyLost:
                node = self.context.in_connection(self._read_grave)
                if node is not None and (node.version, node.data) == (self.grave.version + 1, content):
                    return
            except (ApplyRefused, SessionLost):
                continue
        raise Unavailable(f"the coordinator did not record that {self.context.tree.location} is dropped: try again")

    def _read_grave(self, session: CoordinationStore) -> Node | None:
        session.barrier()
        return session.read(self.grave.path)

    def let_go(self) -> None:
        """Give the right back, done or not, despite lost replies: nobody else can claim it while this process lives."""
        for _ in range(_LETTING_GO_MAX):
            try:
                self.context.connect().apply([Check(self.grave.path, self.grave.version), *self._gone()])
                return
            except (ApplyRefused, SessionLost):  # the claim is gone
                return
            except (ReplyLost, CoordinatorUnavailable):
                self.context.clock.sleep(_PAUSE_S)

    def _gone(self) -> list[Op]:
        tree = self.context.tree
        stays: Op = Delete(tree.deleter_left, self.left) if self.first else Check(tree.deleter_left, self.left)
        return [stays, Delete(tree.deleter)]


@contextmanager
def deletion(context: TableContext, tombstone: Tombstone) -> Iterator[Deletion]:
    """Hold the only right to delete for this very drop, as its tombstone identifies it.

    Raises TableDropped if that tombstone is gone (another table may exist), Unavailable while another client deletes.
    """
    held = _claim(context, tombstone)
    try:
        yield held
    finally:
        held.let_go()


def _claim(context: TableContext, tombstone: Tombstone) -> Deletion:
    tree, identity = context.tree, uuid.uuid4().hex
    claim = {"id": identity, "host": socket.gethostname(), "pid": os.getpid()}
    for _ in range(_ATTEMPTS):
        session = context.connect()
        session.barrier()
        grave, deleter, left = session.read_many([tree.tombstone, tree.deleter, tree.deleter_left])
        # check: a-drop-deletes-its-own-table (without or Tombstone(**orjson.loads(grave.data)) != tombstone)
        if grave is None or Tombstone(**orjson.loads(grave.data)) != tombstone:
            raise context.dropped()
        if deleter is not None and left is not None and _content(deleter)["id"] == identity:  # our claim, whose reply was lost
            return Deletion(context, tombstone, identity, grave, left.version, first=left.version == 0)
        if deleter is not None:
            raise _taken(context, deleter)
        body = orjson.dumps({**claim, "since_ms": context.clock.now_ms()})
        stays: Op = Create(tree.deleter_left, body) if left is None else Write(tree.deleter_left, body, left.version)
        with suppress(ApplyRefused, ReplyLost):
            session.apply([Check(tree.tombstone, grave.version), stays, Create(tree.deleter, body, ephemeral=True)])
            version = 0 if left is None else left.version + 1
            return Deletion(context, tombstone, identity, grave, version, first=left is None)
    raise Unavailable(f"the data of {tree.location} could not be claimed for deletion: repeat the drop", location=tree.location)


def _taken(context: TableContext, deleter: Node) -> Unavailable:
    claim, location = _content(deleter), context.tree.location
    return Unavailable(
        f"the table at {location} was dropped, and its data are being deleted by process {claim['pid']} on {claim['host']}: wait until it "
        "is done, or end it, and repeat this when its session has expired",
        location=location,
        host=claim["host"],
        pid=claim["pid"],
    )


def require_no_deleter(context: TableContext) -> None:
    """Raise Unavailable while a client deletes at this location, or one that disappeared may still do so."""
    tree = context.tree
    deleter, left = context.in_connection(lambda session: session.read_many([tree.deleter, tree.deleter_left]))
    if deleter is not None:
        raise _taken(context, deleter)
    if left is None:
        return
    wait_s = _content(left)["since_ms"] / 1000 + LONGEST_PUT_S - context.clock.now_ms() / 1000
    if wait_s > 0:
        raise Unavailable(
            f"the table at {tree.location} was dropped, and a client that deleted its data disappeared before it was done (killed, or "
            f"paused): it may delete log files of a new table. Try again in {wait_s:.0f} s, or use another location",
            location=tree.location,
            wait_s=wait_s,
        )
    with suppress(NoNode, BadVersion, ReplyLost):
        context.connect().delete(left.path, version=left.version)


def _content(node: Node) -> dict[str, Any]:
    return dict(orjson.loads(node.data))
