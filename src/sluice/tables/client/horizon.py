"""How far back garbage collection left versions whole, for those who pin one: nobody relies on files that are about to go."""

from __future__ import annotations

from typing import Final

import orjson

from ...coordinator.nodes.context import TableContext
from ...coordinator.service.store import BadVersion, Node, NodeExists, NoNode, ReplyLost
from ...storage.errors import VersionNotFound
from ...storage.log.snapshot import Snapshot
from ...storage.log.timetravel import iso_time, version_at
from .access import Access

__all__ = ["horizon_of", "raise_horizon", "require_above_horizon"]

_NAME: Final = "horizon"


def _path(context: TableContext) -> str:
    return f"{context.tree.root}/{_NAME}"


def _horizon(context: TableContext) -> int:
    return _version_in(context.coordination.read(_path(context)))


def _version_in(node: Node | None) -> int:
    return -1 if node is None or not node.data else int(orjson.loads(node.data)["version"])


def horizon_of(access: Access, cutoff_ms: int, latest: Snapshot) -> Snapshot:
    """The version from which on all files are kept: the last one of `cutoff_ms`, or the first that can be read where that is later."""
    if cutoff_ms >= latest.timestamp_ms:
        return latest
    try:
        version = version_at(access.store, cutoff_ms)
    except VersionNotFound as edge:
        version = int(edge.details.get("version", latest.version))
    return latest if version >= latest.version else access.at(version)


def raise_horizon(access: Access, cutoff_ms: int, horizon: Snapshot) -> None:
    """Write, before pins are looked for, from which version on all files are kept: see `horizon_of`.

    A version below may lose files, unless it was pinned before. It only moves up. Raises CoordinatorUnavailable where the table's nodes
    are gone.
    """
    context, version = access.ours.context, horizon.version
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


def require_above_horizon(access: Access, version: int) -> None:
    """Raise VersionNotFound for a version of which files may be gone or going; asked after it was pinned."""
    context = access.ours.context
    horizon = context.up_to_date(lambda: _horizon(context))
    if version < horizon:
        raise VersionNotFound(
            f"version {version} of {access.address.location} cannot be relied on: garbage collection keeps the files of version {horizon} "
            f"and later ones (as of {iso_time(context.clock.now_ms())})",
            location=access.address.location,
            version=version,
            earliest=horizon,
        )
