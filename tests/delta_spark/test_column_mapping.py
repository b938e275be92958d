"""Delta Lake on Spark and sluice take turns on tables with column mapping, and agree on every row of every version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice

from .engine import Delta

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(900)]

INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema([("k", pa.int64()), ("a b", pa.string()), ("s", INNER), ("l", pa.list_(INNER)), ("p", pa.string())])
MODE = "delta.columnMapping.mode"


def rows(*keys: int) -> pa.Table:
    inner = [{"x": k, "y": f"y{k}"} for k in keys]
    values = {"k": keys, "a b": [f"v{k}" for k in keys], "s": inner, "l": [[each] for each in inner], "p": [f"p{k % 2}" for k in keys]}
    return pa.table(values, schema=SCHEMA)


def without_nulls(value: Any) -> Any:
    """A value as Delta Lake's JSON has it."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(map(without_nulls, found), key=repr)


def agree(delta: Delta, table: sluice.Table) -> None:
    for version in range(table.refresh("latest").version + 1):
        mine = in_order(table.snapshot(version).to_arrow().to_pylist())
        assert in_order(delta.read(table.location, versionAsOf=version)) == mine, version


def own(location: Path) -> Callable[[str, str], sluice.Table]:
    return lambda coordinator, mode: sluice.Table.create(
        location, SCHEMA, partition_by=["p"], properties={MODE: mode, "delta.enableChangeDataFeed": "true"}, coordinator=coordinator
    )


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_it_reads_what_was_renamed_dropped_and_changed(
    tmp_path: Path, zookeeper_address: str, delta: Delta, mode: str, vectors: str
) -> None:
    table = own(tmp_path / "t")(zookeeper_address, mode)
    table.set_properties({"delta.enableDeletionVectors": vectors})
    table.append(rows(*range(6)))
    renames = {("a b",): "c", ("p",): "part", ("s", "x"): "xx", ("l", "element", "y"): "yy"}
    table.alter_columns([sluice.ColumnChange(path, name=name) for path, name in renames.items()])
    table.append(pa.table({"k": [6], "c": ["six"], "part": ["p9"]}))
    table.update({"c": "'new'"}, "k = 4")
    table.delete("part = 'p1' AND k = 3")
    table.drop_columns(["l", "s.y"])
    table.add_columns([sluice.NewColumn(pa.field("l", pa.string()))])
    before = in_order(table.snapshot().to_arrow().to_pylist())
    table.compact("major")
    assert in_order(delta.read(table.location)) == before
    agree(delta, table)
    name = f"delta.`{table.location}`"
    assert delta.sql(f"SELECT k FROM {name} WHERE part = 'p0' AND c = 'new' AND s.xx = 4") == [{"k": 4}]
    changes = delta.sql(f"SELECT k, c, _change_type FROM table_changes_by_path('{table.location}', 4, 5) ORDER BY _change_type, k")
    mine = table.changes(3, 5, columns=["k", "c"]).select(["k", "c", "_change_type"]).to_pylist()
    assert in_order(changes) == in_order(mine)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_what_it_renamed_and_dropped_is_taken_over_and_given_back(tmp_path: Path, zookeeper_address: str, delta: Delta, mode: str) -> None:
    location = tmp_path / "t"
    name = f"delta.`{location}`"
    delta.sql(
        f"CREATE TABLE {name} (k BIGINT, `a b` STRING, s STRUCT<x: BIGINT, y: STRING>, p STRING) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('{MODE}' = '{mode}', 'delta.enableDeletionVectors' = 'true')"
    )
    delta.sql(f"INSERT INTO {name} SELECT id, concat('v', id), named_struct('x', id, 'y', string(id)), concat('p', id % 2) FROM range(10)")
    delta.sql(f"ALTER TABLE {name} RENAME COLUMN `a b` TO c")
    delta.sql(f"ALTER TABLE {name} RENAME COLUMN p TO part")
    delta.sql(f"DELETE FROM {name} WHERE k = 7")
    delta.sql(f"ALTER TABLE {name} DROP COLUMN s.y")
    table = sluice.Table.attach(location, coordinator=zookeeper_address)
    agree(delta, table)
    assert table.snapshot().files("part = 'p1' AND k > 100").num_rows == 0
    table.update({"c": "'mine'"}, "part = 'p1' AND k = 3")
    table.alter_columns([sluice.ColumnChange(("c",), name="d, e"), sluice.ColumnChange(("part",), name="q")])
    table.add_columns([sluice.NewColumn(pa.field("y", pa.string()), ("s",)), sluice.NewColumn(pa.field("c", pa.int64()))])
    table.append(pa.table({"k": [50], "d, e": ["fifty"], "c": [5], "q": ["p1"], "s": [{"x": 1, "y": "again"}]}))
    agree(delta, table)
    table.detach()
    delta.sql(f"INSERT INTO {name} (k, `d, e`, q, c) VALUES (60, 'sixty', 'p1', 6)")
    delta.sql(f"UPDATE {name} SET `d, e` = 'theirs' WHERE k = 50")
    delta.sql(f"ALTER TABLE {name} ADD COLUMN last STRING")
    table = sluice.Table.attach(location, coordinator=zookeeper_address)
    numbers = [each.metadata["delta.columnMapping.id"] for each in table.struct.fields]
    assert len({*numbers}) == len(numbers)
    agree(delta, table)


def test_it_maps_a_table_of_ours_and_we_one_of_its(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    plain = pa.schema([("k", pa.int64()), ("v", pa.string())])
    ours = sluice.Table.create(tmp_path / "ours", plain, coordinator=zookeeper_address)
    ours.append(pa.table({"k": [1], "v": ["one"]}))
    ours.set_properties({MODE: "name"})
    ours.alter_columns([sluice.ColumnChange(("v",), name="w")])
    agree(delta, ours)
    ours.detach()
    name = f"delta.`{ours.location}`"
    delta.sql(f"ALTER TABLE {name} RENAME COLUMN w TO x")
    delta.sql(f"INSERT INTO {name} VALUES (2, 'two')")
    assert in_order(delta.read(ours.location)) == in_order([{"k": 1, "x": "one"}, {"k": 2, "x": "two"}])
    agree(delta, sluice.Table.attach(ours.location, coordinator=zookeeper_address))
