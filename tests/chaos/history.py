"""What processes write down while things break, each into a file of its own, and how it is read again.

One line of JSON for each event, on the disk (fsync) before the process goes on. Times are those of the machine's monotonic
clock, which all its processes share.

=========  ==============================================================================================================
begin      an operation is about to be tried: `does` says what it means, by table (meaning.py)
filing     its transaction has this id; written before it is filed
end        the answer: "committed" (with places), "nothing", "refused", "unavailable", "unknown", "missing" or "broken"
read       rows were shown: version and digest by table, at which level, asked when
held       a lease was granted, and the version read after it; `stood`: it was still held after that version was read
input      rows that a stream is given
followed   a table that notes the changes of another one has those of all versions up to this one
asked      what `outcome` said in the end
=========  ==============================================================================================================
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .meaning import Step

__all__ = ["UNNAMED", "Asked", "Diary", "Held", "History", "Operation", "Read", "lines_of", "read_history"]


UNNAMED = -1
"""The ordinal in an answer that names the version alone, as those of SQL."""


class Diary:
    """The file of one process."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._count = 0

    def begin(self, kind: str, does: Mapping[str, Sequence[Step]], **facts: Any) -> str:
        """An operation is about to be tried; returns its name."""
        name = self.next_name()
        self.note("begin", op=name, kind=kind, does=does, **facts)
        self._count += 1
        return name

    def next_name(self) -> str:
        """The name that the next operation will have, for rows that tell it."""
        return f"{self.process}.{self._count}"

    def note(self, event: str, **facts: Any) -> None:
        """Write a line, and see it on the disk."""
        facts.setdefault("t", time.monotonic())
        os.write(self._file, json.dumps({"event": event, "process": self.process, **facts}).encode() + b"\n")
        os.fsync(self._file)


@dataclass
class Operation:
    """One operation; `answer` is "" when its process never told."""

    name: str
    process: str
    kind: str
    does: dict[str, list[Step]]
    begun: float
    number: tuple[str, int] | None = None
    isolation: str | None = None
    lease: str | None = None
    ids: list[str] = field(default_factory=list)
    answer: str = ""
    ended: float = float("inf")
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    repeated: bool = False
    published: bool = True
    error: str = ""
    winner: int | None = None
    """The version for which it was refused, if it was for one."""

    @property
    def is_open(self) -> bool:
        """Whether it may or may not have been committed, as far as its process knows."""
        return self.answer in ("", "unknown")


@dataclass(frozen=True)
class Read:
    """Rows that were shown: version and digest by table."""

    process: str
    level: str
    asked: float
    shown: dict[str, tuple[int, str]]
    total: int | None


@dataclass
class Held:
    """A lease: nobody else's conflicting commit is in the versions (since, until] of the table."""

    process: str
    mode: str
    table: str
    part: str
    since: int
    until: int


@dataclass(frozen=True)
class Asked:
    """What `outcome` said of a transaction."""

    id: str
    state: str
    places: dict[str, tuple[int, int]]


@dataclass
class History:
    operations: dict[str, Operation] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    inputs: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    drained: bool = False
    followed: dict[str, int] = field(default_factory=dict)
    """The version of its source up to which a table that follows another one has everything, by its name."""
    asked: list[Asked] = field(default_factory=list)
    other: list[dict[str, Any]] = field(default_factory=list)


def read_history(folder: Path) -> History:
    """All files of a folder. A line that a killed process did not finish is its last one, and does not count."""
    history = History()
    for path in sorted(folder.glob("*.jsonl")):
        for line in lines_of(path):
            _take(history, line)
    return history


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of one diary that are whole."""
    *whole, _unfinished = path.read_bytes().split(b"\n")
    return map(json.loads, whole)


def _take(history: History, line: dict[str, Any]) -> None:
    event = line["event"]
    if event == "begin":
        number = line.get("number")
        history.operations[line["op"]] = Operation(
            line["op"],
            line["process"],
            line["kind"],
            line["does"],
            line["t"],
            number=None if number is None else (number[0], number[1]),
            isolation=line.get("isolation"),
            lease=line.get("lease"),
        )
    elif event in ("filing", "end"):
        _take_answer(history.operations[line["op"]], line)
    elif event == "read":
        shown = {table: (version, text) for table, (version, text) in line["shown"].items()}
        history.reads.append(Read(line["process"], line["level"], line["asked"], shown, line.get("total")))
    elif event == "stood":
        history.held.append(Held(line["process"], line["mode"], line["table"], line["part"], line["since"], line["until"]))
    elif event == "input":
        history.inputs[line["name"]] = [(name, part, value) for name, part, value in line["rows"]]
    elif event == "drained":
        history.drained = True
    elif event == "followed":
        history.followed[line["table"]] = max(line["version"], history.followed.get(line["table"], -1))
    elif event == "asked":
        history.asked.append(Asked(line["id"], line["state"], _places(line)))
    else:
        history.other.append(line)


def _take_answer(operation: Operation, line: dict[str, Any]) -> None:
    if line.get("id") and line["id"] not in operation.ids:
        operation.ids.append(line["id"])
    if line["event"] == "end":
        operation.answer, operation.ended, operation.places = line["answer"], line["t"], _places(line)
        operation.repeated, operation.published = line.get("repeated", False), line.get("published", True)
        operation.error, operation.winner = line.get("error", ""), line.get("winner")


def _places(line: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {table: (version, ordinal) for table, (version, ordinal) in line.get("places", {}).items()}
