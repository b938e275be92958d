"""Check the models of the commit protocol with Spin: `scripts/check-model [--quick | --mutations] [--only NAME]`.

Every run is compiled and searched completely in a temporary folder. One that stops early is no result: it fails, as does what
spin finds broken, and a statement that is reached in no run. Standard output ends with one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .runs import ALLOWED, MUTATIONS, RUNS, Run

HERE: Final = Path(__file__).resolve().parent
_MEMORY_MB: Final = 2800
_DEPTH: Final = 3_000_000
_TOOLS: Final = {"spin": "spin", "gcc": "gcc libc6-dev"}
_INVARIANT: Final = re.compile(r"\|\|\((\d+)==0\)\)")
_TRUNCATED: Final = ("max search depth too small", "out of memory", "reached -DMEMLIM bound", "Search not completed", "hash table is full")


@dataclass(frozen=True, slots=True)
class Found:
    """What one search came to. `broken` says what spin found, "" when nothing; `complete`: it saw every state."""

    states: int
    transitions: int
    depth: int
    seconds: float
    broken: str
    complete: bool
    unreached: frozenset[str]
    stated: frozenset[str] = frozenset()
    trail: str = ""

    @property
    def invariant(self) -> str:
        """The invariant that is broken, as "I7", or "" when it has no number."""
        if "acceptance cycle" in self.broken:
            return "I8"
        number = _INVARIANT.search(self.broken)
        return f"I{number[1]}" if number else ""


def missing_tools() -> list[str]:
    """The Debian packages that have to be installed before."""
    return [package for tool, package in _TOOLS.items() if shutil.which(tool) is None]


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def unreached(text: str) -> frozenset[str]:
    """The statements that pan says were not reached, as "proctype: file:line text"."""
    found: set[str] = set()
    where = ""
    for line in text.splitlines():
        heading = re.match(r"unreached in (?:proctype |claim )?(\S+)", line)
        statement = re.match(r'\t(\S+?:\d+), state \d+, "(.*)"$', line)
        if heading:
            where = heading[1]
        elif statement and where:
            found.add(f"{where}: {Path(statement[1]).name} {statement[2]}")
        elif not line.startswith("\t"):
            where = ""
    return frozenset(found)


def verdict_of(text: str, seconds: float, *, stated: frozenset[str] = frozenset(), trail: str = "") -> Found:
    problem = re.search(r"^pan:\d+: (.*)$", text, re.MULTILINE)
    errors = re.search(r"errors: (\d+)", text)
    truncated = next((sign for sign in _TRUNCATED if sign in text), "")
    broken = ""
    if errors is None:
        truncated = truncated or "no result"
    elif int(errors[1]):
        broken = problem[1] if problem else f"{errors[1]} errors"
    return Found(
        states=_number(r"(\d+) states, stored", text),
        transitions=_number(r"(\d+) transitions", text),
        depth=_number(r"depth reached (\d+)", text),
        seconds=seconds,
        broken=broken,
        complete=not truncated,
        unreached=unreached(text),
        stated=stated,
        trail=trail,
    )


def search(run: Run, folder: Path) -> Found:
    """Compile and run one search in an empty folder. Raises RuntimeError where a model or the program made of it is no good."""
    model = HERE / f"{run.model}.pml"
    defines = [f"-D{each}" for each in run.defines]
    _command(["spin", "-a", *defines, str(model)], folder)
    live = ["-DNFAIR=3", "-DNOREDUCE"] if run.claim else ["-DSAFETY", "-DNOCLAIM"]
    live += ["-DCOLLAPSE"] if run.compressed else []
    _command(
        [
            "gcc",
            "-O0" if run.quick or run.breaks else "-O2",
            "-w",
            "-DVECTORSZ=2048",
            f"-DMEMLIM={_MEMORY_MB}",
            *live,
            "-o",
            "pan",
            "pan.c",
        ],
        folder,
    )
    options = ["-a", "-f", "-N", run.claim] if run.claim else []
    begun = time.monotonic()
    done = subprocess.run(["./pan", f"-m{_DEPTH}", "-w25", *options], cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begun
    shown = ""
    if list(folder.glob("*.trail")):
        shown = subprocess.run(["./pan", "-r", f"{run.model}.pml.trail"], cwd=folder, capture_output=True, text=True, check=False).stdout
    return verdict_of(done.stdout + done.stderr, seconds, trail="\n".join(_steps(shown)))


def _command(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode or "Error:" in said:
        raise RuntimeError(f"{' '.join(words)}: {said}")


def _steps(trail: str) -> Iterable[str]:
    """The last steps of a counterexample."""
    steps = [line.strip()[:160] for line in trail.splitlines() if "proc " in line and "(goto)" not in line]
    return steps[-60:]


def judge(run: Run, found: Found) -> str:
    """Why a search is not what it has to be, or "" when it is."""
    if run.breaks:
        if not found.broken:
            return "nothing was found broken"
        return "" if found.invariant in run.breaks else f"{found.invariant or found.broken} is broken, not {' or '.join(run.breaks)}"
    if found.broken:
        return f"{found.invariant or 'broken'}: {found.broken}"
    return "" if found.complete else "the search is not complete"


def _searched(run: Run) -> Found:
    with tempfile.TemporaryDirectory(prefix="sluice-model-") as folder:
        return search(run, Path(folder))


def _never_reached(runs: Sequence[Run], results: Sequence[Found]) -> list[str]:
    """Statements that no run reached, though it might have."""
    left: list[str] = []
    for model in sorted({run.model for run in runs}):
        sets = [found.unreached for run, found in zip(runs, results, strict=True) if run.model == model]
        reached_nowhere = frozenset.intersection(*sets)
        left += sorted(each for each in reached_nowhere if not any(re.search(pattern, each) for pattern, _ in ALLOWED))
    return left


def main(words: Sequence[str] | None = None) -> int:
    """Run what is asked for; 0 when all of it is as it has to be."""
    parser = argparse.ArgumentParser(prog="scripts/check-model", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small runs only, a few seconds")
    parser.add_argument("--mutations", action="store_true", help="leave each check of the protocol out, and see spin notice")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="searches at a time (2)")
    options = parser.parse_args(words)
    missing = missing_tools()
    if missing:
        print(
            f"The model is checked with Spin and gcc. Please install them (Debian and Ubuntu: apt-get install {' '.join(missing)}).",
            file=sys.stderr,
        )
        return 2
    runs = [run for run in (MUTATIONS if options.mutations else RUNS) if options.only in run.name and (run.quick or not options.quick)]
    wide = max((len(run.name) for run in runs), default=4)
    print(f"{'run':<{wide}}  {'states':>10}  {'transitions':>11}  {'depth':>7}  {'seconds':>7}  result", flush=True)
    results: list[Found] = []
    problems = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for run, found in zip(runs, pool.map(_searched, runs), strict=True):
            results.append(found)
            problem = judge(run, found)
            problems += bool(problem)
            result = problem or (f"{found.invariant} broken, as it should be" if run.breaks else "holds")
            print(
                f"{run.name:<{wide}}  {found.states:>10}  {found.transitions:>11}  {found.depth:>7}  {found.seconds:>7.1f}  {result}",
                flush=True,
            )
            if problem and found.trail:
                print(found.trail)
    left = [] if options.mutations or options.only else _never_reached(runs, results)
    for each in left:
        print(f"never reached: {each}")
    told = {
        "configurations": len(runs),
        "states": sum(found.states for found in results),
        "transitions": sum(found.transitions for found in results),
        "violations": problems,
        "complete": all(found.complete for found in results) or options.mutations,
    }
    print(json.dumps(told))
    return 1 if problems or left or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
