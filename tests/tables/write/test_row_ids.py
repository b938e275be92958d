"""Rows keep their ids: whatever changes a row or moves it to another file, as long as it is in the table."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sluice
from sluice.storage.errors import InvalidRequest, SchemaMismatch
from tests.storage.strategies import examples

SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("v", pa.int64())])
ROWS = "delta.enableRowTracking"
VECTORS = "delta.enableDeletionVectors"
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"


def made(properties: Mapping[str, str] | None = None, schema: pa.Schema = SCHEMA) -> sluice.Table:
    name = uuid.uuid4().hex
    told = {ROWS: "true", **(properties or {})}
    return sluice.Table.create(f"memory://{name}", schema, partition_by=["p"], coordinator=f"memory://{name}", properties=told)


def rows(*keys: int, v: int = 0) -> pa.Table:
    return pa.table({"k": keys, "p": [k % 2 for k in keys], "v": [v] * len(keys)}, schema=SCHEMA)


def ids_of(table: sluice.Table, version: int | None = None) -> dict[int, tuple[int, int]]:
    """The id and the commit version of each row, by its key."""
    found = table.refresh().snapshot(version).to_arrow(["k"], row_ids=True).to_pylist()
    assert len({row["_row_id"] for row in found}) == len(found), "an id was given twice"
    return {row["k"]: (row["_row_id"], row["_row_commit_version"]) for row in found}


def preserved(table: sluice.Table) -> Any:
    info = table.refresh().snapshot().raw.commit_info
    assert info is not None
    return info.fields["tags"]["delta.rowTracking.preserved"]


# -- a model -----------------------------------------------------------------------------------------------------------


@dataclass
class Lived:
    """A table, and for each version the rows' values by key, and their ids and commit versions."""

    table: sluice.Table
    values: list[dict[int, tuple[int, int]]] = field(default_factory=lambda: [{}])
    known: list[dict[int, tuple[int, int]]] = field(default_factory=lambda: [{}])
    following: int = 0

    def new_keys(self, count: int) -> list[int]:
        self.following += count
        return list(range(self.following - count, self.following))

    def see(self, commit: sluice.Commit | None, values: dict[int, tuple[int, int]], changed: set[int]) -> None:
        """Compare the table after a commit with these values; `changed` rows have its version, all others what they had."""
        if commit is None:
            assert values == self.values[-1]
            return
        before, found = self.known[-1], ids_of(self.table)
        assert found.keys() == values.keys()
        used = {row_id for version in self.known for row_id, _ in version.values()}
        for key, (row_id, version) in found.items():
            if key in before:
                assert row_id == before[key][0], f"row {key} has another id"
                assert version == (commit.version if key in changed else before[key][1]), f"row {key}"
            else:
                assert row_id not in used, f"row {key} has an id that another row had"
                assert version == commit.version
        assert {r["k"]: (r["p"], r["v"]) for r in self.table.snapshot().to_arrow().to_pylist()} == values
        assert preserved(self.table) == "true"
        self.values.append(values)
        self.known.append(found)

    def append(self, count: int) -> None:
        new = self.new_keys(count)
        self.see(self.table.append(rows(*new)), self.values[-1] | {k: (k % 2, 0) for k in new}, set())

    def update(self, rest: int, moves: bool) -> None:
        values = self.values[-1]
        hit = {k for k in values if k % 4 == rest}
        commit = self.table.update({"v": "v + 1", **({"p": "1 - p"} if moves else {})}, f"k % 4 = {rest}")
        new = {k: (1 - values[k][0] if moves else values[k][0], values[k][1] + 1) for k in hit}
        self.see(commit, values | new, hit)

    def delete(self, rest: int) -> None:
        commit = self.table.delete(f"k % 5 = {rest}")
        self.see(commit, {k: row for k, row in self.values[-1].items() if k % 5 != rest}, set())

    def upsert(self, rest: int, count: int) -> None:
        hit = {k for k in self.values[-1] if k % 3 == rest}
        keys = [*hit, *self.new_keys(count)]
        commit = self.table.upsert(rows(*keys, v=7), on="k") if keys else None
        self.see(commit, self.values[-1] | {k: (k % 2, 7) for k in keys}, hit)

    def overwrite(self, rest: int) -> None:
        new = [k for k in self.new_keys(8) if k % 5 == rest]
        commit = self.table.overwrite(rows(*new), where=f"k % 5 = {rest}")
        self.see(commit, {k: row for k, row in self.values[-1].items() if k % 5 != rest} | {k: (k % 2, 0) for k in new}, set())

    def compact(self, how: str) -> None:
        options: dict[str, Any] = {"z_order_by": "v"} if how == "z" else {"mode": how}
        self.see(self.table.compact(**options), self.values[-1], set())

    def several(self, rest: int) -> None:
        """One transaction, in which rows change twice and new ones come and go."""
        values, new = self.values[-1], self.new_keys(3)
        hit = {k for k in values if k % 4 == rest}
        with self.table.begin() as begun:
            begun.append(rows(*new))
            begun.update({"v": "v + 1"}, f"k % 4 = {rest}")
            begun.upsert(rows(*hit, new[0], v=9), on="k")
            begun.delete(f"k = {new[1]}")
        after = values | {k: (k % 2, 9) for k in (*hit, new[0])}
        after |= {new[2]: (new[2] % 2, 1 if new[2] % 4 == rest else 0)}
        self.see(begun.commit(), after, hit)

    def restore(self, back: int) -> None:
        to = max(1, len(self.known) - 1 - back)
        if to >= len(self.known) - 1:
            return
        commit = self.table.restore(to)
        if commit is None:
            assert self.values[to] == self.values[-1]
            return
        assert ids_of(self.table) == self.known[to]
        self.values.append(self.values[to])
        self.known.append(self.known[to])


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("update"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("delete"), st.integers(0, 4)),
    st.tuples(st.just("upsert"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("overwrite"), st.integers(0, 4)),
    st.tuples(st.just("compact"), st.sampled_from(["minor", "major", "z"])),
    st.tuples(st.just("several"), st.integers(0, 3)),
    st.tuples(st.just("restore"), st.integers(1, 3)),
)
SETTINGS = st.sets(st.sampled_from([VECTORS, "delta.enableChangeDataFeed"]))


@pytest.mark.costly
@examples(60)
@given(SETTINGS, st.lists(OPERATIONS, min_size=2, max_size=9))
def test_rows_keep_their_ids_through_any_operations(settings: set[str], operations: list[tuple[Any, ...]]) -> None:
    lived = Lived(made(dict.fromkeys(settings, "true")))
    lived.append(9)
    for name, *arguments in operations:
        getattr(lived, name)(*arguments)
    for version, known in enumerate(lived.known):
        assert ids_of(lived.table, version) == known


# -- single facts ------------------------------------------------------------------------------------------------------


def copied(place: Path, **properties: str) -> sluice.Table:
    """A table on disk whose rows were all copied: one updated, the others by a compaction."""
    table = sluice.Table.create(place / "t", SCHEMA, coordinator=f"memory://{uuid.uuid4().hex}", properties={ROWS: "true", **properties})
    table.append(rows(1, 2, 3))
    table.append(rows(4, 5))
    table.update({"v": "1"}, "k = 2")
    table.compact()
    return table


def test_files_carry_the_ids_of_copied_rows_beside_the_schema(tmp_path: Path) -> None:
    table = copied(tmp_path)
    [add] = table.snapshot().raw.add_files()
    names = [table.properties[key] for key in (ID_COLUMN, VERSION_COLUMN)]
    assert pq.read_schema(tmp_path / "t" / add.path).names == [*SCHEMA.names, *names]
    assert not any(name in str(add.stats) for name in names)
    assert add.base_row_id == 8, "new files have ids of their own, which these rows do not use"
    assert ids_of(table) == {1: (0, 1), 2: (1, 3), 3: (2, 1), 4: (3, 2), 5: (4, 2)}
    table.append(rows(6))
    assert ids_of(table)[6] == (13, 5)
    [added] = [each for each in table.snapshot().raw.add_files() if each.path != add.path]
    assert pq.read_schema(tmp_path / "t" / added.path).names == SCHEMA.names


def test_other_readers_do_not_see_the_columns(tmp_path: Path) -> None:
    table = copied(tmp_path)
    ours = sorted(table.snapshot().to_arrow().to_pylist(), key=repr)
    assert table.snapshot().to_arrow().schema.names == SCHEMA.names
    theirs = pl.read_delta(table.location).to_arrow()
    assert (theirs.schema.names, sorted(theirs.to_pylist(), key=repr)) == (SCHEMA.names, ours)
    builder: Any = deltalake.QueryBuilder
    found = pa.table(builder().register("t", deltalake.DeltaTable(table.location)).execute("SELECT * FROM t").read_all())
    assert sorted(found.to_pylist(), key=repr) == ours


def test_ids_are_read_in_batches_and_beside_chosen_columns(tmp_path: Path) -> None:
    snapshot = copied(tmp_path).snapshot()
    batches = pa.Table.from_batches(list(snapshot.to_batches(["v"], "k > 1 AND k < 5", row_ids=True)))
    assert batches.schema.names == ["v", "_row_id", "_row_commit_version"]
    assert batches.equals(snapshot.to_arrow(["v"], "k > 1 AND k < 5", row_ids=True))
    assert sorted(batches["_row_id"].to_pylist()) == [1, 2, 3]
    assert snapshot.to_arrow([], row_ids=True).num_rows == 5


def test_of_several_rows_with_one_key_the_first_gives_its_id() -> None:
    table = made()
    table.append(rows(2, 4, 2))
    table.upsert(rows(2, v=5), on="k")
    assert ids_of(table) == {2: (0, 2), 4: (1, 1)}


def test_a_table_with_a_primary_key_keeps_ids() -> None:
    properties = {"sluice.conflictPolicy": "maxcompute-delta", "sluice.primaryKey": "k", VECTORS: "true"}
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), *list(SCHEMA)[1:]])
    table = made(properties, schema)
    table.append(rows(1, 2).cast(schema))
    table.append(rows(2, 3, v=1).cast(schema))
    assert ids_of(table) == {1: (0, 1), 2: (1, 2), 3: (3, 2)}
    assert preserved(table) == "true"


@pytest.mark.parametrize("first", ["update", "compact"])
def test_rows_that_a_compaction_moves_meanwhile_keep_their_ids(first: str) -> None:
    table = made({VECTORS: "true"})
    table.append(rows(*range(6)))
    table.append(rows(*range(6, 12)))
    table.update({"v": "1"}, "k = 4")
    before = ids_of(table)
    with table.begin() as late:
        if first == "update":
            late.compact("major")
            other = table.update({"v": "2"}, "k % 3 = 1")
        else:
            late.update({"v": "2"}, "k % 3 = 1")
            other = table.compact("major")
    updated = other if first == "update" else late.commit()
    assert updated is not None
    assert ids_of(table) == {k: (row_id, updated.version if k % 3 == 1 else at) for k, (row_id, at) in before.items()}
    assert preserved(table) == "true"


@pytest.mark.parametrize("ask", ["to_arrow", "to_batches"])
def test_tables_whose_rows_keep_no_ids_say_so(ask: str) -> None:
    for properties in ({ROWS: "false"}, {ROWS: "false", "delta.feature.rowTracking": "supported"}):
        with pytest.raises(InvalidRequest, match=r"delta\.enableRowTracking is not true"):
            getattr(made(properties).snapshot(), ask)(row_ids=True)
    named = made(schema=pa.schema([*SCHEMA, ("_row_id", pa.int64())]))
    with pytest.raises(InvalidRequest, match="_row_id"):
        getattr(named.snapshot(), ask)(row_ids=True)


@pytest.mark.notices("lost-row-ids-are-told")
def test_tables_whose_rows_keep_no_ids_copy_rows_as_before(tmp_path: Path) -> None:
    table = copied(tmp_path, **{ROWS: "false", "delta.feature.rowTracking": "supported"})
    [add] = table.snapshot().raw.add_files()
    assert pq.read_schema(tmp_path / "t" / add.path).names == SCHEMA.names
    assert preserved(table) == "false"
    table.append(rows(9))
    assert preserved(table) == "true"
    table.upsert(rows(9, 10), on="k")
    assert preserved(table) == "false"
    table.upsert(rows(11), on="k")
    assert preserved(table) == "true"
    table.overwrite(rows(1))
    assert preserved(table) == "true"


def test_no_column_of_the_table_gets_the_name_of_one_of_ids() -> None:
    table = made()
    taken = table.properties[ID_COLUMN].upper()
    more = rows(1).append_column(taken, pa.array([5], pa.int64()))
    with pytest.raises(SchemaMismatch, match="reserved for the rows' ids"):
        table.append(more, merge_schema=True)
    with pytest.raises(SchemaMismatch, match="which the table lacks"):
        table.append(more)
    with pytest.raises(SchemaMismatch, match="reserved for the rows' ids"):
        table.overwrite(more, overwrite_schema=True)
    assert table.refresh().version == 0


def test_a_replaced_clone_gives_no_id_twice(tmp_path: Path) -> None:
    source = copied(tmp_path)
    coordinator = f"memory://{uuid.uuid4().hex}"
    clone = source.clone(tmp_path / "clone", coordinator=coordinator)
    assert ids_of(clone) == ids_of(source), "a clone's rows have the ids of the original's"
    clone.append(rows(6, 7))
    source.append(rows(*range(50, 60)))
    source.append(rows(*range(20, 40)))
    source.update({"v": "9"}, "k BETWEEN 30 AND 40")
    again = source.clone(tmp_path / "clone", replace=True, coordinator=coordinator)
    assert ids_of(again).keys() == ids_of(source).keys()
    again.update({"v": "3"})
    assert ids_of(again).keys() == ids_of(source).keys()
