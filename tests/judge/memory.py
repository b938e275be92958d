"""What the judge looks at, what it remembers, and how it reads the raw bytes of nodes and of the log."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import orjson

from ..raw_chain import file_number

__all__ = [
    "Logged",
    "Memory",
    "NodeChange",
    "Ratified",
    "Stored",
    "View",
    "commit_key",
    "digest",
    "logged",
    "named",
    "parsed",
    "version_of",
]

NodeChange = tuple[str, "bytes | None", "bytes | None"]
"""A path with what it held before and after; all changes of one request come together."""

Stored = tuple[str, str, "bytes | None", "bytes | None"]
"""Table, key, content before and content after, None where there is none."""


class View(Protocol):
    """The services at one moment."""

    def data(self, path: str) -> bytes | None:
        """What a node holds, or None."""
        ...

    def names(self, path: str) -> Sequence[str]:
        """The names of a node's children."""
        ...

    def content(self, table: str, key: str) -> bytes | None:
        """What an object of the log holds, or held until somebody cleaned it up; None if it was never stored."""
        ...


@dataclass(frozen=True, slots=True)
class Ratified:
    """One version: its digest, and the transactions in it in their order."""

    digest: str
    ids: tuple[str, ...]


class Memory(NamedTuple):
    """What the judge knows of the past. `versions` are those ratified, by table."""

    versions: tuple[tuple[str, tuple[Ratified, ...]], ...]
    filed: frozenset[tuple[str, str]] = frozenset()
    told: frozenset[tuple[Any, ...]] = frozenset()
    named: frozenset[tuple[str, str]] = frozenset()
    """Table and key of each data file that a ratified version names."""
    lost: frozenset[tuple[str, int, int, str]] = frozenset()
    """Table, version, ordinal and transaction of what was ratified and lost with the coordinator's data before it was published."""
    mark: int = 0
    """The hash of all this."""

    def of(self, table: str) -> tuple[Ratified, ...]:
        return dict(self.versions)[table]

    def with_versions(self, table: str, versions: tuple[Ratified, ...]) -> Memory:
        """With other versions of a table."""
        return self._replace(versions=tuple((name, versions if name == table else known) for name, known in self.versions))

    def place(self, table: str, transaction_id: str) -> tuple[int, int] | None:
        """Where a transaction is, as (version, ordinal)."""
        for number, version in enumerate(self.of(table)):
            if transaction_id in version.ids:
                return number, version.ids.index(transaction_id)
        return None

    def was_lost(self, table: str, place: tuple[int, int], transaction_id: str | None) -> bool:
        """Whether a transaction (None: any) was lost that had this place."""
        return any(each[:3] == (table, *place) and transaction_id in (None, each[3]) for each in self.lost)

    def sealed(self) -> Memory:
        """With its own hash, which is asked for often."""
        return self._replace(mark=hash((self.versions, self.filed, self.told, self.named, self.lost)))


class Logged(NamedTuple):
    """What a file of the log tells: its transactions and operations in order, its time, and the files it removes and adds."""

    ids: tuple[str, ...]
    operations: tuple[str, ...]
    timestamp_ms: int
    actions: tuple[tuple[str, str], ...]
    """("remove" or "add", path), the removed ones first."""
    info: Any
    """Its commitInfo, which nobody may change."""
    change: int
    """What it adds to the sum of the live files' numbers."""


@lru_cache(maxsize=5000)
def parsed(data: bytes) -> Any:
    """A JSON record; nobody may change what this returns."""
    return orjson.loads(data)


@lru_cache(maxsize=1000)
def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@lru_cache(maxsize=1000)
def named(actions: str) -> tuple[str, ...]:
    """The data files that an intent adds."""
    return tuple(each["add"]["path"] for each in map(orjson.loads, actions.splitlines()) if "add" in each)


@lru_cache(maxsize=1000)
def logged(content: bytes) -> Logged:
    """A file of the log."""
    lines = [orjson.loads(line) for line in content.splitlines() if line]
    info: Any = next((each["commitInfo"] for each in lines if "commitInfo" in each), {})
    transactions = sorted(info.get("sluice", {}).get("transactions", ()), key=lambda each: int(each["ordinal"]))
    actions = tuple((kind, each[kind]["path"]) for kind in ("remove", "add") for each in lines if kind in each)
    ids = tuple(each["id"] for each in transactions)
    numbers = (file_number(each[kind]) * sign for kind, sign in (("remove", -1), ("add", 1)) for each in lines if kind in each)
    return Logged(ids, tuple(each["operation"] for each in transactions), info.get("inCommitTimestamp", 0), actions, info, sum(numbers))


def commit_key(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def version_of(key: str) -> int | None:
    """The version whose file an object is, or None."""
    return int(key[11:31]) if key.startswith("_delta_log/0") and key.endswith(".json") else None
