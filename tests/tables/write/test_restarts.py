"""A job that is restarted with the same key, or the same number of its application, does not write twice, whatever killed it.

What carries an application's number depends on that application: two that were begun on one version do not both commit.

The same number is the same transaction: it is answered with the commit there is, however it lost its answer, and never refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.failure_points import FAILPOINTS
from sluice.tables.write.terms import mark_of, marked
from tests.killed import until_killed
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.restarted_program import ROWS, run

SCHEMA = pa.schema([pa.field("sku", pa.int64()), pa.field("n", pa.int64())])
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5)
KEY: dict[str, Any] = {"key": "nightly-2026-01-01"}

# -- killed by SIGKILL --------------------------------------------------------------------------------------------------

QUEUED = [(failpoint, "append", KEY, False) for failpoint in FAILPOINTS]
DIRECT = [(failpoint, "append", KEY, True) for failpoint in ("before-ratify", "after-ratify", "after-publish", "before-ack")]
SEVERAL = [
    (f, "several", KEY, False) for f in ("data-staged", "before-claim", "after-claim", "after-ratify", "after-publish", "before-ack")
]
OTHERS: list[tuple[str, str, dict[str, Any], bool]] = [
    ("after-claim", "append", {"transaction": ("job", 7)}, False),
    ("after-claim", "several", {"transaction": ("job", 7)}, False),
    ("after-ratify", "upsert", KEY, False),
    ("after-claim", "plan", KEY, False),
]


@pytest.mark.shows("job-restarted")
@pytest.mark.zookeeper
@pytest.mark.parametrize(("failpoint", "how", "once", "fast_path"), [*QUEUED, *DIRECT, *SEVERAL, *OTHERS])
@pytest.mark.many
def test_a_job_killed_at_any_step_and_started_again(
    failpoint: str, how: str, once: dict[str, Any], fast_path: bool, tmp_path: Path, zookeeper_address: str
) -> None:
    tables = [tmp_path / "orders", tmp_path / "stock"]
    for each in tables:
        sluice.Table.create(each, SCHEMA, coordinator=zookeeper_address)
    orders, stock = (sluice.Table.open(each, coordinator=zookeeper_address, limits=IMPATIENT) for each in tables)
    stock.append(pa.table({"sku": [1], "n": [5]}, schema=SCHEMA))
    order: dict[str, Any] = {
        "tables": [str(each) for each in tables],
        "coordinator": zookeeper_address,
        "once": once,
        "how": how,
        "fast_path": fast_path,
        "inline_bytes_max": 16 if failpoint == "actions-staged" else 64 * 1024,
    }
    assert until_killed(run, order, failpoint=failpoint) == ["began"]
    for _ in range(2):  # and once more, for good measure
        run(**order)
    assert rows_of(orders.snapshot().to_arrow()) == rows_of(ROWS)
    assert rows_of(deltalake.DeltaTable(orders.location).to_pyarrow_table()) == rows_of(ROWS)
    assert stock.snapshot().to_arrow()["n"].to_pylist() == [6 if how == "several" else 5]
    assert len([each for each in orders.history() if each.application == "job"]) == 1


# -- in one process -----------------------------------------------------------------------------------------------------


def test_keys_are_told_apart_from_each_other_and_from_applications(place: Place) -> None:
    table = place.create()
    different: list[dict[str, Any]] = [
        *({"key": key} for key in ("a", "b", "a ", "A")),
        *({"transaction": (app, 0)} for app in ("a", "sluice.key:")),
    ]
    for once in different:
        assert not present(table.append(flights(("JFK", 1, 1)), **once)).repeated
    assert table.snapshot().to_arrow().num_rows == len(different)


def test_a_key_belongs_to_its_table(tmp_path: Path) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    for name in ("one", "other"):
        table = Place(str(tmp_path / name), coordinator).create()
        assert not present(table.append(flights(("JFK", 1, 1)), **KEY)).repeated


@pytest.mark.parametrize("once", [{"key": ""}, {"key": 7}, {"key": "k" * 1001}, {"key": "k", "transaction": ("a", 1)}])
def test_what_is_no_key_is_refused_for_several_tables_too(once: dict[str, Any]) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=r"key(=| is)"):
        sluice.transaction(**once)


@pytest.mark.parametrize("fast_path", [True, False], ids=["direct", "queued"])
def test_of_many_at_once_one_writes(place: Place, fast_path: bool) -> None:
    place.create()
    tables = [place.open(limits=replace(IMPATIENT, fast_path=fast_path)) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(lambda table: table.append(flights(("JFK", 1, 1)), **KEY), tables))
    assert sorted(commit.repeated for commit in told if commit is not None) == [False, *[True] * 5]
    assert len({commit.version for commit in told if commit is not None}) == 1
    assert rows_of(tables[0].snapshot().to_arrow()) == [("JFK", 1, 1)]


ROW = flights(("JFK", 1, 1))
POLICIES = ("delta", "maxcompute-table", "maxcompute-transactional", "maxcompute-delta")
LEVELS = ("Serializable", "WriteSerializable", "SnapshotIsolation")
Work = Callable[[sluice.Transaction], Any]
WORK: dict[str, Work] = {
    "append": lambda each: each.append(flights(("EWR", 2, 2))),
    "overwrite": lambda each: each.overwrite(flights(("EWR", 2, 2))),
    "delete": lambda each: each.delete("origin = 'JFK'"),
}


def begun(table: sluice.Table, number: int, work: Work, **options: Any) -> sluice.Transaction:
    transaction = table.begin(transaction=("S", number), **options)
    work(transaction)
    return transaction


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("policy", POLICIES)
def test_another_number_that_came_first_refuses_it(place: Place, policy: str, level: str) -> None:
    table = place.create(properties={"sluice.conflictPolicy": policy, "delta.isolationLevel": level})
    first, second = (begun(table, number, WORK["append"]) for number in (1, 2))
    first.commit()
    with pytest.raises(sluice.errors.ConcurrentTransactionException, match="application transaction S") as refused:
        second.commit()
    assert refused.value.rule == "application-advanced"
    assert refused.value.winning_version == 1
    assert rows_of(table.snapshot().to_arrow()) == rows_of(flights(("EWR", 2, 2)))


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("number", [0, 5])
def test_a_lower_or_higher_number_refuses_it(place: Place, number: int, fast_path: bool) -> None:
    place.create()
    table = place.open(limits=Limits(fast_path=fast_path))
    mine = begun(table, 3, WORK["append"])
    begun(place.open(), number, WORK["append"]).commit()
    with pytest.raises(sluice.errors.ConcurrentTransactionException):
        mine.commit()


@pytest.mark.parametrize("one", WORK)
@pytest.mark.parametrize("other", WORK)
def test_the_same_number_is_the_same_transaction_whatever_it_conflicts_with(place: Place, one: str, other: str) -> None:
    table = place.create()
    table.append(ROW)
    first, second = begun(table, 7, WORK[one]), begun(place.open(), 7, WORK[other])
    commit, again = first.commit(), second.commit()
    assert commit is not None
    assert again is not None
    assert (again.repeated, again.version, again.transaction_id) == (True, commit.version, commit.transaction_id)


def test_one_application_after_the_other_number(place: Place) -> None:
    """A transaction that begins after a client saw a commit depends on nothing before that commit, with any table object."""
    tables = [place.create(), place.open(), place.open()]
    for number in range(9):
        commit = present(tables[number % 3].append(ROW, transaction=("S", number)))
        assert not commit.repeated
        assert commit.version == number + 1
    assert tables[0].snapshot().to_arrow().num_rows == 9


def test_numbers_of_other_applications_are_no_matter(place: Place) -> None:
    table = place.create()
    first, second = begun(table, 1, WORK["append"]), table.begin(transaction=("T", 2))
    second.append(ROW)
    assert first.commit() is not None
    assert second.commit() is not None


def test_a_number_is_repeated_also_behind_a_later_one(place: Place) -> None:
    """A reply was lost, the application went on, and somebody repeats what it was about."""
    table = place.create()
    lost = begun(place.open(), 1, WORK["delete"])
    first = present(table.append(ROW, transaction=("S", 1)))
    table.append(ROW, transaction=("S", 2))
    again = present(lost.commit())
    assert (again.repeated, again.version) == (True, first.version)


def planned(table: sluice.Table, number: int, mode: str) -> tuple[Any, Any]:
    plan = table.plan_write(FLIGHTS, mode=mode, transaction=("query", number))
    return plan, plan.write(ROW)


@pytest.mark.notices("applications-are-depended-on-from-the-plan-on")
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_checkpoint_that_was_started_twice(place: Place, mode: str) -> None:
    """Two instances of one stream plan on one version, in processes that commit elsewhere."""
    place.create()
    one, other, late = (planned(place.open(), number, mode) for number in (4, 5, 4))
    first = present(place.open().commit_write(*one))
    with pytest.raises(sluice.errors.ConcurrentTransactionException):
        place.open().commit_write(*other)
    again = present(place.open().commit_write(*late))
    assert (again.repeated, again.version) == (True, first.version)
    assert not present(place.open().commit_write(*planned(place.open(), 5, mode))).repeated


def test_several_tables(place: Place) -> None:
    tables = [place.create(), sluice.Table.create(f"{place.location}-more", FLIGHTS, coordinator=place.coordinator)]
    joint = sluice.transaction(tables=tables, transaction=("S", 2))
    for table in tables:
        joint[table].append(ROW)
    begun(tables[1], 1, WORK["append"]).commit()
    with pytest.raises(sluice.errors.ConcurrentTransactionException, match="more"):
        joint.commit()
    assert tables[0].snapshot().version == 0


def test_several_tables_at_once_and_the_same_number(place: Place) -> None:
    tables = [place.create(), sluice.Table.create(f"{place.location}-more", FLIGHTS, coordinator=place.coordinator)]
    for table in tables:
        table.append(ROW)
    joints = [sluice.transaction(tables=tables, transaction=("S", 1)) for _ in range(2)]
    for joint in joints:
        for table in tables:
            joint[table].delete("origin = 'JFK'")
    first, again = (joint.commit() for joint in joints)
    assert {at: (commit.version, commit.repeated) for at, commit in again.items()} == {at: (c.version, True) for at, c in first.items()}


@pytest.mark.notices("repeated-before-refused")
def test_the_same_number_that_is_committed_between_two_looks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked for its number, then another process committed it: what that conflicts with is no matter."""
    table = place.create()
    table.append(ROW)
    first, second = (begun(place.open(), 7, WORK["delete"]) for _ in range(2))
    commit = present(first.commit())
    monkeypatch.setattr(sluice.Transaction, "repeated", lambda _: None)
    again = present(second.commit())
    assert (again.repeated, again.version) == (True, commit.version)


@pytest.mark.parametrize("work", WORK)
@pytest.mark.notices("another-run-is-no-repetition")
def test_a_mark_tells_other_rows_of_the_same_number(place: Place, work: str) -> None:
    table = place.create()
    table.append(ROW)
    for number in (1, 2):
        with marked(("S", number), mark_of(number, b"mine")):
            committed = begun(table, number, WORK[work]).commit()
            again = begun(place.open(), number, WORK[work]).commit()
        assert committed is not None
        assert again is not None
        assert (again.repeated, again.version) == (True, committed.version)
    with (
        marked(("S", 2), mark_of(2, b"theirs")),
        pytest.raises(sluice.errors.ConcurrentTransactionException, match="other rows as batch 2"),
    ):
        begun(table, 2, WORK[work]).commit()
    with marked(("S", 1), mark_of(1, b"mine")), pytest.raises(sluice.errors.ConcurrentTransactionException, match="has batch 2"):
        begun(table, 1, WORK[work]).commit()
    assert present(begun(table, 2, WORK[work]).commit()).repeated
    with marked(("S", 3), mark_of(3, b"mine")):
        assert table.append(ROW, transaction=("T", 3)) is not None
    assert {"S/rows", "T"} <= table.snapshot().raw.app_transactions.keys()
    assert "T/rows" not in table.snapshot().raw.app_transactions
