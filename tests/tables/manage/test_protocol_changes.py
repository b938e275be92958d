"""Features added to and dropped from a table's protocol, and its versions raised."""

from __future__ import annotations

import json

import deltalake
import pytest

import sluice
from sluice.storage.errors import InvalidRequest, UnsupportedFeature
from tests.tables.conftest import Place, flights
from tests.tables.manage.test_properties import features_of, protocol_of


def test_a_feature_is_added_once(place: Place) -> None:
    table = place.create()
    commit = table.add_feature("deletionVectors")
    assert commit is not None
    assert features_of(table) == {"deletionVectors"}
    assert protocol_of(table).min_reader_version == 3
    assert table.add_feature("DELETIONVECTORS") is None, "names ignore case, as Delta's do"
    (told,) = table.history(1)
    assert told.operation == "UPGRADE PROTOCOL"
    assert "deletionVectors" in json.loads(told.parameters["newProtocol"])["readerFeatures"]
    with pytest.raises(UnsupportedFeature, match="does not support the table feature 'columnMapping'; those that a table can have are"):
        table.add_feature("columnMapping")
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
    table = place.create(properties=properties)
    table.append(flights(("JFK", 1, 1)))
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


@pytest.mark.parametrize("feature", ["sluice", "inCommitTimestamp", "invariants", "deletionVectors"])
def test_others_are_refused_by_name(place: Place, feature: str) -> None:
    table = place.create(properties={"delta.enableDeletionVectors": "true"})
    with pytest.raises(UnsupportedFeature, match=rf"{feature} cannot be dropped.*checkConstraints"):
        table.drop_feature(feature)


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


def test_column_mapping_by_version_is_refused(place: Place) -> None:
    with pytest.raises(UnsupportedFeature, match="column mapping"):
        place.create().upgrade_protocol(2, 5)
