"""The log and the data files of a table, read from their raw bytes by the rules of the Delta protocol alone.

Shares no code with what it judges. It reads all that was ever stored, so that what was deleted since is judged, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from ..raw_chain import file_number, misfits
from ..raw_numbers import COLUMN, Marked, marked
from ..raw_vectors import rows_in_vector, vector_key
from .model_operations import Row

_COMMIT = re.compile(r"_delta_log/([0-9]{20})\.json")
_OF_A_VERSION = re.compile(r"_delta_log/([0-9]{20})\.")


@dataclass(frozen=True)
class Transaction:
    """One transaction as the log tells it."""

    id: str
    version: int
    ordinal: int
    read_version: int
    operation: str
    joint: Mapping[str, int]
    """The versions it made in each of its tables, by location, where there are several."""
    apps: Mapping[str, int] = field(default_factory=dict)
    """The numbers it wrote, by application."""


@dataclass
class Version:
    """One version: its transactions in order, its in-commit timestamp, the rows after it, and the application numbers it wrote.

    `engine` is who signs it; `gives_away`: from it on the table belongs to other engines.
    """

    number: int
    transactions: list[Transaction]
    timestamp_ms: int
    applications: dict[str, int]
    gives_away: bool
    engine: str = ""
    rows: dict[int, Row] = field(default_factory=dict)
    live: frozenset[str] = frozenset()
    """The keys of the objects that it shows."""
    marked: Marked | None = None
    """The identity column, in a table that has one."""
    numbers: list[tuple[int, int | None]] = field(default_factory=list)
    """The rows of the files that it adds, with their values in that column."""


@dataclass
class Log:
    """A whole log. `problems` lists what no log may hold; `referenced` every key that a version names."""

    versions: list[Version] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    referenced: set[str] = field(default_factory=set)

    def places(self) -> dict[str, Transaction]:
        """Every transaction by its id; one that is there twice is a problem."""
        found: dict[str, Transaction] = {}
        for version in self.versions:
            for each in version.transactions:
                if each.id in found:
                    self.problems.append(
                        f"transaction {each.id} is in the log twice: versions {found[each.id].version} and {version.number}"
                    )
                found[each.id] = each
        return found


def commit_key(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def version_of(key: str) -> int | None:
    """The version that a file of the log is about; None for any other object."""
    found = _OF_A_VERSION.match(key)
    return None if found is None else int(found[1])


def read_log(objects: Mapping[str, bytes]) -> Log:
    """Replay the log of a table from its objects."""
    log = Log()
    names = sorted(filter(_COMMIT.fullmatch, objects))
    if names != [commit_key(version) for version in range(len(names))]:
        log.problems.append(f"I2: versions are not dense from 0: {[name[11:-5] for name in names]}")
        return log
    replay = _Replay(objects, log)
    for number, name in enumerate(names):
        actions = [orjson.loads(line) for line in objects[name].splitlines() if line]
        log.versions.append(_version(number, actions))
        if len(log.versions[-1].applications) < sum("txn" in each for each in actions):
            log.problems.append(f"version {number} holds two transactions of one application")
        replay.apply(number, actions)
        log.versions[-1].rows, log.versions[-1].live = replay.rows(), replay.live()
        log.versions[-1].marked, log.versions[-1].numbers = replay.marked, replay.numbers(actions)
        info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        log.problems += misfits(number, info, objects[names[number - 1]] if number else None, replay.sum_of_files())
    return log


def _version(number: int, actions: list[dict[str, Any]]) -> Version:
    info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
    told = info.get("sluice", {}).get("transactions", [])
    transactions = [
        Transaction(t["id"], number, place, t["readVersion"], t["operation"], t.get("joint", {}), t.get("apps", {}))
        for place, t in enumerate(sorted(told, key=lambda t: int(t["ordinal"])))
    ]
    applications = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
    protocol: dict[str, Any] | None = next((each["protocol"] for each in actions if "protocol" in each), None)
    gives_away = protocol is not None and "sluice" not in protocol.get("writerFeatures", ())
    return Version(number, transactions, info.get("inCommitTimestamp", 0), applications, gives_away, str(info.get("engineInfo", "")))


class _Replay:
    """The live files and rows, version by version."""

    def __init__(self, objects: Mapping[str, bytes], log: Log) -> None:
        self._objects, self._log = objects, log
        self._live: dict[str, dict[str, Any]] = {}
        self._contents: dict[str, list[tuple[int, Row]]] = {}
        self._alive: dict[str, list[tuple[int, Row]]] = {}
        self._keys: dict[str, list[str]] = {}
        self._rows: dict[int, Row] = {}
        self.marked: Marked | None = None
        self._numbers: dict[str, list[tuple[int, int | None]]] = {}

    def apply(self, number: int, actions: list[dict[str, Any]]) -> None:
        for metadata in (each["metaData"] for each in actions if "metaData" in each):
            self.marked = marked(metadata)
        for remove in (each["remove"] for each in actions if "remove" in each):
            self._remove(number, remove)
        for add in (each["add"] for each in actions if "add" in each):
            self._add(number, add)

    def live(self) -> frozenset[str]:
        """The keys of all live files and of their vectors."""
        return frozenset(chain.from_iterable(self._keys.values()))

    def sum_of_files(self) -> int:
        """The sum of the numbers of all live files, as the log's chain counts them."""
        return sum(map(file_number, self._live.values()))

    def numbers(self, actions: list[dict[str, Any]]) -> list[tuple[int, int | None]]:
        """The rows of the files that are added, also of those with a vector, with their values in the identity column."""
        return [row for each in actions if "add" in each for row in self._numbers.get(each["add"]["path"], ())]

    def rows(self) -> dict[int, Row]:
        return dict(self._rows)

    def _remove(self, number: int, remove: Mapping[str, Any]) -> None:
        known = self._live.pop(remove["path"], None)
        if known is None:  # the judge of changes says so
            return
        if known.get("deletionVector") != remove.get("deletionVector"):
            self._log.problems.append(f"version {number} removes {remove['path']} with another deletion vector than the live one")
        del self._keys[remove["path"]]
        for uid, _ in self._alive.pop(remove["path"]):
            self._rows.pop(uid, None)

    def _add(self, number: int, add: dict[str, Any]) -> None:
        path: str = add["path"]
        vector = vector_key(add["deletionVector"]) if add.get("deletionVector") else None
        self._live[path], self._keys[path] = add, [unquote(path), *([vector] if vector else [])]
        try:
            self._alive[path] = self._rows_of(add)
        except Exception as broken:  # noqa: BLE001 - whatever cannot be read is a finding
            self._alive[path] = []
            self._log.problems.append(f"version {number}: {path} cannot be read: {type(broken).__name__}: {broken}")
        for uid, values in self._alive[path]:
            if uid in self._rows:
                self._log.problems.append(f"version {number} holds row {uid} twice")
            self._rows[uid] = values

    def _rows_of(self, add: Mapping[str, Any]) -> list[tuple[int, Row]]:
        key = unquote(add["path"])
        self._log.referenced.add(key)
        if add["path"] not in self._contents:
            table = pq.ParquetFile(pa.BufferReader(self._objects[key])).read(use_threads=False)
            uids, vs = table["uid"].to_pylist(), table["v"].to_pylist()
            ks = table["k"].to_pylist() if "k" in table.column_names else [int(add["partitionValues"]["k"])] * len(uids)
            ws = table["w"].to_pylist() if "w" in table.column_names else [None] * len(uids)
            if self.marked is not None or COLUMN in table.column_names:
                ns = table[COLUMN].to_pylist() if COLUMN in table.column_names else [None] * len(uids)
                self._numbers[add["path"]] = list(zip(uids, ns, strict=True))
            self._contents[add["path"]] = [(u, (k, v, w)) for u, k, v, w in zip(uids, ks, vs, ws, strict=True)]
        if not add.get("deletionVector"):
            return self._contents[add["path"]]
        dead = self._dead(add["deletionVector"])
        return [row for place, row in enumerate(self._contents[add["path"]]) if place not in dead]

    def _dead(self, vector: Mapping[str, Any]) -> BitMap64:
        key = vector_key(vector)
        if key is not None:
            self._log.referenced.add(key)
        return rows_in_vector(vector, self._objects)
