"""Three tables in a row, each the copy of the one before by a stream that merges its changes: the last one equals the first.

Meanwhile the first one is appended to, deleted from, updated and compacted, and all are vacuumed of everything that they replaced.
In another test the driver of both streams is killed at random moments.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import sluice

from ..conftest import ROOT, Place
from ..data_source.streaming import SLOW_START
from .chain import END_OF_FAILURE, NAMES, Chain, changes

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

PATIENCE_S = 300.0


def vacuum(tables: list[sluice.Table]) -> int:
    """Remove everything that only former versions need; how many files that were."""
    return sum(len(table.vacuum(0, force=True).garbage) for table in tables)


def settle(chain: Chain, place: Place, queries: dict[str, Any]) -> None:
    """Wait until each query has read what there is, the first one first."""
    for number, target in enumerate(NAMES[1:]):
        for attempt in range(5):
            try:
                queries[target].processAllAvailable()
                break
            except StreamingQueryException as failed:
                if SLOW_START not in str(failed) or attempt == 4:
                    raise
                queries[target] = chain.start(place.spark, NAMES[number], target)


@pytest.mark.long
def test_the_last_of_three_tables_equals_the_first(place: Place, tmp_path: Path) -> None:
    chain = Chain(str(tmp_path), place.coordinator)
    tables = chain.create()
    changing = changes(tables[0], random.Random(1))
    for _ in range(2):
        next(changing)
    queries = chain.start_both(place.spark)
    try:
        gone = 0
        for more in (5, 1):
            for _ in range(more):
                next(changing)
            for query in queries.values():
                query.processAllAvailable()
            assert chain.rows("second") == chain.rows("first") != []
            assert chain.rows("third") == chain.rows("first")
            gone += vacuum(tables)
    finally:
        for query in queries.values():
            query.stop()
    assert gone > 3


def until(met: Callable[[], bool], driver: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not met():
        assert driver.poll() is None, "the driver ended by itself"
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_chain_whose_driver_is_killed_at_random(zookeeper_address: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    chain = Chain(str(tmp_path), zookeeper_address, files=3)
    tables = chain.create()
    changing = changes(tables[0], dice)
    command = [sys.executable, "-m", "tests.spark_integration.streams.chain", json.dumps(asdict(chain))]

    def third() -> int:
        return tables[2].refresh().snapshot().version

    for _ in range(2):
        for _ in range(2):
            for _ in range(dice.randint(2, 6)):
                next(changing)
            before = third()
            driver = subprocess.Popen(command, cwd=ROOT)
            try:
                until(lambda: third() > before, driver)  # noqa: B023 - called here only
                time.sleep(dice.uniform(0, 2))  # the moment of the kill
            finally:
                driver.kill()
                driver.wait()
        driver = subprocess.Popen(command, cwd=ROOT)
        try:
            for name in NAMES[1:]:
                until(lambda: chain.rows(name) == chain.rows("first"), driver)  # noqa: B023
            vacuum(tables)
        finally:
            driver.kill()
            driver.wait()
    failures = Path(chain.failures).read_text().split(END_OF_FAILURE)[:-1] if Path(chain.failures).exists() else []
    assert all(SLOW_START in failure for failure in failures), failures
