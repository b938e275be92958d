"""Garbage collection: what may go goes at once, and what may still be needed stays, however old or young.

Writers are objects of this process with presences of their own, so that a test can let one die, sleep or come back.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.presence import id_in, owner_of
from sluice.coordinator.rules.intent import Terms
from sluice.coordinator.service.memory import Call
from sluice.coordinator.service.store import Create
from sluice.storage.log.paths import commit_path
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.local import LocalStore
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import KeepsUnfinished, Unfinished
from sluice.tables.client.address import TableAddress
from sluice.tables.maintain.garbage import Reason
from sluice.tables.manage.creation import new_table
from sluice.tables.planned_writes import abandon_plan, commit_creation, plan_creation
from tests.mending import mend
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import DAY_MS, Writer, disk_of, later

SCATTERED = "delay * 7919 % 1009 < 300"
"""Rows so scattered that the vector which lists them is no inline one."""
VECTORS = {"delta.enableDeletionVectors": "true"}


class Died(BaseException):
    """Ends a writer in the middle of a call."""


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


def keys(place: Place) -> set[str]:
    """What is stored beside the log."""
    return {key for key in disk_of(place).objects if not key.startswith("_delta_log/")}


def filled(place: Place, **properties: str) -> sluice.Table:
    place.create(properties=properties)
    table = place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    return table


def appending(place: Place, limits: Limits | None = None) -> tuple[Writer, sluice.Transaction]:
    """A client elsewhere with an open transaction that appended a row."""
    writer = Writer(place, limits or Limits())
    begun = writer.table.begin()
    begun.append(flights(("LGA", 1, 9)))
    return writer, begun


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
    writer, _doomed = appending(place)
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


@pytest.mark.notices("present-terms-are-kept")
def test_a_writer_that_is_slow_keeps_its_files_however_old_they_are(place: Place) -> None:
    table, (_writer, slow) = filled(place), appending(place)
    later(place, 400 * DAY_MS)
    assert table.vacuum().garbage == ()
    assert table.vacuum(retain_hours=0, force=True).garbage == ()
    assert slow.commit() is not None
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1), ("LGA", 1, 9)]


@pytest.mark.shows("writer-paused")
@pytest.mark.parametrize("fast_path", [True, False], ids=["direct", "queued"])
@pytest.mark.parametrize("large", [True, False], ids=["staged", "inline"])
def test_a_paused_writer_whose_files_were_collected_cannot_commit(place: Place, fast_path: bool, large: bool) -> None:
    table, (writer, paused) = filled(place), appending(place, Limits(fast_path=fast_path, inline_bytes_max=64 if large else 65536))
    writer.dies()
    assert table.vacuum().counts == {"orphan": 1}
    with pytest.raises(sluice.errors.TransactionExpired, match="begin it again") as caught:
        paused.commit()
    assert caught.value.retryable
    assert paused.state == "refused"
    assert table.outcome(paused.id).state == "unknown"
    assert writer.table.append(flights(("LGA", 1, 9))) is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 3
    assert table.vacuum().counts == ({"staged actions": 1} if large else {})


@pytest.mark.shows("session-expired")
def test_a_paused_writer_that_nobody_took_for_dead_commits(place: Place) -> None:
    table, (writer, paused) = filled(place), appending(place)
    writer.dies()
    assert paused.commit() is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 3
    assert table.vacuum().garbage == ()


def test_a_writer_that_is_taken_for_dead_between_its_decision_and_its_filing(place: Place) -> None:
    """Right before the multi that files it: the check in that very multi stops it."""
    table, (writer, unlucky) = filled(place), appending(place)

    def overtake(call: Call) -> None:
        if call.session_id == writer.session.session_id and any(op.path.endswith("/head") for op in call.ops):
            writer.service.before = None
            writer.dies()
            assert table.vacuum().counts == {"orphan": 1}

    writer.service.before = overtake
    try:
        with pytest.raises((sluice.errors.TransactionExpired, sluice.errors.OutcomeUnknown)):
            unlucky.commit()
    finally:
        writer.service.before = None
    with pytest.raises(sluice.errors.TransactionExpired):
        unlucky.commit()
    assert table.refresh().snapshot().to_arrow().num_rows == 2


def files_slot(call: Call) -> bool:
    return any(isinstance(op, Create) and op.sequential and "/slots/" in op.path for op in call.ops)


def dies_filing(writer: Writer, act: Callable[[], object], *, after: bool) -> None:
    """A client dies right before, or after, its transaction is filed."""

    def die(call: Call) -> None:
        if files_slot(call):
            raise Died

    writer.service.before, writer.service.after = (None, die) if after else (die, None)
    with pytest.raises(Died):
        act()
    writer.service.before = writer.service.after = None
    writer.dies()


@pytest.mark.notices("filed-is-kept")
@pytest.mark.parametrize("large", [True, False], ids=["staged", "inline"])
def test_what_is_filed_is_nobodys_garbage_though_its_owner_is_dead(place: Place, large: bool) -> None:
    table = filled(place)
    writer = Writer(place, Limits(fast_path=False, inline_bytes_max=64 if large else 65536))
    dies_filing(writer, lambda: writer.table.append(flights(("LGA", 1, 9))), after=True)
    before = dict(disk_of(place).objects)
    dry = table.vacuum(dry_run=True)
    assert dry.garbage == ()
    assert disk_of(place).objects.keys() == before.keys()
    table.vacuum()
    assert rows_of(table.snapshot(consistency="serial").to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1), ("LGA", 1, 9)]
    report = table.vacuum()
    assert report.counts == ({"staged actions": 1} if large else {})
    assert table.snapshot().to_arrow().num_rows == 3


# -- what is no object yet -----------------------------------------------------------------------------------------------


def unfinished_on(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Place, dict[str, str]]:
    name = f"memory://{uuid.uuid4().hex}"
    if kind == "disk":
        return Place(str(tmp_path / "flights"), name), {}
    return Place(request.getfixturevalue("s3_location"), name), request.getfixturevalue("s3_options")


@pytest.mark.costly
@pytest.mark.shows("upload-killed")
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
        upload.__enter__().write(b"x" * (20 << 20))
    until = time.monotonic() + 20
    while len(list(store.unfinished())) < len(uploads) and time.monotonic() < until:
        time.sleep(0.05)
    assert table.vacuum(0, force=True).garbage == (), "its writer lives, and what is nobody's was begun a moment ago"
    writer.dies()
    del begun
    dry = table.vacuum(dry_run=True)
    assert [(each.reason, id_in(each.key) is not None) for each in dry.garbage] == [(Reason.UNFINISHED, True)]
    assert len(list(store.unfinished())) == len(uploads)
    assert table.vacuum().counts == {"unfinished": 1}
    assert ["_delta_log" in each.key for each in store.unfinished()] == [True] * (len(uploads) - 1)
    assert table.vacuum().garbage == ()
    for each in store.unfinished():
        store.abandon(each)
        store.abandon(each)
    for upload in uploads:
        assert not upload.__exit__(Died, Died(), None)
    assert list(store.unfinished()) == []


def test_a_folder_for_files_by_another_program_goes_when_its_writer_is_dead(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    here, _ = unfinished_on("disk", tmp_path, request)
    table = here.create()
    store = table.access.store
    assert isinstance(store, LocalStore)
    writer = Writer(here)
    begun = writer.table.begin()
    with store.staging(begun.id) as folder:
        (folder / "_temporary").mkdir()
        (folder / "_temporary" / f"part-0-{begun.id}.parquet").write_bytes(b"x")
        assert table.vacuum(0, force=True).garbage == (), "its writer lives"
        assert folder.exists()
        writer.dies()
        del begun
        assert table.vacuum().counts == {"unfinished": 1}
        assert not folder.exists()
    assert table.vacuum().garbage == ()


def test_unfinished_uploads_that_may_not_be_listed_are_said_so(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    table = filled(place)

    class Closed(MemoryStore):
        def unfinished(self) -> Iterator[Unfinished]:
            raise sluice.errors.AccessDenied("s3:ListBucketMultipartUploads is not allowed")

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
    assert not present(writer.table.append(flights(("LGA", 1, 9)))).published
    writer.dies()
    assert table.vacuum(dry_run=True).garbage == ()
    assert table.refresh().snapshot().to_arrow().num_rows == 3
    mend(disk)
    table.append(flights(("LGA", 1, 10)))
    assert table.vacuum().counts == {"staged actions": 1}
    assert Snapshot.load(writer.access.store).num_files == 4


def test_files_that_a_refused_transaction_could_not_delete_go_when_its_client_does(place: Place) -> None:
    table = filled(place)
    disk = disk_of(place)
    writer = Writer(place)
    loser = writer.table.begin()
    loser.overwrite(flights(("JFK", 1, 5)), where="origin = 'JFK'")
    table.overwrite(flights(("JFK", 1, 6)), where="origin = 'JFK'")
    disk.fail_before("delete", times=1_000)
    with pytest.raises(sluice.errors.ConcurrentModification):
        loser.commit()
    mend(disk)
    assert table.vacuum().garbage == ()
    writer.dies()
    assert table.vacuum().counts == {"orphan": 1}


def test_a_clients_terms_end_and_what_they_left_goes_while_it_lives(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table, (writer, forgotten) = filled(place), appending(place)
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
    assert table.vacuum().counts == {"orphan": 1}
    assert table.refresh().snapshot().to_arrow().num_rows == 3


# -- plans ---------------------------------------------------------------------------------------------------------------


@pytest.mark.notices("open-plans-are-kept")
def test_a_plan_stands_until_it_is_committed_whoever_planned_it(place: Place) -> None:
    table = filled(place)
    writer = Writer(place)
    plan = writer.table.plan_write(FLIGHTS)
    files = plan.write(flights(("LGA", 1, 9)))
    assert owner_of(plan.transaction_id) is not None
    writer.dies()
    later(place, 6 * DAY_MS)
    assert table.vacuum().garbage == ()
    assert table.vacuum(retain_hours=0, force=True).garbage == (), "a retention that is forced does not count for plans"
    assert present(Writer(place).table.commit_write(plan, files)).transaction_id == plan.transaction_id
    assert table.vacuum().garbage == ()
    assert table.refresh().snapshot().to_arrow().num_rows == 3


def test_a_plan_that_is_older_than_files_are_retained_cannot_be_committed(place: Place) -> None:
    table = filled(place)
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("LGA", 1, 9)))
    later(place, 8 * DAY_MS)
    assert table.vacuum(dry_run=True).counts == {"orphan": 1}
    assert table.vacuum().counts == {"orphan": 1}
    with pytest.raises(sluice.errors.TransactionExpired):
        table.commit_write(plan, files)
    assert table.refresh().snapshot().to_arrow().num_rows == 2


def test_the_files_of_a_plan_that_was_refused_are_garbage_at_once(place: Place) -> None:
    table = filled(place)
    plan = table.plan_write(FLIGHTS, mode="overwrite")
    files = plan.write(flights(("LGA", 1, 9)))
    table.delete("origin = 'JFK'")
    with pytest.raises(sluice.errors.ConcurrentModification):
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
    assert table.vacuum().counts == {"orphan": 1}
    with pytest.raises(sluice.errors.TransactionExpired):
        table.commit_write(plan, files)


def test_a_plan_that_creates_its_table_is_protected_by_whoever_created_it_first(place: Place) -> None:
    """Its files lie where another table comes to be, whose vacuum leaves them alone; then they go to that table."""
    address = TableAddress.of(place.location, place.coordinator)
    plan = plan_creation(address, new_table(FLIGHTS, ["origin", "month"]), Terms())
    files = plan.write(flights(("LGA", 1, 9)))
    table = filled(place)
    assert table.vacuum().garbage == ()
    _, commit = commit_creation(plan, files)
    assert commit is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 3
    assert table.vacuum().garbage == ()
    again = commit_creation(plan, files)[1]
    assert again is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 3, "a plan is committed once, whoever does it again"


# -- reports -----------------------------------------------------------------------------------------------------------


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
    assert set(table.vacuum().counts) == {"staged actions"}
    assert table.refresh().snapshot().to_arrow().num_rows > 3000


@pytest.mark.shows("vacuum-fails")
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
    except sluice.errors.StorageUnavailable:
        assert table.vacuum() is not None
    assert len([key for key in keys(place) if "LGA" in key]) == 0
    assert table.refresh().snapshot().to_arrow().num_rows == 2
