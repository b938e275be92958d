"""What carries an application's number depends on that application: two that were begun on one version do not both commit.

The same number is the same transaction: it is answered with the commit there is, however it lost its answer, and never refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.tables.write.terms import mark_of, marked
from tests.tables.conftest import FLIGHTS, Place, flights, rows_of

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
        commit = tables[number % 3].append(ROW, transaction=("S", number))
        assert commit is not None
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
    first = table.append(ROW, transaction=("S", 1))
    table.append(ROW, transaction=("S", 2))
    assert first is not None
    again = lost.commit()
    assert again is not None
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
    first = place.open().commit_write(*one)
    assert first is not None
    with pytest.raises(sluice.errors.ConcurrentTransactionException):
        place.open().commit_write(*other)
    again = place.open().commit_write(*late)
    assert again is not None
    assert (again.repeated, again.version) == (True, first.version)
    following = place.open().commit_write(*planned(place.open(), 5, mode))
    assert following is not None
    assert not following.repeated


def test_a_key_that_was_written_at_once_is_repeated(place: Place) -> None:
    table = place.create()
    first, second = table.begin(key="nightly"), place.open().begin(key="nightly")
    for each in (first, second):
        each.append(ROW)
    commit, again = first.commit(), second.commit()
    assert commit is not None
    assert again is not None
    assert (again.repeated, again.version) == (True, commit.version)


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
    commit = first.commit()
    assert commit is not None
    monkeypatch.setattr(sluice.Transaction, "repeated", lambda _: None)
    again = second.commit()
    assert again is not None
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
    unmarked = begun(table, 2, WORK[work]).commit()
    assert unmarked is not None
    assert unmarked.repeated
    with marked(("S", 3), mark_of(3, b"mine")):
        assert table.append(ROW, transaction=("T", 3)) is not None
    assert {"S/rows", "T"} <= table.snapshot().raw.app_transactions.keys()
    assert "T/rows" not in table.snapshot().raw.app_transactions
