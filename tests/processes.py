"""Finds the processes that a test session started, however far they have detached themselves.

Children inherit the environment, so a mark in it tells whose they are; the tree of parents would lose the servers that run on their own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MARK", "Process", "catches", "end_spark_gateway", "marked", "wait_for_end"]

MARK = "SLUICE_TEST_SESSION"

_HELPERS_OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""They belong to the interpreter and end with it."""


@dataclass(frozen=True, slots=True)
class Process:
    """A running process: its id and its command line."""

    pid: int
    command: str

    def kill(self) -> None:
        """End it at once; it may be gone already."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def marked(value: str, name: str = MARK) -> list[Process]:
    """The processes, other than this one, in whose environment that variable has `value`. Empty where there is no /proc. With MARK, those
    are left out that belong to the interpreter and end with it.
    """
    found = []
    wanted = f"{name}={value}".encode()
    helpers = _HELPERS_OF_PYTHON if name == MARK else ()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it ended while we looked, or is not ours
            continue
        if wanted in environment and int(folder.name) != os.getpid() and not any(helper in command for helper in helpers):
            found.append(Process(int(folder.name), command))
    return found


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, which would end it otherwise."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def wait_for_end(value: str, *, patience_s: float) -> list[Process]:
    """The marked processes that still run after `patience_s`; servers that stop with their last client need a moment."""
    deadline = time.monotonic() + patience_s
    while (left := marked(value)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def end_spark_gateway() -> None:
    """End the JVM that PySpark keeps for as long as the process lives, stopped sessions or not."""
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark is not None else None
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=30)
