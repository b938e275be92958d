"""Streams both ways: Delta Lake on Spark streams from tables of sluice, and sluice from tables that Delta Lake writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import sluice
from sluice.coordinator.service.connect import release
from sluice.spark_integration import original

from ..spark_integration.conftest import Place, spark
from ..spark_integration.data_source.streaming import Stream
from .engine import Delta, DeltaError

__all__ = ["spark"]

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(900)]

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "p": f"p{i % 2}", "v": 10 * i} for i in ids], schema=SCHEMA)


def ids(found: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in found)


# -- Delta Lake streams from tables of sluice ------------------------------------------------------------------------------


def create(tmp_path: Path, coordinator: str, properties: dict[str, str]) -> sluice.Table:
    return sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["p"], properties=properties, coordinator=coordinator)


def test_its_streams_read_each_row_once_from_start_to_start(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    table, folder = create(tmp_path, zookeeper_address, {**VECTORS, "delta.checkpointInterval": "3"}), str(tmp_path / "stream")
    table.append(rows(1, 2, 3, 4))
    table.delete("id = 4")
    table.append(rows(5))
    assert ids(delta.stream(table.location, folder, maxFilesPerTrigger=1)) == [1, 2, 3, 5]
    table.append(rows(6))
    table.compact("major")
    with sluice.transaction(zookeeper_address) as both:
        both.part(table).append(rows(7))
        both.part(table).append(rows(8))
    table.compact("minor")
    assert ids(delta.stream(table.location, folder, maxFilesPerTrigger=1)) == [1, 2, 3, 5, 6, 7, 8]
    table.delete("id = 1")  # by a deletion vector
    table.append(rows(9))
    with pytest.raises(DeltaError, match="skipChangeCommits"):
        delta.stream(table.location, folder)
    assert ids(delta.stream(table.location, folder, skipChangeCommits="true")) == [1, 2, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("properties", [FEED, {**FEED, **VECTORS}], ids=["copies", "vectors"])
def test_its_streams_read_the_changes(tmp_path: Path, zookeeper_address: str, delta: Delta, properties: dict[str, str]) -> None:
    table, folder = create(tmp_path, zookeeper_address, properties), str(tmp_path / "stream")
    options = {"readChangeFeed": "true", "startingVersion": 0, "maxFilesPerTrigger": 1}
    table.append(rows(1, 2, 3, 4, 5))
    table.update({"v": "v + 1"}, "id < 3")
    delta.stream(table.location, folder, **options)
    table.compact("major")
    table.delete("id = 2 OR id = 5")
    table.upsert(rows(3, 6), on="id")
    assert net(delta.stream(table.location, folder, **options)) == Counter(map(shown, table.snapshot().to_arrow().to_pylist()))


def shown(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SCHEMA.names)


def net(changes: list[dict[str, Any]]) -> Counter[Any]:
    """The rows that changes lead to; each change may be there once only."""
    told = Counter((row["_commit_version"], row["_change_type"], shown(row)) for row in changes)
    assert set(told.values()) == {1}, "a change came twice"
    found: Counter[Any] = Counter()
    for _, change, row in told:
        found[row] += 1 if change in ("insert", "update_postimage") else -1
    assert set(found.values()) <= {0, 1}
    return +found


# -- sluice streams from tables of Delta Lake ------------------------------------------------------------------------------


@pytest.fixture
def stream(spark: Any, tmp_path: Path, zookeeper_address: str) -> Iterator[Stream]:
    """A stream of a table that Delta Lake is going to make."""
    yield Stream(Place(spark, str(tmp_path / "theirs"), zookeeper_address), tmp_path / "checkpoint", {"consistency": "published"})
    for query in spark.streams.active:
        query.stop()
    release(zookeeper_address)


def fresh(stream: Stream) -> list[int]:
    """The ids that the stream has not told before."""
    stream.batches.clear()
    stream.run()
    return sorted(row[0] for row in stream.rows)


def made(delta: Delta, path: str, properties: str) -> str:
    name = f"delta.`{path}`"
    delta.sql(f"CREATE TABLE {name} (id BIGINT, p STRING, v BIGINT) USING delta PARTITIONED BY (p) TBLPROPERTIES ({properties})")
    delta.sql(f"INSERT INTO {name} SELECT id, concat('p', id % 2), 10 * id FROM range(1, 5)")
    return name


def test_a_table_of_delta_is_streamed_and_taken_over(stream: Stream, delta: Delta, tmp_path: Path) -> None:
    path = stream.place.location
    name = made(delta, path, "'delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '5'")
    delta.sql(f"DELETE FROM {name} WHERE id = 4")
    assert fresh(stream) == [1, 2, 3]
    delta.sql(f"INSERT INTO {name} VALUES (5, 'p1', 50)")
    delta.sql(f"OPTIMIZE {name}")
    (tmp_path / "feeding" / "inbox").mkdir(parents=True)
    for number, some in enumerate(([6, 7], [8])):
        text = "\n".join(json.dumps({"id": i, "p": "p0", "v": i}) for i in some)
        (tmp_path / "feeding" / "inbox" / f"{number}.json").write_text(text)
    assert ids(delta.sink(path, str(tmp_path / "feeding"), "id BIGINT, p STRING, v BIGINT")) == [1, 2, 3, 5, 6, 7, 8]
    assert fresh(stream) == [5, 6, 7, 8]
    delta.sql(f"UPDATE {name} SET v = 0 WHERE id = 1")
    with pytest.raises(StreamingQueryException) as failed:
        stream.run()
    assert "skipChangeCommits" in str(original(failed.value))
    stream.options = {**stream.options, "skipChangeCommits": "true"}
    assert fresh(stream) == []
    table = sluice.Table.attach(path, coordinator=stream.place.coordinator)
    table.append(rows(9))
    stream.options = {"skipChangeCommits": "true"}  # now by the coordinator, from the same checkpoint
    assert fresh(stream) == [9]
    table.compact("major")
    table.append(rows(10))
    assert fresh(stream) == [10]
    assert ids(delta.read(path)) == [1, 2, 3, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    "properties",
    ["'delta.enableChangeDataFeed' = 'true'", "'delta.enableDeletionVectors' = 'true'"],
    ids=["change data files", "vectors"],
)
def test_the_changes_of_a_table_of_delta_are_streamed(stream: Stream, delta: Delta, properties: str) -> None:
    """File by file: a DELETE in two partitions, the first rows and a MERGE's new ones become several batches."""
    name = made(delta, stream.place.location, properties)
    stream.options = {**stream.options, "readChangeFeed": "true", "maxFilesPerTrigger": 1}
    stream.run()
    delta.sql(f"UPDATE {name} SET v = v + 1 WHERE id < 3")
    delta.sql(f"OPTIMIZE {name}")
    delta.sql(f"MERGE INTO {name} t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    delta.sql(f"INSERT INTO {name} VALUES (5, 'p1', 50), (6, 'p0', 60), (7, 'p1', 70)")
    delta.sql(f"DELETE FROM {name} WHERE id IN (1, 6)")
    stream.run()
    version = {row[4] for row in stream.rows if row[3] == "delete" and row[0] == 6}
    assert sum(any(row[4] in version for row in some) for some in stream.batches.values()) > 1, "the DELETE came in several batches"
    columns: tuple[str, ...] = (*SCHEMA.names, "_change_type", "_commit_version", "_commit_timestamp")
    told: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in stream.rows]
    assert net(told) == Counter(map(shown, delta.read(stream.place.location)))
