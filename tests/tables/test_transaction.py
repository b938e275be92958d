"""Open transactions: several operations that see each other, one commit or nothing, and what becomes of either."""

from __future__ import annotations

import json
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
from sluice.coordinator.commit.transactions import commit_filings
from sluice.storage.actions import AddFile, RemoveFile
from sluice.storage.actions.codec import decode_commit
from sluice.storage.stores.memory import MemoryStore
from tests.storage.strategies import examples

from .conftest import Place, flights, rows_of

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


def test_an_exception_in_the_block_aborts(table: sluice.Table) -> None:
    begun = table.begin()

    def fail() -> None:
        with begun:
            begun.delete("delay = 1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert begun.state == "aborted"
    assert table.refresh().version == 1


def test_commit_answers_the_same_twice_and_nothing_follows_it(table: sluice.Table) -> None:
    begun = table.begin()
    begun.delete("delay = 1")
    commit = begun.commit()
    assert commit is not None
    assert begun.commit() == commit
    assert (begun.state, commit.transaction_id, commit.version) == ("committed", begun.id, 2)
    with pytest.raises(sluice.errors.InvalidRequest, match="is committed; begin another one"):
        begun.delete("delay = 2")
    with pytest.raises(sluice.errors.InvalidRequest, match="cannot be aborted: it was committed"):
        begun.abort()
    assert table.refresh().version == 2


def test_a_refusal_is_told_again(place: Place, table: sluice.Table) -> None:
    begun = table.begin()
    begun.scan()
    begun.append(flights(("LGA", 3, 10)))
    place.open().delete("delay = 1")
    for _ in range(2):
        with pytest.raises(sluice.errors.ConcurrentModification) as caught:
            begun.commit()
        assert caught.value.winning_version == 2
    assert begun.state == "refused"
    begun.abort()
    assert begun.state == "refused"


@pytest.mark.parametrize("took_effect", [True, False])
@pytest.mark.parametrize("error", [sluice.errors.OutcomeUnknown, sluice.errors.CoordinatorUnavailable])
@BOTH
def test_what_brought_no_answer_is_committed_by_asking_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], took_effect: bool, error: type[sluice.errors.SluiceError]
) -> None:
    table = place.create(properties=properties)
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 2)))
    begun = table.begin()
    begun.delete("delay = 1")

    def lose(*given: Any, **named: Any) -> Any:
        if took_effect:
            commit_filings(*given, **named)
        raise error("no answer in time", transaction_id=begun.id)

    with monkeypatch.context() as patch:
        patch.setattr(submission, "commit_filings", lose)
        with pytest.raises(error):
            begun.commit()
    assert begun.state == "undecided"
    with pytest.raises(sluice.errors.InvalidRequest, match="call commit"):
        begun.abort()
    with pytest.raises(sluice.errors.InvalidRequest, match="is undecided"):
        begun.delete("delay = 2")
    answer = begun.commit()
    assert answer is not None
    assert (answer.version, answer.transaction_id, begun.state) == (2, begun.id, "committed")
    assert now(table) == [("JFK", 1, 2)]
    assert [entry.transaction_id for entry in table.history()].count(begun.id) == 1


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


def test_an_applications_transaction_happens_once(place: Place, table: sluice.Table) -> None:
    commits = []
    for _ in range(2):
        with place.open().begin(transaction=("loader", 7)) as begun:
            begun.delete("delay = 1")
            begun.append(flights(("LGA", 3, 10)))
        commits.append(begun.commit())
    assert [commit is not None and (commit.version, commit.repeated) for commit in commits] == [(2, False), (2, True)]
    assert now(table) == [("EWR", 2, 4), ("JFK", 1, None), ("JFK", 1, 2), ("LGA", 3, 10)]


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


def test_what_was_scanned_is_depended_upon(place: Place) -> None:
    table, other = place.create(), place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    begun = table.begin()
    total = sum(begun.scan(["delay"], "origin = 'JFK'")["delay"].to_pylist())
    begun.append(flights(("SUM", 1, total)))
    other.overwrite(flights(("JFK", 1, 5)), where="origin = 'JFK'")
    with pytest.raises(sluice.errors.ConcurrentModification):
        begun.commit()
    begun = table.begin()
    begun.append(flights(("SUM", 1, sum(begun.scan(["delay"], "origin = 'JFK'")["delay"].to_pylist()))))
    other.overwrite(flights(("EWR", 2, 6)), where="origin = 'EWR'")
    assert begun.commit() is not None
    assert now(table) == [("EWR", 2, 6), ("JFK", 1, 5), ("SUM", 1, 5)]


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


def test_an_append_only_table_is_only_appended_to(place: Place) -> None:
    table = place.create(properties={"delta.appendOnly": "true"})
    begun = table.begin()
    uses: list[Callable[[], object]] = [lambda: begun.delete("delay = 1"), lambda: begun.update({"delay": "1"}), begun.truncate]
    for use in uses:
        with pytest.raises(sluice.errors.UnsupportedFeature, match="append-only"):
            use()
    with pytest.raises(sluice.errors.UnsupportedFeature, match="append-only"):
        begun.upsert(flights(("JFK", 1, 1)), on="delay")
    begun.append(flights(("JFK", 1, 1)))
    assert begun.commit() is not None


def test_a_table_opened_to_read_begins_nothing(place: Place, table: sluice.Table) -> None:
    reader = place.open(consistency="published")
    for use in (reader.begin, lambda: reader.update({"delay": "1"}), reader.truncate, lambda: reader.upsert(flights(), on="delay")):
        with pytest.raises(sluice.errors.InvalidRequest, match="consistency='published'"):
            use()


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
Step = Callable[[sluice.Transaction, list[Row]], list[Row]]


def arrow(rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def append(rows: list[Row]) -> Step:
    def step(begun: sluice.Transaction, model: list[Row]) -> list[Row]:
        begun.append(arrow(rows))
        return model + rows

    return step


def delete(where: Where) -> Step:
    def step(begun: sluice.Transaction, model: list[Row]) -> list[Row]:
        begun.delete(where.sql)
        return [r for r in model if not where.holds(r)]

    return step


def update(where: Where | None, setter: int) -> Step:
    def step(begun: sluice.Transaction, model: list[Row]) -> list[Row]:
        sql, change = SETTERS[setter]
        begun.update(sql, None if where is None else where.sql)
        return [change(r) if where is None or where.holds(r) else r for r in model]

    return step


def upsert(rows: list[Row], on: tuple[str, ...]) -> Step:
    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[SCHEMA.names.index(name)] for name in on)

    def step(begun: sluice.Transaction, model: list[Row]) -> list[Row]:
        distinct = [r for n, r in enumerate(rows) if None in key(r) or key(r) not in [key(other) for other in rows[:n]]]
        begun.upsert(arrow(distinct), on=on)
        keys = {key(r) for r in distinct if None not in key(r)}
        return [r for r in model if key(r) not in keys] + distinct

    return step


def overwrite(rows: list[Row], where: Where | None) -> Step:
    def step(begun: sluice.Transaction, model: list[Row]) -> list[Row]:
        fitting = [r for r in rows if where is None or where.holds(r)]
        begun.overwrite(arrow(fitting), None if where is None else where.sql)
        return [r for r in model if where is not None and not where.holds(r)] + fitting

    return step


def overwrite_dynamically(rows: list[Row]) -> Step:
    def step(begun: sluice.Transaction, model: list[Row]) -> list[Row]:
        begun.overwrite(arrow(rows), dynamic=True)
        return [r for r in model if r[0] not in {new[0] for new in rows}] + rows

    return step


def truncate(where: Where | None) -> Step:
    def step(begun: sluice.Transaction, model: list[Row]) -> list[Row]:
        begun.truncate(None if where is None else where.sql)
        return [r for r in model if where is not None and not where.holds(r)]

    return step


def scan(where: Where) -> Step:
    def step(begun: sluice.Transaction, model: list[Row]) -> list[Row]:
        found = begun.scan(["v", "k"], where.sql)
        assert Counter(zip(found["v"].to_pylist(), found["k"].to_pylist(), strict=True)) == Counter(
            (r[2], r[1]) for r in model if where.holds(r)
        )
        return model

    return step


STEPS: st.SearchStrategy[Step] = st.one_of(
    ROWS.map(append),
    ROWS.map(append),
    conditions().map(delete),
    st.builds(update, st.one_of(st.none(), conditions()), st.integers(0, len(SETTERS) - 1)),
    st.builds(upsert, ROWS, st.sampled_from([("k",), ("p", "k"), ("v", "k", "p")])),
    st.builds(overwrite, ROWS, st.one_of(st.none(), conditions())),
    ROWS.map(overwrite_dynamically),
    st.one_of(st.none(), conditions().filter(lambda w: w.partitions)).map(truncate),
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
                model = step(begun, model)
                assert Counter(rows_in(begun.scan())) == Counter(model)
        lived.rows = model
        lived.check()
        commit = begun.commit()
        if commit is None:
            assert Counter(before) == Counter(model)
        else:
            lived.check_changes(before, commit.version)
