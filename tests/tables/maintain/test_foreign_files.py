"""Files in a table's folder that belong to somebody else: a table is not created among them unasked, and a vacuum leaves them alone.

In what order garbage collection looks decides whether it is safe: somebody acts between each two of its looks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.api import pinned_versions
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.creation import make_tree
from sluice.coordinator.nodes.layout import GRAVES, TableTree
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.rules.intent import Terms
from sluice.coordinator.service.memory import Call, MemorySession
from sluice.coordinator.service.store import Op
from sluice.storage.log.paths import staged_path
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import Unfinished
from sluice.tables.client.address import TableAddress
from sluice.tables.maintain.garbage import Reason
from sluice.tables.manage.creation import new_table
from sluice.tables.planned_writes import commit_creation, plan_creation
from tests.mending import mend
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import DAY_MS, Writer, disk_of, former_of, later, service_of
from tests.tables.maintain.test_log_cleanup import aged_by, grown
from tests.tables.maintain.test_vacuum import Died, appending, dies_filing, files_slot, filled, keys

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
def place(in_memory: Place) -> Place:
    return in_memory


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
    table = place.filled(("JFK", 1, 1), allow_nonempty=True)
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
    table = place.filled(("JFK", 1, 1), ("JFK", 1, 2), properties={"delta.enableChangeDataFeed": "true"})
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
    table = place.filled(("JFK", 1, 1), allow_nonempty=True)
    table.vacuum(retain_hours=0, force=True)
    assert thesis.read_text() == "forty years of work"
    Writer(place)


def test_the_option_is_a_boolean(place: Place) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="allow_nonempty"):
        sluice.Table.create(place.location, pa.schema([("a", pa.int64())]), coordinator=place.coordinator, allow_nonempty="no")  # type: ignore[arg-type]


QUEUED = Limits(fast_path=False)


@pytest.mark.notices("busy-is-asked-after-gone")
@pytest.mark.parametrize("committed", [False, True], ids=["filed", "committed"])
def test_what_is_filed_or_committed_right_before_its_owner_is_buried_stays(place: Place, committed: bool) -> None:
    """A collection looks for busy clients, and then for commits, only when nothing more can be filed."""
    table, (writer, begun) = filled(place), appending(place, QUEUED)
    writer.dies()

    def come_back_and_die(call: Call) -> None:
        if any(op.path.startswith(f"{GRAVES}/") and op.path.endswith(writer.presence._life.client) for op in call.ops):
            writer.service.before = None
            writer.presence.announce()
            if committed:
                begun.commit()
                writer.dies()
            else:
                dies_filing(writer, begun.commit, after=True)

    writer.service.before = come_back_and_die
    before = keys(place)
    assert table.vacuum().garbage == ()
    assert keys(place) == before
    assert rows_of(table.snapshot(consistency="serial").to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1), ("LGA", 1, 9)]


@pytest.mark.notices("latest-is-read-last")
def test_change_data_committed_right_before_their_owner_is_buried_stay(place: Place) -> None:
    """No snapshot has change data: the commits say which there are, up to the latest one."""
    table = filled(place, **{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"})
    writer = Writer(place, QUEUED)
    begun = writer.table.begin()
    begun.update({"delay": "9"}, "origin = 'JFK'")
    dies_filing(writer, begun.commit, after=False)
    assert any(key.startswith("_change_data/") for key in keys(place)), "it wrote its change data, and filed nothing"

    def come_back_and_commit(call: Call) -> None:
        if any(op.path.startswith(f"{GRAVES}/") and op.path.endswith(writer.presence._life.client) for op in call.ops):
            writer.service.before = None
            writer.presence.announce()
            begun.commit()
            writer.dies()

    writer.service.before = come_back_and_commit
    before = keys(place)
    assert table.vacuum().garbage == ()
    assert keys(place) == before
    changes = table.refresh().changes(after=1)
    assert sorted(changes["_change_type"].to_pylist()) == ["update_postimage", "update_preimage"]


@pytest.mark.notices("looking-only-buries-nobody", "looking-only-closes-no-plan")
def test_looking_for_garbage_without_deleting_it_changes_nothing_for_anybody(place: Place) -> None:
    """A writer whose session expired counts as dead, and comes back."""
    table, (writer, begun) = filled(place), appending(place)
    plan = writer.table.plan_write(FLIGHTS)
    files = plan.write(flights(("LGA", 1, 10)))
    writer.dies()
    later(place, 400 * DAY_MS)
    assert table.vacuum(dry_run=True).counts == {"orphan": 2}
    assert begun.commit() is not None
    assert table.commit_write(plan, files) is not None
    assert table.refresh().snapshot().to_arrow().num_rows == 4


@pytest.mark.notices("ratified-is-kept")
def test_what_a_ratified_version_needs_to_be_published_stays_though_it_has_no_slot(place: Place) -> None:
    """Actions that were adapted are staged under its id when they are large; it is on the fast path, and its owner is dead."""
    table, writer = filled(place), Writer(place, Limits(publication_wait_s=0.1))
    writer.table.append(flights(("LGA", 1, 1)))
    disk = disk_of(place)
    disk.fail_before("put_if_absent", "_delta_log/00000000000000000003.json", times=1_000)
    commit = present(writer.table.append(flights(("LGA", 1, 9))))
    assert not commit.published
    key = staged_path(f"{commit.transaction_id}-0123456789abcdef")
    MemoryStore(place.location).put(key, b"{}")
    writer.dies()
    assert table.vacuum(dry_run=True).garbage == ()
    mend(disk)
    table.append(flights(("LGA", 1, 10)))
    assert [each.key for each in table.vacuum().garbage] == [key]


@pytest.mark.notices("horizon-before-pins")
def test_who_pins_after_pins_were_looked_for_is_told_that_it_is_too_late(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far back files are kept is written before pins are read: who is not seen sees it."""
    table = filled(place)
    reader = place.open()
    old = reader.snapshot()
    table.overwrite(flights(("JFK", 1, 5)))
    later(place, 10 * DAY_MS)
    told: list[str] = []

    def and_somebody_pins(context: TableContext) -> set[int]:
        monkeypatch.setattr("sluice.coordinator.api.pinned_versions", pinned_versions)
        found = pinned_versions(context)
        try:
            old.pin()
        except sluice.errors.VersionNotFound as gone:
            told.append(gone.message)
        return found

    monkeypatch.setattr("sluice.coordinator.api.pinned_versions", and_somebody_pins)
    assert {each.reason.value for each in table.vacuum().garbage} == {"replaced"}
    assert len(told) == 1


@pytest.mark.notices("unreadable-pins-keep-everything")
def test_a_pin_that_cannot_be_read_keeps_everything(place: Place) -> None:
    table = filled(place)
    table.overwrite(flights(("JFK", 1, 5)))
    later(place, 10 * DAY_MS)
    session = service_of(place).connect()
    tree = TableTree(place.location)
    session.ensure_path(tree.pins)
    path = f"{tree.pins}/p-newer"
    session.create(path, orjson.dumps({"versions": ["7", "8"]}), ephemeral=True)
    assert table.vacuum().garbage == ()
    session.delete(path)
    assert len(table.vacuum().garbage) == 2


@pytest.mark.notices("the-log-of-undecided-transactions-is-kept")
def test_the_log_that_an_undecided_transaction_is_compared_with_stays(place: Place) -> None:
    """Its owner slept for a hundred days, filed it, and died: what came meanwhile is there to compare it with."""
    table, writer = filled(place), Writer(place, QUEUED)

    def sleep(call: Call) -> None:
        if files_slot(call):
            writer.service.before = None
            grown(table)
            aged_by(place, 100)

    def die(call: Call) -> None:
        if files_slot(call) and call.session_id == writer.session.session_id:
            writer.service.after = None
            raise Died

    writer.service.before, writer.service.after = sleep, die
    with pytest.raises(Died):
        writer.table.delete("delay = 2")
    writer.dies()
    fresh = place.open()
    assert fresh.vacuum().log_files == ()
    assert ("EWR", 2, 2) not in rows_of(fresh.snapshot(consistency="serial").to_arrow()), "it was decided, and committed"
    assert len(fresh.vacuum().log_files) == 22


def lose(session: MemorySession, path: str) -> None:
    """Remove a node with all that is below it."""
    for name in session.children(path) or ():
        lose(session, f"{path}/{name}")
    session.delete(path)


@pytest.mark.notices("one-rebuilds-at-a-time")
def test_who_lost_the_right_to_rebuild_a_tree_makes_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session is over right before it makes the nodes: by then somebody else may have sealed the log."""
    filled(place)
    service = service_of(place)
    root = TableTree(place.location).root
    lose(service.connect(), root)

    def having_lost_the_right(context: TableContext, head: Head, *, while_standing: Sequence[Op] = (), **kept: Any) -> None:
        for each in list(service._sessions.values()):
            each.expire()
        make_tree(context, head, while_standing=while_standing, **kept)

    monkeypatch.setattr("sluice.coordinator.publication.rebuilding.make_tree", having_lost_the_right)
    with pytest.raises(sluice.errors.Unavailable, match="repeat the recovery"):
        sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), wait_s=0)
    monkeypatch.undo()
    assert service.connect().read(root) is None
    assert sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), wait_s=0).version == 3
