"""RESTORE: what comes back, what stays, what is refused, and how it gets along with writers and garbage collection.

Shallow clones: tables of their own over another table's files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.coordinator.api import raise_horizon
from sluice.coordinator.rules.intent import ConflictPolicy
from sluice.storage.actions import Action, AddFile, Metadata, Protocol, encode_all
from sluice.storage.errors import InvalidRequest, MissingObject, TableExists, UnsupportedFeature
from sluice.tables.maintain import vacuum as collecting
from sluice.tables.manage import restoring
from tests.fixtures.one_meaning import by_slots_only
from tests.tables.conftest import Place, flights, present, rows_of
from tests.tables.test_leases import expire

NOW: Mapping[str, Any] = {"retain_hours": 0, "force": True}
FIRST = [("EWR", 2, 2), ("JFK", 1, 1), ("JFK", 1, 4)]


def changed(place: Place, **properties: str) -> sluice.Table:
    """A table whose version 2 holds FIRST, and that three later versions changed."""
    table = place.filled(("JFK", 1, 1), ("JFK", 1, 4), properties=properties)
    table.append(flights(("EWR", 2, 2)))
    table.delete("delay = 4")
    table.update({"delay": "delay + 10"}, where="origin = 'EWR'")
    table.append(flights(("LGA", 3, 3)))
    return table


def rows(table: sluice.Table) -> list[tuple[Any, ...]]:
    return rows_of(table.refresh().snapshot().to_arrow())


def after_the_look(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Let something happen when a restore has looked for its files."""
    look = restoring.missing_files

    def and_do(*arguments: Any) -> dict[str, str]:
        missing = look(*arguments)
        do()
        return missing

    monkeypatch.setattr(restoring, "missing_files", and_do)


def paths(table: sluice.Table, version: int | None = None) -> set[str]:
    return {unquote(add.path) for add in table.refresh().snapshot(version).raw.add_files()}


@pytest.mark.parametrize("vectors", ["true", "false"], ids=["vectors", "copies"])
def test_the_rows_of_an_older_version_are_the_tables_again(place: Place, vectors: str) -> None:
    table = changed(place, **{"delta.enableDeletionVectors": vectors})
    before = table.snapshot().raw
    assert present(table.restore(2)).version == 6
    assert rows(table) == FIRST
    assert paths(table) == paths(table, 2)
    (told,) = table.history(1)
    assert (told.operation, told.parameters) == ("RESTORE", {"version": "2"})
    after = table.snapshot().raw
    counts = {name: int(value) for name, value in told.metrics.items()}
    assert counts["numRestoredFiles"] == 2
    assert counts["numRemovedFiles"] == before.num_files
    assert (counts["tableSizeAfterRestore"], counts["numOfFilesAfterRestore"]) == (after.size_bytes, after.num_files)
    assert before.size_bytes - counts["removedFilesSize"] + counts["restoredFilesSize"] == after.size_bytes
    assert deltalake.DeltaTable(place.location).to_pyarrow_dataset().count_rows() == 3 if vectors == "false" else True
    assert table.restore(2) is None, "the table is that already"
    table.append(flights(("SFO", 4, 4)))
    assert table.restore(5) is not None, "what a restore undid can be restored"
    assert rows(table) == [("EWR", 2, 12), ("JFK", 1, 1), ("LGA", 3, 3)]


def test_a_time_names_the_version_that_was_current_then(place: Place) -> None:
    table = changed(place)
    assert table.restore(timestamp=table.snapshot(2).timestamp) is not None
    assert rows(table) == FIRST
    assert table.history(1)[0].parameters["timestamp"].endswith("Z")


@pytest.mark.parametrize("asked", [{}, {"version": 1, "timestamp": 1}, {"version": 77}, {"version": "1"}, {"timestamp": 1.5}])
def test_what_names_no_version_is_refused(place: Place, asked: Any) -> None:
    table = changed(place)
    with pytest.raises(InvalidRequest):
        table.restore(**asked)
    assert table.refresh().version == 5


def test_the_schema_and_the_properties_come_back_and_the_coordinator_stays(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), properties={"owner": "ops"})
    wider = flights(("EWR", 2, 2)).append_column("gate", pa.array(["B4"]))
    table.append(wider, merge_schema=True)
    table.set_properties({"owner": "flights", "delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"})
    table.set_domain("team", "blue")
    protocol, own = table.snapshot().raw.protocol, table.properties["sluice.coordinator"]
    table.restore(1)
    table.refresh()
    assert table.schema.names == ["origin", "month", "delay"]
    assert table.properties["owner"] == "ops"
    assert not {"delta.enableDeletionVectors", "delta.enableChangeDataFeed"} & set(table.properties)
    assert table.properties["sluice.coordinator"] == own
    assert table.snapshot().raw.protocol == protocol, "a protocol is never lowered"
    assert table.domains == {"team": "blue"}
    assert rows(table) == [("JFK", 1, 1)]
    table.append(flights(("JFK", 1, 5)))
    assert rows(place.open()) == [("JFK", 1, 1), ("JFK", 1, 5)]


@pytest.mark.parametrize("vectors", ["true", "false"], ids=["vectors", "copies"])
@pytest.mark.parametrize("feed", ["true", "false"], ids=["feed", "no-feed"])
def test_the_changes_of_a_restore_lead_from_one_state_to_the_other(place: Place, vectors: str, feed: str) -> None:
    table = changed(place, **{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": feed})
    expected = rows(table)
    table.restore(2)
    for change in table.changes(5).to_pylist():
        row = (change["origin"], change["month"], change["delay"])
        if change["_change_type"] == "delete":
            expected.remove(row)
        else:
            assert change["_change_type"] == "insert"
            expected.append(row)
    assert sorted(expected) == FIRST


def test_rows_keep_their_ids(place: Place) -> None:
    table = changed(place, **{"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"})
    known = {add.path: (add.base_row_id, add.default_row_commit_version) for add in table.snapshot(2).raw.add_files()}
    mark = table.snapshot().raw.domains["delta.rowTracking"].configuration
    table.restore(2)
    after = table.refresh().snapshot().raw
    assert {add.path: (add.base_row_id, add.default_row_commit_version) for add in after.add_files()} == known
    assert after.domains["delta.rowTracking"].configuration == mark
    assert after.commit_info is not None
    assert after.commit_info.fields["tags"] == {"delta.rowTracking.preserved": "true"}


def test_an_application_that_wrote_before_has_still_written(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    table.append(flights(("JFK", 1, 2)), key="nightly")
    table.restore(1)
    assert present(table.append(flights(("JFK", 1, 2)), key="nightly")).repeated
    assert rows(table) == [("JFK", 1, 1)]


def test_an_append_only_table_is_not_restored(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), properties={"delta.appendOnly": "true"})
    with pytest.raises(UnsupportedFeature, match="append-only"):
        table.restore(0)


# -- files that are gone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", ["true", "false"], ids=["vectors", "copies"])
def test_files_that_are_gone_are_named_before_anything_is_written(place: Place, vectors: str) -> None:
    table = changed(place, **{"delta.enableDeletionVectors": vectors})
    assert table.vacuum(**NOW).garbage
    written = {str(each) for each in Path(place.location).rglob("*")}
    before = table.refresh().version
    with pytest.raises(MissingObject, match="ignore_missing_files=True") as refused:
        table.restore(2)
    assert all(path in refused.value.message for path in refused.value.details["paths"])
    assert table.refresh().version == before
    assert {str(each) for each in Path(place.location).rglob("*")} == written
    assert table.restore(2, ignore_missing_files=True) is not None
    table.refresh().snapshot().to_arrow()
    assert set(rows(table)) < set(FIRST)


@pytest.mark.notices("files-given-up-are-missing")
def test_files_that_garbage_collection_gave_up_do_not_come_back_while_they_are_still_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that is paused before it deletes has no later look at what it deletes."""
    table = changed(place)
    with monkeypatch.context() as paused:
        paused.setattr(collecting._Run, "_remove", lambda *_: None)
        assert place.open().vacuum(**NOW).garbage
    with pytest.raises(MissingObject, match="given up by garbage collection"):
        table.restore(2)
    assert table.restore(5) is not None or table.refresh().version == 7


@pytest.mark.notices("restored-files-are-pinned")
def test_files_that_were_looked_for_are_kept_until_the_restore_is_decided(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = changed(place), place.open()
    after_the_look(monkeypatch, lambda: other.vacuum(**NOW))
    table.restore(2)
    assert rows(table) == FIRST


@pytest.mark.notices("restored-files-are-seen")
def test_a_collection_sees_what_was_restored_while_it_looked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = changed(place), place.open()

    def after_a_restore(*given: Any, **named: Any) -> None:
        other.restore(2)
        raise_horizon(*given, **named)

    monkeypatch.setattr("sluice.coordinator.api.raise_horizon", after_a_restore)
    table.vacuum(**NOW)
    assert rows(table) == FIRST


@pytest.mark.notices("restores-depend-on-their-session")
def test_the_restore_of_a_client_that_lost_its_session_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pin is gone, too, so its files may be."""
    table = changed(place)
    after_the_look(monkeypatch, lambda: expire(place.coordinator))
    with pytest.raises(sluice.errors.LeaseLost):
        table.restore(2)
    assert rows(place.open()) == [("EWR", 2, 12), ("JFK", 1, 1), ("LGA", 3, 3)]


# -- others ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("policy", [each.value for each in ConflictPolicy])
@pytest.mark.parametrize(
    "winner",
    [
        lambda table: table.append(flights(("BOS", 9, 9))),
        lambda table: table.update({"delay": "0"}, where="origin = 'JFK'"),
        lambda table: table.delete("origin = 'JFK'"),
        lambda table: table.set_properties({"owner": "somebody"}),
    ],
    ids=["append", "update", "delete", "properties"],
)
@pytest.mark.many
def test_a_restore_leaves_exactly_that_version_or_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch, policy: str, winner: Any
) -> None:
    """Its lease keeps others away; should one come between all the same, the rules refuse the restore."""
    table = changed(place, **{"sluice.conflictPolicy": policy})
    other = place.open()
    after_the_look(monkeypatch, lambda: winner(other))  # of this thread, to which the lease belongs
    table.set_properties({"owner": "ops"})
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.restore(2)
    monkeypatch.undo()
    assert table.restore(2) is not None
    assert rows(table) == FIRST
    assert "owner" not in table.properties


def test_a_compaction_that_came_first_loses_no_row(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.create(partition_by=(), properties={"delta.enableDeletionVectors": "true"})
    for number in range(4):
        table.append(flights(("JFK", 1, number)))
    table.append(flights(("JFK", 1, 99)))
    after_the_look(monkeypatch, place.open().compact)
    try:
        table.restore(4)
    except sluice.errors.ConcurrentModification:
        monkeypatch.undo()
        table.restore(4)
    assert [delay for _, _, delay in rows(table)] == [0, 1, 2, 3]


def test_writers_that_began_before_a_restore_lose_to_it(place: Place) -> None:
    table = changed(place, **{"delta.enableDeletionVectors": "true"})
    merge = place.open().begin()
    merge.update({"delay": "7"}, where="origin = 'EWR'")
    table.restore(2)
    with pytest.raises(sluice.errors.ConcurrentModification):
        merge.commit()
    assert rows(table) == FIRST


def source(place: Place, **properties: str) -> sluice.Table:
    return place.filled(("JFK", 1, 1), ("JFK", 1, 4), ("EWR", 2, 2), properties=properties)


def files(folder: str) -> set[str]:
    return {str(each) for each in Path(folder).rglob("*.parquet") if "_delta_log" not in str(each)}


def test_a_clone_has_the_rows_of_a_version_and_other_engines_read_it(place: Place) -> None:
    table = source(place, owner="ops")
    table.append(flights(("LGA", 3, 3)))
    clone = table.clone(place.location + " copy", 1, properties={"owner": "me"})
    assert rows(clone) == FIRST
    assert (clone.properties["owner"], clone.partition_columns) == ("me", ("origin", "month"))
    assert clone.snapshot().raw.metadata.id != table.snapshot().raw.metadata.id
    assert files(clone.location.removeprefix("file://")) == set()
    (told,) = clone.history()
    assert told.operation == "CLONE"
    assert told.parameters == {"source": table.location, "sourceVersion": "1", "isShallow": "true"}
    assert told.metrics["sourceNumOfFiles"] == "2"
    assert len(rows(table.clone(place.location + "-2"))) == 4
    with pytest.raises(TableExists):
        table.clone(place.location + "-2")
    with pytest.raises(InvalidRequest, match="its own clone"):
        table.clone(place.location)
    with pytest.raises(InvalidRequest, match="another kind of store"):
        table.clone("s3://bucket/t")


@pytest.mark.parametrize("way", ["fast", "slot", "staged"])
def test_files_of_others_come_by_every_way(place: Place, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An intent with its own slot is checked by whoever decides it; a large one, whose actions are staged, always is."""
    if way == "slot":
        by_slots_only(monkeypatch)
    table = source(place)
    if way == "staged":
        table.append(flights(*[(f"{n:03d}" + "x" * 150, 1, n) for n in range(400)]))
    before = rows(table)
    clone = table.clone(place.location + "-copy")
    clone.truncate()
    clone.restore(0)
    assert rows(clone) == before
    assert rows(table.clone(place.location + "-copy", replace=True)) == before


@pytest.mark.parametrize("way", ["fast", "slot"])
def test_files_with_names_and_statistics_that_only_others_give(place: Place, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "slot":
        by_slots_only(monkeypatch)
    folder = Path(place.location)
    folder.mkdir()
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    for path in (folder / "a\tb.parquet", elsewhere / "c.parquet"):
        pq.write_table(pa.table({"id": [len(path.name)]}), path)
    added = [
        ("a%09b.parquet", "[1]", folder / "a\tb.parquet"),
        (f"file://{elsewhere}/c.parquet", '{"numRecords":"many"}', elsewhere / "c.parquet"),
    ]
    schema = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    actions: list[Action] = [Protocol(1, 2), Metadata("table", schema, (), {})]
    actions += [AddFile(path, {}, file.stat().st_size, 1, True, stats) for path, stats, file in added]
    log = folder / "_delta_log"
    log.mkdir()
    (log / "00000000000000000000.json").write_bytes(encode_all(actions))
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    before = rows(table)
    table.truncate()
    table.restore(0)
    assert rows(table) == before == [(9,), (11,)]
    assert rows(table.clone(place.location + "-copy")) == before
    converted = folder.with_name("converted")
    converted.mkdir()
    (folder / "a\tb.parquet").rename(converted / "a\tb.parquet")
    assert rows(sluice.Table.convert(converted, coordinator=place.coordinator)) == [(11,)]


def test_delta_rs_reads_a_clone(place: Place) -> None:
    """Its own engine does; `to_pyarrow_table` and polars take absolute URIs for relative ones."""
    clone = source(place).clone(place.location + "-copy")
    engine = deltalake.QueryBuilder().register("clone", deltalake.DeltaTable(clone.location))
    assert pa.table(engine.execute("select * from clone").read_all()).num_rows == 3


@pytest.mark.parametrize("vectors", ["true", "false"], ids=["vectors", "copies"])
@pytest.mark.parametrize("many", [4, 20_000], ids=["inline", "stored"])
def test_a_clone_is_changed_and_vacuumed_without_touching_the_original(place: Place, vectors: str, many: int) -> None:
    table = source(place, **{"delta.enableDeletionVectors": vectors})
    table.append(flights(*[("BOS", 5, n) for n in range(many)]))
    table.delete("origin = 'BOS' and delay % 3 = 1")
    before, theirs = rows(table), files(place.location)
    clone = table.clone(place.location + "-copy")
    assert rows(clone) == before
    clone.delete("origin = 'BOS' and delay % 3 = 2")
    clone.update({"delay": "7"}, where="origin = 'EWR'")
    expected = [("BOS", 5, n) for n in range(0, many, 3)] + [("EWR", 2, 7), ("JFK", 1, 1), ("JFK", 1, 4)]
    assert rows(clone) == expected
    clone.compact("major")
    clone.vacuum(**NOW)
    assert rows(clone) == expected
    assert files(place.location) == theirs
    assert rows(table) == before
    assert rows_of(clone.snapshot(0).to_arrow()) == before
    table.vacuum(**NOW)
    assert rows(table) == before
    clone.drop()
    assert rows(table) == before


def test_rows_of_a_clone_keep_their_ids(place: Place) -> None:
    table = source(place, **{"delta.enableRowTracking": "true"})
    table.update({"delay": "9"}, where="delay = 4")
    clone = table.clone(place.location + "-copy")
    ids = [sorted(str(add.base_row_id) for add in each.snapshot().raw.add_files()) for each in (table.refresh(), clone)]
    assert ids[0] == ids[1]
    clone.append(flights(("LGA", 3, 3)))
    known = [add.base_row_id for add in clone.refresh().snapshot().raw.add_files()]
    assert len(set(known)) == len(known)
    assert max(each for each in known if each is not None) not in [int(each) for each in ids[0]]


def test_a_clone_replaces_a_table(place: Place) -> None:
    table = source(place)
    target = place.location + "-copy"
    first = table.clone(target, replace=True)
    assert first.version == 0
    first.append(flights(("LGA", 3, 3)))
    table.delete("origin = 'EWR'")
    again = table.clone(target, replace=True)
    assert (again.version, rows(again)) == (2, [("JFK", 1, 1), ("JFK", 1, 4)])
    (told,) = again.history(1)
    assert (told.operation, told.metrics["numRemovedFiles"]) == ("CLONE", "2")
    assert rows_of(again.snapshot(1).to_arrow()) == [*FIRST, ("LGA", 3, 3)]
