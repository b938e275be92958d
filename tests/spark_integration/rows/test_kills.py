"""A MERGE whose driver or task is killed, or whose ZooKeeper or store goes away, at each of its steps.

Goal: the table reads as before or as after the merge; the merge of the same key, repeated by somebody else, happens once; leases and
turns of the dead are given back; a vacuum removes what they left. Method: `faults`. The drivers that die share the tests' own JVM, so no
case starts another one. The JVM survives its drivers, as the executors of a cluster do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

import sluice
from sluice.coordinator.service.connect import release
from sluice.delta import DeltaTable
from tests.fixtures.spark_jvm import as_environment
from tests.fixtures.zookeeper import Proxy

from ..conftest import ROOT, Place
from . import faults
from .dying_driver import merge, opened

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("n", pa.int64())])
BEFORE = dict.fromkeys(range(100), 0)
AFTER = {number: int(number > 94) for number in range(3, 105)}
MORE = {1000: 0}
VECTORS = pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "copies"])
DECIDED = ("after-claim", "after-ratify", "before-publish", "after-publish", "after-raise", "before-ack")
UNDECIDED = (*faults.IN_DRIVER, *faults.IN_TASKS, "data-staged", "actions-staged", "before-claim", "before-ratify")
"""Commits that are alone file and decide in one: what dies before is not committed."""
SESSION_S = 4


@pytest.fixture
def table(place: Place) -> Iterator[Place]:
    """A place whose sessions end soon."""
    short = Place(place.spark, place.location, f"{place.coordinator}?session_timeout_s={SESSION_S}")
    yield short
    faults.forget(place.location)
    release(short.coordinator)


def filled(place: Place, *, vectors: bool) -> sluice.Table:
    made = place.create(SCHEMA, partition_by=["part"], properties={"delta.enableDeletionVectors": str(vectors).lower()})
    for start in (0, 50):
        made.append(rows(range(start, start + 50)))
    return made


def rows(ids: range | list[int]) -> pa.Table:
    return pa.Table.from_pylist([{"id": each, "part": each % 2, "n": 0} for each in ids], SCHEMA)


def held(location: str) -> dict[int, int]:
    """The rows as another engine reads the published table."""
    return counted(pl.read_delta(location).to_arrow())


def counted(found: pa.Table) -> dict[int, int]:
    ids, numbers = found["id"].to_pylist(), found["n"].to_pylist()
    assert len(set(ids)) == len(ids), "a row is there twice"
    return dict(zip(ids, numbers, strict=True))


def dies(place: Place, step: str, *, victim: str = "driver", holds: str = "", own_jvm: bool = False) -> None:
    """Run a driver that is killed at a step, or whose JVM is."""
    gateway = place.spark.sparkContext._gateway
    environment = {**os.environ, **({} if own_jvm else as_environment(gateway))}
    order = {"location": place.location, "coordinator": place.coordinator, "step": step, "victim": victim, "held": holds}
    command = [sys.executable, "-m", "tests.spark_integration.rows.dying_driver", json.dumps(order)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert faults.passed(place.location), f"{step} was not passed: {done.stderr}"
    if victim == "driver":
        assert done.returncode == -signal.SIGKILL, f"{step}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        assert "merged" not in done.stdout


def check_survivors(place: Place, table: sluice.Table, *, is_there: bool | None) -> None:
    """What must hold after a merge met a fault; `is_there`: whether it has to be committed (None: it may be)."""
    found = held(place.location)  # before anybody else helps
    assert found in (BEFORE, AFTER)
    began = time.monotonic()
    assert table.append(rows(list(MORE))) is not None
    assert time.monotonic() - began < 3 * SESSION_S, "an append waited for the dead"
    found = held(place.location)
    assert found in (BEFORE | MORE, AFTER | MORE)
    if is_there is not None:
        assert found == (AFTER if is_there else BEFORE) | MORE
    repeated = merge(DeltaTable.forPath(place.spark, place.location, coordinator=place.coordinator), place.spark, attempts=4)
    assert repeated == (0 if found == AFTER | MORE else 13)
    assert held(place.location) == AFTER | MORE
    assert [entry.operation for entry in table.refresh().history(None)].count("MERGE") == 1
    lease = table.lease(wait_s=3 * SESSION_S)
    lease.release()
    check_folder(table)


def check_folder(table: sluice.Table) -> None:
    """After a vacuum the folder has the table's files and no others."""
    folder = Path(table.location.removeprefix("file:"))
    table.compact()  # so that no version's files are those of the dead driver by chance
    deadline = time.monotonic() + 4 * SESSION_S
    while True:
        table.refresh().vacuum(retain_hours=0, force=True)
        there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        kept = {name for name in there if not name.startswith("_delta_log/")}
        staged = {name for name in there if "_staged_commits" in name}
        wanted = {Path(name).name for name in deltalake.DeltaTable(folder).file_uris()}
        if {Path(name).name for name in kept} == wanted and not staged:
            return
        assert time.monotonic() < deadline, f"left behind: {kept} {staged}, of which the table has {wanted}"
        time.sleep(0.5)


# -- the driver ----------------------------------------------------------------------------------------------------------


COPYING = (*faults.IN_COPYING_TASKS, *faults.STAGED)
"""Steps that a merge with deletion vectors does not take: it copies nothing."""
STEPS = [
    pytest.param(number, step, vectors, id=f"{step}-{'vectors' if vectors else 'copies'}")
    for vectors in (True, False)
    for number, step in enumerate([*UNDECIDED, *COPYING, *DECIDED])
    if not (vectors and step in COPYING)
]
STEPS.append(pytest.param(1, "after-claim", True, id="after-claim-vectors-turn"))  # the driver that dies holds a turn, too


@pytest.mark.long
@pytest.mark.parametrize(("number", "step", "vectors"), STEPS)
def test_a_driver_is_killed_at_any_step(table: Place, number: int, step: str, vectors: bool) -> None:
    holds = ("", "lease", "turn")[(number + vectors) % 3]
    made = filled(table, vectors=vectors)
    dies(table, step, holds=holds)
    check_survivors(table, made, is_there=step in DECIDED)


@pytest.mark.long
@pytest.mark.parametrize("step", ["source-kept", "task-begins", "task-ends", "results-taken", "applied", "before-claim"])
def test_the_jvm_of_a_driver_is_killed(table: Place, step: str) -> None:
    """The merge fails while it needs the JVM, and succeeds where it does not any more; Python goes on or ends, as it likes."""
    made = filled(table, vectors=True)
    dies(table, step, victim="jvm", own_jvm=True)
    check_survivors(table, made, is_there=None if step in ("applied", "before-claim") else False)


# -- tasks ---------------------------------------------------------------------------------------------------------------


def of_its_own(place: Place) -> Place:
    """The same, in a session that can end before others: what a living session's transactions wrote stays."""
    return Place(place.spark, place.location, f"{place.coordinator}&connect_timeout_s=20")


def in_this_driver(place: Place, monkeypatch: pytest.MonkeyPatch, step: str, what: str) -> Exception | None:
    """Merge here, with a fault at a step; what it raised."""
    for owner, name, value in faults.patches(place.location):
        monkeypatch.setattr(owner, name, value)
    table = opened(place.spark, place.location, place.coordinator, step)
    faults.plan(place.location, step, what)
    try:
        assert merge(table, place.spark, attempts=4) == 13
    except (sluice.errors.SluiceError, PySparkException, Py4JJavaError) as raised:
        return raised
    finally:
        assert faults.passed(place.location), f"{step} was not passed"
        monkeypatch.undo()
    return None


IN_TASKS = [
    pytest.param(step, vectors, marks=[pytest.mark.long] * ((step, vectors) != ("task-begins", True)))
    for step in faults.IN_TASKS
    for vectors in (True, False)
]


@pytest.mark.costly
@pytest.mark.parametrize(("step", "vectors"), IN_TASKS)
def test_a_task_is_killed_and_done_again(table: Place, step: str, vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled(table, vectors=vectors)
    own = of_its_own(table)
    assert in_this_driver(own, monkeypatch, step, "kill 0") is None
    release(own.coordinator)
    assert held(table.location) == AFTER
    check_survivors(table, made, is_there=True)


@pytest.mark.costly
@pytest.mark.parametrize("step", ["copy-begins", pytest.param("copy-ends", marks=pytest.mark.long)])
def test_a_task_that_copies_is_killed_and_done_again(table: Place, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled(table, vectors=False)
    own = of_its_own(table)
    assert in_this_driver(own, monkeypatch, step, "kill 0") is None
    release(own.coordinator)
    assert held(table.location) == AFTER
    check_survivors(table, made, is_there=True)


# -- ZooKeeper and the store go away -------------------------------------------------------------------------------------


@pytest.mark.long
@VECTORS
@pytest.mark.parametrize("away_s", [1.0, 3.0 * SESSION_S], ids=["shortly", "beyond-the-session"])
@pytest.mark.parametrize(
    "step", ["source-kept", "results-taken", "applied", "before-claim", "after-claim", "before-ratify", "after-ratify"]
)
def test_zookeeper_is_away(
    table: Place, step: str, away_s: float, vectors: bool, zookeeper_proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filled(table, vectors=vectors)
    far = table.behind(zookeeper_proxy)
    back = threading.Timer(away_s, zookeeper_proxy.restore)

    def cut(_: str, what: str) -> None:
        zookeeper_proxy.cut()
        back.start()

    monkeypatch.setattr(faults, "_happens", cut)
    in_this_driver(far, monkeypatch, step, "cut")
    back.join()
    release(far.coordinator)
    check_survivors(table, made, is_there=None)


@pytest.mark.long
@pytest.mark.parametrize("lost", ["request", "reply"])
@pytest.mark.parametrize("step", ["before-claim", "after-claim", "before-ratify", "after-ratify"])
def test_a_message_is_lost(table: Place, step: str, lost: str, zookeeper_proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of the commit does not arrive, or its answer does not."""
    made = filled(table, vectors=True)
    far = table.behind(zookeeper_proxy)
    arm = zookeeper_proxy.lose_request if lost == "request" else zookeeper_proxy.lose_reply
    monkeypatch.setattr(faults, "_happens", lambda _location, _what: arm())
    assert in_this_driver(far, monkeypatch, step, lost) is None
    release(far.coordinator)
    check_survivors(table, made, is_there=True)


AWAY = ["source-kept", "task-begins", "task-ends", "results-taken", "applied", "before-claim", "after-ratify"]


@pytest.mark.long
@VECTORS
@pytest.mark.parametrize("away_s", [1.0, 20.0])
@pytest.mark.parametrize("step", AWAY)
def test_the_store_is_away(table: Place, step: str, away_s: float, vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled(table, vectors=vectors)
    own, ended = of_its_own(table), threading.Event()

    def bring_back() -> None:
        while not Path(f"{table.location}.away").exists() and not ended.wait(0.05):
            continue
        ended.wait(away_s)
        faults.come_back(table.location)

    healer = threading.Thread(target=bring_back)
    healer.start()
    try:
        in_this_driver(own, monkeypatch, step, "away")
    finally:
        ended.set()
        healer.join()
    release(own.coordinator)
    check_survivors(table, made, is_there=None)
