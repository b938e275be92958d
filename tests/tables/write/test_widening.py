"""Columns get wider types: by ALTER, by the rows that are written, and beside writers of the narrower type."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice import ColumnChange
from sluice.storage.data.scan import TableScan
from sluice.storage.pruning.predicate import Filter, Predicate
from sluice.storage.schema.widening import CHANGES_KEY
from tests.fixtures.widenings import NARROW, PAIRS, VALUES, WIDE, nested, row, wide

from ..conftest import by_another

WIDENS = {"delta.enableTypeWidening": "true"}
OPERATIONS = ("EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")
Make = Callable[..., sluice.Table]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(schema: pa.Schema, *, widens: bool = True, name: str = "t", **options: Any) -> sluice.Table:
        properties = {**options.pop("properties", {}), **(WIDENS if widens else {})}
        return sluice.Table.create(tmp_path / name, schema, properties=properties, coordinator=f"memory://{tmp_path}", **options)

    return make


def retype(table: sluice.Table, path: str, kind: pa.DataType) -> sluice.Table:
    assert table.alter_columns([ColumnChange(tuple(path.split(".")), type=kind)]) is not None
    return table


@pytest.mark.costly
@pytest.mark.parametrize("place", ["column", "struct", "partition"])
def test_every_condition_finds_the_rows_of_files_from_before(make: Make, place: str) -> None:
    names = [f"c{number}" for number in range(len(PAIRS))]
    path = ("x",) if place == "struct" else ()

    def rows(kinds: list[pa.DataType], which: int, *numbers: int) -> pa.Table:
        """Rows with the narrower types' values of these numbers (3: null), as values of the narrower types (0) or the wider ones (1)."""
        columns = [("id", pa.array(numbers, pa.int64()))]
        for name, pair, kind in zip(names, PAIRS, kinds, strict=True):
            values = [[*VALUES[pair[0]], None][number] for number in numbers]
            values = [value if value is None else wide(value, pair[which]) for value in values]
            columns.append(
                (name, pa.array([{"x": each} for each in values] if path else values, pa.struct([("x", kind)]) if path else kind))
            )
        return pa.table(dict(columns))

    partitions = names if place == "partition" else ()
    table = make(rows(NARROW, 0).schema, partition_by=partitions, properties={"delta.enableDeletionVectors": "true"})
    for numbers in ((0, 0), (1, 1), (2,), (0, 3, 1)):
        table.append(rows(NARROW, 0, *numbers))
    table.alter_columns([ColumnChange((name, *path), type=kind) for name, kind in zip(names, WIDE, strict=True)])
    table.delete("id = 2")
    for number in range(4):
        table.append(rows(WIDE, 1, number))
    files, struct = table.snapshot().raw.files, table.struct
    scan = TableScan(table.coordinated.store, struct, partitions)
    held = [scan.read(files.slice(number, 1)) for number in range(files.num_rows)]
    assert sum(each.num_rows for each in held) == 11
    for name, (old, new) in zip(names, PAIRS, strict=True):
        literals = [wide(value, new) for value in VALUES[old]]
        conditions: list[Filter] = [("IsNull", (name, *path), None), ("In", (name, *path), literals[:2])]
        conditions += [
            (each, (name, *path), literal) for each in OPERATIONS for literal in [*literals, *([0.1] if new == "double" else [])]
        ]
        for told in (*conditions, *(("Not", (), each) for each in conditions)):
            predicate = Predicate.from_filters([told], struct)
            masks = [predicate.mask(each).to_pylist() for each in held]
            may = predicate.may_match(files, schema=struct, partition_columns=partitions).to_pylist()
            assert all(found or True not in mask for found, mask in zip(may, masks, strict=True)), (told, may, masks)
            every = predicate.matches_all(files, schema=struct, partition_columns=partitions).to_pylist()
            assert all(not found or mask.count(True) == len(mask) for found, mask in zip(every, masks, strict=True)), told
            if told[0] == "EqualTo":
                assert table.snapshot().to_arrow(["id"], told_sql := predicate).num_rows == sum(mask.count(True) for mask in masks), (
                    told_sql
                )


def test_files_without_matching_rows_are_still_skipped(make: Make) -> None:
    table = make(pa.schema([("i", pa.int32()), ("d", pa.date32()), ("f", pa.float32())]))
    for number in range(4):
        table.append(pa.table({"i": [number], "d": [dt.date(2024, 1, 1 + number)], "f": [float(number)]}, schema=table.schema))
    for name, kind in (("i", pa.decimal128(12, 2)), ("d", pa.timestamp("us")), ("f", pa.float64())):
        retype(table, name, kind)
    for condition in ("i = 2", "d = TIMESTAMP_NTZ '2024-01-03 00:00:00'", "f = 2"):
        predicate = Predicate.parse(condition, table.struct)
        files = table.snapshot().raw.files
        assert predicate.may_match(files, schema=table.struct, partition_columns=()).to_pylist() == [False, False, True, False]


def test_what_is_nested_becomes_wider_and_everything_reads_it(make: Make) -> None:
    kinds = [nested(old) for old, _ in PAIRS]
    table = make(pa.schema([("id", pa.int64()), *((f"c{n}", kind) for n, kind in enumerate(kinds))]))

    def rows(which: int, first: int) -> pa.Table:
        made = []
        for n in range(4):
            columns: dict[str, Any] = {"id": first + n}
            for place, pair in enumerate(PAIRS):
                value = [*VALUES[pair[0]], None][n]
                columns[f"c{place}"] = row(wide(value, pair[1]) if which and value is not None else value)
            made.append(columns)
        return pa.Table.from_pylist(made, table.schema)

    table.append(rows(0, 0))
    paths = ("x", "l.element", "m.key", "m.value")
    changes = [ColumnChange((f"c{n}", *path.split(".")), type=kind) for n, kind in enumerate(WIDE) for path in paths]
    table.alter_columns(changes)
    assert table.snapshot().to_arrow().to_pylist() == rows(1, 0).to_pylist()
    table.append(rows(1, 4))
    table.compact("major")
    found = sorted(table.snapshot().to_arrow().to_pylist(), key=lambda each: each["id"])
    assert found == [*rows(1, 0).to_pylist(), *rows(1, 4).to_pylist()]


def test_one_table_has_files_of_every_type_of_a_chain(make: Make) -> None:
    chains: dict[str, list[pa.DataType]] = {
        "n": [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(20, 0), pa.decimal128(25, 3), pa.decimal128(38, 10)],
        "f": [pa.int8(), pa.int16(), pa.int32(), pa.float64()],
        "m": [pa.decimal128(3, 1), pa.decimal128(5, 3), pa.decimal128(9, 3), pa.decimal128(19, 5), pa.decimal128(38, 5)],
    }
    table = make(pa.schema([("id", pa.int64()), *((name, kinds[0]) for name, kinds in chains.items())]))
    for step in range(7):
        for name, kinds in chains.items():
            if 0 < step < len(kinds):
                retype(table, name, kinds[step])
        bits = 8 * 2 ** min(step, 3) - 1
        number = Decimal(2**bits - 1) if step < 5 else Decimal(2**63 + step)
        columns = {"id": step, "n": number, "f": float(2 ** min(bits, 31) - 1), "m": Decimal(f"{step}.5")}
        table.append(pa.table({name: pa.array([columns[name]]).cast(table.schema.field(name).type) for name in table.schema.names}))
        everything = table.snapshot().to_arrow()
        assert everything.num_rows == step + 1
        for condition in (f"n >= {number}", f"f <= {columns['f']}", f"m > {step}", f"n = {number} AND m = {step}.5"):
            predicate = Predicate.parse(condition, table.struct)
            expected = everything.filter(predicate.mask(everything))["id"].to_pylist()
            assert sorted(table.snapshot().to_arrow(where=condition)["id"].to_pylist()) == sorted(expected), condition
            assert step in expected
    assert [len(each.metadata[CHANGES_KEY]) for each in table.struct.fields[1:]] == [6, 3, 4]
    table.compact("major")
    assert sorted(table.snapshot().to_arrow()["id"].to_pylist()) == list(range(7))


# -- ALTER ---------------------------------------------------------------------------------------------------------------


NUMBERS = pa.schema([("id", pa.int32()), ("v", pa.int32()), ("s", pa.struct([("a", pa.int32()), ("b", pa.int32())]))])


def ones(count: int = 1, schema: pa.Schema = NUMBERS) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "v": 1, "s": {"a": 1, "b": 1}} for n in range(count)], schema)


@pytest.mark.parametrize(
    ("path", "kind", "says"),
    [
        ("id", pa.int16(), "column id is int and cannot become smallint: types only become wider"),
        ("id", pa.float32(), "int and cannot become float"),
        ("id", pa.decimal128(10, 1), r"int and cannot become decimal\(10,1\)"),
        ("s.a", pa.string(), "column s.a is int and cannot become string"),
        ("s", pa.int64(), "column s is struct.* and cannot become bigint"),
        ("id", pa.list_(pa.int64()), "name the part of it"),
        ("nothing", pa.int64(), "column 'nothing' is not in the table"),
        ("id.element", pa.int64(), "id is integer, which has no fields"),
    ],
)
def test_other_changes_of_types_are_refused_by_name(make: Make, path: str, kind: pa.DataType, says: str) -> None:
    table = make(NUMBERS)
    with pytest.raises(sluice.errors.InvalidRequest, match=says):
        retype(table, path, kind)
    assert table.version == 0


def test_a_type_becomes_wider_only_where_the_table_allows_it(make: Make) -> None:
    table = make(NUMBERS, widens=False)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"set its property delta\.enableTypeWidening to true"):
        retype(table, "id", pa.int64())
    assert table.alter_columns([ColumnChange(("id",), type=pa.int32())]) is None, "it is like that already"
    table.add_feature("typeWidening-preview")
    table.set_properties({"delta.enableTypeWidening": "true"})
    with pytest.raises(sluice.errors.InvalidRequest, match="drop its feature typeWidening-preview with Delta Lake first"):
        retype(table, "id", pa.int64())


@pytest.mark.notices("what-depends-keeps-its-type")
def test_a_column_that_others_depend_on_keeps_its_type(make: Make) -> None:
    generated = pa.field("g", pa.int32(), metadata={"delta.generationExpression": "v + 1"})
    table = make(pa.schema([*NUMBERS, generated]), properties={"delta.constraints.small": "s.A < 10"})
    for path, what in (("v", r"generated column g \(v \+ 1\)"), ("s.a", r"constraint small \(s\.A < 10\)")):
        with pytest.raises(sluice.errors.InvalidRequest, match=f"type of column {path} cannot change: the {what} depends on it"):
            retype(table, path, pa.int64())
        column = path[0]
        wider = pa.int64() if column == "v" else pa.struct([("a", pa.int64()), ("b", pa.int32())])
        value = 1 if column == "v" else {"a": 1, "b": 1}
        with pytest.raises(sluice.errors.InvalidRequest, match=f"type of column {path} cannot change"):
            table.append(pa.table({column: pa.array([value], wider)}), merge_schema=True)
    retype(table, "s.b", pa.int64())
    retype(table, "id", pa.int64())
    table.unset_properties(["delta.constraints.small"])
    retype(table, "s.a", pa.int64())


def test_partitions_whose_texts_are_compared_keep_their_type(make: Make) -> None:
    policy = {"sluice.conflictPolicy": "maxcompute-table"}
    table = make(NUMBERS, partition_by=["id"], properties=policy)
    with pytest.raises(sluice.errors.InvalidRequest, match="compares partitions by the texts of their values"):
        retype(table, "id", pa.int64())
    retype(table, "v", pa.int64())


def test_a_type_and_other_parts_of_a_column_change_together(make: Make) -> None:
    table = make(NUMBERS)
    table.append(ones())
    changes = [
        ColumnChange(("v",), comment="wide", first=True, default="7", type=pa.int64()),
        ColumnChange(("v",), type=pa.decimal128(22, 2)),
    ]
    table.alter_columns(changes)
    field = table.struct.fields[0]
    assert (field.name, str(field.type), field.metadata["comment"]) == ("v", "decimal(22,2)", "wide")
    steps = [(each["fromType"], each["toType"]) for each in field.metadata[CHANGES_KEY]]
    assert steps == [("integer", "long"), ("long", "decimal(22,2)")]
    assert table.snapshot().raw.protocol.writer_features == tuple(
        sorted({*(table.snapshot().raw.protocol.writer_features or ()), "typeWidening", "allowColumnDefaults"})
    )
    [last] = table.history(limit=1)
    assert last.operation == "CHANGE COLUMN"
    assert table.snapshot().to_arrow()["v"].to_pylist() == [Decimal("1.00")]


# -- beside others -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["plan", "transaction", "append"])
def test_who_appends_narrower_values_commits_after_the_change(make: Make, way: str) -> None:
    table = make(NUMBERS, partition_by=["v"])
    other = sluice.Table.open(table.location, coordinator=str(table.access.address.coordinator))
    plan, begun = table.plan_write(NUMBERS), table.begin_append()
    files = plan.write(ones(2))
    by_another(lambda: retype(other, "id", pa.int64()))
    by_another(lambda: retype(other, "v", pa.decimal128(12, 2)))
    if way == "plan":
        table.commit_write(plan, files)
    elif way == "transaction":
        begun.append(ones(2))
        begun.commit()
    else:
        table.append(ones(2))
    other.append(pa.Table.from_pylist([{"id": 2**40, "v": Decimal("1.00")}], other.refresh().schema))
    found = other.snapshot().to_arrow(where="v = 1").to_pylist()
    assert sorted(each["id"] for each in found) == [0, 1, 2**40]
    assert [each["id"] for each in other.snapshot().to_arrow(where="id < 1").to_pylist()] == [0]


@pytest.mark.notices("only-appends-ignore-columns")
def test_who_changes_rows_or_columns_starts_again_after_the_change(make: Make) -> None:
    table = make(NUMBERS, properties={"delta.enableDeletionVectors": "true"})
    table.append(ones(3))
    other = sluice.Table.open(table.location, coordinator=str(table.access.address.coordinator))

    def update(part: sluice.Transaction) -> None:
        part.update({"v": "2"}, "id = 1")

    def reading(part: sluice.Transaction) -> None:
        part.append(part.scan())

    def adding(part: sluice.Transaction) -> None:
        part.append(pa.table({"n": [1]}), merge_schema=True)

    kinds = iter((pa.int64(), pa.decimal128(20, 0), pa.decimal128(22, 2)))
    for work in (update, reading, adding):
        part = table.begin()
        work(part)
        by_another(partial(retype, other, "v", next(kinds)))
        with pytest.raises(sluice.errors.MetadataChangedException):
            part.commit()
        table.refresh()


def test_nothing_narrower_commits_after_the_type_is_narrow_again(make: Make) -> None:
    table = make(NUMBERS)
    other = sluice.Table.open(table.location, coordinator=str(table.access.address.coordinator))
    plan = table.plan_write(NUMBERS)
    files = plan.write(ones(2))
    by_another(lambda: retype(other, "v", pa.int64()))
    new = pa.table({"v": pa.array([1], pa.int64())})
    by_another(lambda: other.overwrite(new, overwrite_schema=True))
    assert CHANGES_KEY not in other.refresh().struct.named("v").metadata, "all files have the type"
    with pytest.raises(sluice.errors.MetadataChangedException):
        table.commit_write(plan, files)


def test_writers_go_on_while_types_become_wider(make: Make, tmp_path: Path, zookeeper_address: str) -> None:
    writers, each = 4, 8
    table = sluice.Table.create(tmp_path / "many", NUMBERS, properties=WIDENS, coordinator=zookeeper_address)
    chain = [pa.int64(), pa.decimal128(20, 0), pa.decimal128(22, 2)]

    def write(number: int) -> None:
        mine = sluice.Table.open(table.location, coordinator=zookeeper_address)
        plans = [mine.plan_write(NUMBERS) for _ in range(each)]  # all of them made before the first change
        ready.wait(30)
        for step, plan in enumerate(plans):
            rows = pa.Table.from_pylist([{"id": number * each + step, "v": step}], NUMBERS)
            mine.commit_write(plan, plan.write(rows))

    ready = threading.Barrier(writers + 1)
    with ThreadPoolExecutor(writers) as pool:
        running = [pool.submit(write, number) for number in range(writers)]
        ready.wait(30)
        for kind in chain:
            retype(table, "v", kind)
        for one in running:
            one.result(60)
    found = table.refresh().snapshot().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(writers * each))
    assert found.schema.field("v").type == chain[-1]
    assert table.snapshot().to_arrow(where="v = 3").num_rows == writers


# -- the rest of a table's life ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}])
def test_the_life_of_a_table_with_wider_types(make: Make, tmp_path: Path, properties: dict[str, str]) -> None:
    schema = pa.schema([("id", pa.int32()), ("d", pa.date32()), ("f", pa.float32())])
    table = make(schema, properties={"delta.enableChangeDataFeed": "true", **properties})
    day = dt.date(2024, 1, 1)
    table.append(pa.Table.from_pylist([{"id": n, "d": day, "f": 0.5} for n in range(4)], schema))
    table.update({"f": "f + 1"}, "id = 3")  # version 2 has change data of the narrower types
    for name, kind in (("id", pa.int64()), ("d", pa.timestamp("us")), ("f", pa.float64())):
        retype(table, name, kind)
    midnight = dt.datetime.combine(day, dt.time())
    old = [(0, midnight, 0.5), (1, midnight, 0.5), (2, midnight, 0.5), (3, midnight, 1.5)]

    def rows(of: pa.Table) -> list[tuple[Any, ...]]:
        return sorted((each["id"], each["d"], each["f"]) for each in of.to_pylist())

    assert rows(table.snapshot().to_arrow()) == old
    changes = table.changes(0, 5)
    assert changes.schema.field("d").type == pa.timestamp("us")
    assert [(each["id"], each["f"], each["_change_type"]) for each in changes.to_pylist() if each["_commit_version"] == 2] == [
        (3, 0.5, "update_preimage"),
        (3, 1.5, "update_postimage"),
    ]
    table.delete("id = 0")
    table.update({"f": "f + 0.1"}, "d = '2024-01-01' AND id = 1")
    late = {"id": 2**40, "d": dt.datetime.combine(day, dt.time(5)), "f": 1e300}
    table.upsert(pa.Table.from_pylist([{"id": 2, "d": midnight, "f": 9.0}, late], table.schema), on=["id"])
    expected = [(1, midnight, 0.6), (2, midnight, 9.0), (3, midnight, 1.5), (2**40, late["d"], 1e300)]
    assert rows(table.snapshot().to_arrow()) == expected
    copy = table.clone(tmp_path / "copy")
    assert rows(copy.snapshot().to_arrow()) == expected
    table.compact("major")
    assert rows(table.snapshot().to_arrow()) == expected
    assert rows(table.snapshot(2).to_arrow()) == [(a, day, c) for a, _, c in old], "versions from before have the types from before"
    table.restore(2)
    assert table.schema.field("id").type == pa.int32()
    assert rows(table.snapshot().to_arrow()) == [(a, day, c) for a, _, c in old]
    table.restore(5)
    assert rows(table.snapshot().to_arrow()) == old


def test_a_table_with_such_columns_has_the_feature(make: Make) -> None:
    table = retype(make(NUMBERS), "s.a", pa.int64())
    like = make(NUMBERS, widens=False, name="like")
    like.replace(table.struct)
    assert "typeWidening" in (like.snapshot().raw.protocol.reader_features or ())
    like.append(ones(1, like.schema))
    assert like.snapshot().to_arrow().to_pylist() == ones(1, like.schema).to_pylist()


def test_a_new_column_of_moments_without_a_zone_adds_their_feature(make: Make) -> None:
    table = make(NUMBERS, widens=False)
    table.append(pa.table({"at": pa.array([0], pa.timestamp("us"))}), merge_schema=True)
    assert "timestampNtz" in (table.snapshot().raw.protocol.reader_features or ())


def test_statistics_are_taken_from_files_of_the_narrower_type(make: Make) -> None:
    table = make(pa.schema([("d", pa.date32()), ("i", pa.int32())]), properties={"delta.dataSkippingNumIndexedCols": "0"})
    table.append(pa.table({"d": [dt.date(2024, 1, 1)], "i": [5]}, schema=table.schema))
    retype(table, "d", pa.timestamp("us"))
    retype(table, "i", pa.decimal128(12, 2))
    table.analyze(["d", "i"])
    [stats] = table.snapshot().raw.files["stats"].to_pylist()
    assert '"minValues":{"d":"2024-01-01T00:00:00.000","i":5.00}' in stats
    assert table.snapshot().to_arrow(where="d = '2024-01-01' AND i = 5").num_rows == 1


# -- by itself -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=[f"{old}-{new}" for old, new in PAIRS])
def test_rows_of_a_wider_type_make_the_column_wider(make: Make, number: int) -> None:
    (old, new), narrow, wider = PAIRS[number], NARROW[number], WIDE[number]
    table = make(pa.schema([("c", narrow), ("s", pa.struct([("l", pa.list_(narrow))]))]))
    small, value = VALUES[old][2], wide(VALUES[old][2], new)
    table.append(pa.table({"c": [small], "s": [{"l": [small]}]}, schema=table.schema))
    schema = pa.schema([("c", wider), ("s", pa.struct([("l", pa.list_(wider))]))])
    data = pa.table({"c": [value], "s": [{"l": [value]}]}, schema=schema)
    by_itself = not (old in ("byte", "short", "integer", "long") and new.startswith("d"))
    if by_itself:
        table.append(data, merge_schema=True)
        assert table.schema.field("c").type == wider
        [inner] = table.struct.named("s").type.fields  # type: ignore[union-attr]
        assert inner.metadata[CHANGES_KEY] == [{"fromType": old, "toType": new, "fieldPath": "element"}]
        if new == "timestamp_ntz":
            assert "timestampNtz" in (table.snapshot().raw.protocol.reader_features or ())
        assert table.snapshot().to_arrow().to_pylist() == [{"c": value, "s": {"l": [value]}}] * 2
    elif new == "double":
        with pytest.raises(sluice.errors.SchemaMismatch, match="changes no type"):
            table.append(data, merge_schema=True)
    else:
        table.append(data, merge_schema=True)
        assert table.schema.field("c").type == narrow
    assert table.snapshot().raw.metadata.schema_string.count(CHANGES_KEY) == (2 if by_itself else 0)


def test_narrower_rows_leave_the_types_as_they_are_also_where_columns_are_added(make: Make) -> None:
    table = make(pa.schema([("d", pa.timestamp("us")), ("f", pa.float64())]))
    late = pa.table({"d": [dt.date(2024, 1, 1)], "f": pa.array([0.5], pa.float32()), "n": [1]})
    table.append(late, merge_schema=True)
    assert table.schema == pa.schema([("d", pa.timestamp("us")), ("f", pa.float64()), ("n", pa.int64())])
    assert CHANGES_KEY not in table.snapshot().raw.metadata.schema_string


def test_types_become_wider_by_themselves_only_where_the_table_allows_it(make: Make) -> None:
    table = make(NUMBERS, widens=False)
    table.append(pa.table({"v": pa.array([1], pa.int64())}), merge_schema=True)
    assert table.schema == NUMBERS
    table.set_properties(WIDENS)
    table.append(pa.table({"v": pa.array([1], pa.int64())}))
    assert table.schema == NUMBERS, "nobody asked for another schema"
    table.append(pa.table({"v": pa.array([2**40], pa.int64()), "n": ["x"]}), merge_schema=True)
    assert [str(each.type) for each in table.struct.fields] == ["integer", "long", "struct<a: integer, b: integer>", "string"]
    with table.begin() as part:
        part.append(pa.table({"id": pa.array([2**40], pa.int64())}), merge_schema=True)
        part.update({"id": "id + 1"}, "v = 1")
        part.append(pa.table({"v": pa.array([1], pa.decimal128(20, 0)), "id": [7]}), merge_schema=True)
    assert table.schema.field("id").type == pa.int64()
    assert sorted(map(str, table.snapshot().to_arrow()["id"].to_pylist())) == sorted(map(str, [None, None, None, 2**40, 7]))
