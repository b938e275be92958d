"""Tables with defaults and generated columns, without Spark: what every operation stores, and what it refuses before it writes.

Change data files: what a writer of them leaves in the store.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import sluice
from sluice.storage.actions import Metadata, Protocol, encode_all
from sluice.storage.errors import ConstraintViolated, InvalidRequest, SchemaMismatch, UnsupportedFeature
from sluice.storage.schema.schema import from_arrow, parse_schema, schema_to_json
from sluice.storage.stores.local import LocalStore
from sluice.tables.write import change_data_files as change_data
from sluice.tables.write.change_data_files import ChangeDataWriter
from tests.tables.conftest import FLIGHTS, Place, flights, rows_of

TIME = pa.timestamp("us", "UTC")
DAY = {"delta.generationExpression": "CAST(at AS DATE)"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", TIME),
        pa.field("day", pa.date32(), metadata=DAY),
        pa.field("status", pa.string(), nullable=False, metadata={"CURRENT_DEFAULT": "'new'"}),
    ]
)
CHANGES = {"delta.enableChangeDataFeed": "true"}


def at(day: int) -> datetime:
    return datetime(2024, 5, day, 12, tzinfo=timezone.utc)


def rows(*days: int, **more: list[Any]) -> pa.Table:
    """A row with an id for each day of May."""
    return pa.table({"id": pa.array(days, pa.int64()), "at": pa.array([at(day) for day in days], TIME), **more})


def stored(table: sluice.Table) -> list[tuple[int, int | None, str]]:
    """(id, day of the month, status) of all rows, by id."""
    found = table.snapshot().to_arrow(["id", "day", "status"]).sort_by("id").to_pylist()
    return [(each["id"], each["day"] and each["day"].day, each["status"]) for each in found]


def created(place: Place, **options: Any) -> sluice.Table:
    return sluice.Table.create(place.location, SCHEMA, coordinator=place.coordinator, **options)


def test_every_operation_fills_columns_in(place: Place) -> None:
    table = created(place, partition_by=["day"], properties=CHANGES)
    table.append(rows(1, 2))
    table.append(rows(3, status=["old"], day=[date(2024, 5, 3)]))
    assert stored(table) == [(1, 1, "new"), (2, 2, "new"), (3, 3, "old")]
    table.update({"at": "TIMESTAMP'2024-05-09 01:00:00'", "status": "'moved'"}, "id = 2")
    table.update({"status": "DEFAULT"}, "id = 3")
    table.upsert(rows(1, 4, status=["a", "b"]).set_column(1, "at", pa.array([at(7), at(8)], TIME)), on="id")
    assert stored(table) == [(1, 7, "a"), (2, 9, "moved"), (3, 3, "new"), (4, 8, "b")]
    changed = table.changes(0).to_pylist()
    moved = [(each["_change_type"], each["day"].day) for each in changed if each["id"] == 2 and each["_change_type"].startswith("update")]
    assert sorted(moved) == [("update_postimage", 9), ("update_preimage", 2)]
    table.overwrite(rows(9), dynamic=True)
    assert stored(table) == [(1, 7, "a"), (3, 3, "new"), (4, 8, "b"), (9, 9, "new")]
    table.overwrite(rows(5))
    assert stored(table) == [(5, 5, "new")]
    read = DeltaTable(place.location).to_pyarrow_table().to_pylist()
    assert [(each["id"], each["day"], each["status"]) for each in read] == [(5, date(2024, 5, 5), "new")]


def test_wrong_values_are_refused(place: Place) -> None:
    table = created(place)
    with pytest.raises(ConstraintViolated, match=r"row 1 breaks the constraint generated column day .*CAST\(at AS DATE\).*2024, 5, 1\)"):
        table.append(rows(1, 2, day=[date(2024, 5, 1), date(2024, 5, 1)]))
    table.append(rows(1))
    with pytest.raises(ConstraintViolated, match="generated column day"):
        table.update({"day": "DATE'2000-01-01'"})
    with pytest.raises(SchemaMismatch, match="lacks column 'status' of the table; rows are replaced as a whole"):
        table.upsert(rows(1), on="id")
    with pytest.raises(SchemaMismatch, match="'status' is NOT NULL and the data has 1 null"):
        table.append(rows(1, status=pa.array([None], pa.string())))
    assert stored(table) == [(1, 1, "new")]


def test_a_table_keeps_what_only_spark_evaluates(place: Place) -> None:
    bucket = pa.field("bucket", pa.int32(), metadata={"delta.generationExpression": "pmod(hash(id), 4)"})
    table = sluice.Table.create(place.location, pa.schema([SCHEMA.field("id"), bucket]), coordinator=place.coordinator)
    refused = r"pmod\(hash\(id\), 4\).* write with Spark"
    with pytest.raises(UnsupportedFeature, match=refused):
        table.append(pa.table({"id": [1]}))
    with pytest.raises(UnsupportedFeature, match=refused):
        table.append(pa.table({"id": [1], "bucket": pa.array([1], pa.int32())}))
    with pytest.raises(UnsupportedFeature, match=refused):
        table.update({"id": "2"})
    assert table.refresh().version == 0


def test_defaults_come_and_go(place: Place) -> None:
    table = sluice.Table.create(place.location, pa.schema([("id", pa.int64()), ("n", pa.int32())]), coordinator=place.coordinator)
    assert "allowColumnDefaults" not in table.detail().features
    table.alter_columns([sluice.ColumnChange(("n",), default="40 + 2")])
    assert "allowColumnDefaults" in table.detail().features
    table.append(pa.table({"id": [1]}))
    with pytest.raises(InvalidRequest, match="a column has a DEFAULT; drop it"):
        table.drop_feature("allowColumnDefaults")
    with pytest.raises(InvalidRequest, match="refers to id: a default is one value"):
        table.alter_columns([sluice.ColumnChange(("n",), default="id")])
    table.alter_columns([sluice.ColumnChange(("n",), default="")])
    table.append(pa.table({"id": [2]}))
    table.drop_feature("allowColumnDefaults")
    assert table.snapshot().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "n": 42}, {"id": 2, "n": None}]


@pytest.mark.parametrize(
    ("key", "remedy"), [("CURRENT_DEFAULT", "then ALTER COLUMN n SET DEFAULT 1"), ("delta.generationExpression", "is GENERATED")]
)
def test_an_added_column_has_no_value_for_old_rows(place: Place, key: str, remedy: str) -> None:
    with pytest.raises(InvalidRequest, match=remedy):
        created(place).add_columns([sluice.NewColumn(pa.field("n", pa.int32(), metadata={key: "1"}))])


def test_expressions_survive_new_columns_and_go_with_a_new_schema(place: Place) -> None:
    table = created(place)
    table.append(rows(1, n=[5]), merge_schema=True)
    table.append(rows(2, n=[6]))
    assert stored(table) == [(1, 1, "new"), (2, 2, "new")]
    read = table.snapshot().to_arrow()
    table.overwrite(read.replace_schema_metadata(None), overwrite_schema=True)
    table.append(pa.table({"id": [3], "status": ["x"]}))
    assert stored(table) == [(1, 1, "new"), (2, 2, "new"), (3, None, "x")]
    table.replace(SCHEMA, rows(4))
    assert stored(table) == [(4, 4, "new")]


def test_a_bad_definition_makes_no_table(place: Place) -> None:
    field = pa.field("day", pa.date32(), metadata={"delta.generationExpression": "CAST(wann AS DATE)"})
    with pytest.raises(InvalidRequest, match="refers to wann, which the table lacks"):
        sluice.Table.create(place.location, pa.schema([SCHEMA.field("id"), field]), coordinator=place.coordinator)
    with pytest.raises(sluice.errors.TableNotFound):
        place.open()


def test_an_old_table_of_another_engine_becomes_writable(place: Place, tmp_path: Any) -> None:
    """Writer version 4 implies generated columns."""
    table = created(place)
    table.append(rows(1))
    log = tmp_path / "old" / "_delta_log"
    log.mkdir(parents=True)
    metadata = table.snapshot().raw.metadata
    plain = parse_schema(metadata.schema_string)
    text = schema_to_json(type(plain)([replace(each, metadata=DAY if each.name == "day" else {}) for each in plain.fields]))
    (log / f"{0:020}.json").write_bytes(encode_all((Protocol(1, 4), Metadata("old", text, (), {}))))
    old = sluice.Table.attach(str(tmp_path / "old"), coordinator=place.coordinator)
    old.append(rows(2, status=["x"]))
    assert stored(old) == [(2, 2, "x")]
    [field] = [each for each in json.loads(old.snapshot().raw.metadata.schema_string)["fields"] if each["name"] == "day"]
    assert field["metadata"] == DAY


def writer(folder: Path, *, partition_columns: tuple[str, ...] = ("origin",), schema: pa.Schema = FLIGHTS) -> ChangeDataWriter:
    store = LocalStore(f"file://{folder}")
    metadata = Metadata("", schema_to_json(from_arrow(schema)), partition_columns, {})
    return ChangeDataWriter(store, metadata, "3f2a")


def test_every_change_is_in_a_file_of_its_partition(tmp_path: Path) -> None:
    changes = writer(tmp_path)
    changes.record(flights(("JFK", 1, 10), ("EWR", 1, None)), None)
    changes.record(None, flights(("JFK", 2, 20)))
    changes.record(flights(("LGA", 3, 1)), flights(("EWR", 3, 2)))
    files = {each.partition_values["origin"]: each for each in changes.finish()}
    found = {}
    for origin, each in files.items():
        assert each.path.startswith(f"_change_data/origin={origin}/part-")
        assert "3f2a" in each.path
        assert each.size == (tmp_path / each.path).stat().st_size
        assert not each.data_change
        table = pq.ParquetFile(tmp_path / each.path).read()
        assert table.column_names == ["month", "delay", "_change_type"]
        found[origin] = rows_of(table)
    assert found == {
        "JFK": [(1, 10, "delete"), (2, 20, "insert")],
        "EWR": [(1, None, "delete"), (3, 2, "update_postimage")],
        "LGA": [(3, 1, "update_preimage")],
    }


def test_rows_leave_memory_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_data, "_PENDING_BYTES", 100)
    changes = writer(tmp_path, partition_columns=())
    for number in range(5):
        changes.record(None, flights(*[("JFK", number, row) for row in range(10)]))
        assert len(list(tmp_path.rglob("*.parquet"))) == number + 1
    files = changes.finish()
    assert len({each.path for each in files}) == 5
    assert sum(pq.ParquetFile(tmp_path / each.path).metadata.num_rows for each in files) == 50


def test_what_is_discarded_is_gone_and_no_changes_make_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_data, "_PENDING_BYTES", 1)
    changes = writer(tmp_path)
    changes.record(flights(), None)
    assert changes.finish() == ()
    assert list(tmp_path.rglob("*.parquet")) == []
    changes.record(flights(("JFK", 1, 10)), None)
    assert list(tmp_path.rglob("*.parquet"))
    changes.discard()
    assert list(tmp_path.rglob("*.parquet")) == []
    assert changes.finish() == ()


def test_rows_before_a_column_became_required_are_changes_too(tmp_path: Path) -> None:
    rows = pa.table({"origin": ["JFK"], "month": pa.array([None], pa.int32()), "delay": pa.array([1], pa.int64())})
    changes = writer(tmp_path)
    changes.record(rows, None)
    (file,) = changes.finish()
    assert pq.ParquetFile(tmp_path / file.path).read().column("month").to_pylist() == [None]


def test_changes_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="_change_type"):
        writer(tmp_path, schema=pa.schema([("_Change_Type", pa.string())]))
    changes = writer(tmp_path)
    with pytest.raises(InvalidRequest, match="1 rows cannot have become 2"):
        changes.record(flights(("JFK", 1, 1)), flights(("JFK", 1, 1), ("JFK", 1, 2)))
    changes.record(None, pa.table({"somewhere": ["JFK"]}))
    with pytest.raises(SchemaMismatch, match="somewhere"):
        changes.finish()
    assert list(tmp_path.rglob("*.parquet")) == []
