"""Compaction: what it writes again and what it leaves, where every row goes, and that no row changes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.storage.actions import Action, AddFile, RemoveFile, decode_commit
from sluice.storage.actions.file_removals import moved_rows
from sluice.storage.actions.filetable import add_rows
from sluice.storage.actions.records import DeletionVector
from sluice.storage.data.datafiles import OpenFile
from sluice.storage.log.paths import commit_path
from sluice.tables.client.open_table import OpenTable
from sluice.tables.maintain import rewriting
from sluice.tables.maintain.bins import Bin, plan_bins
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.pictures import files_below, refused


def actions_of(place: Place, commit: sluice.Commit | None) -> list[Action]:
    """The actions of a version, as they were published."""
    assert commit is not None
    key = commit_path(commit.version)
    return list(decode_commit(Path(place.location, key).read_bytes(), name=key))


def physical(place: Place, path: str) -> list[dict[str, Any]]:
    """All rows of a data file in their order, dead ones too."""
    found: list[dict[str, Any]] = pq.ParquetFile(Path(place.location, path)).read().to_pylist()
    return found


def delays(place: Place, path: str) -> list[int]:
    return [row["delay"] for row in physical(place, path)]


def check_moves(place: Place, commit: sluice.Commit | None, dead: dict[str, set[int]] | None = None) -> list[RemoveFile]:
    """Every live row of every source is where the commit says it went, in order; every row of the new files came from somewhere."""
    actions = actions_of(place, commit)
    removes = [a for a in actions if isinstance(a, RemoveFile)]
    adds = {a.path: a for a in actions if isinstance(a, AddFile)}
    arrived: dict[str, dict[int, dict[str, Any]]] = {path: {} for path in adds}
    for remove in removes:
        gone = (dead or {}).get(remove.path, set())
        live = [row for number, row in enumerate(physical(place, remove.path)) if number not in gone]
        moves = moved_rows(remove)
        assert isinstance(moves, tuple)
        assert [n for move in moves for n in range(move.first, move.first + move.count)] == list(range(len(live)))
        for move in moves:
            for n in range(move.count):
                assert move.offset + n not in arrived[move.path], "two rows went to one place"
                arrived[move.path][move.offset + n] = live[move.first + n]
        assert not remove.data_change
    for path, add in adds.items():
        assert [arrived[path][n] for n in range(len(arrived[path]))] == physical(place, path)
        assert not add.data_change
        assert add.deletion_vector is None
    return removes


def file_count(table: sluice.Table) -> int:
    return OpenTable.latest(table.coordinated).num_files


# -- which files ---------------------------------------------------------------------------------------------------------


def a_file(name: str, size: int, partition: str | None = None, *, rows: int = 100, dead: int | None = None) -> AddFile:
    vector = None if dead is None else DeletionVector("u", "x" * 20, 40, dead, 1)
    return AddFile(name, {} if partition is None else {"p": partition}, size, 1, True, f'{{"numRecords":{rows}}}', deletion_vector=vector)


def planned(
    adds: Sequence[AddFile], *columns: str, base: bool = False, reorder: bool = False, scope: list[bool] | None = None
) -> list[Bin]:
    mask = None if scope is None else pa.array(scope)
    return plan_bins(add_rows(adds), mask, columns, target_bytes=100, base=base, reorder=reorder)


@pytest.mark.parametrize(
    ("sizes", "bins"),
    [
        ([], []),
        ([10], []),
        ([50, 50, 99, 1000], []),  # half of the target is large enough
        ([49, 49], [(0, 1)]),
        ([10, 70, 20], [(0, 2)]),
        ([40, 40, 40, 40, 40], [(0, 1), (2, 3)]),  # the last one is alone
        ([1] * 200, [tuple(range(100)), tuple(range(100, 200))]),
    ],
)
def test_a_minor_compaction_takes_small_files_that_fit_together(sizes: list[int], bins: list[tuple[int, ...]]) -> None:
    assert [each.indices for each in planned([a_file(str(n), size) for n, size in enumerate(sizes)])] == bins


def test_files_of_different_partitions_never_meet() -> None:
    adds = [a_file("a", 10, "x"), a_file("b", 10, "y"), a_file("c", 10, "x"), a_file("d", 10, None), a_file("e", 10, "")]
    assert planned(adds, "p") == [Bin(("x",), (0, 2), 20)]


def test_a_major_compaction_takes_every_file_with_dead_rows_by_what_is_left_of_it() -> None:
    dead = {"b": 0, "c": 99, "d": 50}
    adds = [a_file(name, size, dead=dead.get(name)) for name, size in zip("abcdef", (1000, 1000, 1000, 80, 10, 90), strict=True)]
    assert planned(adds) == []
    assert planned(adds, base=True) == [Bin((), (1,), 1000), Bin((), (2, 3, 4), 60)]
    unknown = [AddFile("a", {}, 60, 1, True, None, deletion_vector=DeletionVector("u", "x" * 20, 40, 5, 1))]
    assert planned(unknown, base=True) == [Bin((), (0,), 60)]


def test_a_z_order_takes_all_files_of_a_partition_together() -> None:
    adds = [a_file("a", 1000, "x"), a_file("b", 10, "y"), a_file("c", 60, "x")]
    assert planned(adds, "p", base=True, reorder=True) == [Bin(("x",), (0, 2), 1060), Bin(("y",), (1,), 10)]


def test_only_files_in_the_scope_are_taken() -> None:
    adds = [a_file(name, 10) for name in "abcd"]
    assert [each.indices for each in planned(adds, scope=[True, False, True, False])] == [(0, 2)]
    assert [each.indices for each in planned(adds, scope=[False, True, False, True], reorder=True)] == [(1, 3)]


@pytest.mark.parametrize(("nbytes", "count"), [(0, 1), (100, 1), (149, 1), (151, 2), (1000, 10)])
def test_rows_are_shared_out_among_as_many_files_as_fit_best(nbytes: int, count: int) -> None:
    assert Bin((), (0,), nbytes).file_count(100) == count


# -- z-order -------------------------------------------------------------------------------------------------------------


# -- what becomes of the rows --------------------------------------------------------------------------------------------


def test_small_files_are_merged_per_partition_and_large_ones_left(place: Place) -> None:
    table = place.create()
    for n in range(5):
        table.append(flights(("JFK", 1, n), ("EWR", 2, n + 10)))
    table.append(flights(("LGA", 3, 99)))
    alone = {add.path for add in table.access.latest().add_files() if "LGA" in add.path}
    before = rows_of(table.snapshot().to_arrow())
    commit = table.compact()
    assert rows_of(table.snapshot().to_arrow()) == before
    removes = check_moves(place, commit)
    assert len(removes) == 10
    left = {add.path for add in table.access.latest().add_files()}
    assert len(left) == 3
    assert alone < left
    [merged] = [path for path in left if "JFK" in path]
    assert delays(place, merged) == [0, 1, 2, 3, 4], "in the order of the table"
    assert table.compact() is None
    assert table.compact("major") is None
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == len(before)


def test_what_the_history_tells(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    table.append(flights(("JFK", 1, 2)))
    table.compact(where="origin = 'JFK'")
    entry = table.history(1)[0]
    assert entry.operation == "OPTIMIZE"
    assert entry.parameters == {"predicate": "[\"origin = 'JFK'\"]", "zOrderBy": "[]", "auto": "false", "mode": "minor"}
    assert [entry.metrics[f"num{name}"] for name in ("AddedFiles", "RemovedFiles", "DeletionVectorsRemoved")] == ["1", "2", "0"]
    [added] = [a for a in actions_of(place, sluice.Commit(3, 0, 0, "")) if isinstance(a, AddFile)]
    sizes = {name: entry.metrics[name] for name in ("numAddedBytes", "minFileSize", "p25FileSize", "p50FileSize", "maxFileSize")}
    assert set(sizes.values()) == {str(added.size)}
    assert int(entry.metrics["numRemovedBytes"]) > 0


def test_a_condition_on_partitions_bounds_it(place: Place) -> None:
    table = place.create()
    for n in range(3):
        table.append(flights(("JFK", 1, n), ("JFK", 2, n), ("EWR", 1, n)))
    table.compact(where="origin = 'JFK' AND month < 2")
    assert file_count(table) == 7
    assert table.compact(where="origin = 'nowhere'") is None


def test_what_cannot_be_compacted_is_refused_before_anything_is_written(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    table.append(flights(("JFK", 1, 2)))
    asked: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"mode": "medium"}, ("'medium'", "minor, major")),
        ({"where": "origin = 'JFK' AND delay > 1"}, ("delay > 1", "origin, month")),
        ({"where": "month = 1 OR delay > 1"}, ("delay", "origin, month")),
        ({"target_file_size": 0}, ("0", "128mb")),
        ({"target_file_size": True}, ("True", "128mb")),
        ({"target_file_size": "huge"}, ("'huge'", "128mb")),
        ({"z_order_by": []}, ("0 columns", "1 to 8")),
        ({"z_order_by": ["delay"] * 9}, ("9 columns", "1 to 8")),
        ({"z_order_by": ["delay", "DELAY"]}, ("'delay'", "twice")),
        ({"z_order_by": ["origin"]}, ("partition column 'origin'",)),
        ({"z_order_by": "weather"}, ("'weather'", "origin, month, delay")),
    ]
    for options, words in asked:
        with refused(sluice.errors.InvalidRequest, *words, leaves=lambda: files_below(place.location)):
            table.compact(**options)
    with refused(sluice.errors.PredicateError, "nonsense", leaves=lambda: files_below(place.location)):
        table.compact(where="nonsense = 1")


def test_columns_of_nested_values_have_no_order(tmp_path: Path) -> None:
    schema = pa.schema([("tags", pa.list_(pa.string()))])
    table = sluice.Table.create(str(tmp_path / "t"), schema, coordinator=f"memory://{uuid.uuid4().hex}")
    with pytest.raises(sluice.errors.InvalidRequest, match=r"'tags'.*plain values"):
        table.compact(z_order_by=["tags"])


def some_rows(count: int, *, seed: int = 1) -> pa.Table:
    chance = random.Random(seed)
    return flights(*(("JFK", chance.randrange(100), chance.randrange(10**9)) for _ in range(count)))


@pytest.mark.slow
def test_the_target_size_says_how_large_files_become(place: Place) -> None:
    table = place.create(partition_by=[], properties={"delta.targetFileSize": "40kb"})
    for n in range(20):
        table.append(some_rows(2000, seed=n))
    before = rows_of(table.snapshot().to_arrow())
    [size] = {add.size // 1024 for add in table.access.latest().add_files()}
    assert table.compact(target_file_size=10 * 1024) is None, f"files of {size} KiB are no small ones then"
    check_moves(place, table.compact())
    sizes = [add.size for add in table.access.latest().add_files()]
    assert 5 <= len(sizes) <= 10
    assert max(sizes) < 60 * 1024
    check_moves(place, table.compact(target_file_size="10mb"))
    assert file_count(table) == 1
    assert rows_of(table.snapshot().to_arrow()) == before


@pytest.mark.costly
@pytest.mark.slow
def test_large_sources_are_streamed_and_files_may_have_many_row_groups(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "_SMALL_BYTES", 0)
    monkeypatch.setattr("sluice.storage.data.scan._BATCH_ROWS", 1000)
    table = place.create(partition_by=[])
    for n in range(3):
        table.append(some_rows(30_000, seed=n))
    before = rows_of(table.snapshot().to_arrow())
    commit = table.compact(target_file_size="1mb")
    moves = [moved_rows(remove) for remove in check_moves(place, commit)]
    assert [len(each) for each in moves if isinstance(each, tuple)] == [1, 1, 1], "told as ranges, not piece by piece"
    [added] = [a for a in actions_of(place, commit) if isinstance(a, AddFile)]
    assert pq.ParquetFile(Path(place.location, added.path)).num_row_groups > 1
    assert rows_of(table.snapshot().to_arrow()) == before


def test_columns_that_old_files_lack_are_null_in_the_new_ones(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    table.append(flights(("JFK", 1, 2)).append_column("carrier", pa.array(["UA"])), merge_schema=True)
    table.compact()
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1, None), ("JFK", 1, 2, "UA")]


def test_partition_values_survive_whatever_they_are(place: Place) -> None:
    table = place.create(partition_by=["origin"])
    rows = [("a b/c=d%", 1, 1), ("é𝄞", 2, 2), ("a b/c=d%", 3, 3), ("é𝄞", 4, 4)]
    for row in rows:
        table.append(flights(row))
    table.compact()
    assert file_count(table) == 2
    assert rows_of(table.snapshot().to_arrow()) == rows_of(flights(*rows))


# -- z-order of a table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passes", ["one pass", "several passes"])
def test_a_z_order_brings_near_rows_together(place: Place, monkeypatch: pytest.MonkeyPatch, passes: str) -> None:
    if passes == "several passes":
        monkeypatch.setattr(rewriting, "_DEALT_MAX", 3)
    table = place.create(partition_by=[])
    for n in range(4):
        table.append(some_rows(5000, seed=n))
    before = rows_of(table.snapshot().to_arrow())
    size = sum(add.size for add in table.access.latest().add_files())
    commit = table.compact(z_order_by=["month", "delay"], target_file_size=size // 16)
    assert rows_of(table.snapshot().to_arrow()) == before
    actions = actions_of(place, commit)
    removes = [a for a in actions if isinstance(a, RemoveFile)]
    assert [moved_rows(remove) for remove in removes] == [None] * 4
    assert file_count(table) == 16
    month = sluice.Table.snapshot(table).to_arrow(columns=["month"], where="month < 12")
    assert month.num_rows > 0
    touched = [
        path for path in (a.path for a in actions if isinstance(a, AddFile)) if _overlaps(place, path, month=(0, 11), delay=(0, 10**8))
    ]
    assert len(touched) <= 4, "a box of an eighth by a tenth lies in few of the sixteen files"
    entry = table.history(1)[0]
    assert entry.parameters["zOrderBy"] == '["month", "delay"]'
    assert entry.parameters["mode"] == "major"


def _overlaps(place: Place, path: str, **box: tuple[int, int]) -> bool:
    rows = physical(place, path)
    return all(min(r[c] for r in rows) <= high and max(r[c] for r in rows) >= low for c, (low, high) in box.items())


def test_a_z_order_stays_inside_partitions(place: Place) -> None:
    table = place.filled(("JFK", 3, 1), ("JFK", 1, 2), ("EWR", 2, 3), partition_by=["origin"])
    table.append(flights(("JFK", 2, 4), ("EWR", 1, None)))
    table.compact(z_order_by="Delay", where="origin = 'JFK'")
    orders = {add.partition_values["origin"]: delays(place, add.path) for add in table.access.latest().add_files()}
    assert orders["JFK"] == [1, 2, 4]
    assert file_count(table) == 3


# -- trouble -------------------------------------------------------------------------------------------------------------


def test_a_compaction_that_fails_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.create()
    for n in range(2):
        table.append(flights(("JFK", 1, n), ("EWR", 2, n), ("LGA", 3, n)))
    before = files_below(place.location)
    closed = 0
    real = OpenFile.close

    def failing(self: OpenFile) -> AddFile:
        nonlocal closed
        closed += 1
        if closed == 3:
            raise sluice.errors.StorageUnavailable("the store went away")
        return real(self)

    monkeypatch.setattr(OpenFile, "close", failing)
    with pytest.raises(sluice.errors.StorageUnavailable):
        table.compact()
    assert files_below(place.location) == before
    monkeypatch.undo()
    assert table.compact() is not None


def test_a_source_that_is_gone_is_named(place: Place) -> None:
    table = place.filled(("JFK", 1, 1))
    table.append(flights(("JFK", 1, 2)))
    gone = next(iter(table.access.latest().add_files())).path
    Path(place.location, gone).unlink()
    before = files_below(place.location)
    with pytest.raises(sluice.errors.MissingObject, match="part-"):
        table.compact()
    assert files_below(place.location) == before


def test_an_append_only_table_may_be_compacted(place: Place) -> None:
    table = place.filled(("JFK", 1, 1), properties={"delta.appendOnly": "true"})
    table.append(flights(("JFK", 1, 2)))
    assert table.compact() is not None
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1), ("JFK", 1, 2)]


def test_a_full_local_disk_is_told_with_a_remedy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1), ("JFK", 1, 2))
    before = files_below(place.location)

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pa.ipc, "new_stream", full)
    with pytest.raises(sluice.errors.StorageFull, match="TMPDIR"):
        table.compact(z_order_by="delay")
    assert files_below(place.location) == before
