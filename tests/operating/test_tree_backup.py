"""`sluice tree backup` and `restore`: what only the coordinator has survives its loss, however much older the backup is than the logs."""

from __future__ import annotations

import gzip
import json
import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

import sluice
from sluice.cli import main
from sluice.coordinator.api import connect, list_leases, place_of_table, raise_horizon
from sluice.coordinator.nodes.creation import begin_tokens
from sluice.coordinator.nodes.layout import FENCE
from sluice.coordinator.nodes.quotas import Quota, read_quotas, set_quota
from sluice.coordinator.publication import publisher
from sluice.coordinator.service.memory import MemoryCoordination
from sluice.operating.tree_backup import BackupReport, read_backup
from sluice.storage.errors import InvalidRequest, TableDropped
from sluice.storage.stores.local import LocalStore
from sluice.tables import catalog as catalog_module
from sluice.tables.manage.recovery import Recovered
from tests.operating.loss_drill import drill
from tests.tables.conftest import Place, present
from tests.tables.elsewhere import lose_everything

ROWS = pa.table({"id": [1, 2, 3]})
STAMPED = pa.table({"id": pa.array([7], pa.int64())})


class World:
    """A coordinator in memory with a catalog, and a place for backups."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.coordinator = folder, f"memory://{uuid.uuid4().hex}"
        self.catalog = sluice.Catalog(self.coordinator, root=folder / "lake")
        self.backup = folder / "backup"

    def save(self) -> BackupReport:
        return sluice.backup_tree(self.backup, coordinator=self.coordinator)

    def lose(self) -> None:
        lose_everything(Place("", self.coordinator))

    def restore(self, wait_s: float = 0) -> dict[str, Recovered]:
        return {each.location: each for each in sluice.restore_tree(self.backup, coordinator=self.coordinator, wait_s=wait_s)}

    def ids(self, name: str) -> list[int]:
        ids: list[int] = sorted(self.catalog.open(name).snapshot().to_arrow()["id"].to_pylist())
        return ids


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_namespaces_names_and_rows_are_there_again(world: World) -> None:
    world.catalog.create_namespace("Shop", comment="what is sold", properties={"owner": "ann"}, location=world.folder / "shop")
    world.catalog.create("Shop.Orders", ROWS.schema).append(ROWS)
    world.catalog.create("plain", ROWS.schema)
    unnamed = sluice.Table.create(world.folder / "unnamed", ROWS.schema, coordinator=world.coordinator)
    set_quota(connect(world.coordinator), quota := Quota("load", slots=3))
    report = world.save()
    assert (report.tables, report.unsaved) == (3, ())
    assert report.size_bytes < 4000
    world.catalog.open("Shop.Orders").append(ROWS)  # the backup is older than the log
    before = world.catalog.namespace("Shop")
    world.lose()
    done = world.restore()
    assert [each.error for each in done.values()] == [None] * 3
    assert world.catalog.namespace("shop") == before
    assert read_quotas(connect(world.coordinator)).quotas == (quota,)
    assert world.catalog.root == f"file://{world.folder / 'lake'}"
    assert world.catalog.describe("shop.orders").full_name == "Shop.Orders"
    assert world.ids("Shop.Orders") == [1, 1, 2, 2, 3, 3]
    world.catalog.open("Shop.Orders").append(ROWS)
    sluice.Table.open(unnamed.location, coordinator=world.coordinator).append(ROWS)
    assert DeltaTable(unnamed.location).to_pyarrow_table().num_rows == 3
    assert all(each.ok for each in sluice.doctor_all(world.coordinator))


def test_what_was_dropped_stays_dropped_and_can_be_brought_back(world: World) -> None:
    for name in ("kept", "gone", "back"):
        world.catalog.create(name, ROWS.schema).append(ROWS)
    world.catalog.drop("gone")
    world.catalog.drop("back")
    [dropped] = [each for each in world.catalog.dropped() if each.name == "gone"]
    world.save()
    world.lose()
    world.restore()
    assert sorted(each.full_name for each in world.catalog.dropped()) == ["default.back", "default.gone"]
    with pytest.raises(TableDropped):
        sluice.Table.open(dropped.location, coordinator=world.coordinator)
    assert [each.full_name for each in world.catalog.tables()] == ["default.kept"]
    world.catalog.undrop("back")
    world.catalog.open("back").append(ROWS)
    assert world.ids("back") == [1, 1, 2, 2, 3, 3]
    world.catalog.vacuum(0)
    assert list(Path(dropped.location.removeprefix("file://")).rglob("*")) == []
    assert all(each.ok for each in sluice.doctor_all(world.coordinator))


def test_a_table_that_was_brought_back_and_lost_its_name_is_open(world: World) -> None:
    made = world.catalog.create("t", ROWS.schema)
    made.append(ROWS)
    world.catalog.drop("t", keep_data=False)
    world.save()
    world.catalog.undrop("t")
    world.catalog.drop("t", keep_data=True)  # takes the name away only
    sluice.Table.open(made.location, coordinator=world.coordinator).append(ROWS)
    world.lose()
    world.restore()
    assert sluice.Table.open(made.location, coordinator=world.coordinator).snapshot().to_arrow().num_rows == 6
    assert world.catalog.dropped() == []


def test_a_deletion_that_was_under_way_can_be_finished(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = world.catalog.create("t", ROWS.schema)
    made.append(ROWS)
    world.catalog.drop("t", keep_data=False)
    with monkeypatch.context() as patched:
        patched.setattr(catalog_module, "drop", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            world.catalog.vacuum(0)
    world.save()
    world.lose()
    world.restore()
    assert [each.name for each in world.catalog.dropped()] == ["t"]
    world.catalog.vacuum(0)
    assert (world.catalog.dropped(), list(Path(made.location.removeprefix("file://")).rglob("*"))) == ([], [])


@pytest.mark.notices("what-was-brought-back-stays-open")
def test_what_was_brought_back_without_a_commit_is_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the log does not repeat yet is only logged, so the log still names a table that was dropped and brought back."""
    world.catalog.create("t", ROWS.schema).append(ROWS)
    for module in ("manage.naming", "catalog"):
        monkeypatch.setattr(f"sluice.tables.{module}.note_name", lambda *_, **__: None)
    world.catalog.drop("t")
    world.save()
    world.catalog.undrop("t")
    world.lose()
    world.restore()
    assert (world.ids("t"), world.catalog.dropped()) == ([1, 2, 3], [])


def test_what_was_brought_back_after_the_backup_is_open(world: World) -> None:
    world.catalog.create("t", ROWS.schema).append(ROWS)
    world.catalog.drop("t")
    world.save()
    world.catalog.undrop("t", new_name="again")
    world.catalog.open("again").append(ROWS)
    world.lose()
    world.restore()
    assert world.ids("again") == [1, 1, 2, 2, 3, 3]
    assert world.catalog.dropped() == []


@pytest.mark.notices("a-backup-is-of-its-own-table")
def test_a_table_in_the_place_of_a_dropped_one_stays_open_and_keeps_its_files(world: World) -> None:
    former = world.catalog.create("t", ROWS.schema)
    former.append(ROWS)
    world.catalog.drop("t")
    world.save()
    world.catalog.vacuum(0)
    sluice.Table.create(former.location, ROWS.schema, coordinator=world.coordinator).append(STAMPED)
    world.lose()
    world.restore()
    assert world.catalog.dropped() == []
    world.catalog.vacuum(0)
    table = sluice.Table.open(former.location, coordinator=world.coordinator)
    assert table.snapshot().to_arrow()["id"].to_pylist() == [7]


def test_a_table_in_the_place_of_another_has_neither_its_consumers_nor_its_horizon(world: World) -> None:
    def consumed(table: sluice.Table) -> int:
        with table.consumer("copy", after=0, rows="inserted", timeout_s=0) as consumer:
            batches = 0
            for _ in consumer:
                consumer.commit()
                batches += 1
            return batches

    former = sluice.Table.create(world.folder / "t", ROWS.schema, coordinator=world.coordinator)
    for _ in range(5):
        former.append(ROWS)
    assert consumed(former) > 0
    raise_horizon(former.coordinated.context, 5, 0)
    world.save()
    former.drop()
    table = sluice.Table.create(world.folder / "t", ROWS.schema, coordinator=world.coordinator)
    table.append(STAMPED)
    table.append(STAMPED)
    world.lose()
    world.restore()
    table = sluice.Table.open(table.location, coordinator=world.coordinator)
    assert table.consumers() == []
    assert consumed(table) > 0
    with table.snapshot(version=1).pin() as pin:
        assert pin.held


def test_a_consumer_goes_on_and_its_outputs_have_each_batch_once(world: World) -> None:
    source = world.catalog.create("source", ROWS.schema)
    target = world.catalog.create("target", ROWS.schema)

    def consume() -> None:
        output = world.catalog.open("target")
        with world.catalog.open("source").consumer("copy", after=0, into=[output], rows="inserted", timeout_s=0) as consumer:
            for batch in consumer:
                with consumer.transaction() as tx:
                    tx[output].append(batch)

    source.append(ROWS)
    consume()
    world.save()
    source.append(STAMPED)
    consume()  # the backup does not know of this
    world.lose()
    world.restore()
    [state] = world.catalog.open("source").consumers()
    assert (state.name, state.position) == ("copy", 1)
    world.catalog.open("source").append(pa.table({"id": [9]}))
    consume()
    assert sorted(DeltaTable(target.location).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 7, 9]


def test_identity_values_never_go_back(world: World) -> None:
    said = {"delta.identity.start": "1", "delta.identity.step": "1", "delta.identity.allowExplicitInsert": "false"}
    world.catalog.create("numbers", pa.schema([pa.field("id", pa.int64(), metadata=said), pa.field("name", pa.string())]))
    world.catalog.open("numbers").append(pa.table({"name": ["a", "b"]}))
    world.save()
    world.catalog.open("numbers").append(pa.table({"name": ["c", "d"]}))  # the backup does not know of these numbers
    world.lose()
    world.restore()
    before = world.ids("numbers")
    world.catalog.open("numbers").append(pa.table({"name": ["e", "f"]}))
    assert before == [1, 2, 3, 4]
    assert min(set(world.ids("numbers")) - set(before)) > max(before)


def test_fencing_tokens_never_go_back(world: World) -> None:
    world.catalog.create("numbers", ROWS.schema)
    with world.catalog.open("numbers").lease() as lease:
        first = lease.token
    world.save()
    with world.catalog.open("numbers").lease() as lease:
        second = lease.token
    assert second > first
    world.lose()
    world.restore()
    with world.catalog.open("numbers").lease() as lease:
        third = lease.token
        session = connect(world.coordinator)
        [shown] = list_leases(session, place_of_table(session, world.catalog.locate("numbers")))
    assert third > second
    assert shown.token == third


@pytest.mark.notices("tokens-begin-after-the-lost-ones")
def test_tokens_do_not_go_back_without_a_backup_either(world: World) -> None:
    table = world.catalog.create("t", ROWS.schema)
    for _ in range(40):
        table.append(ROWS)
    with table.lease() as lease:
        before = lease.token
    former = table.properties["sluice.coordinator"]
    world.lose()
    sluice.recover(table.location, coordinator=world.coordinator, former=former, wait_s=0)
    with sluice.Table.open(table.location, coordinator=world.coordinator).lease() as lease:
        assert lease.token > before


def test_tokens_begin_after_those_of_the_backup_though_a_clock_is_behind(world: World) -> None:
    session = connect(world.coordinator)
    begin_tokens(session, now_ms=0, beyond=12_345)
    fence = session.read(FENCE)
    assert fence is not None
    assert int(fence.data) == 12_345 + (1 << 48)
    for beyond in (0, 12_345):  # a restoration that is repeated moves nothing
        begin_tokens(session, now_ms=0, beyond=beyond)
    assert session.read(FENCE) == fence
    begin_tokens(session, now_ms=1 << 41)  # a table that moved here may have made the node
    assert int(present(session.read(FENCE)).data) == 1 << 61


def test_what_is_ratified_is_published_before_the_backup(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.catalog.create("t", ROWS.schema)
    with monkeypatch.context() as away:
        away.setattr(publisher.Publisher, "publish", _store_is_away)
        assert table.append(ROWS, timeout_s=2) is not None
        assert len(world.save().unsaved) == 1
        assert world.ids("t") == [1, 2, 3]
    world.backup = world.folder / "later"
    assert world.save().unsaved == ()
    world.lose()
    world.restore()
    assert world.ids("t") == [1, 2, 3]
    assert sluice.doctor(table.location, coordinator=world.coordinator).findings == ()


def _store_is_away(*_: object, **__: object) -> bool:
    raise sluice.errors.StorageUnavailable("the store is away")


def test_a_damaged_node_is_left_out_of_the_backup_and_named(world: World) -> None:
    table, other = (world.catalog.create(name, ROWS.schema) for name in ("t", "other"))
    table.append(ROWS)
    session = connect(world.coordinator)
    session.create("/tables/strange", b"\xff")
    session.write(other.coordinated.context.tree.root, b"\xff", version=-1)
    report = world.save()
    assert sorted(each.partition(": ")[0] for each in report.unsaved) == sorted(["/tables/strange", other.coordinated.context.tree.root])
    assert report.tables == 1
    world.lose()
    world.restore()
    assert world.ids("t") == [1, 2, 3]


# -- what is refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.notices("living-trees-are-not-restored-over")
def test_a_living_tree_is_not_restored_over(world: World) -> None:
    world.catalog.create("t", ROWS.schema)
    world.save()
    with pytest.raises(InvalidRequest, match="has its data: nothing is to be restored"):
        world.restore()
    world.lose()
    sluice.Table.create(world.folder / "new", ROWS.schema, coordinator=world.coordinator)
    with pytest.raises(InvalidRequest, match="1 tables of its own"):
        world.restore()


def test_two_backups_are_not_put_into_one_tree(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "other")
    for each in (world, other):
        each.catalog.create("t", ROWS.schema)
        each.save()
    world.lose()
    world.restore()
    with pytest.raises(InvalidRequest, match="tables of its own"):
        list(sluice.restore_tree(other.backup, coordinator=world.coordinator, wait_s=0))


def test_a_backup_is_checked_as_a_whole_before_anything_is_written(world: World) -> None:
    world.catalog.create("t", ROWS.schema)
    world.save()
    world.lose()
    whole = world.backup.read_bytes()
    content = json.loads(gzip.decompress(whole))
    damaged: list[tuple[bytes, str]] = [
        (whole[:-20], "it is missing, cut off, or something else"),
        (b"hello", "it is missing, cut off, or something else"),
        (whole[:40] + b"hello" + whole[45:], "it is missing, cut off, or something else"),
        (gzip.compress(b"{}"), "is no whole backup of a tree"),
        (gzip.compress(json.dumps({**content, "format": 99}).encode()), "this backup has format 99, and this release reads 1"),
        (gzip.compress(json.dumps({**content, "more": 1}).encode()), "is no whole backup of a tree"),
        (gzip.compress(json.dumps({**content, "nodes": {"/catalog/namespaces/x": "{}"}}).encode()), "is no whole backup of a tree"),
    ]
    for data, message in damaged:
        world.backup.write_bytes(data)
        with pytest.raises(InvalidRequest, match=message):
            world.restore()
    nodes = MemoryCoordination.named(world.coordinator.removeprefix("memory://")).tree.walk()
    assert [each.path for each in nodes if not each.owner_session and each.path.startswith(("/tables/", "/fence", "/restored"))] == []
    with pytest.raises(InvalidRequest, match="there is no whole backup of a tree at"):
        list(sluice.restore_tree(world.folder / "nothing", coordinator=world.coordinator))


def test_a_backup_is_not_written_over_another_one(world: World) -> None:
    with pytest.raises(InvalidRequest, match="has coordinated no table yet"):
        world.save()
    world.catalog.create("t", ROWS.schema)
    world.save()
    with pytest.raises(InvalidRequest, match="give each backup a name of its own"):
        world.save()


# -- killed, repeated, beside writers ------------------------------------------------------------------------------------------


def test_a_restoration_that_was_interrupted_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    locations = [world.catalog.create(name, ROWS.schema).location for name in ("a", "b", "c", "d")]
    for location in locations:
        sluice.Table.open(location, coordinator=world.coordinator).append(ROWS)
    world.save()
    world.lose()
    puts = []
    put = LocalStore.put_if_absent

    def sometimes(self: LocalStore, key: str, data: bytes) -> bool:
        puts.append(key)
        if len(puts) in (1, 3):
            raise sluice.errors.StorageUnavailable("the store is away")
        return put(self, key, data)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "put_if_absent", sometimes)
        first = world.restore()
    assert sum(each.error is not None for each in first.values()) == 2
    second = world.restore()
    assert sorted(each.left or "restored" for each in second.values()) == ["has its nodes"] * 2 + ["restored"] * 2
    assert {each.left for each in world.restore().values()} == {"has its nodes"}
    assert [each.name for each in world.catalog.tables()] == ["a", "b", "c", "d"]
    assert [world.ids(name) for name in "abcd"] == [[1, 2, 3]] * 4


@pytest.mark.notices("who-was-killed-before-names-gives-them")
def test_a_table_whose_restoration_was_killed_before_it_had_its_name_gets_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.catalog.create("t", ROWS.schema)
    world.save()
    world.lose()
    with monkeypatch.context() as killed:
        killed.setattr("sluice.tables.manage.recovery.named_again", lambda *_: (None, None))
        world.restore()
    assert world.catalog.tables() == []
    assert [each.left for each in world.restore().values()] == ["has its nodes"]
    assert world.catalog.locate("t") == table.location


def test_tables_whose_storage_is_not_mounted_are_not_there(world: World) -> None:
    for name in ("a", "b"):
        world.catalog.create(name, ROWS.schema).append(ROWS)
    dropped = world.catalog.create("dropped", ROWS.schema)
    world.catalog.drop("dropped")
    world.save()
    world.catalog.vacuum(0)  # what the backup knows as dropped needs no log
    world.lose()
    lake = (world.folder / "lake").rename(world.folder / "not mounted")
    at = ["tree", "restore", str(world.backup), "--wait-s", "0", "--coordinator", world.coordinator]
    said = CliRunner().invoke(main, at)
    assert (said.exit_code, said.stdout.count("its log is missing")) == (1, 2), said.output
    assert f"left alone: {dropped.location}: was dropped" in said.stdout
    assert "0 of 3 tables are there, 2 failed, 1 left alone" in said.stdout
    lake.rename(world.folder / "lake")
    said = CliRunner().invoke(main, at)
    assert (said.exit_code, "2 of 3 tables are there, 0 failed, 1 left alone" in said.stdout) == (0, True), said.output


def test_a_table_that_was_dropped_after_a_restoration_needs_no_log(world: World) -> None:
    made = world.catalog.create("t", ROWS.schema)
    world.save()
    world.lose()
    world.restore()
    world.catalog.drop("t", keep_data=False)
    world.catalog.vacuum(0)
    assert world.restore()[made.location].left == "was dropped, and has no log"


def test_writers_go_on_while_a_backup_is_made(world: World) -> None:
    names = ["a", "b", "c"]
    for name in names:
        world.catalog.create(name, ROWS.schema)
    stop, written = threading.Event(), dict.fromkeys(names, 0)

    def write(name: str) -> None:
        table = world.catalog.open(name)
        while not stop.is_set():
            table.append(STAMPED)
            written[name] += 1

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for each in threads:
        each.start()
    for number in range(5):
        world.backup = world.folder / f"backup-{number}"
        assert world.save().unsaved == ()
    stop.set()
    for each in threads:
        each.join()
    _, kept = read_backup(world.backup)
    assert {each.tree.location for each in kept} == {world.catalog.locate(name) for name in names}
    world.lose()
    world.restore()
    assert {name: len(world.ids(name)) for name in names} == written


@pytest.mark.costly
@pytest.mark.zookeeper
@pytest.mark.shows("all-data-lost")
def test_an_ensemble_is_lost_and_the_restoration_of_its_tables_is_killed_on_the_way(tmp_path: Path) -> None:
    result = drill(tmp_path, tables=6, servers=1, kill_after_s=2.5)
    assert result.wrong == ()


def test_the_commands(world: World) -> None:
    table = world.catalog.create("t", ROWS.schema)
    at = ["--coordinator", world.coordinator]
    said = CliRunner().invoke(main, ["tree", "backup", str(world.backup), *at])
    assert (said.exit_code, "1 tables, " in said.output) == (0, True)
    world.lose()
    said = CliRunner().invoke(main, ["tree", "restore", str(world.backup), "--wait-s", "0", *at])
    assert (said.exit_code, "1 of 1 tables are there" in said.output) == (0, True), said.output
    said = CliRunner().invoke(main, ["tree", "restore", str(world.backup), "--wait-s", "0", "--json", *at])
    assert json.loads(said.stdout)["left"] == "has its nodes"
    assert json.loads(said.stdout)["location"] == table.location
