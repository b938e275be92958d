"""Checks that every store makes before it sends a request, so that the twin refuses what ZooKeeper would refuse.

ZooKeeper answers a request above its `jute.maxbuffer` (1,048,575 bytes by default; a whole multi counts as one request) by
dropping the connection, which looks like a lost reply: so the size must be checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...storage.errors import InvalidRequest
from .store import Check, CoordinationStore, Create, Delete, NodeExists, NoNode, Op, ReplyLost, Write

__all__ = ["MAX_REQUEST_BYTES", "check_ops", "check_path", "make_node", "parent_of", "request_bytes"]

MAX_REQUEST_BYTES = 1_000_000
"""The maximum size of one request in bytes, all operations of an `apply` together."""

_OP_OVERHEAD = 64
"""Bytes counted per operation for headers, lengths, the access list and flags (create, the largest, has 60)."""


def parent_of(path: str) -> str:
    """The path of the parent node; "/" is its own parent."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Raise InvalidRequest unless the path is "/" or "/a/b": absolute, without empty, "." or ".." parts and NULs."""
    parts = path.split("/")[1:]
    proper = path == "/" or (path.startswith("/") and all(part not in ("", ".", "..") for part in parts))
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
    session: Callable[[], CoordinationStore], path: str, data: bytes, make_parent: Callable[[], object], *, ephemeral: bool = False
) -> None:
    """Create a node in the present `session`, despite lost replies; an existing one is taken for it.

    `make_parent` makes its parent if that does not exist.
    """
    while True:
        try:
            session().create(path, data, ephemeral=ephemeral)
        except NoNode:
            make_parent()
        except ReplyLost:
            session().barrier()
        except NodeExists:
            return
        else:
            return
