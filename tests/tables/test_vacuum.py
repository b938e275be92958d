"""Garbage collection: what may go goes at once, and what may still be needed stays, however old or young.

Writers are objects of this process with presences of their own, so that a test can let one die, sleep or come back.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.commit.neighbourhood import Neighbourhood
from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.identity import id_in, owner_of
from sluice.coordinator.service import connect
from sluice.coordinator.service.clock import SystemClock
from sluice.coordinator.service.memory import Call
from sluice.coordinator.service.memory import Fault as CoordinatorFault
from sluice.coordinator.service.store import Create
from sluice.storage.constants import PROBE_PREFIX
from sluice.storage.log.paths import commit_path
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.memory import Fault, MemoryStore
from sluice.storage.stores.objects import KeepsUnfinished, Unfinished
from sluice.tables.client.address import TableAddress
from sluice.tables.client.horizon import raise_horizon, require_above_horizon
from sluice.tables.maintain.garbage import Reason
from sluice.tables.planned_writes import abandon_plan, commit_creation, plan_creation

from .conftest import FLIGHTS, Place, flights, rows_of
from .elsewhere import DAY_MS, HOUR_MS, Writer, disk_of, later, lose_everything

SCATTERED = "delay * 7919 % 1009 < 300"
"""Rows so scattered that the vector which lists them is no inline one."""
VECTORS = {"delta.enableDeletionVectors": "true"}


class Died(BaseException):
    """Ends a writer in the middle of a call."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A location in memory, where the store's clock can be moved."""
    name = f"vacuum-{next(_numbers)}-{os.getpid()}"
    yield Place(f"memory://{name}", f"memory://{name}")
    MemoryStore.open(name).forget()


_numbers = itertools.count()


def keys(place: Place) -> set[str]:
    """What is stored beside the log."""
    return {key for key in disk_of(place).objects if not key.startswith("_delta_log/")}


def counted(report: sluice.VacuumReport) -> dict[str, int]:
    return report.counts


def filled(place: Place, **properties: str) -> sluice.Table:
    place.create(properties=properties)
    table = place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    return table


# -- orphans -------------------------------------------------------------------------------------------------------------


def test_nothing_is_deleted_where_nothing_is_garbage(place: Place) -> None:
    table = filled(place)
    before, version = keys(place), table.refresh().version
    report = table.vacuum()
    assert (report.garbage, report.log_files, report.retain_hours) == ((), (), 168.0)
    assert keys(place) == before
    assert table.refresh().version == version, "and no version is made"


def test_what_a_dead_writer_left_is_found_at_once_and_only_that(place: Place) -> None:
    table = filled(place)
    before = keys(place)
    writer = Writer(place)
    doomed = writer.table.begin()
    doomed.append(flights(("LGA", 1, 9)))
    left = keys(place) - before
    assert left
    assert table.vacuum().garbage == (), "it is alive"
    writer.dies()
    dry = table.vacuum(dry_run=True)
    assert {each.key for each in dry.garbage} == left
    assert keys(place) == before | left
    report = table.vacuum()
    assert {each.key for each in report.garbage} == left
    assert {each.reason for each in report.garbage} == {Reason.ORPHAN}
    assert report.size_bytes > 0
    assert keys(place) == before
    assert rows_of(table.snapshot().to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1)]


def test_a_writer_that_is_slow_keeps_its_files_however_old_they_are(place: Place) -> None:
    table = filled(place)
    writer = Writer(place)
    slow = writer.table.begin()
    slow.append(flights(("LGA", 1, 9)))
    later(place, 400 * DAY_MS)
    assert table.vacuum().garbage == ()
    assert table.vacuum(retain_hours=0, force=True).garbage == ()
    assert slow.commit() is not None
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1), ("LGA", 1, 9)]


@pytest.mark.parametrize("fast_path", [True, False], ids=["direct", "queued"])
@pytest.mark.parametrize("large", [True, False], ids=["staged", "inline"])
def test_a_paused_writer_whose_files_were_collected_cannot_commit(place: Place, fast_path: bool, large: bool) -> None:
    table = filled(place)
    writer = Writer(place, Limits(fast_path=fast_path, inline_bytes_max=64 if large else 65536))
    paused = writer.table.begin()
    paused.append(flights(("LGA", 1, 9)))
    writer.dies()
    assert counted(table.vacuum()) == {"orphan": 1}
    with pytest.raises(sluice.TransactionExpired, match="begin it again") as caught:
        paused.commit()
    assert caught.value.retryable
    assert paused.state == "refused"
    assert table.outcome(paused.id).state == "unknown"
    again = writer.table.append(flights(("LGA", 1, 9)))
    assert again is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 3
    assert counted(table.vacuum()) == ({"staged actions": 1} if large else {})


def test_a_paused_writer_that_nobody_took_for_dead_commits(place: Place) -> None:
    table = filled(place)
    writer = Writer(place)
    paused = writer.table.begin()
    paused.append(flights(("LGA", 1, 9)))
    writer.dies()
    assert paused.commit() is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 3
    assert table.vacuum().garbage == ()


def test_a_writer_that_is_taken_for_dead_between_its_decision_and_its_filing(place: Place) -> None:
    """Right before the multi that files it: the check in that very multi stops it."""
    table = filled(place)
    writer = Writer(place)
    unlucky = writer.table.begin()
    unlucky.append(flights(("LGA", 1, 9)))

    def overtake(call: Call) -> None:
        if call.session_id == writer.session.session_id and any(op.path.endswith("/head") for op in call.ops):
            writer.service.before = None
            writer.dies()
            assert counted(table.vacuum()) == {"orphan": 1}

    writer.service.before = overtake
    try:
        with pytest.raises((sluice.TransactionExpired, sluice.OutcomeUnknown)):
            unlucky.commit()
    finally:
        writer.service.before = None
    with pytest.raises(sluice.TransactionExpired):
        unlucky.commit()
    assert table.refresh().snapshot().to_arrow().num_rows == 2


def files_slot(call: Call) -> bool:
    return any(isinstance(op, Create) and op.sequential and "/slots/" in op.path for op in call.ops)


@pytest.mark.parametrize("large", [True, False], ids=["staged", "inline"])
def test_what_is_filed_is_nobodys_garbage_though_its_owner_is_dead(place: Place, large: bool) -> None:
    table = filled(place)
    writer = Writer(place, Limits(fast_path=False, inline_bytes_max=64 if large else 65536))

    def die(call: Call) -> None:
        if files_slot(call):
            writer.service.after = None
            raise Died

    writer.service.after = die
    with pytest.raises(Died):
        writer.table.append(flights(("LGA", 1, 9)))
    writer.dies()
    before = dict(disk_of(place).objects)
    dry = table.vacuum(dry_run=True)
    assert dry.garbage == ()
    assert disk_of(place).objects.keys() == before.keys()
    table.vacuum()
    assert rows_of(table.snapshot(consistency="serial").to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1), ("LGA", 1, 9)]
    report = table.vacuum()
    assert counted(report) == ({"staged actions": 1} if large else {})
    assert table.snapshot().to_arrow().num_rows == 3


def test_a_slot_that_came_too_late_is_decided_before_its_files_are_judged(place: Place) -> None:
    """Its owner is dead; whoever asks for the transaction files it again, so that its files are no garbage until it is decided."""
    table, rolling = filled(place), place.open(limits=Limits(fast_path=False, generation_slots_max=1, patience_s=0.05))
    writer = Writer(place, Limits(fast_path=False))
    begun = writer.table.begin()
    begun.append(flights(("LGA", 1, 9)))
    transaction_id = str(begun.id)

    def die(call: Call) -> None:
        if files_slot(call):
            writer.service.after = None
            raise Died

    def overtake(call: Call) -> None:
        if files_slot(call):
            writer.service.before = None
            for _ in range(4):
                rolling.append(flights(("EWR", 3, 3)))
            writer.service.after = die

    writer.service.before = overtake
    with pytest.raises(Died):
        begun.commit()
    del begun
    writer.dies()
    assert table.vacuum(dry_run=True).garbage == ()
    assert table.vacuum().garbage == ()
    assert place.open().outcome(transaction_id).state == "committed"
    assert ("LGA", 1, 9) in rows_of(place.open().snapshot().to_arrow())


# -- what is no object yet -----------------------------------------------------------------------------------------------

MIB = 1 << 20


def unfinished_on(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Place, dict[str, str]]:
    name = f"memory://unfinished-{next(_numbers)}-{os.getpid()}"
    if kind == "disk":
        return Place(str(tmp_path / "flights"), name), {}
    return Place(request.getfixturevalue("s3_location"), name), request.getfixturevalue("s3_options")


@pytest.mark.parametrize("kind", ["disk", "s3"])
def test_what_a_killed_writer_was_uploading_goes_when_it_is_dead(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    here, options = unfinished_on(kind, tmp_path, request)
    table = here.create(storage_options=options)
    store = table.access.store
    assert isinstance(store, KeepsUnfinished)
    writer = Writer(here, storage_options=options)
    begun = writer.table.begin()
    keys_begun = [f"origin=LGA/month=1/part-0-{begun.id}.parquet"]
    if kind == "disk":  # moto tells of each upload that it was begun in 2010
        keys_begun.append("_delta_log/nobodys.checkpoint.parquet")
    uploads = [store.upload(key) for key in keys_begun]
    for upload in uploads:
        upload.__enter__().write(b"x" * 20 * MIB)
    until = time.monotonic() + 20
    while len(list(store.unfinished())) < len(uploads) and time.monotonic() < until:
        time.sleep(0.05)
    assert table.vacuum(0, force=True).garbage == (), "its writer lives, and what is nobody's was begun a moment ago"
    writer.dies()
    del begun
    dry = table.vacuum(dry_run=True)
    assert [(each.reason, id_in(each.key) is not None) for each in dry.garbage] == [(Reason.UNFINISHED, True)]
    assert len(list(store.unfinished())) == len(uploads)
    assert counted(table.vacuum()) == {"unfinished": 1}
    assert ["_delta_log" in each.key for each in store.unfinished()] == [True] * (len(uploads) - 1)
    assert table.vacuum().garbage == ()
    for each in store.unfinished():
        store.abandon(each)
        store.abandon(each)
    for upload in uploads:
        assert not upload.__exit__(Died, Died(), None)
    assert list(store.unfinished()) == []


def test_unfinished_uploads_that_may_not_be_listed_are_said_so(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    table = filled(place)

    class Closed(MemoryStore):
        def unfinished(self) -> Iterator[Unfinished]:
            raise sluice.AccessDenied("s3:ListBucketMultipartUploads is not allowed")

        def abandon(self, upload: Unfinished) -> None:
            raise AssertionError(upload)

    store = table.access.store
    assert isinstance(store, MemoryStore)
    store.__class__ = Closed
    assert table.vacuum().garbage == ()
    assert "ListBucketMultipartUploads" in caplog.text


def test_what_is_ratified_and_not_published_stays(place: Place) -> None:
    table = filled(place, **VECTORS)
    writer = Writer(place, Limits(inline_bytes_max=64, publication_wait_s=0.1))
    disk = disk_of(place)
    disk.fail_before("put_if_absent", "_delta_log/00000000000000000002.json", times=1_000)
    commit = writer.table.append(flights(("LGA", 1, 9)))
    assert commit is not None
    assert not commit.published
    writer.dies()
    assert table.vacuum(dry_run=True).garbage == ()
    assert table.refresh().snapshot().to_arrow().num_rows == 3
    disk.faults.clear()
    table.append(flights(("LGA", 1, 10)))
    assert counted(table.vacuum()) == {"staged actions": 1}
    assert Snapshot.load(writer.access.store).num_files == 4


def test_a_refused_transactions_files_go_when_its_client_does(place: Place) -> None:
    table = filled(place)
    writer = Writer(place)
    loser = writer.table.begin()
    loser.overwrite(flights(("JFK", 1, 5)), where="origin = 'JFK'")
    table.overwrite(flights(("JFK", 1, 6)), where="origin = 'JFK'")
    with pytest.raises(sluice.ConcurrentModification):
        loser.commit()
    assert table.vacuum().garbage == ()
    writer.dies()
    assert counted(table.vacuum()) == {"orphan": 1}


def test_a_clients_terms_end_and_what_they_left_goes_while_it_lives(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(place)
    writer = Writer(place)
    forgotten = writer.table.begin()
    forgotten.append(flights(("LGA", 1, 9)))
    kept = writer.table.begin()
    kept.append(flights(("LGA", 1, 8)))
    monkeypatch.setattr("sluice.coordinator.nodes.presence._TERM_S", -1.0)
    writer.table.begin()
    assert table.vacuum().garbage == ()
    del forgotten
    writer.table.begin()
    assert table.vacuum().garbage == (), "the other one was begun in that term too"
    assert kept.commit() is not None
    del kept
    writer.table.begin()
    assert counted(table.vacuum()) == {"orphan": 1}
    assert table.refresh().snapshot().to_arrow().num_rows == 3


# -- plans ---------------------------------------------------------------------------------------------------------------


def test_a_plan_stands_until_it_is_committed_whoever_planned_it(place: Place) -> None:
    table = filled(place)
    writer = Writer(place)
    plan = writer.table.plan_write(FLIGHTS)
    files = plan.write(flights(("LGA", 1, 9)))
    owner = owner_of(plan.transaction_id)
    assert owner is not None
    writer.dies()
    later(place, 6 * DAY_MS)
    assert table.vacuum().garbage == ()
    assert table.vacuum(retain_hours=0, force=True).garbage == (), "a retention that is forced does not count for plans"
    commit = Writer(place).table.commit_write(plan, files)
    assert commit is not None
    assert commit.transaction_id == plan.transaction_id
    assert table.vacuum().garbage == ()
    assert table.refresh().snapshot().to_arrow().num_rows == 3


def test_a_plan_that_is_older_than_files_are_retained_cannot_be_committed(place: Place) -> None:
    table = filled(place)
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("LGA", 1, 9)))
    later(place, 8 * DAY_MS)
    assert counted(table.vacuum(dry_run=True)) == {"orphan": 1}
    assert counted(table.vacuum()) == {"orphan": 1}
    with pytest.raises(sluice.TransactionExpired):
        table.commit_write(plan, files)
    assert table.refresh().snapshot().to_arrow().num_rows == 2


def test_the_files_of_a_plan_that_was_refused_are_garbage_at_once(place: Place) -> None:
    table = filled(place)
    plan = table.plan_write(FLIGHTS, mode="overwrite")
    files = plan.write(flights(("LGA", 1, 9)))
    table.delete("origin = 'JFK'")
    with pytest.raises(sluice.ConcurrentModification):
        table.commit_write(plan, files)
    orphans = {each.key for each in table.vacuum(dry_run=True).garbage if each.reason is Reason.ORPHAN}
    assert orphans == {file.path.replace("%3D", "=") for file in files}


def test_the_files_of_a_plan_that_was_given_up_are_garbage_at_once(place: Place) -> None:
    table = filled(place)
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("LGA", 1, 9)))
    assert table.vacuum(dry_run=True).garbage == ()
    abandon_plan(plan)
    abandon_plan(plan)
    assert counted(table.vacuum()) == {"orphan": 1}
    with pytest.raises(sluice.TransactionExpired):
        table.commit_write(plan, files)


def test_a_plan_that_creates_its_table_is_protected_by_whoever_created_it_first(place: Place) -> None:
    """Its files lie where another table comes to be, whose vacuum leaves them alone; then they go to that table."""
    address = TableAddress.of(place.location, place.coordinator)
    plan = plan_creation(address, FLIGHTS, ["origin", "month"], {}, None)
    files = plan.write(flights(("LGA", 1, 9)))
    table = filled(place)
    assert table.vacuum().garbage == ()
    _, commit = commit_creation(plan, files, ack="published", timeout_s=10)
    assert commit is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 3
    assert table.vacuum().garbage == ()
    again = commit_creation(plan, files, ack="published", timeout_s=10)[1]
    assert again is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 3, "a plan is committed once, whoever does it again"


# -- what was replaced ---------------------------------------------------------------------------------------------------


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
    assert set(counted(report)) == {"replaced"}
    assert {f.path.replace("%3D", "=") for f in table.snapshot().raw.add_files()} == keys(place)
    assert table.snapshot().to_arrow().num_rows == len(rows_of(table.snapshot().to_arrow()))


def test_a_pinned_version_keeps_its_files(place: Place) -> None:
    table = filled(place)
    old = table.snapshot()
    with old.pin():
        table.overwrite(flights(("LGA", 1, 9)))
        report = table.vacuum(retain_hours=0, force=True)
        assert report.garbage == ()
        assert rows_of(old.to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1)]
        assert table.snapshot(version=old.version).to_arrow().num_rows == 2
    assert counted(table.vacuum(retain_hours=0, force=True)) == {"replaced": 2}


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
        disk.faults.clear()
        table.overwrite(flights(("LGA", 1, 10)))
        assert table.vacuum(retain_hours=0, force=True).garbage == ()
        assert unpublished.to_arrow().num_rows == 3


def test_a_version_that_was_given_up_cannot_be_pinned(place: Place) -> None:
    table = filled(place)
    old = table.snapshot()
    table.overwrite(flights(("LGA", 1, 9)))
    table.vacuum(retain_hours=0, force=True)
    with pytest.raises(sluice.VersionNotFound, match="garbage collection keeps the files of version 2"):
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
    assert set(counted(table.vacuum(retain_hours=0.5, force=True))) == {"replaced"}


def test_a_removal_that_tells_a_later_time_than_its_version_counts_from_that(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the protocol a file is kept for as long as its removal asks for; another engine's clock may have been ahead."""
    monkeypatch.setattr(Neighbourhood, "due", lambda _: False)  # it would notice what is done to the log here
    filled(place).overwrite(flights(("LGA", 1, 9)))
    key = commit_path(2)
    actions = [json.loads(line) for line in disk_of(place).objects[key][0].splitlines()]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] += 2 * HOUR_MS
    disk_of(place).objects[key] = (b"\n".join(json.dumps(each).encode() for each in actions), disk_of(place).objects[key][1])
    table = Writer(place).table  # which has none of it in hand
    later(place, 7 * DAY_MS + HOUR_MS)
    assert table.vacuum().garbage == ()
    later(place, 7 * DAY_MS + 3 * HOUR_MS)
    assert counted(table.vacuum()) == {"replaced": 2}


def test_a_table_that_was_lost_meanwhile_has_no_horizon(place: Place) -> None:
    """Its nodes are gone: whoever collects is told so, and deletes nothing."""
    filled(place)
    collector = Writer(place)
    snapshot = collector.access.read(consistency="latest")
    lose_everything(place)
    with pytest.raises(CoordinatorUnavailable, match="recover"):
        raise_horizon(collector.access, snapshot.timestamp_ms, snapshot)


@pytest.mark.parametrize("there", [True, False], ids=["raised before", "for the first time"])
@pytest.mark.parametrize("fault", [None, *CoordinatorFault])
def test_of_two_collectors_at_once_the_horizon_is_the_higher_one(place: Place, there: bool, fault: CoordinatorFault | None) -> None:
    """One is stopped right before it writes; the other, with a shorter retention, raises it further meanwhile."""
    table = filled(place)
    for n in range(6):
        table.append(flights(("LGA", 1, n)))
    slow, fast = Writer(place), Writer(place)
    snapshots = {version: table.access.at(version) for version in (2, 4, 7)}
    now_ms = time.time_ns() // 1_000_000 + HOUR_MS
    if there:
        raise_horizon(fast.access, now_ms, snapshots[2])
    interfering = iter([True])

    def interfere(call: Call) -> CoordinatorFault | None:
        if call.session_id == slow.session.session_id and call.verb in ("write", "create") and next(interfering, False):
            raise_horizon(fast.access, now_ms, snapshots[7])
            return fault
        return None

    slow.service.before = interfere
    for _ in range(2):
        try:
            raise_horizon(slow.access, now_ms, snapshots[4])
        except sluice.Unavailable:
            continue
        break
    slow.service.before = None
    assert next(interfering, None) is None
    with pytest.raises(sluice.VersionNotFound, match="version 7"):
        require_above_horizon(table.access, 6)
    require_above_horizon(table.access, 7)


@pytest.mark.parametrize("hours", [0, 1.5, 167])
def test_a_retention_that_is_too_short_is_refused(place: Place, hours: float) -> None:
    table = filled(place)
    before = dict(disk_of(place).objects)
    with pytest.raises(sluice.InvalidRequest, match="shorter than the 168 hours") as caught:
        table.vacuum(retain_hours=hours)
    assert "delta.deletedFileRetentionDuration" in str(caught.value)
    assert disk_of(place).objects == before
    assert table.vacuum(retain_hours=hours, force=True).retain_hours == hours


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), "7", True])
def test_a_retention_that_is_none_is_refused(place: Place, hours: Any) -> None:
    with pytest.raises(sluice.InvalidRequest, match="retain_hours"):
        filled(place).vacuum(retain_hours=hours, force=True)


def test_the_tables_own_retention_needs_no_force(place: Place) -> None:
    table = filled(place, **{"delta.deletedFileRetentionDuration": "interval 2 hours"})
    table.overwrite(flights(("LGA", 1, 9)))
    assert table.vacuum().retain_hours == 2
    with pytest.raises(sluice.InvalidRequest, match="shorter than the 2 hours"):
        table.vacuum(retain_hours=1)
    later(place, 3 * HOUR_MS)
    assert counted(table.vacuum()) == {"replaced": 2}


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
    assert counted(fresh.vacuum()) == {}, "their owner is this process, which is alive"
    assert fresh.snapshot(version=1).to_arrow().num_rows == 2


# -- what is not ours ----------------------------------------------------------------------------------------------------


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
    assert counted(report) == {"orphan": 2}
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
    assert counted(table.vacuum()) == {"orphan": 1}


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
    assert counted(report)["change data"] >= 1
    assert rows_of(table.changes(after=1).drop_columns(["_commit_timestamp"])) == told
    later(place, 8 * DAY_MS)
    assert counted(table.vacuum())["change data"] >= 1
    assert [key for key in keys(place) if key.startswith("_change_data/")] == []


# -- what is told --------------------------------------------------------------------------------------------------------


def test_the_history_tells(place: Place) -> None:
    table = filled(place)
    table.overwrite(flights(("LGA", 1, 9)))
    report = table.vacuum(retain_hours=0, force=True)
    end, start = table.history(2)
    assert (start.operation, end.operation) == ("VACUUM START", "VACUUM END")
    assert start.metrics == {"numFilesToDelete": "2", "sizeOfDataToDelete": str(report.size_bytes)}
    assert start.parameters["retentionCheckEnabled"] == "false"
    assert end.metrics == {"numDeletedFiles": "2"}
    assert table.changes(after=2).num_rows == 0
    info = json.loads(MemoryStore(place.location).get(commit_path(3)).splitlines()[0])["commitInfo"]
    assert info["operation"] == "VACUUM START"


def test_every_object_of_a_transaction_tells_whose_it_is(place: Place) -> None:
    table = filled(place, **{"delta.enableChangeDataFeed": "true", **VECTORS})
    writer = Writer(place, Limits(inline_bytes_max=64))
    before = set(disk_of(place).objects)
    writer.table.append(flights(*[("JFK", 1, n) for n in range(20_000)]))
    writer.table.delete(SCATTERED)
    writer.table.update({"delay": "delay + 1"}, "delay < 5")
    made = {key for key in set(disk_of(place).objects) - before if not key.endswith(".json") or "_staged" in key}
    owners = {owner_of(id_in(key) or "") for key in made}
    assert owners == {owner_of(writer.presence.begin())}
    assert {"_change_data", "_delta_log"} < {key.partition("/")[0] for key in made}
    assert any("deletion_vector" in key for key in made)
    assert table.vacuum().garbage == ()
    writer.dies()
    assert set(counted(table.vacuum())) == {"staged actions"}
    assert table.refresh().snapshot().to_arrow().num_rows > 3000


@pytest.mark.parametrize("failing", ["list", "get", "delete"])
def test_a_vacuum_that_fails_is_repeated(place: Place, failing: Any) -> None:
    table = filled(place)
    writer = Writer(place)
    doomed = writer.table.begin()
    doomed.append(flights(("LGA", 1, 9), ("LGA", 2, 9), ("LGA", 3, 9)))
    writer.dies()
    fresh: Callable[[], sluice.Table] = place.open
    victim = fresh()
    disk_of(place).fail_before(failing, times=1)
    try:
        victim.vacuum()
    except sluice.StorageUnavailable:
        assert table.vacuum() is not None
    assert len([key for key in keys(place) if "LGA" in key]) == 0
    assert table.refresh().snapshot().to_arrow().num_rows == 2


# -- the log -------------------------------------------------------------------------------------------------------------


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
        commit = table.append(flights(("LGA", 1, number)))
        assert commit is not None
        if checkpoints and commit.version in (10, 20):
            table.checkpoint()


def test_expired_commits_below_a_checkpoint_go(place: Place) -> None:
    table = aged(place, days=32)
    rows = rows_of(table.snapshot().to_arrow())
    report = table.vacuum(dry_run=True)
    assert len(report.log_files) == 21
    assert len(log_of(place)) == 28
    assert table.vacuum().log_files == report.log_files
    assert log_of(place)[:2] == ["00000000000000000020.checkpoint.parquet", "00000000000000000020.json"]
    assert rows_of(place.open().snapshot().to_arrow()) == rows
    assert table.snapshot(version=20).to_arrow().num_rows == 21
    with pytest.raises(sluice.VersionNotFound, match="versions 20 to 25 are"):
        place.open(consistency="published").snapshot(version=19)
    assert len(table.history(limit=None)) == 6
    assert table.vacuum().log_files == ()
    assert table.append(flights(("JFK", 1, 1))) is not None


@pytest.mark.parametrize(
    ("days", "properties"),
    [
        (29, {}),
        (300, {"delta.enableExpiredLogCleanup": "false"}),
        (300, {"delta.logRetentionDuration": "interval 400 days"}),
    ],
)
def test_a_log_within_retention_stays(place: Place, days: int, properties: dict[str, str]) -> None:
    table = aged(place, days=days, checkpoints=True, **properties)
    assert table.vacuum().log_files == ()
    assert table.snapshot(version=0).num_files == 0


def test_a_log_without_a_checkpoint_stays(place: Place) -> None:
    table = aged(place, days=100, checkpoints=False)
    assert table.vacuum().log_files == ()


def test_a_pinned_version_can_be_read_after_the_log_was_cleaned(place: Place) -> None:
    table = aged(place, days=100)
    with table.snapshot(version=13).pin():
        assert len(table.vacuum().log_files) == 10
        assert place.open().snapshot(version=13).to_arrow().num_rows == 14
    assert len(table.vacuum().log_files) == 11


def test_a_log_can_be_read_whenever_its_cleaning_stops(place: Place) -> None:
    """After every single deletion, what is there is whole: a version is there, or it is told which are."""
    table = aged(place, days=100)
    disk = disk_of(place)

    def look() -> None:
        seen.append(len(disk.objects))
        snapshot = Snapshot.load(MemoryStore(place.location))
        assert snapshot.version == 25
        for version in (5, 15):
            try:
                Snapshot.load(MemoryStore(place.location), version=version)
            except sluice.VersionNotFound:
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
    assert len(fresh.vacuum().log_files) == 21
    assert reader.refresh().snapshot().to_arrow().num_rows == 26
    with pytest.raises(sluice.TransactionExpired, match="begun on version 1"):
        begun.commit()
    assert blind.commit() is not None
    assert place.open().snapshot().to_arrow().num_rows == 27


def aged_by(place: Place, days: int) -> None:
    disk = disk_of(place)
    for key, (data, modified_ms) in list(disk.objects.items()):
        lines = data.splitlines()
        if key.startswith("_delta_log/0") and key.endswith(".json"):
            info = json.loads(lines[0])
            info["commitInfo"]["inCommitTimestamp"] -= days * DAY_MS
            data = b"\n".join([json.dumps(info).encode(), *lines[1:]]) + b"\n"
        disk.objects[key] = (data, modified_ms - days * DAY_MS)


# -- real processes on a real ZooKeeper ----------------------------------------------------------------------------------

SCHEMA = pa.schema([pa.field("part", pa.string(), nullable=False), pa.field("value", pa.int64())])


def doomed(location: Path, coordinator: str, failpoint: str) -> str:
    """A writer that appends directly and kills itself at a failure point; the id that its files carry."""
    program = (
        "import sys, pyarrow as pa, sluice\n"
        "from sluice.coordinator.limits import Limits\n"
        "table = sluice.Table.open(sys.argv[1], coordinator=sys.argv[2], limits=Limits(fast_path=False, inline_bytes_max=64))\n"
        "begun = table.begin()\n"
        "print(begun.id, flush=True)\n"
        "begun.append(pa.table({'part': ['p'], 'value': pa.array([1], pa.int64())}))\n"
        "begun.commit()\n"
    )
    environment = {**os.environ, "SLUICE_FAILPOINT": failpoint}
    command = [sys.executable, "-c", program, str(location), coordinator]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


@pytest.mark.zookeeper
@pytest.mark.parametrize("failpoint", ["data-staged", "actions-staged", "before-claim", "after-claim"])
def test_a_writer_killed_before_it_filed_leaves_orphans_that_are_found_at_once(
    tmp_path: Path, zookeeper_address: str, failpoint: str
) -> None:
    location, coordinator = tmp_path / "table", f"{zookeeper_address}?session_timeout_s=4"
    table = sluice.Table.create(location, SCHEMA, coordinator=coordinator)
    try:
        transaction = doomed(location, coordinator, failpoint)
        left = {str(path.relative_to(location)) for path in location.rglob(f"*{transaction}*")}
        assert left
        deadline = time.monotonic() + 30
        report = table.vacuum()
        while failpoint != "after-claim" and not report.garbage:  # until its session is over
            assert time.monotonic() < deadline
            time.sleep(0.2)
            report = table.vacuum()
        if failpoint == "after-claim":
            assert report.garbage == ()
            assert table.outcome(transaction).state == "committed"
            assert table.refresh().snapshot().to_arrow().num_rows == 1
        else:
            assert {each.key for each in report.garbage} == left
            assert table.outcome(transaction).state == "unknown"
            assert table.refresh().snapshot().to_arrow().num_rows == 0
    finally:
        connect.release(coordinator)


@pytest.mark.zookeeper
def test_a_process_that_was_stopped_beyond_its_session_and_continued(tmp_path: Path, zookeeper_address: str) -> None:
    """SIGSTOP between writing and committing, vacuum by another process, SIGCONT: it is refused, and may begin again."""
    location, coordinator = tmp_path / "table", f"{zookeeper_address}?session_timeout_s=4"
    table = sluice.Table.create(location, SCHEMA, coordinator=coordinator)
    program = (
        "import sys, pyarrow as pa, sluice\n"
        "table = sluice.Table.open(sys.argv[1], coordinator=sys.argv[2])\n"
        "rows = pa.table({'part': ['p'], 'value': pa.array([1], pa.int64())})\n"
        "begun = table.begin()\n"
        "begun.append(rows)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "    begun.commit()\n"
        "except sluice.TransactionExpired:\n"
        "    print('expired', table.append(rows).version, flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(location), coordinator]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            assert table.vacuum().garbage == ()
            process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 30
            while not table.vacuum().garbage:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            process.send_signal(signal.SIGCONT)
            process.stdin.write("go\n")
            process.stdin.flush()
            assert process.stdout.readline().split()[0] == "expired"
            assert process.wait(30) == 0
        finally:
            process.kill()
            connect.release(coordinator)
    rows = sluice.Table.open(location, consistency="published").snapshot().to_arrow()
    assert rows["value"].to_pylist() == [1]


# -- a store that is full ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 15], ids=["none", "little"])
def test_a_store_that_is_full_is_cleaned_up(place: Place, room: int) -> None:
    """That is when a vacuum is wanted most: its probe finds no room, nor does the commit that says that it begins."""
    table = filled(place)
    table.overwrite(flights(("LGA", 1, 9)))
    disk = disk_of(place)
    disk.capacity_bytes = sum(len(content) for content, _ in disk.objects.values()) + room
    before = set(disk.objects)
    dry = table.vacuum(retain_hours=0, force=True, dry_run=True)
    assert counted(dry) == {"replaced": 2}
    assert set(disk.objects) == before
    report = table.vacuum(retain_hours=0, force=True)
    assert report.garbage == dry.garbage
    disk.capacity_bytes = None
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("LGA", 1, 9)]
    table.append(flights(("LGA", 1, 10)))
    assert [each.operation for each in table.history(3)][1:] == ["VACUUM END", "WRITE"]


def test_a_store_without_room_for_an_empty_object_tells_the_time_by_its_log(place: Place) -> None:
    table = filled(place)
    table.overwrite(flights(("LGA", 1, 9)))
    disk = disk_of(place)
    disk.fail_before("put", f"{PROBE_PREFIX}*", times=4, error=sluice.StorageFull("no inode is left"))
    later(place, 400 * DAY_MS)
    assert table.vacuum(dry_run=True).garbage == (), "as of the newest version"
    assert table.vacuum(retain_hours=0, force=True).counts == {"replaced": 2}
