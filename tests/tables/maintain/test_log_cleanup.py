"""What garbage collection removes from the log, and that it can be read whenever that stops."""

from __future__ import annotations

import json

import pytest

import sluice
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.memory import Fault, MemoryStore
from tests.storage.logs import compacted_path
from tests.tables.conftest import Place, flights, present, rows_of
from tests.tables.elsewhere import DAY_MS, Writer, disk_of
from tests.tables.maintain.test_vacuum import filled, place

__all__ = ["place"]


def log_of(place: Place) -> list[str]:
    names = [key.removeprefix("_delta_log/") for key in disk_of(place).objects if key.startswith("_delta_log/")]
    return sorted(name for name in names if name[0].isdigit())


def aged(place: Place, *, days: int, checkpoints: bool = True, **properties: str) -> sluice.Table:
    """A table whose 26 versions are `days` old, with checkpoints at 10 and 20."""
    grown(filled(place, **{"delta.checkpointInterval": "1000", **properties}), checkpoints=checkpoints)
    aged_by(place, days)
    return place.open()


def grown(table: sluice.Table, *, checkpoints: bool = True) -> None:
    for number in range(24):
        commit = present(table.append(flights(("LGA", 1, number))))
        if checkpoints and commit.version in (10, 20):
            table.checkpoint()


def test_expired_commits_below_a_checkpoint_go(place: Place) -> None:
    table = aged(place, days=32)
    rows = rows_of(table.snapshot().to_arrow())
    report = table.vacuum(dry_run=True)
    assert len(report.log_files) == 22
    assert len(log_of(place)) == 30
    assert table.vacuum().log_files == report.log_files
    assert log_of(place)[:3] == [f"{20:020d}.{end}" for end in ("checkpoint.parquet", "crc", "json")]
    assert rows_of(place.open().snapshot().to_arrow()) == rows
    assert table.snapshot(version=20).to_arrow().num_rows == 21
    with pytest.raises(sluice.errors.VersionNotFound, match="versions 20 to 25 are"):
        place.open(consistency="published").snapshot(version=19)
    assert len(table.history(limit=None)) == 6
    assert table.vacuum().log_files == ()
    assert table.append(flights(("JFK", 1, 1))) is not None


def test_compactions_that_begin_with_the_checkpoint_go(place: Place) -> None:
    table = aged(place, days=32)
    for first, last in ((3, 12), (20, 22), (21, 23)):
        disk_of(place).store(compacted_path(first, last), b"{}")
    gone = {key for key in table.vacuum().log_files if key.endswith(".compacted.json")}
    assert gone == {compacted_path(3, 12), compacted_path(20, 22)}
    assert place.open().snapshot().num_files == 26


@pytest.mark.parametrize(
    ("days", "checkpoints", "properties"),
    [
        (29, True, {}),
        (300, True, {"delta.enableExpiredLogCleanup": "false"}),
        (300, True, {"delta.logRetentionDuration": "interval 400 days"}),
        (100, False, {}),
    ],
)
def test_a_log_within_retention_or_without_a_checkpoint_stays(
    place: Place, days: int, checkpoints: bool, properties: dict[str, str]
) -> None:
    table = aged(place, days=days, checkpoints=checkpoints, **properties)
    assert table.vacuum().log_files == ()
    assert table.snapshot(version=0).num_files == 0


@pytest.mark.notices("the-log-of-pinned-versions-is-kept")
def test_a_pinned_version_can_be_read_after_the_log_was_cleaned(place: Place) -> None:
    table = aged(place, days=100)
    with table.snapshot(version=13).pin():
        assert len(table.vacuum().log_files) == 10
        assert place.open().snapshot(version=13).to_arrow().num_rows == 14
    assert len(table.vacuum().log_files) == 12


@pytest.mark.notices("the-log-is-cleaned-in-order")
def test_a_log_can_be_read_whenever_its_cleaning_stops(place: Place) -> None:
    """After every single deletion the rest is whole: a version can be read, or the error says which ones can."""
    table = aged(place, days=100)
    disk = disk_of(place)

    def look() -> None:
        seen.append(len(disk.objects))
        snapshot = Snapshot.load(MemoryStore(place.location))
        assert snapshot.version == 25
        for version in (5, 15):
            try:
                Snapshot.load(MemoryStore(place.location), version=version)
            except sluice.errors.VersionNotFound:
                continue

    seen: list[int] = []
    for kind in ("*.json", "*.parquet"):
        disk.arm(Fault("delete", f"_delta_log/0{kind}", after=look, times=1_000))
    table.vacuum()
    assert len(seen) == 21


def test_who_slept_while_the_log_was_cleaned_goes_on_or_is_told(place: Place) -> None:
    table = filled(place)
    sleeper, reader = Writer(place), place.open()
    begun = sleeper.table.begin()
    begun.delete("delay = 2")
    blind = sleeper.table.begin()
    blind.append(flights(("LGA", 1, 99)))
    grown(table)
    aged_by(place, 100)
    fresh = place.open()
    assert len(fresh.vacuum().log_files) == 22
    assert reader.refresh().snapshot().to_arrow().num_rows == 26
    with pytest.raises(sluice.errors.TransactionExpired, match="begun on version 1"):
        begun.commit()
    assert blind.commit() is not None
    assert place.open().snapshot().to_arrow().num_rows == 27


def aged_by(place: Place, days: int) -> None:
    disk = disk_of(place)
    for key, (data, modified_ms) in list(disk.objects.items()):
        lines = data.splitlines()
        if key.startswith("_delta_log/0") and key.endswith(".json") and ".checkpoint." not in key:
            info = json.loads(lines[0])
            info["commitInfo"]["inCommitTimestamp"] -= days * DAY_MS
            data = b"\n".join([json.dumps(info).encode(), *lines[1:]]) + b"\n"
        disk.objects[key] = (data, modified_ms - days * DAY_MS)
