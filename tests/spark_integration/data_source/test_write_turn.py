"""A Spark write that lost has its turn when the job is run again under its application's name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import sluice
from sluice.coordinator.nodes.lease_records import TURN, LeaseNode
from sluice.coordinator.nodes.lease_records import Place as LeasePlace
from sluice.spark_integration.data_source.write_turn import Asked, kept
from sluice.spark_integration.errors import original

from ..conftest import Place

SECONDS = 3.0


@contextmanager
def busy(place: Place) -> Iterator[list[float]]:
    """Somebody who changes the same rows all the time; when each commit was done."""
    stop, done = threading.Event(), [time.monotonic()]

    def write() -> None:
        table = place.table()
        while not stop.is_set():
            try:
                table.update({"v": "v + 1"}, "k = 'a'")
                done.append(time.monotonic())
            except sluice.ConcurrentModification:
                continue
            time.sleep(0.05)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(60)


def turns(place: Place) -> list[str]:
    """The turns that are reserved on the table."""
    context = place.table().coordinated.context
    at = LeasePlace.of_table(context.tree).leases
    nodes = [context.coordination.read(f"{at}/{name}") for name in context.coordination.children(at) or ()]
    return [LeaseNode.understood(node.data).name for node in nodes if node is not None and LeaseNode.understood(node.data).mode == TURN]


def slowly(rows: Iterable[Any]) -> Iterator[Any]:
    time.sleep(SECONDS)
    yield from rows


def test_a_long_write_gets_through_when_it_is_run_again(place: Place) -> None:
    first = place.spark.createDataFrame([("a", 1), ("b", 2)], "k string, v long").coalesce(1)
    place.write(first, partitionBy="k")
    rows = place.spark.createDataFrame([("a", 1_000_000)], "k string, v long").coalesce(1)
    slow = place.spark.createDataFrame(rows.rdd.mapPartitions(slowly), rows.schema)
    options = {"replaceWhere": "k = 'a'", "application": "nightly"}
    with busy(place) as commits:
        with pytest.raises(PySparkException) as failed:
            place.write(slow, "overwrite", **options)
        lost = original(failed.value)
        assert isinstance(lost, sluice.ConcurrentModification)
        assert "its next attempt has its turn" in lost.message
        assert turns(place) == [], "a job that is not run again blocks nobody"
        before = len(commits)
        place.write(slow, "overwrite", **options)
        pauses = [later - earlier for earlier, later in pairwise([*commits[before - 1 :], time.monotonic()])]
        assert max(pauses) > 0.8 * SECONDS, "the others waited while the tasks wrote"
    assert turns(place) == []
    assert place.table().snapshot().to_arrow(where="k = 'a'")["v"][0].as_py() >= 1_000_000


def test_a_turn_ends_with_the_process_it_is_kept_for(place: Place) -> None:
    place.write(place.spark.range(3))
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    address = place.table().access.address
    asked = Asked(address, None, "after 1 loss", wait_s=20, lasts_s=600, until_gone=owner.pid)
    [path] = kept(asked)
    assert turns(place) == ["after 1 loss"]
    assert kept(replace(asked, wait_s=0.2)) == (), "another one does not get it in time"
    owner.kill()
    owner.wait(30)
    session = place.table().coordinated.context.coordination
    deadline = time.monotonic() + 30
    while session.read(path) is not None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert turns(place) == []


def test_a_turn_is_reserved_beside_the_lease_of_its_own_write(place: Place) -> None:
    place.write(place.spark.range(3))
    table = place.table()
    asked = Asked(table.access.address, None, "after 2 losses", wait_s=5, lasts_s=600, until_gone=os.getpid())
    with table.lease() as held:
        assert kept(replace(asked, wait_s=0.2)) == (), "somebody else's lease is waited for"
        began = time.monotonic()
        turn = kept(replace(asked, leases=tuple(held.reference.split(","))))
        assert len(turn) == 1
        assert time.monotonic() - began < 30
        table.coordinated.context.coordination.delete(turn[0])


def test_a_keeper_that_outlives_the_plan_is_no_trouble_at_its_end(tmp_path: Path) -> None:
    """Nor does one that ended stay behind as a zombie while the process goes on."""
    (tmp_path / "keeps.py").write_text("import sys; sys.stdin.read(); print('[\"a turn\"]', flush=True)")
    program = """
import os, sys, time
from pathlib import Path
from sluice.spark_integration.data_source import write_turn
from sluice.tables.client.address import TableAddress
asked = write_turn.Asked(TableAddress.of(sys.argv[1], None), None, "after 1 loss", 1, 1, os.getpid())
write_turn._KEEPER = "keeps"
assert write_turn.kept(asked) == ("a turn",)
deadline = time.monotonic() + 20
children = Path(f"/proc/self/task/{os.getpid()}/children")
while children.exists() and children.read_text().split() and time.monotonic() < deadline:
    time.sleep(0.05)
assert not children.exists() or not children.read_text().split(), "it is a zombie"
(Path(sys.argv[1]) / "keeps.py").write_text("import sys, time; sys.stdin.read(); print('[]', flush=True); time.sleep(3)")
write_turn.kept(asked)
"""
    paths = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-B", "-W", "error::ResourceWarning", "-c", program, str(tmp_path)]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
