"""OPTIMIZE of a clustered table: which files it takes, what it makes of them, and how many files a filter reads then."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.storage.actions import AddFile
from sluice.storage.actions.features import cluster_tags
from sluice.storage.actions.filetable import add_rows
from sluice.storage.actions.records import DeletionVector
from sluice.tables.maintain.background import is_due
from sluice.tables.maintain.bins import plan_clusters
from sluice.tables.maintain.rewriting import Rewriter
from tests.tables.conftest import Place, rows_of

BY = (("a",), ("s", "x"))
VECTORS = {"delta.enableDeletionVectors": "true"}
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("s", pa.struct([("x", pa.float64())]))])


def file(number: int, size: int, cluster: str | None = None, by: tuple[tuple[str, ...], ...] = BY, dead: int = 0) -> AddFile:
    vector = DeletionVector("i", "x", 1, dead) if dead else None
    tags = None if cluster is None else cluster_tags(cluster, by)
    provider = None if cluster is None else "sluice"
    return AddFile(f"f{number}", {}, size, 0, False, None, tags, vector, clustering_provider=provider)


def planned(*files: AddFile, full: bool = False, base: bool = False, files_max: int = 100, most: int = 1000) -> list[tuple[int, ...]]:
    bins = plan_clusters(add_rows(files), None, BY, full=full, base=base, files_max=files_max, cluster_bytes_max=most)
    return [each.indices for each in bins]


def test_files_without_a_cluster_take_those_clusters_along_that_are_not_larger() -> None:
    new, small, large = file(0, 10), file(1, 10, "small"), file(2, 26, "large")
    assert planned(new, small, large) == [(0, 1)]
    assert planned(new, file(1, 10), small, large) == [(0, 1, 2, 3)]
    assert planned(file(0, 7), small, large) == [(0,)]
    assert planned(small, large) == []
    assert planned() == []


def test_every_row_is_written_again_once_in_each_doubling() -> None:
    """As a binary counter: after 64 runs the first rows were written six times more, and there is one cluster."""
    clusters: list[int] = []
    written = 0
    for run in range(64):
        files = [file(0, 1), *(file(n, size, f"c{n}") for n, size in enumerate(clusters, 1))]
        (taken,) = planned(*files, most=10**6)
        merged = sum(files[index].size for index in taken)
        written += merged
        clusters = [size for n, size in enumerate(clusters, 1) if n not in taken] + [merged]
        assert len(clusters) <= (run + 1).bit_length()
    assert clusters == [64]
    assert written == 64 * 7 // 2 + 32


def test_files_of_other_columns_wait_for_a_full_run() -> None:
    other, mine, also_mine = file(0, 5, "x", (("b",),)), file(1, 5, "y"), file(2, 6, "z")
    assert planned(other, mine, also_mine) == []
    assert planned(other, mine, also_mine, full=True) == [(0, 1, 2)]
    assert planned(mine, also_mine, full=True) == [(0, 1)]
    assert planned(mine, file(1, 5, "y"), full=True) == []
    assert planned(file(0, 3), other, mine) == [(0,)]


def test_a_major_run_takes_files_with_deleted_rows() -> None:
    assert planned(file(0, 5, "x", dead=1), file(1, 5, "x"), file(2, 13, "y")) == []
    assert planned(file(0, 5, "x", dead=1), file(1, 5, "x"), file(2, 13, "y"), base=True) == [(0, 1)]


def test_a_file_with_many_deleted_rows_is_taken_by_any_run() -> None:
    many, few = (replace(file(0, 5, "x", dead=dead), stats='{"numRecords":10}') for dead in (5, 4))
    assert planned(many, file(1, 5, "x"), file(2, 13, "y")) == [(0, 1)]
    assert planned(few, file(1, 5, "x"), file(2, 13, "y")) == []
    assert planned(file(0, 5, "x", dead=5)) == [], "nobody knows how many rows it has"


@pytest.mark.notices("clusters-of-one-size-are-merged")
def test_a_cluster_that_became_a_little_larger_is_taken_along() -> None:
    assert planned(file(0, 100), file(1, 104, "x")) == [(0, 1)]
    assert planned(file(0, 100), file(1, 126, "x")) == [(0,)]


@pytest.mark.notices("other-curves-are-other-clusters")
def test_clusters_along_another_curve_wait_for_a_full_run() -> None:
    mine = file(0, 5, "x")
    other = replace(mine, tags={**(mine.tags or {}), "ZCUBE_ZORDER_CURVE": "zorder"})
    assert planned(other) == []
    assert planned(file(1, 9), other) == [(0,)]
    assert planned(file(1, 9), mine) == [(0, 1)]
    assert planned(other, mine, full=True) == [(0, 1)]


def test_large_clusters_are_complete_and_runs_are_divided() -> None:
    assert planned(file(0, 2000), file(1, 1500, "x"), most=1000) == [(0,)]
    assert planned(file(0, 1500, "x"), file(1, 1500, "y"), full=True, most=1000) == []
    assert planned(*(file(n, 400) for n in range(4)), most=1000) == [(0, 1), (2, 3)]
    assert planned(*(file(n, 1) for n in range(5)), files_max=2) == [(0, 1), (2, 3), (4,)]


def some(seed: int, count: int = 4000) -> pa.Table:
    draw = random.Random(seed)
    rows = [{"a": draw.randrange(10**6), "b": f"k{draw.randrange(10**5):05}", "s": {"x": draw.random()}} for _ in range(count)]
    return pa.Table.from_pylist(rows, SCHEMA)


def read_for(table: sluice.Table, where: str) -> int:
    return table.refresh().snapshot().files(where).num_rows


def clusters_of(table: sluice.Table) -> set[str | None]:
    rows = table.refresh().snapshot().raw.files.to_pylist()
    return {dict(row["tags"])["ZCUBE_ID"] if row["clustering_provider"] == "sluice" else None for row in rows}


@pytest.fixture
def table(place: Place) -> sluice.Table:
    made = sluice.Table.create(
        place.location,
        SCHEMA,
        cluster_by=["a", "S.x"],
        properties={"delta.targetFileSize": "12kb", **VECTORS},
        coordinator=place.coordinator,
    )
    for seed in range(4):
        made.append(some(seed))
    return made


def test_a_filter_reads_fewer_files(table: sluice.Table) -> None:
    narrow, both = "a BETWEEN 100000 AND 150000", "a < 250000 AND s.x < 0.25"
    before, rows = table.snapshot().num_files, rows_of(table.snapshot().to_arrow().select(["a", "b"]))
    assert (read_for(table, narrow), read_for(table, both)) == (before, before)
    assert table.compact() is not None
    after = table.refresh().snapshot().num_files
    assert read_for(table, narrow) <= after / 2
    assert read_for(table, both) <= after / 4
    assert rows_of(table.snapshot().to_arrow().select(["a", "b"])) == rows
    assert len(clusters_of(table)) == 1
    assert None not in clusters_of(table)
    assert table.compact() is None
    assert table.compact("full") is None
    (entry,) = table.history(1)
    assert (entry.operation, entry.parameters["clusterBy"], entry.parameters["zOrderBy"]) == ("OPTIMIZE", '["a", "s.x"]', "[]")


def test_new_files_are_clustered_without_the_old_ones(table: sluice.Table) -> None:
    table.compact()
    (first,) = clusters_of(table)
    table.append(some(9, 500))
    assert None in clusters_of(table)
    table.compact()
    assert len(clusters_of(table)) == 2
    assert first in clusters_of(table)
    assert table.compact() is None
    table.compact("full")
    assert len(clusters_of(table)) == 1
    assert table.snapshot().to_arrow().num_rows == 16_500


def test_changed_columns_count_for_what_comes_then(table: sluice.Table) -> None:
    table.compact()
    table.cluster_by("b")
    assert table.compact() is None
    table.compact("full")
    assert read_for(table, "b = 'k50000'") <= 2
    table.cluster_by([])
    with pytest.raises(sluice.errors.InvalidRequest, match="the table is not clustered"):
        table.compact("full")


def test_deleted_rows_and_z_order(table: sluice.Table) -> None:
    table.compact()
    table.delete("a < 20000")
    assert table.compact() is None
    table.compact("major")
    assert table.refresh().snapshot().raw.files["deletion_vector"].null_count == table.snapshot().num_files
    with pytest.raises(sluice.errors.InvalidRequest, match=r"clustered by a, s\.x, and a file has one order"):
        table.compact(z_order_by=["b"])
    with pytest.raises(sluice.errors.InvalidRequest, match="the table has no partitions"):
        table.compact(where="a = 1")


def test_clusters_are_not_due_for_compaction(place: Place) -> None:
    table = place.create(partition_by=(), cluster_by="delay")
    rows = pa.Table.from_pylist([{"origin": "JFK", "month": 1, "delay": 1}], table.schema)
    with table.begin() as transaction:
        for _ in range(50):
            transaction.append(rows)
    assert is_due(table.refresh().snapshot().raw)
    table.compact(target_file_size=1)
    assert not is_due(table.refresh().snapshot().raw)


def while_rewriting(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Let something happen when a bin was rewritten."""
    rewrite = Rewriter.rewrite

    def overtaken(self: Rewriter, *arguments: object) -> object:
        made = rewrite(self, *arguments)  # type: ignore[arg-type]
        do()
        return made

    monkeypatch.setattr(Rewriter, "rewrite", overtaken)


def test_a_concurrent_delete_is_not_lost(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = table.snapshot().to_arrow().num_rows
    gone = table.snapshot().to_arrow(where="a < 1000").num_rows
    while_rewriting(monkeypatch, lambda: table.delete("a < 1000"))
    assert table.compact() is not None
    after = table.refresh().snapshot()
    assert after.to_arrow(where="a < 1000").num_rows == 0
    assert after.to_arrow().num_rows == everything - gone
    assert len(clusters_of(table)) == 1
    [entry] = table.history(1)
    assert "left out" in entry.rebased[0]


def test_columns_may_change_beside_a_run(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    while_rewriting(monkeypatch, lambda: table.cluster_by(["b"]))
    assert table.compact() is not None
    monkeypatch.undo()
    assert table.refresh().clustering_columns == ("b",)
    assert table.compact() is None
    assert table.compact("full") is not None


def test_other_engines_read_it(place: Place) -> None:
    table = place.create(partition_by=(), cluster_by=["month", "delay"])
    table.append(pa.Table.from_pylist([{"origin": "JFK", "month": m, "delay": m * 3 % 5} for m in range(9)], table.schema))
    table.compact()
    other = deltalake.DeltaTable(place.location)
    assert rows_of(other.to_pyarrow_table()) == rows_of(table.refresh().snapshot().to_arrow())
    first = [json.loads(line) for line in Path(place.location, "_delta_log", f"{0:020}.json").read_text().splitlines()]
    (domain,) = [each["domainMetadata"] for each in first if "domainMetadata" in each]
    assert (domain["domain"], json.loads(domain["configuration"])["clusteringColumns"]) == ("delta.clustering", [["month"], ["delay"]])
    with pytest.raises(Exception, match=r"(?i)feature"):
        deltalake.write_deltalake(other, pa.table({"origin": ["A"], "month": pa.array([1], pa.int32()), "delay": [1]}), mode="append")
