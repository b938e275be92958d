"""Tables whose checkpoints are V2: when they are written, and when their sidecars go."""

from __future__ import annotations

import pytest

import sluice
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.memory import MemoryStore
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.elsewhere import DAY_MS, disk_of
from tests.tables.maintain.test_log_cleanup import aged_by
from tests.tables.maintain.test_vacuum import filled, place

__all__ = ["place"]

V2 = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1000"}


def sidecars(place: Place) -> set[str]:
    return {key for key in disk_of(place).objects if key.startswith("_delta_log/_sidecars/")}


def main_files(place: Place) -> list[str]:
    return sorted(key for key in disk_of(place).objects if ".checkpoint." in key)


def test_a_table_changes_to_shared_checkpoints_and_back(place: Place) -> None:
    table = filled(place)
    table.checkpoint()
    assert not sidecars(place)
    table.set_properties(V2)
    table.append(flights(("LGA", 3, 3)))
    table.checkpoint()
    first = sidecars(place)
    assert sorted(key.rpartition(".")[2] for key in first) == ["index", "parquet"]
    table.append(flights(("LGA", 4, 4)))
    table.checkpoint()
    assert sidecars(place) > first
    table.set_properties({"delta.checkpointPolicy": "classic"})
    version = table.checkpoint()
    assert main_files(place)[-1] == f"_delta_log/{version:020d}.checkpoint.parquet"
    rows = rows_of(table.snapshot().to_arrow())
    assert rows_of(place.open().snapshot().to_arrow()) == rows
    assert len(rows) == 4


def test_they_are_written_beside_the_commits(place: Place) -> None:
    table = filled(place, **{**V2, "delta.checkpointInterval": "5"})
    for number in range(14):
        table.append(flights(("LGA", 1, number)))
        table._checkpointer.wait()
    assert [int(key[11:31]) for key in main_files(place)] == [5, 10, 15]
    store = MemoryStore(place.location)
    assert Snapshot.load(store).num_files == 16
    assert sluice.doctor(place.location).findings == ()


def test_sidecars_go_when_no_checkpoint_names_them_any_more(place: Place) -> None:
    """First the checkpoints that are too old go, and by the next vacuum the sidecars that only these named."""
    table = filled(place, **V2)
    table.checkpoint()
    former = sidecars(place)
    table.delete("delay = 1")
    table.checkpoint()
    kept = sidecars(place) - former
    assert kept
    aged_by(place, 100)
    table = place.open()
    rows = rows_of(table.snapshot().to_arrow())
    report = table.vacuum(dry_run=True)
    assert not {each for each in report.log_files if "_sidecars" in each}
    assert any(".checkpoint." in each for each in table.vacuum().log_files)
    assert sidecars(place) == former | kept
    assert set(table.vacuum(dry_run=True).log_files) == former
    assert sidecars(place) == former | kept
    assert set(table.vacuum().log_files) == former
    assert sidecars(place) == kept
    assert rows_of(place.open().snapshot().to_arrow()) == rows
    assert table.vacuum().log_files == ()


@pytest.mark.parametrize(("days", "properties"), [(0, {}), (100, {"delta.enableExpiredLogCleanup": "false"})])
def test_young_sidecars_stay_and_so_do_all_if_the_log_is_not_cleaned_up(place: Place, days: int, properties: dict[str, str]) -> None:
    table = filled(place, **V2, **properties)
    table.checkpoint()
    disk = disk_of(place)
    data, modified_ms = disk.objects[next(iter(sidecars(place)))]
    disk.objects["_delta_log/_sidecars/left.parquet"] = (data, modified_ms - days * DAY_MS)
    assert place.open().vacuum().log_files == ()
    assert "_delta_log/_sidecars/left.parquet" in sidecars(place)


def test_what_a_checkpoint_left_that_failed_goes_after_a_day(place: Place) -> None:
    table = filled(place, **V2)
    table.checkpoint()
    before = sidecars(place)
    table.append(flights(("LGA", 4, 4)))
    disk_of(place).fail_before("put", "*.checkpoint.*.json")
    with pytest.raises(sluice.errors.StorageUnavailable):
        table.checkpoint()
    left = sidecars(place) - before
    assert left
    table.checkpoint()
    aged_by(place, 2)
    assert set(place.open().vacuum().log_files) == left
    assert place.open().snapshot().num_files == 3
