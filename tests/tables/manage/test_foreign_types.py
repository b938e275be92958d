"""Types as other engines write them: texts with lengths inside structs, columns without a type, times without a zone in every place."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.statements.duckdb.engine import run
from sluice.storage.errors import ConstraintViolated, InvalidRequest, SluiceError, UnsupportedFeature
from tests.tables.conftest import Place, rows_of

LENGTHS = "__CHAR_VARCHAR_TYPE_STRING"


def attached(place: Place, *fields: dict[str, Any], **configuration: str) -> sluice.Table:
    """An empty table of another engine with these columns."""
    schema = {"type": "struct", "fields": [{"nullable": True, "metadata": {}, **each} for each in fields]}
    metadata = {
        "id": "5b0d9a2c-7f35-4f0e-a3d5-0a5c8d6c1f42",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": configuration,
    }
    log = Path(place.location, "_delta_log")
    log.mkdir(parents=True)
    actions = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    return sluice.Table.attach(place.location, coordinator=place.coordinator)


def struct(**types: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": each, "nullable": True, "metadata": {}} for name, each in types.items()]}


def test_texts_in_structs_keep_their_lengths(place: Place) -> None:
    said = "struct<v:varchar(3),n:decimal(10,2),`i`:struct<c:char(2),free:string>>"
    inner = struct(v="string", n="decimal(10,2)", i=struct(c="string", free="string"))
    fields: list[dict[str, Any]] = [{"name": "s", "type": inner, "metadata": {LENGTHS: said}}, {"name": "id", "type": "long"}]
    table = attached(place, *fields)
    kind = table.schema.field("s").type
    fits = [{"v": "abc", "n": None, "i": {"c": "ab", "free": "much longer"}}, {"v": None, "n": None, "i": None}, None]
    table.append(pa.table({"s": pa.array(fits, kind), "id": [1, 2, 3]}))
    for value, path in (({"v": "abcd"}, "`s`.`v`"), ({"i": {"c": "abc"}}, "`s`.`i`.`c`")):
        with pytest.raises(ConstraintViolated, match=re.escape(f"length of {path}")):
            table.append(pa.table({"s": pa.array([value], kind), "id": [4]}))
    assert table.refresh("latest").snapshot().to_arrow()["s"].to_pylist() == fits
    table.set_properties({"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidRequest, match="cannot be called w: the constraint length of"):
        table.alter_columns([sluice.ColumnChange(("s", "v"), name="w")])
    table.alter_columns([sluice.ColumnChange(("s",), name="t")])
    with pytest.raises(ConstraintViolated, match=r"length of `t`\.`v`"):
        table.append(pa.table({"t": pa.array([{"v": "abcd"}], kind), "id": [4]}))
    table.drop_columns(["t"])


LIST = {"type": "array", "elementType": "string", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}


@pytest.mark.parametrize(
    ("kind", "said", "name", "fits", "breaks"),
    [
        (LIST, "array<varchar(3)>", "`s`.element", [["abc", None, ""], [], None], ["a", "abcd"]),
        (MAP, "map<string,char(3)>", "`s`.value", [[("much longer", "abc"), ("b", None)], [], None], [("a", "b"), ("b", "abcd")]),
        (MAP, "map<varchar(3),string>", "`s`.key", [[("abc", "much longer")], [], None], [("abcd", "a")]),
        (
            struct(l=LIST, d="decimal(10,2)"),
            "struct<l:array<varchar(3)>,d:decimal(10,2)>",
            "`s`.`l`.element",
            [{"l": ["abc"]}, None],
            {"l": ["äöüß"]},
        ),
        (
            {"type": "array", "elementType": {**MAP, "keyType": "decimal(10,2)", "valueType": LIST}, "containsNull": True},
            "array<map<decimal(10,2),array<varchar(3)>>>",
            "`s`.element.value.element",
            [[[(Decimal("1.00"), ["abc"])], [], None], None],
            [[(Decimal("1.00"), ["abc"]), (Decimal("2.00"), ["a", "abcd"])]],
        ),
    ],
)
def test_texts_in_arrays_and_maps_keep_their_lengths(
    place: Place, kind: dict[str, Any], said: str, name: str, fits: list[Any], breaks: Any
) -> None:
    table = attached(place, {"name": "s", "type": kind, "metadata": {LENGTHS: said}}, {"name": "id", "type": "long"})
    arrow = table.schema.field("s").type
    table.append(pa.table({"s": pa.array(fits, arrow), "id": list(range(len(fits)))}))
    with pytest.raises(ConstraintViolated, match=re.escape(f"row {len(fits)} breaks the constraint length of {name}")):
        table.append(pa.table({"s": pa.array([*fits, breaks], arrow), "id": list(range(len(fits) + 1))}))
    part = pa.table({"s": pa.array([breaks, *fits], arrow), "id": list(range(len(fits) + 1))}).slice(1)
    table.append(part)  # what is cut off does not count
    table.update({"id": "id + 10"}, "id = 1")
    assert table.refresh("latest").snapshot().num_rows == 2 * len(fits)
    table.set_properties({"delta.columnMapping.mode": "name"})
    table.alter_columns([sluice.ColumnChange(("s",), name="t")])
    with pytest.raises(ConstraintViolated, match=re.escape(f"length of {name.replace('`s`', '`t`')}")):
        table.append(pa.table({"t": pa.array([breaks], arrow), "id": [4]}))


def test_columns_without_a_type_are_null_in_structs_too(place: Place) -> None:
    table = attached(
        place, {"name": "id", "type": "long"}, {"name": "nothing", "type": "void"}, {"name": "s", "type": struct(x="long", n="void")}
    )
    rows = pa.Table.from_pylist([{"id": 1, "nothing": None, "s": {"x": 2, "n": None}}, {"id": 2}], table.schema)
    table.append(rows)
    table.update({"id": "3"}, where="id = 2 AND s IS NULL")
    table.compact("major")
    expected = [{"id": 1, "nothing": None, "s": {"x": 2, "n": None}}, {"id": 3, "nothing": None, "s": None}]
    assert table.snapshot().to_arrow().to_pylist() == expected
    assert table.snapshot().to_arrow(where="s.x = 2")["id"].to_pylist() == [1]


@pytest.mark.parametrize("kind", [{"type": "array", "elementType": "void", "containsNull": True}, struct(n="void")])
def test_a_void_that_files_cannot_have_is_refused_by_name(place: Place, kind: dict[str, Any]) -> None:
    table = attached(place, {"name": "id", "type": "long"}, {"name": "s", "type": kind})
    with pytest.raises(UnsupportedFeature, match="is void, or contains a void, which Parquet cannot represent; change the column's type"):
        table.append(pa.table({"id": [1], "s": pa.nulls(1, table.schema.field("s").type)}))


NOON, LATER, LAST = (dt.datetime.fromisoformat(f"2024-03-10T{hour}:30:00.000001") for hour in ("02", "12", "23"))
TIMES = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us")),
        pa.field("set", pa.timestamp("us"), metadata={"CURRENT_DEFAULT": "TIMESTAMP_NTZ '2024-03-10 02:30:00.000001'"}),
        pa.field("same", pa.timestamp("us"), metadata={"delta.generationExpression": "at"}),
        ("l", pa.list_(pa.struct([("t", pa.timestamp("us"))]))),
        ("part", pa.timestamp("us")),
    ]
)


def test_times_without_a_zone_are_at_home_everywhere(place: Place) -> None:
    table = sluice.Table.create(
        place.location,
        TIMES,
        partition_by=["part"],
        properties={"delta.enableChangeDataFeed": "true", "delta.constraints.sane": "at > TIMESTAMP_NTZ '2000-01-01 00:00:00'"},
        coordinator=place.coordinator,
    )
    given = {"id": [1, 2], "at": [NOON, LATER], "l": [[{"t": NOON}], None], "part": [NOON, None]}
    kinds = pa.schema([TIMES.field(name) for name in given])
    table.append(pa.table(given, kinds))
    with pytest.raises(ConstraintViolated):
        table.append(pa.table({**given, "at": [dt.datetime.fromisoformat("1999-01-01")] * 2}, kinds))
    stats = [json.loads(each) for each in table.snapshot().files()["stats"].to_pylist()]
    assert {each["minValues"]["at"] for each in stats} == {"2024-03-10T02:30:00.000", "2024-03-10T12:30:00.000"}
    literal = "TIMESTAMP_NTZ '2024-03-10 02:30:00.000001'"
    for where in (f"at = {literal}", f"part = {literal}", f"same <= {literal}"):
        assert table.snapshot().files(where).num_rows == 1, where
        assert table.snapshot().to_arrow(where=where)["id"].to_pylist() == [1]
    whole = {"id": [1, 3], "at": [LAST, LAST], "set": [NOON, NOON], "same": [LAST, LAST], "l": [None, None], "part": [NOON, LAST]}
    table.upsert(pa.table(whole, table.schema), on="id")
    run(
        f"MERGE INTO delta.`{place.location}` AS t USING (SELECT 2 AS id, {literal} AS at) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET at = s.at, same = s.at",
        coordinator=place.coordinator,
    )
    found = table.refresh("latest").snapshot().to_arrow(columns=["id", "at", "set", "same", "part"])
    assert rows_of(found.select(["id", "at", "same", "part"])) == [(1, LAST, LAST, NOON), (2, NOON, NOON, None), (3, LAST, LAST, LAST)]
    assert found["set"].to_pylist() == [NOON] * 3
    assert found.schema.field("at").type == pa.timestamp("us")
    [answer] = run(f"SELECT id FROM delta.`{place.location}` WHERE part = {literal}", coordinator=place.coordinator).columns
    assert answer.to_pylist() == [1]
    changes = table.changes(1)
    assert changes.schema.field("at").type == pa.timestamp("us")
    assert {LAST, NOON} <= set(changes["at"].to_pylist())
    theirs = deltalake.DeltaTable(place.location).to_pyarrow_table(columns=["id", "part"])
    assert rows_of(theirs.cast(pa.schema([("id", pa.int64()), ("part", pa.timestamp("us"))]))) == [(1, NOON), (2, None), (3, LAST)]


def test_nothing_takes_a_time_for_one_with_a_zone(place: Place) -> None:
    table = sluice.Table.create(place.location, pa.schema([("at", pa.timestamp("us"))]), coordinator=place.coordinator)
    with pytest.raises(SluiceError, match="at"):
        table.append(pa.table({"at": pa.array([NOON], pa.timestamp("us", "UTC"))}))
