"""Consumers that die by SIGKILL at every step of a batch, or sleep while another one takes over, on a real ZooKeeper.

Goal: the outputs have every row of the followed table, once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from tests.killed import until_ended
from tests.tables import consumer_program
from tests.tables.consumer_program import STEPS

pytestmark = pytest.mark.zookeeper

NUMBERS = pa.schema([("n", pa.int64())])
PATIENT_S = 240


def in_it(table: sluice.Table) -> list[int]:
    found: list[int] = table.refresh().snapshot().to_arrow()["n"].to_pylist()
    return sorted(found)


class Shop:
    """A table of `count` appends, in as many versions or in one of so many files, and two outputs."""

    def __init__(self, folder: Path, coordinator: str, count: int, *, one_version: bool = False) -> None:
        self.source, self.one, self.other = (sluice.Table.create(folder / each, NUMBERS, coordinator=coordinator) for each in "soa")
        self.count = count
        self.coordinator = coordinator
        self.limits = {"max_bytes": 1} if one_version else {}
        appends = [pa.table({"n": pa.array([number, number], pa.int64())}) for number in range(1, count + 1)]
        with self.source.begin() if one_version else nullcontext(self.source) as each:
            for some in appends:
                each.append(some)
        self.version = self.source.refresh().version

    def order(self, **more: Any) -> dict[str, Any]:
        # what is left of a killed instance ends with its session
        address = f"{self.coordinator}?session_timeout_s=4"
        outputs = [self.one.location, self.other.location]
        return {"source": self.source.location, "outputs": outputs, "coordinator": address, **self.limits, **more}

    def run(self, **more: Any) -> tuple[int, list[dict[str, Any]]]:
        """An instance until it ends: its exit status, and what it said."""
        done = until_ended(consumer_program.main, self.order(**more), limit_s=PATIENT_S)
        assert done.status in (0, -signal.SIGKILL), f"{done.status}: {done.output}{done.errors}"
        return done.status, [json.loads(line) for line in done.output.splitlines()]

    def require_all_once(self) -> None:
        every = sorted([*range(1, self.count + 1)] * 2)
        assert in_it(self.one) == in_it(self.other) == every
        [state] = self.source.consumers()
        assert (state.position, state.behind) == (self.version, 0)


@pytest.mark.costly
@pytest.mark.shows("consumer-killed")
@pytest.mark.parametrize(
    ("steps", "one_version"),
    [
        (STEPS[1::2], True),
        pytest.param(STEPS[::2], True, marks=pytest.mark.long),
        pytest.param(STEPS[1::2], False, marks=pytest.mark.long),
        pytest.param(STEPS[::2], False, marks=pytest.mark.long),
    ],
)
def test_a_consumer_killed_at_any_step_and_started_again(
    tmp_path: Path, zookeeper_address: str, steps: tuple[str, ...], one_version: bool
) -> None:
    """One after the other: each instance dies at another step of another batch, and the last one lives."""
    shop = Shop(tmp_path, zookeeper_address, len(steps) + 1, one_version=one_version)
    for number, step in enumerate(steps, start=1):
        status, said = shop.run(dies=step, at=number)
        assert status == -signal.SIGKILL, said
        assert said[-1] == {"doomed": step}
        assert in_it(shop.one) == in_it(shop.other)
    status, said = shop.run()
    assert (status, said[-1]) == (0, {"done": True})
    shop.require_all_once()


@contextmanager
def instance(shop: Shop, **more: Any) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A running instance, and what reads its next line."""
    command = [sys.executable, "-m", "tests.tables.consumer_program", json.dumps(shop.order(**more))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert process.stdout is not None
        output = process.stdout
        yield process, lambda: json.loads(output.readline())
    finally:
        process.kill()
        process.communicate(timeout=PATIENT_S)


@pytest.mark.costly
@pytest.mark.shows("consumer-stopped")
@pytest.mark.parametrize("step", ["before-ratify", pytest.param("batch-in-hand", marks=pytest.mark.long)])
def test_a_consumer_that_sleeps_while_another_one_takes_over(tmp_path: Path, zookeeper_address: str, step: str) -> None:
    """Two at once: the second one waits, takes over, and goes on beyond; the first one wakes up and commits nothing twice."""
    shop = Shop(tmp_path, zookeeper_address, 3)
    with instance(shop, dies=step, at=1, how="STOP") as (sleeper, heard):
        first = heard()
        assert first["position"] == -1
        assert heard() == {"doomed": step}
        status, said = shop.run(wait_s=PATIENT_S)
        assert (status, said[-1]) == (0, {"done": True})
        assert said[0]["token"] > first["token"]
        shop.require_all_once()
        sleeper.send_signal(signal.SIGCONT)
        assert heard() == {"heard": "LeaseLost"}
        assert heard() == {"done": True}
        assert sleeper.wait(PATIENT_S) == 0
    shop.require_all_once()
