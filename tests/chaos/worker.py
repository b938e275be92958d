"""A process of the run: `python -m tests.chaos.worker JSON`. Does its job over and over until its standard input ends.

Everything it tries, and every answer, goes into its diary before it goes on. Its seed decides what it tries.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import sluice
from sluice.coordinator.commit.outcomes import Commit

from .history import Diary
from .meaning import Step, digest, where

__all__ = ["SCHEMA", "Assignment", "Worker", "answer_of", "arrow"]

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("part", pa.string()), pa.field("value", pa.int64())])


@dataclass(frozen=True)
class Assignment:
    """What a process is to do: `role` is a job's name, `life` counts the processes of this name, `tables` are locations by name."""

    name: str
    role: str
    life: int
    seed: int
    diary: str
    coordinator: str
    tables: Mapping[str, str]
    storage_options: Mapping[str, str]
    patience_s: float
    pause_s: float
    folder: str

    @property
    def process(self) -> str:
        return f"{self.name}-{self.life}"

    def encode(self) -> str:
        return json.dumps(asdict(self))


def arrow(rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows as they are written in a step."""
    names, parts, values = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({"id": list(names), "part": list(parts), "value": list(values)}, schema=SCHEMA)


class Worker:
    """What every job has: its tables, its diary, its dice, and a way to try an operation and to write down what came of it."""

    def __init__(self, assignment: Assignment) -> None:
        self.to = assignment
        self.diary = Diary(Path(assignment.diary), assignment.process)
        self.dice = random.Random(f"{assignment.seed}/{assignment.process}")
        self.finish = threading.Event()
        self._tables: dict[tuple[str, str], sluice.Table] = {}
        threading.Thread(target=self._listen, name="chaos-finish", daemon=True).start()

    def _listen(self) -> None:
        sys.stdin.read()
        self.finish.set()

    def run(self, step: Callable[[Worker], None], end: Callable[[Worker], None] | None = None) -> None:
        """Do the job's step over and over, and its end once. What goes wrong before anything is tried is tried again."""
        while not self.finish.is_set():
            self._done(step)
            self.finish.wait(self.dice.uniform(0.3, 1.7) * self.to.pause_s)
        while end is not None and not self._done(end):
            time.sleep(self.to.pause_s)
        for table in self._tables.values():
            table.close()
        self.diary.note("done")

    def _done(self, step: Callable[[Worker], None]) -> bool:
        try:
            step(self)
        except (sluice.errors.Unavailable, sluice.errors.LeaseHeld, sluice.errors.LeaseLost) as away:
            self.diary.note("away", error=f"{type(away).__name__}: {away}"[:300], where=_where(away))
            return False
        return True

    def table(self, name: str, consistency: str = "latest") -> sluice.Table:
        key = (name, "published" if consistency == "published" else "")
        if key not in self._tables:
            self._tables[key] = sluice.Table.open(
                self.to.tables[name],
                coordinator=self.to.coordinator,
                storage_options=self.to.storage_options,
                consistency="published" if consistency == "published" else "latest",
                application=self.to.process,
                timeout_s=self.to.patience_s,
                ack="ratified" if self.dice.random() < 0.3 else "published",
            )
        return self._tables[key]

    def rows(self, operation: str, part: str, count: int, values: int = 100) -> list[list[Any]]:
        """Rows that tell by which operation they came."""
        return [[f"{operation}/{number}", part, self.dice.randrange(values)] for number in range(count)]

    # -- operations --------------------------------------------------------------------------------------------------

    def append(self, name: str, rows: Sequence[Sequence[Any]], number: tuple[str, int] | None = None) -> str:
        """A plain append, by itself or numbered by an application; returns the answer."""
        table = self.table(name)
        kind = "append" if number is None else "numbered append"
        operation = self.diary.begin(kind, {name: [{"do": "append", "rows": rows}]}, number=number)
        return self.answer(operation, name, lambda: table.append(arrow(rows), transaction=number), numbered=number is not None)

    def transact(
        self,
        kind: str,
        name: str,
        steps: Sequence[Step],
        *,
        isolation: str | None = None,
        scan: str | None = None,
        lease: str | None = None,
    ) -> str:
        """Steps on one table as one transaction."""
        table = self.table(name)
        operation = self.diary.begin(kind, {name: steps}, isolation=isolation, lease=lease)

        def work() -> Commit | None:
            begun = table.begin(isolation=isolation, timeout_s=self.to.patience_s)
            try:
                self.diary.note("filing", op=operation, id=begun.id)
                for step in steps:
                    perform(begun, step)
                if scan is not None:
                    begun.scan(where=scan)
                commit = self.persist(begun)
                assert not isinstance(commit, sluice.CommitInfo)
                return commit
            finally:
                self.diary.note("filing", op=operation, id=begun.id)

        return self.answer(operation, name, work)

    def persist(self, begun: sluice.Transaction | sluice.JointTransaction) -> Commit | sluice.CommitInfo | None:
        """Commit. Without an answer the worker gives up, repeats or takes it back: it never happens twice, nor after that."""
        try:
            return begun.commit()
        except (sluice.errors.OutcomeUnknown, sluice.errors.Unavailable):
            drawn = self.dice.random()
            if self.finish.is_set() or drawn < 0.3:
                raise
            if drawn < 0.5:
                begun.withdraw()  # after which `commit` raises Withdrawn, or tells that it was too late
            return begun.commit()

    def maintain(self, kind: str, name: str, work: Callable[[sluice.Table], Commit | None]) -> str:
        """Something that changes no row."""
        table = self.table(name)
        operation = self.diary.begin(kind, {name: []})
        return self.answer(operation, name, lambda: work(table))

    def answer(self, operation: str, name: str, work: Callable[[], Commit | None], *, numbered: bool = False) -> str:
        """Run an operation on one table, and write down what came of it."""

        def told() -> Mapping[str, Commit]:
            commit = work()
            return {} if commit is None else {name: commit}

        return self.answers(operation, told, numbered=numbered)

    def answers(self, operation: str, work: Callable[[], Mapping[str, Commit]], *, numbered: bool = False) -> str:
        """The same for an operation on several tables."""
        try:
            commits = work()
        except sluice.errors.SluiceError as error:
            answer = answer_of(error)
            told = {"error": f"{type(error).__name__}: {error}"[:400], "id": error.details.get("transaction_id") or ""}
            told["winner"] = error.details.get("winning_version")
            self.diary.note("end", op=operation, answer=answer, where=_where(error), **told)
            return answer
        if not commits:
            self.diary.note("end", op=operation, answer="nothing")
            return "nothing"
        any_commit = next(iter(commits.values()))
        self.diary.note(
            "end",
            op=operation,
            answer="committed",
            places={name: (each.version, each.ordinal) for name, each in commits.items() if each.version >= 0},
            # a number that was repeated is answered with the transaction that was there before
            id="" if numbered and any_commit.repeated else any_commit.transaction_id,
            repeated=any_commit.repeated,
            published=all(each.published for each in commits.values()),
        )
        return "committed"

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, name: str, level: str, *, pin_s: float = 0.0) -> int:
        """Read a table at a level, and write down what was shown; returns the version."""
        table = self.table(name, level)
        asked = time.monotonic()
        snapshot = table.snapshot(consistency=level)
        if pin_s:
            try:
                with snapshot.pin():
                    self.finish.wait(pin_s)
                    self.shown("pinned", asked, {name: snapshot})
            except sluice.errors.VersionNotFound:
                self.diary.note("too late to pin", version=snapshot.version)
        else:
            self.shown(level, asked, {name: snapshot})
        return snapshot.version

    def shown(self, level: str, asked: float, snapshots: Mapping[str, sluice.TableSnapshot]) -> None:
        """Read the rows of snapshots, and write down what they were. Files may be gone only after the time for which they are kept."""
        try:
            rows = {name: _rows_of(each) for name, each in snapshots.items()}
        except sluice.errors.MissingObject as missing:
            self.diary.note("expired", level=level, asked=asked, error=str(missing)[:300])
            return
        self.diary.note(
            "read",
            level=level,
            asked=asked,
            shown={name: (snapshots[name].version, digest(rows[name])) for name in rows},
            total=sum(value for each in rows.values() for _, _, value in each),
        )


def _where(error: BaseException) -> str:
    """The calls that an error came through, the innermost first."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return " < ".join(f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}" for frame in reversed(frames))


def _rows_of(snapshot: sluice.TableSnapshot) -> list[tuple[str, str, int]]:
    table = snapshot.to_arrow(["id", "part", "value"])
    return list(zip(*(table[name].to_pylist() for name in ("id", "part", "value")), strict=True))


def answer_of(error: sluice.errors.SluiceError) -> str:
    """What an error says is certain."""
    kinds: tuple[tuple[type[sluice.errors.SluiceError], str], ...] = (
        (sluice.errors.NotCommitted, "refused"),
        (sluice.errors.OutcomeUnknown, "unknown"),
        (sluice.errors.Unavailable, "unavailable"),
        (sluice.errors.MissingObject, "missing"),
    )
    return next((answer for kind, answer in kinds if isinstance(error, kind)), "broken")


def perform(begun: sluice.Transaction, step: Step) -> None:
    """Do a step in an open transaction, or in its part in one of several tables."""
    what = step["do"]
    if what == "append":
        begun.append(arrow(step["rows"]))
    elif what == "upsert":
        begun.upsert(arrow(step["rows"]), on="id")
    elif what == "overwrite":
        begun.overwrite(arrow(step["rows"]), where=where(step))
    elif what == "update":
        begun.update({"value": f"value + {step['add']}"}, where(step))
    else:
        begun.delete(where(step))


def main() -> None:
    from .jobs import ENDS, JOBS

    assignment = Assignment(**json.loads(sys.argv[1]))
    Worker(assignment).run(JOBS[assignment.role], ENDS.get(assignment.role))


if __name__ == "__main__":
    main()
