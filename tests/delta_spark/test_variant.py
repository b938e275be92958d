"""Variants that Delta Lake wrote are read and kept, and those that sluice wrote are read there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice import errors
from sluice.storage.schema.datatypes import TO_ARROW
from tests.fixtures.variants import NUMBER, OBJECT, PLAIN

from .engine import Delta

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]


def as_delta_reads(delta: Delta, name: str) -> list[tuple[Any, ...]]:
    return sorted((each["id"], each.get("v")) for each in delta.sql(f"SELECT id, to_json(v) AS v FROM {name}"))


def held(table: sluice.Table) -> list[tuple[Any, ...]]:
    return [(each["id"], each["v"]) for each in table.refresh().snapshot().to_arrow().sort_by("id").to_pylist()]


@pytest.mark.parametrize("feature", ["variantType", "variantType-preview"])
def test_a_table_of_delta_lake_goes_there_and_back(tmp_path: Path, zookeeper_address: str, delta: Delta, feature: str) -> None:
    place = str(tmp_path / "t")
    name = f"delta.`{place}`"
    wants = f" TBLPROPERTIES ('delta.feature.{feature}' = 'supported')" if feature.endswith("preview") else ""
    delta.sql(f"CREATE TABLE {name} (id BIGINT, v VARIANT) USING delta{wants}")
    delta.sql(f"INSERT INTO {name} SELECT 1L, parse_json('1') UNION ALL SELECT 2L, NULL")
    ours = sluice.Table.attach(place, coordinator=zookeeper_address)
    assert feature in (ours.snapshot().raw.protocol.reader_features or ())
    assert str(ours.struct) == "struct<id: long, v: variant>"
    assert held(ours) == [(1, NUMBER), (2, None)]
    ours.append(pa.table({"id": [3], "v": pa.array([OBJECT], PLAIN)}))
    ours.compact()
    ours.update({"id": "id + 10"}, where="id = 1")
    expected = [(2, None), (3, '{"a":2}'), (11, "1")]
    assert as_delta_reads(delta, name) == expected
    assert held(ours) == [(2, None), (3, OBJECT), (11, NUMBER)]
    ours.detach()
    delta.sql(f"INSERT INTO {name} SELECT 4L, parse_json('{{\"a\": 2}}')")
    delta.sql(f"UPDATE {name} SET id = 12 WHERE id = 11")
    assert as_delta_reads(delta, name) == [*expected[:2], (4, '{"a":2}'), (12, "1")]
    assert held(sluice.Table.attach(place, coordinator=zookeeper_address)) == [(2, None), (3, OBJECT), (4, OBJECT), (12, NUMBER)]


def test_delta_lake_reads_and_changes_a_table_of_sluice(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    variant = TO_ARROW["variant"]
    schema = pa.schema([("id", pa.int64()), ("v", variant), ("l", pa.list_(variant)), ("s", pa.struct([("x", variant)]))])
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    made = sluice.Table.create(tmp_path / "t", schema, properties=properties, coordinator=zookeeper_address)
    rows: list[dict[str, Any]] = [
        {"id": 1, "v": NUMBER, "l": [OBJECT, None], "s": {"x": NUMBER}},
        {"id": 2, "v": None, "l": None, "s": None},
    ]
    made.append(pa.Table.from_pylist(rows, schema))
    made.update({"id": "id + 10"}, where="id = 1")
    name = f"delta.`{made.location}`"
    nested = f"SELECT id, to_json(l) AS l, to_json(s.x) AS x FROM {name} WHERE id = 11"
    assert as_delta_reads(delta, name) == [(2, None), (11, "1")]
    assert delta.sql(nested) == [{"id": 11, "l": '[{"a":2},null]', "x": "1"}]
    changes = delta.read(made.location, readChangeFeed=True, startingVersion=2)
    assert sorted((each["id"], each["_change_type"]) for each in changes) == [(1, "update_preimage"), (11, "update_postimage")]
    made.detach()
    delta.sql(f"DELETE FROM {name} WHERE id = 2")
    delta.sql(f"OPTIMIZE {name}")
    again = sluice.Table.attach(made.location, coordinator=zookeeper_address)
    assert again.snapshot().to_arrow().to_pylist() == [{**rows[0], "id": 11}]


def test_shredded_tables_of_delta_lake_are_refused_and_their_copies_are_not(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    shredded, whole = f"delta.`{tmp_path}/t`", f"delta.`{tmp_path}/copy`"
    delta.sql(f"CREATE TABLE {shredded} (id BIGINT, v VARIANT) USING delta TBLPROPERTIES ('delta.enableVariantShredding' = 'true')")
    delta.sql(f"INSERT INTO {shredded} SELECT id, parse_json(to_json(named_struct('a', 2))) FROM range(3)")
    [path] = (tmp_path / "t").glob("*.parquet")
    assert "typed_value" in [each.name for each in pq.ParquetFile(path).schema_arrow.field("v").type.fields]
    looks: list[Callable[[], Any]] = [
        lambda: sluice.Table.attach(tmp_path / "t", coordinator=zookeeper_address),
        lambda: sluice.Table.open(tmp_path / "t", coordinator=zookeeper_address, consistency="published"),
    ]
    for look in looks:
        with pytest.raises(errors.UnsupportedFeature, match="variantShredding-preview"):
            look()
    delta.sql(f"CREATE TABLE {whole} USING delta AS SELECT * FROM {shredded}")
    ours = sluice.Table.attach(tmp_path / "copy", coordinator=zookeeper_address)
    assert held(ours) == [(number, OBJECT) for number in range(3)]


def columns_in(part: dict[str, Any]) -> set[tuple[str, ...]]:
    """The paths of the columns of which statistics have a value."""
    return {(name, *inner) for name, each in part.items() for inner in (columns_in(each) if isinstance(each, dict) else [()])}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_changes_beside_nested_variants_under_both_engines(tmp_path: Path, zookeeper_address: str, delta: Delta, mode: str) -> None:
    name = f"delta.`{tmp_path}/t`"
    delta.sql(
        f"CREATE TABLE {name} (id BIGINT, v VARIANT, s STRUCT<a: INT, x: VARIANT>, l ARRAY<VARIANT>, m MAP<STRING, VARIANT>) USING delta "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', 'delta.enableDeletionVectors' = 'true', "
        "'delta.enableChangeDataFeed' = 'true')"
    )
    struct = "named_struct('a', 1, 'x', parse_json('{\"a\": 2}'))"
    values = f"parse_json('1'), {struct}, array(parse_json('1'), NULL), map('k', parse_json('1'))"
    delta.sql(f"INSERT INTO {name} SELECT id, {values} FROM range(3)")
    delta.sql(f"ALTER TABLE {name} ADD CONSTRAINT there CHECK (v IS NOT NULL OR id > 9)")
    ours = sluice.Table.attach(tmp_path / "t", coordinator=zookeeper_address)
    row = {"v": NUMBER, "s": {"a": 1, "x": OBJECT}, "l": [NUMBER, None], "m": [("k", NUMBER)]}
    rows = [{"id": number, **row} for number in range(3)]
    assert ours.snapshot().to_arrow().sort_by("id").to_pylist() == rows
    [file] = ours.snapshot().raw.files.to_pylist()
    theirs = json.loads(file["stats"])
    with pytest.raises(errors.ConstraintViolated):
        ours.update({"v": "NULL"}, where="id = 1")
    ours.delete("id = 0")
    ours.update({"v": "s.x"}, where="id = 1")
    ours.append(pa.Table.from_pylist([{**rows[0], "id": 3}], ours.schema))
    mine = [json.loads(each["stats"]) for each in ours.snapshot().raw.files.to_pylist() if each["stats"] != file["stats"]]
    for part in ("minValues", "maxValues", "nullCount"):
        assert [columns_in(each[part]) <= columns_in(theirs[part]) for each in mine] == [True] * len(mine)
    assert len(columns_in(theirs["minValues"])) == len(columns_in(mine[0]["minValues"])) == 2, "id and s.a"
    assert as_delta_reads(delta, name) == [(1, '{"a":2}'), (2, "1"), (3, "1")]
    changes = delta.read(str(tmp_path / "t"), readChangeFeed=True, startingVersion=ours.refresh().version - 2)
    assert sorted((each["_change_type"], each["id"]) for each in changes) == [
        ("delete", 0),
        ("insert", 3),
        ("update_postimage", 1),
        ("update_preimage", 1),
    ]
    ours.detach()
    delta.sql(
        f"MERGE INTO {name} t USING (SELECT 2L AS id UNION ALL SELECT 5L) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = t.s.x WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, parse_json('1'))"
    )
    delta.sql(f"ALTER TABLE {name} RENAME COLUMN m TO n")
    again = sluice.Table.attach(tmp_path / "t", coordinator=zookeeper_address)
    assert held(again) == [(1, OBJECT), (2, OBJECT), (3, NUMBER), (5, NUMBER)]
    assert [each["n"] for each in again.snapshot().to_arrow(where="id = 2").to_pylist()] == [[("k", NUMBER)]]
    again.restore(1)
    assert [each["v"] for each in again.refresh().snapshot().to_arrow().to_pylist()] == [NUMBER] * 3
    assert as_delta_reads(delta, name) == [(number, "1") for number in range(3)]
