"""One system's part of `benchmarks.spark_files`: a Spark program that asks one table in every way.

``python -m benchmarks.spark_files_program SYSTEM PLACE FILES FOLDER`` with SYSTEM one of sluice, delta, parquet, known. For each line of
standard input it asks everything once, and prints one JSON object: by query the seconds, and how many files it read. Each result is
checked.

"known" is plain Parquet over a frame of just the files that hold the rows: no system can be faster that lets Spark scan them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from .spark_session import session

__all__: list[str] = []

_ROWS_PER_FILE = 100
_SETTINGS = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "8", "spark.sql.session.timeZone": "UTC"}


def _load(spark: SparkSession, system: str, place: str, needed: Sequence[str]) -> DataFrame:
    if system == "sluice":
        return spark.read.format("sluice").option("consistency", "published").load(place)
    if system == "known":
        return spark.read.parquet(*needed)
    return spark.read.format(system).load(place)


def _ways(spark: SparkSession, system: str, place: str, needed: Sequence[str]) -> Mapping[str, Callable[[str], DataFrame]]:
    """By name the ways of asking for rows that satisfy a condition; `needed` are the files that hold them."""
    kept = _load(spark, system, place, needed)
    view = f"kept_{len(needed)}"
    kept.createOrReplaceTempView(view)
    words = spark.createDataFrame([(7, "seven")], "number long, word string").selectExpr("number * 0 AS zero").distinct().cache()
    words.count()
    return {
        "load and where": lambda where: _load(spark, system, place, needed).where(where),
        "where on a frame": kept.where,
        "SQL on a view": lambda where: spark.sql(f"SELECT * FROM {view} WHERE {where}"),
        "join": lambda where: kept.where(where).join(F.broadcast(words), F.col("id") * 0 == F.col("zero")),
    }


def _files_read(frame: DataFrame) -> int:
    """The files that a query reads, as Spark's own metric counts them."""
    spark = frame.sparkSession
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        jdf: Any = spark.createDataFrame([], "x int").unionByName(frame.selectExpr("CAST(id AS INT) AS x"))._jdf
        execution = jdf.queryExecution()
        execution.executedPlan().executeCollect()
        leaves = execution.executedPlan().collectLeaves()
        every = [leaves.apply(number) for number in range(leaves.size())]
        return sum(each.metrics().apply("numFiles").value() for each in every if each.metrics().contains("numFiles"))
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")


def main() -> None:
    """Run it."""
    system, place, files, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    spark = session(system, folder, _SETTINGS, {})
    rows = files * _ROWS_PER_FILE
    low = rows // 2
    queries = {"point": (f"id = {low + 7}", 1), "1 % range": (f"id >= {low} AND id < {low + rows // 100}", rows // 100)}
    first = low // _ROWS_PER_FILE
    names = [f"{place}/part-{number:06}.parquet" for number in range(first, first + files // 100)]
    ways = {query: _ways(spark, system, place, names[:expected]) for query, (_, expected) in queries.items()}
    read: dict[str, int] = {}
    for _ in sys.stdin:
        seconds: dict[str, float] = {}
        for query, (where, expected) in queries.items():
            for way, ask in ways[query].items():
                name = f"{query}, {way}"
                begun = time.perf_counter()
                found = ask(where).agg(F.count("*"), F.sum("v")).first()
                seconds[name] = time.perf_counter() - begun
                assert found is not None
                assert found[0] == expected, (name, found)
                if name not in read:
                    read[name] = _files_read(ask(where))
        print("\n" + json.dumps({name: [each, read[name]] for name, each in seconds.items()}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
