"""Long runs: shared by processes they come to the same, and nothing of a seed remains in the next one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from .many import Tally, outcome_of
from .run import Plan, simulate
from .scheduler import Lock, Scheduler, TaskLocal

ROOT = Path(__file__).resolve().parent.parent.parent


def summary(*arguments: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.simulator", *arguments]
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    told: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.slow
def test_seeds_come_to_the_same_in_several_processes() -> None:
    assert summary("--first", "1", "--seeds", "2", "--workers", "2", "--no-shrink") == summary(
        "--first", "1", "--seeds", "2", "--no-shrink"
    )


def test_a_seed_does_not_know_what_ran_before_it() -> None:
    before = set(threading.enumerate())  # of which some may end meanwhile: tests before this one left them
    first = outcome_of(simulate(Plan(11)))
    for seed in (12, 13):
        simulate(Plan(seed))
    assert outcome_of(simulate(Plan(11))) == first
    assert set(threading.enumerate()) <= before


def test_outcomes_are_added_up() -> None:
    tally = Tally()
    results = [simulate(Plan(seed)) for seed in (21, 22)]
    for each in results:
        tally.add(outcome_of(each))
    assert tally.summary()["seeds"] == 2
    assert tally.summary()["steps"] == sum(each.steps for each in results)
    assert tally.summary()["faults"] == sum(len(each.faults) for each in results)


def test_order_locks_and_what_is_kept_per_thread() -> None:
    scheduler = Scheduler(1000)
    lock, local, seen = Lock(scheduler), TaskLocal(), list[tuple[str, float]]()

    def work(name: str, seconds: float) -> None:
        local.name = name
        with lock:
            scheduler.pause(seconds)
            seen.append((local.name, scheduler.now))

    scheduler.spawn(None, lambda: work("one", 2.0), "one")
    scheduler.spawn(None, lambda: work("other", 1.0), "other", delay=0.5)
    assert scheduler.run() == []
    assert seen == [("one", 2.0), ("other", 3.0)]


def test_who_waits_for_ever_is_told() -> None:
    scheduler = Scheduler(1000)
    lock = Lock(scheduler)

    def take() -> None:
        lock.acquire()

    scheduler.spawn(None, take, "has it")
    scheduler.spawn(None, take, "waits", delay=1.0)
    assert scheduler.run() == ["waits"]
