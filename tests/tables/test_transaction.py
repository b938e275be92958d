"""Open transactions: several operations that see each other, one commit or nothing, and what becomes of either."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sluice
from sluice.coordinator.admission import submission
from sluice.coordinator.service.clock import bounded_s
from sluice.storage.actions import AddFile, RemoveFile
from sluice.storage.actions.codec import decode_commit
from sluice.storage.stores.memory import MemoryStore
from sluice.tables import transaction
from sluice.tables.write.draft import Draft, Finished
from tests.storage.strategies import examples

from .conftest import Place, flights, present, rows_of

VECTORS = {"delta.enableDeletionVectors": "true"}
BOTH = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])


@pytest.fixture(params=[{}, VECTORS], ids=["copies", "vectors"])
def table(place: Place, request: pytest.FixtureRequest) -> sluice.Table:
    """A table with four rows in one file of each of two partitions, in version 1."""
    table = place.create(properties=request.param)
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 2), ("JFK", 1, None), ("EWR", 2, 4)))
    return table


def now(table: sluice.Table) -> list[tuple[Any, ...]]:
    return rows_of(table.refresh().snapshot().to_arrow())


def actions_of(place: Place, version: int) -> list[Any]:
    return list(decode_commit(Path(place.location, "_delta_log", f"{version:020}.json").read_bytes(), name=str(version)))


# -- several operations --------------------------------------------------------------------------------------------------


def test_operations_see_each_other_and_become_one_version(place: Place, table: sluice.Table) -> None:
    other = place.open()
    with table.begin() as begun:
        begun.append(flights(("LGA", 3, 10), ("LGA", 3, 11)))
        begun.delete("delay = 10")
        begun.update({"delay": "delay + 100"}, "origin = 'LGA' OR delay = 2")
        begun.upsert(flights(("EWR", 2, 4), ("EWR", 2, 5)), on="delay")
        expected = [("EWR", 2, 4), ("EWR", 2, 5), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 1, 102), ("LGA", 3, 111)]
        assert rows_of(begun.scan()) == expected
        assert rows_of(begun.scan(["delay"], "delay > 100")) == [(102,), (111,)]
        assert len(now(other)) == 4
    assert now(table) == now(other) == expected
    assert table.version == 2
    entry = table.history(1)[0]
    assert (entry.operation, entry.transaction_id) == ("TRANSACTION", begun.id)
    assert [each["operation"] for each in json.loads(entry.parameters["operations"])] == ["WRITE", "DELETE", "UPDATE", "MERGE"]
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place.location)).execute("SELECT * FROM t").read_all()
    assert rows_of(pa.table(found).select(["origin", "month", "delay"])) == expected


def test_a_path_stands_once_among_the_adds_and_once_among_the_removes(place: Place, table: sluice.Table) -> None:
    with table.begin() as begun:
        begun.append(flights(*(("JFK", 1, n) for n in range(10, 20))))
        begun.delete("delay = 1")
        begun.delete("delay = 2 OR delay = 12")
        begun.update({"delay": "0"}, "delay = 13")
        begun.delete("delay = 0")
    actions = actions_of(place, 2)
    for kind in (AddFile, RemoveFile):
        paths = [action.path for action in actions if isinstance(action, kind)]
        assert len(paths) == len(set(paths))
    assert sorted(r[2] for r in now(table) if r[2] is not None) == [4, *(n for n in range(10, 20) if n not in (12, 13))]


def test_what_a_transaction_added_and_deleted_again_is_not_told(place: Place, table: sluice.Table) -> None:
    with table.begin() as begun:
        begun.append(flights(("LGA", 3, 10)))
        begun.delete("origin = 'LGA'")
    assert begun.commit() is None
    assert now(table) == now(place.open())
    assert table.version == 1


def test_schemas_that_are_merged_hold_for_what_follows(table: sluice.Table) -> None:
    with table.begin() as begun:
        begun.append(flights(("LGA", 3, 10)).append_column("carrier", pa.array(["UA"])), merge_schema=True)
        begun.update({"carrier": "'DL'"}, "carrier IS NULL AND delay = 4")
        assert begun.scan(["delay"], "carrier = 'DL'")["delay"].to_pylist() == [4]
    assert Counter(table.snapshot().to_arrow()["carrier"].to_pylist()) == {"UA": 1, "DL": 1, None: 3}


def test_an_operation_that_fails_leaves_the_transaction_as_it_was(place: Place) -> None:
    table = place.create(properties={**VECTORS, "delta.constraints.sane": "delay >= 0"})
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 2)))
    table.append(flights(("EWR", 2, 0)))
    begun = table.begin()
    begun.delete("delay = 2")
    before = rows_of(begun.scan())
    failing: list[tuple[type[sluice.errors.SluiceError], Callable[[], object]]] = [
        (sluice.errors.ConstraintViolated, lambda: begun.update({"delay": "delay - 1"})),
        (sluice.errors.ConstraintViolated, lambda: begun.append(flights(("JFK", 1, -1)))),
        (sluice.errors.ConstraintViolated, lambda: begun.upsert(flights(("JFK", 1, -1)), on=["origin", "month"])),
        (sluice.errors.ConstraintViolated, lambda: begun.overwrite(flights(("LGA", 1, 1)), where="origin = 'JFK'")),
        (sluice.errors.PredicateError, lambda: begun.delete("month = 1 OR 1 / delay = 1")),
        (sluice.errors.PredicateError, lambda: begun.delete("nowhere = 1")),
        (sluice.errors.SchemaMismatch, lambda: begun.append(flights(("JFK", 1, 1)).drop_columns(["origin"]))),
    ]
    for error, operation in failing:
        with pytest.raises(error):
            operation()
        assert begun.state == "open"
        assert rows_of(begun.scan()) == before
    begun.commit()
    assert now(table) == before == [("EWR", 2, 0), ("JFK", 1, 1)]


def test_reading_only_makes_no_version(table: sluice.Table) -> None:
    with table.begin() as begun:
        assert begun.scan(where="delay > 1").num_rows == 2
    assert (begun.state, begun.commit(), table.refresh().version) == ("committed", None, 1)


# -- the end of it -------------------------------------------------------------------------------------------------------


def test_the_end_of_a_block_bounds_each_request_like_commit(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    left_s: list[float] = []
    monkeypatch.setattr(transaction, "done_before", lambda *_, **__: left_s.append(bounded_s(1000.0)))
    with table.begin(key="once", timeout_s=20.0) as begun:
        begun.append(flights(("LGA", 3, 10)))
    assert len(left_s) == 1
    assert left_s[0] < 30


def test_writing_data_files_takes_no_time_of_a_commit(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: Draft, now_ms: int) -> Finished:
        time.sleep(1.2)
        return finish(self, now_ms)

    finish = Draft.finish
    monkeypatch.setattr(Draft, "finish", slow)
    with table.begin(timeout_s=1.0) as begun:
        begun.delete("delay = 1")
    present(table.delete("delay = 2", timeout_s=1.0))
    with sluice.transaction(timeout_s=1.0) as joint:
        joint[table].append(flights(("LGA", 3, 10)))
    assert table.refresh().version == 4
    late = table.begin(timeout_s=sluice.Deadline.after(1.0))
    late.delete("delay = 10")
    with pytest.raises(sluice.errors.OutcomeUnknown, match="the time given was over"):
        late.commit()


def test_abort_leaves_nothing_and_refuses_what_follows(table: sluice.Table) -> None:
    before = now(table)
    begun = table.begin()
    begun.append(flights(("LGA", 3, 10)))
    begun.abort()
    begun.abort()
    assert begun.state == "aborted"
    for use in (begun.commit, begun.scan, begun.check, lambda: begun.delete("delay = 1"), lambda: begun.append(flights()), begun.__enter__):
        with pytest.raises(sluice.errors.InvalidRequest, match=f"{begun.id} is aborted; begin another one"):
            use()
    assert now(table) == before


def test_commit_answers_the_same_twice_and_nothing_follows_it(table: sluice.Table) -> None:
    begun = table.begin()
    begun.delete("delay = 1")
    commit = present(begun.commit())
    assert begun.commit() == commit
    assert (begun.state, commit.transaction_id, commit.version) == ("committed", begun.id, 2)
    with pytest.raises(sluice.errors.InvalidRequest, match="is committed; begin another one"):
        begun.delete("delay = 2")
    with pytest.raises(sluice.errors.InvalidRequest, match="cannot be aborted: it was committed"):
        begun.abort()
    assert table.refresh().version == 2


def test_a_block_that_ends_in_an_unknown_outcome_can_be_committed_later(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*given: Any, **named: Any) -> Any:
        raise sluice.errors.OutcomeUnknown("no answer in time", transaction_id="t", stage="intent")

    begun = table.begin()
    begun.delete("delay = 1")
    with monkeypatch.context() as patch:
        patch.setattr(submission, "submit_together", lose)
        with pytest.raises(sluice.errors.OutcomeUnknown), begun:
            begun.scan()
    assert begun.state == "undecided"
    assert begun.commit() is not None


@BOTH
def test_a_store_that_fails_at_the_commit_is_no_end_of_it(properties: dict[str, str]) -> None:
    """Copies and vectors are written by `commit`: they are written again."""
    name = uuid.uuid4().hex
    table = Place(f"memory://{name}", f"memory://{name}").create(properties=properties, partition_by=[])
    table.append(flights(*(("JFK", 1, n) for n in range(5000))))
    begun = table.begin()
    begun.delete("delay % 7 IN (1, 4)")
    disk = MemoryStore.open(name).disk
    disk.fail_before("put", error=sluice.errors.StorageUnavailable("injected: not now"))
    with pytest.raises(sluice.errors.StorageUnavailable):
        begun.commit()
    assert begun.state == "open"
    assert begun.commit() is not None
    assert sorted(r[2] for r in now(table)) == [n for n in range(5000) if n % 7 not in (1, 4)]
    MemoryStore.open(name).forget()


# -- with others ---------------------------------------------------------------------------------------------------------


def test_check_tells_of_a_conflict_before_the_commit(place: Place, table: sluice.Table) -> None:
    other = place.open()
    begun = table.begin()
    begun.scan(where="origin = 'JFK'")
    begun.check()
    other.append(flights(("LGA", 3, 1)))
    other.delete("origin = 'EWR'")
    begun.check()
    other.delete("delay = 1")
    with pytest.raises(sluice.errors.ConcurrentModification):
        begun.check()
    with pytest.raises(sluice.errors.ConcurrentModification):
        begun.append(flights(("JFK", 1, 100)))
    assert begun.state == "open"
    begun.abort()


@pytest.mark.notices("stricter-levels-count")
def test_isolation_may_be_stricter_than_the_tables(place: Place) -> None:
    table, other = place.create(), place.open()
    table.append(flights(("JFK", 1, 1)))
    for isolation, refused in ((None, False), ("WriteSerializable", False), ("Serializable", True)):
        begun = table.begin(isolation=isolation)
        begun.update({"delay": "delay + 1"}, "origin = 'JFK'")
        other.append(flights(("JFK", 1, 7)))
        if refused:
            with pytest.raises(sluice.errors.ConcurrentAppendException):
                begun.commit()
        else:
            assert begun.commit() is not None
    with pytest.raises(sluice.errors.InvalidRequest, match="weaker than the table's"):
        place.open().begin(isolation="SnapshotIsolation")


def test_a_transaction_reads_the_version_it_was_asked_for(place: Place, table: sluice.Table) -> None:
    table.append(flights(("LGA", 3, 10)))
    begun = place.open().begin(read_version=1)
    assert begun.read_version == 1
    assert begun.scan().num_rows == 4
    begun.delete("delay IS NOT NULL")
    begun.commit()
    assert now(table) == [("JFK", 1, None), ("LGA", 3, 10)]


# -- truncate ------------------------------------------------------------------------------------------------------------


def test_truncate_reads_no_file(place: Place, table: sluice.Table) -> None:
    for path in Path(place.location).rglob("*.parquet"):
        path.unlink()
    assert table.truncate("origin = 'LGA'") is None
    assert table.truncate("origin = 'JFK' AND month = 1") is not None
    entry = table.history(1)[0]
    assert (entry.operation, entry.metrics["numDeletedRows"], entry.kind) == ("TRUNCATE", "3", "overwrite")
    assert table.truncate() is not None
    assert table.truncate() is None
    assert now(table) == []


def test_truncate_takes_whole_partitions_only(table: sluice.Table) -> None:
    for where in ("delay = 1", "origin = 'JFK' AND delay = 1"):
        with pytest.raises(sluice.errors.InvalidRequest, match=r"use delete\("):
            table.truncate(where)
    assert table.refresh().version == 1


# -- all of it against a model -------------------------------------------------------------------------------------------

SCHEMA = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
Row = tuple[str | None, int, int | None]


@dataclass(frozen=True)
class Where:
    """A condition in SQL, and the same in Python; null is not true."""

    sql: str
    holds: Callable[[Row], bool]
    partitions: bool = False


def conditions() -> st.SearchStrategy[Where]:
    numbers, places = st.integers(0, 12), st.sampled_from("abc")
    return st.one_of(
        places.map(lambda p: Where(f"p = '{p}'", lambda r: r[0] == p, True)),
        places.map(lambda p: Where(f"p <> '{p}'", lambda r: r[0] not in (None, p), True)),
        st.just(Where("p IS NULL", lambda r: r[0] is None, True)),
        st.just(Where("v IS NULL", lambda r: r[2] is None)),
        st.just(Where("TRUE", bool, True)),
        numbers.map(lambda n: Where(f"v < {n}", lambda r: r[2] is not None and r[2] < n)),
        numbers.map(lambda n: Where(f"k = {n}", lambda r: r[1] == n)),
        st.integers(0, 2).map(lambda n: Where(f"k % 3 = {n}", lambda r: r[1] % 3 == n)),
        st.tuples(places, numbers).map(
            lambda t: Where(f"p = '{t[0]}' AND k >= {t[1]} OR v = {t[1]}", lambda r: (r[0] == t[0] and r[1] >= t[1]) or r[2] == t[1])
        ),
    )


ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 12), st.one_of(st.none(), st.integers(0, 12))), max_size=6)
SETTERS: list[tuple[dict[str, str], Callable[[Row], Row]]] = [
    ({"v": "v + 1"}, lambda r: (r[0], r[1], None if r[2] is None else r[2] + 1)),
    ({"p": "'b'"}, lambda r: ("b", r[1], r[2])),
    ({"v": "k", "p": "NULL"}, lambda r: (None, r[1], r[1])),
    ({"k": "k + 1", "v": "coalesce(v, 0)"}, lambda r: (r[0], r[1] + 1, r[2] or 0)),
]


@dataclass(frozen=True)
class Step:
    """An operation, and what it makes of a list of rows."""

    do: Callable[[sluice.Transaction], object]
    after: Callable[[list[Row]], list[Row]] = list


def arrow(rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def without(rows: list[Row], where: Where | None) -> list[Row]:
    return [r for r in rows if where is not None and not where.holds(r)]


def update(where: Where | None, setter: int) -> Step:
    sql, change = SETTERS[setter]
    return Step(
        lambda t: t.update(sql, None if where is None else where.sql),
        lambda model: [change(r) if where is None or where.holds(r) else r for r in model],
    )


def upsert(rows: list[Row], on: tuple[str, ...]) -> Step:
    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[SCHEMA.names.index(name)] for name in on)

    distinct = [r for n, r in enumerate(rows) if None in key(r) or key(r) not in [key(other) for other in rows[:n]]]
    keys = {key(r) for r in distinct if None not in key(r)}
    return Step(lambda t: t.upsert(arrow(distinct), on=on), lambda model: [r for r in model if key(r) not in keys] + distinct)


def overwrite(rows: list[Row], where: Where | None) -> Step:
    fitting = [r for r in rows if where is None or where.holds(r)]
    return Step(lambda t: t.overwrite(arrow(fitting), None if where is None else where.sql), lambda model: without(model, where) + fitting)


def overwrite_dynamically(rows: list[Row]) -> Step:
    return Step(
        lambda t: t.overwrite(arrow(rows), dynamic=True), lambda model: [r for r in model if r[0] not in {new[0] for new in rows}] + rows
    )


def scan(where: Where) -> Step:
    found: list[pa.Table] = []

    def compared(model: list[Row]) -> list[Row]:
        rows = found.pop()
        assert Counter(zip(rows["v"].to_pylist(), rows["k"].to_pylist(), strict=True)) == Counter(
            (r[2], r[1]) for r in model if where.holds(r)
        )
        return model

    return Step(lambda t: found.append(t.scan(["v", "k"], where.sql)), compared)


STEPS: st.SearchStrategy[Step] = st.one_of(
    *[ROWS.map(lambda rows: Step(lambda t: t.append(arrow(rows)), lambda model: model + rows))] * 2,
    conditions().map(lambda where: Step(lambda t: t.delete(where.sql), lambda model: without(model, where))),
    st.builds(update, st.one_of(st.none(), conditions()), st.integers(0, len(SETTERS) - 1)),
    st.builds(upsert, ROWS, st.sampled_from([("k",), ("p", "k"), ("v", "k", "p")])),
    st.builds(overwrite, ROWS, st.one_of(st.none(), conditions())),
    ROWS.map(overwrite_dynamically),
    st.one_of(st.none(), conditions().filter(lambda w: w.partitions)).map(
        lambda where: Step(lambda t: t.truncate(None if where is None else where.sql), lambda model: without(model, where))
    ),
    conditions().map(scan),
)
PROPERTIES = st.sets(st.sampled_from(["delta.enableDeletionVectors", "delta.enableChangeDataFeed", "delta.enableRowTracking"]))
ADDS, TAKES = ("insert", "update_postimage"), ("delete", "update_preimage")


def rows_in(table: pa.Table) -> Iterator[Row]:
    return zip(*(table[name].to_pylist() for name in SCHEMA.names), strict=True)


@dataclass
class Lived:
    """A table that a test lives through, with a model of its rows."""

    table: sluice.Table
    rows: list[Row] = field(default_factory=list)

    def check(self) -> None:
        assert Counter(rows_in(self.table.refresh().snapshot().to_arrow())) == Counter(self.rows)

    def check_changes(self, before: list[Row], version: int) -> None:
        """What the table tells of a version's changes is what makes the rows after it of the rows before."""
        told = self.table.changes(version - 1, version)
        kinds: list[str] = told["_change_type"].to_pylist()
        assert set(kinds) <= {*ADDS, *TAKES}
        assert kinds.count("update_preimage") == kinds.count("update_postimage")
        counted = Counter(before)
        for row, kind in zip(rows_in(told), kinds, strict=True):
            counted[row] += 1 if kind in ADDS else -1
        assert {row: count for row, count in counted.items() if count} == Counter(self.rows)


@pytest.mark.costly
@examples(150)
@given(PROPERTIES, st.lists(st.lists(STEPS, min_size=1, max_size=5), min_size=1, max_size=4))
def test_operations_in_any_order_do_what_a_list_of_rows_would(properties: set[str], transactions: list[list[Step]]) -> None:
    name = uuid.uuid4().hex
    table = sluice.Table.create(
        f"memory://{name}", SCHEMA, partition_by=["p"], coordinator=f"memory://{name}", properties=dict.fromkeys(properties, "true")
    )
    lived = Lived(table)
    for steps in transactions:
        before, model = lived.rows, lived.rows
        with table.begin() as begun:
            for step in steps:
                step.do(begun)
                model = step.after(model)
                assert Counter(rows_in(begun.scan())) == Counter(model)
        lived.rows = model
        lived.check()
        commit = begun.commit()
        if commit is None:
            assert Counter(before) == Counter(model)
        else:
            lived.check_changes(before, commit.version)
