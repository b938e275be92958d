"""DELETE, UPDATE and MERGE by Spark's tasks: what becomes of the rows, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.spark_integration.rows import merge as merging
from sluice.spark_integration.rows import source as sources
from sluice.spark_integration.rows.analysis import AnalysedMerge, Clause, MergeRequest
from sluice.spark_integration.rows.merge import merge_rows
from sluice.spark_integration.rows.source import CachedSource
from sluice.spark_integration.rows.writer import HelperColumns, Streams, TaskResult
from sluice.spark_integration.scan import file_rows
from sluice.storage.actions import AddFile
from sluice.tables.write.merging import RowCounts

from ..conftest import Place

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("s", pa.struct([("a", pa.int32()), ("b", pa.string())]))])
KINDS = [("disk", "true", "false"), ("disk", "true", "true"), ("disk", "false", "true"), ("s3", "true", "true"), ("s3", "false", "false")]
"""Where, with deletion vectors, with change data files; on S3 Python tasks read the table."""


def of_every_kind(always: tuple[str, str, str]) -> pytest.MarkDecorator:
    """Each kind of table; the others than this one are for the long run."""
    params = [pytest.param(*kind, marks=[pytest.mark.s3] * ("s3" in kind) + [pytest.mark.long] * (kind != always)) for kind in KINDS]
    return pytest.mark.parametrize(("place", "vectors", "changes"), params, indirect=["place"])


UPSERT = [Clause("matched", "update_all"), Clause("not_matched", "insert_all")]


def made(place: Place, vectors: str = "true", changes: str = "false", *, by: Sequence[str] = ("p",)) -> sluice.Table:
    """A hundred rows in two appends, and one with nulls."""
    properties = {"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": changes}
    table = place.create(SCHEMA, partition_by=by, properties=properties)
    for start in (0, 50):
        ids = range(start, start + 50)
        rows = [{"id": i, "p": f"p {i % 3}", "s": {"a": i, "b": str(i)}} for i in ids]
        table.append(pa.Table.from_pylist(rows, SCHEMA))
    table.append(pa.table({"id": [None], "p": [None], "s": [None]}, SCHEMA))
    return table


def rows_of(table: sluice.Table) -> dict[Any, tuple[Any, Any]]:
    found = table.refresh().snapshot().to_arrow().to_pylist()
    rows = {row["id"]: (row["p"], row["s"] and (row["s"]["a"], row["s"]["b"])) for row in found}
    assert len(rows) == len(found)
    return rows


def told(table: sluice.Table) -> list[tuple[Any, ...]]:
    """The changes of the last version."""
    version = table.refresh().version
    return sorted(((row["_change_type"], row["id"], row["p"]) for row in table.changes(version - 1, version).to_pylist()), key=repr)


def changed(spark: SparkSession, table: sluice.Table, request: MergeRequest) -> RowCounts:
    with table.begin() as tx:
        return merge_rows(tx, spark, request)


def merge_of(frame: DataFrame, *clauses: Clause, on: str = "t.id = s.id") -> MergeRequest:
    return MergeRequest(frame, on, clauses, "t", "s")


@of_every_kind(("disk", "true", "false"))
def test_rows_are_deleted(spark: SparkSession, place: Place, vectors: str, changes: str) -> None:
    table = made(place, vectors, changes)
    before = rows_of(table)
    assert changed(spark, table, MergeRequest.delete("t.ID % 10 = 3 AND t.p <> 'p 1'", alias="t")) == RowCounts(deleted=7)
    gone = {i for i in range(100) if i % 10 == 3 and i % 3 != 1}
    assert rows_of(table) == {key: row for key, row in before.items() if key not in gone}
    if changes == "true":
        assert told(table) == sorted((("delete", i, f"p {i % 3}") for i in gone), key=repr)
    with table.begin() as tx:
        assert merge_rows(tx, spark, MergeRequest.delete("p = 'p 2'")).deleted == 33 - len([i for i in gone if i % 3 == 2])
        assert merge_rows(tx, spark, MergeRequest.delete("id = 1")).deleted == 1
        assert merge_rows(tx, spark, MergeRequest.delete(F.col("id") == 1)).deleted == 0
    assert rows_of(table).keys() == before.keys() - gone - {1} - set(range(2, 100, 3))
    changed(spark, table, MergeRequest.delete())
    assert rows_of(table) == {}
    version = table.version
    changed(spark, table, MergeRequest.delete("id > 5"))
    assert table.refresh().version == version


@of_every_kind(("disk", "false", "true"))
def test_rows_are_updated_and_move_between_partitions(spark: SparkSession, place: Place, vectors: str, changes: str) -> None:
    table = made(place, vectors, changes)
    before = rows_of(table)
    values: dict[str, Any] = {"t.s.A": "t.s.a + 1000", "P": F.concat("p", F.lit("x"))}
    assert changed(spark, table, MergeRequest.update(values, F.col("id") < 4, alias="t")).updated == 4
    expected = before | {i: (f"p {i % 3}x", (i + 1000, str(i))) for i in range(4)}
    assert rows_of(table) == expected
    if changes == "true":
        images = [("update_preimage", i, f"p {i % 3}") for i in range(4)] + [("update_postimage", i, f"p {i % 3}x") for i in range(4)]
        assert told(table) == sorted(images, key=repr)
    with table.begin() as tx:
        merge_rows(tx, spark, MergeRequest.update({"s.b": "'z'"}, "id < 2"))
        assert merge_rows(tx, spark, MergeRequest.delete("s.b = 'z' AND id = 0")).deleted == 1
        assert merge_rows(tx, spark, MergeRequest.update({"p": "'moved'"}, "s.b = 'z'")).updated == 1
    del expected[0]
    assert rows_of(table) == expected | {1: ("moved", (1001, "z"))}
    if changes == "true":
        kinds = [kind for kind, *_ in told(table)]
        assert sorted(set(kinds)) == ["delete", "insert"] or kinds.count("update_preimage") == kinds.count("update_postimage")


def new_rows(spark: SparkSession, ids: Sequence[int | None]) -> DataFrame:
    frame = spark.createDataFrame([(i,) for i in ids], "id long")
    return frame.selectExpr("id", "'new' AS p", "named_struct('b', 'n', 'a', 7) AS s")


SIZES = {("disk", "true", "false"): True, ("disk", "false", "true"): False}
"""The kinds that are merged into in the standard suite, and whether their source is small."""
OF_EVERY_SIZE = [
    pytest.param(*kind, small, marks=[pytest.mark.s3] * ("s3" in kind) + [pytest.mark.long] * (SIZES.get(kind) is not small))
    for kind in KINDS
    for small in (True, False)
]


@pytest.mark.parametrize(("place", "vectors", "changes", "small"), OF_EVERY_SIZE, indirect=["place"])
def test_rows_are_merged(
    spark: SparkSession, place: Place, vectors: str, changes: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_size(monkeypatch, small=small)
    table = made(place, vectors, changes)
    expected = rows_of(table)
    assert changed(spark, table, merge_of(new_rows(spark, range(95, 105)), *UPSERT)) == RowCounts(updated=5, inserted=5)
    expected |= dict.fromkeys(range(95, 105), ("new", (7, "n")))
    assert rows_of(table) == expected
    if changes == "true":
        assert [kind for kind, *_ in told(table)] == ["insert"] * 5 + ["update_postimage"] * 5 + ["update_preimage"] * 5
    clauses = [
        Clause("matched", "delete", "s.id % 2 = 0"),
        Clause("matched", "update", None, {"p": "concat(t.p, s.p)", "t.s.b": F.lit("m")}),
        Clause("not_matched", "insert", "s.id > 200", {"id": "s.id", "s.a": "s.s.a"}),
        Clause("not_matched_by_source", "update", "t.id < 2", {"p": "'alone'"}),
        Clause("not_matched_by_source", "delete", "t.id < 4"),
    ]
    request = MergeRequest(new_rows(spark, [98, 99, 200, 201]).alias("s"), "s.id = t.id", clauses, target_alias="t")
    assert changed(spark, table, request) == RowCounts(updated=3, deleted=3, inserted=1)
    for gone in (98, 2, 3):
        del expected[gone]
    expected |= {99: ("newnew", (7, "m")), 201: (None, (7, None)), 0: ("alone", (0, "0")), 1: ("alone", (1, "1"))}
    assert rows_of(table) == expected


def set_size(monkeypatch: pytest.MonkeyPatch, *, small: bool) -> None:
    """A source that is not small is neither part of the plan nor sent to every task."""
    if not small:
        monkeypatch.setattr(sources, "_LOCAL_BYTES_MAX", -1)
        monkeypatch.setattr(sources, "_SENT_ROWS_MAX", 0)


@pytest.mark.costly
def test_nulls_match_nothing_and_a_source_brings_new_columns(spark: SparkSession, place: Place) -> None:
    table = made(place)
    assert changed(spark, table, merge_of(new_rows(spark, [None]), *UPSERT)) == RowCounts(inserted=1)
    assert table.refresh().snapshot().to_arrow(where="id IS NULL").num_rows == 2
    frame = new_rows(spark, [1, 200]).withColumn("more", F.col("id") * 2)
    changed(spark, table, MergeRequest(frame, F.col("t.id") == frame["id"], UPSERT, target_alias="t", schema_evolution=True))
    found = {row["id"]: row["more"] for row in table.refresh().snapshot().to_arrow(where="id IN (1, 2, 200)").to_pylist()}
    assert found == {1: 2, 2: None, 200: 400}


def refused(spark: SparkSession, table: sluice.Table, frame: DataFrame, on: str, clause: Clause) -> str:
    tx = table.begin()
    with pytest.raises((sluice.errors.InvalidRequest, AnalysisException)) as told:
        merge_rows(tx, spark, merge_of(frame, clause, on=on))
    assert tx.commit() is None
    return str(told.value)


@pytest.mark.costly
def test_what_cannot_be_or_changes_nothing_makes_no_version(spark: SparkSession, place: Place) -> None:
    table = made(place)
    nothing = merge_of(new_rows(spark, [3, None]), UPSERT[0], on="t.id = s.id AND t.p = 'p 1'")
    assert changed(spark, table, nothing).affected == 0
    frame = new_rows(spark, [1])
    equal = "t.id = s.id"
    assert "t`.`idd` cannot be resolved" in refused(spark, table, frame, "t.idd = s.id", UPSERT[0])
    assert "ambiguous" in refused(spark, table, frame, "id = s.id", UPSERT[0])
    assert "not a boolean" in refused(spark, table, frame, "t.id + s.id", UPSERT[0])
    assert "not deterministic" in refused(spark, table, frame, equal, Clause("matched", "delete", "rand() > 0.5"))
    assert "of one row" in refused(spark, table, frame, equal, Clause("matched", "update", None, {"id": "sum(s.id)"}))
    assert "cannot be cast to" in refused(spark, table, frame, equal, Clause("matched", "update", None, {"id": "array(s.p)"}))
    misspelt = refused(spark, table, frame, equal, Clause("matched", "update", None, {"idd": "1"}))
    assert "'idd' is not in the table, do you mean id? there are" in misspelt
    assert "cannot be resolved" in refused(spark, table, frame, equal, Clause("not_matched", "insert", "t.id > 1", {"id": "s.id"}))
    with pytest.raises(sluice.errors.InvalidRequest, match="no condition"):
        changed(spark, table, merge_of(frame, UPSERT[0], UPSERT[0]))
    frame = new_rows(spark, [7, 7, 8])
    assert "id = 7" in refused(spark, table, frame, equal, UPSERT[0]), "a row that is changed twice"
    assert table.refresh().version == 3
    assert changed(spark, table, merge_of(frame, Clause("matched", "delete", "s.id = 8"))).deleted == 1
    assert changed(spark, table, merge_of(frame, Clause("matched", "delete"))).deleted == 1


@pytest.mark.costly
@pytest.mark.parametrize("place", ["disk", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.long])], indirect=True)
def test_python_tasks_read_what_is_needed(spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if not place.storage_options:
        monkeypatch.setattr(file_rows, "why_not_native", lambda *_: "as on S3")
    table = made(place)
    assert "id = 7 (2 times)" in refused(spark, table, new_rows(spark, [7, 7, 8]), "t.id = s.id", UPSERT[0])
    assert changed(spark, table, MergeRequest.delete("id > 0 AND 100 % id = 1")).deleted == 5  # Spark does not divide by the 0 either
    assert changed(spark, table, MergeRequest.update({"id": "-id", "p": "p", "s.b": "'u'"}, "s.a = 2")).updated == 1
    assert rows_of(table)[-2] == ("p 2", (2, "u"))


def test_a_shallow_clone_is_changed(spark: SparkSession, place: Place) -> None:
    """Spark's own scan does not read files outside of the table's folder."""
    table = made(place)
    clone = table.clone(f"{place.location}-clone")
    with clone.begin() as tx:
        merged(spark, tx, [1, 2000])
    assert rows_of(clone) == rows_of(table) | dict.fromkeys([1, 2000], ("new", (7, "n")))


def merged(spark: SparkSession, tx: sluice.Transaction, ids: Sequence[int]) -> None:
    merge_rows(tx, spark, merge_of(new_rows(spark, ids), *UPSERT))


@pytest.mark.costly
def test_merges_of_different_rows_of_one_file_both_stand(spark: SparkSession, place: Place) -> None:
    table = made(place, by=())
    first, second, third = (table.begin(isolation="Serializable") for _ in range(3))
    merged(spark, first, [1])
    merged(spark, second, [2])
    merged(spark, third, [1])
    first.commit()
    table.append(pa.Table.from_pylist([{"id": 5000}], SCHEMA))  # the condition of the second one excludes it
    second.commit()
    with pytest.raises(sluice.errors.ConcurrentModification):
        third.commit()
    found = rows_of(table)
    assert found[1] == found[2] == ("new", (7, "n"))
    fourth = table.begin(isolation="Serializable")
    merged(spark, fourth, [6000])
    table.append(pa.Table.from_pylist([{"id": 6000}], SCHEMA))
    with pytest.raises(sluice.errors.ConcurrentModification):
        fourth.commit()


@pytest.mark.costly
@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_merge_depends_on_the_rows_that_kept_others_from_being_inserted(
    spark: SparkSession, place: Place, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_size(monkeypatch, small=small)
    table = made(place, by=())
    first, second = table.begin(), table.begin()
    insert = [Clause("matched", "update_all", "t.p = 'p 0'"), Clause("not_matched", "insert_all")]
    for tx, ids in ((first, [1, 6000]), (second, [3, 7000])):
        assert merge_rows(tx, spark, merge_of(new_rows(spark, ids), *insert)).inserted == 1
    table.delete("id IN (1, 4)")
    second.commit()
    with pytest.raises(sluice.errors.ConcurrentDeleteReadException, match="1 row"):
        first.commit()  # without row 1, it would have inserted it
    found = rows_of(table)
    assert found[3] == found[7000] == ("new", (7, "n"))
    assert not {1, 6000} & found.keys()


@pytest.mark.costly
def test_rows_beyond_all_keys_are_inserted_while_the_table_is_read(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_LOCAL_BYTES_MAX", -1)
    inserted_later: list[str] = []
    inserted = merging._inserted

    def noted(merge: AnalysedMerge, source: CachedSource, rows: DataFrame, helpers: HelperColumns, step: str = "") -> TaskResult:
        inserted_later.append(step)
        return inserted(merge, source, rows, helpers, step)

    monkeypatch.setattr(merging, "_inserted", noted)
    properties = dict.fromkeys(["delta.enableDeletionVectors", "delta.enableChangeDataFeed", "delta.enableRowTracking"], "true")
    table = place.create(SCHEMA, partition_by=["p"], properties=properties)
    table.append(pa.Table.from_pylist([{"id": i, "p": f"p {i % 3}", "s": {"a": i, "b": str(i)}} for i in range(0, 100, 2)], SCHEMA))
    expected, new = rows_of(table), ("new", (7, "n"))

    def merge(ids: Sequence[int | None], *clauses: Clause) -> RowCounts:
        return changed(spark, table, merge_of(new_rows(spark, ids), *clauses))

    kept: Any = spark.sparkContext._jsc
    before = kept.getPersistentRDDs().size()
    assert merge([4, 98, -7, 6000], *UPSERT) == RowCounts(updated=2, inserted=2)
    assert not inserted_later
    expected |= dict.fromkeys([4, 98, -7, 6000], new)
    assert rows_of(table) == expected
    assert [row for row in told(table) if row[0] == "insert"] == [("insert", -7, "new"), ("insert", 6000, "new")]
    files = {*Path(place.location).rglob("*.parquet")}
    with pytest.raises(sluice.errors.InvalidRequest, match="several rows of the source"):
        merge([4, 4, 9000], *UPSERT)
    assert {*Path(place.location).rglob("*.parquet")} == files  # row 9000 was written already
    assert kept.getPersistentRDDs().size() == before
    few = Clause("not_matched", "insert_all", "s.id < 9000")
    assert merge([6, 7, -8, 9000, None], Clause("matched", "delete"), few) == RowCounts(deleted=1, inserted=2)
    assert inserted_later == ["i"]  # whether 7 matches is known only after the join
    del expected[6]
    assert rows_of(table) == expected | dict.fromkeys([7, -8], new)


@pytest.mark.long
def test_drivers_merge_side_by_side(spark: SparkSession, place: Place) -> None:
    """Each in a thread that repeats it until it is committed: no row is lost."""
    table = made(place, by=())

    def drive(number: int) -> None:
        for step in range(2):
            ids = [number * 10 + step, 1000 + number * 10 + step]
            place.table().transact(partial(merged, spark, ids=ids), attempts=8)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(drive, number) for number in range(2)]:
            done.result()
    found = rows_of(table)
    written = {base + number * 10 + step for number in range(2) for step in range(2) for base in (0, 1000)}
    assert {key for key, row in found.items() if row[0] == "new"} == written
    assert len(found) == 101 + 4


@pytest.mark.costly
@pytest.mark.parametrize(("vectors", "changes"), [("true", "false"), pytest.param("false", "true", marks=pytest.mark.long)])
def test_other_engines_read_the_result(spark: SparkSession, place: Place, vectors: str, changes: str) -> None:
    # polars 2.1 overlooks the deletion vectors of files whose paths are escaped, as a partition's with a space are
    table = made(place, vectors, changes, by=() if vectors == "true" else ("p",))
    with table.begin() as tx:
        merged(spark, tx, [1, 2000])
        merge_rows(tx, spark, MergeRequest.update({"p": "'moved'"}, "id = 3"))
        merge_rows(tx, spark, MergeRequest.delete("id = 4"))
    partitions = {key: row[0] for key, row in rows_of(table).items()}
    assert {row["id"]: row["p"] for row in pl.read_delta(place.location).to_dicts()} == partitions
    if vectors == "false":  # deltalake reads no deletion vectors
        found = deltalake.DeltaTable(place.location).to_pyarrow_table().to_pylist()
        assert {row["id"]: row["p"] for row in found} == partitions


@pytest.mark.costly
@pytest.mark.parametrize("local", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_merge_reads_nothing_between_its_keys(spark: SparkSession, place: Place, local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_VALUES_MAX", "_REMEMBERED_MAX", *([] if local else ["_LOCAL_BYTES_MAX"])):
        monkeypatch.setattr(sources, name, -1)  # as for many keys
    table = place.create(pa.schema([("id", pa.int64())]))
    for start in (0, 500, 1000):
        table.append(pa.table({"id": range(start, start + 10)}))
    first, second = (table.begin(isolation="Serializable") for _ in range(2))
    for transaction, old in ((first, 0), (second, 1)):
        source = spark.range(old, 9, 2, 2).union(spark.range(1001 + old, 1020, 2, 2))
        merge_rows(transaction, spark, merge_of(source, UPSERT[1]))
    table.append(pa.table({"id": pa.array([700], pa.int64())}))
    first.commit()
    table.append(pa.table({"id": pa.array([1012], pa.int64())}))
    with pytest.raises(sluice.errors.ConcurrentAppendException):
        second.commit()
    assert table.refresh().snapshot().to_arrow().num_rows == 30 + 5 + 2


# -- a source that reads the table itself: at which versions it may ----------------------------------------------------


NUMBERS = pa.schema([("id", pa.int64()), ("n", pa.int64())])
COLUMNS = "id long, n long"
"""With a schema the data source reads, also in routed sessions."""
COUNTING = [Clause("matched", "update", None, {"n": "s.n + 1"}), Clause("not_matched", "insert_all")]


def numbered(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "n": [0] * len(ids)}, NUMBERS)


def of_a_subquery(place: Place) -> DataFrame:
    place.scan().createOrReplaceTempView("source_versions")
    return place.spark.sql("SELECT 7L AS id, (SELECT max(n) FROM source_versions) AS n")


LATER: list[Callable[[Place], DataFrame]] = [
    lambda place: place.scan(),
    of_a_subquery,
    lambda place: place.load(COLUMNS, versionAsOf=2),
    lambda place: place.load(COLUMNS),
]


@pytest.mark.costly
def test_a_source_may_read_the_version_of_the_transaction_and_earlier_ones(place: Place) -> None:
    table = place.create(NUMBERS)
    table.append(numbered(1, 2))
    with table.begin() as tx:
        place.table().append(numbered(3))
        for source in LATER:
            with pytest.raises(sluice.errors.InvalidRequest, match=r"read from version 2 of .*works on version 1.*versionAsOf"):
                merge_rows(tx, place.spark, merge_of(source(place), *COUNTING))
    assert sorted(row["id"] for row in place.rows()) == [1, 2, 3]
    for frame, updated in (
        (place.scan(), 3),
        (place.scan(version=1), 2),
        (place.load(COLUMNS), 3),
        (place.load(COLUMNS, versionAsOf=1), 2),
    ):
        with table.refresh().begin() as tx:
            assert merge_rows(tx, place.spark, merge_of(frame.limit(10), *COUNTING)) == RowCounts(updated=updated)
            tx.abort()


def test_a_stream_of_rows_that_failed_takes_no_more() -> None:
    failing = Event()

    def write(name: str, rows: Iterator[pa.RecordBatch]) -> Sequence[AddFile]:
        next(rows)
        failing.set()
        raise ValueError(f"no row can be written to {name}")

    def put_many() -> None:
        with Streams(write) as streams:
            for number in range(100):
                streams.put("a file", pa.record_batch({"number": [number]}))
                failing.wait()
                time.sleep(0.05)
                taken.append(number)

    taken: list[int] = []
    with pytest.raises(ValueError, match="no row can be written to a file"):
        put_many()
    assert len(taken) < 100
