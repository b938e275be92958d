"""Compaction beside writers: when it is due, that it neither fails nor delays them, and that one process does it."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest

from sluice.coordinator.api import lease
from sluice.storage.errors import StorageUnavailable
from sluice.tables.maintain import auto_compaction
from sluice.tables.maintain.auto_compaction import FILES_MIN, AutoCompaction, is_due
from sluice.tables.maintain.compaction import compact
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


def operations(place: Place) -> list[str]:
    return [entry.operation for entry in place.open().history(None)]


def test_many_small_files_of_one_partition_are_merged(place: Place) -> None:
    compaction = filled(place, FILES_MIN)
    before = rows_of(place.open().snapshot().to_arrow())
    compaction.committed()
    compaction.wait()
    table = place.open()
    assert operations(place)[0] == "OPTIMIZE"
    assert table.snapshot().raw.num_files == 2
    assert rows_of(table.snapshot().to_arrow()) == before
    assert not is_due(table.snapshot().raw)


@pytest.mark.parametrize(("files", "properties"), [(FILES_MIN - 1, {}), (FILES_MIN, {"delta.autoOptimize.autoCompact": "false"})])
def test_nothing_is_done_unless_it_is_due(place: Place, files: int, properties: dict[str, str]) -> None:
    compaction = filled(place, files, **properties)
    compaction.committed()
    compaction.wait()
    assert "OPTIMIZE" not in operations(place)


def test_one_process_compacts_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    compaction = filled(place, FILES_MIN)
    address = place.open().access.address
    monkeypatch.setattr(auto_compaction, "_WAIT_S", 0.1)
    with lease(auto_compaction.lease_name(address), coordinator=address.coordinator):
        compaction.committed()
        compaction.wait()
        assert "OPTIMIZE" not in operations(place)
    compaction.committed()
    compaction.wait()
    assert "OPTIMIZE" in operations(place)


def test_a_writer_waits_for_no_compaction(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    compaction = filled(place, FILES_MIN)
    begun, go_on, honest = threading.Event(), threading.Event(), compact

    def slow(*arguments: Any, **named: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return honest(*arguments, **named)

    monkeypatch.setattr(auto_compaction, "compact", slow)
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
    with mock.patch.object(auto_compaction, "compact", side_effect=StorageUnavailable("the store is away")):
        compaction.committed()
        compaction.wait()
    assert "OPTIMIZE" not in operations(place)
    compaction.committed()
    compaction.wait()
    assert "OPTIMIZE" in operations(place)
