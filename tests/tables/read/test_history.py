"""What the history tells of transactions that others came before, and of commits that say less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sluice
from sluice.storage.actions import CommitInfo, encode_all
from sluice.storage.log.paths import commit_path
from tests.tables.conftest import Place, flights
from tests.tables.read.test_changes import Made

A_TRANSACTION = {"id": "t", "ordinal": 0, "operation": "DELETE", "readVersion": 1, "claimedAt": 5, "ratifiedAt": 9}


def entry_of(made: Made, transaction: dict[str, Any]) -> sluice.HistoryEntry:
    made.commit(operation="DELETE", sluice={"transactions": [transaction]})
    [entry] = sluice.Table.open(made.folder, consistency="published").history(limit=1)
    return entry


def test_what_was_rebased_and_over_how_many_versions(tmp_path: Path) -> None:
    made = Made(tmp_path)
    for _ in range(4):
        made.commit()
    entry = entry_of(made, {**A_TRANSACTION, "kind": "change", "rebased": ["2 vectors merged", "1 delete carried over"]})
    assert (entry.version, entry.kind, entry.rebased_over) == (5, "change", 3)
    assert entry.rebased == ("2 vectors merged", "1 delete carried over")
    assert entry.waited_ms == 4


def test_older_commits_say_less(tmp_path: Path) -> None:
    made = Made(tmp_path)
    old = {name: value for name, value in A_TRANSACTION.items() if name != "readVersion"}
    entry = entry_of(made, old)
    assert (entry.kind, entry.rebased, entry.rebased_over) == ("", (), 0)
    made.commit()
    [foreign] = sluice.Table.open(made.folder, consistency="published").history(limit=1)
    assert (foreign.kind, foreign.rebased, foreign.rebased_over) == ("", (), 0)
    Path(made.folder, commit_path(made.versions)).write_bytes(encode_all([CommitInfo({})]))
    [silent] = sluice.Table.open(made.folder, consistency="published").history(limit=1)
    assert (silent.operation, silent.timestamp, silent.waited_ms) == ("", 0, None)


def test_a_writer_on_an_old_version_came_behind_the_others(place: Place) -> None:
    table, other = place.create(), place.open()
    for delay in range(3):
        other.append(flights(("JFK", 1, delay)))
    table.overwrite(flights(("EWR", 1, 1)), where="origin = 'EWR'", read_version=0)
    newest, *earlier = table.history()
    assert (newest.version, newest.rebased_over, newest.rebased) == (4, 3, ())
    assert newest.kind == "overwrite"
    assert [(entry.kind, entry.rebased_over) for entry in earlier[-2:]] == [("append", 0), ("other", 0)]


def test_detail_describes_the_latest_version(place: Place) -> None:
    table = place.create(partition_by=["origin"], properties={"delta.enableDeletionVectors": "true", "owner": "ann"})
    table.append(flights(("JFK", 1, 1), ("EWR", 1, 2)))
    place.open().delete("delay = 1")
    found = table.detail()
    assert (found.version, found.num_files, found.partition_columns) == (2, 1, ("origin",))
    assert (found.properties["owner"], found.min_reader_version, found.name) == ("ann", 3, None)
    assert "deletionVectors" in found.features
    assert found.size_bytes == table.snapshot().raw.size_bytes > 0
    assert found.created_ms is not None
    assert found.created_ms <= found.modified_ms
