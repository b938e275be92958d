"""Pins: versions that are being read, which garbage collection keeps readable.

::

    /tables/<key>/pins/p-<guid>     ephemeral (PinNode)

A collector reads the pins with `pinned_versions` after a barrier, before it decides what to delete. A reader that has pinned
a version then checks that the version can still be read: a pin does not bring back a version that a collector gave up
before. The horizon is the version from which on a collector keeps files: an earlier version cannot be pinned any more.
"""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Final

from ...storage.errors import VersionNotFound
from ...storage.log.segment import latest_version
from ...storage.log.snapshot import Snapshot
from ...storage.times import text_of
from ..formats import NodeData, node_data
from ..nodes.context import TableContext
from ..service.store import BadVersion, CoordinationStore, Node, NodeExists, NoNode, ReplyLost, make_node, nodes_below
from .granting import LeaseClient, let_go
from .guard import make_child
from .lease import TableLeases

EVERYTHING: Final = -1
"""Means every version: a pin that cannot be read may name any."""


@node_data("pin")
class PinNode(NodeData):
    """What a pin's node says."""

    version: int
    host: str = ""
    pid: int = 0
    application: str = ""
    since_ms: int = 0
    """When it was made, by its client's clock (only shown)."""
    onwards: bool = False
    """Whether the changes after the version are kept, too."""
    until_ms: int = 0
    """When one ends that a table brought along from another coordinator, where its owner's session is (0: with its session)."""


@node_data("horizon")
class _Horizon(NodeData):
    """What a collector keeps."""

    version: int = -1
    """All files of this version and later ones."""
    cutoff_ms: int = 0
    """The time whose last version it is, or a later one: files without an owner, as an engine names them, may go if they are older."""
    foreign_ms: int = 0
    """Likewise for files that nothing accounts for."""


class Pin(AbstractContextManager["Pin"]):
    """A version that is kept readable until `release`, or until this process's session ends. A context manager."""

    def __init__(self, home: LeaseClient, store: CoordinationStore, path: str, version: int) -> None:
        self.version = version
        self._home, self._store, self._path = home, store, path
        self._released = False

    @property
    def held(self) -> bool:
        """Whether the pin exists as far as this process knows: the session may have ended unnoticed."""
        return not self._released and self._store.connected

    def release(self) -> None:
        """Let garbage collection have the version; doing so again does nothing. Never raises."""
        if not self._released:
            self._released = True
            let_go(self._home, self._store, [self._path])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"Pin(version={self.version})"


def pin_version(context: TableContext, version: int, *, onwards: bool = False) -> Pin:
    """Keep a version readable: garbage collection spares its files while the pin exists. Raises VersionNotFound.

    With `onwards` it also spares the files, and the log, from which the changes after that version are read.
    """
    home, tree = TableLeases.of(context).home, context.tree
    store = home.connect()
    path = f"{tree.pins}/p-{uuid.uuid4().hex}"
    client = context.client
    body = PinNode(version, client.host, client.pid, client.application, context.clock.now_ms(), onwards).encode()
    make_node(store, path, body, partial(make_child, path=tree.pins, location=tree.location), ephemeral=True)
    made = Pin(home, store, path, version)
    try:
        require_above_horizon(context, version)
        latest = latest_version(context.objects)
        if latest is not None and version <= latest:  # an unpublished version has lost nothing yet
            Snapshot.load(context.objects, version=version)
    except BaseException:
        made.release()
        raise
    return made


def pinned_versions(context: TableContext) -> set[int]:
    """The versions being read now; contains EVERYTHING if a pin cannot be read."""
    return {pin.version for pin in _pins(context)}


def followed_from(context: TableContext) -> int | None:
    """The first version that is pinned `onwards`; None if none is."""
    return min((pin.version for pin in _pins(context) if pin.onwards), default=None)


def _pins(context: TableContext) -> list[PinNode]:
    """The pins. A barrier comes first, so that no pin acknowledged before this call is missed."""
    session = context.coordination
    session.barrier()
    # check: unreadable-pins-keep-everything (EVERYTHING -> 2**62)
    pins = [PinNode.readable(node.data) or PinNode(EVERYTHING) for node in nodes_below(session, context.tree.pins)]
    return [pin for pin in pins if not 0 < pin.until_ms < context.clock.now_ms()]


def _horizon_in(node: Node | None) -> _Horizon:
    return _Horizon() if node is None else _Horizon.decode(node.data)


def raise_horizon(context: TableContext, version: int, cutoff_ms: int, *, foreign: bool = False) -> None:
    """Record, before pins are read, that all files are kept from this version on, the last one of `cutoff_ms`.

    An earlier version may lose files, unless it was pinned before; files that no version shows may go if they are older than `cutoff_ms`,
    with `foreign` also those that nothing accounts for. The horizon only moves up. Raises CoordinatorUnavailable if the table's nodes are
    gone.
    """
    path = context.tree.horizon
    while True:
        node = context.coordination.read(path)
        before = _horizon_in(node)
        raised = _Horizon(max(version, before.version), max(cutoff_ms, before.cutoff_ms), max(cutoff_ms * foreign, before.foreign_ms))
        data = raised.encode()  # written also if it is the same: the node's time says when the last collection was
        try:
            if node is None:
                context.coordination.create(path, data)
            else:  # nobody may have raised it further meanwhile
                context.coordination.write(path, data, version=node.version)
        except NoNode as gone:
            raise context.missing_error() from gone
        except (BadVersion, NodeExists, ReplyLost):
            context.coordination.barrier()
        else:
            return


def given_up_before(context: TableContext) -> tuple[int, int]:
    """The times (ms since 1970, by the store's clock) before which garbage collection may be deleting files without an owner: those named
    by an engine, and those that nothing accounts for. Called after `open_plan`.
    """
    horizon = _horizon_in(context.up_to_date(partial(context.read, context.tree.horizon)))
    return horizon.cutoff_ms, horizon.foreign_ms


def require_above_horizon(context: TableContext, version: int) -> None:
    """Raise VersionNotFound for a version whose files may be deleted; called after it was pinned."""
    horizon = _horizon_in(context.up_to_date(partial(context.read, context.tree.horizon))).version
    # check: no-pin-on-a-table-that-moved
    context.require_here()
    # check: pins-are-above-the-horizon
    if version < horizon:
        raise VersionNotFound(
            f"version {version} of {context.tree.location} cannot be pinned: garbage collection keeps the files of version {horizon} "
            f"and later ones (as of {text_of(context.clock.now_ms())})",
            location=context.tree.location,
            version=version,
            earliest=horizon,
        )
