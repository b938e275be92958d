"""The processes of a run: started, killed with all that they started, stopped and continued, replaced, and told to finish."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from .worker import Assignment

__all__ = ["Person", "Staff"]

_MARK = "SLUICE_CHAOS_PROCESS"
_LOG_TAIL_LINES = 12


@dataclass
class Person:
    """One process of a name; there may be several lives of it at once, when one was only taken for dead."""

    assignment: Assignment
    popen: subprocess.Popen[bytes]
    mark: str
    killed: bool = False
    paused: bool = False

    def pids(self) -> list[int]:
        """The process and all that it started, however far they detached themselves."""
        wanted, found = f"{_MARK}={self.mark}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended while we looked, or is not ours
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def signal(self, number: int) -> None:
        for pid in {self.popen.pid, *self.pids()} if self.popen.poll() is None else self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Staff:
    def __init__(self, folder: Path, run: str, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._run = run
        self._environment = environment
        self.people: list[Person] = []
        self.complaints: list[str] = []
        """Processes that ended as they should not have."""

    def hire(self, assignment: Assignment) -> Person:
        mark = f"{self._run}-{assignment.process}"
        module = "spark_worker" if assignment.role == "spark" else "worker"
        with (self._folder / f"{assignment.process}.log").open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.{module}", assignment.encode()],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self._environment, _MARK: mark},
                start_new_session=True,
            )
        person = Person(assignment, popen, mark)
        self.people.append(person)
        return person

    def of(self, name: str) -> Person:
        return next(person for person in reversed(self.people) if person.assignment.name == name)

    def kill(self, person: Person) -> None:
        """SIGKILL, for it and for what it started."""
        person.killed = True
        deadline = time.monotonic() + 10
        while person.pids() and time.monotonic() < deadline:
            person.signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                person.popen.wait(0.2)

    def pause(self, person: Person) -> None:
        person.paused = True
        person.signal(signal.SIGSTOP)

    def go_on(self, person: Person) -> None:
        person.paused = False
        person.signal(signal.SIGCONT)

    def look(self) -> list[Person]:
        """Those that ended by themselves since the last look, which they should not have; each is a complaint."""
        ended = [person for person in self.people if not person.killed and person.popen.poll() is not None]
        for person in ended:
            person.killed = True
            self.complaints.append(
                f"ended by itself: {person.assignment.process} with status {person.popen.returncode}: {self._words(person)}"
            )
        return ended

    def finish(self, roles: Collection[str], limit_s: float, told: Callable[[str], None]) -> None:
        """Tell all of some roles to finish what they are at, and see them end; those that do not are a complaint."""
        people = [person for person in self.people if person.assignment.role in roles]
        for person in people:
            if person.popen.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    person.popen.stdin.close()
        deadline = time.monotonic() + limit_s
        for person in people:
            try:
                status = person.popen.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                told(f"{person.assignment.process} did not finish within {limit_s:.0f} s")
                person.signal(signal.SIGABRT)  # faulthandler writes where it stands
                self.complaints.append(f"did not finish: {person.assignment.process}, {limit_s:.0f} s after everything was healed")
                self.kill(person)
                continue
            if status and not person.killed:
                self.complaints.append(f"ended badly: {person.assignment.process} with status {status}: {self._words(person)}")

    def close(self) -> None:
        """Kill whatever still runs."""
        for person in self.people:
            if person.popen.poll() is None or person.pids():
                self.kill(person)
            if person.popen.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    person.popen.stdin.close()

    def _words(self, person: Person) -> str:
        text = (self._folder / f"{person.assignment.process}.log").read_text(errors="replace")
        return " | ".join(text.splitlines()[-_LOG_TAIL_LINES:])
