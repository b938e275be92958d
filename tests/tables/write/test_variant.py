"""Columns of variants: made, written, changed, compacted and read as Arrow data, and where Delta allows none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice import errors
from sluice.storage.schema.datatypes import TO_ARROW
from tests.fixtures.variants import NUMBER, OBJECT, PLAIN

VARIANT = TO_ARROW["variant"]
SCHEMA = pa.schema([("id", pa.int64()), ("v", VARIANT), ("l", pa.list_(VARIANT)), ("s", pa.struct([("x", VARIANT)]))])
ROWS: list[dict[str, Any]] = [
    {"id": 1, "v": NUMBER, "l": [OBJECT, None], "s": {"x": NUMBER}},
    {"id": 2, "v": None, "l": None, "s": None},
    {"id": 3, "v": OBJECT, "l": [], "s": {"x": None}},
]
Make = Callable[..., sluice.Table]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(schema: pa.Schema = SCHEMA, **options: Any) -> sluice.Table:
        return sluice.Table.create(tmp_path / "t", schema, coordinator=f"memory://{tmp_path}", **options)

    return make


def held(table: sluice.Table, where: str | None = None) -> list[dict[str, Any]]:
    return table.refresh().snapshot().to_arrow(where=where).sort_by("id").to_pylist()


def plain(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of structs that nothing marks as variants."""
    kinds = [("id", pa.int64()), ("v", PLAIN), ("l", pa.list_(PLAIN)), ("s", pa.struct([("x", PLAIN)]))]
    return pa.Table.from_pylist(rows, pa.schema(kinds))


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("vectors", [False, True])
def test_variants_are_kept_as_they_are(make: Make, mapped: bool, vectors: bool) -> None:
    properties = {"delta.enableChangeDataFeed": "true"}
    properties |= {"delta.columnMapping.mode": "name"} if mapped else {}
    properties |= {"delta.enableDeletionVectors": "true"} if vectors else {}
    table = make(properties=properties)
    assert str(table.struct) == "struct<id: long, v: variant, l: array<variant>, s: struct<x: variant>>"
    assert "variantType" in (table.snapshot().raw.protocol.reader_features or ())
    table.append(plain(ROWS))
    [file] = table.snapshot().raw.files.to_pylist()
    stats = json.loads(file["stats"])
    assert len(stats["minValues"]) == len(stats["maxValues"]) == 1
    assert [each for each in stats["nullCount"].values() if isinstance(each, int)] == [0, 1, 1]
    assert held(table) == ROWS
    assert [each["id"] for each in held(table, "v IS NULL")] == [2]
    table.update({"id": "id + 10"}, where="id = 1")
    table.delete("id = 2")
    expected = [ROWS[2], {**ROWS[0], "id": 11}]
    assert held(table) == expected
    table.append(pa.Table.from_pylist([ROWS[1]], SCHEMA))
    table.compact()
    assert held(table) == [ROWS[1], *expected]
    changed = {(each["_change_type"], each["id"]): each["v"] for each in table.changes(1).to_pylist()}
    assert changed[("update_postimage", 11)] == NUMBER
    assert changed[("delete", 2)] is None
    table.restore(1)
    assert held(table) == ROWS


def test_a_file_has_a_struct_of_two_binaries_and_another_engine_reads_it(make: Make) -> None:
    table = make()
    table.append(plain(ROWS))
    [path] = Path(table.location.removeprefix("file://")).glob("*.parquet")
    assert [each.name for each in pq.ParquetFile(path).schema_arrow.field("v").type.fields] == ["value", "metadata"]
    theirs = deltalake.DeltaTable(table.location)
    assert str(theirs.schema().fields[1].type) == "VariantType()"
    assert theirs.to_pyarrow_table().column("v").to_pylist() == [NUMBER, None, OBJECT]


@pytest.mark.notices("no-shredded-variants", "nulls-in-variants")
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array([{**NUMBER, "typed_value": 1}]), "column 'v' is a shredded variant in the data"),
        (pa.array([NUMBER["value"]]), "column 'v' is variant in the table and binary"),
        (pa.array(["1"]), "column 'v' is variant in the table and string"),
        (pa.array([{"value": b"\0"}]), "column 'v.metadata' is NOT NULL and missing"),
        (pa.array([{"value": None, "metadata": NUMBER["metadata"]}], PLAIN), "column 'v.value' is NOT NULL"),
    ],
)
def test_what_is_no_variant_is_refused(make: Make, values: pa.Array, said: str) -> None:
    table = make()
    with pytest.raises(errors.SluiceError, match=said):
        table.append(pa.table({"id": [1], "v": values}))
    assert table.refresh().version == 0


SHREDDED = pa.struct([*PLAIN.fields, ("typed_value", pa.struct([("a", pa.struct([("typed_value", pa.int64())]))]))])
"""Parts of the values stand beside them."""


@pytest.mark.notices("no-shredded-variants", "datasets-without-shredded-variants")
@pytest.mark.parametrize("face", ["to_arrow", "to_polars", "to_dataset", "changes", "update", "compact"])
def test_files_with_shredded_variants_are_not_read_as_if_they_were_not(make: Make, face: str) -> None:
    table = make(pa.schema([("id", pa.int64()), ("v", VARIANT)]))
    for number in range(2):
        table.append(pa.table({"id": [number], "v": pa.array([OBJECT], PLAIN)}))
    for path in Path(table.location.removeprefix("file://")).glob("*.parquet"):
        rows = pq.read_table(path).to_pylist()
        pq.write_table(
            pa.table({"id": [rows[0]["id"]], "v": pa.array([{**OBJECT, "typed_value": {"a": {"typed_value": 2}}}], SHREDDED)}), path
        )
    snapshot = table.snapshot()
    assert snapshot.to_arrow(["id"]).num_rows == 2
    faces: dict[str, Callable[[], Any]] = {
        "to_arrow": snapshot.to_arrow,
        "to_polars": snapshot.to_polars,
        "to_dataset": lambda: snapshot.to_dataset().to_table(),
        "changes": lambda: table.changes(0),
        "update": lambda: table.update({"id": "id + 1"}),
        "compact": table.compact,
    }
    with pytest.raises(errors.UnsupportedFeature, match="'v' is a shredded variant in the data, whose parts only Spark puts together"):
        faces[face]()
    assert table.refresh().version == 2


def test_shredded_files_are_not_adopted(make: Make, tmp_path: Path) -> None:
    table = make(pa.schema([("v", VARIANT)]))
    pq.write_table(
        pa.table({"v": pa.array([{**OBJECT, "typed_value": {"a": {"typed_value": 2}}}], SHREDDED)}), tmp_path / "t" / "new.parquet"
    )
    with pytest.raises(errors.SluiceError, match=r"new\.parquet.*typed_value"):
        table.adopt(["new.parquet"])


@pytest.mark.notices("variants-are-one-value")
@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("v.value IS NULL", "v is a VARIANT, in which no field has a name: variant_get looks into it, in Spark"),
        ("s.x.metadata IS NOT NULL", "s.x is a VARIANT, in which no field has a name"),
        ("v = v", "VARIANT = VARIANT cannot be evaluated"),
        ("v IN (v)", "VARIANT = VARIANT cannot be evaluated"),
        ("v <=> NULL", "VARIANT <=> NULL cannot be evaluated"),
        ("l = l", "cannot be evaluated"),
        ("CAST(v AS STRING) = '1'", "a CAST from VARIANT to STRING"),
        ("variant_get(v, '$', 'int') = 1", "does not evaluate the function variant_get"),
    ],
)
def test_conditions_do_not_look_into_variants(make: Make, condition: str, said: str) -> None:
    table = make(properties={"delta.constraints.told": "v IS NOT NULL OR id = 2"})
    table.append(plain(ROWS))
    uses: list[Callable[[], Any]] = [
        lambda: held(table, condition),
        lambda: table.delete(condition),
        lambda: table.update({"id": "1"}, where=condition),
        lambda: table.overwrite(plain(ROWS), where=condition),
    ]
    for use in uses:
        with pytest.raises(errors.PredicateError) as refused:
            use()
        assert said in str(refused.value)
    with pytest.raises(errors.SluiceError) as unusable:
        table.set_properties({"delta.constraints.value": condition})
    assert said in str(unusable.value)
    with pytest.raises(errors.ConstraintViolated, match="told"):
        table.append(plain([{**ROWS[1], "id": 4}]))
    assert table.refresh().version == 1


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_every_face_and_every_operation_keeps_variants(make: Make, tmp_path: Path, mode: str) -> None:
    kind = pa.map_(pa.string(), VARIANT)
    table = make(SCHEMA.append(pa.field("m", kind)), properties={"delta.columnMapping.mode": mode, "delta.enableChangeDataFeed": "true"})
    rows: list[dict[str, Any]] = [{**each, "m": m} for each, m in zip(ROWS, ([("k", NUMBER), ("j", None)], None, []), strict=True)]
    table.append(pa.Table.from_pylist(rows, table.schema))
    snapshot = table.snapshot()
    assert snapshot.to_dataset().to_table().sort_by("id").to_pylist() == rows
    assert snapshot.to_polars().sort("id").drop("m").to_dicts() == ROWS
    assert [dict(each) for each in pa.table(snapshot).sort_by("id").drop_columns(["m"]).to_pylist()] == ROWS
    table.upsert(pa.Table.from_pylist([{**rows[0], "v": OBJECT}], table.schema), on="id")
    expected = [{**rows[0], "v": OBJECT}, *rows[1:]]
    assert held(table) == expected
    changed = table.changes(1).sort_by("_change_type").to_pylist()
    assert [(each["_change_type"], each["v"]) for each in changed] == [("update_postimage", OBJECT), ("update_preimage", NUMBER)]
    for deep in (False, True):
        copy = table.clone(tmp_path / f"copy-{deep}", deep=deep)
        assert held(copy) == expected
        copy.update({"v": "s.x"}, where="id = 1")
        assert held(copy)[0] == rows[0]
    if mode != "none":
        table.alter_columns([sluice.ColumnChange(("v",), name="w")])
        table.drop_columns(["l"])
        table.append(pa.table({"id": [4], "w": pa.array([NUMBER], PLAIN), "s": [None], "m": [None]}, schema=None))
        assert [each["w"] for each in held(table)] == [OBJECT, None, OBJECT, NUMBER]
    table.restore(1)
    assert held(table) == rows


@pytest.mark.notices("no-partitions-by-variants", "no-generated-variants")
def test_where_delta_allows_no_variant(make: Make) -> None:
    with pytest.raises(errors.InvalidRequest, match="'v' is variant; only columns of primitive types can be"):
        make(partition_by=["v"])
    with pytest.raises(errors.InvalidRequest, match="cannot be clustered by v of type variant"):
        make(cluster_by=["v"])
    generated = pa.schema([("v", VARIANT), pa.field("w", VARIANT, metadata={"delta.generationExpression": "v"})])
    with pytest.raises(errors.InvalidRequest, match="'w' is variant, and Delta generates no variants"):
        make(generated)
    with pytest.raises(errors.InvalidRequest, match="'w' is struct<x: variant>, and Delta generates no variants"):
        make(pa.schema([("v", VARIANT), pa.field("w", pa.struct([("x", VARIANT)]), metadata={"delta.generationExpression": "s"})]))
    identity = {"delta.identity.start": "1", "delta.identity.step": "1", "delta.identity.allowExplicitInsert": "false"}
    with pytest.raises(errors.SluiceError, match="the identity column 'v' is variant"):
        make(pa.schema([pa.field("v", VARIANT, metadata=identity)]))
    key = {"sluice.primaryKey": "v", "sluice.conflictPolicy": "maxcompute-delta"}
    with pytest.raises(errors.InvalidRequest, match="'v' is variant"):
        make(pa.schema([pa.field("v", VARIANT, nullable=False)]), properties=key)
    iceberg = {"delta.columnMapping.mode": "name", "delta.enableIcebergCompatV2": "true"}
    with pytest.raises(errors.SluiceError, match="with column v of type variant"):
        make(pa.schema([("v", VARIANT)]), properties=iceberg)
    with pytest.raises(errors.InvalidRequest, match="sluice writes variants in one piece"):
        make(properties={"delta.enableVariantShredding": "true"})
    table = make(properties={"delta.dataSkippingStatsColumns": "v,id"})
    table.append(plain(ROWS))
    with pytest.raises(errors.InvalidRequest, match="'v' is of type variant, whose values cannot be compared"):
        table.compact(z_order_by=["v"])
    with pytest.raises(errors.InvalidRequest, match="'v' is of type variant, whose values cannot be compared"):
        table.upsert(plain(ROWS), on="v")
    with pytest.raises(errors.InvalidRequest, match="cannot be clustered by v of type variant"):
        table.cluster_by(["v"])


@pytest.mark.parametrize("by", ["ALTER", "merge_schema", "extension"])
def test_a_table_that_gets_variants_gets_the_feature_and_loses_it_with_them(make: Make, by: str) -> None:
    table = make(pa.schema([("id", pa.int64())]), properties={"delta.columnMapping.mode": "name"})
    assert "variantType" not in (table.snapshot().raw.protocol.reader_features or ())
    if by == "ALTER":
        table.add_columns([sluice.NewColumn(pa.field("v", VARIANT))])
    else:
        values = pa.array([OBJECT], VARIANT)
        values = pa.ExtensionArray.from_storage(Extension(), values.cast(PLAIN)) if by == "extension" else values
        table.append(pa.table({"id": [1], "v": values}), merge_schema=True)
    table.append(pa.table({"id": [2], "v": pa.array([NUMBER], PLAIN)}), merge_schema=True)
    assert str(table.refresh().struct.named("v").type) == "variant"
    assert "variantType" in (table.snapshot().raw.protocol.reader_features or ())
    with pytest.raises(errors.InvalidRequest, match="a column is VARIANT"):
        table.drop_feature("variantType")
    table.drop_columns(["v"])
    with pytest.raises(errors.InvalidRequest, match="truncate_history"):
        table.drop_feature("variantType")


class Extension(pa.ExtensionType):  # type: ignore[misc]
    """The type that Parquet's variants have in Arrow, as a library may define it."""

    def __init__(self) -> None:
        super().__init__(PLAIN, "arrow.parquet.variant")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Extension:
        return cls()
