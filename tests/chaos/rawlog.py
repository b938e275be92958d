"""A table's log and its data files, read from raw bytes by the rules of the Delta protocol; no code of sluice takes part."""

from __future__ import annotations

import io
import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from ..raw_chain import file_number, misfits
from ..raw_numbers import COLUMN, Marked, marked
from ..raw_vectors import rows_in_vector, vector_key
from .meaning import Change, Row, Rows

__all__ = ["Folders", "LogReader", "Transaction", "Version", "Wrong"]

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Wrong(Exception):
    """Raised when bytes are not what the protocol says; the text says which."""


class Folders(Mapping[str, bytes]):
    """A table's objects in folders: what the store holds, and what was deleted from it in the course of time."""

    def __init__(self, kept: Path, deleted: Path) -> None:
        self._kept, self._deleted = kept, deleted

    @cached_property
    def live(self) -> frozenset[str]:
        """The keys of what was not deleted."""
        return frozenset(str(path.relative_to(self._kept)) for path in self._kept.rglob("*") if path.is_file())

    def __getitem__(self, key: str) -> bytes:
        path = self._kept / key
        return (path if path.is_file() else self._deleted / key).read_bytes()

    def __iter__(self) -> Iterator[str]:
        return iter(self.live)

    def __len__(self) -> int:
        return len(self.live)


@dataclass(frozen=True)
class Transaction:
    id: str
    version: int
    ordinal: int
    read_version: int
    operation: str
    application: str
    numbers: Mapping[str, int]
    joint: Mapping[str, int]
    adds: Mapping[str, Row]
    """The rows of the files that carry its id."""
    parts: frozenset[str]
    """The partitions it adds files to, or removes files from."""


@dataclass
class Version:
    """One version: its transactions in order, what changed in the rows, and ids that are there more than once after it."""

    number: int
    timestamp_ms: int
    transactions: list[Transaction]
    change: Change
    doubled: list[str] = field(default_factory=list)
    marked: Marked | None = None
    """The identity column, in a table that has one."""
    numbers: list[tuple[str, int | None]] = field(default_factory=list)
    """The rows of the files that it adds, with their values in that column."""
    gives_away: bool = False
    """Nobody gives a table away in a run."""


@dataclass(frozen=True)
class _File:
    """A live file: its action and its live rows."""

    add: Mapping[str, Any]
    rows: tuple[tuple[str, Row], ...]


class LogReader:
    """Replays a log, version by version. After that `rows` are those of the last one, `needed` the keys of its files.

    `chained`: each version has to say the digest of the one before and the hash of the files, as sluice's do.
    """

    def __init__(self, objects: Mapping[str, bytes], *, chained: bool = False) -> None:
        self._objects, self._chained = objects, chained
        self._before: bytes | None = None
        self._files: dict[str, _File] = {}
        self._contents: dict[str, list[tuple[str, Row]]] = {}
        self._counts: Counter[str] = Counter()
        self._marked: Marked | None = None
        self._numbers: dict[str, list[tuple[str, int | None]]] = {}
        self.rows: Rows = {}
        self.named: set[str] = set()
        """Every key that any version names."""

    @property
    def needed(self) -> set[str]:
        """The keys of the files and vectors of the version that was read last."""
        files = {unquote(path) for path in self._files}
        vectors = (vector_key(file.add["deletionVector"]) for file in self._files.values() if file.add.get("deletionVector"))
        return files | {key for key in vectors if key is not None}

    def versions(self) -> Iterator[Version]:
        """Each version in turn. Raises Wrong for what no log may hold."""
        numbers = sorted(int(match[1]) for key in self._objects if (match := _COMMIT.fullmatch(key)))
        if numbers != list(range(len(numbers))):
            missing = sorted(set(range(numbers[-1])) - set(numbers)) if numbers else []
            raise Wrong(f"versions are not dense from 0: missing are {missing[:5]}")
        for number in numbers:
            content = self._objects[f"_delta_log/{number:020d}.json"]
            actions = [json.loads(line) for line in content.splitlines() if line]
            version = self._apply(number, actions)
            if self._chained:
                files = sum(file_number(file.add) for file in self._files.values())
                for misfit in misfits(number, actions[0].get("commitInfo", {}), self._before, files):
                    raise Wrong(misfit)
            self._before = content
            yield version

    def _apply(self, number: int, actions: list[dict[str, Any]]) -> Version:
        removes = [each["remove"] for each in actions if "remove" in each]
        adds = [each["add"] for each in actions if "add" in each]
        for metadata in (each["metaData"] for each in actions if "metaData" in each):
            self._marked = marked(metadata)
        before: dict[str, Row | None] = {}
        for remove in removes:
            file = self._files.pop(remove["path"], None)
            if file is None:
                raise Wrong(f"version {number} removes {remove['path']}, which is not live")
            if file.add.get("deletionVector") != remove.get("deletionVector"):
                raise Wrong(f"version {number} removes {remove['path']} with another deletion vector than the live one")
            self.named.add(unquote(remove["path"]))
            for name, _ in file.rows:
                before.setdefault(name, self.rows.get(name))
                self._counts[name] -= 1
                if not self._counts[name]:
                    del self.rows[name], self._counts[name]
        for add in adds:
            if add["path"] in self._files:
                raise Wrong(f"version {number} adds {add['path']}, which is live")
            file = self._files[add["path"]] = _File(add, tuple(self._live_rows(number, add)))
            for name, row in file.rows:
                before.setdefault(name, self.rows.get(name))
                self._counts[name] += 1
                self.rows[name] = row
        change = Change(
            {name: row for name, row in before.items() if row is not None and self.rows.get(name) != row},
            {name: self.rows[name] for name, row in before.items() if name in self.rows and self.rows[name] != row},
        )
        info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        transactions = self._transactions(number, info, adds, removes)
        doubled = sorted(name for name in before if self._counts.get(name, 0) > 1)
        numbers = [row for add in adds for row in self._numbers.get(unquote(add["path"]), ())]
        return Version(number, info.get("inCommitTimestamp", 0), transactions, change, doubled, self._marked, numbers)

    def _transactions(self, number: int, info: Mapping[str, Any], adds: list[Any], removes: list[Any]) -> list[Transaction]:
        told = sorted(info.get("sluice", {}).get("transactions", ()), key=lambda t: int(t["ordinal"]))
        found = []
        for place, each in enumerate(told):
            own = [add for add in adds if each["id"] in _ID.findall(add["path"])]
            touched = [*adds, *removes] if len(told) == 1 else own
            found.append(
                Transaction(
                    each["id"],
                    number,
                    place,
                    each["readVersion"],
                    each["operation"],
                    each.get("application", ""),
                    each.get("apps", {}),
                    each.get("joint", {}),
                    {name: row for add in own for name, row in self._files[add["path"]].rows},
                    frozenset(action["partitionValues"]["part"] for action in touched if action["partitionValues"]),
                )
            )
        return found

    def _live_rows(self, number: int, add: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
        key = unquote(add["path"])
        self.named.add(key)
        try:
            if key not in self._contents:
                table = pq.ParquetFile(io.BytesIO(self._objects[key])).read()
                self._contents[key] = list(_rows_in(table, add["partitionValues"].get("part")))
                if self._marked is not None or COLUMN in table.column_names:
                    numbers = table[COLUMN].to_pylist() if COLUMN in table.column_names else [None] * table.num_rows
                    self._numbers[key] = list(zip(table["id"].to_pylist(), numbers, strict=True))
            vector = add.get("deletionVector")
            dead = self._dead(vector) if vector else BitMap64()
        except (KeyError, OSError, ValueError, struct.error) as broken:
            raise Wrong(f"version {number}: {key} cannot be read: {type(broken).__name__}: {broken}") from broken
        return (row for place, row in enumerate(self._contents[key]) if place not in dead)

    def _dead(self, vector: Mapping[str, Any]) -> BitMap64:
        key = vector_key(vector)
        if key is not None:
            self.named.add(key)
        return rows_in_vector(vector, self._objects)


def _rows_in(table: pa.Table, part: str | None) -> Iterator[tuple[str, Row]]:
    """The rows of a file; `part` is None where the table has no partitions, so that the file has the column."""
    parts = table["part"].to_pylist() if part is None else [part] * table.num_rows
    for name, its_part, value in zip(table["id"].to_pylist(), parts, table["value"].to_pylist(), strict=True):
        yield name, (its_part, value)
