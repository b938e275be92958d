"""Column mapping: columns that are renamed and dropped, while files, statistics, partitions and others' commits keep the names of files."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.storage.actions import Metadata, Protocol, encode_all
from sluice.storage.errors import InvalidRequest, SchemaMismatch, UnsupportedFeature
from sluice.storage.schema.mapping import physical
from tests.tables.conftest import Place, rows_of
from tests.tables.mapped import INNER, MODE, WHOLE, made, plain, rename

NAMED = {MODE: "name"}
MODES = pytest.mark.parametrize("mode", ["name", "id"])
VECTORS = {"delta.enableDeletionVectors": "true"}


def row(number: int) -> dict[str, Any]:
    inner = {"x": number, "y z": f"y{number}"}
    return {"id": number, "a, b.c": f"v{number}", "s": inner, "l": [inner], "m": [("k", inner)], "p": f"p{number % 2}"}


def whole(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in numbers], schema=WHOLE)


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda each: each["id"])


@MODES
def test_names_may_have_any_characters_and_files_have_other_ones(place: Place, mode: str) -> None:
    table = made(place, mode=mode)
    table.append(whole(*range(6)))
    assert table.snapshot().to_arrow().schema == WHOLE
    assert by_id(table.snapshot().to_arrow()) == [row(number) for number in range(6)]
    assert table.snapshot().to_arrow(where="`a, b.c` = 'v3' AND s.`y z` = 'y3' AND p = 'p1'")["id"].to_pylist() == [3]
    [file] = {each for each in table.snapshot(1).files()["path"].to_pylist() if "p0" in each}
    stored = pq.read_schema(Path(place.location, file))
    assert not {*WHOLE.names} & {*stored.names}
    assert all(b"PARQUET:field_id" in stored.field(number).metadata for number in range(len(stored)))
    stats = json.loads(table.snapshot().files()["stats"][0].as_py())
    assert {*stats["minValues"]} == {*stored.names} - {stored.names[3], stored.names[4]}


@MODES
def test_renamed_columns_are_the_same_columns_at_every_depth(place: Place, mode: str) -> None:
    table = made(place, mode=mode)
    table.append(whole(*range(6)))
    files = table.snapshot().files()["path"].to_pylist()
    rename(table, **{"a, b.c": "c", "p": "part"})
    nested = [("s", "x"), ("l", "element", "x"), ("m", "value", "x")]
    table.alter_columns([sluice.ColumnChange(path, name="xx") for path in nested])
    table.append(pa.table({"id": [6], "part": ["p0"], "s": pa.array([{"xx": 6, "y z": "y6"}], table.schema.field("s").type)}))
    assert table.partition_columns == ("part",)
    assert [each for each in table.snapshot().files()["path"].to_pylist() if each in files] == files
    got = by_id(table.snapshot().to_arrow())
    assert [each["c"] for each in got] == [*(f"v{number}" for number in range(6)), None]
    assert [each["s"]["xx"] for each in got] == list(range(7))
    assert got[3]["l"] == [{"xx": 3, "y z": "y3"}]
    assert got[3]["m"] == [("k", {"xx": 3, "y z": "y3"})]
    assert table.snapshot(1).to_arrow().schema == WHOLE


@MODES
def test_conditions_skip_files_by_what_these_call_the_columns(place: Place, mode: str) -> None:
    table = made(place, mode=mode)
    table.append(whole(0, 2))
    table.append(whole(1, 3))
    rename(table, id="number", p="part")
    table.alter_columns([sluice.ColumnChange(("s", "x"), name="xx")])
    count = {
        where: table.snapshot().files(where).num_rows for where in ("part = 'p1'", "number > 2", "s.xx > 2", "number > 3", "number >= 0")
    }
    assert count == {"part = 'p1'": 1, "number > 2": 1, "s.xx > 2": 1, "number > 3": 0, "number >= 0": 2}


@MODES
def test_row_groups_are_skipped_by_the_names_in_files(place: Place, mode: str) -> None:
    table = made(place, pa.schema([("id", pa.int64()), ("v", pa.int64())]), (), mode=mode, **{"delta.targetFileSize": "64kb"})
    table.append(pa.table({"id": range(40_000), "v": range(40_000)}))
    rename(table, id="v2", v="id")
    rename(table, v2="v")
    assert table.snapshot().to_arrow(where="v = 39999 OR id = 3")["id"].to_pylist() == [3, 39_999]


def test_a_dropped_column_is_gone_and_a_new_one_of_its_name_is_another(place: Place) -> None:
    table = plain(place)
    table.drop_columns(["v"])
    assert table.schema.names == ["id", "p"]
    table.add_columns([sluice.NewColumn(pa.field("v", pa.string()))])
    assert rows_of(table.snapshot().to_arrow()) == [(1, "a", None), (2, "b", None)]
    table.append(pa.table({"id": [3], "v": ["three"], "p": ["a"]}))
    assert rows_of(table.snapshot().to_arrow(where="v = 'three'")) == [(3, "a", "three")]
    assert rows_of(table.snapshot(1).to_arrow()) == [(1, "one", "a"), (2, "two", "b")]


def test_fields_in_structs_are_dropped_and_one_has_to_stay(place: Place) -> None:
    table = made(place)
    table.append(whole(1))
    table.drop_columns(["s.`y z`"])
    assert table.snapshot().to_arrow(["s"]).to_pylist() == [{"s": {"x": 1}}]
    with pytest.raises(InvalidRequest, match=r"s\.x is the only column of s, and one has to stay"):
        table.drop_columns(["s.x"])


def test_columns_are_replaced_by_a_list(place: Place) -> None:
    table = plain(place)
    table.replace_columns(pa.schema([("p", pa.string()), ("w", pa.int64()), ("id", pa.int64())]))
    assert table.schema.names == ["p", "w", "id"]
    assert rows_of(table.snapshot().to_arrow()) == [("a", None, 1), ("b", None, 2)]
    with pytest.raises(InvalidRequest, match="column id is long and cannot become string by REPLACE COLUMNS"):
        table.replace_columns(pa.schema([("id", pa.string()), ("p", pa.string())]))
    with pytest.raises(InvalidRequest, match="column p cannot be dropped: the table is partitioned or clustered by it"):
        table.replace_columns(pa.schema([("id", pa.int64())]))
    with pytest.raises(InvalidRequest, match="column n is NOT NULL, but the rows that are there have no value"):
        table.replace_columns(pa.schema([("p", pa.string()), pa.field("n", pa.int64(), nullable=False)]))


def test_a_table_with_files_is_mapped_by_the_names_that_they_have(place: Place) -> None:
    table = plain(place, mode="none")
    table.set_properties(NAMED)
    assert physical(table.struct).names == ("id", "v", "p")
    rename(table, v="w", p="q")
    table.append(pa.table({"id": [3], "w": ["three"], "q": ["a"]}))
    assert rows_of(table.snapshot().to_arrow(where="q = 'a'")) == [(1, "one", "a"), (3, "three", "a")]
    assert all(each.startswith("p=") for each in table.snapshot().files()["path"].to_pylist())
    assert table.set_properties(NAMED) is None


@pytest.mark.parametrize(("before", "after"), [("none", "id"), ("name", "none"), ("name", "id"), ("id", "name"), ("id", "none")])
def test_other_changes_of_the_mode_are_refused_with_the_way_out(place: Place, before: str, after: str) -> None:
    table = plain(place, mode=before)
    with pytest.raises(InvalidRequest, match=f"{MODE} is {before} and cannot become {after}, for .*table"):
        table.set_properties({MODE: after})


@pytest.mark.parametrize("value", ["names", "", "NAME "])
def test_an_unknown_mode_is_refused(place: Place, value: str) -> None:
    with pytest.raises(InvalidRequest, match="use none or name or id"):
        plain(place, mode=value)


def test_names_stay_what_they_are_in_a_table_without_mapping(place: Place) -> None:
    table = plain(place, mode="none")
    says = f"the files of the table have the columns' names. Set the property {MODE} to 'name'"
    with pytest.raises(InvalidRequest, match=says):
        rename(table, v="w")
    with pytest.raises(InvalidRequest, match=says):
        table.drop_columns(["v"])
    with pytest.raises(SchemaMismatch, match=f"with column mapping only: rename it, or set {MODE} to 'name'"):
        made(Place(f"{place.location}-2", place.coordinator), mode="none")


@pytest.mark.parametrize(
    ("properties", "column", "use"),
    [
        ({"delta.constraints.short": "length(v) < 10"}, "v", "the constraint short"),
        ({"sluice.primaryKey": "id", "sluice.conflictPolicy": "maxcompute-delta"}, "id", "sluice.primaryKey"),
    ],
)
def test_a_column_that_the_table_names_keeps_its_name(place: Place, properties: dict[str, str], column: str, use: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    table = made(place, schema, (), **properties)
    with pytest.raises(InvalidRequest, match=f"{use} names it"):
        rename(table, **{column: "w"})
    with pytest.raises(InvalidRequest, match=f"{use} names it"):
        table.drop_columns([column])


def test_a_column_of_which_another_is_generated_keeps_its_name(place: Place) -> None:
    generated = pa.field("d", pa.int64(), metadata={"delta.generationExpression": "id + 1"})
    table = made(place, pa.schema([pa.field("id", pa.int64()), generated]), ())
    with pytest.raises(InvalidRequest, match="generated column d names it"):
        rename(table, id="number")
    rename(table, d="next")
    table.append(pa.table({"id": [1]}))
    assert table.snapshot().to_arrow().to_pylist() == [{"id": 1, "next": 2}]


def test_a_new_name_must_be_free(place: Place) -> None:
    table = plain(place)
    with pytest.raises(SchemaMismatch, match="the same for Delta"):
        rename(table, v="ID")
    with pytest.raises(InvalidRequest, match="column 'w' is not in the table"):
        rename(table, w="x")
    with pytest.raises(InvalidRequest, match="maxColumnId is not for users to change: sluice counts the columns"):
        table.set_properties({"delta.columnMapping.maxColumnId": "1"})


@pytest.mark.parametrize("names", [{"v": "p", "p": "v"}, {"v": "p", "p": "q"}, {"id": "v", "v": "id"}])
def test_a_new_name_must_be_free_at_once(place: Place, names: dict[str, str]) -> None:
    """Of two columns of one name the later change would mean the first one."""
    table = plain(place)
    before = table.snapshot().version
    with pytest.raises(SchemaMismatch, match="the same for Delta"):
        rename(table, **names)
    assert (place.open().snapshot().version, place.open().schema.names) == (before, ["id", "v", "p"])
    rename(table, p="q", v="p")
    assert rows_of(place.open().snapshot().to_arrow(columns=["id", "p", "q"])) == [(1, "one", "a"), (2, "two", "b")]


def test_a_renamed_column_becomes_not_null_in_one_go(place: Place) -> None:
    table = plain(place)
    table.alter_columns([sluice.ColumnChange(("id",), name="number"), sluice.ColumnChange(("number",), nullable=False)])
    assert not table.schema.field("number").nullable
    table.append(pa.table({"number": [3], "v": [None], "p": ["a"]}, schema=table.schema))
    with pytest.raises(sluice.errors.ConstraintViolated, match="column v cannot become NOT NULL"):
        table.alter_columns([sluice.ColumnChange(("v",), name="w"), sluice.ColumnChange(("w",), nullable=False)])


@MODES
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_changes_of_rows_know_their_columns(place: Place, mode: str, vectors: str) -> None:
    table = made(place, mode=mode, **{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"})
    table.append(whole(*range(6)))
    rename(table, **{"a, b.c": "c", "p": "part"})
    table.update({"c": "'new'"}, "part = 'p0' AND id = 4")
    table.delete("part = 'p1' AND id = 3")
    table.upsert(pa.table({"id": [5], "c": ["up"], "part": ["p1"], **{n: pa.array([None], WHOLE.field(n).type) for n in "slm"}}), on="id")
    assert [(each["id"], each["c"]) for each in by_id(table.snapshot().to_arrow())] == [
        (0, "v0"),
        (1, "v1"),
        (2, "v2"),
        (4, "new"),
        (5, "up"),
    ]
    changes = table.changes(0, columns=["id", "c"], where="id = 4")
    assert [(each["_change_type"], each["c"]) for each in changes.to_pylist()] == [
        ("insert", "v4"),
        ("update_preimage", "v4"),
        ("update_postimage", "new"),
    ]
    before = by_id(table.snapshot().to_arrow())
    assert before[2]["s"] == {"x": 2, "y z": "y2"}
    table.compact("major")
    assert by_id(table.snapshot().to_arrow()) == before
    table.compact(z_order_by=["id", "c"])
    assert by_id(table.snapshot().to_arrow()) == before


@MODES
def test_clustering_statistics_and_restoring_know_their_columns(place: Place, mode: str) -> None:
    table = made(place, pa.schema([("id", pa.int64()), ("s", INNER)]), (), mode=mode)
    table.cluster_by(["s.x"])
    for number in range(3):
        table.append(pa.table({"id": [number], "s": pa.array([{"x": number, "y z": "y"}], INNER)}))
    table.alter_columns([sluice.ColumnChange(("s", "x"), name="xx"), sluice.ColumnChange(("s",), name="t")])
    assert table.clustering_columns == ("t.xx",)
    with pytest.raises(InvalidRequest, match="clustered by it"):
        table.drop_columns(["t"])
    before = by_id(table.snapshot().to_arrow())
    table.compact("full")
    assert by_id(table.snapshot().to_arrow()) == before
    assert table.compact("minor") is None
    assert table.analyze(["t.xx"]).lacking == 0
    table.add_columns([sluice.NewColumn(pa.field("w", pa.int64()))])
    assert table.analyze(["w"]).lacking == 1
    assert table.snapshot().files("w = 1").num_rows == 0
    table.restore(2)
    assert table.schema.names == ["id", "s"]
    assert table.clustering_columns == ("s.x",)
    assert table.snapshot().to_arrow().num_rows == 1
    highest = int(table.properties["delta.columnMapping.maxColumnId"])
    table.add_columns([sluice.NewColumn(pa.field("w", pa.int64()))])
    assert int(table.properties["delta.columnMapping.maxColumnId"]) == highest + 1


@MODES
def test_a_clone_reads_the_files_of_its_original(place: Place, mode: str, tmp_path: Path) -> None:
    table = plain(place, mode=mode)
    rename(table, v="w", p="q")
    table.drop_columns(["w"])
    copy = table.clone(str(tmp_path / "copy"), coordinator=place.coordinator)
    copy.add_columns([sluice.NewColumn(pa.field("v", pa.string()))])
    assert rows_of(copy.snapshot().to_arrow(where="q = 'a'")) == [(1, "a", None)]
    other = plain(Place(str(tmp_path / "other"), place.coordinator))
    over = table.clone(other.location, coordinator=place.coordinator, replace=True)
    over.add_columns([sluice.NewColumn(pa.field("v", pa.string()))])
    assert rows_of(over.snapshot().to_arrow()) == [(1, "a", None), (2, "b", None)]


def test_an_overwrite_with_another_schema_keeps_columns_by_name_and_type(place: Place) -> None:
    table = plain(place)
    before = {each.name: each.metadata for each in table.struct.fields}
    table.overwrite(pa.table({"v": ["x"], "id": ["now text"]}), overwrite_schema=True, partition_by=[])
    after = {each.name: each.metadata for each in table.struct.fields}
    assert after["v"] == before["v"]
    assert after["id"] != before["id"]
    assert table.snapshot().to_arrow().to_pylist() == [{"v": "x", "id": "now text"}]


def test_merging_schemas_numbers_new_columns(place: Place) -> None:
    table = plain(place)
    table.append(pa.table({"id": [3], "new one": [1.5], "p": ["a"]}), merge_schema=True)
    assert rows_of(table.snapshot().to_arrow(["id", "new one"])) == [(1, None), (2, None), (3, 1.5)]
    numbers = [each.metadata["delta.columnMapping.id"] for each in table.struct.fields]
    assert numbers == [1, 2, 3, 4]
    assert table.properties["delta.columnMapping.maxColumnId"] == "4"


@MODES
def test_a_renamed_column_gets_a_wider_type(place: Place, mode: str) -> None:
    inner = pa.struct([("x", pa.int32())])
    table = made(place, pa.schema([("k", pa.int32()), ("s", inner), ("p", pa.int32())]), mode=mode, **{"delta.enableTypeWidening": "true"})
    table.append(pa.table({"k": [1], "s": [{"x": 1}], "p": [1]}, schema=table.schema))
    changes = [(("k",), "id", pa.int64()), (("s", "x"), "xx", pa.float64()), (("p",), "q", pa.int64())]
    table.alter_columns([sluice.ColumnChange(path, name=name, type=kind) for path, name, kind in changes])
    assert table.schema == pa.schema([("id", pa.int64()), ("s", pa.struct([("xx", pa.float64())])), ("q", pa.int64())])
    table.append(pa.table({"id": [2**40], "s": [{"xx": 1.5}], "q": [2**40]}, schema=table.schema))
    assert by_id(table.snapshot().to_arrow()) == [
        {"id": 1, "s": {"xx": 1.0}, "q": 1},
        {"id": 2**40, "s": {"xx": 1.5}, "q": 2**40},
    ]
    assert table.snapshot().files("q > 1 AND s.xx > 1").num_rows == 1
    table.compact("major")
    assert table.snapshot().to_arrow(where="id = 1")["q"].to_pylist() == [1]


# -- tables of others ------------------------------------------------------------------------------------------------------


def _field(name: str, kind: str, number: int, physical_name: str) -> dict[str, Any]:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical_name}
    return {"name": name, "type": kind, "nullable": True, "metadata": keys}


def written(folder: Path, mode: str, protocol: Protocol, file: pa.Table) -> str:
    """A table (id, text) that another engine wrote, whose only file is this one."""
    (folder / "_delta_log").mkdir(parents=True)
    pq.write_table(file, folder / "one.parquet")
    fields = [_field("id", "long", 1, "col-1"), _field("text", "string", 2, "col-2")]
    configuration = {MODE: mode, "delta.columnMapping.maxColumnId": "2"}
    metadata = Metadata(str(uuid.uuid4()), json.dumps({"type": "struct", "fields": fields}), (), configuration)
    size = (folder / "one.parquet").stat().st_size
    add = {"add": {"path": "one.parquet", "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}}
    lines = encode_all([protocol, metadata]) + json.dumps(add).encode()
    (folder / "_delta_log" / f"{0:020d}.json").write_bytes(lines)
    return str(folder)


def numbered(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(number)})


LEGACY = Protocol(2, 5)
BY_FEATURES = Protocol(3, 7, ("columnMapping",), ("columnMapping",))


@pytest.mark.parametrize("protocol", [LEGACY, BY_FEATURES], ids=["by numbers", "by features"])
def test_by_id_a_column_is_found_by_its_field_id_and_not_by_its_name(tmp_path: Path, protocol: Protocol) -> None:
    schema = pa.schema([numbered("col-1", pa.string(), 2), numbered("other", pa.int64(), 1), numbered("col-2", pa.string(), 9)])
    file = pa.table({"col-1": ["one"], "other": [1], "col-2": ["dropped"]}, schema=schema)
    location = written(tmp_path / "t", "id", protocol, file)
    table = sluice.Table.attach(location, coordinator=f"memory://{uuid.uuid4().hex}")
    table.append(pa.table({"id": [2], "text": ["two"]}))
    assert rows_of(table.snapshot().to_arrow()) == [(1, "one"), (2, "two")]
    assert rows_of(table.snapshot().to_arrow(where="text = 'one'")) == [(1, "one")]
    table.compact("major")
    assert rows_of(table.snapshot().to_arrow()) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("protocol", [LEGACY, BY_FEATURES, Protocol(1, 2)], ids=["by numbers", "by features", "unsaid"])
def test_by_name_a_column_is_found_by_its_physical_name(tmp_path: Path, protocol: Protocol) -> None:
    schema = pa.schema([numbered("col-2", pa.string(), 1), numbered("col-1", pa.int64(), 2), pa.field("text", pa.string())])
    location = written(tmp_path / "t", "name", protocol, pa.table({"col-2": ["one"], "col-1": [1], "text": ["no"]}, schema=schema))
    snapshot = sluice.Table.open(location, consistency="published").snapshot()
    assert rows_of(snapshot.to_arrow()) == [(1, "one")]
    assert rows_of(snapshot.to_dataset().to_table()) == [(1, "one")]


@pytest.mark.notices("only-known-ways-of-mapping")
def test_another_way_of_mapping_is_refused_by_name(tmp_path: Path) -> None:
    location = written(tmp_path / "t", "alias", BY_FEATURES, pa.table({"col-1": [1]}))
    with pytest.raises(UnsupportedFeature, match="column mapping by 'alias'"):
        sluice.Table.open(location, consistency="published").snapshot().to_arrow()


def test_without_a_mapping_what_an_earlier_one_left_means_nothing(tmp_path: Path) -> None:
    location = written(tmp_path / "t", "none", Protocol(1, 2), pa.table({"id": [1], "text": ["one"]}))
    table = sluice.Table.attach(location, coordinator=f"memory://{uuid.uuid4().hex}")
    table.append(pa.table({"id": [2], "text": ["two"]}))
    assert rows_of(table.snapshot().to_arrow()) == [(1, "one"), (2, "two")]
    table.set_properties(NAMED)
    rename(table, text="words")
    assert rows_of(table.snapshot().to_arrow(where="words = 'one'")) == [(1, "one")]


def test_converted_files_have_the_names_of_their_columns(place: Place) -> None:
    Path(place.location).mkdir()
    pq.write_table(pa.table({"v": ["one"]}), Path(place.location, "one.parquet"))
    with pytest.raises(InvalidRequest, match=f"convert first, and then set {MODE} to 'name'"):
        sluice.Table.convert(place.location, properties=NAMED, coordinator=place.coordinator)
    table = sluice.Table.convert(place.location, coordinator=place.coordinator)
    table.set_properties(NAMED)
    rename(table, v="w")
    assert table.snapshot().to_arrow().to_pylist() == [{"w": "one"}]


def test_a_consumer_goes_on_under_the_new_names(place: Place) -> None:
    table = plain(place)
    follower = table.follow(after=0, timeout_s=0.2)
    rename(table, v="w")
    table.append(pa.table({"id": [3], "w": ["three"], "p": ["a"]}))
    batches = [(each.schema.names[1], pa.Table.from_batches(each, each.schema)["id"].to_pylist()) for each in follower]
    assert batches == [("v", [1, 2]), ("w", [3])]


@MODES
def test_another_reader_reads_what_was_renamed_and_dropped(place: Place, mode: str) -> None:
    table = plain(place, mode=mode)
    rename(table, v="w", p="q")
    table.append(pa.table({"id": [3], "w": ["three"], "q": ["a"]}))
    table.delete("id = 2")
    frame = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place.location)).execute("SELECT id, w, q FROM t ORDER BY id")
    assert pa.table(frame.read_all()).to_pylist() == [{"id": 1, "w": "one", "q": "a"}, {"id": 3, "w": "three", "q": "a"}]


def test_a_column_without_a_type_keeps_none_in_files(tmp_path: Path) -> None:
    location = written(tmp_path / "t", "name", BY_FEATURES, pa.table({"col-1": [1]}))
    log = Path(location, "_delta_log", f"{0:020d}.json")
    log.write_text(
        log.read_text()
        .replace('\\"type\\":\\"string\\"', '\\"type\\":\\"void\\"')
        .replace('\\"type\\": \\"string\\"', '\\"type\\": \\"void\\"')
    )
    table = sluice.Table.attach(location, coordinator=f"memory://{uuid.uuid4().hex}")
    table.append(pa.table({"id": [2]}))
    assert rows_of(table.snapshot().to_arrow()) == [(1, None), (2, None)]
    table.compact("major")
    assert rows_of(table.snapshot().to_arrow()) == [(1, None), (2, None)]
