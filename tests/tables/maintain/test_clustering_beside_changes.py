"""Clustering and z-orders beside UPDATE, DELETE and MERGE: both always commit, no row is lost and none comes back.

With processes of their own on a real ZooKeeper, also where one of the two is killed; and what goes along: the change data feed, row ids,
mapped columns, levels of isolation, and the objects that say where rows went.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.publication.failure_points import FAILPOINTS
from sluice.coordinator.service import connect
from sluice.tables.maintain import rewriting
from sluice.tables.maintain.rewriting import Rewriter
from tests.killed import until_ended, until_killed
from tests.tables.conftest import Place, rows_of
from tests.tables.maintain.clustering_program import SCHEMA, SORTS, change, cluster, cluster_once, delete_once, rows

VECTORS = {"delta.enableDeletionVectors": "true", "delta.targetFileSize": "2kb"}
IDS = list(range(240))
NOTHING_FILED = {"data-staged", "actions-staged", "before-claim"}


def create(location: str, coordinator: str, **properties: str) -> sluice.Table:
    table = sluice.Table.create(location, SCHEMA, cluster_by=["a", "b"], properties={**VECTORS, **properties}, coordinator=coordinator)
    for start in range(0, len(IDS), 60):
        table.append(rows(IDS[start : start + 60]))
    return table


def moves_in(location: str) -> set[str]:
    """The objects that say where rows went."""
    return {str(path.relative_to(location)) for path in Path(location).rglob("moves/*")}


def in_other_engines(location: str) -> list[list[tuple[Any, ...]]]:
    """The rows as delta-rs and Polars read them."""
    by_sql = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(location)).execute("SELECT id, a, b FROM t").read_all()
    return [rows_of(pa.table(by_sql)), sorted(pl.scan_delta(location).select("id", "a", "b").collect().rows())]


# -- processes -----------------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.zookeeper
def test_four_writers_beside_a_clusterer_in_a_loop(tmp_path: Path, zookeeper_address: str) -> None:
    location, over = str(tmp_path / "table"), tmp_path / "over"
    table = create(location, zookeeper_address)
    where = {"location": location, "coordinator": zookeeper_address}
    mine = [[number for number in IDS if number % 6 == share] for share in range(len(SORTS))]
    with ThreadPoolExecutor(len(SORTS) + 1) as pool:
        clusterer = pool.submit(until_ended, cluster, {**where, "until": str(over)})
        writers = [pool.submit(until_ended, change, {**where, "share": share, "ids": ids}) for share, ids in enumerate(mine)]
        ended = [writer.result() for writer in writers]
        over.touch()
        ended.append(clusterer.result())
    assert [(each.status, each.errors) for each in ended] == [(0, "")] * 5
    for each in ended:
        what, done, _, refused = each.output.split()
        assert refused == "0", each.errors
        assert int(done) > (2 if what == "runs" else len(mine[0]) // 3 - 1)
    expected = []
    for number, a, b in rows_of(rows(IDS)):
        sort = SORTS[number % 6] if number % 6 < len(SORTS) else ""
        changed = {"update": (number, a, b + 100_000), "merge": (number, 1_000_000, number), "": (number, a, b)}
        expected += [changed[sort]] if sort != "delete" else []
    assert rows_of(table.refresh().snapshot().to_arrow()) == expected
    assert in_other_engines(location) == [expected, expected]
    said = [" ".join(entry.rebased) for entry in table.history(None)]
    assert any("carried over" in each for each in said)
    assert any("left out" in each for each in said)


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.zookeeper
@pytest.mark.parametrize("failpoint", FAILPOINTS)
@pytest.mark.many
@pytest.mark.shows("clustering-killed")
def test_a_clusterer_killed_at_any_step_beside_deletions(tmp_path: Path, zookeeper_address: str, failpoint: str) -> None:
    """One deletion before it began, one meanwhile; a third that began before is committed after it died."""
    location = str(tmp_path / "table")
    table = create(location, zookeeper_address)
    late = sluice.Table.open(location, coordinator=zookeeper_address).begin()
    late.delete("id % 5 = 2")
    table.delete("id % 5 = 0")
    until_killed(cluster_once, {"location": location, "coordinator": zookeeper_address}, failpoint=failpoint)
    table.delete("id % 5 = 1")
    late.commit()
    left = [row for row in rows_of(rows(IDS)) if row[0] % 5 > 2]
    assert rows_of(table.refresh().snapshot().to_arrow()) == left
    table.compact("full")  # of what the dead one did not cluster, or where half is deleted by now
    assert rows_of(table.refresh().snapshot().to_arrow()) == left
    assert in_other_engines(location) == [left, left]


@pytest.mark.slow
@pytest.mark.zookeeper
@pytest.mark.parametrize("failpoint", FAILPOINTS)
@pytest.mark.many
@pytest.mark.shows("clustering-killed")
def test_a_deleter_killed_at_any_step_beside_a_clusterer(tmp_path: Path, zookeeper_address: str, failpoint: str) -> None:
    """It began before the clustering, and dies on its way to a place after it."""
    location, begun, then = str(tmp_path / "table"), tmp_path / "begun", tmp_path / "then"
    table = create(location, zookeeper_address)
    table.delete("id % 5 = 0")
    order = {"location": location, "coordinator": zookeeper_address, "begun": str(begun), "then": str(then)}
    with ThreadPoolExecutor(1) as pool:
        dying = pool.submit(until_killed, delete_once, order, failpoint=failpoint)
        while not begun.exists() and not dying.done():
            time.sleep(0.01)
        assert table.compact("full") is not None
        then.touch()
        dying.result()
    table.delete("id % 5 = 1")
    died_in_vain = failpoint in NOTHING_FILED
    left = [row for row in rows_of(rows(IDS)) if row[0] % 5 > 2 or (died_in_vain and row[0] % 5 == 2)]
    assert rows_of(table.refresh().snapshot().to_arrow()) == left
    assert in_other_engines(location) == [left, left]


# -- what goes along -----------------------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Let something happen once when a bin was rewritten."""
    monkeypatch.setattr(rewriting, "_PIECE_ROWS", 7)
    rewrite, waiting = Rewriter.rewrite, list[Callable[[], object]]()

    def overtaken(self: Rewriter, *arguments: Any) -> Any:
        made = rewrite(self, *arguments)
        while waiting:
            work = threading.Thread(target=waiting.pop())
            work.start()
            work.join()
        return made

    monkeypatch.setattr(Rewriter, "rewrite", overtaken)
    yield waiting.append
    assert not waiting


ALONG = {
    "change data": {"delta.enableChangeDataFeed": "true"},
    "row ids": {"delta.enableRowTracking": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "serializable": {"delta.isolationLevel": "Serializable"},
    "snapshot isolation": {"delta.isolationLevel": "SnapshotIsolation"},
    "databricks": {"sluice.conflictPolicy": "databricks"},
}


@pytest.mark.parametrize("along", ALONG)
def test_changes_before_and_after_a_clustering_go_along(
    place: Place, meanwhile: Callable[[Callable[[], object]], None], along: str
) -> None:
    table = create(place.location, place.coordinator, **ALONG[along])
    by_id = along == "row ids"
    before = table.snapshot()
    numbered = before.to_arrow(["id"], row_ids=True).to_pylist() if by_id else []
    late = place.open().begin()
    late.delete("id % 4 = 1")
    later = place.open().begin()
    later.update({"b": "-1"}, "id % 4 = 2")
    meanwhile(lambda: place.open().delete("id % 4 = 0"))
    assert table.compact() is not None
    late.commit()
    later.commit()
    after = [(n, a, -1 if n % 4 == 2 else b) for n, a, b in rows_of(rows(IDS)) if n % 4 > 1]
    assert rows_of(table.refresh().snapshot().to_arrow()) == after
    if along == "change data":
        told = table.changes(before.version)
        kinds = {
            kind: sorted({n % 4 for n, k in zip(told["id"].to_pylist(), told["_change_type"].to_pylist(), strict=True) if k == kind})
            for kind in set(told["_change_type"].to_pylist())
        }
        assert kinds == {"delete": [0, 1], "update_preimage": [2], "update_postimage": [2]}
        assert told.num_rows == 60 + 60 + 120
    if by_id:
        name = next(key for key in numbered[0] if key != "id" and "id" in key)
        known = {row["id"]: row[name] for row in numbered}
        assert {row["id"]: row[name] for row in table.snapshot().to_arrow(["id"], row_ids=True).to_pylist()} == {
            n: known[n] for n, _, _ in after
        }


def test_the_same_row_is_a_conflict_through_a_clustering(place: Place, meanwhile: Callable[[Callable[[], object]], None]) -> None:
    table = create(place.location, place.coordinator)
    late = place.open().begin()
    late.delete("id = 7 OR id = 8")
    meanwhile(lambda: place.open().update({"b": "0"}, "id = 8"))
    assert table.compact() is not None
    with pytest.raises(sluice.errors.ConcurrentModification):
        late.commit()
    assert table.refresh().snapshot().to_arrow(where="id = 7 OR id = 8").num_rows == 2


def test_what_was_read_is_followed_through_a_clustering(place: Place, meanwhile: Callable[[Callable[[], object]], None]) -> None:
    """A transaction that read rows is refused where somebody changes one of them in its new place, and only then."""
    table = create(place.location, place.coordinator)
    readers = [place.open().begin(), place.open().begin()]
    for reader, number in zip(readers, (11, 12), strict=True):
        assert reader.scan(where=f"id = {number}").num_rows == 1
        reader.append(rows([1000 + number]))
    assert table.compact() is not None
    table.update({"b": "0"}, "id = 11")
    with pytest.raises(sluice.errors.ConcurrentModification):
        readers[0].commit()
    readers[1].commit()
    assert table.refresh().snapshot().to_arrow(where="id > 999")["id"].to_pylist() == [1012]


# -- the objects that say where rows went --------------------------------------------------------------------------------


def test_a_refused_clustering_takes_away_what_it_stored(place: Place, meanwhile: Callable[[Callable[[], object]], None]) -> None:
    table = create(place.location, place.coordinator)
    meanwhile(lambda: place.open().set_properties({"x": "y"}))
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.compact()
    assert moves_in(place.location) == set()
    assert table.compact() is not None
    assert len(moves_in(place.location)) == 1


def test_without_deletion_vectors_nothing_is_stored(place: Place) -> None:
    table = create(place.location, place.coordinator, **{"delta.enableDeletionVectors": "false"})
    assert table.compact() is not None
    assert moves_in(place.location) == set()


@pytest.mark.notices("where-rows-went-is-kept")
@pytest.mark.zookeeper
def test_where_rows_went_is_kept_as_long_as_replaced_files(tmp_path: Path, zookeeper_address: str) -> None:
    """Also when who moved them is dead: a deletion that began before still follows them. A forced collection lets them go."""
    location, coordinator = str(tmp_path / "table"), f"{zookeeper_address}?session_timeout_s=4"
    table = create(location, coordinator)
    try:
        late, too_late = (sluice.Table.open(location, coordinator=coordinator).begin() for _ in range(2))
        late.delete("id < 10")
        too_late.delete("id > 200 AND id < 240")
        until_killed(cluster_once, {"location": location, "coordinator": coordinator}, failpoint="after-raise")
        [kept] = moves_in(location)
        table.append(rows(list(range(300, 310))))
        until_killed(cluster_once, {"location": location, "coordinator": coordinator}, failpoint="data-staged")
        deadline = time.monotonic() + 30
        while not table.vacuum().garbage:  # the files of the second one, whose session ends after the first one's
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert kept in moves_in(location)
        late.commit()
        assert rows_of(table.refresh().snapshot().to_arrow()) == [row for row in rows_of(rows(IDS)) if row[0] >= 10] + rows_of(
            rows(list(range(300, 310)))
        )
        deadline = time.monotonic() + 30
        while moves_in(location) and time.monotonic() < deadline:
            table.vacuum(retain_hours=0, force=True)
            time.sleep(0.2)
        assert moves_in(location) == set()
        with pytest.raises(sluice.errors.ConcurrentModification):
            too_late.commit()
    finally:
        connect.release(coordinator)
