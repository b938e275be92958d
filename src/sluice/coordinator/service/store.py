"""The protocol of the coordination service: a tree of versioned nodes.

`zookeeper/session.py` implements it over kazoo, `memory.py` is the deterministic twin with injectable faults. Paths are
absolute within the store's chroot (`/tables/...`).

Replies can be lost. Every mutating verb may raise ReplyLost: the change may or may not have happened, but it will not happen
later than a `barrier()` that returned afterwards. The caller finds out by looking for what it wrote (a GUID in a name, a
data version), never by sending blindly again.

Every store checks requests before it sends them, so that the twin refuses what ZooKeeper would refuse. ZooKeeper answers a
request above its `jute.maxbuffer` (1,048,575 bytes by default; a whole multi counts as one request) by dropping the connection,
which looks like a lost reply.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Protocol, TypeAlias

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError
from ..errors import SessionLost

ANY_VERSION = -1

MAX_REQUEST_BYTES = 1_000_000
"""The maximum size of one request in bytes, all operations of an `apply` together."""

_OP_OVERHEAD = 64
"""Bytes counted per operation for headers, lengths, the access list and flags (create, the largest, has 60)."""


class StoreError(SluiceError):
    """The root of a store's expected answers, which the protocol code handles and users never see."""


class NodeExists(StoreError):
    """Raised by create if the node exists."""


class NoNode(StoreError):
    """Raised if the node (or the parent of a created one) does not exist."""


class BadVersion(StoreError):
    """Raised by a conditional write, delete or check whose expected data version is not the current one."""


class NotEmpty(StoreError):
    """Raised by delete if the node has children."""


class ParentIsEphemeral(StoreError):
    """Raised by create below an ephemeral node, which never has children."""


class ReplyLost(StoreError):
    """Raised by a mutating verb when its reply was lost: it may have taken effect."""


class ApplyRefused(StoreError):
    """Raised by apply if one op failed and none took effect; `index` is that op's, `cause` its StoreError."""

    index: int
    cause: StoreError


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read: its data, its data `version`, the `zxid` that created it and the session that owns it (0: none).

    `created_ms` and `changed_ms` are times by the service's own clock, for people: nothing is decided by them.
    """

    path: str
    data: bytes
    version: int
    created_zxid: int
    owner_session: int = 0
    created_ms: int = field(default=0, compare=False)
    changed_ms: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; `sequential` appends the parent's ten-digit counter to the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Replace a node's data if its version is `version` (or ANY_VERSION)."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children if its version is `version` (or ANY_VERSION)."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Succeed only if the node exists and its data version is `version` (or ANY_VERSION)."""

    path: str
    version: int


Op: TypeAlias = "Create | Write | Delete | Check"


class CoordinationStore(Protocol):
    """A session with the coordination service.

    Reads are repeated internally until the store's retry time is over (CoordinatorUnavailable). After the session expired,
    every verb raises SessionLost. A mutating verb without a connection waits for one in the same way, so for it
    CoordinatorUnavailable means that nothing was sent; once sent, it answers or raises ReplyLost. Reads of one session never
    go back in time, and see its own writes.
    """

    @property
    def session_id(self) -> int:
        """The id of the session; ephemeral nodes carry it as `owner_session`."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the session is known to be alive right now (not suspended, not expired)."""
        ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Create one node and return its path. Raises NodeExists, NoNode (parent missing), ReplyLost."""
        ...

    def ensure_path(self, path: str) -> None:
        """Create the node and its missing parents, empty; an existing one is left as it is. Idempotent."""

    def read(self, path: str, watch: Callable[[], None] | None = None) -> Node | None:
        """The node, or None if it does not exist.

        `watch` is called once, from a thread of the store, when the node is created, changed or deleted after this read, or
        when the connection's state changes; it must only set flags or events.
        """
        ...

    def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Like `read`, for many nodes at once (pipelined); not one point in time."""
        ...

    def look(self, nodes: Sequence[str], parents: Sequence[str]) -> tuple[list[Node | None], list[list[str] | None]]:
        """Nodes, and the names of the children of `parents`, at once (pipelined): one round trip, not one point in time.

        Later results are never older: all nodes come before all children, each in the given order.
        """
        ...

    def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str] | None:
        """The names of the children, unsorted; None if the node does not exist. `watch` as for read."""
        ...

    def write(self, path: str, data: bytes, *, version: int) -> int:
        """Replace the data if the version matches; returns the new version. Raises NoNode, BadVersion, ReplyLost."""
        ...

    def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        """Delete a node. Raises NoNode, BadVersion, NotEmpty, ReplyLost."""

    def apply(self, ops: Sequence[Op]) -> list[str | int | None]:
        """All ops or none, in one transaction. Returns per op the created path, the written version, or None.

        Raises ApplyRefused, ReplyLost, and InvalidRequest if the request would exceed the service's size limit.
        """
        ...

    def barrier(self) -> None:
        """A quorum operation that changes nothing: reads after it see every change acknowledged to anybody before it."""

    def close(self) -> None:
        """End the session; its ephemeral nodes vanish at once."""


class ChangingNodes(ABC):
    """The verbs of a store that change nodes, made of `_change`."""

    @abstractmethod
    def _change(self, verb: str, ops: Sequence[Op]) -> list[str | int | None]:
        """All operations or none; `verb` names the call. Returns and raises what `apply` does."""

    def apply(self, ops: Sequence[Op]) -> list[str | int | None]:
        """All operations or none, in one multi."""
        return self._change("apply", ops)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Create one node and return its path."""
        return str(self._change_one("create", Create(path, data, ephemeral=ephemeral, sequential=sequential)))

    def write(self, path: str, data: bytes, *, version: int) -> int:
        """Replace the data if the version matches; returns the new version."""
        written = self._change_one("write", Write(path, data, version))
        assert isinstance(written, int)
        return written

    def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        """Delete a node without children."""
        self._change_one("delete", Delete(path, version))

    def _change_one(self, verb: str, op: Op) -> str | int | None:
        try:
            return self._change(verb, [op])[0]
        except ApplyRefused as refused:
            raise refused.cause from None


def put(path: str, data: bytes, former: Node | None) -> Op:
    """Create a node, or write it if it exists: `former` is the node as it was read."""
    return Create(path, data) if former is None else Write(path, data, former.version)


def nodes_below(session: CoordinationStore, parent: str) -> list[Node]:
    """The children that a node has while they are read, in no order; none if the node does not exist."""
    return list(filter(None, session.read_many([f"{parent}/{name}" for name in session.children(parent) or ()])))


def parent_of(path: str) -> str:
    """The path of the parent node; "/" is its own parent."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Raise InvalidRequest unless the path is "/" or "/a/b": absolute, without empty, "." or ".." parts and NULs."""
    parts = path.split("/")[1:]
    proper = path == "/" or (path.startswith("/") and {"", ".", ".."}.isdisjoint(parts))
    if not proper or "\0" in path:
        raise InvalidRequest(f"{path!r} is not a node path: it must be absolute, without empty, '.' or '..' parts", path=path)


def request_bytes(ops: Sequence[Op], *, prefix: int = 0) -> int:
    """An upper bound of the operations' size on the wire; `prefix` is the length of the chroot."""
    total = 0
    for op in ops:
        data = len(op.data) if isinstance(op, Create | Write) else 0
        total += data + len(op.path.encode()) + prefix + _OP_OVERHEAD
    return total


def check_ops(ops: Sequence[Op], *, prefix: int = 0) -> None:
    """Raise InvalidRequest for a malformed path, for creating or deleting the root, or for a request that is too large."""
    for op in ops:
        if not isinstance(op, Create | Write | Delete | Check):
            raise InvalidRequest(f"{op!r} is not an operation of a coordination store")
        check_path(op.path)
        if op.path == "/" and isinstance(op, Create | Delete):
            raise InvalidRequest("the root of the tree can neither be created nor deleted", path="/")
    size = request_bytes(ops, prefix=prefix)
    if size > MAX_REQUEST_BYTES:
        raise InvalidRequest(
            f"the request has {size:,} bytes in {len(ops)} operations, ZooKeeper takes at most {MAX_REQUEST_BYTES:,}: "
            "split it, or keep the bulk in the object store",
            size=size,
            limit=MAX_REQUEST_BYTES,
        )


def make_node(
    session: CoordinationStore, path: str, data: bytes, make_parent: Callable[[CoordinationStore], object], *, ephemeral: bool = False
) -> None:
    """Create a node despite lost replies; an existing one is taken for it. `make_parent` makes its parent if that does not exist."""
    while True:
        try:
            session.create(path, data, ephemeral=ephemeral)
        except NoNode:
            make_parent(session)
        except ReplyLost:
            session.barrier()
        except NodeExists:
            return
        else:
            return


def write_through(session: CoordinationStore) -> tuple[float, int]:
    """How many seconds a write through the quorum takes, and the coordinator's time in milliseconds since 1970. Raises SessionLost."""
    path, began = f"/status-{uuid.uuid4().hex}", time.monotonic()
    with suppress(ReplyLost):  # then it is there, or not
        session.create(path, ephemeral=True)
    took_s = time.monotonic() - began
    node = session.read(path)
    if node is None:
        raise SessionLost("the coordinator's session ended while its time was read")
    with suppress(SluiceError):  # it is ephemeral
        session.delete(path)
    return took_s, node.created_ms
