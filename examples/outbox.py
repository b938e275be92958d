"""An outbox: a stream of orders changes two tables in one commit per batch, while its driver is killed and started again.

    python examples/outbox.py [--folder /tmp/shop] [--batches 12] [--kills 2]

Each micro-batch adds its orders to the customers' balances (a MERGE) and appends one event for each order to the outbox. The two appear
together, once: whoever reads both tables at one moment finds balances that are the sums of the events. The driver is killed (SIGKILL)
in the midst of its work, several times, and goes on from its checkpoint. Meanwhile this program reads both tables, and at
the end it compares them with the orders.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sluice

CUSTOMERS = 5
ORDERS_PER_BATCH = 20
BALANCES = pa.schema([pa.field("customer", pa.int64(), nullable=False), pa.field("balance", pa.int64())])
OUTBOX = pa.schema([pa.field("order", pa.int64(), nullable=False), pa.field("customer", pa.int64()), pa.field("amount", pa.int64())])


def orders(batch: int) -> list[dict[str, int]]:
    """The orders of a batch."""
    numbers = range(batch * ORDERS_PER_BATCH, (batch + 1) * ORDERS_PER_BATCH)
    return [{"order": number, "customer": number % CUSTOMERS, "amount": 1 + number % 7} for number in numbers]


def drive(folder: Path) -> None:
    """The driver: it takes what lies in the inbox, one file for each batch, and ends when all is done."""
    builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.showConsoleProgress", "false")
    spark = sluice.configure(builder, application="outbox").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    balances, outbox = (sluice.Table.open(folder / name) for name in ("balances", "outbox"))

    def take(batch: DataFrame, t: sluice.JointTransaction) -> None:
        sums = batch.groupBy("customer").agg(F.sum("amount").alias("amount"))
        merge = t[balances].alias("b").merge(sums.alias("s"), "b.customer = s.customer")
        merge = merge.whenMatchedUpdate(set={"balance": "b.balance + s.amount"})
        merge.whenNotMatchedInsert(values={"customer": "s.customer", "balance": "s.amount"}).execute()
        t[outbox].append(batch)

    inbox = spark.readStream.schema("order long, customer long, amount long").option("maxFilesPerTrigger", 1).json(str(folder / "inbox"))
    writer = sluice.stream(inbox).for_each_batch(take, balances, outbox)
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def check_moment(tables: list[sluice.Table]) -> int:
    """Read both tables at one moment; the number of orders there. Raises AssertionError if one shows what the other lacks."""
    balances, events = (each.to_arrow().to_pylist() for each in sluice.read_together(tables))
    sums: Counter[int] = Counter()
    for event in events:
        sums[event["customer"]] += event["amount"]
    assert {each["customer"]: each["balance"] for each in balances} == dict(sums), "the balances are not those of the events"
    return len(events)


def run_and_kill(folder: Path, batches: int, kills: int, tables: list[sluice.Table]) -> int:
    """Run drivers until the work is done; kill some of them. Returns how often both tables were read."""
    command = [sys.executable, __file__, "--driver", "--folder", str(folder)]
    moments, killed, orders_in_all = 0, 0, batches * ORDERS_PER_BATCH
    while True:
        driver = subprocess.Popen(command)
        began = check_moment(tables)
        print(f"a driver starts: {began} of {orders_in_all} orders are in both tables", flush=True)
        while driver.poll() is None:
            done = check_moment(tables)
            moments += 1
            if killed < kills and began < done < orders_in_all:
                driver.send_signal(signal.SIGKILL)  # somewhere in the next batch
                killed += 1
                print(f"it is killed in the midst of its work: {done} orders are in both tables", flush=True)
            time.sleep(0.2)
        if driver.returncode == 0:
            assert killed == kills, f"the work was done before the driver could be killed {kills} times; give more batches"
            return moments
        assert driver.returncode == -signal.SIGKILL, f"the driver failed with exit status {driver.returncode}"


def main() -> None:
    """Make the tables and the orders, run the drivers, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="where everything is made; a temporary folder by default")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--driver", action="store_true", help="be the driver, in a folder that is there")
    told = parser.parse_args()
    folder = Path(told.folder or tempfile.mkdtemp(prefix="shop-"))
    if told.driver:
        drive(folder)
        return
    inbox = folder / "inbox"
    inbox.mkdir(parents=True)
    for number in range(told.batches):
        (inbox / f"{number:04d}.json").write_text("\n".join(json.dumps(each) for each in orders(number)), encoding="utf-8")
    made = {"balances": BALANCES, "outbox": OUTBOX}
    tables = [sluice.Table.create(folder / name, schema) for name, schema in made.items()]
    moments = run_and_kill(folder, told.batches, told.kills, tables)
    assert check_moment(tables) == told.batches * ORDERS_PER_BATCH
    events = tables[1].refresh().snapshot().to_arrow().to_pylist()
    expected = [each for number in range(told.batches) for each in orders(number)]
    assert sorted(events, key=lambda each: each["order"]) == expected, "orders are lost or there twice"
    versions = [each.refresh().version for each in tables]
    assert versions[0] == versions[1], f"a commit changed one table alone: the versions are {versions}"
    print(
        f"{len(expected)} orders in {told.batches} batches, {told.kills} drivers killed: each order is there once, in both tables at once"
    )
    print(f"both tables were read together {moments} times meanwhile, and always agreed; folder: {folder}")


if __name__ == "__main__":
    main()
