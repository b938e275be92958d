"""How long replaced files are kept: horizons, pins, clocks, retentions, and files that are not ours."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.leases.pins import raise_horizon, require_above_horizon
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.publisher import LogChecks
from sluice.coordinator.service.clock import SystemClock
from sluice.coordinator.service.memory import Call
from sluice.coordinator.service.memory import Fault as CoordinatorFault
from sluice.storage.constants import PROBE_PREFIX
from sluice.storage.log.paths import commit_path
from sluice.storage.log.snapshot import Snapshot
from tests.mending import mend
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.elsewhere import DAY_MS, HOUR_MS, Writer, disk_of, later, lose_everything
from tests.tables.maintain.test_vacuum import SCATTERED, VECTORS, Died, files_slot, filled, keys, place

__all__ = ["place"]


@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "copies"])
def test_replaced_files_are_kept_for_as_long_as_the_table_says(place: Place, vectors: bool) -> None:
    table = filled(place, **(VECTORS if vectors else {}))
    table.append(flights(*[("JFK", 1, n) for n in range(20_000)]))
    table.delete(SCATTERED)
    table.compact("major")
    replaced = keys(place) - {f.path.replace("%3D", "=") for f in table.refresh().snapshot().raw.add_files()}
    assert len(replaced) >= 3
    later(place, 7 * DAY_MS - HOUR_MS)
    assert table.vacuum().garbage == ()
    later(place, 7 * DAY_MS + HOUR_MS)
    report = table.vacuum()
    assert {each.key for each in report.garbage} == replaced
    assert set(report.counts) == {"replaced"}
    assert {f.path.replace("%3D", "=") for f in table.snapshot().raw.add_files()} == keys(place)
    assert table.snapshot().to_arrow().num_rows == len(rows_of(table.snapshot().to_arrow()))


@pytest.mark.notices("pins-are-kept")
def test_a_pinned_version_keeps_its_files(place: Place) -> None:
    table = filled(place)
    old = table.snapshot()
    with old.pin():
        table.overwrite(flights(("LGA", 1, 9)))
        report = table.vacuum(retain_hours=0, force=True)
        assert report.garbage == ()
        assert rows_of(old.to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1)]
        assert table.snapshot(version=old.version).to_arrow().num_rows == 2
    assert table.vacuum(retain_hours=0, force=True).counts == {"replaced": 2}


def test_a_version_that_is_not_published_yet_can_be_pinned(place: Place) -> None:
    table = filled(place)
    writer = Writer(place, Limits(publication_wait_s=0.1))
    disk = disk_of(place)
    disk.fail_before("put_if_absent", "_delta_log/00000000000000000002.json", times=1_000)
    writer.table.append(flights(("LGA", 1, 9)))
    writer.dies()
    unpublished = table.refresh().snapshot()
    assert unpublished.version == 2
    with unpublished.pin():
        mend(disk)
        table.overwrite(flights(("LGA", 1, 10)))
        assert table.vacuum(retain_hours=0, force=True).garbage == ()
        assert unpublished.to_arrow().num_rows == 3


@pytest.mark.notices("pins-are-above-the-horizon")
def test_a_version_that_was_given_up_cannot_be_pinned(place: Place) -> None:
    table = filled(place)
    old = table.snapshot()
    table.overwrite(flights(("LGA", 1, 9)))
    table.vacuum(retain_hours=0, force=True)
    with pytest.raises(sluice.errors.VersionNotFound, match="garbage collection keeps the files of version 2"):
        old.pin()


class AnHourBehind(SystemClock):
    """The clock of a machine that is an hour behind the others."""

    def now_ms(self) -> int:
        return super().now_ms() - HOUR_MS


def test_a_removal_counts_from_its_version_whatever_its_writers_clock_says(place: Place) -> None:
    """The log says that the files were removed an hour ago: it is a moment ago that they were."""
    table = filled(place)
    read = table.snapshot().to_arrow()
    Writer(place, clock=AnHourBehind()).table.overwrite(flights(("LGA", 1, 9)))
    assert table.vacuum(retain_hours=0.5, force=True).garbage == ()
    old = table.refresh().snapshot(version=table.version - 1)
    with old.pin():
        assert rows_of(old.to_arrow()) == rows_of(read)
    later(place, HOUR_MS)
    assert set(table.vacuum(retain_hours=0.5, force=True).counts) == {"replaced"}


@pytest.mark.notices("a-removal-counts-from-its-version")
def test_a_removal_that_tells_an_earlier_time_than_its_version_counts_from_its_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release before this one wrote its writer's clock into the log, which may have been behind."""
    monkeypatch.setattr(LogChecks, "due", lambda _: False)  # it would notice what is done to the log here
    filled(place).overwrite(flights(("LGA", 1, 9)))
    move_removals(place, -HOUR_MS)
    table = Writer(place).table
    assert table.vacuum(retain_hours=0.5, force=True).garbage == ()
    later(place, HOUR_MS)
    assert table.vacuum(retain_hours=0.5, force=True).counts == {"replaced": 2}


def move_removals(place: Place, by_ms: int) -> None:
    """Change what version 2 of the log says about the times of its removals."""
    key = commit_path(2)
    actions = [json.loads(line) for line in disk_of(place).objects[key][0].splitlines()]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] += by_ms
    disk_of(place).objects[key] = (b"\n".join(json.dumps(each).encode() for each in actions), disk_of(place).objects[key][1])


@pytest.mark.notices("replaced-files-are-kept-for-a-time")
def test_a_removal_that_tells_a_later_time_than_its_version_counts_from_that(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the protocol a file is kept for as long as its removal asks for; another engine's clock may have been ahead."""
    monkeypatch.setattr(LogChecks, "due", lambda _: False)  # it would notice what is done to the log here
    filled(place).overwrite(flights(("LGA", 1, 9)))
    move_removals(place, 2 * HOUR_MS)
    table = Writer(place).table  # which has none of it in hand
    later(place, 7 * DAY_MS + HOUR_MS)
    assert table.vacuum().garbage == ()
    later(place, 7 * DAY_MS + 3 * HOUR_MS)
    assert table.vacuum().counts == {"replaced": 2}


def test_a_table_that_was_lost_meanwhile_has_no_horizon(place: Place) -> None:
    """Its nodes are gone: a vacuum reports that, and deletes nothing."""
    filled(place)
    collector = Writer(place)
    snapshot = collector.access.read(consistency="latest")
    lose_everything(place)
    with pytest.raises(CoordinatorUnavailable, match="recover"):
        raise_horizon(collector.access.context, snapshot.version, snapshot.timestamp_ms)


@pytest.mark.shows("two-vacuums")
@pytest.mark.parametrize("there", [True, False], ids=["raised before", "for the first time"])
@pytest.mark.parametrize("fault", [None, *CoordinatorFault])
def test_of_two_collectors_at_once_the_horizon_is_the_higher_one(place: Place, there: bool, fault: CoordinatorFault | None) -> None:
    """One is stopped right before it writes; the other, with a shorter retention, raises it further meanwhile."""
    table = filled(place)
    for n in range(6):
        table.append(flights(("LGA", 1, n)))
    slow, fast = Writer(place), Writer(place)
    now_ms = time.time_ns() // 1_000_000 + HOUR_MS
    if there:
        raise_horizon(fast.access.context, 2, now_ms)
    interfering = iter([True])

    def interfere(call: Call) -> CoordinatorFault | None:
        if call.session_id == slow.session.session_id and call.verb in ("write", "create") and next(interfering, False):
            raise_horizon(fast.access.context, 7, now_ms)
            return fault
        return None

    slow.service.before = interfere
    for _ in range(2):
        try:
            raise_horizon(slow.access.context, 4, now_ms)
        except sluice.errors.Unavailable:
            continue
        break
    slow.service.before = None
    assert next(interfering, None) is None
    with pytest.raises(sluice.errors.VersionNotFound, match="version 7"):
        require_above_horizon(table.coordinated.context, 6)
    require_above_horizon(table.coordinated.context, 7)


@pytest.mark.notices("short-retentions-are-refused")
@pytest.mark.parametrize("hours", [0, 1.5, 167])
def test_a_retention_that_is_too_short_is_refused(place: Place, hours: float) -> None:
    table = filled(place)
    before = dict(disk_of(place).objects)
    with pytest.raises(sluice.errors.InvalidRequest, match="shorter than the 168 hours") as caught:
        table.vacuum(retain_hours=hours)
    assert "delta.deletedFileRetentionDuration" in str(caught.value)
    assert disk_of(place).objects == before
    assert table.vacuum(retain_hours=hours, force=True).retain_hours == hours


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), "7", True])
def test_a_retention_that_is_none_is_refused(place: Place, hours: Any) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="retain_hours"):
        filled(place).vacuum(retain_hours=hours, force=True)


def test_the_tables_own_retention_needs_no_force(place: Place) -> None:
    table = filled(place, **{"delta.deletedFileRetentionDuration": "interval 2 hours"})
    table.overwrite(flights(("LGA", 1, 9)))
    assert table.vacuum().retain_hours == 2
    with pytest.raises(sluice.errors.InvalidRequest, match="shorter than the 2 hours"):
        table.vacuum(retain_hours=1)
    later(place, 3 * HOUR_MS)
    assert table.vacuum().counts == {"replaced": 2}


def test_a_longer_retention_finds_tombstones_that_a_checkpoint_has_dropped(place: Place) -> None:
    table = filled(place, **{"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    before = keys(place)
    writer = Writer(place)
    writer.table.overwrite(flights(("LGA", 1, 9)))
    table.refresh().checkpoint()
    Writer(place)
    assert Snapshot.load(writer.access.store).tombstones.num_rows == 0
    fresh = Writer(place).table
    assert fresh.vacuum(retain_hours=24).garbage == ()
    assert before < keys(place)
    assert fresh.vacuum().counts == {}, "their owner is this process, which is alive"
    assert fresh.snapshot(version=1).to_arrow().num_rows == 2


# -- what is not ours ----------------------------------------------------------------------------------------------------


@pytest.mark.notices("files-of-others-go-by-age")
def test_foreign_files_go_by_age_and_hidden_ones_never(place: Place) -> None:
    table = filled(place)
    disk = disk_of(place)
    engines = "part-0000{}-7c9e6679-7425-40de-944b-e07fc1f90ae7-c000.snappy.parquet"
    foreign = [engines.format(0), "origin=JFK/" + engines.format(1)]
    kept = ["_SUCCESS", ".hidden/x.parquet", "_tmp/y.parquet", "sub/_z/x.parquet", "_delta_log/_sidecars/x.parquet", "_delta_log/notes.txt"]
    nested = ["inner/_delta_log/00000000000000000000.json", "inner/part-0.parquet"]
    for key in [*foreign, *kept, *nested]:
        disk.store(key, b"somebody's")
    assert table.vacuum().garbage == ()
    later(place, 8 * DAY_MS)
    report = table.vacuum()
    assert {each.key for each in report.garbage} == set(foreign)
    assert report.counts == {"orphan": 2}
    assert {*kept, *nested} <= disk.objects.keys()


def test_what_another_one_is_probing_the_store_with_is_left_alone_for_a_day(place: Place) -> None:
    table = filled(place)
    probe = f"{PROBE_PREFIX}{'7' * 32}"
    disk_of(place).store(probe, b"what time is it?")
    later(place, DAY_MS // 2)
    assert table.vacuum(retain_hours=0, force=True).garbage == ()
    later(place, DAY_MS)
    assert [each.key for each in table.vacuum(retain_hours=0, force=True).garbage] == [probe]


def test_a_partition_column_may_begin_with_an_underscore(place: Place) -> None:
    schema = pa.schema([pa.field("_day", pa.int32()), pa.field("id", pa.int64())])
    table = sluice.Table.create(place.location, schema, partition_by=["_day"], coordinator=place.coordinator)
    writer = Writer(place)
    doomed = writer.table.begin()
    doomed.append(pa.table({"_day": pa.array([1], pa.int32()), "id": [1]}))
    writer.dies()
    assert table.vacuum().counts == {"orphan": 1}


@pytest.mark.notices("change-data-is-kept")
def test_change_data_of_the_log_is_kept_and_that_of_dead_writers_goes(place: Place) -> None:
    table = filled(place, **{"delta.enableChangeDataFeed": "true", **VECTORS})
    writer = Writer(place)
    writer.table.delete("origin = 'JFK'")
    writer.table.update({"delay": "delay + 1"}, "origin = 'EWR'")
    told = rows_of(table.changes(after=1).drop_columns(["_commit_timestamp"]))
    doomed = writer.table.begin()
    doomed.update({"delay": "delay + 10"}, "origin = 'EWR'")

    def die(call: Call) -> None:
        if files_slot(call) or any(op.path.endswith("/head") for op in call.ops):
            writer.service.before = None
            raise Died

    writer.service.before = die
    with pytest.raises(Died):
        doomed.commit()
    writer.dies()
    report = table.vacuum()
    assert report.counts["change data"] >= 1
    assert rows_of(table.changes(after=1).drop_columns(["_commit_timestamp"])) == told
    later(place, 8 * DAY_MS)
    assert table.vacuum().counts["change data"] >= 1
    assert [key for key in keys(place) if key.startswith("_change_data/")] == []
