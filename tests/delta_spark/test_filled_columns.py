"""Defaults and generated columns: what Delta Lake on Spark defined sluice fills in, and the other way round."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.storage.schema.datatypes import DEFAULT_KEY, GENERATED_KEY

from .engine import Delta, DeltaError

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("at", TIME),
        pa.field("day", pa.date32(), metadata={GENERATED_KEY: "CAST(at AS DATE)"}),
        pa.field("state", pa.string(), metadata={DEFAULT_KEY: "'new'"}),
    ]
)
MAY = datetime(2024, 5, 1, 23, tzinfo=timezone.utc)


def held(table: sluice.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(each.values()) for each in table.refresh().snapshot().to_arrow(["id", "day", "state"]).to_pylist())


def seen(delta: Delta, location: str) -> list[tuple[Any, ...]]:
    return sorted((each["id"], date.fromisoformat(each["day"]), each["state"]) for each in delta.read(location))


def row(number: int) -> pa.Table:
    return pa.table({"id": [number], "at": pa.array([MAY], TIME)})


def test_delta_lake_fills_in_what_sluice_defined(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    table = sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["day"], coordinator=zookeeper_address)
    table.append(row(1))
    assert seen(delta, table.location) == held(table) == [(1, MAY.date(), "new")]
    table.detach()
    name = f"delta.`{table.location}`"
    delta.sql(f"INSERT INTO {name} (id, at) VALUES (2, TIMESTAMP'2024-05-02 01:00:00')")
    with pytest.raises(DeltaError, match="Generated Column"):
        delta.sql(f"INSERT INTO {name} (id, at, day) VALUES (3, TIMESTAMP'2024-05-02 01:00:00', DATE'2024-05-01')")
    again = sluice.Table.attach(table.location, coordinator=zookeeper_address)
    again.append(row(4))
    assert seen(delta, table.location) == held(again) == [(1, MAY.date(), "new"), (2, date(2024, 5, 2), "new"), (4, MAY.date(), "new")]


def test_sluice_fills_in_what_delta_lake_defined(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    """Delta Lake's SQL takes GENERATED in named tables of some catalogs only; those columns are in the test above."""
    location = str(tmp_path / "t")
    delta.sql(
        f"""CREATE TABLE delta.`{location}` (id BIGINT, state STRING DEFAULT 'new', n INT DEFAULT 40 + 2) USING delta
            TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"""
    )
    delta.sql(f"INSERT INTO delta.`{location}` (id) VALUES (1)")
    table = sluice.Table.attach(location, coordinator=zookeeper_address)
    table.append(pa.table({"id": [2]}))
    table.update({"state": "'moved'", "n": "DEFAULT"}, "id = 1")
    assert delta.read(location) == [{"id": 1, "state": "moved", "n": 42}, {"id": 2, "state": "new", "n": 42}]
    assert "allowColumnDefaults" in table.detail().features
