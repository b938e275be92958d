"""One session, and a coordinator's names with the statements that use them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import sluice
from sluice.coordinator.service.connect import release

from ...spark_integration.conftest import spark

__all__ = ["Warehouse", "spark", "warehouse"]


@dataclass(frozen=True)
class Warehouse:
    """Tables by name, and SQL about them."""

    spark: SparkSession
    coordinator: str
    catalog: sluice.Catalog
    folder: Path

    def sql(self, text: str, args: Any = None) -> DataFrame:
        return sluice.sql(self.spark, text, args, coordinator=self.coordinator)

    def rows(self, text: str, args: Any = None) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.sql(text, args).collect()), key=repr)

    def made(self, name: str, schema: pa.Schema, *rows: tuple[Any, ...], **options: Any) -> sluice.Table:
        table = self.catalog.create(name, schema, **options)
        if rows:
            table.append(pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema))
        return table

    def held(self, name: str) -> list[tuple[Any, ...]]:
        """What a table holds, read without Spark."""
        rows = self.catalog.open(name).snapshot().to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.fixture
def warehouse(spark: SparkSession, zookeeper_address: str, tmp_path: Path) -> Iterator[Warehouse]:
    catalog = sluice.Catalog(zookeeper_address, root=tmp_path / "tables")
    catalog.create_namespace("sales")
    yield Warehouse(spark, zookeeper_address, catalog, tmp_path)
    release(zookeeper_address)
