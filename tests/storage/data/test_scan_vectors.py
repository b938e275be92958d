"""Rows that deletion vectors hide, and where the other rows stand: for every cut into row groups, batches and predicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import AddFile, DeletionVector
from sluice.storage.actions.filetable import add_rows
from sluice.storage.actions.records import wide
from sluice.storage.data import scan
from sluice.storage.data.scan import TableScan
from sluice.storage.data.vectors import Rows, plan_vector
from sluice.storage.errors import BadChecksum, Corrupt, PredicateError
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import PrimitiveType, StructField, StructType, to_arrow
from sluice.storage.stores.memory import MemoryStore
from tests.storage.data.reading import iter_files, parquet_of, read_files, read_positions, row_groups_read, threads_left
from tests.storage.logs import new_store, statistics_of
from tests.storage.strategies import unhurried

SCHEMA = StructType(
    [StructField("x", PrimitiveType("long")), StructField("p", PrimitiveType("string")), StructField("f", PrimitiveType("double"))]
)
Row = Mapping[str, Any]


def put_file(store: MemoryStore, name: str, rows: Sequence[Row], hidden: Rows, *, group_rows: int) -> AddFile:
    """A file of partition `p = name` with these rows in row groups of that size, some of them hidden."""
    table = pa.Table.from_pylist([dict(row) for row in rows], pa.schema([to_arrow(SCHEMA).field(column) for column in ("x", "f")]))
    data = parquet_of(table, row_group_size=group_rows)
    store.put(f"{name}.parquet", data)
    stats = statistics_of(table.append_column("p", pa.nulls(len(rows), pa.string())).select(["x", "p", "f"]), SCHEMA, ["p"])
    vector = put_vector(store, hidden) if hidden else None
    return AddFile(f"{name}.parquet", {"p": name}, len(data), 0, True, stats=wide(stats) if hidden else stats, deletion_vector=vector)


def put_vector(store: MemoryStore, rows: Rows) -> DeletionVector:
    vector, stored = plan_vector(rows, owner="owner")
    if stored is not None:
        store.put(*stored)
    return vector


def reading(where: str | None, columns: Sequence[str] | None = None) -> dict[str, Any]:
    predicate = None if where is None else Predicate.parse(where, SCHEMA)
    return {"schema": SCHEMA, "partition_columns": ["p"], "columns": columns, "predicate": predicate}


def positions(
    store: MemoryStore, files: pa.Table, deleted: Mapping[str, Rows] | None = None, **call: Any
) -> dict[int, list[tuple[int, Any]]]:
    """For every file that has rows of the answer: their positions, and they themselves."""
    found: dict[int, list[tuple[int, Any]]] = {}
    for number, rows, where in read_positions(store, files, deleted=deleted or {}, **call):
        assert where.type == pa.int64()
        assert (len(where), where.null_count) == (rows.num_rows, 0)
        if len(where):
            found[number] = list(zip(where.to_pylist(), rows.to_pylist(), strict=True))
    assert list(found) == sorted(found)
    return found


WHERE = st.sampled_from(
    [None, "x > 3", "x = 5", "x BETWEEN 2 AND 4 AND p = 'b'", "p = 'a'", "x IS NULL", "x > 2 OR p = 'c'", "f > 1.0E0", "1 = 0"]
)
CELLS = st.fixed_dictionaries({"x": st.none() | st.integers(0, 6), "f": st.none() | st.sampled_from([0.0, 2.0, float("inf")])})


@st.composite
def contents(draw: st.DrawFn) -> tuple[list[Row], set[int]]:
    """Rows, often in order so that row groups differ, and the positions of those that are hidden."""
    rows: list[Row] = draw(st.lists(CELLS, max_size=12))
    if draw(st.booleans()):
        rows = sorted(rows, key=lambda row: -1 if row["x"] is None else row["x"])
    return rows, draw(st.sets(st.integers(0, len(rows) - 1))) if rows else set()


@unhurried
@given(st.lists(contents(), min_size=1, max_size=3), st.integers(1, 5), WHERE, st.sampled_from([None, ["x"], ["p"], ["f", "p"], []]))
def test_what_is_read_is_what_is_there_less_what_is_hidden(
    drawn: list[tuple[list[Row], set[int]]], group_rows: int, where: str | None, columns: list[str] | None
) -> None:
    store = new_store()
    try:
        adds = [
            put_file(store, name, rows, Rows(hidden), group_rows=group_rows) for name, (rows, hidden) in zip("abc", drawn, strict=False)
        ]
        files = add_rows(adds)
        plain = add_rows([replace(add, deletion_vector=None) for add in adds])
        call = reading(where, columns)
        # The whole file is read and judged without any pushing down.
        wanted: dict[int, list[tuple[int, Any]]] = {}
        for number, (rows, hidden) in enumerate(drawn):
            whole = pa.Table.from_pylist([{**row, "p": "abc"[number]} for row in rows], to_arrow(SCHEMA))
            mask = [True] * len(rows) if where is None else call["predicate"].mask(whole).to_pylist()
            names = SCHEMA.names if columns is None else columns
            live = [at for at in range(len(rows)) if mask[at] is True and at not in hidden]
            if live:
                wanted[number] = [(at, {name: whole.column(name)[at].as_py() for name in names}) for at in live]
        assert positions(store, files, **call) == wanted
        # Rows in memory stand for the vectors, those without a row too.
        hidden_rows = {add.path: Rows(hidden) for add, (_, hidden) in zip(adds, drawn, strict=True)}
        assert positions(store, plain, hidden_rows, **call) == wanted
        assert positions(store, files, {add.path: Rows() for add in adds}, **call) == positions(store, plain, **call)
        pieces = [
            (number, at)
            for number, _, found in TableScan(store, SCHEMA, ["p"]).positions(files, columns, call["predicate"], in_pieces=True)
            for at in found.to_pylist()
        ]
        assert pieces == [(number, at) for number, listed in wanted.items() for at, _ in listed]
        flat = [row for each in wanted.values() for _, row in each]
        table = read_files(store, files, **call)
        assert (table.num_rows, table.to_pylist() if table.num_columns else flat) == (len(flat), flat)
        batches = list(iter_files(store, files, **call))
        assert sum(batch.num_rows for batch in batches) == len(flat)
        if table.num_columns:
            assert [row for batch in batches for row in batch.to_pylist()] == flat
    finally:
        store.forget()


def numbered(count: int) -> list[Row]:
    return [{"x": number, "f": 0.0} for number in range(count)]


def test_positions_are_those_of_the_file_when_most_of_it_is_not_read(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    files = add_rows([put_file(store, "a", numbered(1000), Rows([255, 999]), group_rows=100)])
    read = row_groups_read(monkeypatch)
    found = positions(store, files, **reading("x BETWEEN 254 AND 256 OR x > 997", ["x"]))
    assert found == {0: [(254, {"x": 254}), (256, {"x": 256}), (998, {"x": 998})]}
    assert read == [[2, 9]]


def test_a_large_vector_of_a_file_in_many_batches(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_BATCH_ROWS", 1000)
    hidden = Rows(number for number in range(20_000) if number % 7 < 3 or 5000 <= number < 9000)
    files = add_rows([put_file(store, "a", numbered(20_000), hidden, group_rows=6000)])
    assert files["deletion_vector"][0]["storage_type"].as_py() == "u"
    batches = list(iter_files(store, files, **reading(None, ["x"])))
    assert [value for batch in batches for value in batch["x"].to_pylist()] == sorted(set(range(20_000)) - set(hidden))


def test_files_are_numbered_as_they_were_given(store: MemoryStore) -> None:
    files = add_rows([put_file(store, name, numbered(3), Rows([1]), group_rows=2) for name in "abcdefg"])
    assert list(positions(store, files, **reading("p IN ('b', 'f')"))) == [1, 5]
    assert list(positions(store, files.slice(2), **reading(None))) == list(range(5))


def test_a_predicate_does_not_stumble_over_hidden_rows(store: MemoryStore) -> None:
    hidden, bare = (put_file(store, name, numbered(6), rows, group_rows=2) for name, rows in (("a", Rows([5])), ("b", Rows())))
    call = reading("10 % (x - 5) = 0", ["x"])
    assert read_files(store, add_rows([hidden]), **call).to_pylist() == [{"x": 0}, {"x": 3}, {"x": 4}]
    with pytest.raises(PredicateError, match="zero"):
        read_files(store, add_rows([bare]), **call)


def test_a_vector_of_another_file_is_noticed(store: MemoryStore) -> None:
    files = add_rows([put_file(store, "a", numbered(3), Rows([3]), group_rows=2)])
    for read in (read_files, lambda *given, **named: list(iter_files(*given, **named))):
        with pytest.raises(Corrupt, match=r"'a\.parquet' hides row 3, but the file has 3 rows"):
            read(store, files, **reading(None))


def test_a_damaged_vector_fails_the_read_and_leaves_no_thread(store: MemoryStore) -> None:
    hidden = Rows(range(0, 20_000, 2))
    files = add_rows([put_file(store, name, numbered(20_000), hidden, group_rows=10_000) for name in "abcdef"])
    key = next(info.key for info in store.list_from("", recursive=True) if info.key.endswith(".bin"))
    content = store.get(key)
    store.put(key, content[:-1] + bytes([content[-1] ^ 1]))
    for read in (read_files, iter_files, read_positions):
        with pytest.raises(BadChecksum):
            list(read(store, files, **reading(None)))
    store.put(key, content)
    pieces = read_positions(store, files, **reading(None))
    assert next(pieces)[0] == 0
    pieces.close()  # type: ignore[attr-defined]
    assert threads_left("sluice-scan") == []
