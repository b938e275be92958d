"""The services' twins as the judge looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.coordinator.service.tree import Change, Tree

from .memory import NodeChange

__all__ = ["Glance", "plain"]


class Glance:
    """The services as they are; implements View. `undone` are changes that it does not show: it looks at what was before them."""

    def __init__(self, tree: Tree, objects: Mapping[tuple[str, str], bytes], undone: Sequence[NodeChange] = ()) -> None:
        self._tree, self._objects = tree, objects
        self._before: dict[str, bytes | None] = {path: before for path, before, _ in reversed(undone)}

    def data(self, path: str) -> bytes | None:
        if path in self._before:
            return self._before[path]
        entry = self._tree._entries.get(path)
        return None if entry is None else entry.node.data

    def names(self, path: str) -> list[str]:
        entry = self._tree._entries.get(path)
        names = set() if entry is None else set(entry.children)
        for each, before in self._before.items():
            above, _, name = each.rpartition("/")
            if above == path:
                names.discard(name) if before is None else names.add(name)
        return sorted(names)

    def content(self, table: str, key: str) -> bytes | None:
        return self._objects.get((table, key))


def plain(change: Change) -> NodeChange:
    """A change as the judge has it."""
    before, after = change.before, change.after
    return change.path, None if before is None else before.data, None if after is None else after.data
