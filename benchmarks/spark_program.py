"""One system's part of `benchmarks.spark`: a Spark program that writes, reads and changes tables, and prints its times.

``python -m benchmarks.spark_program SYSTEM LAYOUT ROWS INPUT FOLDER`` with SYSTEM one of sluice, delta, parquet. For each line of standard
input it takes a new table through all steps, and prints one JSON object: seconds of each step, and the peak memory of the driver's
processes in MiB so far. Each step's result is checked before its time counts.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from .spark_session import session

__all__ = ["LAYOUTS", "SYSTEMS", "data"]

SYSTEMS = ("sluice", "delta", "parquet")
LAYOUTS = ("ordered", "shuffled")
MERGED = 100
"""One row in so many is updated or deleted; half as many are inserted."""
_SMALL_MERGES = 10
_PRIME = 2_147_483_629


def data(spark: SparkSession, first: int, rows: int, of: int, layout: str) -> DataFrame:
    """`rows` rows of ten columns from number `first` on, in 8 parts; `shuffled` spreads the ids below `of` over all parts."""
    number = F.col("id")
    key = number if layout == "ordered" else F.pmod(number * F.lit(_PRIME), F.lit(of))
    return spark.range(first, first + rows, numPartitions=8).select(
        key.alias("id"),
        F.pmod(key * 31, F.lit(1000)).cast("int").alias("i1"),
        F.pmod(number, F.lit(97)).cast("int").alias("i2"),
        (key / 7).alias("d1"),
        F.sqrt(number).alias("d2"),
        F.rand(7).alias("d3"),
        F.concat(F.lit("group-"), F.pmod(key, F.lit(50))).alias("s1"),
        F.md5(key.cast("string")).alias("s2"),
        F.timestamp_seconds(F.lit(1_700_000_000) + number).alias("at"),
        F.date_add(F.to_date(F.lit("2024-01-01")), F.pmod(number, F.lit(365)).cast("int")).alias("day"),
    )


_SETTINGS = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8", "spark.sql.session.timeZone": "UTC"}
_OF_DELTA = {"spark.databricks.delta.properties.defaults.enableDeletionVectors": "true"}


class _Run:
    """One table through all steps."""

    def __init__(self, spark: SparkSession, system: str, layout: str, place: str, rows: int) -> None:
        self._spark, self._system, self._layout, self._place, self._rows = spark, system, layout, place, rows
        self._gone, self._inserted = 0, 0
        self.seconds: dict[str, float] = {}

    def _frame(self) -> DataFrame:
        if self._system == "parquet":
            return self._spark.read.parquet(self._place)
        return self._spark.read.format(self._system).load(self._place)

    def _table(self) -> Any:
        if self._system == "delta":
            from delta.tables import DeltaTable  # type: ignore[import-not-found,unused-ignore]
        else:
            from sluice.delta import DeltaTable
        return DeltaTable.forPath(self._spark, self._place)

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = work()
        self.seconds[name] = round(time.perf_counter() - begun, 3)
        return result

    def all(self, source: DataFrame) -> None:
        """Every step, in order."""
        self._timed("write", lambda: self._write(source))
        self._check_sum("read_all")
        low = self._rows // 2
        high = low + self._rows // MERGED
        found = self._timed(
            "read_filtered", lambda: self._frame().where(f"id >= {low} AND id < {high}").agg(F.sum("i1"), F.count("*")).first()
        )
        assert found[1] == high - low, found
        if self._system == "parquet":
            return
        self._timed("delete", lambda: self._table().delete(f"id >= {low} AND id < {high}"))
        self._gone = high - low
        first = self._rows // 4
        last = first + self._rows // MERGED
        changed = {"d1": F.lit(-1.0), "s1": F.lit("changed")}
        self._timed("update", lambda: self._table().update(f"id >= {first} AND id < {last}", changed))
        assert self._frame().where("s1 = 'changed'").count() == last - first
        self._timed("merge", lambda: self._merge(self._updates(0, low, self._rows // MERGED), self._rows // MERGED // 2))
        recent = self._rows - self._rows // 10
        self._timed("merge_recent", lambda: self._merge(self._updates(recent, self._rows, self._rows // MERGED), self._rows // MERGED // 2))
        small = self._rows // MERGED // 100

        def merge_often() -> None:
            for _ in range(_SMALL_MERGES):
                self._merge(self._updates(recent, self._rows, small), small // 2)

        self._timed("small_merges", merge_often)
        self._check_sum("read_after")

    def _write(self, source: DataFrame) -> None:
        if self._system == "parquet":
            source.write.mode("append").parquet(self._place)
            return
        write = source.write.format(self._system).mode("append")
        if self._system == "sluice":
            write = write.option("properties", json.dumps({"delta.enableDeletionVectors": "true"}))
        write.save(self._place)

    def _updates(self, low: int, high: int, count: int) -> DataFrame:
        """`count` ids spread over [low, high)."""
        return data(self._spark, 0, count, self._rows, "ordered").withColumn("id", F.col("id") * ((high - low) // count) + low)

    def _merge(self, updates: DataFrame, inserts: int) -> None:
        begun = self._rows + self._inserted
        source = updates.unionByName(data(self._spark, begun, inserts, self._rows, "ordered"))
        table = self._table().alias("t").merge(source.alias("s"), "t.id = s.id")
        table.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        self._inserted += inserts

    def _check_sum(self, name: str) -> None:
        frame = self._frame()
        every = [
            F.count("*"),
            F.count_distinct("id") if name == "read_after" else F.max("id"),
            *(F.sum(F.hash(each)) for each in frame.columns),
        ]
        found = self._timed(name, lambda: frame.agg(*every).first())
        assert found[0] == self._rows - self._gone + self._inserted, (name, found[0], self._rows, self._gone, self._inserted)
        if name == "read_after":
            assert found[0] == found[1], "an id occurs twice"


def _peak_mib(spark: SparkSession) -> dict[str, int]:
    """Peak memory of the JVM and of this Python process."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr,unused-ignore]
    status = Path(f"/proc/{pid}/status").read_text()
    jvm = next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return {"jvm_mib": jvm, "python_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def main() -> None:
    """Run it."""
    system, layout, rows, place, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
    spark = session(system, folder, _SETTINGS, _OF_DELTA)
    for number, _ in enumerate(sys.stdin):
        table = Path(folder, f"table-{number}")
        run = _Run(spark, system, layout, str(table), rows)
        run.all(spark.read.parquet(place))
        shutil.rmtree(table)
        print("\n" + json.dumps({**run.seconds, **_peak_mib(spark)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
