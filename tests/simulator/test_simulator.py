"""Some seeds of the simulator in every test run; `make simulate` runs as many as one likes."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from .history import Answer, LeaseTold
from .log import version_of
from .model import judge
from .run import Plan, Result, simulate

PER_TEST = 10
FOLDER = Path(__file__).resolve().parent


def _no_promise_is_broken(first: int) -> None:
    broken = {seed: simulate(Plan(seed)).violations for seed in range(first, first + PER_TEST)}
    assert {f"python -m tests.simulator --only {seed} --shrink": found for seed, found in broken.items() if found} == {}


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(10, 100, PER_TEST))])
def test_no_history_breaks_a_promise(first: int) -> None:
    _no_promise_is_broken(first)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 600, PER_TEST))
def test_no_history_of_many_breaks_a_promise(first: int) -> None:
    _no_promise_is_broken(first)


def test_a_seed_is_one_history() -> None:
    """Everything that happens comes from the seed: calls, answers, GUIDs, bytes, times."""
    one, other = simulate(Plan(7)), simulate(Plan(7))
    assert [str(call) for call in one.history.calls] == [str(call) for call in other.history.calls]
    assert _stored(one) == _stored(other)
    assert (one.steps, one.virtual_s, one.faults) == (other.steps, other.virtual_s, other.faults)


def _stored(result: Result) -> list[tuple[int, str, str, bytes | None]]:
    return [(stored.tick, stored.key, stored.by, stored.content) for table in result.history.tables for stored in table.stored]


@pytest.mark.parametrize("name", ["dice", "evidence", "garbage", "history", "log", "model", "operations", "rows", "several"])
def test_the_judge_knows_nothing_of_what_it_judges(name: str) -> None:
    imported = [
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert imported
    assert not [
        module
        for module in imported
        if module and module.split(".")[0] in ("sluice", "machine", "client", "run", "environment", "recording")
    ]


def test_the_judge_sees_what_is_lost() -> None:
    """A history whose log ends before the last version that was acknowledged is not let pass."""
    result = simulate(Plan(0))
    levels = [table.level for table in result.conditions.tables]
    assert judge(result.history, result.objects, levels, result.conditions.retention_s) == []
    told = result.history.tables[0]
    last = max(call.answer.commits[0].version for call in result.history.calls if call.answer is not None and 0 in call.answer.commits)
    told.stored = [stored for stored in told.stored if (version_of(stored.key) or 0) < last]
    found = judge(result.history, result.objects, levels, result.conditions.retention_s)
    assert any(sentence.startswith("lost:") for sentence in found), found


@pytest.mark.parametrize("repeats", [False, True])
def test_the_judge_knows_when_a_lease_was_in_the_way(repeats: bool) -> None:
    """Others hold a lease when a transaction is decided: that breaks no promise where it only repeats what was committed before."""
    result = simulate(Plan(0))
    told = result.history.tables[0]
    writes = {guid for call in result.history.calls if call.operation.kind == "write" for guid in call.filed}
    one = [verdict for verdict in told.verdicts if verdict.refusal is None and verdict.guid in writes][-1]
    if repeats:
        end = told.verdicts[-1]
        told.verdicts.append(replace(one, tick=end.tick + 2, generation=end.generation + 1, slot=0, repeats=True))
    decided = told.verdicts[-1].tick if repeats else one.tick
    told.leases.append(LeaseTold("leases/l-1", "exclusive", granted=decided - 1, gone=decided + 1))
    levels = [table.level for table in result.conditions.tables]
    found = judge(result.history, result.objects, levels, result.conditions.retention_s)
    assert [sentence.startswith(f"leases: Transaction(id='{one.guid}'") for sentence in found] == ([] if repeats else [True])


@pytest.mark.parametrize("batches", [0, 4])
@pytest.mark.parametrize("by", ["this call", "one before", "nobody"])
def test_the_judge_knows_when_time_went_by_with_what_others_gave_up(batches: int, by: str) -> None:
    """Who is not told in three seconds stood behind four batches whose owners were gone, or was forgotten."""
    result = simulate(Plan(0))
    told = result.history.tables[0]
    writes = [call for call in result.history.calls if call.operation.kind == "write" and call.filed and call.ended is not None]
    gone, call = writes[0], writes[-1]
    filed = "never-filed" if by == "nobody" else call.filed[0]
    call.answer, call.timeout_s, call.ended = Answer("unknown", transaction_id=filed), 3.0, call.began + 4
    if by == "one before":
        call.filed.clear()
    result.history.healed_s = call.began_s - 1.0
    told.verdicts += [replace(told.verdicts[0], tick=call.began + 1 + n, guid=gone.filed[0]) for n in range(batches)]
    levels = [table.level for table in result.conditions.tables]
    found = judge(result.history, result.objects, levels, result.conditions.retention_s)
    assert (f"liveness: {call}, after the last fault" in found) == (batches == 0 or by == "nobody")


@pytest.mark.slow
def test_the_command_ends_with_one_object() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulator", "--seeds", "2"], cwd=FOLDER.parent.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith('{"seeds": 2, "steps": ')
