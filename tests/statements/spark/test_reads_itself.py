"""Rows computed from the table that they are written to: no write of them is blind, whichever way they were read and are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.delta import DeltaTable
from sluice.spark_integration.rows.conditions import written_with_reads

from .conftest import Warehouse

pytestmark = pytest.mark.spark

SCHEMA: Final = pa.schema([("id", pa.int64()), ("day", pa.int32())])
NAME: Final = "sales.orders"
WRITING: Final = "sluice.statements.spark.engine.written_with_reads"
LEVELS: Final = ("Serializable", "WriteSerializable", "SnapshotIsolation")


def orders(warehouse: Warehouse, level: str = "Serializable", *, vectors: bool = True) -> sluice.Table:
    """Ten rows of each of the days 0, 1 and 2, in one file each; of day 1 row 19 is deleted."""
    table = warehouse.catalog.create(
        NAME,
        SCHEMA,
        partition_by=["day"],
        properties={"delta.isolationLevel": level, "delta.enableDeletionVectors": str(vectors).lower()},
    )
    table.append(pa.table({"id": range(30), "day": [each // 10 for each in range(30)]}, SCHEMA))
    table.delete("id = 19")
    return table.refresh()


Frames = Callable[[Warehouse, sluice.Table], DataFrame]


def loaded(warehouse: Warehouse, table: sluice.Table, **options: Any) -> DataFrame:
    return warehouse.spark.read.format("sluice").options(coordinator=warehouse.coordinator, **options).load(table.location)


def with_schema(warehouse: Warehouse, table: sluice.Table) -> DataFrame:
    return (
        warehouse.spark.read.format("sluice").schema("id long, day int").option("coordinator", warehouse.coordinator).load(table.location)
    )


def by_view(warehouse: Warehouse, table: sluice.Table) -> DataFrame:
    loaded(warehouse, table).createOrReplaceTempView("orders_view")
    return warehouse.spark.sql("SELECT * FROM orders_view WHERE day = 1")


def cached(warehouse: Warehouse, table: sluice.Table) -> DataFrame:
    frame = loaded(warehouse, table).where("day = 1").cache()
    frame.count()
    return frame.select("id", "day")


def joined(warehouse: Warehouse, table: sluice.Table) -> DataFrame:
    frame = loaded(warehouse, table)
    return frame.alias("o").join(frame.alias("p"), F.expr("o.id = p.id + 1")).where("o.day = 1 AND p.day = 1").select("o.id", "o.day")


def of_nothing(warehouse: Warehouse, table: sluice.Table) -> DataFrame:
    """No row of day 1 is read, since none has such an id; a row that comes now was not seen."""
    return (
        warehouse.spark.range(3)
        .selectExpr("id", "CAST(1 AS INT) AS day")
        .join(loaded(warehouse, table, where="day = 7"), "id", "left_anti")
    )


READS: Final[dict[str, Frames]] = {
    "load": lambda w, t: loaded(w, t).where("day = 1"),
    "load with a schema": with_schema,
    "option where": lambda w, t: loaded(w, t, where="day = 1"),
    "sluice.read": lambda w, t: sluice.read(w.spark, t.location, coordinator=w.coordinator, columns=["day", "id"]).where(F.col("day") == 1),
    "table": lambda w, _: w.spark.read.format("sluice").option("coordinator", w.coordinator).table(NAME).where("day = 1"),
    "sql": lambda w, _: w.sql(f"SELECT id + 100 AS id, day FROM {NAME} WHERE day = 1"),
    "CTE": lambda w, _: w.sql(f"WITH c AS (SELECT * FROM {NAME} WHERE day = 1) SELECT c.* FROM c JOIN c AS d USING (id)"),
    "IN": lambda w, _: w.sql(f"SELECT id, 1 AS day FROM range(40) WHERE id IN (SELECT id FROM {NAME} WHERE day = 1)"),
    "scalar subquery": lambda w, _: w.sql(f"SELECT (SELECT max(id) FROM {NAME} WHERE day = 1) + 1 AS id, 1 AS day"),
    "temporary view": by_view,
    "cached": cached,
    "join with itself": joined,
    "union": lambda w, t: loaded(w, t).where("id < 0").union(loaded(w, t)).where("day = 1"),
    "aggregate": lambda w, t: loaded(w, t).where("day = 1").groupBy("day").agg(F.max("id").alias("id")).select("id", "day"),
    "another name": lambda w, t: loaded(w, t).withColumnRenamed("day", "d").where("d = 1").toDF("id", "day"),
}
"""Each reads day 1 alone, but for the second one, which reads all: Spark does not tell the conditions of that scan."""
WHOLE: Final = {"load with a schema"}

WRITES: Final[dict[str, Callable[[Warehouse, sluice.Table, DataFrame], Any]]] = {
    "save": lambda w, t, f: f.write.format("sluice").mode("append").option("coordinator", w.coordinator).save(t.location),
    "saveAsTable": lambda w, _, f: f.write.format("sluice").mode("append").option("coordinator", w.coordinator).saveAsTable(NAME),
    "insertInto": lambda w, _, f: f.write.format("sluice").option("coordinator", w.coordinator).insertInto(NAME),
    "writeTo": lambda w, _, f: f.writeTo(NAME).using("sluice").option("coordinator", w.coordinator).append(),
    "INSERT INTO": lambda w, _, f: inserted(w, f, f"INSERT INTO {NAME} SELECT id, day FROM frame_view"),
    "joint append": lambda w, t, f: jointly(w, t, lambda tx: tx[t].append(f)),
    "joint append without a session": lambda w, t, f: jointly(w, t, lambda tx: tx.part(t).append(f)),
    "MERGE": lambda w, t, f: inserting_merge(DeltaTable.forPath(w.spark, t.location, coordinator=w.coordinator), f).execute(),
    "joint MERGE": lambda w, t, f: jointly(w, t, lambda tx: inserting_merge(tx[t], f).execute()),
    "INSERT BY NAME": lambda w, t, f: inserted(w, f, f"INSERT INTO sluice.`{t.location}` BY NAME SELECT day, id FROM frame_view"),
}


ON_LATEST: Final = {"joint append", "joint append without a session", "MERGE", "joint MERGE"}
"""They work on the latest version, and compare what others did to the rows since they were read."""


def jointly(warehouse: Warehouse, table: sluice.Table, work: Callable[[Any], Any]) -> None:
    with sluice.transaction(warehouse.spark, table.refresh()) as joint:
        work(joint)


def inserting_merge(target: Any, frame: DataFrame) -> Any:
    """It matches no row, and so depends on nothing but its source."""
    return target.alias("t").merge(frame.alias("s"), "t.id = s.id + 1000").whenNotMatchedInsertAll()


def inserted(warehouse: Warehouse, frame: DataFrame, text: str) -> None:
    frame.createOrReplaceTempView("frame_view")
    warehouse.sql(text)


@pytest.fixture(autouse=True)
def no_views(warehouse: Warehouse) -> Iterator[None]:
    yield
    warehouse.spark.catalog.clearCache()
    for name in ("orders_view", "frame_view"):
        warehouse.spark.catalog.dropTempView(name)


def outcome(write: Callable[[], Any]) -> str | None:
    """The rule that refuses a write; None if it is committed."""
    try:
        write()
    except sluice.errors.ConcurrentModification as lost:
        return lost.rule
    return None


def cells() -> list[Any]:
    """Each way of reading with one way of writing, and each way of writing with two or three of reading; all with all in the long tests."""
    short = set(zip(READS, [*WRITES] * 3, strict=False))
    return [pytest.param(*each, marks=[] if each in short else pytest.mark.long) for each in product(READS, WRITES)]


@pytest.mark.parametrize(("read", "write"), cells())
@pytest.mark.many
def test_a_write_depends_on_the_rows_that_were_read(warehouse: Warehouse, read: str, write: str) -> None:
    table = orders(warehouse)
    frame = READS[read](warehouse, table)
    table.delete("day = 2")
    expected = "removed-what-i-read" if read in WHOLE else None
    assert outcome(lambda: WRITES[write](warehouse, table, frame)) == expected, "others' rows do not matter"
    if expected is None:
        [entry, *_] = table.refresh().history()
        operation, version = "MERGE" if "MERGE" in write else "WRITE", 3 if write in ON_LATEST else 2
        assert (entry.operation, entry.is_blind_append, entry.read_version) == (operation, False, version)
    frame = READS[read](warehouse, table.refresh())
    table.delete("id = 15")
    held = table.refresh().snapshot().to_arrow().num_rows
    assert outcome(lambda: WRITES[write](warehouse, table, frame)) == "removed-what-i-read"
    assert table.refresh().snapshot().to_arrow().num_rows == held


BESIDE: Final[dict[str, tuple[Callable[[Warehouse, sluice.Table], Any], dict[str, str | None]]]] = {
    "delete of rows read": (
        lambda _, t: t.delete("id = 15"),
        dict.fromkeys(LEVELS, "removed-what-i-read"),
    ),
    "blind append": (
        lambda _, t: t.append(pa.table({"id": [99], "day": [1]}, SCHEMA)),
        {"Serializable": "appended-what-i-read", "WriteSerializable": None, "SnapshotIsolation": None},
    ),
    "append that read": (
        lambda w, t: WRITES["save"](w, t, READS["load"](w, t)),
        {"Serializable": "appended-what-i-read", "WriteSerializable": "appended-what-i-read", "SnapshotIsolation": None},
    ),
    "append elsewhere": (
        lambda _, t: t.append(pa.table({"id": [99], "day": [2]}, SCHEMA)),
        dict.fromkeys(LEVELS, None),
    ),
}


def levels() -> list[Any]:
    """Each level with another way of writing, and two ways of reading; all with all in the long tests."""
    short = {("Serializable", "load", "joint append"), ("WriteSerializable", "IN", "joint MERGE"), ("SnapshotIsolation", "load", "MERGE")}
    every = product(LEVELS, [each for each in READS if each not in WHOLE], ["save", "joint append", "MERGE", "joint MERGE"])
    return [pytest.param(*each, marks=[] if each in short else pytest.mark.long) for each in every]


@pytest.mark.costly
@pytest.mark.parametrize(("level", "read", "write"), levels())
@pytest.mark.many
def test_what_comes_between_counts_as_the_level_says(warehouse: Warehouse, level: str, read: str, write: str) -> None:
    table = orders(warehouse, level)
    for name, (beside, expected) in BESIDE.items():
        frame = READS[read](warehouse, table.refresh())
        beside(warehouse, table)
        assert outcome(lambda frame=frame: WRITES[write](warehouse, table, frame)) == expected[level], name  # type: ignore[misc]


@pytest.mark.costly
def test_a_joint_write_depends_on_what_it_reads_of_the_other_tables(warehouse: Warehouse) -> None:
    """Whether they take part before or after it; a table that takes no part counts for nothing."""
    table, other = orders(warehouse), warehouse.catalog.create("sales.others", SCHEMA)

    def work(taking_part: list[sluice.Table], deleted: str) -> None:
        frame = loaded(warehouse, table.refresh()).where("day = 1")
        with sluice.transaction(warehouse.spark, other.refresh(), *taking_part) as joint:
            joint[other].append(frame)
            joint.part(table).scan(where="id < 0")
            table.delete(deleted)

    for taking_part, deleted, expected in (
        ([table.refresh()], "id = 25", None),
        ([], "id = 15", "removed-what-i-read"),
        ([table.refresh()], "id = 16", "removed-what-i-read"),
    ):
        assert outcome(lambda a=taking_part, b=deleted: work(a, b)) == expected  # type: ignore[misc]
    frame = loaded(warehouse, table.refresh())
    with sluice.transaction(warehouse.spark, other.refresh()) as joint:
        joint[other].append(frame)
        table.delete("day = 1")


def test_a_statement_depends_on_what_it_read_itself(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading and the commit of one statement, others delete."""
    table = orders(warehouse, vectors=False)

    def late(frame: DataFrame) -> Any:
        monkeypatch.setattr(WRITING, written_with_reads)
        table.delete("id = 15")
        return written_with_reads(frame)

    for text in (
        f"INSERT INTO {NAME} SELECT * FROM {NAME}",
        f"INSERT OVERWRITE {NAME} SELECT * FROM {NAME}",
        f"INSERT INTO {NAME} REPLACE WHERE day = 2 SELECT id, 2 AS day FROM {NAME} WHERE day = 1",
    ):
        table.append(pa.table({"id": [15], "day": [1]}, SCHEMA))
        monkeypatch.setattr(WRITING, late)
        with pytest.raises(sluice.errors.ConcurrentDeleteReadException if "INTO" in text else sluice.errors.ConcurrentModification):
            warehouse.sql(text)
    warehouse.sql(f"INSERT INTO {NAME} SELECT * FROM {NAME} WHERE id = 1")
    assert table.refresh().history(limit=1)[0].is_blind_append is False


@pytest.mark.parametrize("write", ["save", "sql"])
def test_an_overwrite_keeps_what_others_added_since_its_rows_were_read(warehouse: Warehouse, write: str) -> None:
    table = orders(warehouse, "WriteSerializable")
    frame = loaded(warehouse, table).where("id < 5")
    frame.createOrReplaceTempView("few")
    table.append(pa.table({"id": [99], "day": [1]}, SCHEMA))
    if write == "save":
        frame.write.format("sluice").mode("overwrite").option("coordinator", warehouse.coordinator).save(table.location)
    else:
        warehouse.sql(f"INSERT OVERWRITE {NAME} SELECT * FROM few")
    assert warehouse.held(NAME) == [*((each, 0) for each in range(5)), (99, 1)]


@pytest.mark.costly
def test_that_there_were_no_rows_counts(warehouse: Warehouse) -> None:
    table = orders(warehouse)
    frame = warehouse.spark.range(3).selectExpr("id", "CAST(7 AS INT) AS day")
    new = frame.join(loaded(warehouse, table, where="day = 7"), "id", "left_anti")
    WRITES["save"](warehouse, table, new)
    assert outcome(lambda: WRITES["save"](warehouse, table, new)) == "appended-what-i-read", "it would add them twice"


@pytest.mark.costly
def test_other_frames_are_blind(warehouse: Warehouse) -> None:
    table = orders(warehouse)
    for frame in (
        loaded(warehouse, table, versionAsOf=1),
        warehouse.sql(f"SELECT * FROM {NAME} VERSION AS OF 1"),
        warehouse.spark.createDataFrame([(1, 1)], "id long, day int"),
        warehouse.spark.range(1).selectExpr("id", "CAST(1 AS INT) AS day"),
    ):
        table.delete("day = 1")
        WRITES["save"](warehouse, table, frame)
        assert table.refresh().history(limit=1)[0].is_blind_append is True


def test_what_the_options_say_counts_instead(warehouse: Warehouse) -> None:
    table = orders(warehouse)
    frame = loaded(warehouse, table)
    table.delete("id = 15")
    writer = frame.write.format("sluice").mode("append").options(coordinator=warehouse.coordinator, readVersion=2, readWhere="day = 0")
    writer.save(table.location)
    assert table.refresh().history(limit=1)[0].is_blind_append is False
