"""The horizon: from which version on garbage collection keeps files, for clients that pin a version."""

from __future__ import annotations

from typing import Final

import orjson

from ...storage.errors import VersionNotFound
from ...storage.log.timetravel import iso_time
from ..nodes.context import TableContext
from ..service.store import BadVersion, Node, NodeExists, NoNode, ReplyLost

__all__ = ["raise_horizon", "require_above_horizon"]

_NAME: Final = "horizon"


def _path(context: TableContext) -> str:
    return f"{context.tree.root}/{_NAME}"


def _horizon(context: TableContext) -> int:
    return _version_in(context.coordination.read(_path(context)))


def _version_in(node: Node | None) -> int:
    return -1 if node is None or not node.data else int(orjson.loads(node.data)["version"])


def raise_horizon(context: TableContext, version: int, cutoff_ms: int) -> None:
    """Record, before pins are read, that all files are kept from this version on, the last one of `cutoff_ms`.

    An earlier version may lose files, unless it was pinned before. The horizon only moves up. Raises CoordinatorUnavailable
    if the table's nodes are gone.
    """
    data = orjson.dumps({"version": version, "cutoff_ms": cutoff_ms})
    while True:
        node = context.coordination.read(_path(context))
        if version <= _version_in(node):
            return
        try:
            if node is None:
                context.coordination.create(_path(context), data)
            else:  # nobody may have raised it further meanwhile
                context.coordination.write(_path(context), data, version=node.version)
        except NoNode as gone:
            raise context.vanished() from gone
        except (BadVersion, NodeExists, ReplyLost):
            context.coordination.barrier()
        else:
            return


def require_above_horizon(context: TableContext, version: int) -> None:
    """Raise VersionNotFound for a version whose files may be deleted; called after it was pinned."""
    horizon = context.up_to_date(lambda: _horizon(context))
    # check: pins-are-above-the-horizon
    if version < horizon:
        raise VersionNotFound(
            f"version {version} of {context.tree.location} cannot be pinned: garbage collection keeps the files of version {horizon} "
            f"and later ones (as of {iso_time(context.clock.now_ms())})",
            location=context.tree.location,
            version=version,
            earliest=horizon,
        )
