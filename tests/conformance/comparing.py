"""What engines read of a table, held against the model: every version, row by row, and the changes between versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import sluice

from ..delta_spark.engine import Delta, DuckDB
from .model import Model, counted

__all__ = ["Reader", "changes_agree", "deltalake_reads", "duckdb_reads", "noted", "sluice_reads", "spark_reads", "versions_agree"]

Reader = Callable[[int], Iterable[Mapping[str, Any]]]
"""The rows of a version."""


def newest(path: Path) -> int:
    """The table's newest version, as the names of its log files have it."""
    names = [each.name.removesuffix(".json") for each in (path / "_delta_log").glob("*.json")]
    return max(int(name) for name in names if name.isdigit())


def noted(model: Model, path: Path) -> None:
    """All versions since hold what the model holds, but one that only raised marks: it came before the operation."""
    while (version := len(model.versions)) <= newest(path):
        if "RAISE IDENTITY" in (path / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8"):
            model.versions.append(model.versions[-1])
        else:
            model.committed()


def sluice_reads(path: Path) -> Reader:
    """sluice, which reads the log alone."""

    def read(version: int) -> Iterable[Mapping[str, Any]]:
        with sluice.Table.open(path, consistency="published") as table:
            rows: list[dict[str, Any]] = table.snapshot(version).to_arrow().to_pylist()
            return rows

    return read


def spark_reads(delta: Delta, path: Path) -> Reader:
    return lambda version: delta.read(str(path), versionAsOf=version)


def duckdb_reads(duckdb: DuckDB, path: Path) -> Reader:
    return lambda version: duckdb.read(str(path), version).to_pylist()


def deltalake_reads(path: Path) -> Reader:
    def read(version: int) -> Iterable[Mapping[str, Any]]:
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path), version=version))
        rows: list[dict[str, Any]] = pa.table(query.execute("SELECT * FROM t")).to_pylist()
        return rows

    return read


def versions_agree(reader: Reader, model: Model, only: Iterable[int] | None = None) -> None:
    """Every version, or `only` these, has the rows of the model."""
    for version in range(len(model.versions)) if only is None else only:
        columns, rows = model.versions[version]
        present = list(reader(version))
        for name in model.numbered:
            assert len({row[name] for row in present}) == len(present), f"version {version}: {name} has a value twice"
        found = counted(_as_compared(row, columns, model.numbered) for row in present)
        expected = counted(rows.values())
        assert found == expected, f"version {version}: {_difference(found, expected)}"


def changes_agree(path: Path, delta: Delta, model: Model) -> int:
    """What sluice and Delta Lake read as the changes of each version; how many versions could be compared.

    The changes of a version are read with the columns of the newest one, so only versions with these columns are compared.
    """
    compared = 0
    with sluice.Table.open(path, consistency="published") as table:
        for version in range(1, len(model.versions)):
            (old, before), (new, after) = model.versions[version - 1 : version + 1]
            if not list(old) == list(new) == list(model.columns) or old != model.columns:
                continue
            expected = counted(after.values())
            expected.subtract(counted(before.values()))
            new = {name: kind for name, kind in new.items() if name not in model.numbered}
            mine = _net(table.changes(version - 1, version).to_pylist(), new)
            theirs = _net(delta.read(str(path), readChangeFeed="true", startingVersion=version, endingVersion=version), new)
            net = Counter({row: n for row, n in expected.items() if n})
            assert mine == net, f"version {version}, sluice: {_difference(mine, net)}"
            assert theirs == net, f"version {version}, Delta Lake: {_difference(theirs, net)}"
            compared += 1
    return compared


def _difference(found: Counter[Any], expected: Counter[Any]) -> str:
    return f"lacks {expected - found}, has {found - expected}"


def _net(changes: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Counter[Any]:
    """The rows that came, less those that went."""
    net: Counter[Any] = Counter()
    for change in changes:
        row = _as_compared({name: change.get(name) for name in columns}, columns)
        net[next(iter(counted([row])))] += -1 if change["_change_type"] in {"delete", "update_preimage"} else 1
    return Counter({row: n for row, n in net.items() if n})


def _as_compared(row: Mapping[str, Any], columns: Mapping[str, str], unknown: Collection[str] = ()) -> dict[str, Any]:
    """A row with times as the model has them, also where an engine hands them out as texts, without the `unknown` columns."""
    known = {name: value for name, value in row.items() if name not in unknown}
    return {name: _time(value, columns.get(name, "")) if isinstance(value, str) else value for name, value in known.items()}


def _time(text: str, kind: str) -> Any:
    return datetime.fromisoformat(text) if kind in {"TIMESTAMP", "TIMESTAMP_NTZ"} else text
