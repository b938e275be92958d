"""Letting go of a table: its files, its nodes, its location; and writers whose table's folder went from under them."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

import sluice
from sluice.cli import main
from sluice.coordinator import api
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes import removal as nodes
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.nodes.removal import Deletion
from sluice.coordinator.service.memory import Fault
from sluice.coordinator.service.store import CoordinationStore
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.location import normalise
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.client.address import TableAddress
from sluice.tables.manage import dropping
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import Writer, disk_of, expire_all, rested, service_of

QUEUED = Limits(fast_path=False, patience_s=0.02, patience_s_max=0.1, publication_wait_s=0.2)


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


@pytest.fixture
def local(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "flights"), f"memory://{uuid.uuid4().hex}")


def filled(place: Place) -> sluice.Table:
    place.create(properties={"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"})
    table = place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    table.delete("delay = 1")
    return table


def dropped(place: Place, *, keep_data: bool = False) -> sluice.DropReport:
    return dropping.drop(TableAddress.of(place.location, place.coordinator), keep_data=keep_data)


def nodes_of(place: Place) -> list[str]:
    """The nodes of the table, as paths below its root."""
    return below(service_of(place).connect(), TableTree(normalise(place.location)).root)


def below(session: CoordinationStore, path: str) -> list[str]:
    if session.read(path) is None:
        return []
    return [path, *(each for name in session.children(path) or () for each in below(session, f"{path}/{name}"))]


# -- dropping ------------------------------------------------------------------------------------------------------------


def test_a_dropped_table_leaves_nothing_but_what_was_never_its_own(place: Place) -> None:
    table = filled(place)
    strangers = ["docs/thesis.txt", "inner/_delta_log/00000000000000000000.json", "inner/part-0.parquet", ".hidden"]
    for key in strangers:
        disk_of(place).store(key, b"somebody's")
    before = len(disk_of(place).objects)
    report = table.drop()
    assert set(disk_of(place).objects) == set(strangers)
    assert (report.version, report.deleted, set(report.kept)) == (3, before + 1 - len(strangers), set(strangers))
    assert nodes_of(place) == []
    for attempt in (place.open, lambda: dropped(place)):
        with pytest.raises(sluice.errors.NotATable, match="is not a Delta table"):
            attempt()


def test_files_that_an_engine_wrote_before_there_was_a_table_stay(local: Place) -> None:
    former = Path(local.location) / "part-00000-5fba94ed-9794-4965-ba6e-6ee3c0d22af9-c000.snappy.parquet"
    former.parent.mkdir(parents=True)
    former.write_bytes(b"somebody's rows")
    os.utime(former, (1_000_000_000, 1_000_000_000))
    table = local.filled(("JFK", 1, 1), allow_nonempty=True)
    orphan = former.with_name("part-00000-6fba94ed-9794-4965-ba6e-6ee3c0d22af9-c000.snappy.parquet")
    orphan.write_bytes(b"what an engine that died left in this table")
    assert table.drop().kept == (former.name,)
    assert former.read_bytes() == b"somebody's rows"
    assert not orphan.exists()
    assert not (former.parent / "_delta_log").exists()


@pytest.mark.notices("a-table-in-its-place-is-another")
def test_a_table_in_the_place_of_a_dropped_one_is_another(place: Place) -> None:
    """Also for a client that looks for the first time when the other table is there, with as many versions or more."""
    former, reader = filled(place), Writer(place).table
    assert reader.snapshot().to_arrow().num_rows
    former.drop()
    table = filled(place)
    table.append(flights(("BOS", 9, 9)))
    for act in (reader.refresh, lambda: reader.snapshot().to_arrow(), lambda: reader.append(flights(("LGA", 3, 4)))):
        with pytest.raises(sluice.errors.TreeReplaced):
            act()
    assert rows_of(table.snapshot().to_arrow()) == rows_of(place.open().snapshot().to_arrow())


def test_whoever_has_it_open_is_told_and_writes_nothing(place: Place) -> None:
    table = filled(place)
    others = [Writer(place), Writer(place, QUEUED)]
    for each in others:
        each.table.append(flights(("LGA", 3, 3)))
    begun = others[0].table.begin()
    begun.append(flights(("LGA", 3, 4)))
    table.drop()
    left = set(disk_of(place).objects)
    for act in (
        begun.commit,
        *(act for each in others for act in (lambda e=each: e.table.append(flights(("LGA", 9, 9))), each.table.refresh)),
        lambda: others[1].table.delete("month = 3"),
        lambda: others[0].table.compact("major"),
        others[0].table.vacuum,
        table.refresh,
        lambda: table.append(flights(("LGA", 9, 9))),
        table.drop,
        lambda: sluice.read_together([table]),
        lambda: sluice.transaction(tables=[table]),
    ):
        with pytest.raises(sluice.errors.TableNotFound, match=r"dropped|no table"):
            act()
    assert not [key for key in set(disk_of(place).objects) - left if key.startswith("_delta_log/0")]


@pytest.mark.parametrize("limits", [Limits(), QUEUED], ids=["direct", "queued"])
def test_a_table_is_created_in_its_place_at_once_and_former_writers_stay_out(place: Place, limits: Limits) -> None:
    table, writer = filled(place), Writer(place, limits)
    writer.table.append(flights(("LGA", 3, 3)))
    begun = writer.table.begin()
    begun.append(flights(("LGA", 3, 4)))
    table.drop()
    place.create().append(flights(("SFO", 1, 1)))
    for act in (begun.commit, lambda: writer.table.append(flights(("LGA", 9, 9))), writer.table.refresh):
        with pytest.raises((sluice.errors.TreeReplaced, sluice.errors.TableDropped)):
            act()
    assert rows_of(place.open().snapshot().to_arrow()) == [("SFO", 1, 1)]
    assert place.open().version == 1
    place.open().drop()
    assert place.create().version == 0, "as often as one likes"


def test_data_that_are_kept_are_a_delta_table_of_nobodys(local: Place) -> None:
    import deltalake

    table = filled(local)
    report = table.drop(keep_data=True)
    assert (report.version, report.deleted, report.kept) == (3, 0, ())
    assert nodes_of(local) == []
    assert local.open(consistency="published").snapshot().to_arrow().num_rows == 1
    assert deltalake.DeltaTable(local.location).version() == 3
    with pytest.raises(sluice.errors.NotATable, match="bring it in with"):
        local.open()
    again = sluice.Table.attach(local.location, coordinator=local.coordinator)
    again.append(flights(("LGA", 3, 3)))
    assert again.refresh().version == 5


# -- interrupted ---------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Ends a drop in the middle."""


def dies(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("step", ["bury_tree", "_delete_data", "inner_tables", "done"])
def test_a_drop_that_was_interrupted_is_finished(place: Place, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    filled(place)
    monkeypatch.setattr(Deletion if step == "done" else api if step == "bury_tree" else dropping, step, dies)
    with pytest.raises(Killed):
        dropped(place)
    monkeypatch.undo()
    if step != "bury_tree":
        with pytest.raises(sluice.errors.InvalidRequest, match=r"being dropped.*sluice drop"):
            place.create()
    report = dropped(place)
    assert report.version == 3
    assert (disk_of(place).objects, nodes_of(place)) == ({}, [])
    assert place.create().version == 0


@pytest.mark.parametrize("number", range(5))
def test_a_removal_of_nodes_that_was_interrupted_is_finished_by_whoever_comes(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    filled(place)
    session, calls = Writer(place).session, iter(range(100))
    apply = type(session).apply

    def apply_or_die(self: object, ops: object) -> object:
        if "/closed" in repr(ops) and next(calls) == number:
            raise Killed
        return apply(self, ops)  # type: ignore[arg-type]

    monkeypatch.setattr(type(session), "apply", apply_or_die)
    monkeypatch.setattr(nodes, "_REMOVALS_AT_ONCE", 3)
    with pytest.raises(Killed):
        dropped(place)
    monkeypatch.undo()
    if number:
        with pytest.raises(sluice.errors.TableDropped):
            place.open()
    dropped(place)
    assert (disk_of(place).objects, nodes_of(place)) == ({}, [])
    assert place.create().version == 0


@pytest.mark.notices("a-dropped-tree-is-closed-at-once")
@pytest.mark.parametrize("limits", [Limits(), QUEUED], ids=["direct", "queued"])
def test_a_tree_is_closed_by_the_first_step_of_its_removal(place: Place, monkeypatch: pytest.MonkeyPatch, limits: Limits) -> None:
    """The folder comes back (a disk that was not mounted): nobody commits to it under the nodes that are being removed."""
    filled(place)
    writer = Writer(place, limits)
    writer.table.append(flights(("LGA", 3, 3)))
    kept = dict(disk_of(place).objects)
    disk_of(place).objects.clear()
    monkeypatch.setattr(nodes, "below", dies)
    with pytest.raises(Killed):
        sluice.forget(place.location, coordinator=place.coordinator)
    disk_of(place).objects.update(kept)
    with pytest.raises(sluice.errors.TableDropped):
        writer.table.append(flights(("LGA", 3, 4)))
    assert {key for key in disk_of(place).objects if key.startswith("_delta_log/0")} <= set(kept)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
@pytest.mark.parametrize("message", range(4))
def test_whatever_message_is_lost(place: Place, fault: Fault, message: int) -> None:
    filled(place)
    service_of(place).inject(fault, verb="apply", path="/closed", skip=message)
    report = dropped(place)
    assert report.version == 3
    assert (disk_of(place).objects, nodes_of(place)) == ({}, [])


@pytest.mark.notices("removals-are-of-the-closed-tree")
def test_who_removes_a_former_tree_does_not_touch_the_one_in_its_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(place)
    below = nodes.below

    def overtaken(session: CoordinationStore, path: str) -> list[str]:
        monkeypatch.setattr(nodes, "below", below)
        nodes.remove_closed_tree(Writer(place).access.context)
        disk_of(place).objects.clear()
        place.create()
        return below(session, path)

    monkeypatch.setattr(nodes, "below", overtaken)
    with pytest.raises(sluice.errors.InvalidRequest):
        sluice.forget(place.location, coordinator=place.coordinator)
    disk_of(place).objects.clear()
    sluice.forget(place.location, coordinator=place.coordinator)
    assert place.open().version == 0
    place.open().append(flights(("LGA", 3, 3)))


# -- zombies -------------------------------------------------------------------------------------------------------------


@pytest.mark.notices("a-drop-deletes-its-own-table", "who-may-delete-is-looked-at-again")
@pytest.mark.parametrize("step", ["detach", "bury_tree", "inner_tables", "prepared_deletion", "read_tombstone"])
def test_one_who_was_paused_in_a_drop_leaves_the_next_table_alone(place: Place, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """After this step somebody else finishes the drop, and makes another table."""
    filled(place)
    where: object = MemoryStore if step == "prepared_deletion" else api if step in ("bury_tree", "read_tombstone") else dropping
    do: Callable[..., object] = getattr(where, step)
    paused: list[str] = []

    def pauses(*arguments: object, **named: object) -> object:
        done = do(*arguments, **named)
        if step != "read_tombstone" or done is not None:
            paused.append(step)
            monkeypatch.undo()
            if step in {"inner_tables", "prepared_deletion"}:
                expire_all(place)
            dropped(place)
            rested(place)
            place.create().append(flights(("LGA", 3, 3)))
        return done

    monkeypatch.setattr(where, step, pauses)
    with pytest.raises(sluice.errors.TreeReplaced if step == "detach" else sluice.errors.TableDropped):
        dropped(place)
    assert paused == [step]
    assert rows_of(place.open().snapshot().to_arrow()) == [("LGA", 3, 3)]


@pytest.mark.notices("who-may-delete-is-looked-at-again")
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_one_who_was_stopped_between_a_look_and_its_deletion_leaves_the_next_table_alone(
    place: Place, local: Place, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """However long: somebody else finishes the drop, the place rests, and another table is made there."""
    here = place if where == "memory" else local
    filled(here)
    look, one_at_a_time, stopped = Deletion.require, threading.Lock(), list[str]()

    def stops(self: Deletion) -> None:
        with one_at_a_time:
            look(self)
            name = threading.current_thread().name
            if name.startswith("sluice-drop") and not stopped:
                stopped.append(name)
                monkeypatch.undo()
                expire_all(here)
                dropped(here)
                rested(here)
                here.create().append(flights(("LGA", 3, 3)))

    monkeypatch.setattr(Deletion, "require", stops)
    with pytest.raises(sluice.errors.TableDropped):
        dropped(here)
    assert stopped
    table = here.open()
    assert table.version == 1
    table.append(flights(("SFO", 1, 1)))
    assert rows_of(here.open().snapshot().to_arrow()) == [("LGA", 3, 3), ("SFO", 1, 1)]


def test_one_who_was_paused_after_a_drop_marks_no_other_one_as_done(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(place)
    context, done = Writer(place).access.context, Deletion.done

    def after_another_drop(self: Deletion) -> None:
        mine = present(nodes.read_tombstone(context))
        context.coordination.write(context.tree.tombstone, orjson.dumps(replace(mine, last=7, deleting=True)), version=-1)
        done(self)

    monkeypatch.setattr(Deletion, "done", after_another_drop)
    with pytest.raises(sluice.errors.TableDropped):
        dropped(place)
    assert present(nodes.read_tombstone(context)).deleting


def test_what_a_paused_client_put_into_the_empty_folder_goes(place: Place) -> None:
    filled(place).drop()
    disk_of(place).store(commit_path(2), b"{}")
    assert place.create().version == 0
    assert commit_path(2) not in disk_of(place).objects


@pytest.mark.parametrize("forgotten", [False, True])
def test_creating_a_table_where_one_is_never_touches_its_log(local: Place, forgotten: bool) -> None:
    """Not even where a longer table was dropped before and the log was cleaned up, so that version 0 is gone."""
    former = local.create()
    for number in range(8):
        former.append(flights(("JFK", 1, number)))
    former.drop()
    table = local.create()
    for number in range(4):
        table.append(flights(("JFK", 1, number)))
    table.checkpoint()
    log = Path(local.location) / "_delta_log"
    for version in range(4):
        (Path(local.location) / commit_path(version)).unlink()
    if forgotten:  # the folder is away for a moment, and comes back
        log.rename(log.with_name("away"))
        assert sluice.forget(local.location, coordinator=local.coordinator) == 4
        log.with_name("away").rename(log)
    before = {each.name: each.read_bytes() for each in log.iterdir() if each.is_file()}
    with pytest.raises(sluice.errors.TableExists):
        local.create()
    assert {each.name: each.read_bytes() for each in log.iterdir() if each.is_file()} == before
    for name in before:
        if "checkpoint" in name:
            (log / name).unlink()
    put_back = local.location, commit_path(3)
    Path(*put_back).write_bytes(before[f"{4:020d}.json"])
    with pytest.raises(sluice.errors.TableExists):
        local.create()
    assert Path(*put_back).exists(), "a damaged log is no stray version"


def test_a_reader_of_the_log_goes_on_with_the_table_that_is_there_now(place: Place) -> None:
    former = place.create()
    for number in range(3):
        former.append(flights(("JFK", 1, number)))
    former.truncate()
    reader = place.open(consistency="published")
    assert reader.snapshot().to_arrow().num_rows == 0
    former.drop()
    with pytest.raises(sluice.errors.TableNotFound):
        reader.refresh()
    table = place.create()
    for number in range(2):
        table.append(flights(("EWR", 1, number)))
    assert rows_of(reader.refresh().snapshot().to_arrow()) == [("EWR", 1, 0), ("EWR", 1, 1)]
    table.drop()
    table = place.create()
    for number in range(5):
        table.append(flights(("LGA", 1, number)))
    assert reader.refresh().snapshot().to_arrow().num_rows == 5


def test_without_conditional_put_the_location_rests_until_no_client_can_put(place: Place) -> None:
    disk_of(place).conditional_put = False
    filled(place).drop()
    with pytest.raises(sluice.errors.Unavailable, match=r"no conditional put.*Try again in 5[0-9][0-9] s") as caught:
        place.create()
    assert caught.value.retryable
    assert disk_of(place).objects == {}


# -- a folder that is gone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [Limits(), QUEUED], ids=["direct", "queued"])
def test_a_writer_whose_tables_folder_was_deleted_stops_and_makes_no_other(local: Place, limits: Limits) -> None:
    filled(local)
    table = local.open(limits=limits)
    table.append(flights(("LGA", 3, 3)))
    shutil.rmtree(local.location)
    for act in (lambda: table.append(flights(("LGA", 3, 4))), lambda: table.delete("month = 3"), lambda: local.open(limits=limits)):
        with pytest.raises(sluice.errors.LogGap, match=r"log (of .*)?is gone.*sluice forget"):
            act()
    assert not Path(local.location).exists()


@pytest.mark.notices("no-version-without-the-one-before")
def test_nor_does_one_that_was_about_to_publish(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(local)
    table = local.open()
    table.append(flights(("LGA", 3, 3)))
    doomed = table.begin()
    doomed.append(flights(("LGA", 3, 4)))
    shutil.rmtree(local.location)
    with pytest.raises(sluice.errors.LogGap, match=r"log of .* is gone"):
        doomed.commit()
    assert not Path(local.location).exists()


def test_on_a_remote_store_it_is_looked_every_four_seconds(place: Place) -> None:
    filled(place)
    table = place.open()
    clock = [0.0]
    table.coordinated.context.clock.monotonic_s = lambda: clock[0]  # type: ignore[method-assign]
    table.append(flights(("LGA", 3, 3)))

    def looks() -> int:
        return sum(1 for verb, key in disk_of(place).calls if verb == "head" and key.startswith("_delta_log/0"))

    before = looks()
    for number in range(10):
        table.append(flights(("LGA", 4, number)))
    assert looks() <= before + 1
    disk_of(place).objects.clear()
    clock[0] = 4.5
    with pytest.raises(sluice.errors.LogGap, match="sluice forget"):
        table.append(flights(("LGA", 5, 5)))
    assert disk_of(place).objects == {}


def test_who_compares_what_it_published_makes_no_look_of_its_own(place: Place) -> None:
    """The file that is read for the comparison is in the log: for four seconds after that no append asks whether the log is there."""
    filled(place)
    table = place.open()
    ours = table.coordinated
    clock = [0.0]
    ours.context.clock.monotonic_s = lambda: clock[0]  # type: ignore[method-assign]
    for number in range(3):
        table.append(flights(("LGA", 3, number)))
    assert ours._helping.drain(30.0)

    def requests(of: str) -> int:
        return sum(1 for verb, key in disk_of(place).calls if verb == of and key.startswith("_delta_log/0"))

    heads, gets = requests("head"), requests("get")
    for number in range(8):
        clock[0] += 3.5
        table.append(flights(("LGA", 4, number)))
        assert ours._helping.drain(30.0)
    assert requests("get") > gets
    assert requests("head") == heads


def test_the_nodes_of_a_folder_that_is_gone_are_forgotten(local: Place) -> None:
    table = filled(local)
    with pytest.raises(sluice.errors.InvalidRequest, match="drop it"):
        sluice.forget(local.location, coordinator=local.coordinator)
    shutil.rmtree(local.location)
    with pytest.raises(sluice.errors.InvalidRequest, match="sluice forget"):
        local.create()
    assert sluice.forget(local.location, coordinator=local.coordinator) == 2
    assert nodes_of(local) == []
    with pytest.raises(sluice.errors.TableDropped):
        table.append(flights(("LGA", 3, 3)))
    with pytest.raises(sluice.errors.TableNotFound, match="nothing to forget"):
        sluice.forget(local.location, coordinator=local.coordinator)
    assert not Path(local.location).exists()
    assert local.create().version == 0
    local.open().append(flights(("SFO", 1, 1)))
    assert rows_of(local.open().snapshot().to_arrow()) == [("SFO", 1, 1)]


def test_a_table_that_was_moved_goes_on_at_its_new_place(local: Place) -> None:
    filled(local)
    moved = Place(f"{local.location}-moved", local.coordinator)
    Path(local.location).rename(moved.location)
    assert sluice.forget(local.location, coordinator=local.coordinator) == 2
    assert sluice.recover(moved.location, coordinator=moved.coordinator, wait_s=0).version == 3
    moved.open().append(flights(("LGA", 3, 3)))
    assert moved.open().snapshot().to_arrow().num_rows == 2


def test_nodes_of_a_creation_that_came_to_nothing_are_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.coordinator.nodes.creation import make_tree
    from sluice.coordinator.nodes.records import Head

    make_tree(Writer(place).access.context, Head())
    assert sluice.forget(place.location, coordinator=place.coordinator) == -1
    assert nodes_of(place) == []


def test_dropping_is_told_apart_from_detaching(place: Place) -> None:
    table = filled(place)
    table.detach()
    with pytest.raises(sluice.errors.NotATable, match="does not manage"):
        dropped(place)
    assert commit_path(3) in disk_of(place).objects
    assert sluice.forget(place.location, coordinator=place.coordinator) == 3, "who gave it back may let the nodes go"
    assert nodes_of(place) == []
    with pytest.raises(sluice.errors.InvalidRequest, match="keep_data"):
        table.drop(keep_data="yes")  # type: ignore[arg-type]


@pytest.mark.costly
def test_real_servers_let_go_of_a_table(tmp_path: Path, zookeeper_address: str) -> None:
    place = Place(str(tmp_path / "flights"), zookeeper_address)
    table = filled(place)
    for number in range(150):
        table.append(flights(("LGA", 1, number)))
    table.drop()
    assert not list(Path(place.location).rglob("*.*"))
    again = sluice.Table.create(place.location, FLIGHTS, coordinator=place.coordinator)
    again.append(flights(("LGA", 3, 3)))
    with pytest.raises((sluice.errors.TreeReplaced, sluice.errors.TableDropped)):
        table.append(flights(("LGA", 3, 3)))
    shutil.rmtree(place.location)
    with pytest.raises(sluice.errors.LogGap):
        again.append(flights(("LGA", 3, 3)))
    assert sluice.forget(place.location, coordinator=place.coordinator) == 1


# -- the command line ----------------------------------------------------------------------------------------------------


def test_the_commands(local: Place) -> None:
    def ran(*arguments: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(main, [*arguments, "--coordinator", local.coordinator], input=answer)

    filled(local)
    (Path(local.location) / "thesis.txt").write_text("mine")
    assert ran("drop", local.location, answer="n\n").exit_code == 1
    assert local.open().snapshot().to_arrow().num_rows == 1
    refused = ran("forget", local.location)
    assert (refused.exit_code, "drop it" in refused.stderr) == (2, True)
    done = ran("drop", local.location, answer="y\n")
    assert done.exit_code == 0, done.output
    assert "at version 3" in done.stdout
    assert done.stdout.endswith("left alone: thesis.txt\n")
    (Path(local.location) / "thesis.txt").unlink()
    filled(local)
    shutil.rmtree(local.location)
    assert ran("forget", local.location).stdout.endswith("which was at version 2\n")
    filled(local)
    kept = ran("drop", local.location, "--keep-data", "--yes", "--json")
    assert '"deleted": 0' in kept.stdout
    assert local.open(consistency="published").snapshot().to_arrow().num_rows == 1
