"""A job that has a credential of every kind and meets every kind of trouble; it says and logs all it can.

Arguments: a folder, location, coordinator, the S3 endpoint, "spark" to write through Spark in the place of the outages. The
credentials come from the environment, as MARK.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import sluice
from sluice.coordinator.service.address import Address
from sluice.coordinator.service.connect import close_all, connect
from sluice.coordinator.service.zookeeper.trust import Trust
from sluice.dev import ACCESS_KEY_ID
from sluice.storage.stores.location import open_store
from sluice.storage.stores.storage_options import StorageOptions

ROWS = pa.table({"i": [1, 2, 3]})


def told(what: str, call: Callable[[], Any]) -> None:
    """Do something that fails, and say everything about it."""
    try:
        call()
    except Exception as error:  # whatever it is, it is said
        print(what, type(error).__name__, str(error), repr(error), getattr(error, "details", ""), flush=True)
        traceback.print_exc()
        if isinstance(error, sluice.errors.SluiceError):
            travelled = pickle.loads(pickle.dumps(error))
            print(travelled, vars(travelled))
        logging.getLogger("job").exception("%s failed", what)
    else:
        raise AssertionError(f"{what} went well")


def with_tables(location: str, coordinator: str, options: dict[str, str]) -> None:
    table = sluice.Table.create(location, ROWS.schema, coordinator=coordinator, storage_options=options)
    table.append(ROWS)
    table.update({"i": "i + 1"}, "i = 1")
    mine, theirs = table.begin(), table.begin()
    mine.delete("i = 2")
    theirs.delete("i = 2")
    theirs.commit()
    told("a conflict", mine.commit)
    address = table.access.address
    trust = Trust.of(Address.parse(coordinator))
    shown: list[Any] = [
        table,
        address,
        table.access,
        table.access.store,
        table.snapshot(),
        table.history(),
        mine,
        StorageOptions.parse(options),
    ]
    shown += [trust, trust.tls, trust.auth_data, table.coordinated, connect(coordinator), Address.parse(coordinator)]
    for each in shown:
        print(repr(each), str(each), flush=True)
    told("pickling who one is", lambda: pickle.dumps(trust))
    table.close()


def with_trouble(location: str, coordinator: str, options: dict[str, str]) -> None:
    mark = os.environ["MARK"]
    nowhere = {**options, "endpoint_url": "http://127.0.0.1:1", "max_attempts": "1"}
    told("an outage of the store", lambda: open_store(location, nowhere).get("x"))
    told("a table on it", lambda: sluice.Table.open(location, coordinator=coordinator, storage_options=nowhere))
    told("an unknown option", lambda: open_store(location, {**options, "secret": mark}))
    told("a secret in the wrong place", lambda: open_store(f"s3://{mark}@bucket/t", options))
    told("a secret in an endpoint", lambda: open_store(location, {**options, "endpoint_url": f"http://u:{mark}@h"}))
    told("a secret in an address", lambda: connect(f"zk://u:{mark}@127.0.0.1:1"))
    told("a secret among its options", lambda: connect(f"zk://127.0.0.1:1?password={mark}"))
    told("an outage of the coordinator", lambda: connect("zk://127.0.0.1:1?connect_timeout_s=0.3"))
    close_all()
    os.environ["SLUICE_ZOOKEEPER_USER"] = "somebody-else"
    told("another user", lambda: sluice.Table.open(location, coordinator=coordinator, storage_options=options))
    os.environ["SLUICE_ZOOKEEPER_USER"] = "ann"
    close_all()


def with_spark(folder: Path, location: str, coordinator: str, options: dict[str, str]) -> None:
    from pyspark.sql import SparkSession

    from sluice.spark_integration.options import ReadOptions, WriteOptions
    from tests.spark_integration.conftest import small

    builder = small(SparkSession.builder).master("local[1]").config("spark.driver.memory", "512m")
    builder = (
        builder.config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", folder.as_uri())
        .config("spark.eventLog.compress", "false")
    )
    spark = sluice.configure(builder, coordinator=coordinator, storage_options=options).getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    given = {**{f"s3.{name}": value for name, value in options.items()}, "coordinator": coordinator}
    frame = spark.range(5).selectExpr("id AS i")
    frame.write.format("sluice").options(**given).mode("append").save(location)
    read = spark.read.format("sluice").options(**given).load(location)
    for each in (read, read.where("i = 1"), sluice.read(spark, location, coordinator=coordinator, storage_options=options)):
        each.explain(True)
        plan: Any = each._jdf
        print(plan.queryExecution().toString(), each)
    assert spark.read.format("sluice").options(**given).load(location).count() == 6
    print(
        repr(ReadOptions.parse({"path": location, **given})),
        repr(WriteOptions.parse({"path": location, **given}, overwrite=False)),
        flush=True,
    )
    travels = pickle.dumps(ReadOptions.parse({"path": location, **given}))
    Path(folder, "travels.pickle").write_bytes(travels)
    told("a failing job", lambda: frame.write.format("sluice").options(**given, replaceWhere="nonsense(").mode("overwrite").save(location))
    spark.stop()


def main(folder: Path, location: str, coordinator: str, endpoint: str, spark: str) -> None:
    logging.basicConfig(filename=folder / "job.log", level=1)
    mark = os.environ["MARK"]
    options = {"endpoint_url": endpoint, "region": "us-east-1", "path_style": "true", "access_key_id": ACCESS_KEY_ID}
    options |= {"secret_access_key": f"secret-{mark}", "session_token": f"token-{mark}"}
    with_tables(location, coordinator, options)
    if spark:
        with_spark(folder, location, coordinator, options)
    else:
        with_trouble(location, coordinator, options)
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
