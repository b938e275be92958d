"""Changes against other engines, against the rows of versions, and copies that cancel each other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sluice
from sluice.tables.read.changes import without_copies
from tests.tables.conftest import FLIGHTS, Place, flights, rows_of
from tests.tables.read.test_changes import VECTORS, told


def as_others_tell(table: pa.Table) -> Counter[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in ("id", "p", "_change_type", "_commit_version")]
    return Counter(zip(*columns, strict=True))


def test_the_changes_of_a_feed_are_those_that_delta_rs_tells(tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    rows = pa.table({"id": pa.array(range(20), pa.int64()), "p": [f"p{n % 3}" for n in range(20)]})
    deltalake.write_deltalake(tmp_path, rows, partition_by=["p"], configuration=feed)
    deltalake.write_deltalake(tmp_path, rows.slice(3, 4), mode="append")
    theirs = deltalake.DeltaTable(tmp_path)
    theirs.delete("id = 5")
    theirs.update(updates={"id": "id + 100"}, predicate="id > 16")
    theirs.delete("p = 'p2'")
    ours = sluice.Table.open(tmp_path, consistency="published").changes(-1)
    told_there = pa.table(deltalake.DeltaTable(tmp_path).load_cdf(starting_version=0).read_all())
    assert as_others_tell(ours) == as_others_tell(told_there)
    assert set(ours["_change_type"].to_pylist()) == {"insert", "delete", "update_preimage", "update_postimage"}


def test_delta_rs_tells_the_changes_of_our_feed(place: Place) -> None:
    table = place.create(properties={"delta.enableChangeDataFeed": "true"})
    table.append(flights(*[(origin, 1, delay) for origin in ("JFK", "EWR") for delay in range(6)]))
    table.update({"delay": "delay + 100"}, where="delay > 4")
    table.delete("delay = 3 AND origin = 'JFK'")
    table.delete("origin = 'EWR'")
    table.overwrite(flights(("LGA", 2, 1)))
    ours, theirs = table.changes(-1), pa.table(deltalake.DeltaTable(place.location).load_cdf(starting_version=0).read_all())
    names = [*FLIGHTS.names, "_change_type", "_commit_version"]
    assert rows_of(ours.select(names)) == rows_of(theirs.select(names))
    assert [path.name for path in Path(place.location, "_change_data").rglob("*.parquet")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "properties", [{}, VECTORS, {"delta.enableChangeDataFeed": "true"}, {**VECTORS, "delta.enableChangeDataFeed": "true"}]
)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_changes_lead_from_any_version_to_any_later_one(place: Place, properties: dict[str, str], seed: int) -> None:
    """A random history: what a version held, less what was deleted, plus what was inserted, is what a later one holds."""
    chance = random.Random(seed)
    table = place.create(properties=properties, partition_by=chance.choice([[], ["origin"]]))
    table.append(flights(*[(chance.choice(["JFK", "EWR"]), 1, chance.randrange(9)) for _ in range(20)]))

    def some() -> pa.Table:
        return flights(*[(chance.choice(["JFK", "EWR"]), chance.randrange(3), chance.randrange(9)) for _ in range(chance.randrange(1, 6))])

    steps: list[Callable[[], object]] = [
        lambda: table.append(some()),
        lambda: table.delete(f"delay = {chance.randrange(9)}"),
        lambda: table.update({"delay": "delay + 1"}, where=f"delay = {chance.randrange(9)}"),
        lambda: table.compact(chance.choice(["minor", "major"])),
        lambda: table.overwrite(some().filter(pa.compute.field("origin") == "JFK"), where="origin = 'JFK'"),
    ]
    for _ in range(12):
        chance.choice(steps)()
    held = [Counter(rows_of(table.snapshot(version).to_arrow())) for version in range(table.refresh().version + 1)]
    told_rows = [(kind, version, row[:3]) for kind, version, row in told(table.changes(-1))]
    signs = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
    for after in range(len(held)):
        state = Counter(held[after])
        for version in range(after + 1, len(held)):
            for kind, at, row in told_rows:
                if at == version:
                    state[row] += signs[kind]
            assert +state == held[version]
            assert min(state.values(), default=0) >= 0
    assert {version for _, version, _ in told_rows} == {
        entry.version for entry in table.history(None) if entry.operation not in ("CREATE TABLE", "OPTIMIZE")
    }


def test_polars_reads_what_the_changes_add_up_to(place: Place) -> None:
    table = place.create(properties=VECTORS)
    table.append(flights(*[("JFK", 1, delay) for delay in range(10)]))
    table.delete("delay % 3 = 0")
    found = table.changes(-1)
    left = Counter(found.filter(pa.compute.field("_change_type") == "insert")["delay"].to_pylist())
    left.subtract(found.filter(pa.compute.field("_change_type") == "delete")["delay"].to_pylist())
    assert sorted(left.elements()) == sorted(pl.read_delta(place.location)["delay"].to_list())


# -- rows that were only copied ------------------------------------------------------------------------------------------

ROWS = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("d", pa.list_(pa.struct([("x", pa.int32())]))),
    ]
)


a_row = st.fixed_dictionaries(
    {
        "a": st.sampled_from([None, 1, 2]),
        "b": st.sampled_from([None, ""]),
        "c": st.sampled_from([None, 0.5, float("nan")]),
        "d": st.sampled_from([None, [], [{"x": 1}], [None]]),
    }
)


@given(st.lists(a_row, max_size=12), st.lists(a_row, max_size=12), st.integers(0, 3))
def test_copies_cancel_each_other(deleted: list[dict[str, Any]], inserted: list[dict[str, Any]], chunk: int) -> None:
    tables = [pa.Table.from_pylist(rows, ROWS) for rows in (deleted, inserted)]
    tables = [pa.concat_tables([each.slice(0, chunk), each.slice(chunk)]) for each in tables]
    found = [[repr(row) for row in each.to_pylist()] for each in without_copies(*tables)]
    given_rows = [[repr(row) for row in each.to_pylist()] for each in tables]
    before, after = map(Counter, given_rows)
    assert [Counter(rows) for rows in found] == [before - after, after - before]
    for rows, whole in zip(found, given_rows, strict=True):
        left = iter(whole)
        assert all(row in left for row in rows), "what is left keeps its order"
