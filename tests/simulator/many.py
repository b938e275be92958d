"""Many seeds, one after the other or in several processes; what they come to is added up, so that a long run keeps nothing of them."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import signal
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType

from .run import Plan, Result, simulate

_HANGS_S = 300
"""Real seconds after which one seed is taken to hang."""
_AT_ONCE = 4
"""Seeds that a process is given at a time."""
_AHEAD = 2
"""How many times as many are given out as there are processes."""


class Stuck(BaseException):
    """Raised in a simulated thread that waits for something real: nobody else runs meanwhile, so it would wait for ever."""


@dataclass(frozen=True)
class Outcome:
    seed: int
    steps: int
    faults: int
    answers: dict[str, int]
    violations: tuple[str, ...]


@dataclass
class Tally:
    seeds: int = 0
    steps: int = 0
    faults: int = 0
    violations: int = 0
    failed: list[int] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter[str])

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.steps += outcome.steps
        self.faults += outcome.faults
        self.answers.update(outcome.answers)
        self.violations += len(outcome.violations)
        if outcome.violations:
            self.failed.append(outcome.seed)

    def __str__(self) -> str:
        return f"{self.seeds} seeds, {len(self.failed)} failed"

    def summary(self) -> dict[str, int]:
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "faults": self.faults,
            "commits": self.answers["committed"],
            "refused": self.answers["refused"],
            "reads": self.answers["read"],
            "failed": self.answers["failed"],
            "unknown": self.answers["unknown"] + self.answers["crashed"],
            "violations": self.violations,
        }


def prepare() -> None:
    """Make this process fit for many seeds."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, _stuck)
    gc.freeze()


def _stuck(_signal: int, _frame: FrameType | None) -> None:
    raise Stuck(f"a seed took more than {_HANGS_S} s")


def run_one(plan: Plan) -> Result:
    """Run a seed; one that hangs is ended."""
    signal.alarm(_HANGS_S)
    try:
        return simulate(plan)
    finally:
        signal.alarm(0)


def outcome_of(result: Result) -> Outcome:
    return Outcome(result.seed, result.steps, len(result.faults), result.answers, tuple(result.violations))


def each_of(seeds: Iterable[int], workers: int) -> Generator[Outcome]:
    """What comes of each seed, in no order when there are several workers; closing it lets those end that have begun."""
    if workers <= 1:
        for seed in seeds:
            yield outcome_of(run_one(Plan(seed)))
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=prepare)
    try:
        waiting = iter(seeds)
        given: set[Future[list[Outcome]]] = set()
        while True:
            while len(given) < _AHEAD * workers and (part := list(islice(waiting, _AT_ONCE))):
                given.add(pool.submit(_some, part))
            if not given:
                return
            done, given = wait(given, return_when=FIRST_COMPLETED)
            for each in done:
                yield from each.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _some(seeds: Sequence[int]) -> list[Outcome]:
    return [outcome_of(run_one(Plan(seed))) for seed in seeds]
