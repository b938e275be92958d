"""Tables that move beside losses, recoveries, drops and other tables: each is at one coordinator, and the documented commands go on."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator.admission import submission
from sluice.coordinator.api import Head, TableTree, leases, pin_version, read_tombstone
from sluice.coordinator.commit import moving
from sluice.coordinator.commit.retention import gone_and_busy
from sluice.coordinator.commit.transactions import commit_filings, see_published
from sluice.coordinator.errors import TableMoved, table_moved
from sluice.coordinator.nodes import removal
from sluice.coordinator.nodes.context import TableContext, beside, require_head
from sluice.coordinator.nodes.creation import make_new_tree, make_tree
from sluice.coordinator.nodes.presence import Owner
from sluice.coordinator.nodes.records import is_closed, whereabouts
from sluice.coordinator.service.connect import connect
from sluice.errors import Unavailable
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.objects import ObjectStore
from sluice.tables.client.address import TableAddress
from sluice.tables.client.open_table import OpenTable, open_coordinated
from sluice.tables.manage import dropping
from sluice.tables.write import repeated_writes
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import lose_everything


class Dies(BaseException):
    """The process is killed here."""


@pytest.fixture
def new(place: Place) -> str:
    """Another coordinator."""
    return f"memory://a-second-coordinator-{Path(place.location).parent.name}"


def at(step: str, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something when a move gets to a point for the first time."""
    done: list[str] = []

    def point(name: str) -> None:
        if name == step and not done:
            done.append(name)
            act()

    monkeypatch.setattr(moving, "point", point)


def die() -> None:
    raise Dies


def comes_back_after(owner: Any, name: str, reads: int, place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the table that moved away return after so many calls of a function that reads its nodes."""
    read, times = getattr(owner, name), iter(range(reads + 1))

    def then_back(*arguments: Any, **options: Any) -> Any:
        now = read(*arguments, **options)
        if next(times, None) == reads - 1:
            sluice.move(place.location, place.coordinator, coordinator=new)
        return now

    monkeypatch.setattr(owner, name, then_back)


@pytest.mark.notices("a-table-that-came-back-is-here")
@pytest.mark.parametrize("rests", [False, True])
def test_a_table_that_comes_back_between_two_reads_is_here(place: Place, new: str, rests: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    session, tree = connect(place.coordinator), TableTree(place.filled(("JFK", 1, 1)).location)
    sluice.move(place.location, new, coordinator=place.coordinator)
    if rests:  # then the tombstone stays when the table is back
        session.create(f"{tree.tombstone}/rest")
    comes_back_after(type(session), "read", 1, place, new, monkeypatch)
    root, tombstone = whereabouts(session, tree)
    assert root is not None
    assert not is_closed(root)
    assert tombstone is None


def test_a_table_that_comes_back_while_it_is_opened_is_opened_there(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.filled(("JFK", 1, 1))
    context = OpenTable.of(TableAddress.of(place.location, place.coordinator, None, "a reader")).context
    sluice.move(place.location, new, coordinator=place.coordinator)
    comes_back_after(TableContext, "read_root_and_head", 2, place, new, monkeypatch)
    assert require_head(context).version == 3


def test_a_table_that_comes_back_while_somebody_misses_its_nodes_has_moved(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert isinstance(table.coordinated.context.missing_error(), TableMoved)
    sluice.move(place.location, place.coordinator, coordinator=new)
    with pytest.raises(TableMoved):  # so the caller opens it again
        table.coordinated.context.missing_error()


@pytest.mark.notices("a-recovered-table-does-not-arrive-again")
def test_a_table_that_was_recovered_elsewhere_and_went_on_does_not_arrive_again(
    place: Place, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, third = place.filled(("JFK", 1, 1)), f"{new}-third"
    at("move-sealed", die, monkeypatch)
    with suppress(Dies):
        sluice.move(place.location, new, coordinator=place.coordinator)
    sluice.recover(place.location, coordinator=new, wait_s=0)  # the former coordinator is away
    sluice.Table.open(place.location, coordinator=new).append(flights(("LHR", 1, 2)))
    sluice.move(place.location, third, coordinator=new)
    table.append(flights(("BOS", 1, 3)))
    assert table.coordinated.address.coordinator == third
    assert connect(new).read(TableTree(table.location).head) is None
    assert sluice.Table.open(place.location, coordinator=new).coordinated.address.coordinator == third


@pytest.mark.notices("a-table-leaves-where-it-is-awaited")
def test_it_stays_if_the_new_coordinator_loses_its_data_meanwhile(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    at("move-settled", lambda: lose_everything(Place("", new)), monkeypatch)
    with pytest.raises(Unavailable, match="lost its data during the move"):
        sluice.move(place.location, new, coordinator=place.coordinator)
    table.append(flights(("LHR", 1, 2)))
    assert table.coordinated.address.coordinator == place.coordinator
    assert sluice.move(place.location, new, coordinator=place.coordinator).coordinator == new
    assert present(table.append(flights(("BOS", 1, 3)))).version == 4


def test_a_table_that_somebody_begins_to_make_there_does_not_stop_it(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    there = OpenTable.of(TableAddress.of(place.location, new, None, "a creator that saw no log")).context
    at("move-left", lambda: make_tree(there, Head()), monkeypatch)
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert present(table.append(flights(("LHR", 1, 2)))).version == 3


def test_a_table_that_came_back_otherwise_than_by_a_move_is_here(place: Place, new: str) -> None:
    place.filled(("JFK", 1, 1))
    sluice.move(place.location, new, coordinator=place.coordinator)
    sluice.Table.open(place.location, coordinator=new).detach()
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.append(flights(("LHR", 1, 2)))
    pin_version(table.coordinated.context, table.refresh().version).release()
    with table.consumer("copy", after=0) as consumer:
        next(consumer)
    with table.consumer("copy") as consumer:  # its lease was given back
        consumer.commit() if next(consumer, None) else None


def test_what_a_deletion_left_below_a_tombstone_stops_no_move(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    folder, copy, tree = Path(place.location), Path(f"{place.location}-copy"), TableTree(table.location)
    shutil.copytree(folder, copy)
    with monkeypatch.context() as patched:  # a client is killed while it deletes, and another one finishes
        patched.setattr(dropping, "_delete_data", lambda *_: die())
        patched.setattr(removal.Deletion, "let_go", lambda self: self.context.connect().delete(self.context.tree.deleter))
        with suppress(Dies):
            table.drop()
    dropping.drop(TableAddress.of(place.location, place.coordinator, None, "another one"))
    assert connect(place.coordinator).children(tree.tombstone) == ["left"]
    shutil.copytree(copy, folder, dirs_exist_ok=True)
    sluice.recover(place.location, coordinator=place.coordinator, wait_s=0)
    for there, here in ((new, place.coordinator), (place.coordinator, new), (new, place.coordinator)):
        assert sluice.move(place.location, there, coordinator=here).coordinator == there
    assert present(sluice.Table.open(place.location, coordinator=new).append(flights(("LHR", 1, 2)))).published


@pytest.mark.notices("a-table-that-comes-takes-no-name")
def test_a_name_that_another_table_has_there_stays_its_name(tmp_path: Path, place: Place, new: str) -> None:
    here, there = sluice.Catalog(place.coordinator, root=tmp_path / "here"), sluice.Catalog(new, root=tmp_path / "there")
    schema = flights(("JFK", 1, 1)).schema
    other = there.create("sales", schema)
    mine = here.create("sales", schema)  # later
    report = sluice.move(mine.location, new, coordinator=place.coordinator)
    assert (report.name, report.lost_name) == (None, "default.sales")
    assert there.locate("sales") == other.location


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_second_mover_finds_it_there(place: Place, new: str, monkeypatch: pytest.MonkeyPatch, elsewhere: bool) -> None:
    place.filled(("JFK", 1, 1))

    def leases_after_another(*args: Any, **named: Any) -> Any:
        monkeypatch.undo()
        sluice.move(place.location, f"{new}-third" if elsewhere else new, coordinator=place.coordinator)
        return leases(*args, **named)

    monkeypatch.setattr("sluice.coordinator.api.leases", leases_after_another)
    if elsewhere:
        with pytest.raises(sluice.errors.TableMoved, match="third"):
            sluice.move(place.location, new, coordinator=place.coordinator)
    else:
        report = sluice.move(place.location, new, coordinator=place.coordinator)
        assert (report.coordinator, report.version, report.paused_s) == (new, 2, 0.0)


def test_it_stays_if_its_namespace_is_not_there(tmp_path: Path, place: Place, new: str) -> None:
    catalog = sluice.Catalog(coordinator=place.coordinator, root=tmp_path / "managed")
    catalog.create_namespace("shop")
    made = catalog.create("shop.flights", FLIGHTS)
    with pytest.raises(sluice.errors.NamespaceNotFound, match=f"sluice namespaces create shop --coordinator {new}"):
        sluice.move(made.location, new, coordinator=place.coordinator)
    there = sluice.Catalog(coordinator=new)
    assert (read_tombstone(made.coordinated.context), [each.name for each in there.namespaces()]) == (None, ["default"])
    there.create_namespace("shop")
    assert sluice.move(made.location, new, coordinator=place.coordinator).name == "shop.flights"


def test_the_command_tries_all_tables_and_leads_to_them(place: Place, new: str) -> None:
    place.filled(("JFK", 1, 1))
    words = ["move", f"{place.location}-none", place.location, "--to", new, "--coordinator", place.coordinator]
    said = CliRunner().invoke(main, [*words, "--json"])
    failed, moved = json.loads(said.stdout)
    assert (said.exit_code, failed["error"].partition(":")[0], moved["version"]) == (1, "TableNotFound", 2)
    assert f"failed: {place.location}-none: TableNotFound" in said.stderr
    shown = CliRunner().invoke(main, ["leases", place.location, "--coordinator", place.coordinator])
    assert (shown.exit_code, f"moved to the coordinator {new}" in shown.stderr) == (1, True)
    [finding] = sluice.doctor(place.location, coordinator=place.coordinator).findings
    advice = finding.remedy.split()
    assert CliRunner().invoke(main, advice[1:]).exit_code == 0


# -- what the simulator found ----------------------------------------------------------------------------------------------


def test_a_begun_transaction_takes_its_numbers_where_the_table_is(place: Place, new: str) -> None:
    said = {"delta.identity.start": "1", "delta.identity.step": "1", "delta.identity.allowExplicitInsert": "false"}
    schema = pa.schema([pa.field("v", pa.int64()), pa.field("n", pa.int64(), metadata=said)])
    table = sluice.Table.create(place.location, schema, coordinator=place.coordinator)
    rows = pa.table({"v": pa.array([7], pa.int64())})
    table.append(rows)
    begun = table.begin()
    sluice.move(place.location, new, coordinator=place.coordinator)
    begun.append(rows)
    begun.commit()
    assert sorted(table.snapshot().to_arrow()["n"].to_pylist()) == [1, 2]


@pytest.mark.notices("filed-before-it-left-is-unknown")
def test_what_was_filed_before_it_left_is_unknown_while_nobody_can_be_asked(
    place: Place, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, plain = place.filled(("JFK", 1, 1)), commit_filings
    begun = table.begin()
    begun.append(flights(("LHR", 1, 2)))

    def committed_and_gone(*args: Any, **named: Any) -> Any:
        plain(*args, **named)
        sluice.move(place.location, new, coordinator=place.coordinator)
        raise table_moved(table.location, new)

    def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("nobody answers")

    with monkeypatch.context() as patched:
        patched.setattr(submission, "commit_filings", committed_and_gone)
        patched.setattr(submission, "outcome_of", away)
        with pytest.raises(sluice.errors.OutcomeUnknown, match="nobody answers") as unknown:
            begun.commit()
    assert unknown.value.details["stage"] == "intent"
    assert present(begun.commit()).version == 2
    assert table.snapshot().num_files == 2


def test_a_commit_of_a_table_that_left_is_published(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    here, commit = table.coordinated, present(table.append(flights(("LHR", 1, 2))))
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert see_published(here, replace(commit, published=False)).published


@pytest.mark.parametrize("reads", ["_version", "commit_by_application"])
def test_a_repeated_write_whose_table_leaves_while_its_log_is_read_is_its_commit(
    place: Place, new: str, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = present(place.filled(("JFK", 1, 1)).append(flights(("JFK", 2, 2)), transaction=("jobs", 1)))
    place.open().append(flights(("JFK", 3, 3)))
    read, leaves = getattr(repeated_writes, reads), iter([True])

    def leaves_before(*arguments: Any, **options: Any) -> Any:
        if next(leaves, False):
            sluice.move(place.location, new, coordinator=place.coordinator)
            connect(place.coordinator).close()  # the next request asks in a new session where the table is
        return read(*arguments, **options)

    table = place.open()
    monkeypatch.setattr(repeated_writes, reads, leaves_before)
    again = present(table.append(flights(("JFK", 2, 2)), transaction=("jobs", 1)))
    assert (again.version, again.repeated) == (commit.version, True)
    assert table.coordinated.address.coordinator == new


def test_a_write_is_planned_and_checked_where_the_table_is(place: Place, new: str) -> None:
    table, other = place.filled(("JFK", 1, 1)), place.open()
    sluice.move(place.location, new, coordinator=place.coordinator)
    plan = table.plan_write(FLIGHTS)
    other.check_write(plan)
    assert present(other.commit_write(plan, plan.write(flights(("LHR", 1, 2))))).version == 3


@pytest.mark.notices("no-nodes-where-a-table-left")
@pytest.mark.parametrize("lags", [False, True])
def test_who_is_slow_to_create_a_table_makes_no_nodes_where_one_left(
    place: Place, new: str, lags: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.filled(("JFK", 1, 1))
    sluice.move(place.location, new, coordinator=place.coordinator)
    creator, plain, late = TableAddress.of(place.location, place.coordinator).context(), TableContext.read, [lags]

    def read(context: TableContext, path: str, *watch: Any) -> Any:
        return None if path == creator.tree.tombstone and late and late.pop() else plain(context, path, *watch)

    monkeypatch.setattr(TableContext, "read", read)
    with pytest.raises(sluice.errors.TableMoved):
        make_new_tree(creator)
    assert connect(place.coordinator).read(creator.tree.root) is None
    assert place.open().location == table.location


def test_a_table_comes_back_while_somebody_opens_it(place: Place, new: str) -> None:
    place.filled(("JFK", 1, 1))
    sluice.move(place.location, new, coordinator=place.coordinator)

    def load(store: ObjectStore) -> Snapshot:
        shown = Snapshot.load(store)
        sluice.move(place.location, place.coordinator, coordinator=new)
        return shown

    opened = open_coordinated(TableAddress.of(place.location, place.coordinator), load=load)
    assert (opened.address.coordinator, opened.latest().version) == (place.coordinator, 3)


@pytest.mark.notices("nobody-is-buried-where-the-table-was")
def test_nobody_is_buried_where_the_table_was(place: Place, new: str) -> None:
    here, absent = place.filled(("JFK", 1, 1)).coordinated, Owner("/clients/0123456789ab")
    here.head()
    sluice.move(place.location, new, coordinator=place.coordinator)
    gone, _ = gone_and_busy(here, {absent}, 0, dry_run=False)
    assert gone == {}
    assert connect(place.coordinator).read("/graves/0123456789ab") is None


@pytest.mark.notices("a-table-on-its-way-is-awaited")
def test_who_comes_to_the_new_place_too_early_is_told_so(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.filled(("JFK", 1, 1))
    at("move-sealed", die, monkeypatch)
    with suppress(Dies):
        sluice.move(place.location, new, coordinator=place.coordinator)
    with pytest.raises(Unavailable, match="on its way"):
        sluice.Table.open(place.location, coordinator=new)
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert sluice.Table.open(place.location, coordinator=new).version == 2


def test_an_object_that_is_made_of_an_open_table_after_it_left_goes_on_where_it_is(place: Place, new: str) -> None:
    access = place.filled(("JFK", 1, 1)).coordinated
    sluice.move(place.location, new, coordinator=place.coordinator)
    access.latest()  # follows
    late = sluice.Table(access)
    assert present(late.append(flights(("LHR", 1, 2)))).version == 3
    assert late.coordinated.address.coordinator == new


def test_who_is_late_to_follow_takes_no_object_back(place: Place, new: str) -> None:
    table, third = place.filled(("JFK", 1, 1)), f"{new}-third"
    first = table.coordinated
    for former, to in ((place.coordinator, new), (new, third)):
        sluice.move(place.location, to, coordinator=former)
        table.append(flights(("LHR", 1, 2)))
    first.follow(table_moved(table.location, new))
    assert table.coordinated.address.coordinator == third


@pytest.mark.parametrize("leaves", [0, 1])
@pytest.mark.parametrize("begun", ["before", "between", "after"])
def test_a_joint_transaction_of_tables_that_went_apart_says_so(tmp_path: Path, place: Place, new: str, begun: str, leaves: int) -> None:
    tables = [place.filled(("JFK", 1, 1)), sluice.Table.create(tmp_path / "beside", FLIGHTS, coordinator=place.coordinator)]
    where = [new if number == leaves else place.coordinator for number in range(2)]
    tx = sluice.transaction()

    def leave() -> None:
        sluice.move(tables[leaves].location, new, coordinator=place.coordinator)
        tables[leaves].append(flights(("BOS", 1, 3)))

    def commit() -> None:
        for number, table in enumerate(tables):
            if begun == ("after", "between")[number]:
                leave()
            tx.part(table).append(flights(("LHR", 1, 2)))
        if begun == "before":
            leave()
        tx.commit()

    with pytest.raises((sluice.errors.TableMoved, sluice.errors.InvalidRequest)) as refused:
        commit()
    assert any(each in refused.value.message for each in ("moved to the coordinator", "different coordinators"))
    rows = [rows_of(sluice.Table.open(each.location, coordinator=at).snapshot().to_arrow()) for each, at in zip(tables, where, strict=True)]
    assert not any(("LHR", 1, 2) in each for each in rows), "none of its parts is there"


@pytest.mark.notices("who-went-elsewhere-is-not-looked-for-here")
def test_a_table_that_went_elsewhere_is_not_looked_for_in_the_session_of_another_one(tmp_path: Path, place: Place, new: str) -> None:
    gone, lead = place.filled(("JFK", 1, 1)), sluice.Table.create(tmp_path / "lead", FLIGHTS, coordinator=place.coordinator)
    assert beside(lead.coordinated.context, gone.coordinated.context).coordination is lead.coordinated.context.coordination
    sluice.move(gone.location, new, coordinator=place.coordinator)
    gone.append(flights(("LHR", 1, 2)))
    with pytest.raises(sluice.errors.InvalidRequest, match="different coordinators"):
        beside(lead.coordinated.context, gone.coordinated.context)
