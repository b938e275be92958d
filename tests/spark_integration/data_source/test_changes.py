"""Changes read through Spark: what Delta's options name, as the Python API tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import sluice
from sluice.spark_integration import original
from sluice.storage.schema.schema import from_arrow
from tests.storage.strategies import rows_of

from ..conftest import Place, arrow

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("k", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "n": i % 2, "k": None if i % 5 == 0 else f"k{i}"} for i in ids], schema=SCHEMA)


VECTORS = {"delta.enableDeletionVectors": "true"}
KINDS = {"copies": {}, "vectors": VECTORS, "files": VECTORS | {"delta.enableChangeDataFeed": "true"}}
of_every_kind = pytest.mark.parametrize(
    "changed", [pytest.param(kind, marks=[pytest.mark.long] * (kind != "files")) for kind in KINDS], indirect=True
)


@pytest.fixture
def changed(place: Place, request: pytest.FixtureRequest) -> Place:
    """Versions 0 to 6: created, appended to twice, deleted from, updated, compacted, overwritten in part."""
    table = place.create(SCHEMA, partition_by=["n"], properties=KINDS[getattr(request, "param", "vectors")])
    table.append(rows(*range(10)))
    table.append(rows(*range(10, 20)))
    table.delete("id IN (3, 12)")
    table.update({"k": "concat(k, '!')"}, where="id BETWEEN 6 AND 8")
    table.compact("minor")
    table.overwrite(rows(1, 101), where="n = 1")
    return place


def feed(place: Place, schema: str | None = None, **options: Any) -> DataFrame:
    return place.load(schema, readChangeFeed="true", **options)


RANGES: list[tuple[Mapping[str, Any], int, int | None]] = [
    ({"startingVersion": 0}, -1, None),
    ({"startingVersion": 3}, 2, None),
    ({"startingVersion": 2, "endingVersion": 4}, 1, 4),
    ({"startingVersion": 4, "endingVersion": 4}, 3, 4),
    ({"startingVersion": 5, "endingVersion": 5}, 4, 5),
]


@of_every_kind
def test_changes_are_those_of_the_table(changed: Place) -> None:
    for told, after, up_to in RANGES:
        expected = changed.table().changes(after, up_to)
        found = feed(changed, **told)
        assert found.columns == ["id", "n", "k", "_change_type", "_commit_version", "_commit_timestamp"]
        assert rows_of(arrow(found, from_arrow(expected.schema))) == rows_of(expected), told
        assert bool(expected.num_rows) == (told != {"startingVersion": 5, "endingVersion": 5}), "a compaction changes no row"


def test_changes_by_time_include_both_ends(changed: Place) -> None:
    times = [changed.table().snapshot(version).timestamp for version in range(7)]
    found = feed(changed, startingTimestamp=times[2], endingTimestamp=times[3])
    assert {row["_commit_version"] for row in found.collect()} == {2, 3}


def test_columns_and_conditions_of_changes(changed: Place) -> None:
    expected = changed.table().changes(0, columns=["id"], where="_change_type = 'delete' AND id < 10")
    found = feed(changed, "id long, _change_type string", startingVersion=1, where="_change_type = 'delete' AND id < 10")
    assert sorted(map(tuple, found.collect())) == sorted((row["id"], row["_change_type"]) for row in expected.to_pylist())
    assert found.where("id > 3").count() == sum(row["id"] > 3 for row in expected.to_pylist())


def test_published_changes_need_no_coordinator(changed: Place) -> None:
    expected = changed.table().changes(-1)
    reader = changed.spark.read.format("sluice").options(readChangeFeed="true", startingVersion=0, consistency="published")
    assert reader.option("coordinator", "zk://127.0.0.1:1/away").load(changed.location).count() == expected.num_rows


def test_changes_across_a_new_column(place: Place) -> None:
    place.write(place.spark.sql("SELECT 1L AS id"))
    place.write(place.spark.sql("SELECT 2L AS id, 'z' AS w"), mergeSchema="true")
    found = feed(place, startingVersion=0).select("id", "w", "_change_type", "_commit_version")
    assert sorted(map(tuple, found.collect())) == [(1, None, "insert", 0), (2, "z", "insert", 1)]


def test_changes_that_are_not_there_are_refused(changed: Place) -> None:
    for first, last in ((99, 99), (2, 99)):
        with pytest.raises(PySparkException) as failed:
            feed(changed, startingVersion=first, endingVersion=last)
        assert isinstance(original(failed.value), sluice.errors.VersionNotFound)
    with pytest.raises(PySparkException) as failed:
        feed(changed, startingVersion=3, endingVersion=1)
    assert isinstance(original(failed.value), sluice.errors.InvalidRequest)
