"""Deep clones: tables of their own with copies of another table's files, made once."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.api import open_plan
from sluice.coordinator.nodes.plans import open_plans
from sluice.coordinator.nodes.presence import owner_of
from sluice.errors import ConcurrentModification, InvalidRequest, MissingObject, NotCommitted, StorageUnavailable, TableExists
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import copy_object
from sluice.tables.manage import cloning

from ...killed import until_ended
from ..conftest import Place, flights, rows_of

NOW: dict[str, Any] = {"retain_hours": 0, "force": True}
THREE = [("EWR", 2, 2), ("JFK", 1, 1), ("JFK", 1, 4)]


def rows(table: sluice.Table) -> list[tuple[Any, ...]]:
    return rows_of(table.refresh().snapshot().to_arrow())


def source(place: Place, **properties: str) -> sluice.Table:
    return place.filled(("JFK", 1, 1), ("JFK", 1, 4), ("EWR", 2, 2), properties=properties)


def copies(location: str) -> list[str]:
    return sorted(each.name for each in Path(location.removeprefix("file://")).rglob("*.parquet") if "_delta_log" not in each.parts)


def told(table: sluice.Table) -> dict[str, str]:
    return dict(table.history(1)[0].metrics)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that were copied, in no order."""
    seen: list[str] = []
    copy: Callable[..., None] = copy_object

    def counting(store: Any, origin: str, target: Any, key: str) -> None:
        seen.append(key)
        copy(store, origin, target, key)

    monkeypatch.setattr(cloning, "copy_object", counting)
    return seen


def test_a_deep_clone_has_files_of_its_own(place: Place) -> None:
    table = source(place, owner="ops")
    table.append(flights(("LGA", 3, 3)))
    clone = table.clone(place.location + " copy", 1, deep=True, properties={"owner": "me"})
    assert rows(clone) == THREE
    assert (clone.properties["owner"], clone.partition_columns) == ("me", ("origin", "month"))
    assert len(copies(clone.location)) == 2
    assert clone.snapshot().raw.metadata.id != table.snapshot().raw.metadata.id
    (first,) = clone.history()
    assert (first.operation, first.version) == ("CLONE", 0)
    assert first.parameters == {"source": table.location, "sourceVersion": "1", "isShallow": "false"}
    size = str(table.snapshot(1).raw.size_bytes)
    assert first.metrics == {
        "sourceTableSize": size,
        "sourceNumOfFiles": "2",
        "numCopiedFiles": "2",
        "copiedFilesSize": size,
        "numRemovedFiles": "0",
        "removedFilesSize": "0",
    }
    table.drop()
    assert rows(clone) == THREE
    assert pa.table(deltalake.DeltaTable(clone.location).to_pyarrow_table()).num_rows == 3
    with pytest.raises(TableExists):
        clone.clone(clone.location + "-2", deep=True).clone(clone.location, deep=True)
    with pytest.raises(InvalidRequest, match="its own clone"):
        clone.clone(clone.location, deep=True)


@pytest.mark.parametrize("many", [4, 20_000], ids=["inline", "stored"])
def test_deleted_rows_stay_deleted_and_a_second_run_copies_what_is_new(place: Place, many: int, counted: list[str]) -> None:
    table = source(place, **{"delta.enableDeletionVectors": "true"})
    table.append(flights(*[("BOS", 5, n) for n in range(many)]))
    table.delete("origin = 'BOS' and delay % 3 = 1")
    target = place.location + "-copy"
    clone = table.clone(target, deep=True, replace=True)
    assert rows(clone) == rows(table)
    assert len(counted) == 3
    before = {add.key for add in clone.snapshot().raw.add_files()}
    again = table.clone(target, deep=True, replace=True)
    assert (told(again)["numCopiedFiles"], told(again)["numRemovedFiles"]) == ("0", "0")
    assert {add.key for add in again.snapshot().raw.add_files()} == before
    table.append(flights(("LGA", 3, 3)))
    table.delete("origin = 'EWR'")
    table.delete("origin = 'BOS' and delay % 3 = 2")
    clone = table.clone(target, deep=True, replace=True)
    assert rows(clone) == rows(table)
    assert len(counted) == 4
    assert (told(clone)["numCopiedFiles"], told(clone)["numRemovedFiles"]) == ("1", "2")
    clone.vacuum(**NOW)
    table.vacuum(**NOW)
    assert rows(clone) == rows(table)


def test_what_a_clone_changed_itself_is_as_in_the_original_again(place: Place) -> None:
    table = source(place, **{"delta.enableDeletionVectors": "true"})
    table.delete("delay = 1")
    clone = table.clone(place.location + "-copy", deep=True)
    clone.delete("delay = 4")
    clone.append(flights(("LGA", 3, 3)))
    clone.vacuum(**NOW)
    assert rows(table.clone(clone.location, deep=True, replace=True)) == rows(table) == [("EWR", 2, 2), ("JFK", 1, 4)]


def test_vectors_of_equal_size_are_told_apart(place: Place) -> None:
    table = source(place, **{"delta.enableDeletionVectors": "true"})
    table.append(flights(*[("BOS", 5, n) for n in range(20_000)]))
    table.delete("origin = 'BOS' and delay % 3 = 1")
    clone = table.clone(place.location + "-copy", deep=True)
    table.restore(2)
    table.delete("origin = 'BOS' and delay % 3 = 2")
    clone = table.clone(clone.location, deep=True, replace=True)
    assert rows(clone) == rows(table)


def broken_after(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    copy: Callable[..., None] = vars(cloning)["copy_object"]
    left = [files]

    def failing(*given: Any) -> None:
        if left[0] == 0:
            raise StorageUnavailable("injected: the store went away")
        left[0] -= 1
        copy(*given)

    monkeypatch.setattr(cloning, "copy_object", failing)
    monkeypatch.setattr(cloning, "_COPIES_AT_ONCE", 1)


@pytest.mark.notices("copies-are-made-once")
def test_an_interrupted_clone_goes_on_and_vacuum_spares_its_copies(
    place: Place, monkeypatch: pytest.MonkeyPatch, counted: list[str]
) -> None:
    table = source(place)
    target = place.location + "-copy"
    table.clone(target, deep=True)
    counted.clear()
    table.append(flights(*[(origin, 9, 9) for origin in "ABCDE"]))
    with monkeypatch.context() as broken:
        broken_after(broken, 3)
        with pytest.raises(StorageUnavailable):
            table.clone(target, deep=True, replace=True)
    clone = sluice.Table.open(target, coordinator=place.coordinator)
    assert clone.version == 0
    clone.vacuum(**NOW, include_foreign=True)
    table.clone(target, deep=True, replace=True)
    assert len(counted) == len(set(counted)) == 5
    assert told(clone)["numCopiedFiles"] == "5"
    assert rows(clone) == rows(table)
    assert not list(open_plans(clone.coordinated.context))


def test_copies_of_a_run_that_nobody_repeats_are_garbage_when_its_plan_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = source(place)
    clone = table.clone(place.location + "-copy", deep=True)
    table.append(flights(*[(origin, 9, 9) for origin in "ABCDE"]))
    with monkeypatch.context() as broken:
        broken_after(broken, 3)
        with pytest.raises(StorageUnavailable):
            table.clone(clone.location, deep=True, replace=True)
    assert len(copies(clone.location)) == 5
    context = clone.coordinated.context
    [(owner, _)] = open_plans(context)
    context.coordination.delete(owner.path)  # as a collector does with an old one
    assert clone.vacuum(**NOW).counts == {"orphan": 3}
    assert len(copies(clone.location)) == 2


@pytest.mark.notices("committed-plans-are-not-taken-up")
def test_a_plan_that_was_committed_is_not_taken_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that died after its commit left its plan. What it wrote and somebody removed since may be garbage already."""
    table = source(place)
    with monkeypatch.context() as dying:
        dying.setattr(cloning, "close_plan", lambda *_: None)
        clone = table.clone(place.location + "-copy", deep=True)
    [(left, _)] = open_plans(clone.coordinated.context)
    clone.truncate()
    clone = table.clone(clone.location, deep=True, replace=True)
    assert rows(clone) == THREE
    assert not any(owner_of(each) == left for add in clone.snapshot().raw.add_files() for each in [add.path[-44:-8]])
    assert not list(open_plans(clone.coordinated.context))


def test_a_clone_whose_plan_was_closed_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = source(place)
    clone = table.clone(place.location + "-copy", deep=True)
    table.append(flights(("LGA", 3, 3)))
    copy: Callable[..., None] = copy_object

    def closing(*given: Any) -> None:
        copy(*given)
        context = clone.coordinated.context
        for owner, _ in list(open_plans(context)):
            context.coordination.delete(owner.path)
        clone.vacuum(**NOW)

    with monkeypatch.context() as slow:
        slow.setattr(cloning, "copy_object", closing)
        with pytest.raises(NotCommitted):
            table.clone(clone.location, deep=True, replace=True)
    assert rows(clone) == THREE
    assert rows(table.clone(clone.location, deep=True, replace=True)) == rows(table)


def test_the_original_is_vacuumed_while_it_is_copied(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = source(place)
    copy: Callable[..., None] = copy_object

    def emptied(*given: Any) -> None:
        if table.refresh().snapshot().raw.num_files:
            table.truncate()
            table.vacuum(**NOW)
        copy(*given)

    monkeypatch.setattr(cloning, "copy_object", emptied)
    monkeypatch.setattr(cloning, "_COPIES_AT_ONCE", 1)
    assert rows(table.clone(place.location + "-copy", deep=True)) == THREE
    table.vacuum(**NOW)
    assert copies(place.location) == []


def test_a_file_that_is_gone_is_named(place: Place) -> None:
    table = source(place)
    next(Path(place.location).rglob("*.parquet")).unlink()
    with pytest.raises(MissingObject, match="cannot be cloned: its file"):
        sluice.Table.open(place.location, consistency="published").clone(place.location + "-copy", deep=True, coordinator=place.coordinator)
    assert table.version == 1


def test_others_who_change_the_clone_meanwhile_are_not_overwritten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = source(place)
    clone = table.clone(place.location + "-copy", deep=True)
    table.append(flights(("LGA", 3, 3)))
    copy: Callable[..., None] = copy_object

    def beside(*given: Any) -> None:
        copy(*given)
        sluice.Table.open(clone.location, coordinator=place.coordinator).append(flights(("BOS", 7, 7)))

    with monkeypatch.context() as slow:
        slow.setattr(cloning, "copy_object", beside)
        with pytest.raises(ConcurrentModification):
            table.clone(clone.location, deep=True, replace=True)
    assert rows(clone) == sorted([*THREE, ("BOS", 7, 7)])


def test_properties_of_the_table_come_along(place: Place) -> None:
    table = sluice.Table.create(
        place.location,
        pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())]),
        cluster_by=["id"],
        coordinator=place.coordinator,
        properties={
            "delta.constraints.positive": "id > 0",
            "delta.columnMapping.mode": "name",
            "delta.enableRowTracking": "true",
            "delta.enableChangeDataFeed": "true",
        },
    )
    table.append(pa.table({"id": pa.array([1, 2, 3]), "v": ["a", "b", "c"]}))
    table.alter_columns([sluice.ColumnChange(("v",), name="text")])
    table.update({"text": "'z'"}, where="id = 3")
    table.set_domain("mine", '{"a": 1}')
    clone = table.clone(place.location + "-copy", deep=True)
    assert rows(clone) == [(1, "a"), (2, "b"), (3, "z")]
    assert clone.clustering_columns == ("id",)
    assert clone.domains == {"mine": '{"a": 1}'}
    with pytest.raises(sluice.errors.ConstraintViolated):
        clone.append(pa.table({"id": pa.array([-1]), "text": ["n"]}))
    ids = [each.refresh().snapshot().to_arrow(["id"], row_ids=True).sort_by("id")["_row_id"] for each in (table, clone)]
    assert ids[0] == ids[1]
    assert [list(add.partition_values) for add in clone.snapshot().raw.add_files()] == [
        list(add.partition_values) for add in table.snapshot().raw.add_files()
    ]
    assert not list(Path(clone.location.removeprefix("file://")).rglob("_change_data"))
    again = table.clone(clone.location, deep=True, replace=True)
    assert rows(again) == [(1, "a"), (2, "b"), (3, "z")]
    assert again.domains == {"mine": '{"a": 1}'}


@pytest.mark.parametrize("kind", ["file", "memory", pytest.param("s3", marks=pytest.mark.s3)])
@pytest.mark.parametrize("to", ["file", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def test_within_and_between_stores(kind: str, to: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    options = request.getfixturevalue("s3_options") if "s3" in (kind, to) else {}
    name = uuid.uuid4().hex
    places = {"file": f"{tmp_path}/t 1%", "memory": f"memory://{name}", "s3": f"s3://sluice/a table, 100% ü/{name}"}
    coordinator = f"memory://{name}"
    table = sluice.Table.create(
        places[kind],
        flights().schema,
        partition_by=["origin"],
        coordinator=coordinator,
        storage_options=options,
        properties={"delta.enableDeletionVectors": "true"},
    )
    table.append(flights(*[("J/F K%", 5, n) for n in range(9_000)]))
    table.delete("delay % 3 = 1")
    clone = table.clone(places[to] + "-copy", deep=True)
    assert rows(clone) == rows(table)
    table.append(flights(("EWR", 1, 1)))
    assert rows(table.clone(places[to] + "-copy", deep=True, replace=True)) == rows(table)
    for each in (places["memory"], places["memory"] + "-copy"):
        MemoryStore.open(each.removeprefix("memory://")).forget()


def test_a_foreign_table_is_cloned(tmp_path: Path) -> None:
    data = pa.table({"id": [1, 2, 3], "p": ["a", "b", "b"]})
    deltalake.write_deltalake(str(tmp_path / "theirs"), data, partition_by=["p"])
    theirs = sluice.Table.open(tmp_path / "theirs", consistency="published")
    clone = theirs.clone(tmp_path / "ours", deep=True, coordinator=f"memory://{uuid.uuid4().hex}")
    assert rows(clone) == [(1, "a"), (2, "b"), (3, "b")]
    clone.delete("id = 1")
    assert rows(clone) == [(2, "b"), (3, "b")]


def test_a_deep_clone_of_a_shallow_one_has_all_files(place: Place) -> None:
    table = source(place, **{"delta.enableDeletionVectors": "true"})
    table.append(flights(*[("BOS", 5, n) for n in range(20_000)]))
    table.delete("origin = 'BOS' and delay % 3 = 1")
    shallow = table.clone(place.location + "-shallow")
    deep = shallow.clone(place.location + "-deep", deep=True)
    before = rows(table)
    shallow.drop()
    table.drop()
    assert rows(deep) == before


@pytest.mark.notices("managed-clones-go-on")
def test_clones_by_name(catalog: sluice.Catalog, monkeypatch: pytest.MonkeyPatch, counted: list[str]) -> None:
    table = catalog.create("sales.orders", flights().schema, partition_by=["origin"])
    table.append(flights(*[(origin, 1, 1) for origin in "ABCDE"]))
    with monkeypatch.context() as broken:
        broken_after(broken, 3)
        with pytest.raises(StorageUnavailable):
            catalog.clone(table, "sales.copy", deep=True)
    assert not catalog.exists("sales.copy")
    clone = catalog.clone(table, "sales.Copy", deep=True)
    assert len(counted) == len(set(counted)) == 5
    assert (rows(clone), catalog.describe("sales.copy").managed) == (rows(table), True)
    with pytest.raises(TableExists):
        catalog.clone(table, "sales.copy", deep=True)
    table.append(flights(("F", 1, 1)))
    with pytest.raises(InvalidRequest, match="leave the location out"):
        catalog.clone(table, "sales.copy", deep=True, replace=True, location="/elsewhere")
    assert catalog.clone(table, "sales.copy", deep=True, replace=True).location == clone.location
    assert rows(clone) == rows(table)
    assert rows(catalog.clone(table, "sales.shallow", 1)) == rows_of(table.snapshot(1).to_arrow())


def clone_and_die(location: str, target: str, coordinator: str, copied: int, where: str) -> None:
    """Clone a table, and kill this process: when so many files are copied, or around the commit."""
    left = [copied]
    copy: Callable[..., None] = copy_object

    def die(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def copying(*given: Any) -> None:
        copy(*given)
        print(given[3], flush=True)
        left[0] -= 1
        if where == "copying" and not left[0]:
            die()

    vars(cloning).update(copy_object=copying, _COPIES_AT_ONCE=1)
    if where == "before-commit":
        vars(cloning).update(submit=die, commit_first=die)
    elif where == "after-commit":
        vars(cloning).update(close_plan=die)
    table = sluice.Table.open(location, coordinator=coordinator)
    table.clone(target, deep=True, replace=True)
    os._exit(0)


@pytest.mark.costly
@pytest.mark.zookeeper
@pytest.mark.parametrize("there", [False, True], ids=["new", "replaced"])
def test_a_killed_clone_copies_nothing_twice(tmp_path: Path, zookeeper_hosts: str, there: bool) -> None:
    coordinator = f"zk://{zookeeper_hosts}/{uuid.uuid4().hex}"
    place, target = Place(f"{tmp_path}/flights", coordinator), f"{tmp_path}/copy"
    table = source(place)
    if there:
        table.clone(target, deep=True)
    table.append(flights(*[(origin, 9, 9) for origin in "ABCDE"]))
    copied: list[str] = []
    deaths = [(1, "copying"), (2, "copying"), (99, "before-commit"), (99, "after-commit"), (99, "never")]
    for count, where in deaths:
        order = {"location": place.location, "target": target, "coordinator": coordinator, "copied": count, "where": where}
        ended = until_ended(clone_and_die, order)
        assert ended.status == (0 if where == "never" else -signal.SIGKILL), ended.errors
        copied += ended.output.split()
        if there:
            sluice.Table.open(target, coordinator=coordinator).vacuum(**NOW)
    assert len(copied) == len(set(copied)) == (5 if there else 7)
    clone = sluice.Table.open(target, coordinator=coordinator)
    assert rows(clone) == rows(table)
    assert open_plan(clone.coordinated.context)
