"""Delta Lake on Spark reads the ids that rows of our tables keep, and we keep those of rows that it wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import sluice

from .engine import Delta

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]

SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("v", pa.int64())])
Ids = dict[int, tuple[int, int]]


def rows(*keys: int, v: int = 0) -> pa.Table:
    return pa.table({"k": keys, "p": [k % 2 for k in keys], "v": [v] * len(keys)}, schema=SCHEMA)


def of_delta(delta: Delta, table: str) -> Ids:
    found = delta.sql(f"SELECT k, _metadata.row_id AS i, _metadata.row_commit_version AS c FROM {table}")
    assert len({row["i"] for row in found}) == len(found)
    return {row["k"]: (row["i"], row["c"]) for row in found}


def of_sluice(table: sluice.Table) -> Ids:
    found = table.refresh().snapshot().to_arrow(["k"], row_ids=True).to_pylist()
    return {row["k"]: (row["_row_id"], row["_row_commit_version"]) for row in found}


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_it_reads_the_same_ids(tmp_path: Path, zookeeper_address: str, delta: Delta, vectors: str) -> None:
    properties = {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": vectors}
    table = sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["p"], properties=properties, coordinator=zookeeper_address)
    name = f"delta.`{table.location}`"
    table.append(rows(*range(20)))
    table.append(rows(*range(20, 40)))
    first = of_sluice(table)
    table.update({"v": "v + 1", "p": "1 - p"}, "k % 5 = 2")
    assert of_delta(delta, name) == of_sluice(table)
    table.delete("k % 7 = 3")
    table.upsert(rows(8, 9, 100, 101, v=3), on="k")
    assert of_delta(delta, name) == of_sluice(table)
    table.compact(mode="major")
    table.compact(z_order_by="v")
    assert of_delta(delta, name) == of_sluice(table)
    table.restore(2)
    assert of_delta(delta, name) == of_sluice(table) == first


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_ids_that_it_gave_are_kept(tmp_path: Path, zookeeper_address: str, delta: Delta, vectors: str) -> None:
    location = tmp_path / "t"
    name = f"delta.`{location}`"
    delta.sql(
        f"CREATE TABLE {name} (k BIGINT, p BIGINT, v BIGINT) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        f"('delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = '{vectors}')"
    )
    delta.sql(f"INSERT INTO {name} SELECT id, id % 2, 0 FROM range(40)")
    delta.sql(f"UPDATE {name} SET v = 1 WHERE k % 5 = 2")
    delta.sql(f"OPTIMIZE {name}")
    before = of_delta(delta, name)
    table = sluice.Table.attach(location, coordinator=zookeeper_address)
    assert of_sluice(table) == before
    table.update({"v": "v + 1"}, "k % 4 = 1")
    table.delete("k % 7 = 3")
    table.upsert(rows(8, 100, v=3), on="k")
    table.compact(mode="major")
    after = of_sluice(table)
    assert after == of_delta(delta, name)
    gone = {k for k in range(40) if k % 7 == 3}
    assert {k: row_id for k, (row_id, _) in after.items() if k != 100} == {k: row_id for k, (row_id, _) in before.items() if k not in gone}
    changed = {k for k in range(40) if k % 4 == 1} | {8}
    assert {k for k in before.keys() - gone if after[k][1] == before[k][1]} == before.keys() - gone - changed
    table.detach()
    delta.sql(f"UPDATE {name} SET v = 50 WHERE k < 10")
    delta.sql(f"OPTIMIZE {name}")
    last = of_delta(delta, name)
    assert {k: row_id for k, (row_id, _) in last.items()} == {k: row_id for k, (row_id, _) in after.items()}
    assert of_sluice(sluice.Table.attach(location, coordinator=zookeeper_address)) == last
