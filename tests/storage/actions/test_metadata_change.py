from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from sluice.storage.actions import Metadata, Protocol
from sluice.storage.actions.metadata_change import describe, describe_protocol, is_harmless

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
    assert found == {
        "configuration": {"gone": ["1", None], "new": [None, "4"], "other": ["3", "5"]},
        "schema": "same",
        "other": False,
    }
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


MAPPED: dict[str, Any] = {"delta__columnMapping__id": 1, "delta__columnMapping__physicalName": "col-1"}


def test_column_mapping_may_come_over_a_table_with_its_ids() -> None:
    plain, mapped = table({}, column("a", comment="x"), column("b")), table({MODE: "name"}, column("a", comment="x", **MAPPED), column("b"))
    found = describe(plain, mapped)
    assert (found["schema"], is_harmless(found)) == ("mapping", True)
    again = describe(replace(plain, configuration={MODE: "name"}), mapped)
    assert (again["schema"], is_harmless(again)) == ("mapping", False), "ids that change without the mode do not come from enabling it"
    inside = describe(table({}, column("s", struct(column("x")))), table({MODE: "name"}, column("s", struct(column("x", **MAPPED)))))
    assert (inside["schema"], is_harmless(inside)) == ("changed", False)


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


@pytest.mark.parametrize(
    "after",
    [
        (column("a"), column("b")),
        (column("b"),),
        (column("a", "integer"),),
        (column("a", nullable=False),),
        (column("a", comment="x"),),
        (column("a", comment="x", **MAPPED),),
        (column("a", CURRENT_DEFAULT=None),),
        (column("A"),),
    ],
)
def test_a_schema_that_changed_is_harmful(after: tuple[dict[str, Any], ...]) -> None:
    for configuration in ({}, {MODE: "name"}):
        found = describe(table(), table(configuration, *after))
        assert (found["schema"], is_harmless(found)) == ("changed", False)


def test_a_schema_written_in_another_way_is_the_same() -> None:
    spaced = replace(table(), schema_string=json.dumps(json.loads(table().schema_string), indent=2, sort_keys=True))
    assert describe(table(), spaced) == UNCHANGED
    assert describe(table(), replace(table(), schema_string="{"))["schema"] == "changed"


@pytest.mark.parametrize(
    "change",
    [
        {"id": "another"},
        {"name": "n"},
        {"description": "d"},
        {"partition_columns": ("a",)},
        {"format_provider": "orc"},
        {"format_options": {"x": "y"}},
        {"created_time": 1},
        {"extra": {"new": 1}},
    ],
)
def test_anything_else_is_harmful(change: dict[str, Any]) -> None:
    found = describe(table(), replace(table(), **change))
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
    assert describe_protocol(Protocol(1, 2), Protocol(2, 5))["added"] == [
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
    ]


def test_a_feature_that_readers_must_know_only_now_is_added() -> None:
    old, new = Protocol(1, 7, None, ("vacuumProtocolCheck",)), Protocol(3, 7, ("vacuumProtocolCheck",), ("vacuumProtocolCheck",))
    assert describe_protocol(old, new)["added"] == ["vacuumProtocolCheck"]
    assert describe_protocol(new, old)["removed"] == ["vacuumProtocolCheck"]
