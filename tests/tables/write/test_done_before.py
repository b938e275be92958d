"""The answer to a job that repeats a numbered transaction over several tables: all of it was done, or which part is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

import sluice
from sluice.coordinator.admission import submission
from sluice.coordinator.limits import Limits
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.client.open_table import OpenTable
from tests.mending import mend
from tests.tables.conftest import Place, flights, present, rows_of
from tests.tables.elsewhere import disk_of, former_of, lose_everything

KEY: dict[str, Any] = {"key": "nightly-2026-01-01"}
NUMBER: dict[str, Any] = {"transaction": ("nightly", 7)}
ROWS = flights(("LGA", 1, 9))


@pytest.fixture
def places() -> Iterator[list[Place]]:
    """Three tables with a version 1 each."""
    name = f"done-{os.urandom(8).hex()}"
    made = [Place(f"memory://{name}-{letter}", f"memory://{name}") for letter in "abc"]
    for place in made:
        place.create().append(flights(("JFK", 1, 1)))
    yield made
    for letter in "abc":
        MemoryStore.open(f"{name}-{letter}").forget()


def append_to_all(tables: list[sluice.Table], **once: Any) -> sluice.CommitInfo:
    with sluice.transaction(tables=tables, **once) as tx:
        for table in tables:
            tx[table].append(ROWS)
    return tx.commit_info


def opened(places: list[Place], limits: Limits | None = None) -> list[sluice.Table]:
    return [place.open(limits=limits or Limits()) for place in places]


def half_lost(places: list[Place], lost: list[Place], **once: Any) -> str:
    """A transaction over all of them, of which all data are lost when it is not published in some; its id."""
    for place in lost:
        disk_of(place).fail_before("put_if_absent", commit_path(2), times=1_000)
    with sluice.transaction(tables=(tables := opened(places, Limits(publication_wait_s=0.2))), **once) as tx:
        for table in tables:
            tx[table].append(ROWS)
    assert [tx.commit_info[table].published for table in tables] == [place not in lost for place in places]
    recover_all(places)
    return tx.id


def recover_all(places: list[Place]) -> None:
    lose_everything(places[0])
    for place in places:
        mend(disk_of(place))
        sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), wait_s=0.0)


def has(table: sluice.Table) -> int:
    """How often the rows of the transaction are in a table."""
    return rows_of(table.snapshot().to_arrow()).count(("LGA", 1, 9))


# -- a part that is lost -------------------------------------------------------------------------------------------------


@pytest.mark.shows("half-repeated")
@pytest.mark.notices("half-is-not-told-to-be-done")
@pytest.mark.parametrize("first", [True, False], ids=["the first has it", "the last has it"])
@pytest.mark.parametrize(
    ("once", "told"), [(KEY, "key='nightly-2026-01-01'"), (NUMBER, "transaction=('nightly', 7)")], ids=["key", "number"]
)
def test_a_lost_part_is_told_and_can_be_written_alone(places: list[Place], once: dict[str, Any], told: str, first: bool) -> None:
    here, there = places[:2] if first else places[1::-1]
    guid = half_lost(places[:2], [there], **once)
    tables = opened(places[:2])
    for _ in range(2):
        with pytest.raises(sluice.errors.HalfCommitted) as caught:
            append_to_all(tables, **once)
        error = caught.value
        assert (error.transaction_id, error.location, error.version) == (guid, here.location, 2)
        assert error.missing == {there.location: 2}
        assert not error.retryable
        for word in (told, f"version 2 of {here.location}", f"{there.location} (there as version 2)", "only the missing part"):
            assert word in error.message
        assert [has(table) for table in tables] == [first, not first], "nothing was written"
    assert not present(there.open().append(ROWS, **once)).repeated
    again = append_to_all(tables, **once)
    assert [again[table].repeated for table in tables] == [True, True]
    assert [has(table) for table in tables] == [1, 1]


def test_a_part_that_only_said_the_number_is_said_alone(places: list[Place]) -> None:
    half_lost(places[:2], places[1:2], **KEY)
    with places[1].open().begin(**KEY) as nothing:
        pass
    assert nothing.commit() is not None
    assert all(commit.repeated for commit in append_to_all(opened(places[:2]), **KEY).values())


@pytest.mark.shows("half-repeated")
def test_all_tables_that_lack_it_are_named(places: list[Place]) -> None:
    half_lost(places, [places[0], places[2]], **KEY)
    with pytest.raises(sluice.errors.HalfCommitted) as caught:
        append_to_all(opened(places), **KEY)
    assert caught.value.location == places[1].location
    assert caught.value.missing == {places[0].location: 2, places[2].location: 2}


def test_a_part_that_came_after_the_last_version_there_is_lost_too(places: list[Place]) -> None:
    """Two versions were not published: recovery wrote the first of them, and the other one does not exist now."""
    here, there = places[:2]
    disk_of(there).fail_before("put_if_absent", commit_path(2), times=1_000)
    there.open(limits=Limits(publication_wait_s=0.1)).append(flights(("EWR", 1, 1)))
    append_to_all(opened([here, there], Limits(publication_wait_s=0.2)), **KEY)
    recover_all([here, there])
    assert there.open().version == 2
    with pytest.raises(sluice.errors.HalfCommitted) as caught:
        append_to_all(opened([here, there]), **KEY)
    assert caught.value.missing == {there.location: 3}


def test_a_higher_number_that_one_table_wrote_alone_hides_nothing(places: list[Place]) -> None:
    here, there = places[:2]
    half_lost([here, there], [there], **NUMBER)
    here.open().append(flights(("EWR", 1, 1)), transaction=("nightly", 8))
    with pytest.raises(sluice.errors.HalfCommitted, match=f"version 2 of {here.location}"):
        append_to_all(opened([here, there]), **NUMBER)


def test_where_the_version_was_cleaned_up_nobody_knows_what_it_was(places: list[Place]) -> None:
    here, there = places[:2]
    half_lost([here, there], [there], **KEY)
    there.open().append(flights(("EWR", 1, 1)))
    clean_up(there, 3)
    with pytest.raises(sluice.errors.HalfCommitted, match="cleaned up since: look for its rows first"):
        append_to_all(opened([here, there]), **KEY)


# -- what looks like that, and is not ------------------------------------------------------------------------------------


def test_a_transaction_that_touches_more_when_it_is_repeated_was_done_before(places: list[Place]) -> None:
    append_to_all(opened(places[:2]), **KEY)
    again = append_to_all(opened(places), **KEY)
    assert sorted(again) == [place.location for place in places[:2]]
    assert all(commit.repeated for commit in again.values())


def test_a_number_that_was_written_in_one_table_alone_is_no_half(places: list[Place]) -> None:
    places[0].open().append(ROWS, **KEY)
    assert list(append_to_all(opened(places[:2]), **KEY)) == [places[0].location]


def test_a_number_that_another_engine_forgot_is_found_by_its_version(places: list[Place]) -> None:
    here, there = places[:2]
    append_to_all(opened([here, there]), **KEY)
    data, modified_ms = disk_of(there).objects[commit_path(2)]
    kept = [line for line in data.splitlines() if "txn" not in orjson.loads(line)]
    disk_of(there).objects[commit_path(2)] = b"\n".join(kept) + b"\n", modified_ms
    tables = opened([here, there])
    assert not tables[1].snapshot().raw.app_transactions
    again = append_to_all(tables, **KEY)
    assert [again[table].version for table in tables] == [2, 2]


@pytest.mark.parametrize(("where", "name"), [(OpenTable, "latest"), (submission, "prepared")], ids=["between two looks", "while prepared"])
def test_it_is_committed_elsewhere_meanwhile(places: list[Place], monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> None:
    """It is not in the table that was looked at before that, and in the other; so the first is looked at again."""
    tables, others = opened(places[:2]), opened(places[:2])
    tx = sluice.transaction(tables=tables, **KEY)
    for table in tables:
        tx[table].append(ROWS)
    once_after(monkeypatch, where, name, lambda: append_to_all(others, **KEY))
    info = tx.commit()
    assert [(info[table].version, info[table].repeated) for table in tables] == [(2, True), (2, True)]
    assert [has(table) for table in tables] == [1, 1]


def once_after(monkeypatch: pytest.MonkeyPatch, where: object, name: str, then: Callable[[], object]) -> None:
    """Do something after the first call of a function, and before it returns."""
    plain, left = getattr(where, name), [then]

    def called(*given: Any, **named: Any) -> Any:
        answer = plain(*given, **named)
        if left:
            left.pop()()
        return answer

    monkeypatch.setattr(where, name, called)


# -- what the log does not tell any more ---------------------------------------------------------------------------------


def clean_up(place: Place, first: int) -> None:
    """What a cleanup of the log leaves."""
    place.open().checkpoint()
    for version in range(first):
        disk_of(place).objects.pop(commit_path(version))


@pytest.mark.parametrize("once", [KEY, NUMBER], ids=["key", "number"])
def test_what_was_done_is_remembered_when_its_version_was_cleaned_up(places: list[Place], once: dict[str, Any]) -> None:
    append_to_all(opened(places[:2]), **once)
    for place in places[:2]:
        place.open().append(flights(("EWR", 1, 1)))
        clean_up(place, 3)
    tables = opened(places[:2])
    for table in tables:
        alone = present(table.append(ROWS, **once))
        assert (alone.version, alone.repeated) == (-1, True)
    again = append_to_all(tables, **once)
    assert [(again[table].version, again[table].repeated) for table in tables] == [(-1, True), (-1, True)]
    assert [has(table) for table in tables] == [1, 1]


def test_a_gap_in_the_log_is_told_and_not_taken_for_a_cleanup(places: list[Place]) -> None:
    table = places[0].open()
    table.append(ROWS, **KEY)
    table.append(flights(("EWR", 1, 1)))
    table.checkpoint()
    disk_of(places[0]).objects.pop(commit_path(2))
    with pytest.raises(sluice.errors.LogGap, match="version 2 is missing"):
        places[0].open().append(ROWS, **KEY)
