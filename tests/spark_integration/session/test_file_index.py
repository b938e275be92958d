"""Conditions skip files, whichever way they come: of sixty files fifty-nine are gone, and queries that need the sixtieth succeed."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.delta import DeltaTable
from sluice.spark_integration import original
from sluice.spark_integration.scan import file_index
from sluice.spark_integration.scan.file_index import FileIndex
from sluice.storage.errors import Corrupt

from ..conftest import Place

pytestmark = pytest.mark.spark

FILES, PER_FILE = 60, 4
START = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)
SCHEMA = pa.schema(
    [
        ("Id", pa.int64()),
        ("n", pa.int32()),
        ("k", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
        ("big", pa.decimal128(30, 4)),
        ("g", pa.float64()),
        ("f", pa.float32()),
        ("yes", pa.bool_()),
        ("raw", pa.binary()),
        ("s", pa.struct([("x", pa.int64()), ("Deep", pa.struct([("y", pa.string())]))])),
    ]
)


def row(i: int) -> dict[str, Any]:
    if i % 9 == 8:
        return {"Id": i}
    at = START + dt.timedelta(hours=i, microseconds=i)
    return {
        "Id": i,
        "n": i // PER_FILE,
        "k": f"key {i:04}",
        "day": START.date() + dt.timedelta(days=i),
        "at": at,
        "local": at.replace(tzinfo=None),
        "price": Decimal(i) + Decimal("0.25"),
        "big": Decimal(i) * 10**20,
        "g": float("nan") if i % 11 == 10 else i / 2,
        "f": i / 4,
        "yes": i < PER_FILE,
        "raw": bytes([i]),
        "s": {"x": i, "Deep": {"y": f"{i:03}"}},
    }


def rows(number: int) -> pa.Table:
    return pa.Table.from_pylist([row(i) for i in range(number * PER_FILE, (number + 1) * PER_FILE)], schema=SCHEMA)


def filled(place: Place, **options: Any) -> Place:
    """Sixty files of four rows in one version."""
    table = place.create(SCHEMA, **options)
    with table.begin() as transaction:
        for number in range(FILES):
            transaction.append(rows(number))
    return place


def files_of(place: Place) -> dict[int, Path]:
    """The data files by the number of their rows."""
    found: dict[int, Path] = {}
    for path in Path(place.location).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            first = min(each for each in pq.ParquetFile(path).read(columns=["Id"])["Id"].to_pylist())
            found[first // PER_FILE] = path
    return found


def keep_only(place: Place, *numbers: int) -> None:
    """Remove the other files: a query that opens one of them fails."""
    for number, path in files_of(place).items():
        if number not in numbers:
            path.unlink()


def ids(frame: DataFrame) -> list[int]:
    return sorted(each[0] for each in frame.select("Id").collect())


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For each time that Spark asked for files: how many it got, of how many."""
    counts: list[tuple[int, int]] = []
    chosen = FileIndex.chosen

    def counting(index: FileIndex, partition_filters: Any, data_filters: Any) -> Any:
        found = chosen(index, partition_filters, data_filters)
        counts.append((found.num_rows, index._files.num_rows))
        return found

    monkeypatch.setattr(FileIndex, "chosen", counting)
    return counts


def by_view(place: Place, where: str) -> DataFrame:
    place.load().createOrReplaceTempView("asked_view")
    return place.spark.sql(f"SELECT * FROM asked_view WHERE {where}")


def by_nested_view(place: Place, where: str) -> DataFrame:
    place.load().select("Id", "k").createOrReplaceTempView("asked_view")
    place.spark.sql("SELECT Id, upper(k) AS k FROM asked_view").createOrReplaceTempView("asked_outer")
    return place.spark.sql(f"WITH w AS (SELECT * FROM asked_outer) SELECT * FROM w WHERE {where}")


def by_join(place: Place, where: str) -> DataFrame:
    other = place.spark.createDataFrame([(7, "seven")], "Id bigint, word string")
    return place.load().join(other, "Id").where(where)


def by_join_of_conditions(place: Place, where: str) -> DataFrame:
    """The condition is on the other side; Spark infers it for this one."""
    other = place.spark.range(100).withColumnRenamed("id", "Id").where(where)
    return place.load().join(other, "Id")


def by_subquery(place: Place, where: str) -> DataFrame:
    place.load().createOrReplaceTempView("asked_view")
    return place.spark.sql(f"SELECT Id FROM range(100) WHERE id IN (SELECT Id FROM asked_view WHERE {where})")


def by_union(place: Place, where: str) -> DataFrame:
    frame = place.load().select("Id")
    return frame.where(where).union(frame.where(where)).distinct()


WAYS: dict[str, Callable[[Place, str], DataFrame]] = {
    "frame": lambda place, where: place.load().where(where),
    "option": lambda place, where: place.load(where=where),
    "read": lambda place, where: place.scan(where=where),
    "schema": lambda place, where: place.load("Id bigint, k string").where(where),
    "path in SQL": lambda place, where: sluice.sql(
        place.spark, f"SELECT * FROM sluice.`{place.location}` WHERE {where}", coordinator=place.coordinator
    ),
    "view": by_view,
    "nested view": by_nested_view,
    "join": by_join,
    "join of conditions": by_join_of_conditions,
    "subquery": by_subquery,
    "cache": lambda place, where: place.load().where(where).cache(),
    "union": by_union,
    "time travel": lambda place, where: place.load(versionAsOf=1).where(where),
}


@pytest.fixture(scope="module")
def lonely(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, module_coordinator: str) -> Place:
    """The table of which one file is left, with the rows 4 to 7."""
    place = filled(Place(spark, str(tmp_path_factory.mktemp("lonely") / "t"), module_coordinator))
    keep_only(place, 1)
    return place


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, module_coordinator: str) -> Place:
    return filled(Place(spark, str(tmp_path_factory.mktemp("whole") / "t"), module_coordinator))


@pytest.fixture(scope="module")
def module_coordinator() -> str:
    return f"memory://file-index-{random.getrandbits(64):x}"


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_asking_opens_one_file(lonely: Place, listed: list[tuple[int, int]], way: str) -> None:
    frame = WAYS[way](lonely, "Id = 7")
    try:
        assert ids(frame) == [7]
        assert set(listed) == {(1, FILES)}
    finally:
        frame.unpersist()


CONDITIONS = {
    "id = 5": [5],
    "ID >= 4 AND iD < 8": [4, 5, 6, 7],
    "Id BETWEEN 5 AND 6": [5, 6],
    "Id IN (5, 6)": [5, 6],
    "Id IN (4, 5, 6, 7, 4, 5, 6, 7, 1000, 1001, 1002, 1003, 1004, 1005, 1006)": [4, 5, 6, 7],
    "k IN ('key 0004', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'l')": [4],
    "day IN (DATE'2020-01-06', DATE'1970-01-01', DATE'1970-01-02', DATE'1970-01-03', DATE'1970-01-04', DATE'1970-01-05', "
    "DATE'1970-01-06', DATE'1970-01-07', DATE'1970-01-08', DATE'1970-01-09', DATE'1970-01-10', DATE'1970-01-11')": [5],
    "k = 'key 0005'": [5],
    "k LIKE 'key 0005%'": [5],
    "startswith(k, 'key 0006')": [6],
    "n = 1": [4, 5, 6, 7],
    "n = 1L AND n < 1.5": [4, 5, 6, 7],
    "CAST(n AS BIGINT) = 1": [4, 5, 6, 7],
    "day = DATE'2020-01-06'": [5],
    "at = TIMESTAMP'2020-01-01 05:00:00.000005Z'": [5],
    "at > TIMESTAMP'2020-01-01 04:30:00Z' AND at < TIMESTAMP'2020-01-01 06:30:00Z'": [5, 6],
    "local = TIMESTAMP_NTZ'2020-01-01 05:00:00.000005'": [5],
    "price = 5.25": [5],
    "price > 4.5 AND price <= 6.25": [5, 6],
    "g = 2.5D": [5],
    "f = FLOAT(1.25)": [5],
    "s.x = 5": [5],
    "s.deep.Y = '005'": [5],
    "Id = 5 OR Id = 6 OR k = 'key 0007'": [5, 6, 7],
    "NOT (Id < 4 OR Id > 7)": [4, 5, 6, 7],
    "Id <=> 5": [5],
    "Id = 5 AND upper(k) = 'KEY 0005'": [5],
    "Id = 5 AND rand() >= 0": [5],
}


@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.many
def test_conditions_of_every_kind_open_one_file(lonely: Place, listed: list[tuple[int, int]], where: str) -> None:
    assert ids(lonely.load().where(where)) == CONDITIONS[where]
    assert listed == [(1, FILES)]


OTHERS = [
    "big = 500000000000000000000",  # bounds of so many digits are not trusted
    "CAST(Id AS STRING) = '5'",
    "CAST(k AS BINARY) = CAST('key 0005' AS BINARY)",
    "raw = X'05'",
    "hash(Id) = hash(5L)",
    "Id + 1 = 6",
    "Id = 5 OR length(k) = 2",
    "k RLIKE '0005$'",
    "k LIKE '%0005'",
    "isnan(g)",
    "g > 100",
    "k IS NULL",
    "k IS NOT NULL AND Id < 9",
    "yes",
    "NOT yes AND Id < 9",
    "Id = CAST(NULL AS BIGINT)",
    "Id NOT IN (1, NULL)",
    "Id NOT IN (1, 2)",
    "s IS NULL",
    "s.deep IS NULL",
    "rand(7) < 0.5",
]


@pytest.fixture(scope="module")
def local(whole: Place) -> DataFrame:
    """The rows of the whole table, without it."""
    frame = whole.load()
    return whole.spark.createDataFrame(frame.collect(), frame.schema)


@pytest.mark.parametrize("where", OTHERS)
@pytest.mark.many
def test_what_skips_few_files_or_none_gives_the_right_rows(whole: Place, local: DataFrame, where: str) -> None:
    if "rand" in where:
        assert 0 < whole.load().where(where).count() < FILES * PER_FILE
        return
    assert ids(whole.load().where(where)) == ids(local.where(where))


def test_a_function_of_python_keeps_what_others_leave(lonely: Place, listed: list[tuple[int, int]]) -> None:
    is_odd = F.udf(lambda number: bool(number % 2), "boolean", useArrow=False)
    assert ids(lonely.load().where(is_odd("Id") & (F.col("n") == 1))) == [5, 7]
    assert listed == [(1, FILES)]


# -- random conditions ---------------------------------------------------------------------------------------------------


def condition(chance: random.Random, depth: int) -> str:
    if depth and chance.random() < 0.6:
        parts = [condition(chance, depth - 1) for _ in range(chance.randint(2, 3))]
        return chance.choice(["({})", "NOT ({})"]).format(chance.choice([" AND ", " OR "]).join(parts))
    i = chance.randrange(-2, FILES * PER_FILE + 2)
    compared = chance.choice(["=", "<", "<=", ">", ">=", "<>", "<=>"])
    at = START + dt.timedelta(hours=i, microseconds=i)
    zone = chance.choice(["Z", "", " America/New_York"])
    values = {
        "Id": f"{i}L",
        "n": str(i // PER_FILE),
        "k": f"'key {i:04}'",
        "day": f"DATE'{START.date() + dt.timedelta(days=i)}'",
        "at": f"TIMESTAMP'{at.replace(tzinfo=None)}{zone}'",
        "local": f"TIMESTAMP_NTZ'{at.replace(tzinfo=None)}'",
        "price": f"{i}.{chance.choice(['25', '5'])}",
        "big": f"{i}00000000000000000000",
        "g": chance.choice([f"{i / 2}D", "DOUBLE('NaN')", "1.5"]),
        "f": f"FLOAT({i / 4})",
        "raw": f"X'{i % 256:02x}'",
        "s.x": str(i),
        "s.deep.y": f"'{i:03}'",
        "yes": chance.choice(["true", "false"]),
        "CAST(n AS STRING)": f"'{i // PER_FILE}'",
        "CAST(Id AS INT)": str(i),
        "CAST(n AS DECIMAL(20,2))": f"{i // PER_FILE}.00",
        "CAST(day AS STRING)": f"'{START.date() + dt.timedelta(days=i)}'",
        "upper(k)": f"'KEY {i:04}'",
        "n % 3": str(i % 3),
    }
    term = chance.choice(list(values))
    value = chance.choice([values[term]] * 9 + ["NULL"])
    match chance.randrange(6):
        case 0:
            return f"{term} IS {chance.choice(['', 'NOT '])}NULL"
        case 1 if term != "yes":
            many = [value, *(condition_value(values, term, chance) for _ in range(chance.choice([1, 3, 14])))]
            return f"{term} {chance.choice(['', 'NOT '])}IN ({', '.join(many)})"
        case 2:
            return f"k LIKE '{chance.choice(['key 00%', 'key 01_2', '%7', '%0%1%', 'key', ''])}'"
    return f"{term} {compared} {value}"


def condition_value(values: Mapping[str, str], term: str, chance: random.Random) -> str:
    return chance.choice([values[term], values[term], "NULL"])


PARTITIONINGS: list[tuple[str, ...]] = [(), ("n", "yes"), ("k", "price"), ("local", "f"), ("day",), ("at",), ("g", "big")]


@pytest.mark.parametrize(("partition_by", "seed"), [*itertools.product(PARTITIONINGS, (1, 2, 3))], ids=str)
@pytest.mark.long
def test_random_conditions_give_the_rows_of_a_full_scan(place: Place, partition_by: tuple[str, ...], seed: int) -> None:
    chance = random.Random(f"{seed} {partition_by}")
    filled(place, partition_by=partition_by, properties={"delta.enableDeletionVectors": str(bool(seed % 2)).lower()})
    place.table().delete("Id % 10 = 4")
    wheres = [condition(chance, 2) for _ in range(30)]
    frame = place.load()
    local = place.spark.createDataFrame(frame.collect(), frame.schema)
    assert local.count() == FILES * PER_FILE - 24
    expected = local.select("Id", *map(F.expr, wheres)).collect()
    selected = [frame.where(where).select(F.lit(number), "Id") for number, where in enumerate(wheres)]
    found = sorted(tuple(each) for each in reduce(DataFrame.union, selected).collect())
    assert found == sorted((number, each[0]) for each in expected for number in range(len(wheres)) if each[1 + number])


# -- partitions, deletion vectors, target scans ----------------------------------------------------------------------------


def test_partition_values_choose_files(place: Place, listed: list[tuple[int, int]]) -> None:
    filled(place, partition_by=["n", "yes"])
    frame = place.load()
    assert ids(frame.where("n = 7")) == [i for i in range(28, 32) if i % 9 != 8]
    assert ids(frame.where("n = 7 AND Id = 30")) == [30]
    assert ids(frame.where("yes")) == [0, 1, 2, 3]
    assert [count for count, _ in listed] == [1, 1, 1]
    listed.clear()
    # what only Spark can evaluate chooses among partitions too, and rows whose value is null satisfy nothing
    assert ids(frame.where("pmod(hash(n), 60) >= 0 AND CAST(n AS STRING) LIKE '1_' AND yes = false")) == [
        i for i in range(40, 80) if i % 9 != 8
    ]
    assert [count for count, _ in listed] == [10]
    assert frame.where("n IS NULL").count() == sum(i % 9 == 8 for i in range(FILES * PER_FILE))


def test_an_error_of_a_condition_on_partitions_is_sparks(place: Place) -> None:
    filled(place, partition_by=["n"])
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        place.load().where("10 / (n - 5) > 0").collect()


def test_a_runtime_filter_excludes_partitions(place: Place, tmp_path: Path) -> None:
    """A join with few keys of the partitions, which Spark finds out while the query runs."""
    filled(place, partition_by=["n"])
    for path in Path(place.location).glob("n=*/*.parquet"):
        if path.parent.name != "n=3":
            path.unlink()
    spark = place.spark
    spark.createDataFrame([(3, "x"), (99, "y")], "n int, word string").write.parquet(str(tmp_path / "words"))
    words = spark.read.parquet(str(tmp_path / "words")).where("word = 'x'")
    assert ids(place.load().join(F.broadcast(words), "n").select("Id")) == [12, 13, 14, 15]


def test_only_the_vectors_of_chosen_files_are_read(place: Place, listed: list[tuple[int, int]]) -> None:
    filled(place, properties={"delta.enableDeletionVectors": "true"})
    place.table().delete("Id % 4 = 1")
    for path in Path(place.location).rglob("*.bin"):
        path.unlink()
    vectors = [add for add in place.table().snapshot().raw.add_files() if add.deletion_vector is not None]
    assert len(vectors) > 50
    keep_only(place, 1)
    assert ids(place.load().where("Id >= 4 AND Id < 8")) == [4, 6, 7]
    assert listed == [(1, FILES)]


@pytest.mark.costly
@pytest.mark.parametrize("vectors", ["true", pytest.param("false", marks=pytest.mark.long)])
def test_changes_of_rows_read_the_files_of_their_conditions(place: Place, vectors: str) -> None:
    filled(place, properties={"delta.enableDeletionVectors": vectors})
    keep_only(place, 1, 2)
    target = DeltaTable.forPath(place.spark, place.location, coordinator=place.coordinator)
    target.update("Id = 5", {"k": "'five'"})
    target.delete("Id = 6")
    source = place.spark.createDataFrame([(7, "seven"), (1000, "new")], "Id bigint, word string")
    merge = target.alias("t").merge(source.alias("s"), "t.Id = s.Id").whenMatchedUpdate(set={"k": "s.word"})
    merge.whenNotMatchedInsert(values={"Id": "s.Id", "k": "s.word"}).execute()
    sluice.sql(place.spark, f"UPDATE sluice.`{place.location}` SET k = 'nine' WHERE Id = 9", coordinator=place.coordinator)
    found = place.load().where("Id IN (4, 5, 6, 7, 9, 1000)").select("Id", "k")
    assert sorted(map(tuple, found.collect())) == [(4, "key 0004"), (5, "five"), (7, "seven"), (9, "nine"), (1000, "new")]


# -- what a frame keeps, and sessions --------------------------------------------------------------------------------------


def test_a_frame_keeps_its_version(place: Place, listed: list[tuple[int, int]]) -> None:
    filled(place)
    frame = place.load()
    place.table().delete("Id < 8")
    assert ids(frame.where("Id < 9")) == list(range(9))
    assert ids(place.load().where("Id < 9")) == [8]
    assert ids(place.load(versionAsOf=1).where("Id < 9")) == list(range(9))
    assert listed == [(3, 60), (1, 58), (3, 60)]


def test_a_frame_gives_the_same_rows_whatever_was_asked_before(whole: Place) -> None:
    frame = whole.load()
    assert ids(frame.where("Id = 3")) == [3]
    assert frame.count() == FILES * PER_FILE
    assert ids(frame.where("Id = 100")) == [100]


def test_rows_that_spark_keeps_serve_every_frame_of_the_version(whole: Place, listed: list[tuple[int, int]]) -> None:
    frame = whole.load().cache()
    try:
        assert frame.count() == FILES * PER_FILE
        assert whole.load().where("Id = 3").count() == 1
        assert listed == [(FILES, FILES)]
    finally:
        frame.unpersist()


def test_the_optimiser_knows_the_size(whole: Place) -> None:
    plan: Any = whole.load()._jdf
    size = int(plan.queryExecution().optimizedPlan().stats().sizeInBytes())
    assert size == sum(whole.table().snapshot().raw.files["size"].to_pylist())
    assert len(whole.load().inputFiles()) == FILES


@pytest.mark.costly
def test_other_sessions_and_threads(whole: Place) -> None:
    frames = [whole.load(), Place(whole.spark.newSession(), whole.location, whole.coordinator).load()]
    found: dict[int, int] = {}

    def ask(number: int) -> None:
        found[number] = len(ids(frames[number % 2].where(f"Id >= {number}")))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert found == {number: FILES * PER_FILE - number for number in range(8)}


def test_joins_ask_on_threads_of_spark(whole: Place) -> None:
    other = whole.load().select("Id", F.col("k").alias("other"))
    for hint in ("broadcast", "merge", "shuffle_hash"):
        joined = whole.load().where("Id < 20").join(other.where("Id > 10").hint(hint), "Id")
        assert ids(joined) == list(range(11, 20))


def test_an_error_inside_the_callback_arrives_as_ours(whole: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise Corrupt("the statistics are no JSON")

    monkeypatch.setattr(FileIndex, "chosen", broken)
    frame = whole.load()
    actions: list[Callable[[], Any]] = [
        frame.count,
        frame.collect,
        frame.toArrow,
        lambda: frame.join(frame.select("Id").hint("broadcast"), "Id").collect(),
        lambda: frame.write.format("noop").mode("overwrite").save(),
        lambda: whole.spark.sql("SELECT 1 AS Id").join(frame, "Id").collect(),
    ]
    for action in actions:
        with pytest.raises(Corrupt, match="the statistics are no JSON") as failed:
            action()
        assert isinstance(failed.value, PySparkException)
        assert original(failed.value) is failed.value


@pytest.fixture(autouse=True)
def forget_errors() -> Iterator[None]:
    yield
    file_index._raised.clear()


# -- EXPLAIN ---------------------------------------------------------------------------------------------------------------


def test_explain_says_how_many_files_are_read(lonely: Place, capsys: pytest.CaptureFixture[str]) -> None:
    size = {add.path: add.size for add in lonely.table().snapshot().raw.add_files()}
    frame = lonely.load()
    for argument in (False, True, "formatted"):
        frame.where("Id = 7").explain(argument)
        printed = capsys.readouterr().out
        assert "== Files of sluice's tables ==" in printed
        assert f"/t version 1: 1 of 60 files, {size[files_of(lonely)[1].name]} of {sum(size.values())} bytes" in printed
    frame.where("Id > 1").union(frame.where("n = 4")).explain()
    printed = capsys.readouterr().out
    assert "/t version 1: 60 of 60 files" in printed
    assert "/t version 1: 1 of 60 files" in printed
    lonely.spark.range(3).explain()
    assert "Files of" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", ["EXPLAIN", *(pytest.param(each, marks=pytest.mark.long) for each in ("EXPLAIN FORMATTED", "explain extended"))]
)
def test_explain_in_sql_says_it_too(lonely: Place, words: str) -> None:
    query = f"{words} SELECT * FROM sluice.`{lonely.location}` WHERE Id = 7 AND Id IN (SELECT Id FROM sluice.`{lonely.location}`)"
    [[text]] = sluice.sql(lonely.spark, query, coordinator=lonely.coordinator).collect()
    assert "Physical Plan" in text
    assert text.count("/t version 1: 1 of 60 files") == 1
    assert text.count("/t version 1: 60 of 60 files") == 1
    assert sluice.sql(lonely.spark, "EXPLAIN SELECT 1").count() == 1
