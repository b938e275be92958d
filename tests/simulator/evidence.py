"""A run's history beside the logs that came of it: what all judgements go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .history import Call, History, TableHistory
from .log import Log, Transaction, read_log

CHANGES_ROWS = ("write", "plan", "leased", "joint")
_RECOVER = "RECOVER"


@dataclass
class TableEvidence:
    """One table: what happened to it, all that was ever stored there, and what of that is left."""

    told: TableHistory
    level: str
    left: Mapping[str, bytes]
    log: Log
    places: dict[str, Transaction]
    recoveries: frozenset[int] = frozenset()
    """The versions that those wrote who rebuilt the coordinator's nodes: they were not ratified."""
    sealed: int | None = None
    """The first of them: from it on, what was ratified before is lost."""
    ratified: dict[int, int] = field(default_factory=dict)
    """When each version of the log was ratified."""

    @property
    def last(self) -> int:
        return self.log.versions[-1].number


class Evidence:
    def __init__(self, history: History, objects: Mapping[str, Mapping[str, bytes]], levels: Sequence[str]) -> None:
        self.history = history
        self.calls: dict[str, Call] = {guid: call for call in history.calls for guid in call.filed}
        self.tables = [self._table(table, level, objects[table.location]) for table, level in zip(history.tables, levels, strict=True)]

    def _table(self, told: TableHistory, level: str, left: Mapping[str, bytes]) -> TableEvidence:
        archive = {stored.key: stored.content for stored in told.stored if stored.content is not None}
        log = read_log(archive)
        found = TableEvidence(told, level, left, log, log.places())
        if self.history.lost_at is not None:
            operations = {version.number: [each.operation for each in version.transactions] for version in log.versions}
            found.recoveries = frozenset(number for number, made in operations.items() if made == [_RECOVER])
            found.sealed = min(found.recoveries, default=None)
        tick_of: dict[tuple[int, str], int] = {(v.version, v.guid): v.tick for v in told.verdicts if v.refusal is None and not v.repeats}
        for version in log.versions:
            ticks = [tick_of[key] for each in version.transactions if (key := (version.number, each.id)) in tick_of]
            if ticks:
                found.ratified[version.number] = ticks[0]
        return found

    def at(self, location: str) -> TableEvidence:
        return next(each for each in self.tables if each.told.location == location)

    def was_lost(self, table: TableEvidence, version: int, tick: int) -> bool:
        """Whether what was ratified at a time as this version may be gone: with the coordinator's data, before it was published."""
        lost_at = self.history.lost_at
        return lost_at is not None and tick <= lost_at and table.sealed is not None and version >= table.sealed

    def era(self, tick: int) -> int:
        """0 before the coordinator's data were lost, 1 after that."""
        return int(self.history.lost_at is not None and tick > self.history.lost_at)
