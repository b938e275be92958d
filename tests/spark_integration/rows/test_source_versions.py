"""A MERGE whose source reads the table that it changes: at which versions it may."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

import sluice
from sluice.spark_integration.rows.analysis import Clause, MergeRequest
from sluice.spark_integration.rows.merge import merge_rows
from sluice.tables.write.merging import RowCounts

from ..conftest import Place

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
COLUMNS = "id long, n long"
"""With a schema the data source reads, also in routed sessions."""
UPSERT = [Clause("matched", "update", None, {"n": "s.n + 1"}), Clause("not_matched", "insert_all")]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "n": [0] * len(ids)}, SCHEMA)


def of_a_subquery(place: Place) -> DataFrame:
    place.scan().createOrReplaceTempView("source_versions")
    return place.spark.sql("SELECT 7L AS id, (SELECT max(n) FROM source_versions) AS n")


LATER: list[tuple[str, Callable[[Place], DataFrame]]] = [
    ("read from version 2 of ", lambda place: place.scan()),
    ("read from version 2 of ", of_a_subquery),
    ("read from version 2 of ", lambda place: place.load(COLUMNS, versionAsOf=2)),
    ("read from version 2 of ", lambda place: place.load(COLUMNS)),
]


def test_a_later_version_is_refused(place: Place) -> None:
    table = place.create(SCHEMA)
    table.append(rows(1, 2))
    with table.begin() as tx:
        place.table().append(rows(3))
        for says, source in LATER:
            with pytest.raises(sluice.errors.InvalidRequest, match=f"{says}.*works on version 1.*versionAsOf"):
                merge_rows(tx, place.spark, MergeRequest(source(place), "t.id = s.id", UPSERT, "t", "s"))
    assert sorted(row["id"] for row in place.rows()) == [1, 2, 3]


def test_the_same_and_earlier_versions_are_sources(place: Place) -> None:
    table = place.create(SCHEMA)
    table.append(rows(1, 2))
    table.append(rows(3))
    for source, changed in (
        (place.scan(), 3),
        (place.scan(version=1), 2),
        (place.load(COLUMNS), 3),
        (place.load(COLUMNS, versionAsOf=1), 2),
    ):
        with table.refresh().begin() as tx:
            counted = merge_rows(tx, place.spark, MergeRequest(source.limit(10), "t.id = s.id", UPSERT, "t", "s"))
            assert counted == RowCounts(updated=changed)
            tx.abort()
