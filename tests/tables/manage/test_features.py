"""Table features: which properties bring them, row tracking, policies, primary keys, and tables that are given back and taken again.

Features added to and dropped from a table's protocol, and its versions raised.
Manifests for engines that read files by lists.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.storage.actions import AddFile, DomainMetadata, Metadata
from sluice.storage.actions.features import row_id_high_water_mark
from sluice.storage.errors import InvalidRequest, UnsupportedFeature
from sluice.storage.schema.schema import from_arrow
from sluice.tables.client.property_rules import check_settings, primary_key_of
from tests.tables.conftest import FLIGHTS, Place, flights, rows_of
from tests.tables.manage.test_properties import KEY, POLICY, VECTORS, actions_of, features_of, protocol_of

ROWS = "delta.enableRowTracking"


# -- features ----------------------------------------------------------------------------------------------------------

READ_AND_WRITE = {"deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"}


@pytest.mark.parametrize(
    ("properties", "features"),
    [
        ({VECTORS: "true"}, {"deletionVectors"}),
        ({"delta.enableChangeDataFeed": "true"}, {"changeDataFeed"}),
        ({"delta.checkpointPolicy": "v2"}, {"v2Checkpoint"}),
        ({"delta.checkpointPolicy": "classic"}, set[str]()),
        ({"delta.feature.v2Checkpoint": "supported"}, {"v2Checkpoint"}),
        ({"delta.feature.domainMetadata": "supported"}, {"domainMetadata"}),
        ({"delta.feature.vacuumProtocolCheck": "supported"}, {"vacuumProtocolCheck"}),
        ({VECTORS: "true", "delta.enableChangeDataFeed": "true"}, {"changeDataFeed", "deletionVectors"}),
        ({VECTORS: "false", "delta.enableChangeDataFeed": "false"}, set[str]()),
        ({POLICY: "maxcompute-delta"}, {"deletionVectors"}),
    ],
)
def test_properties_bring_their_features(place: Place, tmp_path: Path, properties: dict[str, str], features: set[str]) -> None:
    made = place.create(properties=properties)
    elsewhere = Place(str(tmp_path / "later"), place.coordinator)
    changed = elsewhere.filled(("JFK", 1, 5))
    changed.set_properties(properties)
    for table in (made, changed):
        assert features_of(table) == features
        protocol = protocol_of(table)
        readers = features & READ_AND_WRITE
        assert protocol.min_writer_version == 7
        assert (protocol.min_reader_version, set(protocol.reader_features or ())) == (3 if readers else 1, readers)
        assert [key for key in table.properties if key.startswith("delta.feature.")] == []
        table.append(flights(("EWR", 2, 1)))
    assert rows_of(changed.snapshot().to_arrow()) == [("EWR", 2, 1), ("JFK", 1, 5)]


@pytest.mark.parametrize(
    "properties", [{VECTORS: "true"}, {"delta.enableChangeDataFeed": "true"}, {ROWS: "true"}, {POLICY: "maxcompute-delta", KEY: "month"}]
)
def test_other_engines_read_such_tables(place: Place, properties: dict[str, str]) -> None:
    table = place.filled(("JFK", 1, 5), ("EWR", 2, None), properties=properties)
    theirs = deltalake.DeltaTable(place.location)
    assert (theirs.version(), theirs.metadata().configuration) == (1, dict(table.properties))
    builder: Any = deltalake.QueryBuilder
    found = pa.table(builder().register("flights", theirs).execute("SELECT origin, month, delay FROM flights").read_all())
    expected = [("EWR", 2, None), ("JFK", 1, 5)]
    assert rows_of(found.cast(FLIGHTS)) == expected
    assert rows_of(pl.read_delta(place.location).select(FLIGHTS.names).to_arrow().cast(FLIGHTS)) == expected


def test_row_tracking_is_asked_for_when_the_table_is_created(place: Place) -> None:
    table = place.create(properties={ROWS: "true"})
    assert features_of(table) == {"domainMetadata", "rowTracking"}
    assert protocol_of(table).min_reader_version == 1
    names = {key: table.properties[key] for key in table.properties if key.startswith("delta.rowTracking.")}
    assert sorted(names) == [
        "delta.rowTracking.materializedRowCommitVersionColumnName",
        "delta.rowTracking.materializedRowIdColumnName",
    ]
    assert len(set(names.values())) == 2
    domains = [each for each in actions_of(place, 0) if isinstance(each, DomainMetadata)]
    assert domains == [DomainMetadata("delta.rowTracking", '{"rowIdHighWaterMark":-1}', False)]
    assert table.domains == {}, "the protocol's domains are not the users'"
    raw = table.snapshot().raw
    assert row_id_high_water_mark(raw.domains, raw.metadata, raw.protocol) == -1
    assert table.set_properties({ROWS: "true", "delta.feature.rowTracking": "supported"}) is None


def test_row_ids_are_given_from_the_first_row_on(place: Place) -> None:
    table = place.filled(("JFK", 1, 5), ("JFK", 1, None), properties={ROWS: "true"})
    table.append(flights(("EWR", 2, 7)))
    raw = table.refresh().snapshot().raw
    assert sorted((add.base_row_id, add.default_row_commit_version) for add in raw.add_files()) == [(0, 1), (2, 2)]
    assert row_id_high_water_mark(raw.domains, raw.metadata, raw.protocol) == 2


def test_row_tracking_by_name_numbers_rows_too(place: Place) -> None:
    table = place.filled(("JFK", 1, 5), properties={"delta.feature.rowTracking": "supported"})
    assert [add.base_row_id for add in table.snapshot().raw.add_files()] == [0]
    assert [key for key in table.properties if "rowTracking" in key] == []
    with pytest.raises(InvalidRequest, match="only when a table is created"):
        table.set_properties({ROWS: "true"})


@pytest.mark.parametrize("properties", [{ROWS: "true"}, {"delta.feature.rowTracking": "supported"}, {ROWS: "true", "owner": "x"}])
def test_row_tracking_cannot_come_later(place: Place, properties: dict[str, str]) -> None:
    table = place.create()
    with pytest.raises(InvalidRequest, match="only when a table is created"):
        table.set_properties(properties)
    assert table.set_properties({ROWS: "false"}) is not None
    assert features_of(table) == set()


# -- policies ----------------------------------------------------------------------------------------------------------


def test_the_policy_of_maxcompute_delta_needs_deletion_vectors(place: Place) -> None:
    with pytest.raises(InvalidRequest, match="marks deleted rows in deletion vectors") as caught:
        place.create(properties={POLICY: "maxcompute-delta", VECTORS: "false"})
    assert caught.value.property == VECTORS
    table = place.create(properties={POLICY: "maxcompute-delta"})
    assert table.properties[VECTORS] == "true"
    changes: list[Callable[[], object]] = [
        lambda: table.set_properties({VECTORS: "false"}),
        lambda: table.unset_properties([VECTORS]),
    ]
    for change in changes:
        with pytest.raises(InvalidRequest, match="marks deleted rows in deletion vectors"):
            change()
    assert table.set_properties({VECTORS: "false", POLICY: "maxcompute-table"}) is not None
    with pytest.raises(InvalidRequest, match="is false"):
        table.set_properties({POLICY: "maxcompute-delta"})
    assert table.set_properties({VECTORS: "true", POLICY: "maxcompute-delta"}) is not None
    assert table.unset_properties([VECTORS, POLICY]) is not None


def test_columns_of_the_change_data_feed_are_its_own(place: Place) -> None:
    made = pa.table({"a": pa.array([1], pa.int64()), "_Change_type": ["x"]})
    with pytest.raises(InvalidRequest, match="the column name '_Change_type' is reserved"):
        sluice.Table.create(place.location, made.schema, coordinator=place.coordinator)
    deltalake.write_deltalake(place.location, made)  # another engine's table may have it, as long as it has no change data feed
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    with pytest.raises(InvalidRequest, match="the table has _change_type"):
        table.set_properties({"delta.enableChangeDataFeed": "true"})


def test_levels_and_policies_can_be_set_later(place: Place) -> None:
    table = place.create()
    for level in ("Serializable", "WriteSerializable", "SnapshotIsolation"):
        assert table.set_properties({"delta.isolationLevel": level}) is not None
    for policy in ("maxcompute-table", "maxcompute-transactional", "maxcompute-delta", "delta"):
        assert table.set_properties({POLICY: policy}) is not None
    assert table.refresh().properties[VECTORS] == "true", "it came with the policy, and what it made stays readable"


# -- primary keys ------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("Name", pa.string(), nullable=False),
        pa.field("price", pa.decimal128(10, 2), nullable=False),
        pa.field("ratio", pa.float64(), nullable=False),
        pa.field("tags", pa.list_(pa.string()), nullable=False),
        pa.field("note", pa.string()),
    ]
)


def keyed(key: str) -> dict[str, str]:
    return {POLICY: "maxcompute-delta", VECTORS: "true", KEY: key}


@pytest.mark.parametrize(
    ("key", "columns"),
    [("id", ("id",)), (" id ,name", ("id", "Name")), ("`Name`,price", ("Name", "price"))],
)
def test_a_primary_key_names_columns(key: str, columns: tuple[str, ...]) -> None:
    check_settings(keyed(key), from_arrow(SCHEMA))
    assert primary_key_of(keyed(key), from_arrow(SCHEMA)) == columns
    assert primary_key_of({}, from_arrow(SCHEMA)) == ()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("nothing", "there is no column 'nothing'; the columns are id, Name"),
        ("id,", "there is no column ''"),
        ("", "there is no column ''"),
        ("note", "'note' is nullable"),
        ("ratio", "'ratio' is double"),
        ("tags", "'tags' is array<string>"),
        ("id, ID", "'id' is named twice"),
    ],
)
def test_a_primary_key_that_is_none(key: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{KEY} is '{key}': .*{words}"):
        check_settings(keyed(key), from_arrow(SCHEMA))


def test_a_primary_key_belongs_to_a_policy_and_to_an_empty_table(place: Place) -> None:
    with pytest.raises(InvalidRequest, match="only the policy maxcompute-delta"):
        place.create(properties={KEY: "origin"})
    table = place.create(properties={POLICY: "maxcompute-delta"})
    assert table.set_properties({KEY: "origin"}) is not None
    with pytest.raises(InvalidRequest, match="only the policy maxcompute-delta"):
        table.set_properties({POLICY: "delta"})
    table.append(flights(("JFK", 1, 5)))
    with pytest.raises(InvalidRequest, match="only while the table is empty"):
        table.set_properties({KEY: "origin, month"})
    assert table.set_properties({KEY: " Origin "}) is not None, "the same key in other words"
    assert table.unset_properties([KEY]) is not None
    with pytest.raises(InvalidRequest, match="only while the table is empty"):
        table.set_properties({KEY: "origin"})


# -- attaching and detaching -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{VECTORS: "true"}, {"delta.enableChangeDataFeed": "true"}, {ROWS: "true"}])
def test_tables_with_features_are_given_back_and_taken_again(place: Place, properties: dict[str, str]) -> None:
    table = place.filled(("JFK", 1, 5), properties=properties)
    features = features_of(table)
    table.detach()
    given_back = place.open(consistency="published").snapshot().raw
    assert set(given_back.protocol.writer_features or ()) == {"appendOnly", "invariants", *features}
    assert properties.items() <= dict(given_back.configuration).items()
    again = sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert features_of(again) == features
    again.append(flights(("EWR", 2, 1)))
    raw = again.snapshot().raw
    assert rows_of(again.snapshot().to_arrow()) == [("EWR", 2, 1), ("JFK", 1, 5)]
    if ROWS in properties:
        assert sorted(add.base_row_id or 0 for add in raw.add_files()) == [0, 1]


def test_row_ids_go_on_from_where_another_engine_left_them(place: Place) -> None:
    table = place.filled(("JFK", 1, 5), properties={ROWS: "true"})
    version = table.detach().version
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":99}', "removed": False}
    log = Path(place.location) / "_delta_log"
    (log / f"{version + 1:020}.json").write_text(json.dumps({"domainMetadata": mark}) + "\n")
    again = sluice.Table.attach(place.location, coordinator=place.coordinator)
    again.append(flights(("EWR", 2, 1)))
    assert sorted(add.base_row_id or 0 for add in again.snapshot().raw.add_files()) == [0, 100]


def test_a_table_of_another_engine_with_features_is_attached(place: Place) -> None:
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 5)), configuration={"delta.enableChangeDataFeed": "true"})
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert "changeDataFeed" in features_of(table)
    assert table.append(flights(("EWR", 2, 1))) is not None


def test_an_attached_table_may_get_features(place: Place) -> None:
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 5)))
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.set_properties({VECTORS: "true"})
    assert protocol_of(table).reader_features == ("deletionVectors",)
    metadata = [each for each in actions_of(place, 2) if isinstance(each, Metadata)]
    assert metadata[0].configuration[VECTORS] == "true"
    assert not any(isinstance(each, AddFile) for each in actions_of(place, 2))


def test_a_feature_is_added_once(place: Place) -> None:
    table = place.create()
    assert table.add_feature("deletionVectors") is not None
    assert features_of(table) == {"deletionVectors"}
    assert protocol_of(table).min_reader_version == 3
    assert table.add_feature("DELETIONVECTORS") is None, "names ignore case, as Delta's do"
    (told,) = table.history(1)
    assert told.operation == "UPGRADE PROTOCOL"
    assert "deletionVectors" in json.loads(told.parameters["newProtocol"])["readerFeatures"]
    with pytest.raises(UnsupportedFeature, match="does not support the table feature 'variantShredding'; those that a table can have are"):
        table.add_feature("variantShredding")
    with pytest.raises(InvalidRequest, match="only when a table is created"):
        table.add_feature("rowTracking")
    with pytest.raises(InvalidRequest, match="a name"):
        table.add_feature("")


@pytest.mark.parametrize(
    ("feature", "properties"),
    [
        ("checkConstraints", {"delta.constraints.late": "delay < 100"}),
        ("changeDataFeed", {"delta.enableChangeDataFeed": "true"}),
    ],
)
def test_a_feature_is_dropped_once_nothing_uses_it(place: Place, feature: str, properties: dict[str, str]) -> None:
    table = place.filled(("JFK", 1, 1), properties=properties)
    with pytest.raises(InvalidRequest, match="unset_properties first"):
        table.drop_feature(feature)
    table.unset_properties(list(properties))
    assert table.drop_feature(feature.upper()) is not None
    assert feature not in features_of(table)
    assert table.drop_feature(feature) is None
    with pytest.raises(UnsupportedFeature, match="does not support the table feature 'nonsense'"):
        table.drop_feature("nonsense")
    assert [(each.operation, each.parameters) for each in table.history(1)] == [("DROP FEATURE", {"featureName": feature})]
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 1
    table.set_properties(properties)
    assert feature in features_of(table)


def test_domains_keep_their_feature(place: Place) -> None:
    table = place.create()
    table.set_domain("team", "blue")
    with pytest.raises(InvalidRequest, match="remove_domain first"):
        table.drop_feature("domainMetadata")
    table.remove_domain("team")
    assert table.drop_feature("domainMetadata") is not None
    tracked = sluice.Table.create(
        place.location + "-2", table.schema, properties={"delta.enableRowTracking": "true"}, coordinator=place.coordinator
    )
    with pytest.raises(InvalidRequest, match="rowTracking needs it"):
        tracked.drop_feature("domainMetadata")


def test_dropping_a_readers_feature_lets_every_reader_in_again(place: Place) -> None:
    table = place.create()
    table.add_feature("vacuumProtocolCheck")
    assert protocol_of(table).reader_features == ("vacuumProtocolCheck",)
    table.drop_feature("vacuumProtocolCheck")
    assert (protocol_of(table).min_reader_version, protocol_of(table).reader_features) == (1, None)


def test_versions_are_raised_and_never_lowered(place: Place) -> None:
    table = place.create()
    assert table.upgrade_protocol(1, 2) is None
    assert table.upgrade_protocol(3, 7) is not None
    assert (protocol_of(table).min_reader_version, protocol_of(table).min_writer_version) == (3, 7)
    assert table.upgrade_protocol(1, 7) is None
    table.append(flights(("JFK", 1, 1)))
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 1


@pytest.mark.parametrize(("versions", "says"), [((0, 7), "1 to 3"), ((4, 7), "1 to 3"), ((1, 8), "1 to 7"), ((3, 6), "goes with")])
def test_versions_that_do_not_exist_are_refused(place: Place, versions: tuple[int, int], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        place.create().upgrade_protocol(*versions)


def test_reader_version_2_is_column_mapping(place: Place) -> None:
    table = place.create()
    assert table.upgrade_protocol(2, 5) is not None
    assert features_of(table) == {"columnMapping"}
    assert table.upgrade_protocol(2, 5) is None


def manifests(place: Place) -> dict[str, list[str]]:
    root = Path(place.location) / "_symlink_format_manifest"
    return {str(each.relative_to(root)): each.read_text().splitlines() for each in root.rglob("manifest")}


def test_each_partition_lists_its_files(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), ("EWR", 2, 2))
    table.append(flights(("JFK", 1, 3)))
    assert table.generate("symlink_format_manifest") == 2
    found = manifests(place)
    assert {name: len(files) for name, files in found.items()} == {"origin=JFK/month=1/manifest": 2, "origin=EWR/month=2/manifest": 1}
    listed = [file.removeprefix("file://") for files in found.values() for file in files]
    assert sum(pq.read_metadata(file).num_rows for file in listed) == 3
    table.delete("origin = 'EWR'")
    assert table.generate() == 1
    assert set(manifests(place)) == {"origin=JFK/month=1/manifest"}
    assert table.vacuum(retain_hours=0, force=True).garbage
    assert set(manifests(place)) == {"origin=JFK/month=1/manifest"}


def test_a_table_without_partitions_has_one(place: Place) -> None:
    table = place.create(partition_by=[])
    table.generate()
    assert manifests(place) == {"manifest": []}


def test_deleted_rows_cannot_be_listed(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 1, 2), properties={"delta.enableDeletionVectors": "true"})
    table.delete("delay = 1")
    with pytest.raises(UnsupportedFeature, match="deletion vectors"):
        table.generate()
    with pytest.raises(InvalidRequest, match="symlink_format_manifest"):
        table.generate("list")
