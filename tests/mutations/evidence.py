"""What may notice that a check is missing: tests, small worlds, the simulator. Each is a process that fails when it does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from .catalogue import Check
from .tree import Copy

__all__ = ["Evidence", "Finding", "by_seeds", "by_tests", "by_worlds", "end_all", "evidence_for", "ran"]

_TEST_LIMIT_S = 40
_LIMIT_S = 240
_WORLD_S = 2.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - (.*))?$", re.MULTILINE)
_WORLD = re.compile(r"^VIOLATION in world (\S+) .*\n\s*(.*)$", re.MULTILINE)
_running: set[subprocess.Popen[str]] = set()
_SEED = re.compile(r"^(seed \d+): .*\n\s*(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A command that succeeds on the tree as it is: its kind ("tests", "worlds", "simulator"), and which of them it runs."""

    kind: str
    command: tuple[str, ...]
    names: tuple[str, ...]
    limit_s: float = _LIMIT_S


@dataclass(frozen=True, slots=True)
class Finding:
    """What a command made of a tree: who noticed something (nobody: it succeeded), what was said first, and for how long it ran."""

    noticed_by: tuple[str, ...]
    said: str
    took_s: float


def by_tests(names: Sequence[str], checks: Sequence[str], *, to_the_end: bool) -> Evidence:
    """Those of these tests, and of their parameters, that are marked with one of the checks, until the first that fails or to the end."""
    options = [
        "-q",
        "-rfE",
        "--tb=line",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-m",
        "not delta_spark and not clouds",  # the long ones, too
        f"--timeout={_TEST_LIMIT_S}",
        "-o",
        "timeout_method=signal",
    ]
    first = ("--notices", ",".join(checks), *(() if to_the_end else ("-x",)))
    return Evidence("tests", (sys.executable, "-m", "pytest", *options, *first, *names), tuple(names))


def by_seeds(seeds: str) -> Evidence:
    """These seeds of the simulator ("first..last"), until the first that breaks a promise."""
    first, last = map(int, seeds.split(".."))
    command = (
        sys.executable,
        "-m",
        "tests.simulator",
        "--first",
        str(first),
        "--seeds",
        str(last - first + 1),
        "--stop-after",
        "1",
        "--no-shrink",
    )
    return Evidence("simulator", command, (seeds,))


def by_worlds(names: Sequence[str]) -> Evidence:
    """These small worlds, as many interleavings of each as a few seconds of one core allow."""
    command = (sys.executable, "-m", "tests.mutations.worlds", str(_WORLD_S), *names)
    return Evidence("worlds", command, tuple(names))


def evidence_for(check: Check, tests: Sequence[str], *, to_the_end: bool) -> list[Evidence]:
    """What is expected to notice that a check is missing, the cheapest first."""
    found: list[Evidence] = []
    if tests:
        found.append(by_tests(tests, [check.name], to_the_end=to_the_end))
    if check.world:
        found.append(by_worlds([check.world]))
    if check.seeds:
        found.append(by_seeds(check.seeds))
    return found


def ran(evidence: Evidence, copy: Copy) -> Finding:
    """Run it on a copy. Raises RuntimeError when it could not be run at all: a test that is not there, a tree that does not import."""
    begun = time.monotonic()
    process = subprocess.Popen(
        evidence.command,
        cwd=copy.root,
        env={**copy.environment, "COLUMNS": "300"},  # pytest cuts what it says to the width it finds
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    _running.add(process)
    try:
        output, _ = process.communicate(timeout=evidence.limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Finding(evidence.names[:1], f"did not end within {evidence.limit_s:.0f} s", time.monotonic() - begun)
    finally:
        _running.discard(process)
    took_s = time.monotonic() - begun
    if process.returncode == 0:
        return Finding((), "", took_s)
    noticed = _noticed(evidence, output)
    if process.returncode != 1 or noticed is None:
        raise RuntimeError(f"{' '.join(evidence.command)} ended with {process.returncode}:\n{output[-3000:]}")
    return Finding(*noticed, took_s)


def end_all() -> None:
    """End what is being run, and all that it started."""
    for process in list(_running):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _noticed(evidence: Evidence, output: str) -> tuple[tuple[str, ...], str] | None:
    """Who noticed, and the first thing that was said; None when the output tells of nobody."""
    if evidence.kind == "tests":
        found = _FAILED.findall(output)
        return (tuple(dict.fromkeys(name for name, _ in found)), found[0][1]) if found else None
    told = (_SEED if evidence.kind == "simulator" else _WORLD).search(output)
    return ((told[1],), told[2]) if told else None
