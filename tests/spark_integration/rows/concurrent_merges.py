"""`python -m tests.spark_integration.rows.concurrent_merges --minutes 5 --drivers 3 --seed 1`: drivers merge into the same tables.

Each driver is a Spark application in a process of its own; all of them, and this process with appends and compactions, work on one
table after the other. Then `serial_order` judges each table, and the drivers' journals must agree with it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sluice
from sluice.coordinator.service.connect import release
from sluice.coordinator.service.embedded.lifecycle import join

from ..conftest import ROOT
from .merging_driver import PATIENCE_S, Task
from .model import Row
from .random_operations import TABLE, Operation, arrow, operation, rows
from .serial_order import Judge

LAYOUTS: Sequence[tuple[str, str, str, bool]] = (
    ("true", "WriteSerializable", "false", False),
    ("false", "Serializable", "true", True),
    ("true", "Serializable", "true", False),
    ("false", "WriteSerializable", "false", True),
)
"""Deletion vectors, level, change data files, partitioned."""
_APPEND_S = 1.0
_COMPACT_EVERY = 7


@dataclass
class Found:
    """What a run found, over all tables."""

    violations: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    """How the drivers' operations ended."""
    versions: Counter[str] = field(default_factory=Counter)
    """Versions by operation."""
    over_others: int = 0
    unseen: int = 0


def create(folder: Path, coordinator: str, seed: int) -> list[sluice.Table]:
    """The tables, each with some rows."""
    tables = []
    for number, (vectors, level, told, partitioned) in enumerate(LAYOUTS):
        properties = {"delta.enableDeletionVectors": vectors, "delta.isolationLevel": level, "delta.enableChangeDataFeed": told}
        table = sluice.Table.create(
            folder / f"t{number}", TABLE, partition_by=["p"] if partitioned else [], properties=properties, coordinator=coordinator
        )
        tables.append(table)
        for part in range(3):
            key = f"first{part}"
            table.append(arrow(rows(random.Random(f"{seed}/{number}/{part}"), key, 25)), key=key)
    return tables


def run(folder: Path, coordinator: str, *, seed: int, drivers: int, seconds: float, times: int | None = None) -> Found:
    """Have the drivers, each with a JVM of its own, work for so long or until each has changed each table so many times; and judge."""
    tables = create(folder, coordinator, seed)
    tasks = [
        Task(
            f"driver{number}",
            seed,
            coordinator,
            [table.location for table in tables],
            seconds / len(tables),
            times,
            str(folder / f"driver{number}.journal"),
            str(folder / "go"),
        )
        for number in range(drivers)
    ]
    processes = [start(task, folder) for task in tasks]
    try:
        _await_ready(tasks, processes, folder)
        Path(tasks[0].go).touch()
        appended = _beside(tables, processes, Path(tasks[0].journal), seed)
        for process in processes:
            process.wait(PATIENCE_S)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    found = Found()
    for task, process in zip(tasks, processes, strict=True):
        if process.returncode:
            found.violations.append(f"{task.who} ended with {process.returncode}: {_log(folder, task)[-3000:]}")
    for number, table in enumerate(tables):
        _judge(found, table, number, tasks, appended[number], seed)
    return found


def start(task: Task, folder: Path) -> subprocess.Popen[bytes]:
    """A driver in a process group of its own."""
    Path(task.journal).touch()
    with (folder / f"{task.who}.log").open("wb") as log:
        command = [sys.executable, "-m", "tests.spark_integration.rows.merging_driver", task.encode()]
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def _log(folder: Path, task: Task) -> str:
    return (folder / f"{task.who}.log").read_text(encoding="utf-8", errors="replace")


def _await_ready(tasks: Sequence[Task], processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not all("ready" in Path(task.journal).read_text() for task in tasks):
        for task, process in zip(tasks, processes, strict=True):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{task.who} did not begin: {_log(folder, task)}")
        time.sleep(0.1)


def _beside(
    tables: Sequence[sluice.Table], processes: Sequence[subprocess.Popen[bytes]], journal: Path, seed: int
) -> list[dict[str, list[Row]]]:
    """Append to the tables and compact them while the drivers work on them, as the first driver's journal says; the rows of the
    appends by key, for each table.
    """
    chance = random.Random(f"{seed}/beside")
    appended: list[dict[str, list[Row]]] = [
        {f"first{part}": rows(random.Random(f"{seed}/{number}/{part}"), f"first{part}", 25) for part in range(3)}
        for number in range(len(tables))
    ]
    turn = 0
    while any(process.poll() is None for process in processes):
        current = max((told["table"] for told in _lines(journal) if "table" in told), default=0)
        if turn % _COMPACT_EVERY == _COMPACT_EVERY - 1:
            try:
                tables[current].compact()
            except sluice.errors.ConcurrentModification:
                turn += 1  # without deletion vectors a change of the same files wins
                continue
        else:
            key = f"beside-{turn}"
            appended[current][key] = rows(chance, key, chance.randrange(1, 4))
            tables[current].append(arrow(appended[current][key]), key=key)
        turn += 1
        time.sleep(chance.random() * 2 * _APPEND_S)
    return appended


def _lines(journal: Path) -> list[dict[str, Any]]:
    """What a driver has told so far."""
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def _judge(found: Found, table: sluice.Table, number: int, tasks: Sequence[Task], appended: Mapping[str, list[Row]], seed: int) -> None:
    said: dict[str, dict[str, Any]] = {}
    operations: dict[str, Operation] = {}
    for task in tasks:
        for told in _lines(Path(task.journal)):
            if told.get("table") == number:
                operations[told["key"]] = operation(seed, task.who, told["number"])
                said[told["key"]] = told
            elif told.get("key") in said:
                said[told["key"]].update(told)
    judge = Judge(table, operations, appended)
    result = judge.follow()
    violations = list(result.violations)
    violations += [f"the append {key} is lost" for key in appended if key not in judge.versions]
    for key, told in said.items():
        violations += _contradictions(key, told, judge)
        found.ended[_ending(told)] += 1
    found.violations += [f"{table.location}: {each}" for each in violations]
    found.versions += result.replayed
    found.over_others += result.over_others
    found.unseen += result.unseen


def _ending(told: Mapping[str, Any]) -> str:
    if "lost" in told:
        return f"lost by {told['lost']}"
    return "unknown" if "affected" not in told else "committed" if told["affected"] else "changed nothing"


def _contradictions(key: str, told: Mapping[str, Any], judge: Judge) -> list[str]:
    """Differences between the answer that the driver got for an operation and the table's versions."""
    version = judge.versions.get(key)
    if "lost" in told and version is not None:
        return [f"{key} was refused, and is version {version}"]
    if "affected" in told and version is None:
        return [f"{key} changed {told['affected']} rows, and is not there"]
    if "affected" in told and told["affected"] != judge.changed[key]:
        return [f"{key}, version {version}, says that it changed {told['affected']} rows, not {judge.changed[key]}"]
    return []


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 when nothing is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark_integration.rows.concurrent_merges", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--drivers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None, help="decides what the drivers try (default: any)")
    asked = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="sluice-merges-"))
    membership = join(folder / "zookeeper")
    coordinator = f"zk://{membership.hosts}/merges"
    try:
        found = run(folder, coordinator, seed=seed, drivers=asked.drivers, seconds=asked.minutes * 60)
    finally:
        release(coordinator)
        membership.leave()
    for violation in found.violations:
        print(violation)
    if found.violations:
        print(f"the tables and journals are in {folder}")
    else:
        shutil.rmtree(folder)
    told = {"seed": seed, "violations": len(found.violations), "ended": dict(found.ended), "versions": dict(found.versions)}
    print(json.dumps({**told, "over others": found.over_others, "unseen rows of appends": found.unseen}))
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
