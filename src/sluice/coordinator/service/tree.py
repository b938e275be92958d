"""ZooKeeper's tree as one value in memory: the state of a single server that has applied every transaction.

Pure: no threads, no sessions' liveness, no watches; `memory.py` adds those. It keeps these rules of ZooKeeper:

- every request that could change something takes one zxid, even if it fails; all operations of a request share it;
- a sequential name ends in `%010d` of the parent's counter, which counts every child created under that parent,
  sequential or not, and never falls when children are deleted; a failed request leaves counters unchanged;
- data versions start at 0 and count writes; a recreated node starts at 0 again with another `created_zxid`;
- an ephemeral node belongs to a session, has no children, and goes when the session ends;
- a request has all its effects or none, and names the first operation that failed.

The last changes are remembered, so that the tree can be read as of an earlier zxid (a server that lags).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import takewhile
from zlib import crc32

from ...storage.dataclass import dataclass
from .store import (
    ANY_VERSION,
    ApplyRefused,
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    ParentIsEphemeral,
    StoreError,
    Write,
    parent_of,
)

HISTORY = 10_000
"""How many changes are remembered for looking back."""


@dataclass(frozen=True, slots=True)
class Change:
    """One node's change at `zxid`: `before` and `after` are None if the node did not exist."""

    zxid: int
    path: str
    before: Node | None
    after: Node | None

    @property
    def triggered(self) -> tuple[tuple[str, str], ...]:
        """The watches that this triggers: those of the node, and if it came or went those on the children of it and of its parent."""
        node = ("read", self.path)
        if (self.before is None) == (self.after is None):
            return (node,)
        return (node, ("children", self.path), ("children", parent_of(self.path)))


@dataclass(slots=True)
class _Entry:
    node: Node
    counter: int = 0
    children: set[str] = field(default_factory=set[str])


class Tree:
    """The nodes by path, the zxid of the last request, and the recent past. Not thread-safe."""

    def __init__(self) -> None:
        self.zxid = 0
        self.clock_ns, self.now_ms = time.time_ns, 0
        """The service's clock, and the time of the last request."""
        self.oldest_view = 0
        """The earliest zxid at which the tree can be read."""
        self._entries: dict[str, _Entry] = {"/": _Entry(Node("/", b"", 0, 0))}
        self._ephemerals: dict[int, set[str]] = {}
        self._past: deque[Change] = deque(maxlen=HISTORY)

    # -- changing --------------------------------------------------------------------------------------------------

    def execute(self, ops: Sequence[Op], *, session: int) -> tuple[list[str | int | None], list[Change]]:
        """Apply all operations or none; returns their results and the changes. Raises ApplyRefused with the index and cause."""
        self.zxid += 1
        self.now_ms = self.clock_ns() // 1_000_000
        results: list[str | int | None] = []
        changes: list[Change] = []
        counters: dict[str, int] = {}
        for index, op in enumerate(ops):
            try:
                results.append(self._execute_one(op, session, changes, counters))
            except StoreError as cause:
                for change in reversed(changes):
                    self._set(change.path, change.before)
                for path, counter in counters.items():
                    if path in self._entries:
                        self._entries[path].counter = counter
                message = f"operation {index} of {len(ops)} ({type(op).__name__.lower()} {op.path}) was refused: {cause}"
                raise ApplyRefused(message, index=index, cause=cause) from cause
        self._past.extend(changes)
        if len(self._past) == HISTORY:
            self.oldest_view = self._past[0].zxid
        return results, changes

    def end_session(self, session: int) -> list[Change]:
        """Delete the session's ephemeral nodes in one transaction."""
        return self.execute([Delete(path) for path in sorted(self._ephemerals.get(session, ()))], session=session)[1]

    def _execute_one(self, op: Op, session: int, changes: list[Change], counters: dict[str, int]) -> str | int | None:
        if isinstance(op, Create):
            return self._create(op, session, changes, counters)
        entry = self._entries.get(op.path)
        if entry is None:
            raise NoNode(f"{op.path} does not exist", path=op.path)
        current = entry.node
        if op.version not in (ANY_VERSION, current.version):
            message = f"{op.path} has data version {current.version}, not {op.version}"
            raise BadVersion(message, path=op.path, expected=op.version, current=current.version)
        if isinstance(op, Check):
            return None
        if isinstance(op, Write):
            changes.append(self._set(op.path, replace(current, data=op.data, version=current.version + 1, changed_ms=self.now_ms)))
            return current.version + 1
        if entry.children:
            raise NotEmpty(f"{op.path} has {len(entry.children)} children", path=op.path)
        counters.setdefault(op.path, entry.counter)
        changes.append(self._set(op.path, None))
        return None

    def _create(self, op: Create, session: int, changes: list[Change], counters: dict[str, int]) -> str:
        above = parent_of(op.path)
        parent = self._entries.get(above)
        if parent is None:
            raise NoNode(f"{above}, the parent of {op.path}, does not exist", path=above)
        path = f"{op.path}{parent.counter:010d}" if op.sequential else op.path
        if path in self._entries:
            raise NodeExists(f"{path} exists", path=path)
        if parent.node.owner_session:
            raise ParentIsEphemeral(f"{above} is ephemeral and cannot have children", path=above)
        counters.setdefault(above, parent.counter)
        parent.counter += 1
        changes.append(self._set(path, Node(path, op.data, 0, self.zxid, session if op.ephemeral else 0, self.now_ms, self.now_ms)))
        return path

    def _set(self, path: str, after: Node | None) -> Change:
        """Make, replace or delete (None) a node."""
        siblings, name = self._entries[parent_of(path)].children, path.rpartition("/")[2]
        entry = self._entries.get(path)
        before = None if entry is None else entry.node
        if before is not None and before.owner_session:
            self._ephemerals[before.owner_session].discard(path)
        if after is not None and after.owner_session:
            self._ephemerals.setdefault(after.owner_session, set()).add(path)
        if after is None:
            del self._entries[path]
            siblings.discard(name)
        elif entry is None:
            self._entries[path] = _Entry(after)
            siblings.add(name)
        else:
            entry.node = after
        return Change(self.zxid, path, before, after)

    # -- looking ---------------------------------------------------------------------------------------------------

    def changes_after(self, zxid: int) -> list[Change]:
        """The remembered changes with a greater zxid, oldest first."""
        return list(takewhile(lambda change: change.zxid > zxid, reversed(self._past)))[::-1]

    def node(self, path: str, at: int) -> Node | None:
        """The node as of zxid `at`, or None."""
        for change in self.changes_after(at) if at < self.zxid else ():
            if change.path == path:
                return change.before
        entry = self._entries.get(path)
        return entry.node if entry else None

    def children(self, path: str, at: int) -> list[str] | None:
        """The names of the children as of zxid `at`, or None if the node did not exist.

        ZooKeeper promises no order. This one is deterministic, but differs from the order of the names, on which nobody may
        rely.
        """
        if self.node(path, at) is None:
            return None
        entry = self._entries.get(path)
        names = set(entry.children) if entry else set[str]()
        for change in reversed(self.changes_after(at)) if at < self.zxid else ():
            if change.triggered[2:] == (("children", path),):
                name = change.path.rpartition("/")[2]
                names.discard(name) if change.before is None else names.add(name)
        return [name for _, name in sorted([(crc32(name.encode()), name) for name in names])]

    def walk(self) -> list[Node]:
        """Every node in path order, for tests and tools."""
        return [self._entries[path].node for path in sorted(self._entries)]
