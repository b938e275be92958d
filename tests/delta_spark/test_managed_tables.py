"""Delta Lake on Spark and DuckDB read tables that sluice restored, replaced, cloned, and made of Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice

from .engine import Delta, DuckDB
from .test_delta_spark import PROPERTIES, SCHEMA, of_delta, of_sluice, rows

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]


@pytest.fixture(params=["plain", "vectors", "tracked"])
def changed(request: pytest.FixtureRequest, tmp_path: Path, zookeeper_address: str) -> sluice.Table:
    """A table with three versions of rows: appended, partly deleted, updated."""
    properties = PROPERTIES[request.param]
    made = sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["p"], properties=properties, coordinator=zookeeper_address)
    made.append(rows(0, 60))
    made.delete("id % 7 = 3")
    made.update({"v": "v + 1"}, "id % 5 = 2")
    return made


def test_they_read_a_restored_table(changed: sluice.Table, delta: Delta, duckdb: DuckDB) -> None:
    changed.restore(2)
    theirs = of_delta(delta.read(changed.location))
    assert theirs == of_sluice(changed.refresh().snapshot().to_arrow()) == of_delta(delta.read(changed.location, versionAsOf=2))
    changed.delete("id < 10")
    ours = of_sluice(changed.refresh().snapshot().to_arrow())
    assert of_delta(delta.read(changed.location)) == ours == of_sluice(duckdb.read(changed.location))
    operations = [row["operation"] for row in delta.sql(f"DESCRIBE HISTORY delta.`{changed.location}`")]
    assert "RESTORE" in operations


def test_they_read_a_replaced_table(changed: sluice.Table, delta: Delta, duckdb: DuckDB) -> None:
    changed.overwrite(pa.table({"k": [1, 2], "word": ["a", None]}), overwrite_schema=True, partition_by=[])
    assert sorted(delta.read(changed.location), key=lambda row: row["k"]) == [{"k": 1, "word": "a"}, {"k": 2}]
    assert sorted(duckdb.read(changed.location).to_pylist(), key=lambda row: row["k"]) == [{"k": 1, "word": "a"}, {"k": 2, "word": None}]
    assert of_delta(delta.read(changed.location, versionAsOf=1)) == of_sluice(changed.snapshot(1).to_arrow())


def test_it_reads_a_shallow_clone(changed: sluice.Table, tmp_path: Path, delta: Delta) -> None:
    """DuckDB 1.5 does not: it takes the absolute paths of a clone's files for relative ones."""
    cloned = changed.clone(tmp_path / "clone")
    assert of_delta(delta.read(cloned.location)) == of_sluice(changed.snapshot().to_arrow())
    cloned.delete("id % 2 = 0")
    cloned.append(rows(100, 110))
    ours = of_sluice(cloned.refresh().snapshot().to_arrow())
    assert of_delta(delta.read(cloned.location)) == ours
    assert of_delta(delta.read(changed.location)) == of_sluice(changed.refresh().snapshot().to_arrow())


def test_they_read_a_deep_clone_and_adopted_files(changed: sluice.Table, tmp_path: Path, delta: Delta, duckdb: DuckDB) -> None:
    cloned = changed.clone(tmp_path / "clone", deep=True)
    changed.delete("id % 5 = 0")
    changed.append(rows(100, 110))
    cloned = changed.clone(tmp_path / "clone", deep=True, replace=True)
    ours = of_sluice(changed.refresh().snapshot().to_arrow())
    assert of_delta(delta.read(cloned.location)) == of_sluice(duckdb.read(cloned.location)) == ours
    assert "CLONE" in [row["operation"] for row in delta.sql(f"DESCRIBE HISTORY delta.`{cloned.location}`")]
    incoming = tmp_path / "clone" / "incoming.parquet"
    data = cloned.refresh().snapshot().to_arrow().slice(0, 3)
    stored = data.drop_columns(list(cloned.partition_columns))
    pq.write_table(stored, incoming)
    values = data.select(list(cloned.partition_columns)).slice(0, 1).to_pylist()
    cloned.adopt({incoming: values[0] if values else {}})
    assert of_delta(delta.read(cloned.location)) == of_sluice(cloned.refresh().snapshot().to_arrow())
    cloned.detach()
    delta.sql(f"DELETE FROM delta.`{cloned.location}` WHERE id % 2 = 0")
    assert all(row["id"] % 2 for row in delta.read(cloned.location))


def test_they_read_a_table_made_of_parquet_files(tmp_path: Path, zookeeper_address: str, delta: Delta, duckdb: DuckDB) -> None:
    for part, first in (("a", 0), ("b", 20)):
        folder = tmp_path / "files" / f"p={part}"
        folder.mkdir(parents=True)
        pq.write_table(rows(first, first + 20).drop_columns(["p"]), folder / "rows.parquet")
    made = sluice.Table.convert(tmp_path / "files", pa.schema([("p", pa.string())]), coordinator=zookeeper_address)
    made.update({"v": "v * 2"}, "id < 5")
    theirs = of_delta(delta.read(made.location))
    assert theirs == of_sluice(made.refresh().snapshot().to_arrow()) == of_sluice(duckdb.read(made.location))
    assert sum(theirs.values()) == 40
