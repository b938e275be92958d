"""What a table must hold, in plain Python: columns with SQL types and rows by their key, and what each operation does to them."""

from __future__ import annotations

import base64
import copy
import datetime as dt
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

__all__ = ["KEY", "Model", "canonical", "counted", "value_of"]

KEY: Final = "k"
"""The column that every table has: BIGINT, with another value in each row."""

_START: Final = dt.datetime(2020, 2, 28, 23, 59, 59, 999_990, dt.timezone.utc)


def value_of(type_name: str, k: int) -> Any:
    """The value that row `k` has in a column of this type: null in one row of seven."""
    if k % 7 == 6:
        return None
    at = _START + dt.timedelta(hours=5 * k, microseconds=k)
    match type_name:
        case "BIGINT" | "INT" | "SMALLINT":
            return k
        case "DOUBLE":
            return k / 4
        case "DECIMAL(10,2)" | "DECIMAL(12,2)":
            return Decimal(k).scaleb(-2)
        case "BOOLEAN":
            return k % 2 == 0
        case "DATE":
            return at.date()
        case "TIMESTAMP":
            return at
        case "TIMESTAMP_NTZ":
            return at.replace(tzinfo=None)
        case "BINARY":
            return b"\x00" * (k % 3) + str(k).encode()
        case "STRUCT<x: BIGINT, y: STRING>":
            return {"x": k, "y": f"y{k}"}
        case "ARRAY<STRING>":
            return [f"e{each}" for each in range(k % 3)]
        case "MAP<STRING, BIGINT>":
            return {f"m{each}": each for each in range(k % 3)}
        case _:
            return f"v{k}, 'ä'"


def canonical(value: Any) -> Any:
    """A value as both sides can be compared: fields of structs that are null left out, as Spark's JSON does, numbers and times alike."""
    match value:
        case dict():
            return tuple(sorted((name, canonical(each)) for name, each in value.items() if each is not None))
        case list() if value and all(isinstance(each, tuple) for each in value):  # a map, as Arrow has it
            return canonical(dict(value))
        case list():
            return tuple(map(canonical, value))
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return float(value)
        case dt.datetime():
            return (
                value.astimezone(dt.timezone.utc).isoformat(timespec="microseconds")
                if value.tzinfo
                else value.isoformat(timespec="microseconds")
            )
        case dt.date():
            return value.isoformat()
    return value


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    """Rows without an order."""
    return Counter(canonical(dict(row)) for row in rows)


@dataclass
class Model:
    """A table's columns, SQL type by name in their order, and its rows by key; `versions` has what earlier versions held."""

    columns: dict[str, str]
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: list[tuple[dict[str, str], dict[int, dict[str, Any]]]] = field(default_factory=list)
    """Each version's columns and rows, from version 0 on."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What columns hold where a row is inserted without a value."""
    computed: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    """What engines compute from a row that is inserted."""
    numbered: Collection[str] = ()
    """Identity columns: every row has a value, no two the same, and the model does not know which."""

    def committed(self) -> None:
        """The table is a new version."""
        self.versions.append((dict(self.columns), copy.deepcopy(self.rows)))

    def row(self, k: int) -> dict[str, Any]:
        """A new row with this key, without what engines fill in."""
        own = {name: kind for name, kind in self.columns.items() if name not in self.computed and name not in self.numbered}
        return {name: k if name == KEY else f"p{k % 2}" if name == "p" else value_of(kind, k) for name, kind in own.items()}

    def insert(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            whole = {name: row.get(name, self.defaults.get(name)) for name in self.columns if name not in self.numbered}
            self.rows[row[KEY]] = {**whole, **{name: value(whole) for name, value in self.computed.items()}}

    def delete(self, keys: Iterable[int]) -> None:
        for k in keys:
            self.rows.pop(k, None)

    def update(self, keys: Iterable[int], column: str, value: Any) -> None:
        for k in keys:
            if k in self.rows:
                self.rows[k][column] = value

    def add(self, name: str, kind: str) -> None:
        self.columns[name] = kind
        for row in self.rows.values():
            row[name] = None

    def rename(self, old: str, new: str) -> None:
        self.columns = {new if name == old else name: kind for name, kind in self.columns.items()}
        self.rows = {k: {new if name == old else name: value for name, value in row.items()} for k, row in self.rows.items()}

    def drop(self, name: str) -> None:
        del self.columns[name]
        for row in self.rows.values():
            del row[name]

    def widen(self, name: str, kind: str) -> None:
        self.columns[name] = kind

    def restore(self, version: int) -> None:
        columns, rows = self.versions[version]
        self.columns, self.rows = dict(columns), copy.deepcopy(rows)
