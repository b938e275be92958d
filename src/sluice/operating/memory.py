"""What looks at one coordinator remember, so that the next look reads less: for programs that look every few seconds.

A verdict record never changes, so it is read once. A table at which nothing happens is not read again before its head, its queue or its
leases change: ZooKeeper says so, once, to whom reads them with a watch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Final

from msgspec.structs import replace

from ..coordinator.api import BatchRecord, CoordinationStore, Head, Node, Place, TableTree, VerdictName
from ..coordinator.rules.refusal import Refusal
from ..storage.dataclass import dataclass
from ..storage.errors import SluiceError
from .document import Table

_AGAIN_MS: Final = 60_000
"""After this time a quiet table is read again, for what no watch tells: its name, its consumers, its vacuums, its examinations."""
_AGES: Final = ("since_made_s", "since_vacuum_s", "since_examined_s")
"""They grow though nothing happens."""
_WATCHED_AT_ONCE: Final = 100
"""Each takes three requests, one after the other."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What a verdict record says: when it was made by the coordinator's clock, of which transactions, and which of them were refused."""

    at_ms: int
    transactions: tuple[str, ...]
    committed: int
    lost: tuple[tuple[str, Refusal], ...]


def decided_in(node: Node) -> Decided:
    """What a record's node says. Raises MalformedRecord, UnknownFormat."""
    verdicts = BatchRecord.decode(node.data).verdicts
    return Decided(
        node.created_ms,
        tuple([each.transaction_id for each in verdicts]),
        sum(each.refusal is None and not each.repeats for each in verdicts),
        tuple([(each.transaction_id, each.refusal) for each in verdicts if each.refusal is not None]),
    )


def is_quiet(table: Table) -> bool:
    """Whether nothing about a table but ages changes before its head, its queue or its leases do."""
    busy = table.committed or table.refused or table.queue.length or table.publication.versions or table.leases.held or table.leases.waiting
    return not (busy or table.trouble or table.ahead_s or any(each.versions_behind for each in table.consumers))


@dataclass(slots=True)
class Memory:
    """The memory of looks; not thread-safe, except for what watches tell."""

    session: CoordinationStore | None = None
    records: dict[tuple[str, str], dict[VerdictName, Decided]] = field(default_factory=dict[tuple[str, str], dict[VerdictName, Decided]])
    """By location and id, the records that a table has: another one at the same place may have records of the same names."""
    _quiet: dict[str, tuple[Table, int]] = field(default_factory=dict[str, tuple[Table, int]])
    """The watched ones, as they were read at a time of the coordinator's clock."""
    _to_watch: list[str] = field(default_factory=list[str])
    _armed: set[str] = field(default_factory=set[str])
    _changed: set[str] = field(default_factory=set[str])
    _bells: dict[str, Callable[[], None]] = field(default_factory=dict[str, Callable[[], None]])

    def begin(self, session: CoordinationStore, now_ms: int, locations: Sequence[str]) -> Mapping[str, Table]:
        """The tables, of those at these locations, that need not be read now; watches some that were quiet at the last look."""
        if session is not self.session:  # watches ended with the session, and the ensemble may have lost its data
            self.session = session
            for each in (self.records, self._quiet, self._to_watch, self._armed, self._bells):
                each.clear()
        self._armed.clear()
        present = set(locations)
        newest = {location: table_id for location, table_id in self.records if location in present}  # the last one of a place is of now
        for location, table_id in [each for each in self.records if newest.get(each[0]) != each[1]]:
            del self.records[location, table_id]
        for location in [each for each in self._bells if each not in present]:
            self._quiet.pop(location, None)
            self._changed.discard(location)
            del self._bells[location]
        kept: dict[str, Table] = {}
        for location, (table, then_ms) in self._quiet.items():
            if location not in self._changed and now_ms - then_ms < _AGAIN_MS:
                older_s = (now_ms - then_ms) / 1000
                ages = {name: age_s + older_s for name in _AGES if (age_s := getattr(table, name)) is not None}
                consumers = tuple([replace(each, idle_s=each.idle_s + older_s) for each in table.consumers])
                kept[location] = replace(table, consumers=consumers, **ages)
        for location in [each for each in self._to_watch if each not in kept and each in present][:_WATCHED_AT_ONCE]:
            self._watch(session, location)
        return kept

    def end(self, now_ms: int, read: Sequence[Table]) -> None:
        """Remember the tables that a look has read."""
        self._to_watch = []
        for table in read:
            self._quiet.pop(table.location, None)
            if is_quiet(table):
                self._to_watch.append(table.location)
                if table.location in self._armed:
                    self._quiet[table.location] = table, now_ms

    def _watch(self, session: CoordinationStore, location: str) -> None:
        """Hear of the next change of a table; what is read after this has the changes before."""
        bell = self._bells.setdefault(location, partial(self._changed.add, location))
        tree = TableTree(location)
        self._changed.discard(location)
        self._quiet.pop(location, None)  # what it told before must be read, though this look may fail
        try:
            head = session.read(tree.head, bell)
            if head is not None:
                session.children(tree.slots(Head.decode(head.data).generation), bell)
                session.children(Place.of_table(tree).leases, bell)
                self._armed.add(location)
        except SluiceError:
            self._changed.add(location)  # the look says what the trouble is
