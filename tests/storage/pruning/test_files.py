"""Ranges that hold the keys of some rows.

Partition values of many files at once give what looking each of them up gives, and are decoded for the files that are read next.
What the log says about files is read once: for a snapshot's table of files, and for the columns that are asked for again.
"""

from __future__ import annotations

import datetime as dt
import gc
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions.filetable import TEXT_MAP, add_rows
from sluice.storage.data import scan
from sluice.storage.errors import MissingObject
from sluice.storage.expressions.nodes import Column
from sluice.storage.pruning import files
from sluice.storage.pruning.files import ranges_of
from sluice.storage.schema import partitions
from sluice.storage.schema.datatypes import PrimitiveType, StructField, StructType
from sluice.storage.schema.partitions import partition_texts
from tests.storage.data.reading import iter_files, read_files
from tests.storage.logs import add, new_store

_INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([7], [(7, 7)], id="one value"),
        pytest.param([5, 1, 3, 2, 4], [(1, 5)], id="neighbours in any order"),
        pytest.param([1, 2, 3, 1_000_000, 1_000_001], [(1, 3), (1_000_000, 1_000_001)], id="old keys and new ones"),
        pytest.param([*range(1000), 1010], [(0, 1010)], id="a gap too small to help"),
        pytest.param([-(2**63), 2**63 - 1], [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)], id="whole 64 bits"),
        pytest.param(["a", "z"], [("a", "z")], id="texts have no distances"),
        pytest.param(
            [dt.date(2020, 1, 1), dt.date(2026, 1, 1), dt.date(2026, 1, 2)],
            [(dt.date(2020, 1, 1), dt.date(2020, 1, 1)), (dt.date(2026, 1, 1), dt.date(2026, 1, 2))],
            id="dates",
        ),
    ],
)
def test_ranges_of_values(values: list[Any], expected: list[Any]) -> None:
    found = pa.array(values)
    assert ranges_of(found, found) == expected


def test_the_widest_of_many_gaps_are_left_out() -> None:
    values = pa.array([number * number for number in range(40)])
    found = ranges_of(values, values)
    assert len(found) == 16
    assert found[0] == (0, 24 * 24)  # the gaps grow
    assert found[1:] == [(number * number, number * number) for number in range(25, 40)]


def test_parts_that_overlap_are_one_range() -> None:
    lows, highs = pa.array([0, 50, 100_000, 10]), pa.array([100, 60, 100_005, 70])
    assert ranges_of(lows, highs) == [(0, 100), (100_000, 100_005)]


@given(st.lists(st.tuples(_INT64, _INT64).map(sorted), min_size=1, max_size=60))
def test_each_part_lies_in_one_range_and_ranges_are_apart(parts: list[list[int]]) -> None:
    found = ranges_of(*(pa.array(side, pa.int64()) for side in zip(*parts, strict=True)))
    assert len(found) <= 16
    assert all(before[1] < after[0] for before, after in pairwise(found))
    assert all(any(low <= part[0] and part[1] <= high for low, high in found) for part in parts)
    assert {low for low, _ in found} <= {low for low, _ in parts}
    assert {high for _, high in found} <= {high for _, high in parts}


NAMES = ["a", "b", "c", "d"]
VALUES = st.sampled_from([None, "", "x", "y"])
ALIKE = st.lists(st.sampled_from(NAMES), unique=True).flatmap(
    lambda names: st.lists(st.tuples(*(VALUES for _ in names)).map(lambda values: list(zip(names, values, strict=True))), max_size=5)
)
ANY = st.lists(st.none() | st.dictionaries(st.sampled_from(NAMES), VALUES).map(lambda values: list(values.items())), max_size=5)


@given(st.lists(ALIKE | ANY, max_size=3), st.integers(0, 3), st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
def test_columns_are_what_each_look_up_gives(chunks: list[list[Any]], skipped: int, names: list[str]) -> None:
    maps = pa.chunked_array([pa.array(chunk, TEXT_MAP).slice(skipped) for chunk in chunks], TEXT_MAP)
    expected = [pc.map_lookup(maps, name, "first").to_pylist() for name in names]
    assert [column.to_pylist() for column in partition_texts(maps, names)] == expected


def test_a_missing_file_is_named_before_all_partition_values_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = partitions.decode_column

    def counting(texts: pa.Array, kind: PrimitiveType) -> pa.Array:
        decoded.append(len(texts))
        return decode(texts, kind)

    monkeypatch.setattr(scan, "decode_column", counting)
    values = {f"p{number}": "1" for number in range(20)}
    files = add_rows([add(f"f{number}.parquet", partition_values=values) for number in range(20_000)])
    schema = StructType([StructField(name, PrimitiveType("integer")) for name in (*values, "id")])
    store = new_store()
    for read in (read_files, iter_files):
        decoded.clear()
        with pytest.raises(MissingObject, match=r"f0\.parquet"):
            list(read(store, files, schema=schema, partition_columns=list(values)))
        assert 0 < sum(decoded) <= 5000 * len(values)


def test_what_is_known_of_a_table_of_files_lives_as_long_as_the_table() -> None:
    def table() -> pa.Table:
        maps = pa.array([{}] * 300, pa.map_(pa.string(), pa.string()))
        stats = [f'{{"numRecords":1,"minValues":{{"a":{n},"b":{n}}}}}' for n in range(300)]
        return pa.table({"partition_values": maps, "stats": stats})

    first = table()
    known = files.Files.of_table(first)
    assert files.Files.of_table(first) is known
    assert files.Files.of_table(table()) is not known
    key = id(first)
    assert key in files._of_tables
    del first
    gc.collect()
    assert key not in files._of_tables


def test_columns_beyond_the_limit_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = [f'{{"numRecords":1,"minValues":{{"a":{n},"b":{-n}}}}}' for n in range(300)]
    known = files.Files([{}] * 300, stats)
    monkeypatch.setattr(files, "_KEPT_BYTES_MAX", 0)
    low = {name: Column((files.LOW, name), pa.int64()) for name in "ab"}
    for _ in range(2):
        for name, sign in (("a", 1), ("b", -1)):
            assert known.columns([low[name]], {})(low[name]).to_pylist() == [sign * n for n in range(300)]
            assert set(known._columns) == {low[name]}


@pytest.mark.notices("floats-under-a-double")
@pytest.mark.parametrize("count", [1, 1000])
def test_bounds_of_a_double_hold_for_floats_written_as_their_shortest_text(count: int) -> None:
    """Delta Lake writes 0.1 for the float nearest to it; as a double that is 0.10000000149011612, and its bound must not be less."""
    kind, path = pa.float64(), "x"
    sides = [Column((side, path), kind) for side in (files.LOW, files.HIGH)]
    for texts, value in ((("0.1", "0.1"), 0.10000000149011612), (("-0.3", "-0.3"), -0.30000001192092896), (("1e300", "1e300"), 1e300)):
        low, high = texts
        stats = f'{{"numRecords":1,"minValues":{{"x":{low}}},"maxValues":{{"x":{high}}},"nullCount":{{"x":0}}}}'
        column = files.Files([{}] * count, [stats] * count).columns(sides, {})
        found = [column(side)[count - 1].as_py() for side in sides]
        assert found[0] <= float(low) <= found[1], "those of doubles"
        assert found[0] <= value <= found[1]
        assert found[1] - found[0] <= abs(value) * 2**-23, "and little more"
