"""A stream from one table into another whose driver is killed in the middle: the second table has each row of the first once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import sluice

from ..conftest import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.long, pytest.mark.timeout(900)]

SCHEMA = pa.schema([("id", pa.int64())])
PATIENCE_S = 240.0


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": list(range(first, first + count))}, schema=SCHEMA)


def copied(target: Path, coordinator: str) -> list[int]:
    """What the second table has; nothing before it is made."""
    try:
        table = sluice.Table.open(target, coordinator=coordinator)
    except sluice.InvalidRequest:
        return []
    ids: list[int] = table.snapshot().to_arrow()["id"].to_pylist()
    return sorted(ids)


def test_a_copying_driver_that_is_killed_again_and_again(zookeeper_address: str, tmp_path: Path) -> None:
    source, target, checkpoint = tmp_path / "source", tmp_path / "target", tmp_path / "checkpoint"
    table = sluice.Table.create(source, SCHEMA, coordinator=zookeeper_address)
    command = [sys.executable, "-m", "tests.spark_integration.data_source.stream_driver", str(source), str(target)]
    command += [zookeeper_address, str(checkpoint)]
    count = 0
    for _ in range(2):
        for _ in range(6):
            table.append(rows(count, 10))
            count += 10
        driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            before, end = len(copied(target, zookeeper_address)), time.monotonic() + PATIENCE_S
            while len(copied(target, zookeeper_address)) < before + 20:
                assert driver.poll() is None or len(copied(target, zookeeper_address)) >= before + 20, "it ended without a batch"
                assert time.monotonic() < end, "no batch came"
                time.sleep(0.01)
        finally:
            driver.kill()
            driver.wait()
        table.append(rows(count, 10))
        count += 10
        table.compact("minor")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert "done" in done.stdout
    assert copied(target, zookeeper_address) == list(range(count))
