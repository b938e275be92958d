"""By which columns a table is clustered: what is possible, what changes it, and what keeps it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.api import submit
from sluice.storage.actions import DomainMetadata
from sluice.storage.actions.features import clustering_columns, clustering_domain, dotted
from sluice.storage.errors import Corrupt
from sluice.storage.schema.schema import StructType, from_arrow
from sluice.tables.client.property_rules import clustered_by
from sluice.tables.manage.definition import cluster_by
from tests.tables.conftest import FLIGHTS, Place, flights, present

STRUCT = pa.struct([("x", pa.int32()), ("Deep one", pa.struct([("t", pa.timestamp("us", "UTC"))]))])
NO_COLUMNS = StructType([])
SCHEMA = from_arrow(
    pa.schema(
        [
            ("a", pa.int64()),
            ("B", pa.string()),
            ("s", STRUCT),
            ("flag", pa.bool_()),
            ("raw", pa.binary()),
            ("list", pa.list_(pa.int32())),
            ("d", pa.date32()),
            ("n", pa.decimal128(9, 2)),
        ]
    )
)


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        ("a", [("a",)]),
        (["A", "b"], [("a",), ("B",)]),
        (["s.X", "S.`deep one`.t", "d", "n"], [("s", "x"), ("s", "Deep one", "t"), ("d",), ("n",)]),
        (["`a`", "`s`.`x`"], [("a",), ("s", "x")]),
        ([], []),
    ],
)
def test_columns_as_the_schema_spells_them(names: Any, paths: list[tuple[str, ...]]) -> None:
    found = clustered_by(names, SCHEMA, (), {})
    assert found == tuple(paths)
    assert clustered_by([dotted(path) for path in found], SCHEMA, (), {}) == found


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "d", "n", "s.x"], "5 columns to cluster by, and 4 are possible"),
        (["a", "A"], "clustered by a twice"),
        ("flag", "by flag of type boolean, which has no lowest and highest value"),
        ("raw", "by raw of type binary"),
        ("list", "by list of type array"),
        ("s", "by s of type struct"),
        ("missing", "column 'missing' is not in the table"),
        ("s.missing", r"column 's.missing' is not in the table; the columns of s are x"),
        ([1], "1 is not the name of a column"),
        ([""], "'' is not the name of a column"),
    ],
)
def test_what_cannot_be_clustered_by(names: Any, message: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=message):
        clustered_by(names, SCHEMA, (), {})


def test_statistics_and_partitions() -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="statistics of the first 2 columns only"):
        clustered_by("s.x", SCHEMA, (), {"delta.dataSkippingNumIndexedCols": "2"})
    assert clustered_by("s.x", SCHEMA, (), {"delta.dataSkippingNumIndexedCols": "3"}) == (("s", "x"),)
    with pytest.raises(sluice.errors.InvalidRequest, match="clustered by a and partitioned by d"):
        clustered_by("a", SCHEMA, ("d",), {})
    assert clustered_by((), SCHEMA, ("d",), {}) == ()


@pytest.mark.parametrize("listed", ['[["a"],["s","x"]]', '["a",["s","x"]]'])
def test_the_domain_is_read_as_the_document_and_as_delta_write_it(listed: str) -> None:
    domain = DomainMetadata("delta.clustering", f'{{"clusteringColumns":{listed}}}', removed=False)
    assert clustering_columns({domain.domain: domain}, NO_COLUMNS) == (("a",), ("s", "x"))
    assert clustering_columns({}, NO_COLUMNS) == ()
    assert clustering_columns({domain.domain: clustering_domain([], NO_COLUMNS)}, NO_COLUMNS) == ()


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"clusteringColumns":[[]]}', '{"clusteringColumns":[[1]]}'])
def test_a_damaged_domain_is_named(text: str) -> None:
    with pytest.raises(Corrupt, match=r"delta\.clustering"):
        clustering_columns({"delta.clustering": DomainMetadata("delta.clustering", text, removed=False)}, NO_COLUMNS)


def actions(place: Place, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(place.location, "_delta_log", f"{version:020}.json").read_text().splitlines()]


def test_a_table_becomes_clustered_and_stops(place: Place) -> None:
    table = place.filled(("JFK", 1, 2), partition_by=())
    assert table.cluster_by([]) is None
    assert table.cluster_by(["Month", "delay"]) is not None
    assert table.clustering_columns == ("month", "delay")
    detail = table.detail()
    assert detail.clustering_columns == ("month", "delay")
    assert {"clustering", "domainMetadata"} <= set(detail.features)
    assert table.cluster_by(["month", "delay"]) is None
    table.cluster_by([])
    assert table.detail().clustering_columns == ()
    assert table.detail().features == detail.features
    assert [next(iter(each)) for each in actions(place, table.version)[1:]] == ["domainMetadata"]
    entry = table.history(1)[0]
    assert (entry.operation, entry.parameters) == ("CLUSTER BY", {"oldClusteringColumns": "month,delay", "newClusteringColumns": ""})
    with pytest.raises(sluice.errors.InvalidRequest, match="the feature clustering needs it"):
        table.drop_feature("domainMetadata")
    assert table.domains == {}


def test_partitions_and_clusters_exclude_each_other(place: Place) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="clustered by delay and partitioned by origin, month"):
        place.create(cluster_by="delay")
    table = place.create()
    with pytest.raises(sluice.errors.InvalidRequest, match="clustered by delay and partitioned by origin, month"):
        table.cluster_by("delay")
    assert table.version == 0


def test_columns_that_cluster_keep_their_statistics(place: Place) -> None:
    table = place.create(partition_by=(), cluster_by="delay")
    with pytest.raises(sluice.errors.InvalidRequest, match="statistics of the first 1 columns only"):
        table.set_properties({"delta.dataSkippingNumIndexedCols": "1"})
    table.cluster_by("origin")
    table.set_properties({"delta.dataSkippingNumIndexedCols": "1"})
    with pytest.raises(sluice.errors.InvalidRequest, match="move the column forward"):
        table.alter_columns([sluice.ColumnChange(("delay",), first=True)])


def test_files_have_statistics_of_a_new_column_first(place: Place) -> None:
    table = place.filled(("JFK", 1, 2), partition_by=())
    table.add_columns([sluice.NewColumn(pa.field("late", pa.int32()))])
    table.append(pa.Table.from_pylist([{"origin": "LAX", "month": 1, "delay": 1, "late": 3}], table.schema))
    with pytest.raises(sluice.errors.InvalidRequest, match="1 of 2 files have no statistics of late, which clustering needs"):
        table.cluster_by(["delay", "late"])
    assert table.analyze().from_footers == 1
    assert table.cluster_by(["delay", "late"]) is not None


def test_what_replaces_the_table_replaces_its_clusters(place: Place) -> None:
    table = place.create(partition_by=(), cluster_by="delay")
    table.overwrite(flights(("JFK", 1, 2)), overwrite_schema=True)
    assert table.clustering_columns == ("delay",)
    with pytest.raises(sluice.errors.InvalidRequest, match="cluster_by of an existing table changes only with all its data"):
        table.overwrite(flights(("JFK", 1, 2)), cluster_by="month")
    without = flights(("JFK", 1, 2)).drop_columns(["delay"])
    with pytest.raises(sluice.errors.InvalidRequest, match=r"'delay' is not in the table.*say by which columns it is clustered then"):
        table.overwrite(without, overwrite_schema=True)
    table.overwrite(without, overwrite_schema=True, cluster_by=["month"])
    assert table.clustering_columns == ("month",)
    with pytest.raises(sluice.errors.InvalidRequest, match="clustered by month and partitioned by origin"):
        table.overwrite(without, overwrite_schema=True, partition_by=["origin"])
    table.replace(FLIGHTS, partition_by=["origin"])
    assert table.detail().clustering_columns == ()
    assert table.partition_columns == ("origin",)
    table.replace(FLIGHTS, cluster_by=["origin"])
    assert table.detail().clustering_columns == ("origin",)
    assert table.detail().partition_columns == ()
    again = place.create(partition_by=(), cluster_by="month", mode="or_replace")
    assert again.clustering_columns == ("month",)
    assert again.history(1)[0].parameters["clusterBy"] == '["month"]'


def test_restoring_and_cloning(place: Place, tmp_path: Path) -> None:
    table = place.filled(("JFK", 1, 2), ("LAX", 2, 3), partition_by=(), cluster_by="delay", properties={"delta.enableRowTracking": "true"})
    table.cluster_by(["month"])
    copy = table.clone(tmp_path / "copy")
    assert copy.clustering_columns == ("month",)
    table.restore(1)
    assert table.clustering_columns == ("delay",)
    assert table.restore(1) is None
    target = sluice.Table.create(tmp_path / "other", FLIGHTS, partition_by=["origin"], coordinator=place.coordinator)
    table.clone(target.location, replace=True)
    assert (target.refresh().clustering_columns, target.partition_columns) == (("delay",), ())
    assert sorted(each["_row_id"] for each in copy.snapshot().to_arrow(row_ids=True).to_pylist()) == [0, 1]


def test_of_two_changes_of_the_columns_the_later_is_refused(place: Place) -> None:
    table = place.create(partition_by=(), cluster_by="delay")
    other = place.open()
    table.cluster_by("month")
    stale = present(cluster_by(other.coordinated, "origin"))
    table.cluster_by("delay")
    with pytest.raises(sluice.errors.ConcurrentTransactionException, match=r"delta\.clustering"):
        submit(other.coordinated, stale)


@pytest.mark.parametrize("clustered", [(), ("delay",)])
def test_a_table_is_not_partitioned_beside_a_change_that_clusters_it(place: Place, clustered: tuple[str, ...]) -> None:
    table = place.create(partition_by=(), cluster_by=clustered)
    if clustered:
        table.cluster_by([])
    transaction = table.begin()
    transaction.replace(FLIGHTS, partition_by=["origin"])
    place.open().cluster_by("month")
    with pytest.raises(sluice.errors.ConcurrentModification):
        transaction.commit()
    assert table.refresh().partition_columns == ()


def test_appends_go_on_while_the_columns_change(place: Place) -> None:
    table = place.create(partition_by=())
    transaction = table.begin()
    transaction.append(flights(("JFK", 1, 2)))
    place.open().cluster_by("month")
    assert transaction.commit() is not None


def test_a_table_that_delta_lake_clustered_is_taken_over(place: Place, tmp_path: Path) -> None:
    """The log says what Delta Lake 4 writes for CREATE TABLE ... CLUSTER BY, INSERT, OPTIMIZE."""
    table = place.filled(("JFK", 1, 2), ("LAX", 2, 3), partition_by=(), cluster_by="delay")
    table.compact()
    table.detach()
    theirs = shutil.copytree(place.location, tmp_path / "theirs", ignore=shutil.ignore_patterns("*.crc"))
    for path in (theirs / "_delta_log").glob("*.json"):
        text = path.read_text().replace('"clusteringProvider":"sluice"', '"clusteringProvider":"liquid"')
        path.write_text(text.replace(',\\"domainName\\":\\"delta.clustering\\"', ""))
    again = sluice.Table.attach(theirs, coordinator=place.coordinator)
    assert again.clustering_columns == ("delay",)
    assert again.compact() is None
    again.append(flights(("ORD", 3, 1), ("ORD", 3, 9)))
    assert again.compact() is not None
    assert again.snapshot().num_files == 1
