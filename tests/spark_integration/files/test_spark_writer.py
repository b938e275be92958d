"""Files that Spark's own writer writes: the same rows and statistics as by Python tasks, and nothing left beside the table."""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.spark_integration import writing
from sluice.spark_integration.writing import CODEC
from sluice.storage.schema.partitions import HIVE_DEFAULT_PARTITION
from tests.storage.strategies import examples

from ..conftest import Place, by_content, configured

pytestmark = pytest.mark.spark

_INSTANTS = st.datetimes()
_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.sampled_from(["", "a/b=c%41 ", "x" * 40, "zé" * 30, "\x01:"])
)
_COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "small": (pa.decimal128(7, 2), st.decimals(-99999, 99999, places=2)),
    "large": (pa.decimal128(38, 6), st.decimals(-(10**31), 10**31, places=6)),
    "text": (pa.string(), _TEXTS),
    "day": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", "UTC"), _INSTANTS.map(lambda each: each.replace(tzinfo=timezone.utc))),
    "local": (pa.timestamp("us"), _INSTANTS),
    "flag": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary(max_size=4)),
    "inner": (
        pa.struct([("n", pa.int32()), ("s", pa.struct([("t", pa.string())]))]),
        st.fixed_dictionaries({"n": st.none() | st.integers(0, 9), "s": st.none() | st.fixed_dictionaries({"t": st.none() | _TEXTS})}),
    ),
    "list": (pa.list_(pa.date32()), st.lists(st.none() | st.dates(), max_size=3)),
}
_PARTITIONS = ("text", "long", "day", "flag", "small", "large", "at")
_BY_SPARK = "-files-c000."


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[str]]:
    names = draw(st.lists(st.sampled_from(sorted(_COLUMNS)), min_size=2, max_size=6, unique=True))
    count = draw(st.integers(0, 6))
    columns = {name: draw(st.lists(st.none() | _COLUMNS[name][1], min_size=count, max_size=count)) for name in names}
    schema = pa.schema([(name, _COLUMNS[name][0]) for name in names])
    partitions = [name for name in names if name in _PARTITIONS][: draw(st.integers(0, 2))]
    return pa.table({name: pa.array(columns[name], schema.field(name).type) for name in names}), partitions[: len(names) - 1]


@contextmanager
def by_tasks() -> Iterator[None]:
    """Rows go through Python tasks within the block."""
    with mock.patch.object(writing, "written_by_spark", return_value="the test says so"):
        yield


def save(place: Place, frame: DataFrame, location: str, mode: str = "append", by: tuple[str, ...] = (), **options: Any) -> sluice.Table:
    writer = frame.write.format("sluice").mode(mode).options(coordinator=place.coordinator, **options)
    (writer.partitionBy(*by) if by else writer).save(location)
    return sluice.Table.open(location, coordinator=place.coordinator)


def names(table: sluice.Table) -> list[str]:
    return [add.path.rpartition("/")[2] for add in table.snapshot().raw.add_files()]


def is_by_spark(table: sluice.Table) -> bool:
    found = {_BY_SPARK in name for name in names(table)}
    assert len(found) == 1, found
    return found.pop()


def clean(location: str) -> bool:
    """Whether only the table's own files lie there."""
    files = [path for path in Path(location).rglob("*") if path.is_file() and "_delta_log" not in path.parts]
    folders = [path for path in Path(location).rglob("*") if path.is_dir()]
    return all(path.suffix == ".parquet" and not path.name.startswith(("_", ".")) for path in files) and not any(
        path.name.startswith(".sluice-") for path in folders
    )


def plain(value: Any) -> Any:
    """Values that compare equal if readers cannot tell them apart."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def statistics(table: sluice.Table) -> dict[str, dict[str, Any]]:
    """The statistics of a table's files by their partitions, of which each has one."""
    found = {json.dumps(dict(add.partition_values)): json.loads(add.stats or "{}") for add in table.snapshot().raw.add_files()}
    assert len(found) == len(names(table))
    return found


def flat(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    pairs = [flat(each, f"{path}{name}.") if isinstance(each, dict) else {path + name: each} for name, each in tree.items()]
    return {name: each for pair in pairs for name, each in pair.items()}


@pytest.mark.costly
@settings(examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=tables())
def test_both_ways_give_the_same_rows_and_statistics(drawn: tuple[pa.Table, list[str]], place: Place, tmp_path: Path) -> None:
    data, partitions = drawn
    frame = place.spark.createDataFrame(data).coalesce(1)
    one, other = (str(tmp_path / uuid.uuid4().hex) for _ in range(2))
    mine = save(place, frame, one, by=tuple(partitions))
    with by_tasks():
        theirs = save(place, frame, other, by=tuple(partitions))
    assert mine.struct == theirs.struct
    rows = by_content(theirs.snapshot().to_arrow())
    assert plain(by_content(mine.snapshot().to_arrow())) == plain(rows)
    assert clean(one)
    if rows and "at" not in partitions and all(plainly_a_folder(value) for name in partitions for value in data[name].to_pylist()):
        assert is_by_spark(mine)
        told, expected = statistics(mine), statistics(theirs)
        assert told.keys() == expected.keys()
        lists = {f"nullCount.{name}" for name in data.column_names if name == "list"}
        for partition, known in expected.items():
            wanted = {name: value for name, value in flat(known).items() if name not in lists}
            assert flat(told[partition]) == wanted, "footers tell all but the number of lists that are null"
    by_spark = place.spark.read.format("sluice").option("coordinator", place.coordinator).load(one)
    assert by_spark.count() == len(rows)
    if rows and not {"small", "large"} & {*partitions}:  # delta-rs misreads -0.01 as a partition value
        assert deltalake.DeltaTable(one).to_pyarrow_table().num_rows == len(rows)
        assert pl.read_delta(one).height == len(rows)


def plainly_a_folder(value: Any) -> bool:
    return not isinstance(value, str) or (value.isascii() and "\0" not in value and len(value) < 50)


def test_other_readers_find_rows_by_value(place: Place) -> None:
    rows = [(1.0, "a"), (math.nan, "b"), (-0.0, "c"), (None, "d")]
    table = save(place, place.spark.createDataFrame(rows, "x double, s string").coalesce(1), place.location)
    assert is_by_spark(table)
    [path] = Path(place.location).glob("*.parquet")
    assert pq.read_table(path, filters=[("x", "<", 0.5)])["s"].to_pylist() == ["c"]
    assert pl.scan_delta(place.location).filter(pl.col("x") <= 0.0).collect()["s"].to_list() == ["c"]
    assert [row.s for row in place.load().where("x > 5").collect()] == ["b"], "NaN is Spark's largest number"
    assert [row.s for row in place.scan(where="x = 0").collect()] == ["c"]


def test_columns_go_by_name_and_whole_numbers_are_widened(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("a.b`c", pa.string()), ("Other", pa.int32()), ("s", pa.struct([("n", pa.int64())]))])
    table = place.create(schema)
    frame = place.spark.createDataFrame([(7, "x", (1,))], "OTHER short, `a.b``c` string, s struct<n:long>")
    save(place, frame.selectExpr("OTHER", "`a.b``c`", "CAST(5 AS INT) AS ID", "s"), place.location)
    save(place, frame.selectExpr("NULL AS other", "`a.b``c`"), place.location)
    table = table.refresh()
    assert is_by_spark(table)
    assert place.rows() == [
        {"id": 5, "a.b`c": "x", "Other": 7, "s": {"n": 1}},
        {"id": None, "a.b`c": "x", "Other": None, "s": None},
    ]
    kinds = {str(pq.read_schema(path).field("id").type) for path in Path(place.location).glob("*.parquet")}
    assert kinds == {"int64"}
    assert [json.loads(add.stats or "")["nullCount"]["s"] for add in table.snapshot().raw.add_files()] == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize(
    "text", [HIVE_DEFAULT_PARTITION, *(pytest.param(text, marks=pytest.mark.long) for text in ("é", "x" * 100, "a\0b"))]
)
def test_a_text_that_names_no_folder_goes_through_tasks(place: Place, text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sluice")
    table = save(place, place.spark.createDataFrame([(text, 1), (None, 2), ("", 3)], "p string, n long"), place.location, by=("p",))
    assert not is_by_spark(table)
    assert "cannot be a folder's name" in caplog.text
    assert by_content(table.snapshot().to_arrow()) == by_content(pa.table({"p": [text, None, None], "n": [1, 2, 3]}))
    assert clean(place.location)


def refused(place: Place, frame: DataFrame, kind: type[Exception], match: str, mode: str = "append", **options: Any) -> None:
    """The write is refused like that of Python tasks, and leaves nothing."""
    before = place.table().version
    with pytest.raises(kind, match=match) as failed:
        save(place, frame, place.location, mode, **options)
    assert isinstance(failed.value, PySparkException)
    assert place.table().version == before
    assert clean(place.location)


@pytest.mark.costly
def test_what_footers_do_not_allow_is_refused_as_ever(place: Place) -> None:
    place.create(pa.schema([pa.field("k", pa.int64(), nullable=False), ("day", pa.date32()), ("days", pa.list_(pa.date32()))]))
    spark = place.spark
    good = spark.sql("SELECT 1L AS k, DATE'2024-01-01' AS day, array(DATE'2024-01-01') AS days")
    table = save(place, good, place.location)
    assert is_by_spark(table)
    refused(place, good.withColumn("k", F.expr("nullif(k, 1)")), sluice.errors.NullNotAllowed, "'k' is NOT NULL")
    later = F.date_add(F.col("day"), 365 * 9000)
    refused(place, good.withColumn("day", later), sluice.errors.SchemaMismatch, "'day' has the date .*, outside of the years")
    refused(place, good.withColumn("days", F.array(later)), sluice.errors.SchemaMismatch, "outside of the years")
    refused(place, good.withColumn("k", F.lit("x")), sluice.errors.SchemaMismatch, "k")
    table.set_properties({"delta.constraints.small": "k < 10"})
    refused(place, good.withColumn("k", F.lit(10)), sluice.errors.ConstraintViolated, "small")
    save(place, good.withColumn("k", F.lit(9)), place.location)
    assert sorted(row["k"] for row in place.rows()) == [1, 9]


@pytest.mark.costly
def test_replaced_rows_must_satisfy_the_condition(place: Place) -> None:
    spark = place.spark
    save(place, spark.range(4).selectExpr("id % 2 AS p", "id AS n"), place.location, by=("p",))
    ones = spark.range(3).selectExpr("1L AS p", "id + 10 AS n")
    assert is_by_spark(save(place, ones, place.location, "overwrite", replaceWhere="p = 1"))
    refused(place, ones, sluice.errors.ConstraintViolated, "of the rows do not satisfy", "overwrite", replaceWhere="p = 0")
    refused(place, ones, sluice.errors.ConstraintViolated, "of the rows do not satisfy", "overwrite", replaceWhere="n < 5")
    assert sorted(row["n"] for row in place.rows()) == [0, 2, 10, 11, 12]
    save(place, ones.selectExpr("0L AS p", "n"), place.location, "overwrite", partitionOverwriteMode="dynamic")
    assert sorted((row["p"], row["n"]) for row in place.rows()) == [(p, n) for p in (0, 1) for n in (10, 11, 12)]


def test_files_have_the_rows_and_the_size_that_are_asked_for(place: Place) -> None:
    frame = place.spark.range(10, numPartitions=1).withColumn("s", F.col("id").cast("string"))
    table = save(place, frame, place.location, maxRecordsPerFile=4)
    assert [json.loads(add.stats or "")["numRecords"] for add in table.snapshot().raw.add_files()] == [4, 4, 2]
    small = f"{place.location}-small"
    table = save(place, frame, small, properties=json.dumps({"delta.targetFileSize": "200b"}))
    assert is_by_spark(table)
    assert len(names(table)) > 1


def test_no_rows_make_no_file(place: Place) -> None:
    table = save(place, place.spark.range(0), place.location)
    assert names(table) == []
    assert clean(place.location)
    save(place, place.spark.range(3).where("id > 5"), place.location)
    assert place.table().version == 0, "nothing has changed"
    assert names(place.table()) == []


def test_only_columns_that_are_indexed_have_statistics(place: Place) -> None:
    frame = place.spark.sql("SELECT 1 AS a, array(1) AS b, 'x' AS c, 2 AS d")
    table = save(place, frame, place.location, properties=json.dumps({"delta.dataSkippingNumIndexedCols": "3"}))
    [add] = table.snapshot().raw.add_files()
    one = {"a": 1, "c": "x"}
    assert json.loads(add.stats or "") == {"numRecords": 1, "minValues": one, "maxValues": one, "nullCount": {"a": 0, "c": 0}}


def _fails_once(number: int) -> int:
    context = TaskContext.get()
    assert context is not None
    if number % 2500 == 2499 and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails after its other rows")
    return number


def test_rows_of_a_failed_attempt_are_not_there(place: Place) -> None:
    frame = place.spark.range(5000, numPartitions=2).select(F.udf(_fails_once, "long", useArrow=False)("id").alias("id"))
    table = save(place, frame, place.location, maxRecordsPerFile=1000)
    assert is_by_spark(table)
    assert table.snapshot().to_arrow()["id"].to_pylist() == list(range(5000))
    assert clean(place.location)


def test_a_failed_job_leaves_nothing(place: Place) -> None:
    save(place, place.spark.range(1), place.location)
    before = sorted(Path(place.location).rglob("*"))
    frame = place.spark.range(9).withColumn("id", F.when(F.col("id") == 8, F.raise_error(F.lit("no"))).otherwise(F.col("id")))
    with pytest.raises(PySparkException, match="no"):
        save(place, frame, place.location)
    assert sorted(Path(place.location).rglob("*")) == before


def test_settings_of_the_session_neither_count_nor_change(place: Place) -> None:
    spark = place.spark
    odd = {
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.writeLegacyFormat": "true",
    }
    with configured(spark, odd):
        frame = spark.sql("SELECT TIMESTAMP'1500-01-01 00:00:00Z' AS at, DATE'1500-01-01' AS day, 1.5BD AS d, array(1) AS a")
        table = save(place, frame, place.location)
        assert {name: spark.conf.get(name) for name in odd} == odd
    assert is_by_spark(table)
    [row] = place.rows()
    instant = datetime(1500, 1, 1, tzinfo=timezone.utc)
    assert row == {"at": instant, "day": date(1500, 1, 1), "d": Decimal("1.5"), "a": [1]}
    [path] = Path(place.location).glob("*.parquet")
    footer = pq.read_metadata(path)
    assert {footer.schema.column(n).physical_type for n in range(footer.num_columns)} == {"INT64", "INT32"}
    assert footer.row_group(0).column(0).compression == "ZSTD"
    assert footer.schema.column(3).path == "a.list.element"


def codecs(table: sluice.Table) -> set[str]:
    """The codecs that the footers of a table's files name, which are those that the files' names tell."""
    files = [Path(table.location.removeprefix("file://"), add.path) for add in table.snapshot().raw.add_files()]
    found = {path: pq.read_metadata(path).row_group(0).column(0).compression for path in files}
    assert all(f".{codec.lower().replace('gzip', 'gz')}." in path.name for path, codec in found.items())
    return {*found.values()}


@pytest.mark.costly
def test_the_codec_is_the_one_that_the_user_names(place: Place) -> None:
    schema = pa.schema([("id", pa.int64())])
    by_name, by_setting, checked = (place.location + each for each in ("", "-setting", "-checked"))
    rows = place.spark.range(3, numPartitions=1)
    assert codecs(save(place, rows, by_name, compression="gzip")) == {"GZIP"}
    with configured(place.spark, {CODEC: "snappy"}):
        table = save(place, rows, by_setting)
        assert is_by_spark(table)
        sluice.Table.create(checked, schema, properties={"delta.constraints.c": "id < 9"}, coordinator=place.coordinator)
        assert codecs(table) == codecs(save(place, rows, checked)) == {"SNAPPY"}
        assert codecs(save(place, rows, by_setting, "overwrite", compression="lz4")) == {"LZ4"}
        with sluice.transaction(place.spark, coordinator=place.coordinator) as t:
            t[place.table()].update(set={"id": "id + 1"})
        assert codecs(place.table()) == {"SNAPPY"}
        place.spark.conf.set(CODEC, "lzo")
        with pytest.raises(sluice.errors.InvalidRequest, match=f"{CODEC} is 'lzo'; it may be zstd"):
            save(place, rows, by_setting)
    assert sorted(row["id"] for row in place.load().collect()) == [1, 2, 3]
    assert sorted(pl.read_delta(by_setting)["id"].to_list()) == [0, 1, 2]


def test_observed_metrics_are_known_after_the_write(place: Place) -> None:
    seen = Observation("seen")
    frame = place.spark.range(7).observe(seen, F.count(F.lit(1)).alias("rows"))
    table = save(place, frame, place.location)
    assert seen.get == {"rows": 7}
    assert not is_by_spark(table)


def test_a_transaction_over_several_tables_gets_its_files_from_spark(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    one = place.create(schema)
    other = sluice.Table.create(tmp_path / "other", schema, coordinator=place.coordinator)
    with sluice.transaction() as tx:
        tx.part(one).append(spark.range(3))
        tx.part(one).append(spark.range(3, 5))
        tx.part(other).append(spark.range(1))
    for table, expected in ((one, range(5)), (other, range(1))):
        assert is_by_spark(table.refresh())
        assert sorted(row["id"] for row in table.snapshot().to_arrow().to_pylist()) == list(expected)


def test_partitions_of_every_kind_are_spelled_as_the_log_spells_them(place: Place) -> None:
    expressions = ["'a b/%=' AS s", "-5L AS l", "DATE'0020-02-03' AS d", "true AS f", "CAST(0.0000001 AS DECIMAL(38,10)) AS e", "1 AS x"]
    frame = place.spark.sql("SELECT " + ", ".join(expressions))
    table = save(place, frame, place.location, by=("s", "l", "d", "f", "e"))
    assert is_by_spark(table)
    [add] = table.snapshot().raw.add_files()
    assert dict(add.partition_values) == {"s": "a b/%=", "l": "-5", "d": "0020-02-03", "f": "true", "e": "0.0000001000"}
    assert place.scan().count() == place.load().where("s = 'a b/%='").count() == 1
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 1
