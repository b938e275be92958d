"""`make simulate SEEDS=1000`, or `python -m tests.simulator`: many seeds, then one JSON object on the last line.

    python -m tests.simulator --seeds 1000 [--first 0] [--workers 4]
    python -m tests.simulator --only 4711 [--faults w1:12,w0:3] [--without w1#3,w1#4] [--shrink] [--history]

A seed that fails prints what broke, is shrunk, and prints the one command that shows it again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import closing

from .many import Tally, each_of, outcome_of, prepare, run_one
from .run import Plan, Result
from .shrink import shrink

_SHRUNK_MAX = 3
_FIXED_HASHES = "0"
_TOLD_EVERY_S = 10.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description="Simulated runs, judged by an independent model.")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1, help="how many processes share the seeds")
    parser.add_argument("--only", type=int, help="run this seed alone")
    parser.add_argument("--faults", help="with --only: let only these faults happen (comma-separated names; '-' for none)")
    parser.add_argument("--without", default="", help="with --only: leave these operations out")
    parser.add_argument("--shrink", action="store_true", help="with --only: make a failing run smaller")
    parser.add_argument("--history", action="store_true", help="with --only: print every call")
    parser.add_argument("--no-shrink", action="store_true", help="tell failing seeds as they are")
    parser.add_argument("--stop-after", type=int, default=20, help="stop after so many failing seeds")
    return parser.parse_args()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name and name != "-")


def _command(plan: Plan) -> str:
    faults = "" if plan.faults is None else f" --faults {','.join(plan.faults) or '-'}"
    without = f" --without {','.join(sorted(plan.without))}" if plan.without else ""
    return f"python -m tests.simulator --only {plan.seed}{faults}{without} --history"


def _tell(result: Result) -> None:
    print(f"seed {result.seed}: {len(result.violations)} violations in {result.steps} steps with {len(result.faults)} faults")
    for violation in result.violations[:6]:
        print(f"  {violation[:600]}")


def _show(result: Result) -> None:
    print(f"seed {result.seed}: {result.steps} steps, {result.virtual_s:.1f} virtual s, {result.conditions}")
    for call in result.history.calls:
        print(f"{call.began:6} {call.ended or 0:6} {call.began_s:9.3f} {call.ended_s:9.3f}  {call}")
    print("faults:", ", ".join(f"{name} {kind}" for name, kind in result.faults))


def _shrunk(failed: Result) -> None:
    plan, smaller = shrink(failed, run_one)
    left = len(smaller.operations)
    print(f"  shrunk to {left} operations and {len(plan.faults or ())} faults: {smaller.violations[:1]}")
    print(f"  shows it again: {_command(plan)}", flush=True)


def _one(arguments: argparse.Namespace) -> int:
    faults = None if arguments.faults is None else _names(arguments.faults)
    result = run_one(Plan(arguments.only, faults, frozenset(_names(arguments.without))))
    if arguments.history:
        _show(result)
    if result.violations:
        _tell(result)
        if arguments.shrink:
            _shrunk(result)
    tally = Tally()
    tally.add(outcome_of(result))
    print(json.dumps(tally.summary()))
    return 1 if result.violations else 0


def _many(arguments: argparse.Namespace) -> int:
    begun = told = time.monotonic()
    tally = Tally()
    with closing(each_of(range(arguments.first, arguments.first + arguments.seeds), arguments.workers)) as outcomes:
        for outcome in outcomes:
            tally.add(outcome)
            if outcome.violations:
                result = run_one(Plan(outcome.seed))  # it is the same again
                _tell(result)
                if len(tally.failed) <= _SHRUNK_MAX and not arguments.no_shrink:
                    _shrunk(result)
            now = time.monotonic()
            if now - told > _TOLD_EVERY_S:
                told = now
                _progress(tally, arguments.seeds, now - begun)
            if len(tally.failed) >= arguments.stop_after:
                print(f"stopped after {len(tally.failed)} failing seeds")
                break
    print(f"{tally} in {time.monotonic() - begun:.0f} s", flush=True)
    print(json.dumps(tally.summary()))
    return 1 if tally.failed else 0


def _progress(tally: Tally, seeds: int, seconds: float) -> None:
    rate = tally.seeds / seconds
    left = (seeds - tally.seeds) / rate
    print(f"{tally} of {seeds} in {seconds:.0f} s: {rate:.1f} a second, {left // 60:.0f} min {left % 60:.0f} s left", flush=True)


def main() -> int:
    """Run what the command line asks for; 1 when something broke."""
    if os.environ.get("PYTHONHASHSEED") != _FIXED_HASHES:  # the order of sets of names is part of a history
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulator", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": _FIXED_HASHES})
    prepare()
    arguments = _arguments()
    return _many(arguments) if arguments.only is None else _one(arguments)


if __name__ == "__main__":
    sys.exit(main())
