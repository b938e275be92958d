"""CONVERT: a folder of Parquet files becomes a table in place."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.storage.errors import InvalidRequest, SchemaMismatch, TableExists, TableNotFound
from tests.tables.conftest import Place, rows_of

PARTS = pa.schema([("origin", pa.string()), ("month", pa.int32())])


def put(place: Place, name: str, rows: pa.Table, **options: Any) -> None:
    path = Path(place.location) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **options)


def convert(place: Place, *given: Any, **options: Any) -> sluice.Table:
    return sluice.Table.convert(place.location, *given, coordinator=place.coordinator, **options)


def delays(*values: int | None) -> pa.Table:
    return pa.table({"delay": pa.array(values, pa.int64())})


def test_a_folder_of_files_becomes_a_table(place: Place) -> None:
    put(place, "a.parquet", delays(1, None, 3))
    put(place, "b.parquet", pa.table({"delay": pa.array([4], pa.int64()), "gate": ["B4"]}))
    (Path(place.location) / "_SUCCESS").write_text("")
    (Path(place.location) / ".a.parquet.crc").write_text("x")
    table = convert(place, properties={"owner": "ops", "delta.enableRowTracking": "true"})
    assert rows_of(table.snapshot().to_arrow()) == [(None, None), (1, None), (3, None), (4, "B4")]
    assert table.properties["owner"] == "ops"
    (told,) = table.history()
    assert (told.operation, told.metrics) == ("CONVERT", {"numConvertedFiles": "2"})
    adds = {add.path: add for add in table.snapshot().raw.add_files()}
    assert json.loads(adds["a.parquet"].stats or "") == {
        "numRecords": 3,
        "minValues": {"delay": 1},
        "maxValues": {"delay": 3},
        "nullCount": {"delay": 1, "gate": 3},
    }
    assert sorted(str(add.base_row_id) for add in adds.values()) == ["0", "3"]
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 4
    table.update({"delay": "0"}, where="delay = 4")
    assert table.refresh().snapshot().to_arrow(where="delay = 0").num_rows == 1
    with pytest.raises(TableExists):
        convert(place)


def test_folders_name_partitions(place: Place) -> None:
    put(place, "origin=JFK/month=1/a.parquet", delays(1))
    put(place, "origin=New%20York/month=02/a b.parquet", delays(2))
    put(place, "origin=__HIVE_DEFAULT_PARTITION__/month=3/a.parquet", delays(3))
    table = convert(place, PARTS)
    assert table.partition_columns == ("origin", "month")
    assert rows_of(table.snapshot().to_arrow(["origin", "month", "delay"])) == [(None, 3, 3), ("JFK", 1, 1), ("New York", 2, 2)]
    found = deltalake.DeltaTable(place.location).to_pyarrow_table()
    assert sorted(found["delay"].to_pylist()) == [1, 2, 3]
    table.delete("origin = 'JFK'")
    assert table.refresh().snapshot().num_files == 2
    assert table.vacuum(retain_hours=0, force=True).size_bytes > 0
    assert table.snapshot().to_arrow().num_rows == 2


def test_bounds_hold_for_every_type(place: Place) -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.timezone.utc)
    rows = pa.table(
        {
            "d": pa.array([dt.date(1969, 12, 31), dt.date(2026, 1, 2)]),
            "t": pa.array([at, at], pa.timestamp("us", "UTC")),
            "s": ["a" * 40, "ä" * 40],
            "f": [1.0, float("nan")],
            "n": pa.array([None, None], pa.int32()),
        }
    )
    put(place, "a.parquet", rows, row_group_size=1)
    put(place, "b.parquet", rows.select(["t"]), use_deprecated_int96_timestamps=True)
    table = convert(place)
    assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    stats = {add.path: json.loads(add.stats or "") for add in table.snapshot().raw.add_files()}
    assert stats["a.parquet"]["minValues"] == {"d": "1969-12-31", "t": "2026-01-02T03:04:05.678Z", "s": "a" * 32}
    assert stats["a.parquet"]["maxValues"] == {"d": "2026-01-02", "t": "2026-01-02T03:04:05.679Z", "s": "ä" * 31 + "å"}
    assert stats["a.parquet"]["nullCount"]["n"] == 2
    assert stats["b.parquet"]["minValues"] == {}
    assert table.snapshot().to_arrow(["t"], where="t = timestamp'2026-01-02 03:04:05.678901Z'")["t"].to_pylist() == [at] * 4


@pytest.mark.parametrize(
    ("name", "partitions", "says"),
    [
        ("origin=JFK/a.parquet", None, "partition_schema"),
        ("origin=JFK/a.parquet", PARTS, "origin=.../month=..."),
        ("month=1/origin=JFK/a.parquet", PARTS, "in their order"),
        ("origin=JFK/month=May/a.parquet", PARTS, "'May' is no value"),
        ("a.csv", None, "no Parquet file by its name"),
        ("inner/_delta_log/x.parquet", None, "another table"),
    ],
)
def test_files_that_do_not_fit_are_named(place: Place, name: str, partitions: pa.Schema | None, says: str) -> None:
    put(place, name, delays(1))
    with pytest.raises(InvalidRequest) as refused:
        convert(place, partitions)
    assert says in refused.value.message
    assert not (Path(place.location) / "_delta_log").exists()


def test_types_that_do_not_fit_together_are_named(place: Place) -> None:
    put(place, "a.parquet", delays(1))
    put(place, "b.parquet", pa.table({"delay": ["late"]}))
    with pytest.raises(SchemaMismatch, match=r"'b\.parquet' does not fit"):
        convert(place)
    (Path(place.location) / "b.parquet").write_bytes(b"PAR1 is not enough")
    with pytest.raises(SchemaMismatch, match=r"b\.parquet"):
        convert(place)


def test_what_nobody_can_check_is_refused(place: Place) -> None:
    put(place, "a.parquet", delays(1))
    with pytest.raises(InvalidRequest, match="set_properties"):
        convert(place, properties={"delta.constraints.late": "delay > 5"})
    (Path(place.location) / "a.parquet").unlink()
    with pytest.raises(TableNotFound):
        convert(place)
