"""The judge of every single change, in a simulation: it sees each request that takes effect, and each answer that a client gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from sluice.coordinator.service.memory import MemoryCoordination
from sluice.coordinator.service.tree import Change, Tree

from ..judge.glance import Glance, plain
from ..judge.judge import Judge
from ..judge.memory import parsed, version_of
from .history import Call, History, TableHistory


class Witness:
    """What the judge knows of a run; what it finds is trouble of the history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.coordinations: list[MemoryCoordination] = []
        """The coordinators among which the tables move."""
        self._log: dict[tuple[str, str], bytes] = {}
        """Every file of a version that was ever stored: clean-ups of the log take none away."""
        self._judge = Judge([table.location for table in history.tables], cleaned=True)
        self._memory = self._judge.beginning(Glance(Tree(), self._log))

    def changed(self, at: MemoryCoordination, changes: Sequence[Change], by: str) -> None:
        """One request changed the nodes of a coordinator."""
        if not any(change.path.startswith("/tables/") for change in changes):
            return
        made = [plain(change) for change in changes]
        before = Glance(at.tree, self._log, made)
        self._memory, found = self._judge.changed(self._memory, before, Glance(at.tree, self._log), made)
        self._note(found, by)
        for table in self._history.tables if len(self.coordinations) > 1 else ():
            if len(self._places(table)) > 1:
                self._note([f"I1: two coordinators keep {table.location}"], by)

    def stored(self, table: str, key: str, content: bytes | None, by: str) -> None:
        """One request stored an object, or deleted it (None)."""
        if content is None or version_of(key) is None:
            return
        place = table, key
        now = Glance(self.coordinations[0].tree, self._log)
        self._memory, found = self._judge.stored(self._memory, now, (*place, self._log.get(place), content))
        self._log[place] = content
        self._note(found, by)

    def told(self, call: Call) -> None:
        for what in self._meaning(call):
            self._memory, found = self._judge.told(self._memory, what)
            self._note(found, str(call))

    def ended(self) -> None:
        for table in self._history.tables:
            places = self._places(table) or [Glance(self.coordinations[0].tree, self._log)]
            self._note([*self._judge.ended(self._memory, places[0], [table.location])], "in the end")

    def _places(self, table: TableHistory) -> list[Glance]:
        """The coordinators that keep a table."""
        views = [Glance(each.tree, self._log) for each in self.coordinations]
        heads = [parsed(each.data(f"/tables/{quote(table.location, safe='')}/head") or b'{"version":-1}') for each in views]
        return [view for view, head in zip(views, heads, strict=True) if head["version"] >= 0]  # others begin to make a table that is there

    def _meaning(self, call: Call) -> Iterator[tuple[object, ...]]:
        answer, tables = call.answer, self._history.tables
        if answer is None:
            return
        repeats = answer.repeated and call.operation.application is not None
        for number, told in answer.commits.items():
            kind = "published" if told.published else "committed"
            yield kind, tables[number].location, answer.transaction_id, told.version, told.ordinal, repeats
        if call.says_no(lost=self._history.lost_at is not None):
            yield from ((answer.kind, table.location, guid, answer.reason) for table in tables for guid in call.filed)

    def _note(self, found: Sequence[str], by: str) -> None:
        self._history.trouble += [f"{sentence} [{by}]" for sentence in found]
