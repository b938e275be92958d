"""BEGIN ATOMIC ... END whose driver is killed at each of its steps: all of it or nothing, and the same block repeated happens once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.service.connect import release
from tests.fixtures.spark_jvm import as_environment

from ...spark_integration.conftest import ROOT
from ...spark_integration.rows import faults
from .conftest import Warehouse
from .dying_block import AFTER, BEFORE, run

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.slow]

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64())])
NOTHING = (*faults.IN_DRIVER, *faults.IN_TASKS, "before-claim")
DECIDED = ("after-claim", "before-ratify", "after-ratify", "before-publish", "after-publish", "after-raise", "before-ack")
STEPS = [pytest.param(each, marks=() if each == "after-claim" else pytest.mark.long) for each in (*NOTHING, *DECIDED)]
SESSION_S = 4
MORE = (50, 0)
"""A row that no statement of the block reads or changes."""


@pytest.fixture
def short(warehouse: Warehouse) -> Iterator[str]:
    """The coordinator, whose sessions end soon."""
    address = f"{warehouse.coordinator}?session_timeout_s={SESSION_S}"
    yield address
    release(address)


def held(tables: list[sluice.Table]) -> tuple[list[tuple[Any, ...]], ...]:
    """The rows of both tables at one moment."""
    return tuple(sorted(tuple(row.values()) for row in each.to_arrow().to_pylist()) for each in sluice.read_together(tables))


@pytest.mark.costly
@pytest.mark.parametrize("step", STEPS)
def test_a_block_is_all_or_nothing(warehouse: Warehouse, short: str, step: str) -> None:
    tables = [
        warehouse.made(f"sales.{name}", SCHEMA, *rows, properties={"delta.enableDeletionVectors": str(name == "seats").lower()})
        for name, rows in zip(("bookings", "seats"), BEFORE, strict=True)
    ]
    places = {name: each.location for name, each in zip(("bookings", "seats"), tables, strict=True)}
    order = {"tables": places, "coordinator": short, "step": step}
    environment = {**os.environ, **as_environment(warehouse.spark.sparkContext._gateway)}
    command = [sys.executable, "-m", "tests.statements.spark.dying_block", json.dumps(order)]
    try:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
        assert faults.passed(places["seats"]), f"{step} was not passed: {done.stderr}"
        assert done.returncode == -signal.SIGKILL, f"{step}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        opened = [sluice.Table.open(each, coordinator=short) for each in places.values()]
        for each in opened:
            each.append(pa.table({"id": [MORE[0]], "n": [MORE[1]]}, schema=SCHEMA))  # decides what the dead one left in the queue
        found = held(opened)
        assert found == tuple(sorted([MORE, *rows]) for rows in (AFTER if step in DECIDED else BEFORE))
        run(warehouse.spark, places, short)
        assert held(opened) == tuple(sorted([MORE, *rows]) for rows in AFTER)
        assert [each.refresh().version for each in opened] == [3, 3]
    finally:
        faults.forget(places["seats"])
