"""What features demand of writers: partition columns in files, what Iceberg can have, protected checkpoints, texts with collations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.storage.actions import Metadata, Protocol, encode_all
from sluice.storage.actions.features import check_writable
from sluice.storage.errors import InvalidRequest, UnsupportedFeature
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.manage.test_dropping_features import gone
from tests.tables.manage.test_properties import VECTORS, features_of
from tests.tables.mapped import MODE, rename

FEATURE = "delta.enableMaterializePartitionColumnsFeature"
V1, V2, V3 = (f"delta.enableIcebergCompatV{number}" for number in (1, 2, 3))
PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"
ROWS = [("EWR", 2, 2), ("JFK", 1, 1), ("JFK", 1, 3)]


def stored(place: Place, table: sluice.Table) -> list[list[str]]:
    """The columns of each live file."""
    return [pq.read_schema(path).names for path in files_of(place, table)]


def files_of(place: Place, table: sluice.Table) -> list[Path]:
    return [Path(place.location, unquote(path)) for path in table.snapshot().files()["path"].to_pylist()]


@pytest.mark.parametrize("properties", [{FEATURE: "true"}, {"delta.writePartitionColumnsToParquet": "true"}, {V1: "true", MODE: "name"}])
def test_files_have_the_partition_columns_after_the_others(place: Place, properties: dict[str, str]) -> None:
    table = place.create(properties={**properties, "delta.enableChangeDataFeed": "true"})
    assert ("materializePartitionColumns" in features_of(table)) == (FEATURE in properties)
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 3), ("EWR", 2, 5)))
    table.update({"delay": "2"}, where="delay = 5")
    table.append(flights(("LGA", 3, None)))
    table.delete("origin = 'LGA'")
    table.compact("major", target_file_size="1mb")
    names = [str(each.metadata.get("delta.columnMapping.physicalName", each.name)) for each in table.struct.fields]
    by_name = dict(zip(table.schema.names, names, strict=True))
    assert {tuple(each) for each in stored(place, table)} == {(by_name["delay"], by_name["origin"], by_name["month"])}
    for path in files_of(place, table):
        whole = pq.ParquetFile(path).read().rename_columns(["delay", "origin", "month"])
        assert set(rows_of(whole.select(["origin", "month", "delay"]))) <= set(ROWS)
    stats = [json.loads(each) for each in table.snapshot().files()["stats"].to_pylist()]
    assert {name for each in stats for name in each["nullCount"]} == {by_name["delay"]}, "partition values have no statistics"
    assert rows_of(table.snapshot().to_arrow()) == rows_of(table.snapshot().to_arrow(where="month < 3")) == ROWS
    if MODE not in properties:  # which Polars does not read
        assert sorted(pl.read_delta(place.location).select(["origin", "month", "delay"]).rows()) == ROWS


def test_nulls_and_times_are_materialized_too(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("price", pa.decimal128(5, 2))])
    table = sluice.Table.create(
        place.location, schema, partition_by=["at", "price"], properties={FEATURE: "true"}, coordinator=place.coordinator
    )
    rows = pa.Table.from_pylist([{"id": 1, "at": None, "price": None}, {"id": 2, "at": 5, "price": None}], schema)
    table.append(rows)
    found = [pq.ParquetFile(path).read() for path in files_of(place, table)]
    assert rows_of(pa.concat_tables(found).select(["id", "at", "price"])) == rows_of(rows.select(["id", "at", "price"]))
    assert table.drop_feature("materializePartitionColumns") is not None
    gone(table, "materializePartitionColumns")
    table.append(rows)
    assert ["id"] in stored(place, table)


def test_the_feature_and_its_property_stay_together(place: Place) -> None:
    table = place.create()
    with pytest.raises(UnsupportedFeature, match=f"materializePartitionColumns without the property {FEATURE}"):
        table.add_feature("materializePartitionColumns")
    table.set_properties({FEATURE: "true"})
    with pytest.raises(UnsupportedFeature, match="without the property"):
        table.unset_properties([FEATURE])
    table.append(flights(*ROWS))
    assert {len(each) for each in stored(place, table)} == {3}


LIST = pa.field("l", pa.list_(pa.int64()))
CHANGES: dict[str, Callable[[sluice.Table], object]] = {
    "with column l of type array<long>": lambda table: table.add_columns([sluice.NewColumn(LIST)]),
    "with column l.m of type map<string, long>": lambda table: table.add_columns(
        [sluice.NewColumn(pa.field("l", pa.struct([("m", pa.map_(pa.string(), pa.int64()))])))]
    ),
    "with column l of type array": lambda table: table.append(
        flights(*ROWS).append_column(LIST, pa.nulls(3, LIST.type)), merge_schema=True
    ),
    "with deletion vectors": lambda table: table.set_properties({VECTORS: "true"}),
    "of two versions": lambda table: table.set_properties({V1: "true", V2: "true"}),
    "cannot become none|column mapping": lambda table: table.unset_properties([MODE]),
    "keeps to what Iceberg can have": lambda table: table.overwrite(flights(*ROWS), overwrite_schema=True, partition_by=["month"]),
    "needs it": lambda table: table.drop_feature("columnMapping"),
}


@pytest.mark.notices("limits-of-features-are-kept")
@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("says", CHANGES)
def test_what_iceberg_cannot_have_is_refused(place: Place, version: str, says: str) -> None:
    table = place.create(properties={version: "true", MODE: "name"})
    before = table.version
    with pytest.raises((UnsupportedFeature, InvalidRequest), match=says):
        CHANGES[says](table)
    assert table.refresh("latest").version == before
    rename(table, delay="late")
    table.append(flights(*ROWS).rename_columns(["origin", "month", "late"]))
    stats = [json.loads(each) for each in table.snapshot().files()["stats"].to_pylist()]
    assert sum(each["numRecords"] for each in stats) == 3
    assert table.drop_feature(f"icebergCompat{version[-2:]}") is not None
    gone(table, f"icebergCompat{version[-2:]}")
    table.add_columns([sluice.NewColumn(LIST)])


def test_a_column_without_a_type_is_nothing_for_iceberg() -> None:
    fields = [{"name": "n", "type": "void", "nullable": True, "metadata": {}}]
    metadata = Metadata("x", json.dumps({"type": "struct", "fields": fields}), (), {V2: "true", MODE: "name"})
    with pytest.raises(UnsupportedFeature, match="icebergCompatV2 with column n of type void"):
        check_writable(Protocol(3, 7, ("columnMapping",), ("columnMapping", "icebergCompatV2")), metadata)


def test_iceberg_is_asked_for_while_the_table_is_empty(place: Place) -> None:
    table = place.create(properties={MODE: "name"})
    table.set_properties({V2: "true"})
    table.unset_properties([V2])
    table.append(flights(*ROWS))
    with pytest.raises(InvalidRequest, match="only while the table is empty"):
        table.set_properties({V2: "true"})
    for properties, says in (({V1: "true"}, "without column mapping"), ({V3: "true", MODE: "name"}, "icebergCompatV3")):
        with pytest.raises(UnsupportedFeature, match=says):
            sluice.Table.create(place.location + says[:3], table.schema, properties=properties, coordinator=place.coordinator)


def test_only_wider_types_that_iceberg_has(place: Place) -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.float32()), ("c", pa.decimal128(5, 2)), ("d", pa.date32())])
    properties = {V2: "true", MODE: "name", "delta.enableTypeWidening": "true"}
    table = sluice.Table.create(place.location, schema, properties=properties, coordinator=place.coordinator)
    wider = {"a": pa.int64(), "b": pa.float64(), "c": pa.decimal128(9, 2)}
    table.alter_columns([sluice.ColumnChange((name,), type=dtype) for name, dtype in wider.items()])
    for name, dtype in (("c", pa.decimal128(12, 3)), ("d", pa.timestamp("us"))):
        with pytest.raises(UnsupportedFeature, match="icebergCompatV2 with a column that was"):
            table.alter_columns([sluice.ColumnChange((name,), type=dtype)])


def detached(place: Place, change: Callable[[Protocol, Metadata], tuple[Protocol, Metadata]]) -> None:
    """Give the table back, and let another engine change protocol and metadata."""
    version = place.open().detach().version
    raw = place.open(consistency="published").snapshot().raw
    Path(place.location, "_delta_log", f"{version + 1:020}.json").write_bytes(encode_all(change(raw.protocol, raw.metadata)))


def with_feature(name: str, **configuration: str) -> Callable[[Protocol, Metadata], tuple[Protocol, Metadata]]:
    def change(protocol: Protocol, metadata: Metadata) -> tuple[Protocol, Metadata]:
        features = tuple(sorted({*(protocol.writer_features or ()), name}))
        return replace(protocol, writer_features=features), replace(metadata, configuration={**metadata.configuration, **configuration})

    return change


@pytest.mark.parametrize("feature", ["icebergCompatV1", "icebergCompatV2", "icebergCompatV3"])
def test_a_feature_for_iceberg_that_is_off_asks_for_nothing(place: Place, feature: str) -> None:
    place.filled(*ROWS, properties={MODE: "name"})
    detached(place, with_feature(feature))
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.append(flights(("LGA", 3, 9)))
    assert table.drop_feature(feature) is not None


def test_uniform_is_left_alone(place: Place) -> None:
    place.filled(*ROWS, properties={MODE: "name"})
    detached(place, with_feature("icebergCompatV2", **{"delta.universalFormat.enabledFormats": "iceberg"}))
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.set_properties({"owner": "x"})
    table.append(flights(("LGA", 3, 9)))
    assert table.properties["delta.universalFormat.enabledFormats"] == "iceberg"


# -- protected checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.notices("protected-checkpoints-go-all-at-once", "protected-checkpoints-go-last")
def test_protected_checkpoints_go_all_at_once_and_after_their_commits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(*ROWS)
    for _ in range(2):
        table.checkpoint()
        table.append(flights(("JFK", 1, 4)))
    detached(place, with_feature("checkpointProtection", **{PROTECTED: "6", "delta.logRetentionDuration": "interval 0 days"}))
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert table.version == 6
    later = iter(range(10**6))
    clock = "sluice.tables.maintain.vacuum.now_of"
    monkeypatch.setattr(clock, lambda _: (2**42 + next(later), False))
    assert table.vacuum(retain_hours=168).log_files == (), "the newest checkpoint that may go first is of version 2"
    table.checkpoint()
    with pytest.raises(InvalidRequest, match="it protects the log"):
        table.set_properties({PROTECTED: "0"})
    gone_files: list[str] = []
    store: Any = type(table.coordinated.store)
    delete = store.delete

    def noted(self: object, key: str) -> None:
        gone_files.append(key)
        delete(self, key)

    monkeypatch.setattr(store, "delete", noted)
    files = table.vacuum(retain_hours=168).log_files
    assert {int(each[11:31]) for each in files} == set(range(6))
    order = [each for each in gone_files if each in files]
    assert [each[11:31] for each in order if "checkpoint" in each] == [f"{1:020}", f"{2:020}"]
    for version, last in ((1, 1), (2, 5)):
        commits = [order.index(each) for each in order if each.endswith(".json") and version <= int(each[11:31]) <= last]
        assert max(commits) < next(order.index(each) for each in order if each.startswith(f"_delta_log/{version:020}.checkpoint"))
    assert table.drop_feature("checkpointProtection") is not None
    gone(table, "checkpointProtection")
    assert PROTECTED not in table.properties


def test_the_protection_goes_with_the_versions_that_it_protects(place: Place) -> None:
    place.filled(*ROWS)
    at_once = {"delta.dropFeatureTruncateHistory.retentionDuration": "interval 0 hours"}
    detached(place, with_feature("checkpointProtection", **{PROTECTED: "2", **at_once}))
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    with pytest.raises(InvalidRequest, match="checkpointProtection stays"):
        table.drop_feature("checkpointProtection")
    assert table.properties[PROTECTED] == "2"
    assert table.drop_feature("checkpointProtection", truncate_history=True) is not None
    assert min(int(each.name[:20]) for each in Path(place.location, "_delta_log").glob("*.json")) >= 2
    assert rows_of(place.open().snapshot().to_arrow()) == ROWS


# -- collations ------------------------------------------------------------------------------------------------------------


def collated(protocol: Protocol, metadata: Metadata) -> tuple[Protocol, Metadata]:
    said = json.loads(metadata.schema_string)
    next(each for each in said["fields"] if each["name"] == "word")["metadata"]["__COLLATIONS"] = {"word": "spark.UTF8_LCASE"}
    protocol, metadata = with_feature("collations")(protocol, replace(metadata, schema_string=json.dumps(said)))
    return with_feature("domainMetadata")(protocol, metadata)


def test_texts_with_collations_are_written_and_compared_by_bytes(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    sluice.Table.create(place.location, schema, coordinator=place.coordinator).append(pa.table({"id": [1], "word": ["a"]}, schema))
    detached(place, collated)
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.append(pa.table({"id": [2], "word": ["A"]}, schema))
    table.add_columns([sluice.NewColumn(pa.field("more", pa.int64()))])
    assert rows_of(table.snapshot().to_arrow(where="word = 'a'").select(["id"])) == [(1,)]
    assert "UTF8_LCASE" in table.snapshot().raw.metadata.schema_string, "every change of the schema keeps it"
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 2
    with pytest.raises(UnsupportedFeature, match=r"collations in a table with delta\.constraints"):
        table.set_properties({"delta.constraints.other": "word <> 'b'"})


def test_rules_on_texts_with_collations_are_other_engines_business(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    table = sluice.Table.create(place.location, schema, properties={"delta.constraints.w": "word <> 'b'"}, coordinator=place.coordinator)
    table.close()
    detached(place, collated)
    with pytest.raises(UnsupportedFeature, match=r"collations in a table with delta\.constraints"):
        sluice.Table.attach(place.location, coordinator=place.coordinator)
