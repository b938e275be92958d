"""Commits too large to hold: the same outcomes, with texts that are read in pieces, and limits that are told in time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import deltalake
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.storage import texts
from sluice.storage.paths import commit_path
from sluice.tables import access

from .conftest import FLIGHTS, Place, flights, rows_of

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
    commit = table.overwrite(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    assert commit is not None
    assert commit.published
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
    with pytest.raises(sluice.ConcurrentModification):
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
    with pytest.raises(sluice.ConcurrentModification):
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
    with pytest.raises(sluice.InvalidRequest, match=r"Limits\.staged_bytes_max is 1,000"):
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
        with pytest.raises(sluice.InvalidRequest, match=r"Limits\.staged_bytes_max is 1,000.*where="):
            write()
    assert sorted(Path(place.location).rglob("*.parquet")) == before
    table.overwrite(flights(("A1", 1, 1)), where="origin = 'A1'")


def test_a_removal_tells_no_more_than_readers_need(place: Place) -> None:
    table = filled(place)
    commit = table.overwrite(flights(("JFK", 1, 1)))
    assert commit is not None
    lines = (Path(place.location) / commit_path(commit.version)).read_text().splitlines()
    removes = [body["remove"] for body in map(json.loads, lines) if "remove" in body]
    assert len(removes) == 12
    told = {"path", "dataChange", "deletionTimestamp", "extendedFileMetadata", "partitionValues", "size", "stats"}
    assert all(remove.keys() == told for remove in removes)
    assert {remove["stats"] for remove in removes} == {'{"numRecords":1}'}
    assert table.changes(commit.version - 1).num_rows == 13


def test_contents_are_kept_by_their_bytes(place: Place) -> None:
    log = place.create().access.ours.log
    for version in range(1, 11):
        log.remember(version, bytes(20 * 1024 * 1024))
    assert [version for version in range(1, 11) if log.known(version) is not None] == [8, 9, 10]


def test_snapshots_are_kept_by_their_bytes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest is kept in any case, and older ones as far as there is room beside it."""
    table = place.create(partition_by=[])
    for n in range(6):
        table.overwrite(flights(*(("JFK", 1, n) for _ in range(3))))
        assert table.refresh().snapshot().to_arrow().num_rows == 3
    access_of = table.access
    assert len(access_of._snapshots) > 3
    monkeypatch.setattr(access, "_SNAPSHOTS_BYTES_MAX", 2000)
    table.overwrite(flights(("JFK", 1, 9)))
    assert table.refresh().snapshot().to_arrow().num_rows == 1
    assert max(access_of._snapshots) == 7
    assert len(access_of._snapshots) <= 2
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
