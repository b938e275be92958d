"""A refusal tells who won, which operation lost, and what to do about it; an object knows the version of its own commits."""

from __future__ import annotations

import os

import pytest

import sluice
from tests.tables.conftest import Place, by_another, flights, present

JFK = "origin = 'JFK'"


@pytest.fixture(params=["true", "false"], ids=["vectors", "no vectors"])
def table(request: pytest.FixtureRequest, place: Place) -> sluice.Table:
    place.create(properties={"delta.enableDeletionVectors": request.param}).append(flights(("JFK", 1, 0), ("LGA", 1, 0), ("EWR", 1, 0)))
    return place.open(application="mine")


def test_who_won_is_told(place: Place, table: sluice.Table) -> None:
    begun = table.begin()
    begun.update({"delay": "1"}, JFK)
    won = present(place.open(application="nightly").delete(JFK))
    with pytest.raises(sluice.errors.ConcurrentModification) as caught:
        begun.commit()
    lost = caught.value
    assert (lost.winning_application, lost.winning_pid, lost.winning_transaction_id) == ("nightly", os.getpid(), won.transaction_id)
    assert lost.winning_host
    assert abs(lost.winning_time_ms - won.timestamp) < 60_000
    by = f"by nightly on {lost.winning_host} (process {os.getpid()}), transaction {won.transaction_id}, at 2"
    assert f"version 2 (DELETE {by}" in str(lost)
    assert (lost.lost_operation, lost.lost_operation_name) == (1, "UPDATE")


@pytest.mark.parametrize(("origin", "number", "name"), [("JFK", 2, "UPDATE"), ("LGA", 1, "SCAN"), ("EWR", 4, "DELETE")])
def test_which_operation_lost_is_told(place: Place, table: sluice.Table, origin: str, number: int, name: str) -> None:
    begun = table.begin()
    begun.scan(where="origin = 'LGA'")
    begun.update({"delay": "1"}, JFK)
    begun.append(flights(("BOS", 1, 1)))
    begun.delete("origin = 'EWR'")
    by_another(lambda: place.open().delete(f"origin = '{origin}'"))
    with pytest.raises(sluice.errors.ConcurrentModification, match=rf"of this transaction operation {number} \({name}\) lost") as lost:
        begun.commit()
    assert (lost.value.lost_operation, lost.value.lost_operation_name) == (number, name)


def test_it_is_told_at_the_next_operation_already(place: Place, table: sluice.Table) -> None:
    begun = table.begin()
    begun.scan(where="origin = 'LGA'")
    begun.update({"delay": "1"}, JFK)
    by_another(lambda: place.open().delete(JFK))
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"operation 2 \(UPDATE\) lost; let transact repeat it"):
        begun.delete("origin = 'EWR'")


def test_it_is_told_once_where_it_shows_before_rows_are_copied(place: Place, table: sluice.Table) -> None:
    table.append(flights(("JFK", 1, 0), ("JFK", 1, 5)))
    begun = table.begin()
    begun.scan(where="origin = 'LGA'")
    begun.delete("origin = 'JFK' AND delay < 1")
    by_another(lambda: place.open().update({"delay": "7"}, JFK))
    with pytest.raises(sluice.errors.ConcurrentModification) as lost:
        begun.commit()
    assert str(lost.value).count("lost; let transact repeat it") == 1


def test_the_table_of_several_is_told_with_the_operation(place: Place, table: sluice.Table) -> None:
    other = Place(place.location + "-2", place.coordinator)
    other.create().append(flights(("JFK", 1, 0)))
    joint = sluice.transaction(tables=[table, other.open()])
    joint[other.open()].scan(where="origin = 'LGA'")
    joint[other.open()].update({"delay": "1"}, JFK)
    joint[table].delete(JFK)
    by_another(lambda: other.open().delete(JFK))
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"operation 2 \(UPDATE\) lost") as lost:
        joint.commit()
    assert lost.value.facts["table"] == other.open().location


def test_what_to_do_is_told(place: Place, table: sluice.Table) -> None:
    told: list[str] = []
    begun = None
    for origin in ("JFK", "LGA"):
        begun = table.begin(after=begun)
        begun.update({"delay": "1"}, f"origin = '{origin}'")
        by_another(lambda origin=origin: place.open().delete(f"origin = '{origin}'"))  # type: ignore[misc]
        with pytest.raises(sluice.errors.ConcurrentModification) as lost:
            begun.commit()
        told.append(str(lost.value))
    assert "; let transact repeat it, or begin the next attempt with after=<this transaction>" in told[0]
    assert "; it is loss 2 in a row; let transact repeat it" in told[1]


@pytest.mark.parametrize("ack", ["published", "ratified"])
def test_the_version_follows_the_objects_own_commits(place: Place, ack: str) -> None:
    place.create()
    table, other = place.open(ack=ack), place.open()
    assert table.version == 0
    for _ in range(2):
        commit = present(table.append(flights(("JFK", 1, 1))))
        assert table.version == commit.version
    other.append(flights(("JFK", 1, 1)))
    assert table.version == 2, "what others commit is seen by refresh"
    table.set_properties({"team.name": "red"})
    assert (table.version, table.properties["team.name"]) == (4, "red")
    assert table.refresh().version == 4


def test_the_schema_follows_too(place: Place) -> None:
    table = place.create()
    rows = flights(("JFK", 1, 1))
    table.append(rows.append_column("gate", rows["origin"]), merge_schema=True)
    assert table.schema.names[-1] == "gate"
