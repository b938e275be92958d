"""Types that Delta Lake made wider are taken over, and types that sluice made wider are given back; both read both kinds of files."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice import ColumnChange
from sluice.storage.schema.datatypes import PrimitiveType, StructType
from sluice.storage.schema.sqltypes import type_sql
from tests.fixtures.widenings import NARROW as ALL_NARROW
from tests.fixtures.widenings import PAIRS as ALL_PAIRS
from tests.fixtures.widenings import VALUES, nested, row, wide
from tests.fixtures.widenings import WIDE as ALL_WIDE

from .engine import Delta, DeltaError, DuckDB

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]

SOME = (2, 3, 5, 6, 9, 10, 12, 16, 20, 23)
"""One pair of each kind: Delta Lake takes seconds for each statement."""
PAIRS, NARROW, WIDE = ([each[number] for number in SOME] for each in (ALL_PAIRS, ALL_NARROW, ALL_WIDE))
NAMES = [f"c{number}" for number in range(len(PAIRS))]
FLOAT = NAMES[PAIRS.index(("float", "double"))]
WIDENS = "'delta.enableTypeWidening' = 'true'"
SQL = [tuple(type_sql(PrimitiveType(name)) for name in pair) for pair in PAIRS]


def values(which: int, *numbers: int) -> list[dict[str, Any]]:
    """Rows with the values of these numbers (3: null), of the narrower types (0) or the wider ones (1)."""
    made: list[dict[str, Any]] = []
    for number in numbers:
        found = [[*VALUES[pair[0]], None][number] for pair in PAIRS]
        both = zip(NAMES, found, PAIRS, strict=True)
        made.append({"id": number, **{name: value if value is None else wide(value, pair[which]) for name, value, pair in both}})
    return made


def rows(kinds: Sequence[pa.DataType], which: int, *numbers: int) -> pa.Table:
    return pa.Table.from_pylist(values(which, *numbers), pa.schema([("id", pa.int64()), *zip(NAMES, kinds, strict=True)]))


def literal(value: Any, kind: str) -> str:
    """SQL of a value."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    return f"CAST('{value!r}' AS {kind})" if isinstance(value, float) else f"CAST('{value}' AS {kind})"


def insert(name: str, which: int, *numbers: int) -> str:
    """SQL that inserts these rows."""
    rows = [
        f"SELECT {each['id']}L, {', '.join(literal(each[name], kinds[which]) for name, kinds in zip(NAMES, SQL, strict=True))}"
        for each in values(which, *numbers)
    ]
    return f"INSERT INTO {name} {' UNION ALL '.join(rows)}"


PARSED: dict[type, Callable[[str], Any]] = {int: int, float: float, Decimal: Decimal, dt.datetime: dt.datetime.fromisoformat}


def as_delta_reads(delta: Delta, name: str, where: str = "TRUE") -> list[dict[str, Any]]:
    """The rows of a table as values of the wider types."""
    texts = ", ".join(f"CAST({each} AS STRING) AS {each}" for each in NAMES)
    kinds = {each: type(wide(VALUES[old][0], new)) for each, (old, new) in zip(NAMES, PAIRS, strict=True)}
    return ordered(
        [
            {"id": found["id"], **{each: PARSED[kinds[each]](found[each]) if each in found else None for each in NAMES}}
            for found in delta.sql(f"SELECT id, {texts} FROM {name} WHERE {where}")
        ]
    )


def ordered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda each: (each["id"], repr(each)))


def held(table: sluice.Table, where: str | None = None) -> list[dict[str, Any]]:
    return ordered(table.snapshot().to_arrow(where=where).to_pylist())


def check_conditions(delta: Delta, name: str, table: sluice.Table, *, loses: str | None = None) -> None:
    """Each condition finds as many rows here as there. `loses`: where Delta Lake skips a file that it should read."""
    conditions = []
    for each, (old, new), (_, kind) in zip(NAMES, PAIRS, SQL, strict=True):
        first, second = (literal(wide(value, new), kind) for value in VALUES[old][:2])
        conditions += [f"{each} = {first}", f"{each} > {second}", f"{each} <= {first}"]
    counts = ", ".join(f"(SELECT count(*) FROM {name} WHERE {each}) AS n{number}" for number, each in enumerate(conditions))
    [there] = delta.sql(f"SELECT {counts}")
    if loses is not None:
        number = next(number for number, each in enumerate(conditions) if each.startswith(loses))
        there[f"n{number}"] += 1
    here = {f"n{number}": table.snapshot().to_arrow(["id"], each).num_rows for number, each in enumerate(conditions)}
    assert {conditions[int(key[1:])]: count for key, count in here.items()} == {
        conditions[int(key[1:])]: count for key, count in there.items()
    }


@pytest.mark.parametrize("stats", ["json", "struct", "partitions"])
def test_types_that_delta_lake_made_wider(tmp_path: Path, zookeeper_address: str, delta: Delta, stats: str) -> None:
    place = str(tmp_path / "t")
    name = f"delta.`{place}`"
    columns = ", ".join(f"{each} {kinds[0]}" for each, kinds in zip(NAMES, SQL, strict=True))
    partitioned = f"PARTITIONED BY ({', '.join(NAMES)})" if stats == "partitions" else ""
    structs = (
        "'delta.checkpoint.writeStatsAsStruct' = 'true', 'delta.checkpoint.writeStatsAsJson' = 'false', 'delta.checkpointInterval' = '7', "
    )
    structs = structs if stats == "struct" else ""
    properties = f"{structs}{WIDENS}, 'delta.feature.timestampNtz' = 'supported', 'delta.dataSkippingNumIndexedCols' = '-1'"
    delta.sql(f"CREATE TABLE {name} (id BIGINT, {columns}) USING delta {partitioned} TBLPROPERTIES ({properties})")
    for numbers in ((0,), (1,), (2, 3)):
        delta.sql(insert(name, 0, *numbers))
    for each, kinds in zip(NAMES, SQL, strict=True):
        delta.sql(f"ALTER TABLE {name} ALTER COLUMN {each} TYPE {kinds[1]}")
    delta.sql(insert(name, 1, 0, 1))
    ours = sluice.Table.attach(place, coordinator=zookeeper_address)
    expected = ordered(values(1, 0, 0, 1, 1, 2, 3))
    if stats == "partitions":  # the log has texts of floats
        expected = as_delta_reads(delta, name)
    assert held(ours) == expected == as_delta_reads(delta, name)
    # its statistics of a FLOAT are the shortest text of 32 bits, which is no bound of the DOUBLE that the value is afterwards
    check_conditions(delta, name, ours, loses=None if stats == "partitions" else f"{FLOAT} = ")
    ours.append(rows(WIDE, 1, 2))
    ours.delete("id = 3")
    expected = ordered([*(each for each in expected if each["id"] != 3), *values(1, 2)])
    assert held(ours) == expected == as_delta_reads(delta, name)
    ours.compact("major")
    ours.alter_columns([ColumnChange(("c1",), type=pa.int64())])
    ours.detach()
    delta.sql(f"ALTER TABLE {name} ALTER COLUMN c1 TYPE DECIMAL(20,0)")
    delta.sql(insert(name, 1, 3))
    expected = ordered([*expected, *values(1, 3)])
    assert as_delta_reads(delta, name) == expected
    again = sluice.Table.attach(place, coordinator=zookeeper_address)
    assert held(again) == expected
    steps = [(each["fromType"], each["toType"]) for each in again.struct.named("c1").metadata["delta.typeChanges"]]
    assert steps == [("short", "integer"), ("integer", "long"), ("long", "decimal(20,0)")]


@pytest.mark.parametrize("partitioned", [False, True])
def test_types_that_sluice_made_wider(tmp_path: Path, zookeeper_address: str, delta: Delta, duckdb: DuckDB, partitioned: bool) -> None:
    properties = {"delta.enableTypeWidening": "true", "delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    made = sluice.Table.create(
        tmp_path / "t",
        rows(NARROW, 0).schema,
        partition_by=NAMES if partitioned else (),
        properties=properties,
        coordinator=zookeeper_address,
    )
    name = f"delta.`{made.location}`"
    for numbers in ((0, 0), (1,), (2, 3)):
        made.append(rows(NARROW, 0, *numbers))
    made.delete("id = 3")
    made.alter_columns([ColumnChange((each,), type=kind) for each, kind in zip(NAMES, WIDE, strict=True)])
    made.append(rows(WIDE, 1, 0, 1))
    made.delete("id = 2")
    expected = ordered(values(1, 0, 0, 0, 1, 1)) if not partitioned else held(made)
    assert as_delta_reads(delta, name) == held(made) == expected
    if partitioned:
        with pytest.raises(DeltaError, match="Failed to parse value '1970-01-01' as 'timestamp_ntz'"):
            duckdb.read(made.location)
    else:
        assert ordered(duckdb.read(made.location).select(["id", *NAMES]).to_pylist()) == expected
        with pytest.raises(deltalake.exceptions.DeltaError, match="TypeWidening"):
            deltalake.QueryBuilder().register("t", deltalake.DeltaTable(made.location))
    check_conditions(delta, name, made)
    changes = delta.read(made.location, readChangeFeed=True, startingVersion=5)  # Delta Lake shows none across a change of types
    assert sorted((each["id"], each["_change_type"]) for each in changes) == [(0, "insert"), (1, "insert"), (2, "delete")]
    made.detach()
    delta.sql(f"UPDATE {name} SET id = 7 WHERE id = 1")
    delta.sql(insert(name, 1, 2))
    found = as_delta_reads(delta, name)
    assert held(sluice.Table.attach(made.location, coordinator=zookeeper_address)) == found
    assert [each["id"] for each in found] == [0, 0, 0, 2, 7, 7]
    with pytest.raises(DeltaError, match="NOT_SUPPORTED_CHANGE_COLUMN"):
        delta.sql(f"ALTER TABLE {name} ALTER COLUMN c2 TYPE INT")


def _plain(value: Any) -> Any:
    return value if isinstance(value, dt.datetime) else float(value)


def test_nested_types_and_types_that_writes_made_wider(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    kinds = [nested(old) for old, _ in PAIRS]
    schema = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("d", pa.date32()), *zip(NAMES, kinds, strict=True)])
    made = sluice.Table.create(tmp_path / "t", schema, properties={"delta.enableTypeWidening": "true"}, coordinator=zookeeper_address)

    def both(which: int, table: sluice.Table, number: int) -> pa.Table:
        columns = {key: value if key == "id" else row(value) for key, value in values(which, number)[0].items()}
        return pa.Table.from_pylist([columns], table.schema)

    made.append(both(0, made, 0))
    parts = ("x", "l.element", "m.key", "m.value")
    made.alter_columns(
        [ColumnChange((each, *part.split(".")), type=kind) for each, kind in zip(NAMES, WIDE, strict=True) for part in parts]
    )
    made.append(both(1, made, 1))
    late = pa.table({"id": [9], "v": pa.array([2**40], pa.int64()), "d": pa.array([0], pa.timestamp("us"))})
    made.append(late, merge_schema=True)
    name = f"delta.`{made.location}`"
    whole = ", ".join(f"to_json({each}) AS {each}" for each in NAMES)
    found = delta.sql(f"SELECT id, v, CAST(d AS STRING) AS d, {whole} FROM {name} ORDER BY id")
    assert [(each["id"], each.get("v"), each.get("d")) for each in found] == [
        (0, None, None),
        (1, None, None),
        (9, 2**40, "1970-01-01 00:00:00"),
    ]
    arrow = made.snapshot().to_arrow().sort_by("id").to_pylist()
    for here, there in zip(arrow[:2], found[:2], strict=True):
        for each, (old, new) in zip(NAMES, PAIRS, strict=True):
            assert here[each] == row(wide(VALUES[old][here["id"]], new))
            value = json.loads(there[each])["x"]
            assert (dt.datetime.fromisoformat(value) if new == "timestamp_ntz" else float(value)) == _plain(here[each]["x"])
    made.detach()
    delta.sql(f"ALTER TABLE {name} ALTER COLUMN c0.m.value TYPE DECIMAL(20,0)")
    delta.sql(f"INSERT INTO {name} (id, v) VALUES (10, 1)")
    again = sluice.Table.attach(made.location, coordinator=zookeeper_address)
    assert sorted(again.snapshot().to_arrow()["id"].to_pylist()) == [0, 1, 9, 10]
    kind = again.struct.named("c0").type
    assert isinstance(kind, StructType)
    assert [each["fieldPath"] for each in kind.named("m").metadata["delta.typeChanges"]] == ["key", "value", "value"]


def test_a_table_of_the_preview_is_read_and_written_and_keeps_its_types(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    place = str(tmp_path / "t")
    name = f"delta.`{place}`"
    delta.sql(
        f"CREATE TABLE {name} (id INT, b SMALLINT) USING delta TBLPROPERTIES ('delta.feature.typeWidening-preview' = 'supported', {WIDENS})"
    )
    delta.sql(f"INSERT INTO {name} VALUES (1, 1)")
    delta.sql(f"ALTER TABLE {name} ALTER COLUMN b TYPE INT")
    ours = sluice.Table.attach(place, coordinator=zookeeper_address)
    assert "typeWidening-preview" in (ours.snapshot().raw.protocol.reader_features or ())
    assert "tableVersion" in ours.snapshot().raw.metadata.schema_string
    ours.append(pa.table({"id": pa.array([2], pa.int32()), "b": pa.array([70000], pa.int32())}))
    with pytest.raises(sluice.errors.InvalidRequest, match="drop its feature typeWidening-preview"):
        ours.alter_columns([ColumnChange(("id",), type=pa.int64())])
    assert delta.read(place) == [{"id": 1, "b": 1}, {"id": 2, "b": 70000}]
