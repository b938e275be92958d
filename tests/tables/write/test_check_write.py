"""A check says early that a planned write is lost, and never if it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.coordinator.rules.intent import Terms
from sluice.storage.actions import AddFile
from sluice.storage.errors import InvalidRequest
from sluice.tables.client.address import TableAddress
from sluice.tables.manage.creation import new_table
from sluice.tables.planned_writes import commit_creation, plan_creation
from sluice.tables.write.data_writing import WritePlan
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of

VECTORS = {"delta.enableDeletionVectors": "true"}
MINE = flights(("JFK", 1, 100))
COPIES: dict[str, str] = {}


@pytest.fixture
def table(place: Place, request: pytest.FixtureRequest) -> sluice.Table:
    """Four rows in one file of each of two partitions, in version 1."""
    return place.filled(("JFK", 1, 1), ("JFK", 1, 2), ("JFK", 1, None), ("EWR", 2, 4), properties=getattr(request, "param", VECTORS))


def data_files(place: Place) -> set[Path]:
    return {path for path in Path(place.location).rglob("*.parquet") if "_delta_log" not in path.parts}


OTHERS: dict[str, Callable[[sluice.Table], Any]] = {
    "append elsewhere": lambda table: table.append(flights(("LGA", 3, 7))),
    "append to it": lambda table: table.append(flights(("JFK", 1, 7))),
    "delete elsewhere": lambda table: table.delete("origin = 'EWR'"),
    "delete of it": lambda table: table.delete("delay = 1"),
    "overwrite": lambda table: table.overwrite(flights(("JFK", 1, 8)), where="origin = 'JFK'"),
    "compaction": lambda table: table.compact("major"),
    "property": lambda table: table.set_properties({"delta.checkpointInterval": "7"}),
}
PLANS: dict[str, dict[str, Any]] = {
    "append": {},
    "whole": {"mode": "overwrite"},
    "partition": {"mode": "overwrite", "where": "origin = 'JFK'"},
    "rows": {"mode": "overwrite", "where": "delay = 100 OR delay = 1"},
    "dynamic": {"mode": "dynamic"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "level"),
    [
        pytest.param(COPIES, None, id="copies"),
        pytest.param(VECTORS, "Serializable", id="vectors-Serializable"),
        pytest.param(VECTORS, None, id="vectors", marks=pytest.mark.long),
        pytest.param(COPIES, "Serializable", id="copies-Serializable", marks=pytest.mark.long),
    ],
    indirect=["table"],
)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("plan", PLANS)
def test_what_is_refused_early_would_be_refused(place: Place, table: sluice.Table, plan: str, other: str, level: str | None) -> None:
    """And with what was written, the check is as strict as the commit, save for rows that only the commit looks at."""
    planned = table.plan_write(FLIGHTS, isolation=level, **PLANS[plan])
    table.check_write(planned)
    OTHERS[other](place.open())
    early = refusal(lambda: table.check_write(planned))
    files = planned.write(MINE)
    before = data_files(place)
    late = refusal(lambda: table.commit_write(planned, files))
    assert early is None or late is not None
    if plan not in ("rows", "dynamic"):
        assert type(early) is type(late)
    if late is not None:
        assert data_files(place) == before, "nothing was copied for a commit that is refused"


def refusal(attempt: Callable[[], object]) -> sluice.errors.ConcurrentModification | None:
    try:
        attempt()
    except sluice.errors.ConcurrentModification as refused:
        return refused
    return None


def test_lost_overwrites_are_told_before_their_rows_are_written(place: Place, table: sluice.Table) -> None:
    planned = [table.plan_write(FLIGHTS, mode="overwrite", where=where) for where in (None, "origin = 'JFK'", "origin = 'EWR'")]
    OTHERS["delete of it"](place.open())
    assert [refusal(partial(table.check_write, plan)) is not None for plan in planned] == [True, True, False]


def test_a_plan_that_was_committed_is_not_refused(place: Place, table: sluice.Table) -> None:
    planned = table.plan_write(FLIGHTS, mode="overwrite", transaction=("app", 1))
    again: WritePlan = replace(planned, transaction_id="00000000-0000-0000-0000-000000000001")
    committed = table.commit_write(planned, planned.write(MINE))
    OTHERS["append to it"](place.open())
    table.check_write(again)
    repeated = present(table.commit_write(again, again.write(MINE)))
    assert committed is not None
    assert (repeated.version, repeated.repeated) == (committed.version, True)
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("JFK", 1, 7), ("JFK", 1, 100)]


def test_a_plan_that_creates_its_table_is_not_looked_into(place: Place) -> None:
    from sluice.tables.client.address import TableAddress
    from sluice.tables.planned_writes import plan_creation
    from sluice.tables.write.requirements import check_plan

    address = TableAddress.of(place.location, place.coordinator)
    planned = plan_creation(address, new_table(FLIGHTS), Terms())
    check_plan(place.create().coordinated, planned)


def test_a_stricter_level_of_a_plan_counts(place: Place, table: sluice.Table) -> None:
    plain = table.plan_write(FLIGHTS, mode="overwrite", where="origin = 'JFK'")
    strict = replace(plain, transaction_id="00000000-0000-0000-0000-000000000002", terms=replace(plain.terms, isolation="Serializable"))
    OTHERS["append to it"](place.open())
    table.check_write(plain)
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.check_write(strict)
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.commit_write(strict, strict.write(MINE))
    with pytest.raises(sluice.errors.InvalidRequest, match="weaker"):
        table.check_write(replace(plain, terms=replace(plain.terms, isolation="SnapshotIsolation")))


@pytest.mark.notices("files-of-a-plan-are-distinct")
@pytest.mark.parametrize("creates", [False, True])
def test_two_writes_of_a_plan_in_one_place_are_refused(place: Place, creates: bool) -> None:
    """The later file is where the earlier one was: its rows would be lost without a word."""
    if creates:
        plan = plan_creation(TableAddress.of(place.location, place.coordinator), new_table(FLIGHTS, ["origin"]), Terms())
        commit: Callable[[list[AddFile]], object] = partial(commit_creation, plan)
    else:
        table = place.create(partition_by=["origin"])
        plan = table.plan_write(FLIGHTS)
        commit = partial(table.commit_write, plan)
    rows = [("JFK", 1, 1), ("JFK", 1, 2)]
    with pytest.raises(InvalidRequest, match=r"'origin=JFK/part-.*give each call a `label`"):
        commit([file for each in rows for file in plan.write(flights(each))])
    commit([file for number, each in enumerate(rows) for file in plan.write(flights(each), label=str(number))])
    assert rows_of(place.open().snapshot().to_arrow()) == rows
