"""A text of the user's with a commit, which the history shows (Delta's userMetadata)."""

from __future__ import annotations

import pickle
from typing import Any

import deltalake
import pytest

import sluice
from sluice.storage.errors import InvalidRequest
from tests.tables.conftest import FLIGHTS, Place, flights

TEXT = 'run 7, "nightly" — später'


def test_every_write_takes_a_text_that_the_history_shows(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)), user_metadata=TEXT)
    table.append(flights(("JFK", 1, 2)), if_version=1, user_metadata="b")
    with table.begin(user_metadata="c") as part:
        part.delete("delay = 2")
    table.overwrite(flights(("JFK", 1, 3)), user_metadata="d")
    table.replace(FLIGHTS, user_metadata="e")
    plan = pickle.loads(pickle.dumps(table.plan_write(FLIGHTS, user_metadata="f")))
    table.commit_write(plan, plan.write(flights(("JFK", 1, 4))))
    table.append(flights(("JFK", 1, 5)))
    texts = [each.user_metadata for each in reversed(table.history())]
    assert texts == [None, TEXT, "b", "c", "d", "e", "f", None]
    shown = deltalake.DeltaTable(place.location).history()
    assert [each.get("userMetadata") for each in reversed(shown)] == texts


def test_every_change_takes_one_too(place: Place) -> None:
    table = place.create()
    for delay in range(4):
        table.append(flights(("JFK", 1, delay)))
    table.compact(user_metadata="compact")
    table.delete("delay = 0", user_metadata="delete")
    table.update({"delay": "delay + 10"}, "delay = 1", user_metadata="update")
    table.upsert(table.snapshot().to_arrow(where="delay = 2"), ["origin", "delay"], user_metadata="upsert")
    table.truncate(user_metadata="truncate")
    table.restore(1, user_metadata="restore")
    texts = [each.user_metadata for each in reversed(table.history(6))]
    assert texts == ["compact", "delete", "update", "upsert", "truncate", "restore"]
    with pytest.raises(InvalidRequest, match="user_metadata is"):
        table.compact(user_metadata="x" * 8193)


def test_all_tables_of_a_transaction_show_the_text(place: Place) -> None:
    first = place.create()
    second = sluice.Table.create(place.location + "-2", FLIGHTS, coordinator=place.coordinator)
    with sluice.transaction(place.coordinator, user_metadata=TEXT) as both:
        both[first].append(flights(("JFK", 1, 1)))
        both[second].append(flights(("JFK", 1, 1)))
    assert [each.history(1)[0].user_metadata for each in (first, second)] == [TEXT, TEXT]


@pytest.mark.parametrize("text", [7, b"x", "x" * 8193])
def test_what_is_no_text_or_a_very_long_one_is_refused(place: Place, text: Any) -> None:
    table = place.create()
    with pytest.raises(InvalidRequest, match="user_metadata is"):
        table.append(flights(("JFK", 1, 1)), user_metadata=text)
    with pytest.raises(InvalidRequest, match="user_metadata is"):
        table.plan_write(FLIGHTS, user_metadata=text)
    assert table.refresh().version == 0


def test_the_history_has_what_deltas_has(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    table.delete("delay = 1")
    deleted, appended, created = table.history()
    assert (created.read_version, appended.read_version, deleted.read_version) == (None, 0, 1)
    assert (created.is_blind_append, appended.is_blind_append, deleted.is_blind_append) == (True, True, False)
    assert {deleted.isolation, appended.isolation} == {"WriteSerializable"}


def test_the_history_of_another_engines_commits(place: Place) -> None:
    properties = deltalake.CommitProperties(custom_metadata={"userMetadata": "theirs", "userName": "ann"})
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 1)), commit_properties=properties)
    (told,) = sluice.Table.open(place.location, consistency="published").history()
    assert (told.user_metadata, told.user_name, told.read_version) == ("theirs", "ann", None)
