"""What does deciding cost? One commit against one that came first, and against ten thousand of them.

``python -m benchmarks.engine --commits 10000 --files 10`` makes a history of that many commits, each with that many added files
(every tenth removes one too), and lets several kinds of transaction meet it through the pure engine that decides every commit
(`coordinator.rules.rebase`). No coordinator, no store and no file of data has a part in it. The history's commits and the
transaction's conditions are parsed beforehand; what that took is told apart.

Every verdict is compared with the one that the history was made for. One JSON object per measurement goes to standard
output, everything else to standard error.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table as Grid

from sluice.coordinator.rules.conflicts import Conflict
from sluice.coordinator.rules.intent import IsolationLevel, Kind
from sluice.coordinator.rules.read_scope import ReadScope
from sluice.coordinator.rules.rebase import Candidate, check_against, check_against_all
from sluice.coordinator.rules.winner import Footprint, Winner, winner_of
from sluice.storage.actions import AddFile, DeletionVector, RemoveFile, decode_commit, encode_all
from sluice.storage.data.vectors import Rows, plan_vector, read_vector
from sluice.storage.stores.memory import MemoryStore

from .report import percentile, warn_when_busy

__all__ = ["Case", "Measured", "cases", "history", "main", "measure"]

PARTITIONS: Final = {"day": "date", "region": "string"}
COLUMNS: Final = {"id": '"long"', "at": '"timestamp"', "name": '"string"', "amount": '"decimal(10,2)"'}
FIRST_DAY: Final = date(2024, 1, 1)
REGIONS: Final = 20
ROWS: Final = 1000
"""Rows of each file; the ids of the history run on from file to file, from 0."""
ONE_WINNER_US: Final = 50.0
ALL_WINNERS_S: Final = 1.0
A_WINNER_OF_MANY_FILES_MS: Final = 10.0
"""A change of 10,000 files is looked through for each commit that it meets."""

_console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Case:
    """A transaction, and which commit of the history it is meant to be stopped by, with the rule (None: by none)."""

    name: str
    attempt: Candidate
    rule: str | None = None
    stopped_by: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement. With one winner, `p50_us` and `p99_us` are of single decisions, by the clock, each on a winner whose statistics
    nobody has parsed; with many, `seconds` is the processor time for all of them, with all threads: the engine waits for nothing,
    and what others did meanwhile is not its cost."""

    measure: str
    case: str
    winners: int
    files: int
    verdict: str
    sound: bool
    goal: str
    reached: bool
    p50_us: float | None = None
    p99_us: float | None = None
    seconds: float | None = None
    parsing_s: float | None = None


def _day(number: int) -> str:
    return (FIRST_DAY + timedelta(days=number // 100)).isoformat()


def _add(number: int, place: int, files: int) -> AddFile:
    """A file of the commit `number`: 100 commits a day, one region each."""
    first = (number * files + place) * ROWS
    day = _day(number)
    low = {"id": first, "at": f"{day}T00:00:00.000Z", "name": "aaa", "amount": 0.01}
    high = {"id": first + ROWS - 1, "at": f"{day}T23:59:59.999Z", "name": "zzz", "amount": 999.99}
    body = {"numRecords": ROWS, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
    partition = {"day": day, "region": f"r{number % REGIONS}"}
    return AddFile(f"day={day}/part-{number:06d}-{place:03d}.parquet", partition, 1 << 20, 0, True, json.dumps(body))


def _lines(number: int, files: int) -> bytes:
    """The log file of a commit: most append blindly, every tenth rewrites a file that nobody else has."""
    rewrites = number % 10 == 9
    info = {"operation": "UPDATE" if rewrites else "WRITE", "isBlindAppend": not rewrites, "operationParameters": {"mode": "Append"}}
    removes = [RemoveFile(f"part-old-{number:06d}.parquet", True, 0)] if rewrites else []
    adds = [_add(number, place, files) for place in range(files)]
    return json.dumps({"commitInfo": info}).encode() + b"\n" + encode_all([*removes, *adds])


def history(commits: int, files: int) -> tuple[list[Winner], float]:
    """The winners, versions 1 and up, and how long it took to parse them."""
    texts = [_lines(number, files) for number in range(commits)]
    begun = time.perf_counter()
    winners = [winner_of(number + 1, tuple(decode_commit(text, name=str(number + 1)))) for number, text in enumerate(texts)]
    return winners, time.perf_counter() - begun


def _attempt(name: str, footprint: Footprint) -> Candidate:
    return Candidate(transaction_id=name, operation=name, footprint=footprint, level=IsolationLevel.SERIALIZABLE)


def _reading(name: str, *predicates: str, **more: Any) -> Candidate:
    """A change of rows that read under these conditions, at the strictest level."""
    told: dict[str, Any] = {"removes": ("part-mine.parquet",), "read_files": ("part-mine.parquet",), **more}
    return _attempt(
        name, Footprint(predicates=predicates, partition_types=PARTITIONS, column_types=COLUMNS, kind=Kind.CHANGE.value, **told)
    )


def cases(commits: int, files: int) -> list[Case]:
    """What meets the history. All but the last two stand."""
    last = commits * files * ROWS
    ids = ", ".join(str(-n) for n in range(1, 201))
    many = tuple(f"part-mine-{n:05d}.parquet" for n in range(500))
    rewriter = commits - 1 - commits % 10
    return [
        Case("append", _attempt("WRITE", Footprint(blind_append=True, kind=Kind.APPEND.value))),
        Case("delete of an old partition", _reading("DELETE", "day = DATE '2023-12-31' AND region IN ('r1', 'r2', 'r3')")),
        Case("delete of old rows, by statistics", _reading("DELETE", "at < TIMESTAMP '2023-12-31 00:00:00Z'")),
        Case("update of a range within a partition", _reading("UPDATE", "region = 'r3' AND id BETWEEN -100 AND -1 AND amount > 5")),
        Case("merge on 200 keys", _reading("MERGE", f"id IN ({ids}) OR (region = 'nowhere' AND name LIKE 'q%')")),
        Case("rewrite of 500 files", _reading("UPDATE", "region = 'nowhere'", removes=many, read_files=many)),
        Case("delete that meets new rows", _reading("DELETE", f"id >= {last - 1}"), "appended-what-i-read", commits),
        Case(
            "update of a file that is gone",
            _reading("UPDATE", "id < 0", read_files=(f"part-old-{rewriter:06d}.parquet",)),
            "removed-what-i-read",
            rewriter + 1,
        ),
    ]


def _no_vectors(vector: DeletionVector) -> Rows:
    raise LookupError(f"no deletion vector was meant to be read, and {vector.unique_id} was")


def _verdict(met: Candidate | Conflict) -> tuple[str | None, int | None]:
    return (met.rule.name, met.winner.version) if isinstance(met, Conflict) else (None, None)


def _told(rule: str | None, version: int | None) -> str:
    return "stands" if rule is None else f"{rule} at {version}"


def _parse_conditions(attempt: Candidate) -> float:
    """Have the transaction's conditions parsed; how long that took."""
    begun = time.perf_counter()
    footprint = attempt.footprint
    ReadScope.of(footprint.predicates, footprint.partition_types, footprint.column_types)
    return time.perf_counter() - begun


def measure(case: Case, winners: Sequence[Winner], repeat: int) -> Measured:
    """Let a transaction meet all winners, one after the other; the best of several times."""
    parsing = _parse_conditions(case.attempt)
    took: list[float] = []
    met: Candidate | Conflict = case.attempt
    for _ in range(repeat):
        begun = time.process_time()
        met = check_against_all(case.attempt, winners, _no_vectors)
        took.append(time.process_time() - begun)
    rule, version = _verdict(met)
    return Measured(
        "all-winners",
        case.name,
        len(winners),
        sum(len(winner.adds) for winner in winners),
        _told(rule, version),
        (rule, version) == (case.rule, case.stopped_by),
        f"<= {ALL_WINNERS_S:g} s",
        min(took) <= ALL_WINNERS_S,
        seconds=round(min(took), 4),
        parsing_s=round(parsing, 4),
    )


def _measure_one(case: Case, winners: Sequence[Winner]) -> Measured:
    """Let a transaction meet each winner alone."""
    parsing = _parse_conditions(case.attempt)
    took, wrong = [], []
    for winner in winners:
        begun = time.perf_counter_ns()
        met = check_against(case.attempt, winner, _no_vectors)
        took.append((time.perf_counter_ns() - begun) / 1000)
        if (_verdict(met)[0] is not None) != (winner.version == case.stopped_by):
            wrong.append(winner.version)
    return _of_singles(case.name, took, len(winners[0].adds), f"wrong at {wrong[:3]}" if wrong else "as expected", not wrong, parsing)


def _of_singles(name: str, took: list[float], files: int, verdict: str, sound: bool, parsing: float) -> Measured:
    took.sort()
    p50 = percentile(took, 0.5)
    return Measured(
        "one-winner",
        name,
        len(took),
        files,
        verdict,
        sound,
        f"p50 <= {ONE_WINNER_US:g} us",
        p50 <= ONE_WINNER_US,
        p50_us=p50,
        p99_us=percentile(took, 0.99),
        parsing_s=round(parsing, 4),
    )


def _deletion(file: AddFile, rows: Rows) -> tuple[RemoveFile, AddFile]:
    """The actions by which rows of a file are listed as deleted."""
    vector, _ = plan_vector(rows, owner="bench")
    after = AddFile(file.path, file.partition_values, file.size, 0, True, file.stats, deletion_vector=vector)
    return RemoveFile(file.path, True, 0, partition_values=file.partition_values, size=file.size), after


def _changing(files: Sequence[AddFile], rows: Rows) -> Candidate:
    """A change of these rows in each of the files."""
    actions = [action for file in files for action in _deletion(file, rows)]
    removes = tuple(file.path for file in files)
    footprint = Footprint(predicates=("id >= 0",), partition_types=PARTITIONS, column_types=COLUMNS, row_level=True, removes=removes)
    return Candidate("bench", "DELETE", footprint, IsolationLevel.WRITE_SERIALIZABLE, encode_all(actions), tuple(actions))


class _Vectors:
    """Deletion vectors as a committer has them: parsed once, and kept."""

    def __init__(self) -> None:
        self._store, self._rows = MemoryStore("memory://bench"), dict[str, Rows]()

    def __call__(self, vector: DeletionVector) -> Rows:
        if vector.unique_id not in self._rows:
            self._rows[vector.unique_id] = read_vector(self._store, vector)
        return self._rows[vector.unique_id]

    def after(self, met: Candidate | Conflict) -> list[Rows]:
        """The deleted rows of each file that an attempt adds; none of one that may not commit."""
        added = [action for action in met.each() if isinstance(action, AddFile)] if isinstance(met, Candidate) else []
        return [self(action.deletion_vector) for action in added if action.deletion_vector]


def _measure_rows(times: int) -> Measured:
    """Two deletions of different rows of one file: the second one's deletion vector takes in the first one's."""
    file = _add(0, 0, 1)
    winner = winner_of(1, _deletion(file, Rows([1, 2, 3])))
    attempt, lookup = _changing([file], Rows([10, 11])), _Vectors()
    met: Candidate | Conflict = attempt
    took: list[float] = []
    for _ in range(times):
        begun = time.perf_counter_ns()
        met = check_against(attempt, winner, lookup)
        took.append((time.perf_counter_ns() - begun) / 1000)
    sound = lookup.after(met) == [Rows([1, 2, 3, 10, 11])]
    return _of_singles("deletions of different rows of one file", took, 1, "united" if sound else "NOT united", sound, 0.0)


def _measure_many_vectors(files: int, commits: int) -> Measured:
    """A change of rows in very many files meets commits that each changed another row of one of them: how long the queue waits for it."""
    changed = [_add(number, 0, 1) for number in range(files)]
    attempt, lookup = _changing(changed, Rows([10, 11])), _Vectors()
    step = files // commits
    winners = [winner_of(number + 1, _deletion(changed[number * step], Rows([1]))) for number in range(commits)]
    begun = time.process_time()
    met = check_against_all(attempt, winners, lookup)
    seconds = time.process_time() - begun
    rows = lookup.after(met)
    sound = len(rows) == files and rows.count(Rows([1, 10, 11])) == commits
    return Measured(
        "many-vectors",
        f"change of rows in {files:,} files",
        commits,
        files,
        "united" if sound else "NOT united",
        sound,
        f"<= {A_WINNER_OF_MANY_FILES_MS:g} ms each",
        seconds * 1000 <= A_WINNER_OF_MANY_FILES_MS * commits,
        seconds=round(seconds, 4),
    )


@click.command(help="Measure what it costs to decide whether a transaction may be committed.")
@click.option("--commits", type=click.IntRange(20), default=10_000, show_default=True, help="Commits that came first.")
@click.option("--files", type=click.IntRange(1), default=10, show_default=True, help="Files that each of them added.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="How often each measurement is made; the best counts.")
@click.option("--json-only", is_flag=True, help="Say no more on standard error than the verdict and warnings.")
def main(commits: int, files: int, repeat: int, json_only: bool) -> None:
    """Measure each case both ways, print the numbers, end with 1 when a verdict is wrong."""
    _console.quiet = json_only
    warn_when_busy()
    _console.print(f"[bold]engine[/]: a history of {commits} commits with {files} files each, Python {sys.version.split()[0]}")
    winners, parsing_s = history(commits, files)
    _console.print(f"[bold]engine[/]: parsed in {parsing_s:.1f} s; no other commit is parsed from here on")
    gc.freeze()  # the history is not looked through again whenever objects are collected
    found = [_measure_rows(2000), _measure_many_vectors(10_000, 500)]
    for case in cases(commits, files):
        found += [_measure_one(case, winners[-2000:]), measure(case, winners, repeat)]
    for each in found:
        print(json.dumps(asdict(each)), flush=True)
    _show(found)
    print(_summed_up(found), file=sys.stderr)
    sys.exit(0 if all(each.sound for each in found) else 1)


def _show(found: Sequence[Measured]) -> None:
    grid = Grid("transaction", "one: p50 us", "p99 us", "all: s", "verdict")
    for case in dict.fromkeys(each.case for each in found):
        one, *every = (each for each in found if each.case == case)
        last = every[-1] if every else one
        grid.add_row(case, str(one.p50_us), str(one.p99_us), "" if last.seconds is None else str(last.seconds), last.verdict)
    _console.print(grid)


def _summed_up(found: Sequence[Measured]) -> str:
    wrong = [f"{each.case} ({each.measure}): {each.verdict}" for each in found if not each.sound]
    if wrong:
        return "verdict: FAILED, decided wrongly: " + "; ".join(wrong)
    slowest_us = max(each.p50_us or 0.0 for each in found)
    slowest_s = max(each.seconds or 0.0 for each in found)
    goals = "reached" if all(each.reached for each in found) else "MISSED"
    return (
        f"verdict: ok, every decision is right; the slowest kind takes {slowest_us:g} us against one commit"
        f" and {slowest_s:g} s against all (goals: {ONE_WINNER_US:g} us and {ALL_WINNERS_S:g} s, {A_WINNER_OF_MANY_FILES_MS:g} ms a commit"
        f" for very many files, {goals})"
    )


if __name__ == "__main__":
    main()
