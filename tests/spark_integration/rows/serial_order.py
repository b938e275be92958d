"""Judges a table by the order of its versions: each version must be what its operation makes of the version before it.

That is what both levels demand, with one difference (docs/isolation.md). Under `Serializable` the order of versions is a serial
order: an operation has seen every earlier version. Under `WriteSerializable` blind appends may come in the log before an
operation that did not see them. So an operation that was made on version r and became version v must have seen all rows of version
v - 1 but those that blind appends added after r and nobody changed since: they are left out when the operation is repeated here,
and stay as they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sluice
from sluice.tables.write.terms import KEY_PREFIX

from .model import Row, changes
from .random_operations import TABLE, TAG, Operation

_SHOWN = 4


@dataclass(frozen=True)
class Held:
    """A row, the version that wrote it, and whether that was a blind append."""

    row: Row
    version: int
    blind: bool


@dataclass
class Judgement:
    """What was found in one table."""

    violations: list[str] = field(default_factory=list)
    replayed: Counter[str] = field(default_factory=Counter)
    over_others: int = 0
    """Operations that became another version than the one after that which they read."""
    unseen: int = 0
    """Rows of blind appends that an operation need not have seen."""


def keys_of(location: str, version: int) -> list[str]:
    """The keys of the operations that a version's file has."""
    lines = (Path(location.removeprefix("file:")) / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8").splitlines()
    ids = [str(action["txn"]["appId"]) for line in lines if "txn" in (action := json.loads(line))]
    return [each.removeprefix(KEY_PREFIX) for each in ids if each.startswith(KEY_PREFIX)]


class Judge:
    """Follows a table from version to version. `operations` are those of drivers, `appended` the rows of appends, by key."""

    def __init__(self, table: sluice.Table, operations: Mapping[str, Operation], appended: Mapping[str, list[Row]]) -> None:
        self._table = table
        self._operations = operations
        self._appended = appended
        self._held: dict[str, Held] = {}
        self._tells = table.properties.get("delta.enableChangeDataFeed") == "true"
        self._level = table.properties.get("delta.isolationLevel", "WriteSerializable")
        self.result = Judgement()
        self.versions: dict[str, int] = {}
        """The version of each key."""
        self.changed: dict[str, int] = {}
        """How many rows each operation changed."""

    def follow(self) -> Judgement:
        """Judge all versions."""
        entries: dict[int, list[Any]] = {}
        for entry in self._table.history(None):
            entries.setdefault(entry.version, []).append(entry)
        before: dict[str, Row] = {}
        for version in range(self._table.refresh().version + 1):
            self._replay(version, entries[version][0])
            found = by_tag(self._table.snapshot(version).to_arrow().to_pylist())
            expected = {tag: held.row for tag, held in self._held.items()}
            self._compare(f"version {version} ({self._named(version)})", expected, found)
            if self._tells and version:
                self._check_changes(version, before, found)
            before = found
            self._held = {tag: self._held[tag] if expected.get(tag) == row else Held(row, version, False) for tag, row in found.items()}
        return self.result

    def _replay(self, version: int, entry: Any) -> None:
        keys = keys_of(self._table.location, version)
        for key in keys:
            if key in self.versions:
                self.result.violations.append(f"{key} is version {self.versions[key]} and {version}")
            self.versions[key] = version
        appended = [key for key in keys if key in self._appended]
        self.result.replayed[entry.operation] += 1
        if len(appended) == len(keys):
            for row in (row for key in appended for row in self._appended[key]):
                self._held[row[TAG]] = Held(row, version, True)
        elif len(keys) > 1:
            self.result.violations.append(f"version {version} has operations of several drivers: {', '.join(keys)}")
        elif keys[0] not in self._operations:
            self.result.violations.append(f"version {version} has the key {keys[0]}, which nobody used")
        else:
            self._carry_out(self._operations[keys[0]], version, entry)

    def _carry_out(self, asked: Operation, version: int, entry: Any) -> None:
        level = asked.isolation or self._level
        if entry.isolation != level:
            self.result.violations.append(f"version {version} says {entry.isolation}, {asked.key} asked for {level}")
        read = entry.read_version
        self.result.over_others += read < version - 1
        seen = {tag: held for tag, held in self._held.items() if level == "Serializable" or not held.blind or held.version <= read}
        self.result.unseen += len(self._held) - len(seen)
        made = changes([held.row for held in seen.values()], asked.source, asked.on, asked.rules)
        self.changed[asked.key] = len(made)
        for before, after in made:
            if before is not None:
                del self._held[before[TAG]]
            if after is not None:
                self._held[after[TAG]] = Held(after, version, False)

    def _check_changes(self, version: int, before: Mapping[str, Row], after: Mapping[str, Row]) -> None:
        net: Counter[Row] = Counter()
        for row in self._table.changes(version - 1, version).to_pylist():
            net[tuple(row[name] for name in TABLE.names)] += -1 if row["_change_type"] in ("delete", "update_preimage") else 1
        told = {row: count for row, count in net.items() if count}
        rows = Counter(after.values())
        rows.subtract(Counter(before.values()))
        wanted = {row: count for row, count in rows.items() if count}
        if told != wanted:
            self.result.violations.append(f"version {version} tells the changes {told}, and changed {wanted}")

    def _compare(self, what: str, expected: Mapping[str, Row], found: Mapping[str, Row]) -> None:
        differ = [tag for tag in {**expected, **found} if expected.get(tag) != found.get(tag)]
        if differ:
            shown = "; ".join(f"{tag}: {found.get(tag)} instead of {expected.get(tag)}" for tag in sorted(differ)[:_SHOWN])
            self.result.violations.append(f"{what}: {len(differ)} rows differ: {shown}")

    def _named(self, version: int) -> str:
        return ", ".join(key for key, where in self.versions.items() if where == version) or "no key"


def by_tag(rows: Iterable[Mapping[str, Any]]) -> dict[str, Row]:
    """Rows by their tag. Raises ValueError if two have the same."""
    found: dict[str, Row] = {}
    for each in rows:
        row = tuple(each[name] for name in TABLE.names)
        if row[TAG] in found:
            raise ValueError(f"two rows have the tag {row[TAG]}: {row} and {found[row[TAG]]}")
        found[row[TAG]] = row
    return found
