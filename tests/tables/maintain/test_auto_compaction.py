"""Compaction beside writers: when it is due, that it neither fails nor delays them, and that one process does it.

Compaction as the last operation of a transaction: one commit with what came before it, and no row changes by it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import sluice
from sluice.coordinator.api import lease
from sluice.storage.actions import AddFile, RemoveFile, decode_commit
from sluice.storage.errors import StorageUnavailable
from sluice.storage.log.paths import commit_path
from sluice.tables.maintain import background
from sluice.tables.maintain.background import FILES_MIN, AutoCompaction, is_due
from sluice.tables.maintain.compaction import compact
from tests.fixtures.one_meaning import by_slots_only
from tests.tables.conftest import Place, flights, rows_of

ON = {"delta.autoOptimize.autoCompact": "true"}


def filled(place: Place, files: int, **properties: str) -> AutoCompaction:
    table = place.create(partition_by=["origin"], properties={**ON, **properties})
    with table.begin() as each:
        for number in range(files):
            each.append(flights(("JFK", number, 1)))
            if number < FILES_MIN - 1:
                each.append(flights(("EWR", number, 1)))
    return AutoCompaction(table.access.address)


def let(compaction: AutoCompaction) -> None:
    """A commit was made, and what begins then ends."""
    compaction.committed()
    compaction.wait()


def operations(place: Place) -> list[str]:
    return [entry.operation for entry in place.open().history(None)]


def test_many_small_files_of_one_partition_are_merged(place: Place) -> None:
    compaction = filled(place, FILES_MIN)
    before = rows_of(place.open().snapshot().to_arrow())
    let(compaction)
    table = place.open()
    assert operations(place)[0] == "OPTIMIZE"
    assert table.snapshot().raw.num_files == 2
    assert rows_of(table.snapshot().to_arrow()) == before
    assert not is_due(table.snapshot().raw)


@pytest.mark.parametrize(("files", "properties"), [(FILES_MIN - 1, {}), (FILES_MIN, {"delta.autoOptimize.autoCompact": "false"})])
def test_nothing_is_done_unless_it_is_due(place: Place, files: int, properties: dict[str, str]) -> None:
    compaction = filled(place, files, **properties)
    let(compaction)
    assert "OPTIMIZE" not in operations(place)


def test_one_process_compacts_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    compaction = filled(place, FILES_MIN)
    address = place.open().access.address
    monkeypatch.setattr(background, "_WAIT_S", 0.1)
    with lease(background.lease_name(address), coordinator=address.coordinator):
        let(compaction)
        assert "OPTIMIZE" not in operations(place)
    let(compaction)
    assert "OPTIMIZE" in operations(place)


def test_a_writer_waits_for_no_compaction(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    compaction = filled(place, FILES_MIN)
    begun, go_on, honest = threading.Event(), threading.Event(), compact

    def slow(*arguments: Any, **named: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return honest(*arguments, **named)

    monkeypatch.setattr(background, "compact", slow)
    compaction.committed()
    assert begun.wait(30)
    place.open().append(flights(("JFK", FILES_MIN, 1)))
    compaction.committed()
    assert operations(place)[0] == "WRITE", "the commit is there, and the compaction is not"
    go_on.set()
    compaction.wait()
    assert operations(place)[:2] == ["OPTIMIZE", "WRITE"]


def test_trouble_is_left_to_a_later_commit(place: Place) -> None:
    compaction = filled(place, FILES_MIN)
    with mock.patch.object(background, "compact", side_effect=StorageUnavailable("the store is away")):
        let(compaction)
    assert "OPTIMIZE" not in operations(place)
    let(compaction)
    assert "OPTIMIZE" in operations(place)


VECTORS = {"delta.enableDeletionVectors": "true"}
BOTH = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])


def small_files(place: Place, **options: Any) -> sluice.Table:
    """A table with three files of JFK and two of EWR, in versions 1 to 5."""
    table = place.create(**options)
    for row in (("JFK", 1, 1), ("JFK", 1, 2), ("JFK", 1, 3), ("EWR", 2, 4), ("EWR", 2, 5)):
        table.append(flights(row))
    return table


@BOTH
def test_it_is_one_commit_with_the_operations_before_it(place: Place, properties: dict[str, str]) -> None:
    table = small_files(place, properties={**properties, "delta.enableChangeDataFeed": "true"})
    with table.begin() as begun:
        begun.delete("delay = 3")
        begun.append(flights(("LGA", 3, 9)))
        begun.compact()
        assert rows_of(begun.scan()) == [("EWR", 2, 4), ("EWR", 2, 5), ("JFK", 1, 1), ("JFK", 1, 2), ("LGA", 3, 9)]
    assert table.refresh().version == 6
    assert rows_of(table.snapshot().to_arrow()) == [("EWR", 2, 4), ("EWR", 2, 5), ("JFK", 1, 1), ("JFK", 1, 2), ("LGA", 3, 9)]
    actions = list(decode_commit(Path(place.location, commit_path(6)).read_bytes(), name="6"))
    moved = [each for each in actions if isinstance(each, (AddFile, RemoveFile)) and not each.data_change]
    assert sorted(type(each).__name__ for each in moved) == ["AddFile"] * 2 + ["RemoveFile"] * 4
    changes = table.changes(5, 6).select(["origin", "delay", "_change_type"]).to_pylist()
    assert sorted((row["delay"], row["_change_type"]) for row in changes) == [(3, "delete"), (9, "insert")]
    assert len({each.path for each in actions if isinstance(each, AddFile)}) == sum(isinstance(each, AddFile) for each in actions)


@BOTH
def test_alone_it_is_what_the_table_does(place: Place, properties: dict[str, str]) -> None:
    table = small_files(place, properties=properties)
    with table.begin() as begun:
        begun.compact(where="origin = 'JFK'")
    entry = table.history(1)[0]
    assert (entry.operation, entry.kind) == ("OPTIMIZE", "minor-compaction")
    assert (entry.metrics["numRemovedFiles"], entry.metrics["numAddedFiles"]) == ("3", "1")
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("EWR", 2, 4), ("EWR", 2, 5), *(("JFK", 1, n) for n in (1, 2, 3))]


@pytest.mark.parametrize("way", ["fast", "slot"])
def test_a_delete_that_comes_first_is_carried_over_to_the_new_file(place: Place, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "slot":
        by_slots_only(monkeypatch)
    table = small_files(place, properties=VECTORS)
    begun = table.begin()
    begun.append(flights(("LGA", 3, 9)))
    begun.compact()
    table.delete("delay = 2")
    begun.commit()
    expected = [("EWR", 2, 4), ("EWR", 2, 5), ("JFK", 1, 1), ("JFK", 1, 3), ("LGA", 3, 9)]
    assert rows_of(table.refresh().snapshot().to_arrow()) == expected


def test_without_vectors_a_delete_that_comes_first_refuses_it(place: Place) -> None:
    table = small_files(place)
    begun = table.begin()
    begun.compact()
    table.delete("delay = 2")
    with pytest.raises(sluice.errors.ConcurrentModification):
        begun.commit()
    assert len(rows_of(table.refresh().snapshot().to_arrow())) == 4


def test_nothing_to_compact_is_no_operation(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    begun = table.begin()
    begun.compact()
    begun.append(flights(("JFK", 1, 2)))  # it was not the last operation, for there was nothing to do
    assert begun.commit() is not None
    assert table.begin().commit() is None


def test_it_comes_last(place: Place) -> None:
    table = small_files(place)
    begun = table.begin()
    begun.compact()
    with pytest.raises(sluice.errors.InvalidRequest, match=r"compact\(\) is the last operation of a transaction"):
        begun.delete("delay = 1")
    assert begun.commit() is not None
    assert len(rows_of(table.refresh().snapshot().to_arrow())) == 5


def test_beside_other_operations_a_matrix_of_operations_refuses_it(place: Place) -> None:
    table = small_files(place, properties={"sluice.conflictPolicy": "maxcompute-table"})
    begun = table.begin()
    begun.append(flights(("LGA", 3, 9)))
    with pytest.raises(sluice.errors.InvalidRequest, match=r"compact\(\) beside other operations.*commit it by itself"):
        begun.compact()
    begun.abort()
    with table.begin() as alone:
        alone.compact()
    assert table.refresh().version == 6


def test_a_transaction_over_several_tables_compacts_one_of_them(place: Place, tmp_path: Path) -> None:
    first = small_files(place)
    other = sluice.Table.create(tmp_path / "other", first.schema, coordinator=place.coordinator)
    with sluice.transaction(place.coordinator, tables=[first, other]) as both:
        both[other].append(flights(("LGA", 3, 9)))
        both[first].compact()
    assert (first.refresh().version, other.refresh().version) == (6, 1)
    assert first.snapshot().num_files == 2
