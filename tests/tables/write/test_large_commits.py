"""Commits too large to hold: the same outcomes, with texts that are read in pieces, and limits that are checked in time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.api import submit
from sluice.coordinator.limits import Limits
from sluice.storage.actions import texts
from sluice.storage.log.paths import commit_path
from sluice.tables.client import open_table
from sluice.tables.maintain import compaction
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of

SMALL_PIECES = 300
LIMITS = Limits(inline_bytes_max=400)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are long from 300 bytes on."""
    monkeypatch.setattr(texts, "PIECE_BYTES", SMALL_PIECES)


def filled(place: Place, **properties: str) -> sluice.Table:
    """A table with twelve files in as many partitions."""
    with place.create(properties=properties) as table:
        table.append(flights(*((f"A{n}", 1, n) for n in range(12))))
    return place.open(limits=LIMITS)


@pytest.mark.parametrize(
    "properties",
    [{}, {"delta.enableRowTracking": "true"}, {"delta.enableDeletionVectors": "true"}, {"sluice.conflictPolicy": "maxcompute-table"}],
)
def test_an_overwrite_of_many_files(place: Place, in_pieces: None, properties: dict[str, str]) -> None:
    table = filled(place, **properties)
    assert present(table.overwrite(flights(("JFK", 1, 1), ("EWR", 2, 2)))).published
    for reader in (table, place.open(), place.open(consistency="published")):
        assert rows_of(reader.refresh().snapshot().to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1)]
    if "delta.enableDeletionVectors" not in properties:
        assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_others_meet_such_a_commit(place: Place, in_pieces: None, vectors: str) -> None:
    table = filled(place, **{"delta.enableDeletionVectors": vectors})
    other = place.open(limits=LIMITS)
    late, lost = other.begin(), other.begin()
    late.append(flights(("LAX", 1, 7)))
    lost.delete("origin = 'A3'")
    table.overwrite(flights(("JFK", 1, 1)))
    late.commit()
    with pytest.raises(sluice.errors.ConcurrentModification):
        lost.commit()
    assert rows_of(other.refresh().snapshot().to_arrow()) == [("JFK", 1, 1), ("LAX", 1, 7)]


def test_such_a_commit_meets_others(place: Place, in_pieces: None) -> None:
    table = filled(place)
    other = place.open()
    big, lost = table.begin(), table.begin()
    big.truncate("origin <> 'A3'")
    lost.truncate("origin <> 'A11'")
    other.append(flights(("LAX", 1, 7)))
    other.truncate("origin = 'A3'")
    big.commit()
    with pytest.raises(sluice.errors.ConcurrentModification):
        lost.commit()
    assert rows_of(other.refresh().snapshot().to_arrow()) == [("LAX", 1, 7)]


def test_a_compaction_of_many_files_is_carried_over(place: Place, in_pieces: None) -> None:
    table = place.create(properties={"delta.enableDeletionVectors": "true"}, partition_by=[])
    for n in range(8):
        table.append(flights(("JFK", 1, n)))
    table = place.open(limits=LIMITS)
    late = place.open(limits=LIMITS).begin()
    late.delete("delay = 3")
    table.compact()
    late.commit()
    assert [row[2] for row in rows_of(table.refresh().snapshot().to_arrow())] == [0, 1, 2, 4, 5, 6, 7]


def test_what_is_too_large_is_refused_by_its_name(place: Place, in_pieces: None) -> None:
    filled(place)
    table = place.open(limits=Limits(inline_bytes_max=400, staged_bytes_max=1000))
    with pytest.raises(sluice.errors.InvalidRequest, match=r"Limits\.staged_bytes_max is 1,000"):
        table.truncate()
    table.truncate("origin = 'A1'")
    assert table.refresh().snapshot().to_arrow().num_rows == 11


def test_too_much_is_refused_before_any_row_is_written(place: Place, in_pieces: None) -> None:
    filled(place)
    table = place.open(limits=Limits(inline_bytes_max=400, staged_bytes_max=1000))
    before = sorted(Path(place.location).rglob("*.parquet"))
    plan = table.plan_write(FLIGHTS, mode="overwrite")
    attempts: list[Callable[[], object]] = [lambda: table.overwrite(flights(("JFK", 1, 1))), lambda: table.check_write(plan)]
    for write in attempts:
        with pytest.raises(sluice.errors.InvalidRequest, match=r"Limits\.staged_bytes_max is 1,000.*where="):
            write()
    assert sorted(Path(place.location).rglob("*.parquet")) == before
    table.overwrite(flights(("A1", 1, 1)), where="origin = 'A1'")


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.compact("major", target_file_size=100_000),
        lambda table: table.compact(z_order_by="delay"),
        lambda table: table.upsert(flights(*((f"A{n}", 1, n) for n in range(12))), on="origin"),
        lambda table: table.update({"delay": "delay + 1"}),
        lambda table: table.transact(lambda tx: tx.compact()),
        lambda table: together(table, lambda tx: tx[table].compact()),
        lambda table: together(table, lambda tx: tx[table].overwrite(flights(("JFK", 1, 1)))),
        lambda table: together(table, lambda tx: tx[table].update({"delay": "1"})),
    ],
    ids=["compact", "z-order", "upsert", "update", "compact in a transaction", "joint compact", "joint overwrite", "joint update"],
)
def test_whatever_takes_too_many_files_is_refused_before_it_leaves_a_file(
    place: Place, in_pieces: None, change: Callable[[sluice.Table], object], vectors: str
) -> None:
    table = place.create(properties={"delta.enableDeletionVectors": vectors})
    for _ in range(2):
        table.append(flights(*((f"A{n}", 1, n) for n in range(12))))
    table = place.open(limits=Limits(inline_bytes_max=400, staged_bytes_max=1000))
    before = sorted(Path(place.location).rglob("*"))
    with pytest.raises(sluice.errors.InvalidRequest, match=r"Limits\.staged_bytes_max is 1,000") as refused:
        change(table)
    assert refused.value.limit == "staged_bytes_max"
    assert sorted(Path(place.location).rglob("*")) == before


def together(table: sluice.Table, work: Callable[[sluice.JointTransaction], object]) -> None:
    with sluice.transaction(tables=[table]) as tx:
        work(tx)


def test_a_delete_that_would_copy_too_much_copies_nothing(place: Place, in_pieces: None) -> None:
    table = place.create(partition_by=[])
    for n in range(12):
        table.append(flights(("JFK", 1, n), ("EWR", 1, n)))
    table = place.open(limits=Limits(inline_bytes_max=400, staged_bytes_max=1000))
    before = sorted(Path(place.location).rglob("*"))
    with pytest.raises(sluice.errors.InvalidRequest, match=r"Limits\.staged_bytes_max is 1,000"):
        table.delete("origin = 'JFK'")
    assert sorted(Path(place.location).rglob("*")) == before


# -- compactions in several commits --------------------------------------------------------------------------------------


def shared_out(place: Place, monkeypatch: pytest.MonkeyPatch, *, files: int = 4, vectors: str = "false") -> sluice.Table:
    """A table with so many files in each of three partitions; one commit of a compaction takes five files."""
    monkeypatch.setattr(compaction, "_FILES_PER_COMMIT", 5)
    table = place.create(partition_by=["origin"], properties={"delta.enableDeletionVectors": vectors})
    for n in range(files):
        table.append(flights(*((f"A{part}", 1, n) for part in range(3))))
    return table


@pytest.mark.parametrize("options", [{}, {"mode": "major"}, {"z_order_by": "delay"}])
def test_a_compaction_of_many_files_is_several_commits(place: Place, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    table = shared_out(place, monkeypatch)
    rows = rows_of(table.refresh().snapshot().to_arrow())
    commit = table.compact(**options)  # type: ignore[arg-type]
    assert commit is not None
    assert (commit.version, commit.commits) == (7, 3)
    for version, left in ((5, 9), (6, 6), (7, 3)):
        snapshot = table.snapshot(version)
        assert snapshot.raw.num_files == left
        assert rows_of(snapshot.to_arrow()) == rows
        lines = (Path(place.location) / commit_path(version)).read_text().splitlines()
        assert sum("remove" in json.loads(line) for line in lines) == 4
    assert [entry.metrics["numRemovedFiles"] for entry in table.history(3)] == ["4", "4", "4"]
    assert rows_of(pa.table(deltalake.DeltaTable(place.location).to_pyarrow_table())) == rows
    assert options or table.compact() is None


def test_no_bin_is_larger_than_a_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = shared_out(place, monkeypatch, files=12)
    rows = rows_of(table.refresh().snapshot().to_arrow())
    assert present(table.compact()).commits == 9
    assert table.refresh().snapshot().raw.num_files == 9
    assert table.compact() is not None
    assert table.refresh().snapshot().raw.num_files == 3
    assert rows_of(table.refresh().snapshot().to_arrow()) == rows


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_what_others_do_between_two_commits_of_a_compaction(place: Place, monkeypatch: pytest.MonkeyPatch, vectors: str) -> None:
    """Each commit is made on what is there then: files that are gone are left out, and new ones left alone."""
    table = shared_out(place, monkeypatch, vectors=vectors)
    other, changes = place.open(), iter(range(9))

    def after_each(*arguments: Any, **options: Any) -> sluice.Commit:
        done = submit(*arguments, **options)
        if next(changes) == 0:
            other.append(flights(("A2", 1, 100)))
            other.delete("origin = 'A1' AND delay < 3")
            other.delete("origin = 'A2' AND delay = 1")
        return done

    monkeypatch.setattr(compaction, "submit", after_each)
    assert present(table.compact()).commits == 2
    left = [("A0", 1, n) for n in range(4)] + [("A1", 1, 3)] + [("A2", 1, n) for n in (0, 2, 3, 100)]
    assert rows_of(place.open().snapshot().to_arrow()) == sorted(left)
    assert place.open().snapshot().raw.num_files == 4


def test_a_conflict_in_a_later_commit_says_what_stands(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = shared_out(place, monkeypatch)
    other, commits = place.open(), iter(range(9))

    def before_the_second(*arguments: Any, **options: Any) -> sluice.Commit:
        if next(commits) == 1:
            other.delete("origin = 'A1'")
        return submit(*arguments, **options)

    monkeypatch.setattr(compaction, "submit", before_the_second)
    with pytest.raises(sluice.errors.ConcurrentModification, match="its earlier commits remain") as lost:
        table.compact()
    assert lost.value.commits == 1
    assert place.open().snapshot().raw.num_files == 5


def test_a_removal_tells_no_more_than_readers_need(place: Place) -> None:
    table = filled(place)
    commit = present(table.overwrite(flights(("JFK", 1, 1))))
    lines = (Path(place.location) / commit_path(commit.version)).read_text().splitlines()
    removes = [body["remove"] for body in map(json.loads, lines) if "remove" in body]
    assert len(removes) == 12
    told = {"path", "dataChange", "deletionTimestamp", "extendedFileMetadata", "partitionValues", "size", "stats"}
    assert all(remove.keys() == told for remove in removes)
    assert {remove["stats"] for remove in removes} == {'{"numRecords":1}'}
    assert table.changes(commit.version - 1).num_rows == 13


@pytest.mark.parametrize("consistency", ["latest", "published"])
def test_changes_of_such_a_version(place: Place, in_pieces: None, consistency: str) -> None:
    """What a version removed or added is gone through; only files that it did both to are held."""
    table = place.filled(*(("JFK", 1, n) for n in range(30)), partition_by=[], properties={"delta.enableDeletionVectors": "true"})
    table.append(flights(*(("EWR", 1, n) for n in range(30))))
    with table.begin() as tx:
        tx.delete("origin = 'JFK' AND delay < 3")
        tx.append(flights(("LAX", 1, 1)))
    table.overwrite(flights(("BOS", 1, 1)))
    reader = place.open(consistency=consistency)
    told = reader.changes(2)
    counted = {(row["_commit_version"], row["_change_type"]): 0 for row in told.to_pylist()}
    for row in told.to_pylist():
        counted[row["_commit_version"], row["_change_type"]] += 1
    assert counted == {(3, "delete"): 3, (3, "insert"): 1, (4, "delete"): 58, (4, "insert"): 1}


def test_contents_are_kept_by_their_bytes(place: Place) -> None:
    log = place.create().coordinated.log
    for version in range(1, 11):
        log.remember(version, bytes(20 * 1024 * 1024))
    assert [version for version in range(1, 11) if log.known(version) is not None] == [8, 9, 10]


def test_snapshots_are_kept_by_their_bytes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest is kept in any case, and older ones as far as there is room beside it."""
    table = place.create(partition_by=[])
    for n in range(6):
        table.overwrite(flights(*(("JFK", 1, n) for _ in range(3))))
        assert table.refresh().snapshot().to_arrow().num_rows == 3
    kept = table.coordinated
    assert len(kept._snapshots) > 3
    monkeypatch.setattr(open_table, "_SNAPSHOTS_BYTES_MAX", 2000)
    table.overwrite(flights(("JFK", 1, 9)))
    assert table.refresh().snapshot().to_arrow().num_rows == 1
    assert max(kept._snapshots) == 7
    assert len(kept._snapshots) <= 2
    assert table.snapshot(3).to_arrow().num_rows == 3


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_million_files_are_replaced(tmp_path: Path) -> None:
    """With 600 bytes for each file, as others write them; in processes of their own, which check what they did."""
    command = [sys.executable, "-m", "benchmarks.overwrite", "--files", "1000000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1000)
    steps = {told["step"]: told for told in map(json.loads, done.stdout.splitlines())}
    assert steps.keys() == {"open", "begin", "overwrite", "compare", "reopen"}
    assert steps["overwrite"]["peak_mb"] < steps["begin"]["peak_mb"] + 1000
