"""Change data files: what a writer of them leaves in the store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.storage.errors import InvalidRequest, SchemaMismatch
from sluice.storage.schema.schema import from_arrow
from sluice.storage.stores.local import LocalStore
from sluice.tables.write import change_data_files as change_data
from sluice.tables.write.change_data_files import ChangeDataWriter
from tests.tables.conftest import FLIGHTS, flights, rows_of


def writer(folder: Path, *, partition_columns: tuple[str, ...] = ("origin",), schema: pa.Schema = FLIGHTS) -> ChangeDataWriter:
    store = LocalStore(f"file://{folder}")
    return ChangeDataWriter(store, schema=from_arrow(schema), partition_columns=partition_columns, transaction_id="3f2a")


def test_every_change_is_in_a_file_of_its_partition(tmp_path: Path) -> None:
    changes = writer(tmp_path)
    changes.delete(flights(("JFK", 1, 10), ("EWR", 1, None)))
    changes.insert(flights(("JFK", 2, 20)))
    changes.update(flights(("LGA", 3, 1)), flights(("EWR", 3, 2)))
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


def test_no_changes_make_no_files(tmp_path: Path) -> None:
    changes = writer(tmp_path)
    changes.delete(flights())
    assert changes.finish() == ()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_rows_leave_memory_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_data, "_PENDING_BYTES", 100)
    changes = writer(tmp_path, partition_columns=())
    for number in range(5):
        changes.insert(flights(*[("JFK", number, row) for row in range(10)]))
        assert len(list(tmp_path.rglob("*.parquet"))) == number + 1
    files = changes.finish()
    assert len({each.path for each in files}) == 5
    assert sum(pq.ParquetFile(tmp_path / each.path).metadata.num_rows for each in files) == 50


def test_what_is_discarded_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_data, "_PENDING_BYTES", 1)
    changes = writer(tmp_path)
    changes.delete(flights(("JFK", 1, 10)))
    assert list(tmp_path.rglob("*.parquet"))
    changes.discard()
    assert list(tmp_path.rglob("*.parquet")) == []
    assert changes.finish() == ()


def test_rows_before_a_column_became_required_are_changes_too(tmp_path: Path) -> None:
    rows = pa.table({"origin": ["JFK"], "month": pa.array([None], pa.int32()), "delay": pa.array([1], pa.int64())})
    changes = writer(tmp_path)
    changes.delete(rows)
    (file,) = changes.finish()
    assert pq.ParquetFile(tmp_path / file.path).read().column("month").to_pylist() == [None]


def test_updates_come_in_pairs(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="1 rows cannot have become 2"):
        writer(tmp_path).update(flights(("JFK", 1, 1)), flights(("JFK", 1, 1), ("JFK", 1, 2)))


def test_rows_of_another_schema_are_refused(tmp_path: Path) -> None:
    changes = writer(tmp_path)
    changes.insert(pa.table({"somewhere": ["JFK"]}))
    with pytest.raises(SchemaMismatch, match="somewhere"):
        changes.finish()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_table_with_a_column_of_that_name_has_no_change_data(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="_change_type"):
        writer(tmp_path, schema=pa.schema([("_Change_Type", pa.string())]))
