"""What a run leaves in its folder, judged; as often as one likes, and without anything that ran.

==============  ====================================================================================================
facts.json      where the tables are, what went wrong how often, what was seen of the store and of the processes
schedule.json   the faults, as the seed decided them
history/        what each process wrote down (history.py)
kept/           what the store held in the end, by bucket
deleted/        what was deleted from it in the course of time
logs/           what each process had to say
==============  ====================================================================================================
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .history import History, read_history
from .judge import Judge
from .rawlog import Folders, LogReader, Wrong

__all__ = ["Verdict", "judge_folder"]

_PLANNED = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-[89ab][0-9a-f]{3}-00[0-9a-f]{10}")
"""The id of a transaction that one process plans and another may commit (decision 0007); its digits name the plan's node."""

_MOVES = "/moves/"
"""In the keys of objects that say where a compaction moved rows."""


@dataclass(frozen=True)
class Verdict:
    violations: list[str]
    faults: dict[str, int]
    effects: dict[str, int]
    """What faults did: requests and connections that were hit."""
    operations: dict[str, Counter[str]]
    """Answers, by kind of operation."""
    reads: Counter[str]
    versions: int
    transactions: int
    consumed: int
    """Batches that the named consumer reported as consumed."""
    stall_s: float
    """The longest time in which no writer was told of a commit, while things were being broken."""
    longest_s: float
    """The longest call of a writer that was committed."""
    left_by_plans: int
    """Files of plans that nobody ended, because their process died: they stay until the plan is old."""


def judge_folder(folder: Path) -> Verdict:
    """Read everything that a run left, and judge it."""
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    history = read_history(folder / "history")
    judge = Judge(history, kept_s=facts["kept_s"], follows=facts["follows"], clustered=facts["clustered"])
    judge.violations += facts["complaints"]
    versions = left = 0
    for name, location in facts["locations"].items():
        place = location.removeprefix("s3://")
        objects = Folders(folder / "kept" / place, folder / "deleted" / place)
        reader, table = LogReader(objects, chained=True), judge.table(name)
        try:
            for version in reader.versions():
                table.take(version)
                versions += 1
        except Wrong as wrong:
            judge.violations.append(f"log: {name}: {wrong}")
            continue
        judge.violations += [f"missing: {name} needs {key}, which is not there" for key in sorted(reader.needed - objects.live)]
        orphans = sorted(_orphans(objects.live - reader.named))
        planned = [key for key in orphans if _plan_in(key) in facts["open_plans"]]
        left += len(planned)
        judge.violations += [f"orphan: {name} {key} is named by no version" for key in orphans if key not in planned]
        judge.violations += _foreign(name, folder / "kept" / place, reader)
    violations = judge.finish()
    operations: dict[str, Counter[str]] = defaultdict(Counter)
    for each in history.operations.values():
        operations[each.kind][each.answer or "died"] += 1
    stall_s, longest_s = _stalls(history, facts)
    return Verdict(
        violations,
        facts["faults"],
        facts["effects"],
        operations,
        Counter(read.level for read in history.reads),
        versions,
        sum(len(table.places) for table in judge.tables.values()),
        sum(each["event"] == "consumed" for each in history.other),
        stall_s,
        longest_s,
        left,
    )


def _plan_in(key: str) -> str:
    """The name of the plan whose file this is; empty if it is no plan's."""
    found = _PLANNED.search(key)
    return "".join(found.groups()) if found else ""


def _orphans(unnamed: frozenset[str] | set[str]) -> Iterator[str]:
    """Data files, vectors and staged actions that no version names. What says where rows went is kept as long as replaced files are."""
    for key in unnamed:
        if _MOVES not in key and (not key.startswith("_delta_log/") or key.startswith("_delta_log/_staged_commits/")):
            yield key


def _foreign(name: str, place: Path, reader: LogReader) -> list[str]:
    """Whether delta-rs reads the same rows; by its SQL engine, for its reader of single files does not apply deletion vectors."""
    deltalake: Any = import_module("deltalake")
    try:
        table = deltalake.DeltaTable(str(place))
        found = deltalake.QueryBuilder().register("t", table).execute("SELECT id, part, value FROM t").read_all()
        columns = [found[column].to_pylist() if hasattr(found[column], "to_pylist") else list(found[column]) for column in range(3)]
    except Exception as error:  # noqa: BLE001 - an engine that cannot read the table is a finding
        return [f"foreign: delta-rs cannot read {name}: {type(error).__name__}: {error}"]
    rows = Counter(zip(*columns, strict=True))
    expected = Counter((row, part, value) for row, (part, value) in reader.rows.items())
    wrong = sorted((rows - expected) + (expected - rows))[:3]
    return [f"foreign: delta-rs reads {name} with other rows, such as {wrong}"] if wrong else []


def _stalls(history: History, facts: Mapping[str, Any]) -> tuple[float, float]:
    told = [each for each in history.operations.values() if each.answer == "committed" and facts["began"] <= each.ended <= facts["healed"]]
    ends = sorted([each.ended for each in told] + ([facts["healed"]] if told else []))
    gaps = [later - earlier for earlier, later in itertools.pairwise(ends)]
    return max(gaps, default=facts["healed"] - facts["began"]), max((each.ended - each.begun for each in told), default=0.0)
