"""Clustered tables of Delta Lake are taken over, clustered by sluice, and given back; each knows the other's clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice

from .engine import Delta

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.string())])), ("short", pa.string())])


def rows(first: int, last: int) -> pa.Table:
    return pa.Table.from_pylist([{"a": n * 37 % 101, "s": {"x": f"x{n}"}, "short": "y"} for n in range(first, last)], SCHEMA)


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(row["a"] for row in found)


def test_a_clustered_table_goes_there_and_back(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    place = str(tmp_path / "t")
    name = f"delta.`{place}`"
    delta.sql(f"CREATE TABLE {name} (a BIGINT, s STRUCT<x: STRING>, short VARCHAR(3)) USING delta CLUSTER BY (a, s.x)")
    delta.sql(f"INSERT INTO {name} SELECT id * 37 % 101, named_struct('x', concat('x', id)), 'y' FROM range(50)")
    delta.sql(f"OPTIMIZE {name}")
    ours = sluice.Table.attach(place, coordinator=zookeeper_address)
    assert ours.clustering_columns == ("a", "s.x")
    assert ours.compact() is None
    with pytest.raises(sluice.errors.ConstraintViolated, match=r"varchar\(3\) of short"):
        ours.append(pa.Table.from_pylist([{"a": 1, "short": "long"}], SCHEMA))
    ours.append(rows(50, 120))
    assert ours.compact() is not None
    ours.append(rows(120, 130))
    ours.compact()
    ours.cluster_by(["s.x"])
    assert delta.sql(f"DESCRIBE DETAIL {name}")[0]["clusteringColumns"] == ["s.x"]
    assert numbers(delta.read(place)) == numbers(rows(0, 130).to_pylist())
    ours.compact("full")
    assert numbers(delta.sql(f"SELECT a FROM {name} WHERE s.x = 'x77'")) == [77 * 37 % 101]
    ours.detach()
    delta.sql(f"INSERT INTO {name} SELECT 1000, named_struct('x', 'new'), 'y'")
    delta.sql(f"OPTIMIZE {name} FULL")
    assert numbers(delta.read(place)) == [*numbers(rows(0, 130).to_pylist()), 1000]
    again = sluice.Table.attach(place, coordinator=zookeeper_address)
    assert again.compact() is None
    assert again.clustering_columns == ("s.x",)


def test_a_table_that_sluice_clustered_is_clustered_there(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    made = sluice.Table.create(tmp_path / "t", SCHEMA, cluster_by=["a", "s.x"], coordinator=zookeeper_address)
    made.append(rows(0, 30))
    made.compact()
    made.append(rows(30, 40))
    name = f"delta.`{made.location}`"
    made.detach()
    assert delta.sql(f"DESCRIBE DETAIL {name}")[0]["clusteringColumns"] == ["a", "s.x"]
    delta.sql(f"INSERT INTO {name} SELECT 1000, named_struct('x', 'new'), 'y'")
    delta.sql(f"ALTER TABLE {name} CLUSTER BY (a)")
    delta.sql(f"OPTIMIZE {name}")
    assert numbers(delta.read(made.location)) == [*numbers(rows(0, 40).to_pylist()), 1000]
    assert sluice.Table.attach(made.location, coordinator=zookeeper_address).clustering_columns == ("a",)


def test_files_with_new_statistics_are_there_once(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    made = sluice.Table.create(
        tmp_path / "t",
        SCHEMA,
        properties={"delta.dataSkippingNumIndexedCols": "0", "delta.enableDeletionVectors": "true"},
        coordinator=zookeeper_address,
    )
    made.append(rows(0, 30))
    made.append(rows(30, 40))
    made.delete("a = 74")
    left = numbers(made.snapshot().to_arrow().to_pylist())
    assert made.analyze(["a", "s.x"]).commit is not None
    assert numbers(delta.read(made.location)) == left
    assert numbers(delta.sql(f"SELECT a FROM delta.`{made.location}` WHERE s.x = 'x31'")) == [31 * 37 % 101]
    assert "COMPUTE STATS" in {row["operation"] for row in delta.sql(f"DESCRIBE HISTORY delta.`{made.location}`")}
