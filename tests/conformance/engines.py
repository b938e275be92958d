"""The engines that take part: Delta Lake on Spark, and sluice in SQL on DuckDB and on Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

import sluice
from sluice.statements.duckdb.engine import run

from ..delta_spark.engine import Delta
from .model import Model, canonical
from .operations import Insert, Operation

__all__ = ["DeltaLake", "Engine", "OnDuckDB", "OnSpark"]


class Engine(Protocol):
    """What carries operations out on the table at a path."""

    def create(self, path: Path, columns: str, partitioned: bool, clustered: bool, properties: Mapping[str, str]) -> None: ...

    def begin(self, path: Path) -> None:
        """The engine takes the table over."""
        ...

    def do(self, path: Path, operation: Operation, model: Model) -> None:
        """Carry one out; the model is as before it."""
        ...

    def end(self, path: Path) -> None:
        """The engine gives the table away."""
        ...


def _created(name: str, columns: str, partitioned: bool, clustered: bool, properties: Mapping[str, str]) -> str:
    parts = " PARTITIONED BY (p)" if partitioned else " CLUSTER BY (k)" if clustered else ""
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    return f"CREATE TABLE {name} ({columns}) USING delta{parts}" + (f" TBLPROPERTIES ({listed})" if listed else "")


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True)
class DeltaLake:
    """Delta Lake on Spark."""

    delta: Delta

    def create(self, path: Path, columns: str, partitioned: bool, clustered: bool, properties: Mapping[str, str]) -> None:
        self.delta.sql(_created(f"delta.`{path}`", columns, partitioned, clustered, properties))

    def begin(self, path: Path) -> None:
        return

    def do(self, path: Path, operation: Operation, model: Model) -> None:
        name = f"delta.`{path}`"
        if not isinstance(operation, Insert):
            self.delta.sql(operation.sql(name, model))
            return
        rows = [{column: _json(value) for column, value in row.items()} for row in operation.rows(model)]
        kind = ", ".join(f"`{column}`: {model.columns[column]}" for column in rows[0])
        columns = ", ".join(f"`{column}`" for column in rows[0])
        self.delta.sql(
            f"INSERT INTO {name} ({columns}) SELECT inline(from_json({_text(json.dumps(rows))}, {_text(f'array<struct<{kind}>>')}))"
        )

    def end(self, path: Path) -> None:
        return


def _json(value: Any) -> Any:
    """A value in JSON, as Spark reads it."""
    return value if isinstance(value, dict | list) else canonical(value)


@dataclass(frozen=True)
class OnDuckDB:
    """sluice without Spark: its SQL on DuckDB, and rows from Arrow."""

    coordinator: str

    def create(self, path: Path, columns: str, partitioned: bool, clustered: bool, properties: Mapping[str, str]) -> None:
        self._sql(_created(f"delta.`{path}`", columns, partitioned, clustered, properties))

    def begin(self, path: Path) -> None:
        sluice.Table.attach(path, coordinator=self.coordinator).close()

    def do(self, path: Path, operation: Operation, model: Model) -> None:
        if not isinstance(operation, Insert):
            self._sql(operation.sql(f"delta.`{path}`", model))
            return
        with sluice.Table.open(path, coordinator=self.coordinator) as table:
            rows = operation.rows(model)
            schema = pa.schema([table.schema.field(name) for name in rows[0]])
            table.append(pa.Table.from_pylist([_arrow(row, schema) for row in rows], schema))

    def end(self, path: Path) -> None:
        with sluice.Table.open(path, coordinator=self.coordinator) as table:
            table.detach()

    def _sql(self, text: str) -> None:
        run(text, coordinator=self.coordinator)


def _arrow(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    return {
        name: list(value.items()) if pa.types.is_map(schema.field(name).type) and value is not None else value
        for name, value in row.items()
    }


@dataclass(frozen=True)
class OnSpark:
    """sluice's SQL on Spark; rows come from a DataFrame."""

    spark: SparkSession
    coordinator: str

    def create(self, path: Path, columns: str, partitioned: bool, clustered: bool, properties: Mapping[str, str]) -> None:
        self._sql(_created(f"sluice.`{path}`", columns, partitioned, clustered, properties).replace("USING delta", "USING sluice"))

    def begin(self, path: Path) -> None:
        sluice.Table.attach(path, coordinator=self.coordinator).close()

    def do(self, path: Path, operation: Operation, model: Model) -> None:
        if not isinstance(operation, Insert):
            self._sql(operation.sql(f"sluice.`{path}`", model))
            return
        rows = operation.rows(model)
        kind = ", ".join(f"`{column}` {model.columns[column]}" for column in rows[0])
        frame = self.spark.createDataFrame([tuple(row.values()) for row in rows], kind)
        frame.write.format("sluice").mode("append").option("coordinator", self.coordinator).save(str(path))

    def end(self, path: Path) -> None:
        with sluice.Table.open(path, coordinator=self.coordinator) as table:
            table.detach()

    def _sql(self, text: str) -> None:
        sluice.sql(self.spark, text, coordinator=self.coordinator)
