"""Every way to write by path in a session of `sluice.configure`: modes, partitioning, options, and what is refused.

Versions in paths, and writes that ask for the next version, in sessions of sluice and by the data source.
Rows of other types than the table's: taken in or refused as Spark's own tables do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, ArithmeticException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameWriter

import sluice
from sluice.spark_integration.session.routing import ROUTING
from tests.spark_integration.conftest import SMALL, Place, configured

pytestmark = pytest.mark.spark


def numbers(place: Place, *values: tuple[Any, ...], columns: str = "k string, v long") -> DataFrame:
    return place.spark.createDataFrame(list(values), columns)


def writer(place: Place, *values: tuple[Any, ...], **options: Any) -> DataFrameWriter:
    return numbers(place, *values).write.format("sluice").options(coordinator=place.coordinator, **options)


def held(place: Place) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in place.rows()), key=repr)


def test_the_default_mode_creates_a_table_and_refuses_another(place: Place) -> None:
    writer(place, ("a", 1), ("b", 2)).partitionBy("K").save(place.location)
    assert held(place) == [("a", 1), ("b", 2)]
    assert place.table().partition_columns == ("k",), "as the data spell it"
    files = sorted(Path(place.location).rglob("*.parquet"))
    for mode in (None, "error", "errorifexists", "ErrorIfExists"):
        with pytest.raises(AnalysisException, match="a table already exists") as failed:
            writer(place, ("c", 3)).mode(mode).save(place.location)
        assert isinstance(failed.value, sluice.errors.TableExists)
        assert failed.value.getCondition() == "PATH_ALREADY_EXISTS"
    assert sorted(Path(place.location).rglob("*.parquet")) == files, "nothing was written"


@pytest.mark.parametrize("way", ["save", "insertInto"])
def test_a_write_opens_its_table_once(place: Place, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a table of many files takes longer than to commit: what was opened serves from the look at the schema to the commit."""
    writer(place, ("a", 1)).save(place.location)
    opened: list[str] = []
    opening = sluice.Table.open

    def counted(location: str, **options: Any) -> sluice.Table:
        opened.append(location)
        return opening(location, **options)

    monkeypatch.setattr(sluice.Table, "open", counted)
    if way == "save":
        writer(place, ("b", 2)).mode("append").save(place.location)
    else:
        writer(place, ("b", 2)).insertInto(f"sluice.`{place.location}`")
    monkeypatch.undo()
    assert len(opened) == 1
    assert held(place) == [("a", 1), ("b", 2)]


@pytest.mark.costly
def test_ignore_writes_a_new_table_only_append_and_overwrite_any(place: Place) -> None:
    for value in (1, 2):
        writer(place, ("a", value)).mode("ignore").save(place.location)
        assert held(place) == [("a", 1)]
    assert place.table().version == 0
    for mode in ("append", "overwrite", "append"):  # with the arguments of `save`
        numbers(place, ("a", 1)).write.save(place.location, "sluice", mode, coordinator=place.coordinator, txnAppId=None)
    assert held(place) == [("a", 1), ("a", 1)]
    assert [entry.operation for entry in place.table().history()] == ["WRITE"] * 4
    named = numbers(place, ("b", 2)).write.format("SLUICE").options(path=place.location, coordinator=place.coordinator)
    named.mode("append").save()
    assert held(place) == [("a", 1), ("a", 1), ("b", 2)]


@pytest.mark.costly
def test_overwriting_by_condition_and_by_partition(place: Place) -> None:
    writer(place, ("a", 1), ("b", 2), ("c", 3)).partitionBy("k").save(place.location)
    writer(place, ("b", 20), replaceWhere="k = 'b'").mode("overwrite").save(place.location)
    assert held(place) == [("a", 1), ("b", 20), ("c", 3)]
    with pytest.raises(sluice.errors.ConstraintViolated, match="do not satisfy") as failed:
        writer(place, ("z", 2), replaceWhere="k = 'b'").mode("overwrite").save(place.location)
    assert isinstance(failed.value, PySparkException)
    writer(place, ("a", 10), partitionOverwriteMode="dynamic").mode("overwrite").save(place.location)
    assert held(place) == [("a", 10), ("b", 20), ("c", 3)]
    # the session's own setting counts where no option says otherwise
    with configured(place.spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        writer(place, ("a", 11)).mode("overwrite").save(place.location)
        assert held(place) == [("a", 11), ("b", 20), ("c", 3)]
        writer(place, ("a", 12), partitionOverwriteMode="static").mode("overwrite").save(place.location)
        assert held(place) == [("a", 12)]


def test_a_schema_evolves_with_permission_only(place: Place) -> None:
    writer(place, ("a", 1)).save(place.location)
    wider = numbers(place, ("b", 2, 3), columns="k string, v long, w long")
    with pytest.raises(AnalysisException, match="mergeSchema") as failed:
        place.write(wider)
    assert isinstance(failed.value, sluice.errors.SchemaMismatch)
    assert len(list(Path(place.location).rglob("*.parquet"))) == 1
    place.write(wider, mergeSchema=True)
    assert held(place) == [("a", 1, None), ("b", 2, 3)]
    wider = wider.selectExpr("*", "v AS x")
    with configured(place.spark, {"spark.databricks.delta.schema.autoMerge.enabled": "true"}):  # Delta's setting
        with pytest.raises(AnalysisException, match="'x'"):
            place.write(wider, mergeSchema="false")
        place.write(wider)
    assert held(place) == [("a", 1, None, None), ("b", 2, 3, 2), ("b", 2, 3, None)]


def test_what_cannot_be_is_refused_before_rows_are_written(place: Place) -> None:
    with pytest.raises(AnalysisException, match="'day', which the data lack") as failed:
        writer(place, ("a", 1)).partitionBy("day").save(place.location)
    assert failed.value.getCondition() == "PARTITION_COLUMN_NOT_FOUND_IN_SCHEMA"
    for match, told in (
        ("bucketBy was called", writer(place, ("a", 1)).bucketBy(2, "k")),
        ("column 'day' is not in the table", writer(place, ("a", 1)).clusterBy("day")),
        ("give one of them", writer(place, ("a", 1), partitionBy="v").partitionBy("k")),
        ("unknown option 'mergeSchemas'", writer(place, ("a", 1), mergeSchemas="true")),
    ):
        with pytest.raises(AnalysisException, match=match):
            told.save(place.location)
    with pytest.raises(AnalysisException, match="no path"):
        writer(place, ("a", 1)).save()
    with pytest.raises(Exception, match="INVALID_SAVE_MODE"):
        writer(place, ("a", 1)).mode("replace").save(place.location)
    assert not Path(place.location).exists()
    writer(place, ("a", 1)).partitionBy("k").save(place.location)
    with pytest.raises(AnalysisException, match="is partitioned by k"):
        writer(place, ("a", 1)).partitionBy("v").mode("append").save(place.location)
    with pytest.raises(AnalysisException, match="'v'"):
        place.write(numbers(place, ("a", "x"), columns="k string, v string"))
    assert held(place) == [("a", 1)]


def test_a_table_is_clustered_by_columns_that_later_writes_repeat(place: Place) -> None:
    writer(place, ("a", 1)).clusterBy("k").save(place.location)
    with pytest.raises(AnalysisException, match=r"clusterBy is 'v', but .* is clustered by k"):
        writer(place, ("b", 1)).clusterBy("v").mode("append").save(place.location)
    writer(place, ("b", 1)).clusterBy("K").mode("append").save(place.location)
    writer(place, ("c", 1), overwriteSchema="true").clusterBy("v").mode("overwrite").save(place.location)
    assert place.table().clustering_columns == ("v",)


def test_files_have_at_most_so_many_rows(place: Place) -> None:
    rows = place.spark.range(0, 100, numPartitions=1).selectExpr("id % 2 AS p", "id")
    rows.write.format("sluice").options(coordinator=place.coordinator, maxRecordsPerFile=20).partitionBy("p").save(place.location)
    counts = [pq.read_metadata(path).num_rows for path in Path(place.location).rglob("*.parquet")]
    assert sorted(counts) == [10, 10, 20, 20, 20, 20]
    with configured(place.spark, {"spark.sql.files.maxRecordsPerFile": "50"}):
        place.write(rows, "overwrite")
        assert place.table().snapshot().files().num_rows == 2
        place.write(rows, "overwrite", maxRecordsPerFile=25)
        assert place.table().snapshot().files().num_rows == 4


def test_a_write_happens_once(place: Place) -> None:
    for mode in ("error", "error", "append", "overwrite"):
        writer(place, ("a", 1), txnAppId="job", txnVersion=7).mode(mode).save(place.location)
    assert place.table().version == 0
    writer(place, ("a", 1), txnAppId="job", txnVersion=8).mode("append").save(place.location)
    writer(place, ("a", 1), idempotencyKey="monday").mode("append").save(place.location)
    writer(place, ("a", 1), idempotencyKey="monday").mode("append").save(place.location)
    assert len(held(place)) == 3


def test_who_creates_at_once_is_one(place: Place) -> None:
    created: list[int] = []
    refused: list[BaseException] = []

    def create(number: int) -> None:
        try:
            writer(place, ("a", number)).save(place.location)
            created.append(number)
        except sluice.errors.TableExists as error:
            refused.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(created) == 1
    assert len(refused) == 2
    assert held(place) == [("a", created[0])]


def test_a_conflict_is_raised_as_what_it_is(place: Place) -> None:
    writer(place, ("a", 1), ("b", 2)).partitionBy("k").save(place.location)
    table = place.table()
    table.append(pa.table({"k": ["a"], "v": pa.array([4], pa.int64())}))
    with pytest.raises(sluice.errors.ConcurrentAppendException) as failed:
        writer(place, ("a", 2), replaceWhere="k = 'a'", readVersion=0, isolation="Serializable").mode("overwrite").save(place.location)
    assert isinstance(failed.value, PySparkException)
    assert failed.value.retryable
    assert failed.value.details, "facts, not only text"


def test_a_table_is_overwritten_by_what_was_read_from_it(place: Place) -> None:
    writer(place, ("a", 1), ("b", 2)).save(place.location)
    place.write(place.load().selectExpr("k", "v * 2 AS v"), "overwrite")
    assert held(place) == [("a", 2), ("b", 4)]


@pytest.fixture(params=["true", "false"], ids=["routed", "data source"])
def routing(request: pytest.FixtureRequest, place: Place) -> Iterator[bool]:
    with configured(place.spark, {ROUTING: request.param}):
        yield request.param == "true"


def digits(ms: int, zone: str) -> str:
    return datetime.fromtimestamp(ms / 1000, timezone.utc).astimezone(ZoneInfo(zone)).strftime("%Y%m%d%H%M%S%f")[:17]


@pytest.mark.costly
@pytest.mark.parametrize(
    "routing", [pytest.param("true", id="routed"), pytest.param("false", id="data source", marks=pytest.mark.long)], indirect=True
)
def test_a_path_may_name_a_version(place: Place, routing: bool) -> None:
    for number in range(3):
        place.write(place.spark.range(number, number + 1))
    table = place.table()
    reader = place.spark.read.format("sluice").option("coordinator", place.coordinator)
    at = digits(table.snapshot(1).timestamp, SMALL["spark.sql.session.timeZone"] if routing else "UTC")
    for name, expected in (("@v0", 1), ("@V1", 2), (f"@{at}", 2), ("", 3)):
        assert reader.load(place.location + name).count() == expected
        assert reader.schema("id long").load(place.location + name).count() == expected
        reader = place.spark.read.format("sluice").option("coordinator", place.coordinator)
    if routing:
        assert reader.table(f"sluice.`{place.location}@v0`").count() == 1
        for name in ("@v1", f"@{at}"):
            sql = sluice.sql(place.spark, f"SELECT count(*) AS n FROM sluice.`{place.location}{name}`", coordinator=place.coordinator)
            assert sql.collect()[0]["n"] == 2
    with pytest.raises(Exception, match="names a version, and versionAsOf was given"):
        reader.option("versionAsOf", 1).load(f"{place.location}@v0").count()
    sluice.Table.create(f"{place.location}@v0", table.struct, coordinator=place.coordinator)
    reader = place.spark.read.format("sluice").option("coordinator", place.coordinator)
    assert reader.load(f"{place.location}@v0").count() == 0, "what exists wins"
    assert not list(Path(place.location).glob("*@*"))


@pytest.mark.costly
def test_a_write_may_ask_for_the_next_version(place: Place, routing: bool) -> None:
    place.write(place.spark.range(1))
    place.write(place.spark.range(1))
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="expected-version: version 1 "):
            place.write(place.spark.range(1), mode, ifVersion=0)
    place.write(place.spark.range(1), "append", ifVersion=1)
    place.write(place.spark.range(1), "overwrite", ifVersion=2)
    assert place.table().version == 3
    assert len(place.rows()) == 1
    assert place.table().history()[1].is_blind_append is routing, "it depends on the version alone"


TAKEN = {
    "a BIGINT": "CAST(7 AS INT)",
    "b INT": "7L",
    "c INT": "-7.9D",
    "d STRING": "12",
    "e STRING": "DATE'2026-01-02'",
    "f DECIMAL(5, 2)": "1.239BD",
    "g DATE": "TIMESTAMP'2026-01-02 23:30:00'",
    "h TIMESTAMP": "DATE'2026-01-02'",
    "i ARRAY<INT>": "array(1L, NULL)",
    "j FLOAT": "0.1D",
    "k STRUCT<x: INT, y: STRING>": "named_struct('x', 1L, 'y', 2)",
    "l TINYINT": "NULL",
    "m DOUBLE": "3L",
    "n TIMESTAMP_NTZ": "TIMESTAMP'2026-01-02 23:30:00'",
}
REFUSED = {"b": ("'7'", "true", "DATE'2026-01-02'", "array(1)"), "g": ("'2026-01-02'", "5"), "i": ("array('1')", "1"), "k": ("'x'",)}
TOO_LARGE = {"b": ("3000000000L", "CAST('NaN' AS DOUBLE)"), "f": ("12345.6BD",), "i": ("array(3000000000L)",)}
TOO_LARGE_FOR = "CAST_OVERFLOW_IN_TABLE_INSERT"
UNSAFE = "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"


@pytest.fixture
def native(place: Place, tmp_path: Path) -> Iterator[str]:
    """A table of Spark's own with the same columns."""
    place.spark.sql(f"CREATE TABLE taken ({', '.join(TAKEN)}) USING parquet LOCATION '{tmp_path}/native'")
    yield "taken"
    place.spark.sql("DROP TABLE taken")


def rows(place: Place, **others: str) -> DataFrame:
    values = {name.split()[0]: value for name, value in TAKEN.items()} | others
    return place.spark.sql("SELECT " + ", ".join(f"{value} AS {name}" for name, value in values.items()))


def refusal(frame: DataFrame, place: Place | str) -> str | None:
    try:
        if isinstance(place, str):
            frame.write.insertInto(place)
        else:
            place.write(frame)
    except (AnalysisException, ArithmeticException) as error:
        return error.getCondition()
    return None


@pytest.mark.long
def test_values_are_stored_as_sparks_own_tables_store_them(place: Place, native: str) -> None:
    frame = rows(place)
    place.write(place.spark.table(native))
    assert refusal(frame, native) is refusal(frame, place) is None
    kept = place.scan()
    assert kept.collect() == place.spark.table(native).collect()
    assert kept.dtypes == place.spark.table(native).dtypes
    for name, values in REFUSED.items():
        for value in values:
            assert refusal(rows(place, **{name: value}), native) == refusal(rows(place, **{name: value}), place) == UNSAFE, value
    with configured(place.spark, {"spark.sql.ansi.enabled": "false"}):  # the rule for storing does not depend on it
        for name, values in TOO_LARGE.items():
            for value in values:
                assert refusal(rows(place, **{name: value}), native) == refusal(rows(place, **{name: value}), place) == TOO_LARGE_FOR, value
    assert kept.count() == place.scan().count() == 1


@pytest.mark.costly
def test_only_what_does_not_fit_is_cast(place: Place) -> None:
    place.create(pa.schema([("Id", pa.int64()), ("s", pa.struct([("x", pa.int32())])), ("n", pa.int16())]))
    frame = place.spark.sql("SELECT 1 AS id, named_struct('x', 1, 'y', 2) AS s, 5L AS n, 'more' AS more")
    with pytest.raises(sluice.errors.SchemaMismatch, match="'s' has no field y"):
        place.write(frame)
    place.write(frame, mergeSchema=True)
    assert place.rows() == [{"Id": 1, "s": {"x": 1, "y": 2}, "n": 5, "more": "more"}]
    place.write(place.spark.sql("SELECT 2L AS n"), "overwrite", replaceWhere="n < 10")
    assert [row["n"] for row in place.rows()] == [2]
