"""Table features: who may read and write a table, and which changes of its metadata disturb nobody."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from sluice.storage.actions import Metadata, Protocol
from sluice.storage.actions.features import (
    SLUICE_FEATURE,
    asked_features,
    check_asked_features,
    check_readable,
    check_writable,
    deletion_vectors,
    downgrade_for_detach,
    in_commit_timestamps,
    new_protocol,
    upgrade_for_attach,
    with_features,
)
from sluice.storage.actions.metadata_change import describe, describe_protocol, is_harmless
from sluice.storage.errors import UnsupportedFeature
from sluice.storage.schema.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType

ALWAYS = ["appendOnly", "checkConstraints", "domainMetadata", "inCommitTimestamp", "invariants", "sluice"]


def metadata(configuration: Mapping[str, str] | None = None, column: Mapping[str, Any] | None = None) -> Metadata:
    """A table whose nested column carries `column` as its metadata."""
    inner = {"name": "x", "type": "long", "nullable": True, "metadata": dict(column or {})}
    array = {"type": "array", "elementType": {"type": "struct", "fields": [inner]}, "containsNull": True}
    schema = {"type": "struct", "fields": [{"name": "a", "type": array, "nullable": True, "metadata": {}}]}
    return Metadata("id", json.dumps(schema), (), dict(configuration or {}))


def both(*features: str) -> Protocol:
    return Protocol(3, 7, features, features)


def writer(*features: str) -> Protocol:
    return Protocol(1, 7, None, features)


@pytest.mark.parametrize(
    "protocol",
    [Protocol(1, 1), Protocol(1, 6), Protocol(2, 5), writer("anything", "rowTracking"), Protocol(3, 7, (), ("anything",))]
    + [both(name) for name in ("deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping", "variantType")]
    + [Protocol(1, 9)],
)
def test_readable(protocol: Protocol) -> None:
    check_readable(protocol, metadata())
    check_readable(protocol, metadata({"delta.columnMapping.mode": "none"}))


@pytest.mark.notices("only-known-ways-of-mapping")
@pytest.mark.parametrize(
    ("protocol", "configuration", "named"),
    [
        (both("deletionVectors", "variantShredding"), {}, ["variantShredding"]),
        (both("catalogManaged", "timestampNtz", "variantShredding-preview"), {}, ["catalogManaged", "variantShredding-preview"]),
        (Protocol(2, 5), {"delta.columnMapping.mode": "alias"}, ["column mapping by 'alias'"]),
        (Protocol(4, 7), {}, ["reader version 4"]),
        (both("somethingNew"), {}, ["somethingNew"]),
        (Protocol(1, 2), {"delta.columnMapping.mode": "ids"}, ["column mapping by 'ids'"]),
    ],
)
def test_unreadable(protocol: Protocol, configuration: dict[str, str], named: list[str]) -> None:
    with pytest.raises(UnsupportedFeature, match=f"reading this table needs {', '.join(named)}, which") as caught:
        check_readable(protocol, metadata(configuration))
    assert (caught.value.features, caught.value.access) == (named, "read")
    with pytest.raises(UnsupportedFeature, match="reading"):
        check_writable(protocol, metadata(configuration))


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [
        (Protocol(4, 7), "use an engine that does, a newer sluice may"),
        (both("variantShredding"), "use an engine that does, or drop the table feature there first"),
    ],
)
def test_a_version_is_no_feature_that_could_be_dropped(protocol: Protocol, remedy: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"{remedy}$"):
        check_readable(protocol, metadata())


@pytest.mark.parametrize(
    "protocol",
    [Protocol(1, version) for version in range(1, 7)]
    + [Protocol(2, 5), writer(*ALWAYS)]
    + [both(name) for name in ("deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck")],
)
def test_writable(protocol: Protocol) -> None:
    check_writable(protocol, metadata())


def test_writable_while_in_use() -> None:
    check_writable(writer("changeDataFeed"), metadata({"delta.enableChangeDataFeed": "true"}))
    check_writable(Protocol(1, 4), metadata({"delta.enableChangeDataFeed": "true"}))
    check_writable(writer("clustering", "domainMetadata"), metadata())
    check_writable(writer("domainMetadata", "rowTracking"), metadata({"delta.enableRowTracking": "true"}))
    for protocol in (writer("generatedColumns"), Protocol(1, 4)):
        check_writable(protocol, metadata(column={"delta.generationExpression": "id + 1"}))
    for protocol in (writer("identityColumns"), Protocol(1, 6)):
        check_writable(protocol, metadata(column={"delta.identity.start": 1}))
    check_writable(writer("allowColumnDefaults"), metadata(column={"CURRENT_DEFAULT": "1"}))


@pytest.mark.parametrize("name", ["somethingNew", "coordinatedCommits-preview"])
def test_writing_asks_for_more_than_reading(name: str) -> None:
    check_readable(writer(name), metadata())
    with pytest.raises(UnsupportedFeature, match=f"writing this table needs {name}"):
        check_writable(writer(name, "appendOnly"), metadata())
    with pytest.raises(UnsupportedFeature, match="writer version 8"):
        check_writable(Protocol(1, 8), metadata())


@pytest.mark.notices("properties-ask-for-features")
@pytest.mark.parametrize("protocol", [Protocol(1, 2), writer("appendOnly"), Protocol(3, 7, (), ())])
def test_a_property_asks_for_its_feature_whether_the_protocol_lists_it_or_not(protocol: Protocol) -> None:
    configuration = {"delta.enableIcebergCompatV1": "true", "delta.enableIcebergCompatV2": "true"}
    check_readable(protocol, metadata(configuration))
    with pytest.raises(UnsupportedFeature, match="icebergCompatV1 of two versions, icebergCompatV2 of two versions, which") as caught:
        check_writable(protocol, metadata(configuration))
    assert caught.value.features == ["icebergCompatV1", "icebergCompatV2"]


def test_attaching_names_what_properties_ask_of_writers() -> None:
    asking = {
        "delta.appendOnly": "true",
        "delta.enableChangeDataFeed": "true",
        "delta.constraints.positive": "a > 0",
        "delta.enableDeletionVectors": "true",  # asks something of readers: without the feature no vector is written
        "delta.enableRowTracking": "true",  # rows without ids are there already
    }
    after = upgrade_for_attach(Protocol(1, 1), asking)
    assert after == writer("appendOnly", "changeDataFeed", "checkConstraints", "inCommitTimestamp", SLUICE_FEATURE)


def schema(kind: DataType) -> StructType:
    return StructType((StructField("a", kind, True),))


def test_a_new_table_is_for_every_reader() -> None:
    protocol = new_protocol(schema(PrimitiveType("long")))
    assert protocol == Protocol(1, 7, None, ("appendOnly", "inCommitTimestamp", "invariants", SLUICE_FEATURE))
    check_writable(protocol, metadata())
    constrained = new_protocol(schema(PrimitiveType("long")), {"delta.constraints.positive": "a > 0"})
    assert "checkConstraints" in (constrained.writer_features or ())


@pytest.mark.parametrize(
    ("asked", "features"),
    [
        ({}, set[str]()),
        ({"delta.appendOnly": "true"}, {"appendOnly"}),
        ({"delta.enableChangeDataFeed": "TRUE"}, {"changeDataFeed"}),
        ({"delta.enableChangeDataFeed": "false", "delta.enableRowTracking": "false", "delta.columnMapping.mode": "none"}, set[str]()),
        ({"delta.columnMapping.mode": "name"}, {"columnMapping"}),
        ({"delta.enableRowTracking": "true"}, {"domainMetadata", "rowTracking"}),
        ({"delta.feature.rowTracking": "supported"}, {"domainMetadata", "rowTracking"}),
        ({"delta.feature.vacuumProtocolCheck": "supported"}, {"vacuumProtocolCheck"}),
        ({"delta.constraints.positive": "a > 0"}, {"checkConstraints"}),
        ({"mine": "true"}, set[str]()),
    ],
)
def test_properties_ask_for_features(asked: dict[str, str], features: set[str]) -> None:
    assert asked_features(asked) == features
    check_asked_features(asked)
    always = {"appendOnly", "inCommitTimestamp", "invariants", SLUICE_FEATURE}
    assert set(new_protocol(schema(PrimitiveType("long")), asked).writer_features or ()) == always | features


def test_what_sluice_lacks_is_named() -> None:
    with pytest.raises(UnsupportedFeature, match="ask for icebergCompatV3, variantShredding, which") as caught:
        check_asked_features(
            {"delta.enableIcebergCompatV3": "true", "delta.feature.variantShredding": "supported", "delta.appendOnly": "true"}
        )
    assert caught.value.features == ["icebergCompatV3", "variantShredding"]


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        (writer("sluice"), ["changeDataFeed"], writer("changeDataFeed", "sluice")),
        (writer("sluice"), ["deletionVectors"], Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "sluice"))),
        (both("timestampNtz"), ["domainMetadata"], Protocol(3, 7, ("timestampNtz",), ("domainMetadata", "timestampNtz"))),
        (both("timestampNtz"), ["deletionVectors"], both("deletionVectors", "timestampNtz")),
        (Protocol(3, 7, (), ("sluice",)), ["sluice"], Protocol(3, 7, (), ("sluice",))),
        (Protocol(1, 3), ["domainMetadata"], writer("appendOnly", "checkConstraints", "domainMetadata", "invariants")),
        (Protocol(1, 2), ["deletionVectors"], Protocol(3, 7, ("deletionVectors",), ("appendOnly", "deletionVectors", "invariants"))),
    ],
)
def test_features_come_to_those_there_are_and_readers_get_what_they_must(before: Protocol, added: list[str], after: Protocol) -> None:
    assert with_features(before, added) == with_features(after, added) == after


@pytest.mark.parametrize(
    "kind",
    [
        PrimitiveType("timestamp_ntz"),
        ArrayType(PrimitiveType("timestamp_ntz"), True),
        MapType(PrimitiveType("string"), StructType((StructField("x", PrimitiveType("timestamp_ntz"), True),)), True),
    ],
)
def test_a_new_table_with_local_timestamps_names_the_feature_for_readers(kind: DataType) -> None:
    protocol = new_protocol(schema(kind))
    assert (protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features) == (3, 7, ("timestampNtz",))
    assert "timestampNtz" in (protocol.writer_features or ())
    check_writable(protocol, metadata())


def test_a_column_that_is_only_named_like_a_type_needs_nothing() -> None:
    protocol = new_protocol(StructType((StructField("timestamp_ntz", PrimitiveType("long"), True),)))
    assert protocol.min_reader_version == 1


DV_ON = {"delta.enableDeletionVectors": "true"}


@pytest.mark.parametrize("asking", [DV_ON, {"delta.enableDeletionVectors": "TRUE"}, {"delta.feature.deletionVectors": "supported"}])
def test_a_new_table_with_deletion_vectors_names_them_for_readers(asking: dict[str, str]) -> None:
    check_asked_features(asking)
    protocol = new_protocol(schema(PrimitiveType("long")), asking)
    assert (protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features) == (3, 7, ("deletionVectors",))
    assert "deletionVectors" in (protocol.writer_features or ())
    check_writable(protocol, metadata(asking))
    local = new_protocol(schema(PrimitiveType("timestamp_ntz")), asking)
    assert local.reader_features == ("deletionVectors", "timestampNtz")
    assert new_protocol(schema(PrimitiveType("long")), {"delta.enableDeletionVectors": "false"}).min_reader_version == 1


@pytest.mark.parametrize(
    ("protocol", "configuration", "allowed"),
    [
        (both("deletionVectors"), DV_ON, True),
        (both("deletionVectors"), {"delta.enableDeletionVectors": "false"}, False),
        (both("deletionVectors"), {}, False),
        (writer("deletionVectors"), DV_ON, False),
        (Protocol(3, 7, ("deletionVectors",), ()), DV_ON, False),
        (Protocol(1, 2), DV_ON, False),
    ],
)
def test_vectors_are_written_where_feature_and_property_say_so(protocol: Protocol, configuration: dict[str, str], allowed: bool) -> None:
    assert deletion_vectors(protocol, metadata(configuration)) is allowed


FOUR = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}


@pytest.mark.parametrize(
    ("before", "readers", "implied"),
    [
        (Protocol(1, 1), None, set[str]()),
        (Protocol(1, 2), None, {"appendOnly", "invariants"}),
        (Protocol(1, 3), None, {"appendOnly", "invariants", "checkConstraints"}),
        (Protocol(1, 4), None, FOUR),
        (Protocol(1, 6), None, FOUR | {"identityColumns"}),
        (Protocol(2, 5), ("columnMapping",), FOUR | {"columnMapping"}),
        (Protocol(1, 7, None, ("domainMetadata",)), None, {"domainMetadata"}),
        (both("timestampNtz"), ("timestampNtz",), {"timestampNtz"}),
        (Protocol(3, 7, (), ()), (), set[str]()),
    ],
)
def test_attaching_names_what_versions_implied(before: Protocol, readers: tuple[str, ...] | None, implied: set[str]) -> None:
    after = upgrade_for_attach(before, {})
    assert after.min_reader_version == (before.min_reader_version if readers is None else 3)
    assert (after.min_writer_version, after.reader_features) == (7, readers)
    assert set(after.writer_features or ()) == implied | {"inCommitTimestamp", SLUICE_FEATURE}
    check_writable(after, metadata())
    assert upgrade_for_attach(after, {}) == after


def test_detaching_takes_the_guard_away() -> None:
    attached = upgrade_for_attach(Protocol(1, 2), {})
    assert downgrade_for_detach(attached).writer_features == ("appendOnly", "inCommitTimestamp", "invariants")
    assert downgrade_for_detach(attached, also=["inCommitTimestamp"]) == Protocol(1, 7, None, ("appendOnly", "invariants"))


@pytest.mark.parametrize(("value", "enabled"), [("true", True), ("TRUE", True), ("false", False), (None, False)])
def test_in_commit_timestamps(value: str | None, enabled: bool) -> None:
    configured = metadata({} if value is None else {"delta.enableInCommitTimestamps": value})
    assert in_commit_timestamps(writer("inCommitTimestamp"), configured) is enabled
    assert not in_commit_timestamps(Protocol(1, 2), configured), "no engine writes them where the protocol does not list the feature"


MODE = "delta.columnMapping.mode"
MAX_ID = "delta.columnMapping.maxColumnId"
ROWS = "delta.enableRowTracking"
ROW_ID = "delta.rowTracking.materializedRowIdColumnName"
ROW_VERSION = "delta.rowTracking.materializedRowCommitVersionColumnName"
ICT = "delta.enableInCommitTimestamps"
UNCHANGED = {"configuration": {}, "schema": "same", "other": False}


def column(name: str, kind: Any = "long", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {k.replace("__", "."): v for k, v in metadata.items()}}


def struct(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


def table(configuration: Mapping[str, str] | None = None, *columns: dict[str, Any]) -> Metadata:
    return Metadata("id", json.dumps(struct(*(columns or (column("a"),)))), (), dict(configuration or {}))


def test_nothing_changed() -> None:
    assert describe(table({"x": "1"}), table({"x": "1"})) == UNCHANGED
    assert is_harmless(UNCHANGED)


def test_a_description_tells_old_and_new_values_and_is_json() -> None:
    found = describe(table({"gone": "1", "same": "2", "other": "3"}), table({"new": "4", "same": "2", "other": "5"}))
    assert found == {"configuration": {"gone": ["1", None], "new": [None, "4"], "other": ["3", "5"]}, "schema": "same", "other": False}
    assert orjson.loads(orjson.dumps(found)) == found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {ROWS: "true"}),
        ({ROWS: "false"}, {ROWS: "TRUE", ROW_ID: "_id", ROW_VERSION: "_version"}),
        ({}, {MODE: "name"}),
        ({MODE: "none"}, {MODE: "name", MAX_ID: "3"}),
        ({}, {"delta.enableDeletionVectors": "true"}),
        ({"delta.enableDeletionVectors": "false"}, {"delta.enableDeletionVectors": "true"}),
        ({}, {"delta.checkpointPolicy": "v2"}),
        ({"delta.checkpointPolicy": "classic"}, {"delta.checkpointPolicy": "v2"}),
        ({}, {ICT: "true", "delta.inCommitTimestampEnablementVersion": "3", "delta.inCommitTimestampEnablementTimestamp": "4"}),
        ({ICT: "false"}, {ICT: "true"}),
        ({}, {"io.unitycatalog.tableId": "x"}),
        ({}, {ROWS: "true", "delta.enableDeletionVectors": "true"}),
    ],
)
def test_switching_a_feature_on_is_harmless(before: dict[str, str], after: dict[str, str]) -> None:
    kept = {"mine": "1"}
    assert is_harmless(describe(table({**kept, **before}), table({**kept, **after})))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"mine": "1"}),
        ({"mine": "1"}, {}),
        ({}, {"delta.appendOnly": "true"}),
        ({}, {"delta.isolationLevel": "Serializable"}),
        ({}, {"delta.constraints.positive": "a > 0"}),
        ({}, {"delta.enableDeletionVectors": "true", "mine": "1"}),
        ({"delta.enableDeletionVectors": "true"}, {"delta.enableDeletionVectors": "false"}),
        ({"delta.enableDeletionVectors": "true"}, {}),
        ({}, {"delta.enableDeletionVectors": "false"}),
        ({ROWS: "true"}, {ROWS: "false"}),
        ({}, {ROW_ID: "_id"}),
        ({ROWS: "true"}, {ROWS: "true", ROW_ID: "_id"}),
        ({ROW_ID: "_id"}, {ROWS: "true", ROW_ID: "_other"}),
        ({}, {ROWS: "false", ROW_ID: "_id"}),
        ({}, {MODE: "id"}),
        ({MODE: "id"}, {MODE: "name"}),
        ({MODE: "name"}, {MODE: "none"}),
        ({MODE: "name"}, {}),
        ({"delta.checkpointPolicy": "v2"}, {"delta.checkpointPolicy": "classic"}),
        ({ICT: "true"}, {ICT: "false"}),
        ({"delta.inCommitTimestampEnablementVersion": "3"}, {"delta.inCommitTimestampEnablementVersion": "4"}),
        ({"io.unitycatalog.tableId": "x"}, {"io.unitycatalog.tableId": "y"}),
        ({"io.unitycatalog.tableId": "x"}, {}),
        ({}, {"delta.enabledeletionvectors": "true"}),
    ],
)
def test_other_changes_of_properties_are_harmful(before: dict[str, str], after: dict[str, str]) -> None:
    assert not is_harmless(describe(table(before), table(after)))


def mapped(physical_name: str, number: int = 1) -> dict[str, Any]:
    return {"delta__columnMapping__id": number, "delta__columnMapping__physicalName": physical_name}


def test_column_mapping_may_come_over_a_table_with_its_ids() -> None:
    plain, numbered = (
        table({}, column("a", comment="x"), column("b")),
        table({MODE: "name"}, column("a", comment="x", **mapped("a")), column("b")),
    )
    found = describe(plain, numbered)
    assert (found["schema"], is_harmless(found)) == ("mapping", True)
    again = describe(replace(plain, configuration={MODE: "name"}), numbered)
    assert (again["schema"], is_harmless(again)) == ("mapping", False), "ids that change without the mode do not come from enabling it"
    inside = describe(table({}, column("s", struct(column("x")))), table({MODE: "name"}, column("s", struct(column("x", **mapped("x"))))))
    assert (inside["schema"], is_harmless(inside)) == ("mapping", True)
    elsewhere = describe(plain, table({MODE: "name"}, column("a", comment="x", **mapped("col-1")), column("b")))
    assert (elsewhere["schema"], is_harmless(elsewhere)) == ("changed", False), "files have the old names"


def test_identity_columns_may_move_on() -> None:
    plain = table({}, column("a", delta__identity__start=1, delta__identity__highWaterMark=5))
    moved = table({}, column("a", delta__identity__start=1, delta__identity__highWaterMark=9))
    first = table({}, column("a", delta__identity__start=1))
    assert describe(plain, moved) == {"configuration": {}, "schema": "identity", "other": False}
    assert is_harmless(describe(plain, moved))
    assert is_harmless(describe(first, moved))
    also = replace(moved, configuration={"delta.enableDeletionVectors": "true"})
    assert not is_harmless(describe(plain, also))
    assert describe(plain, table({}, column("a", delta__identity__start=2, delta__identity__highWaterMark=5)))["schema"] == "changed"


CHANGED = [column("b"), column("A"), column("a", "integer"), column("a", nullable=False), column("a", CURRENT_DEFAULT=None)]


@pytest.mark.parametrize("changed", CHANGED)
def test_a_schema_that_changed_is_harmful(changed: dict[str, Any]) -> None:
    for configuration in ({}, {MODE: "name"}):
        found = describe(table(), table(configuration, changed))
        assert (found["schema"], is_harmless(found), is_harmless(found, appends=True)) == ("changed", False, False)


A, B = column("a", **mapped("a")), column("b", struct(column("x", **mapped("x", 3))), **mapped("b", 2))
MORE = column("c", **mapped("c-1", 4))
HELD = column("c", nullable=False, **mapped("c-1", 4))


@pytest.mark.parametrize(
    ("columns", "renamed"),
    [
        ([A, B, MORE], {}),
        ([B, A], {}),
        ([column("a", comment="x", **mapped("a")), B], {}),
        ([column("w", **mapped("a")), B], {"a": "w"}),
        ([B], {"a": None}),
        ([A, column("b", struct(column("y", **mapped("x", 3))), **mapped("b", 2))], {"b.x": "y"}),
        ([A, column("b", struct(column("x", **mapped("x-9", 9))), **mapped("b", 2))], {"b.x": None}),
        ([column("b", **mapped("a")), column("a", B["type"], **mapped("b", 2))], {"a": "b", "b": "a"}),
    ],
)
def test_columns_that_files_still_name_are_harmless_for_appends(columns: list[dict[str, Any]], renamed: dict[str, str | None]) -> None:
    found = describe(table({MODE: "name", MAX_ID: "3"}, A, B), table({MODE: "name", MAX_ID: "4"}, *columns))
    assert (found["schema"], found.get("renamed", {}), found["other"]) == ("columns", renamed, False)
    assert (is_harmless(found), is_harmless(found, appends=True)) == (False, True)
    assert orjson.loads(orjson.dumps(found)) == found


@pytest.mark.parametrize(
    "columns",
    [
        [A, B, HELD],
        [A, B, column("c", CURRENT_DEFAULT="1", **mapped("c-1", 4))],
        [column("a", "string", **mapped("a")), B],
        [column("a", nullable=False, **mapped("a")), B],
        [column("a", CURRENT_DEFAULT="1", **mapped("a")), B],
        [column("a", **mapped("a", 7)), B],
        [A, column("b", {"type": "array", "elementType": "long", "containsNull": True}, **mapped("b", 2))],
    ],
)
def test_columns_that_files_may_lack_stop_appends(columns: list[dict[str, Any]]) -> None:
    found = describe(table({MODE: "name"}, A, B), table({MODE: "name"}, *columns))
    assert not is_harmless(found, appends=True)


def test_without_mapping_columns_come_and_none_goes() -> None:
    added = describe(table(), table({}, column("a"), column("b")))
    assert (added["schema"], is_harmless(added, appends=True)) == ("columns", True)
    gone = describe(table({}, column("a"), column("b")), table())
    assert (gone["schema"], is_harmless(gone, appends=True)) == ("changed", False)


def test_a_partition_column_may_get_another_name() -> None:
    old = replace(table({MODE: "name"}, A, B), partition_columns=("a",))
    new = replace(table({MODE: "name"}, column("w", **mapped("a")), B), partition_columns=("w",))
    assert is_harmless(describe(old, new), appends=True)
    assert not is_harmless(describe(old, replace(new, partition_columns=("b",))), appends=True)


def test_a_schema_written_in_another_way_is_the_same() -> None:
    spaced = replace(table(), schema_string=json.dumps(json.loads(table().schema_string), indent=2, sort_keys=True))
    assert describe(table(), spaced) == UNCHANGED
    assert describe(table(), replace(table(), schema_string="{"))["schema"] == "changed"


OTHER: dict[str, Any] = {"id": "another", "name": "n", "description": "d", "partition_columns": ("a",), "format_provider": "orc"}
OTHER |= {"format_options": {"x": "y"}, "created_time": 1, "extra": {"new": 1}}


@pytest.mark.parametrize(("field", "value"), OTHER.items())
def test_anything_else_is_harmful(field: str, value: Any) -> None:
    found = describe(table(), replace(table(), **{field: value}))
    assert found == {**UNCHANGED, "other": True}
    assert not is_harmless(found)


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"configuration": {}, "schema": "same"},
        {"configuration": {}, "other": False},
        {"schema": "same", "other": False},
        {**UNCHANGED, "other": 0},
        {**UNCHANGED, "other": None},
        {**UNCHANGED, "schema": None},
        {**UNCHANGED, "schema": "Same"},
        {**UNCHANGED, "schema": ["same"]},
        {**UNCHANGED, "more": 1},
        {**UNCHANGED, "configuration": []},
        {**UNCHANGED, "configuration": None},
        {**UNCHANGED, "configuration": {"delta.enableDeletionVectors": "true"}},
        {**UNCHANGED, "configuration": {"delta.enableDeletionVectors": ["true"]}},
        {**UNCHANGED, "configuration": {"delta.enableDeletionVectors": [None, True]}},
        {**UNCHANGED, "configuration": {"delta.enableDeletionVectors": ["true", "true"]}},
        {**UNCHANGED, "configuration": {"delta.enableDeletionVectors": [None, None]}},
        {**UNCHANGED, "configuration": {"delta.enableDeletionVectors": [None, "true", "false"]}},
        {**UNCHANGED, "configuration": {1: [None, "true"]}},
        {**UNCHANGED, "schema": "mapping"},
        {**UNCHANGED, "schema": "mapping", "configuration": {"delta.enableDeletionVectors": [None, "true"]}},
    ],
)
def test_what_is_no_description_is_harmful(description: dict[str, Any]) -> None:
    assert not is_harmless(description)


def test_a_protocol_change_by_names() -> None:
    old, new = Protocol(1, 7, None, ("appendOnly", "sluice")), Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "sluice"))
    assert describe_protocol(old, new) == {"added": ["deletionVectors"], "removed": ["appendOnly"], "reader": [1, 3], "writer": [7, 7]}
    assert describe_protocol(old, old) == {"added": [], "removed": [], "reader": [1, 1], "writer": [7, 7]}


def test_a_protocol_change_by_numbers() -> None:
    named = Protocol(1, 7, None, ("appendOnly", "invariants", "checkConstraints"))
    assert describe_protocol(Protocol(1, 3), named) == {"added": [], "removed": [], "reader": [1, 1], "writer": [3, 7]}
    added = ["changeDataFeed", "checkConstraints", "columnMapping", "generatedColumns"]
    assert describe_protocol(Protocol(1, 2), Protocol(2, 5))["added"] == added


def test_a_feature_that_readers_must_know_only_now_is_added() -> None:
    old, new = Protocol(1, 7, None, ("vacuumProtocolCheck",)), Protocol(3, 7, ("vacuumProtocolCheck",), ("vacuumProtocolCheck",))
    assert describe_protocol(old, new)["added"] == ["vacuumProtocolCheck"]
    assert describe_protocol(new, old)["removed"] == ["vacuumProtocolCheck"]
