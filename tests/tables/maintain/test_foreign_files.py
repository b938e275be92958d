"""Files in a table's folder that belong to somebody else: a table is not created among them unasked, and a vacuum leaves them alone."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.rules.terms import Terms
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import Unfinished
from sluice.tables.client.address import TableAddress
from sluice.tables.maintain.garbage import Reason
from sluice.tables.manage.creation import new_table
from sluice.tables.planned_writes import commit_creation, plan_creation
from tests.tables.conftest import FLIGHTS, Place, flights, rows_of
from tests.tables.elsewhere import DAY_MS, Writer, disk_of, later

_numbers = itertools.count()
SPARKS = "part-00000-7c9e6679-7425-40de-944b-e07fc1f90ae7-c000.snappy.parquet"
OLD = SPARKS.replace("00000", "00009")
ENGINES = [
    SPARKS,
    "origin=JFK/part-00001-7c9e6679-7425-40de-944b-e07fc1f90ae7.c000.snappy.parquet",
    "7c9e6679-7425-40de-944b-e07fc1f90ae7-001.parquet",
    "20260105_211234_00030_fjxxh_7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "xY/deletion_vector_7c9e6679-7425-40de-944b-e07fc1f90ae7.bin",
    "_change_data/cdc-00000-7c9e6679-7425-40de-944b-e07fc1f90ae7.c000.snappy.parquet",
]
STRANGERS = ["docs/thesis.txt", "origin=JFK/other.parquet", "holiday.jpg", "_change_data/notes.txt", "7c9e6679-7425-40de-944b-e07fc1f90ae7"]


@pytest.fixture
def place() -> Iterator[Place]:
    """A location in memory, where the store's clock can be moved."""
    name = f"strangers-{next(_numbers)}-{os.getpid()}"
    yield Place(f"memory://{name}", f"memory://{name}")
    MemoryStore.open(name).forget()


# -- creation ------------------------------------------------------------------------------------------------------------


@pytest.mark.notices("no-table-among-files", "no-table-around-a-table")
@pytest.mark.parametrize("key", ["docs/thesis.txt", SPARKS, "inner/_delta_log/00000000000000000000.json"])
def test_a_table_is_not_created_in_a_folder_that_holds_files(place: Place, key: str) -> None:
    disk_of(place).store(key, b"somebody's")
    with pytest.raises(sluice.errors.InvalidRequest, match=r"not empty.*allow_nonempty=True") as caught:
        place.create()
    assert caught.value.key in key
    assert set(disk_of(place).objects) == {key}, "nothing was written"
    table = place.create(allow_nonempty=True)
    assert table.version == 0
    assert disk_of(place).objects.keys() > {key}


@pytest.mark.notices("a-creating-write-looks-for-files")
def test_nor_by_a_write_that_creates_it_and_that_is_told_before_rows_are_written(place: Place) -> None:
    disk_of(place).store("docs/thesis.txt", b"somebody's")
    address = TableAddress.of(place.location, place.coordinator)
    with pytest.raises(sluice.errors.InvalidRequest, match="not empty"):
        plan_creation(address, new_table(FLIGHTS), Terms())
    plan = plan_creation(address, new_table(FLIGHTS), Terms(), allow_nonempty=True)
    commit_creation(plan, plan.write(flights(("JFK", 1, 1)).to_batches(), label="0"))
    assert rows_of(place.open().snapshot().to_arrow()) == [("JFK", 1, 1)]


def test_hidden_files_and_what_a_write_of_ours_left_stop_nobody(place: Place) -> None:
    """A job that died before its commit is started again; hidden files are not data, and a vacuum never takes them."""
    for key in ("_SUCCESS", ".DS_Store", "_delta_log/_sluice_probe-1"):
        disk_of(place).store(key, b"")
    address = TableAddress.of(place.location, place.coordinator)
    left = plan_creation(address, new_table(FLIGHTS), Terms()).write(flights(("JFK", 1, 1)).to_batches(), label="0")
    assert left
    plan = plan_creation(address, new_table(FLIGHTS), Terms())
    commit_creation(plan, plan.write(flights(("LGA", 2, 2)).to_batches(), label="0"))
    assert rows_of(place.open().snapshot().to_arrow()) == [("LGA", 2, 2)]


def test_a_local_folder_that_exists_and_is_empty_will_do(tmp_path: Path) -> None:
    (tmp_path / "flights" / "empty").mkdir(parents=True)
    assert Place(str(tmp_path / "flights"), "memory://empty-folder").create().version == 0


# -- garbage collection --------------------------------------------------------------------------------------------------


def test_a_vacuum_reports_what_nobody_accounts_for_and_deletes_it_only_when_told(place: Place) -> None:
    for key in (*STRANGERS[:3], "part-of-my-photos.parquet"):
        disk_of(place).store(key, b"somebody's")
    later(place, -400 * DAY_MS)
    disk_of(place).store(OLD, b"older than the table, so that no writer of the table left it")
    later(place, 0)
    table = place.create(allow_nonempty=True)
    table.append(flights(("JFK", 1, 1)))
    for key in (*ENGINES, *STRANGERS[3:]):
        disk_of(place).store(key, b"somebody's")
    assert {each.key for each in table.vacuum().foreign} == {OLD}, "the others may be what somebody is writing just now"
    later(place, 8 * DAY_MS)
    dry = table.vacuum(dry_run=True)
    report = table.vacuum()
    assert dry.garbage == report.garbage
    assert dry.foreign == report.foreign
    assert {each.key for each in report.garbage} == set(ENGINES)
    assert {each.reason for each in report.garbage} <= {Reason.ORPHAN, Reason.CHANGES}
    foreign = {*STRANGERS, OLD, "part-of-my-photos.parquet"}
    assert {each.key for each in report.foreign} == foreign
    assert {each.reason for each in report.foreign} == {Reason.FOREIGN}
    assert disk_of(place).objects.keys() >= foreign
    would = table.vacuum(dry_run=True, include_foreign=True)
    assert ({each.key for each in would.garbage}, would.foreign) == (foreign, ())
    last = table.vacuum(include_foreign=True)
    assert (last.counts, last.foreign) == ({"foreign": len(foreign)}, ())
    assert not disk_of(place).objects.keys() & foreign
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]


def test_change_data_that_a_version_names_is_no_foreign_file_however_it_is_called(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.create(properties={"delta.enableChangeDataFeed": "true"})
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 2)))
    monkeypatch.setattr("sluice.tables.maintain.garbage._by_an_engine", lambda _key: False)
    monkeypatch.setattr("sluice.tables.maintain.garbage.id_in", lambda _key: None)
    table.delete("delay = 1")
    later(place, 6 * DAY_MS)
    assert table.vacuum(retain_hours=24 * 7).foreign == ()
    assert table.vacuum(retain_hours=24 * 7).garbage == ()


def test_an_upload_that_a_stranger_left_unfinished_is_foreign_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.create()
    begun = [Unfinished("docs/thesis.txt", "1", 0), Unfinished(SPARKS, "2", 2**53)]
    abandoned: list[Any] = []
    monkeypatch.setattr(MemoryStore, "unfinished", lambda _self: iter(begun), raising=False)
    monkeypatch.setattr(MemoryStore, "abandon", lambda _self, upload: abandoned.append(upload), raising=False)
    later(place, 8 * DAY_MS)
    report = table.vacuum()
    assert ([each.key for each in report.foreign], abandoned) == (["docs/thesis.txt"], [])
    table.vacuum(include_foreign=True)
    assert abandoned == begun[:1]


@pytest.mark.notices("foreign-files-need-a-word")
def test_an_old_thesis_outlives_the_table(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "home"), "memory://thesis")
    thesis = tmp_path / "home" / "docs" / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("forty years of work")
    os.utime(thesis, (0, 0))
    with pytest.raises(sluice.errors.InvalidRequest, match=r"docs/thesis\.txt"):
        place.create()
    table = place.create(allow_nonempty=True)
    table.append(flights(("JFK", 1, 1)))
    table.vacuum(retain_hours=0, force=True)
    assert thesis.read_text() == "forty years of work"
    Writer(place)


def test_the_option_is_a_boolean(place: Place) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="allow_nonempty"):
        sluice.Table.create(place.location, pa.schema([("a", pa.int64())]), coordinator=place.coordinator, allow_nonempty="no")  # type: ignore[arg-type]
