"""Between the operations of a store and a transaction of the client library, which is only ever handed in."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from .store import Check, Create, Delete, Node, Op, Write

__all__ = ["below", "fill", "log", "node_of", "result_of", "stop", "warn_if_open"]

log = logging.getLogger("sluice.zookeeper")
log.addHandler(logging.NullHandler())  # quiet unless the program configures logging, never lost when it does


_CHANGING = 2 | 4 | 8 | 16
"""Rights of an access list: to write, to create and delete children, to change the list itself."""


def below(root: str, path: str) -> str:
    """The whole path of a node below a chroot ("" for none)."""
    return root + path if path != "/" else root or "/"


def node_of(path: str, data: bytes, stat: Any) -> Node:
    """A node as it was read."""
    return Node(path, data, stat.version, stat.czxid, stat.ephemeralOwner)


def warn_if_open(path: str, acl: Sequence[Any]) -> None:
    """Say so when everybody may change a node below which this client's own are closed."""
    if any(entry.id.scheme == "world" and entry.perms & _CHANGING for entry in acl):
        log.warning(
            "the nodes that sluice creates below %s are closed to others, %s itself is not: others may create nodes in it before sluice "
            "does; let sluice create a chroot of its own, or close this one (setAcl -R)",
            path,
            path,
        )


def fill(transaction: Any, ops: Sequence[Op], root: str) -> None:
    """Add the operations, their paths below `root`."""
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


def result_of(op: Op, result: Any, root: str) -> str | int | None:
    """What an operation returns: the path it created, the version it wrote, or nothing."""
    match op:
        case Create():
            return str(result)[len(root) :]
        case Write():
            return int(result.version)
        case _:
            return None


def stop(client: Any) -> None:
    """End the session if there is one, and free the client's threads and sockets."""
    try:
        client.stop()
        client.close()
    except Exception:
        log.exception("could not stop the ZooKeeper client")
