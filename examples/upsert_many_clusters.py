"""Three drivers merge into one table at once, each with a Spark of its own, while OPTIMIZE rewrites the table's files.

    python examples/upsert_many_clusters.py [--folder /tmp/accounts] [--drivers 3] [--rounds 4] [--accounts 1000]

Every driver counts visits: each of its MERGEs adds 1 to some accounts and inserts those that are new. Drivers meet on the same
accounts, so that MERGEs lose against one another and are repeated; each has a key, so that a driver that is started again
repeats none. At the end every account must have as many visits as there were MERGEs that named it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice
from sluice.delta import DeltaTable

SHARE = 3
"""Each MERGE names one account of so many."""


def session(name: str) -> SparkSession:
    """A small session; on a cluster it would be that of `spark-submit`."""
    builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m").config("spark.ui.enabled", "false")
    spark = sluice.configure(builder.config("spark.sql.shuffle.partitions", "2"), application=name).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def make(spark: SparkSession, location: str) -> None:
    """The table, empty."""
    builder = DeltaTable.create(spark).location(location).property("delta.enableDeletionVectors", "true")
    builder.addColumn("account", "bigint", nullable=False).addColumn("visits", "bigint").addColumn("seen_by", "string").execute()


def drive(location: str, number: int, rounds: int, accounts: int) -> None:
    """A driver: one MERGE after the other, each at most once, and again on the new state where another came first."""
    spark = session(f"driver-{number}")
    table = DeltaTable.forPath(spark, location)
    for turn in range(rounds):
        seen = spark.range(accounts).where(F.col("id") % SHARE == (number + turn) % SHARE).select(F.col("id").alias("account"))
        merge = (
            table.alias("t")
            .merge(seen.alias("s"), "t.account = s.account")
            .whenMatchedUpdate(set={"visits": "t.visits + 1", "seen_by": F.lit(f"driver {number}")})
            .whenNotMatchedInsert(values={"account": "s.account", "visits": "1", "seen_by": F.lit(f"driver {number}")})
        )
        merge.execute(key=f"driver-{number}-turn-{turn}", attempts=30)
    spark.stop()


def optimize_beside(table: DeltaTable, drivers: list[subprocess.Popen[bytes]]) -> int:
    """OPTIMIZE again and again until the drivers have ended; returns how often it changed something."""
    done = 0
    while any(driver.poll() is None for driver in drivers):
        try:
            metrics = table.optimize().executeCompaction(mode="major").collect()[0]["metrics"]
            done += metrics["numFilesRemoved"] > 0
        except sluice.errors.ConcurrentModification as lost:
            print(f"an OPTIMIZE came too late, and the next one does its work: {lost}")
        time.sleep(2)
    return done


def check(table: DeltaTable, drivers: int, rounds: int, accounts: int) -> None:
    """Raise AssertionError unless every account has its visits."""
    expected = [0] * accounts
    for number in range(drivers):
        for turn in range(rounds):
            for account in range((number + turn) % SHARE, accounts, SHARE):
                expected[account] += 1
    found = {row["account"]: row["visits"] for row in table.toDF().collect()}
    assert found == {account: visits for account, visits in enumerate(expected) if visits}, "visits are lost or counted twice"


def main() -> None:
    """Start the drivers, optimize beside them, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="where the table is made; a temporary folder by default")
    parser.add_argument("--drivers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--accounts", type=int, default=1000)
    parser.add_argument("--driver", type=int, default=None, help="be this driver of a table that exists")
    told = parser.parse_args()
    if told.driver is not None:
        drive(told.folder, told.driver, told.rounds, told.accounts)
        return
    location = told.folder or str(Path(tempfile.mkdtemp(prefix="accounts-")) / "table")
    spark = session("nightly")
    make(spark, location)
    sizes = ["--rounds", str(told.rounds), "--accounts", str(told.accounts)]
    drivers = [
        subprocess.Popen([sys.executable, __file__, "--folder", location, "--driver", str(number), *sizes])
        for number in range(told.drivers)
    ]
    table = DeltaTable.forPath(spark, location)
    optimized = optimize_beside(table, drivers)
    assert [driver.returncode for driver in drivers] == [0] * told.drivers, "a driver failed"
    check(table, told.drivers, told.rounds, told.accounts)
    history = sluice.Table.open(location).history(limit=None)
    merges = [each for each in history if each.operation == "MERGE"]
    waits = sorted(each.waited_ms or 0 for each in merges)
    print(f"{len(merges)} merges by {told.drivers} drivers beside {optimized} compactions: every visit is counted once")
    print(f"the median MERGE waited {waits[len(waits) // 2]} ms for its turn, the longest {waits[-1]} ms; table: {location}")
    spark.stop()


if __name__ == "__main__":
    main()
