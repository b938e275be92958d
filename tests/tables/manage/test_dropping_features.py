"""DROP FEATURE: what uses a feature goes, then the versions that show it, then the feature; other engines read what is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.coordinator.errors import NotCommitted
from sluice.storage.actions import Action, DomainMetadata, Protocol, encode_all
from sluice.storage.errors import InvalidRequest, UnsupportedFeature
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.manage.test_properties import VECTORS, features_of, protocol_of
from tests.tables.mapped import MODE, plain, rename

AT_ONCE = {"delta.dropFeatureTruncateHistory.retentionDuration": "interval 0 hours"}
WIDENING = "delta.enableTypeWidening"


def versions_of(place: Place) -> list[int]:
    log = Path(place.location, "_delta_log")
    return sorted(int(each.name[:20]) for each in log.glob("*.json") if each.name[:20].isdecimal())


def gone(table: sluice.Table, feature: str) -> None:
    """Nothing of the feature is left in the protocol."""
    protocol = protocol_of(table)
    assert feature not in {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    assert protocol.min_reader_version == (3 if protocol.reader_features else 1)


def with_vectors(place: Place, **more: str) -> sluice.Table:
    table = place.filled(("JFK", 1, 1), ("JFK", 1, 2), ("EWR", 2, 3), properties={VECTORS: "true", **more})
    table.append(flights(("JFK", 1, 9)))
    table.delete("delay = 1")
    return table


@pytest.mark.notices("history-goes-before-its-feature")
def test_vectors_are_rewritten_away_and_the_versions_that_show_them_stay_a_day(place: Place) -> None:
    table = with_vectors(place)
    untouched = set(table.snapshot().files("delay = 9")["path"].to_pylist())
    with pytest.raises(
        InvalidRequest, match=r"deletionVectors stays .* from version 4 on nothing shows it.*TRUNCATE HISTORY.*24 hours"
    ) as told:
        table.drop_feature("DeletionVectors")
    assert told.value.version == 4
    assert told.value.ready_ms == pytest.approx(table.snapshot().raw.timestamp_ms + 24 * 3600 * 1000, abs=20_000)
    files = table.refresh().snapshot().files()
    assert files["deletion_vector"].null_count == files.num_rows
    assert untouched <= set(files["path"].to_pylist()), "a file without a vector stays"
    assert VECTORS not in table.properties
    assert "deletionVectors" in features_of(table)
    assert table.changes(3).num_rows == 0
    with pytest.raises(InvalidRequest, match="stays in the protocol"):
        table.drop_feature("deletionVectors", truncate_history=True)
    assert versions_of(place) == list(range(5)), "not even a second call may cut off what is younger than a day"
    table.set_properties(AT_ONCE)
    assert table.drop_feature("deletionVectors", truncate_history=True) is not None
    gone(table, "deletionVectors")
    assert versions_of(place) == [4, 5, 6]
    expected = [("EWR", 2, 3), ("JFK", 1, 2), ("JFK", 1, 9)]
    assert rows_of(table.snapshot().to_arrow()) == expected
    assert sorted(pl.read_delta(place.location).rows()) == expected
    assert deltalake.DeltaTable(place.location).protocol().reader_features is None
    table.delete("delay = 9")
    assert table.snapshot().files()["deletion_vector"].null_count == table.snapshot().files().num_rows
    assert rows_of(place.open().snapshot().to_arrow()) == expected[:2]


def test_what_was_never_used_leaves_at_once(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    for feature in ("deletionVectors", "columnMapping", "v2Checkpoint", "typeWidening", "timestampNtz", "vacuumProtocolCheck"):
        table.add_feature(feature)
        assert table.drop_feature(feature) is not None
        gone(table, feature)
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_files_get_the_names_of_columns_again(place: Place, mode: str) -> None:
    table = plain(place) if mode == "name" else None
    table = table or place.create(properties={MODE: "id"})
    if mode == "id":
        table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
        rename(table, delay="late", origin="start")
    else:
        rename(table, v="word", p="part")
    before = table.snapshot().to_arrow()
    late = table.begin()
    late.append(before.slice(0, 1))
    table.set_properties(AT_ONCE)
    late = table.begin_append()
    late.append(before.slice(0, 1))
    assert table.drop_feature("columnMapping", truncate_history=True) is not None
    with pytest.raises(NotCommitted):
        late.commit()  # its file has the names that only the mapping knows
    gone(table, "columnMapping")
    assert [key for key in table.properties if "columnMapping" in key] == []
    assert "columnMapping" not in table.snapshot().raw.metadata.schema_string
    assert rows_of(table.snapshot().to_arrow()) == rows_of(before)
    for path in table.snapshot().files()["path"].to_pylist():
        assert not set(pq.read_schema(Path(place.location, path)).names) - set(before.schema.names)
    table.append(before.slice(0, 1))
    theirs = pl.read_delta(place.location)
    assert theirs.columns == before.schema.names
    assert theirs.height == before.num_rows + 1
    [first] = table.partition_columns[:1]
    value = before[first][0].as_py()
    assert table.snapshot().to_arrow(where=f"{first} = '{value}'").num_rows >= 2


def test_names_that_files_cannot_have_keep_the_mapping(place: Place) -> None:
    table = plain(place)
    rename(table, v="a word")
    with pytest.raises(sluice.errors.SluiceError, match="a word"):
        table.drop_feature("columnMapping")
    assert table.properties[MODE] == "name"


@pytest.mark.notices("files-of-narrower-types-need-the-history")
def test_files_of_narrower_types_are_written_again(place: Place) -> None:
    made = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    table = sluice.Table.create(place.location, made.schema, properties={WIDENING: "true"}, coordinator=place.coordinator)
    table.append(made)
    late = table.begin_append()
    late.append(made)
    table.alter_columns([sluice.ColumnChange(("id",), type=pa.int64())])
    table.unset_properties([WIDENING])
    between = table.begin_append()
    between.append(pa.table({"id": pa.array([3], pa.int64()), "v": ["c"]}))
    with pytest.raises(InvalidRequest, match="typeWidening stays"):
        table.drop_feature("typeWidening")
    for each in (late, between):
        with pytest.raises(NotCommitted):
            each.commit()
    [path] = table.snapshot().files()["path"].to_pylist()
    assert pq.read_schema(Path(place.location, path)).field("id").type == pa.int64()
    table.set_properties(AT_ONCE)
    table.drop_feature("typeWidening", truncate_history=True)
    gone(table, "typeWidening")
    assert "typeChanges" not in table.snapshot().raw.metadata.schema_string
    assert sorted(pl.read_delta(place.location).rows()) == [(1, "a"), (2, "b")]


def test_checkpoints_are_classic_again_and_sidecars_go(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), properties={"delta.checkpointPolicy": "v2"})
    table.checkpoint()
    table.append(flights(("JFK", 1, 2)))
    with pytest.raises(InvalidRequest, match="v2Checkpoint stays"):
        table.drop_feature("v2Checkpoint")
    table.set_properties(AT_ONCE)
    log = Path(place.location, "_delta_log")
    assert list((log / "_sidecars").glob("*"))
    assert table.drop_feature("v2Checkpoint", truncate_history=True) is not None
    gone(table, "v2Checkpoint")
    assert list((log / "_sidecars").glob("*")) == []
    [checkpoint] = log.glob("*.checkpoint*")
    assert "checkpointMetadata" not in pq.read_schema(checkpoint).names
    assert rows_of(place.open().snapshot().to_arrow()) == [("JFK", 1, 1), ("JFK", 1, 2)]
    assert sorted(pl.read_delta(place.location).rows()) == [("JFK", 1, 1), ("JFK", 1, 2)]


def test_a_column_without_time_zone_has_to_go_first(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    table = sluice.Table.create(place.location, schema, properties={MODE: "name", **AT_ONCE}, coordinator=place.coordinator)
    with pytest.raises(InvalidRequest, match="a column is TIMESTAMP_NTZ"):
        table.drop_feature("timestampNtz")
    table.drop_columns(["at"])
    with pytest.raises(InvalidRequest, match="timestampNtz stays"):
        table.drop_feature("timestampNtz")
    assert table.drop_feature("timestampNtz", truncate_history=True) is not None
    gone(table, "timestampNtz")


def test_row_ids_that_another_engine_dropped_do_not_come_back(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 1, 2), properties={"delta.enableRowTracking": "true"})
    tracked = table.version
    with pytest.raises(UnsupportedFeature, match=r"rowTracking cannot be dropped .*after detach\(\)"):
        table.drop_feature("rowTracking")
    version = table.detach().version
    metadata = replace(place.open(consistency="published").snapshot().raw.metadata, configuration={})
    plain = [
        replace(add, base_row_id=None, default_row_commit_version=None, data_change=False)
        for add in place.open(consistency="published").snapshot().raw.add_files()
    ]
    actions: list[Action] = [
        Protocol(1, 7, None, ("appendOnly", "invariants")),
        metadata,
        DomainMetadata("delta.rowTracking", "{}", True),
        *plain,
    ]
    Path(place.location, "_delta_log", f"{version + 1:020}.json").write_bytes(encode_all(actions))
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.append(flights(("EWR", 2, 7)))
    table.restore(tracked)
    gone(table, "rowTracking")
    assert {add.base_row_id for add in table.snapshot().raw.add_files()} == {None}
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1), ("JFK", 1, 2)]


def test_clustering_goes_with_its_domain(place: Place) -> None:
    table = place.create(partition_by=[], cluster_by=["delay"])
    table.append(flights(("JFK", 1, 1)))
    assert table.drop_feature("clustering") is not None
    gone(table, "clustering")
    assert table.clustering_columns == ()
    assert table.drop_feature("domainMetadata") is not None


def test_rules_of_columns_go_first_and_bring_their_feature_back(place: Place) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = sluice.Table.create(place.location, schema, coordinator=place.coordinator)
    with pytest.raises(InvalidRequest, match=r"the columns have rules \(id\)"):
        table.drop_feature("invariants")
    table.alter_columns([sluice.ColumnChange(("id",), nullable=True)])
    assert table.drop_feature("invariants") is not None
    gone(table, "invariants")
    table.alter_columns([sluice.ColumnChange(("id",), nullable=False)])
    assert "invariants" in (protocol_of(table).writer_features or ())


@pytest.mark.parametrize(("feature", "says"), [("sluice", r"detach\(\)"), ("inCommitTimestamp", r"after detach\(\)")])
def test_what_sluice_needs_stays_until_the_table_is_given_back(place: Place, feature: str, says: str) -> None:
    with pytest.raises(UnsupportedFeature, match=says) as refused:
        place.create().drop_feature(feature)
    assert refused.value.features == [feature]


def test_a_pinned_version_keeps_the_feature(place: Place) -> None:
    table = with_vectors(place, **AT_ONCE)
    with place.open().snapshot(3).pin() as pinned:
        with pytest.raises(InvalidRequest, match="a reader has pinned one of them"):
            table.drop_feature("deletionVectors", truncate_history=True)
        assert pinned is not None
    assert table.drop_feature("deletionVectors", truncate_history=True) is not None
