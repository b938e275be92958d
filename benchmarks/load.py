"""Runs the writer processes of one system, and gathers what they were told."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .systems.base import Target

__all__ = ["Load", "Transaction", "Writers"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_LEAD_S: Final = 0.5
"""From the word to the start: long enough for the word to reach everybody."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One append: who, which, and when by time.monotonic. `acknowledged` is None when the writer was never answered."""

    writer: int
    sequence: int
    begun: float
    acknowledged: float | None
    version: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """What the writers did between `start` and `deadline`, and after it to finish.

    `ended` is when the last writer had its last answer (or was killed) and everything acknowledged was published. How
    long the processes take to leave after that is not the system's doing, so it is not counted.
    """

    start: float
    deadline: float
    ended: float
    transactions: tuple[Transaction, ...]
    cpu_ms_per_transaction: float = 0.0
    """Processor time of the writer processes, all threads, for each transaction; it depends less on a busy machine than rates do."""


class Writers:
    """The writer processes of one system, from their start to their end; a context that kills those that remain."""

    def __init__(self, system: str, target: Target, count: int) -> None:
        self._files = [Path(target.folder) / f"writer-{number}.jsonl" for number in range(count)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])}
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.writer", system, str(number), target.to_json(), str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for number, file in enumerate(self._files)
        ]

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def warm_up(self) -> None:
        """Wait until everybody has opened the table, then let one after the other append once: nobody starves before the clock runs."""
        for process in self._processes:
            _expect(process, "opened")
        for process in self._processes:
            _tell(process, "warm")
            _expect(process, "ready")

    def run(self, seconds: float, grace_s: float, await_published: Callable[[int], None]) -> Load:
        """Write for `seconds`; writers that have not finished `grace_s` after that are killed."""
        start = time.monotonic() + _LEAD_S
        deadline = start + seconds
        for process in self._processes:
            _tell(process, f"{start} {deadline}")
        stuck = [process for process in self._processes if not _is_done(process, deadline + grace_s)]
        for process in stuck:
            process.kill()
        transactions = tuple(each for number, file in enumerate(self._files) for each in _read(number, file))
        await_published(max((each.version for each in transactions if each.version is not None), default=-1))
        ended = time.monotonic()
        for process in self._processes:
            if process.wait() != 0 and process not in stuck:
                raise SystemExit(f"a writer ended with status {process.returncode}; its own message is above")
        return Load(start, deadline, ended, transactions, _cpu_ms(self._files))


def _is_done(process: subprocess.Popen[str], until: float) -> bool:
    """Whether the writer finishes in time. One that fails closes its output, and counts as done: its status tells."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
    if ready and process.stdout.readline().strip() != "done":
        process.wait()
    return bool(ready)


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def _expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    if (said := process.stdout.readline().strip()) != line:
        raise SystemExit(f"a writer said {said!r} instead of {line!r}; its own message is above")


def _read(writer: int, file: Path) -> list[Transaction]:
    """Each transaction has a line when it begins and a second one when it is acknowledged; the second one wins."""
    found: dict[int, Transaction] = {}
    for line in file.read_text().splitlines():
        told = json.loads(line)
        if isinstance(told, dict):
            continue
        sequence, begun, *answer = told
        acknowledged, version = answer or (None, None)
        found[sequence] = Transaction(writer, sequence, begun, acknowledged, version)
    return list(found.values())


def _cpu_ms(files: Sequence[Path]) -> float:
    """Processor time per transaction, of the writers that came to their end."""
    told = [json.loads(line) for file in files for line in file.read_text().splitlines()[-1:]]
    ended = [each for each in told if isinstance(each, dict)]
    spent, made = (sum(float(each[name]) for each in ended) for name in ("cpu_s", "transactions"))
    return 1000 * spent / max(1.0, made)
