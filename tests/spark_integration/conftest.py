"""What the tests of the Spark floor share: one session, in a time zone that is not UTC, and places for tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import sluice
from sluice.coordinator.service.connect import release
from sluice.spark_integration import original
from sluice.spark_integration.active_session import use_session
from sluice.storage.errors import SluiceError
from sluice.storage.schema.conform import adapt
from sluice.storage.schema.schema import StructType
from tests.fixtures.zookeeper import Proxy

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "768m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "America/New_York",
}
"""A session that is small, and whose time zone shows where one is forgotten."""


def small(builder: SparkSession.Builder) -> SparkSession.Builder:
    for key, value in SMALL.items():
        builder = builder.config(key, value)
    return builder


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A small session of sluice, without an embedded coordinator: each test has one of its own, and that one would start for nobody."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sluice.spark_session.start_embedded", lambda _: None)
        builder = sluice.configure(small(SparkSession.builder).master("local[2,2]"))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session() as session:
        yield session


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session has these settings within the block."""
    before = spark.conf.getAll
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            if name in before:
                spark.conf.set(name, before[name])
            else:
                spark.conf.unset(name)


@dataclass(frozen=True)
class Place:
    """Where a test's table is, with the coordinator that goes with it."""

    spark: SparkSession
    location: str
    coordinator: str
    storage_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        """How Spark's readers and writers reach it."""
        return {"coordinator": self.coordinator, **{f"s3.{name}": value for name, value in self.storage_options.items()}}

    def behind(self, proxy: Proxy) -> Place:
        """The same, through a proxy of its ZooKeeper."""
        return Place(self.spark, self.location, f"zk://{proxy.hosts}/{self.coordinator.split('/', 3)[3]}")

    def write(self, frame: DataFrame, mode: str = "append", **options: Any) -> None:
        frame.write.format("sluice").mode(mode).options(coordinator=self.coordinator, **options).save(self.location)

    def load(self, schema: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.read.format("sluice").options(coordinator=self.coordinator, **options)
        return (reader if schema is None else reader.schema(schema)).load(self.location)

    def scan(self, **options: Any) -> DataFrame:
        return sluice.read(self.spark, self.location, coordinator=self.coordinator, **options)

    def table(self) -> sluice.Table:
        return sluice.Table.open(self.location, coordinator=self.coordinator, storage_options=self.storage_options)

    def create(self, schema: pa.Schema | StructType, **options: Any) -> sluice.Table:
        return sluice.Table.create(self.location, schema, coordinator=self.coordinator, storage_options=self.storage_options, **options)

    def rows(self) -> list[dict[str, Any]]:
        """What the table holds, read without Spark."""
        return by_content(self.table().snapshot().to_arrow())


@pytest.fixture
def place(request: pytest.FixtureRequest, spark: SparkSession, zookeeper_address: str, tmp_path: Path) -> Iterator[Place]:
    use_session(spark)  # another test may have left one of its own, and Spark looks for data sources in the thread's session
    if getattr(request, "param", "disk") == "s3":
        options = request.getfixturevalue("s3_server").options
        yield Place(spark, request.getfixturevalue("s3_location"), zookeeper_address, options)
    else:
        yield Place(spark, str(tmp_path / f"table-{uuid.uuid4().hex[:8]}"), zookeeper_address)
    release(zookeeper_address)


def refused(call: Callable[[], Any]) -> SluiceError:
    """The error with which a call of PySpark's ends, as sluice raised it; Spark's own text has its message."""
    with pytest.raises(PySparkException) as failed:
        call()
    error = original(failed.value)
    assert error is not None
    assert error.message in str(failed.value)
    return error


def arrow(frame: DataFrame, schema: StructType) -> pa.Table:
    """The rows of a DataFrame in a table's Arrow types: Spark hands timestamps out in the session's zone."""
    return adapt(frame.toArrow(), schema)


def by_content(table: pa.Table) -> list[dict[str, Any]]:
    """The rows in an order of their own."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=repr)


def is_native(frame: DataFrame) -> bool:
    """Whether Spark's own Parquet scan reads it."""
    jdf: Any = frame._jdf
    return "FileScan parquet" in jdf.queryExecution().toString()
