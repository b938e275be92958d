"""Delta Lake on Spark writes tables that sluice took features from, and the other way round; and both do what features ask of writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.storage.errors import InvalidRequest

from .engine import Delta

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(900)]

SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.string()), ("p", pa.string())])
AT_ONCE = {"delta.dropFeatureTruncateHistory.retentionDuration": "interval 0 hours"}
USES: dict[str, dict[str, str]] = {
    "deletionVectors": {"delta.enableDeletionVectors": "true"},
    "columnMapping": {"delta.columnMapping.mode": "name"},
    "typeWidening": {"delta.enableTypeWidening": "true"},
    "v2Checkpoint": {"delta.checkpointPolicy": "v2"},
}


def rows(*keys: int, key: str = "k") -> pa.Table:
    return pa.table({key: pa.array(keys, pa.int32()), "v": [f"v{k}" for k in keys], "p": [f"p{k % 2}" for k in keys]})


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=repr)


def features(delta: Delta, location: str) -> list[str]:
    [told] = delta.sql(f"DESCRIBE DETAIL delta.`{location}`")
    return list(told["tableFeatures"])


@pytest.mark.parametrize("feature", USES)
def test_it_writes_what_a_feature_has_left(tmp_path: Path, zookeeper_address: str, delta: Delta, feature: str) -> None:
    table = sluice.Table.create(
        tmp_path / "t", SCHEMA, partition_by=["p"], properties={**USES[feature], **AT_ONCE}, coordinator=zookeeper_address
    )
    table.append(rows(*range(8)))
    table.checkpoint()
    table.delete("k = 3")
    if feature == "columnMapping":
        table.alter_columns([sluice.ColumnChange(("v",), name="w"), sluice.ColumnChange(("p",), name="part")])
    if feature == "typeWidening":
        table.alter_columns([sluice.ColumnChange(("k",), type=pa.int64())])
    with pytest.raises(InvalidRequest, match=f"{feature} stays"):
        table.drop_feature(feature)
    expected = in_order(table.refresh().snapshot().to_arrow().to_pylist())
    assert in_order(delta.read(table.location)) == expected, "after the first call, too"
    assert table.drop_feature(feature, truncate_history=True) is not None
    table.detach()
    assert feature not in features(delta, table.location)
    assert in_order(delta.read(table.location)) == expected
    name = f"delta.`{table.location}`"
    delta.sql(f"INSERT INTO {name} VALUES (100, 'new', 'p1')")
    delta.sql(f"DELETE FROM {name} WHERE k = 5")
    delta.sql(f"OPTIMIZE {name}")
    theirs = deltalake.DeltaTable(table.location)
    assert feature not in {*(theirs.protocol().reader_features or ()), *(theirs.protocol().writer_features or ())}
    deltalake.write_deltalake(theirs, theirs.to_pyarrow_table().slice(0, 1), mode="append")
    again = sluice.Table.attach(table.location, coordinator=zookeeper_address)
    assert again.snapshot().to_arrow().num_rows == len(expected) + 1
    assert in_order(delta.read(table.location)) == in_order(again.snapshot().to_arrow().to_pylist())


def test_a_table_whose_old_checkpoints_it_protects_is_taken_over(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    location = str(tmp_path / "t")
    name = f"delta.`{location}`"
    delta.sql(f"CREATE TABLE {name} (k INT, v STRING) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    delta.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    delta.sql(f"DELETE FROM {name} WHERE k = 2")
    delta.sql(f"ALTER TABLE {name} DROP FEATURE deletionVectors")
    assert "checkpointProtection" in features(delta, location)
    table = sluice.Table.attach(location, coordinator=zookeeper_address)
    table.append(pa.table({"k": pa.array([4], pa.int32()), "v": ["d"]}))
    table.checkpoint()
    assert table.vacuum().log_files == ()
    expected = [{"k": 1, "v": "a"}, {"k": 3, "v": "c"}, {"k": 4, "v": "d"}]
    assert in_order(delta.read(location)) == in_order(table.snapshot().to_arrow().to_pylist()) == expected
    with pytest.raises(InvalidRequest, match="checkpointProtection stays"):
        table.drop_feature("checkpointProtection")
    table.set_properties(AT_ONCE)
    assert table.drop_feature("checkpointProtection", truncate_history=True) is not None
    table.detach()
    delta.sql(f"INSERT INTO {name} VALUES (5, 'e')")
    assert len(delta.read(location)) == 4
    assert "checkpointProtection" not in features(delta, location)


@pytest.mark.parametrize("version", [1, 2])
def test_each_keeps_to_what_iceberg_can_have(tmp_path: Path, zookeeper_address: str, delta: Delta, version: int) -> None:
    properties = {f"delta.enableIcebergCompatV{version}": "true", "delta.columnMapping.mode": "name"}
    table = sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["p"], properties=properties, coordinator=zookeeper_address)
    table.append(rows(1, 2, 3))
    table.update({"v": "'new'"}, where="k = 2")
    table.detach()
    name = f"delta.`{table.location}`"
    delta.sql(f"INSERT INTO {name} VALUES (4, 'four', 'p0')")
    delta.sql(f"ALTER TABLE {name} ADD COLUMNS (more STRING)")
    again = sluice.Table.attach(table.location, coordinator=zookeeper_address)
    again.append(rows(5))
    assert in_order([{"more": None, **each} for each in delta.read(table.location)]) == in_order(
        [{"more": None, **each} for each in again.snapshot().to_arrow().to_pylist()]
    )
    for path in again.snapshot().files()["path"].to_pylist():
        footer = pq.read_schema(Path(table.location.removeprefix("file://"), path))
        assert len(footer) >= 3, "the partition column is there"


def test_each_puts_partition_columns_into_files(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    location = str(tmp_path / "t")
    name, key = f"delta.`{location}`", "delta.enableMaterializePartitionColumnsFeature"
    delta.sql(f"CREATE TABLE {name} (k INT, v STRING, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES ('{key}' = 'true')")
    delta.sql(f"INSERT INTO {name} VALUES (1, 'a', 'x'), (2, 'b', NULL)")
    assert "materializePartitionColumns" in features(delta, location)
    table = sluice.Table.attach(location, coordinator=zookeeper_address)
    table.append(rows(3))
    for path in table.snapshot().files()["path"].to_pylist():
        assert pq.read_schema(Path(location, path)).names == ["k", "v", "p"]
    assert table.drop_feature("materializePartitionColumns") is not None
    table.detach()
    delta.sql(f"INSERT INTO {name} VALUES (4, 'd', 'y')")
    assert len(delta.read(location)) == 4


def test_times_of_commits_that_were_switched_on_late(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    location = str(tmp_path / "t")
    name, log = f"delta.`{location}`", Path(location, "_delta_log")
    delta.sql(f"CREATE TABLE {name} (k INT) USING delta")
    delta.sql(f"INSERT INTO {name} VALUES (1)")
    delta.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    delta.sql(f"INSERT INTO {name} VALUES (2)")
    first = json.loads((log / f"{2:020}.json").read_text().splitlines()[0])["commitInfo"]["inCommitTimestamp"]
    table = sluice.Table.attach(location, coordinator=zookeeper_address)
    assert [each.version for each in table.history()] == [4, 3, 2, 1, 0]
    assert table.snapshot(timestamp=first).version == 2
    assert table.snapshot(timestamp=first - 1).version == 1
    table.append(pa.table({"k": pa.array([3], pa.int32())}))
    assert sorted(each["k"] for each in delta.read(location)) == [1, 2, 3]
