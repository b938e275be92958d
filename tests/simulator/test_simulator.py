"""Some seeds of the simulator in every test run; `make simulate` runs as many as one likes."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.coordinator.formats import RENDERING
from sluice.coordinator.nodes.layout import TableTree

from .history import Answer
from .log import commit_key
from .model import NEWEST_RENDERING, judge
from .run import Plan, Result, World, simulate

PER_TEST = 10
FOLDER = Path(__file__).resolve().parent


def _no_promise_is_broken(first: int) -> None:
    broken = {seed: simulate(Plan(seed)).violations for seed in range(first, first + PER_TEST)}
    assert {f"python -m tests.simulator --only {seed} --shrink": found for seed, found in broken.items() if found} == {}


def test_no_history_breaks_a_promise() -> None:
    _no_promise_is_broken(0)


@pytest.mark.long
@pytest.mark.parametrize("first", range(10, 600, PER_TEST))
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


def test_the_judge_knows_the_newest_rendering() -> None:
    assert NEWEST_RENDERING == RENDERING


@pytest.mark.parametrize("name", ["dice", "evidence", "garbage", "history", "log", "model", "model_operations", "rows", "several"])
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


def _content(world: World, changes: dict[str, object]) -> None:
    """Somebody writes other numbers into the head of the first table."""
    session, path = world.coordination.connect(), TableTree(world.history.tables[0].location).head
    node = session.read(path)
    assert node is not None
    session.write(path, json.dumps({**json.loads(node.data), **changes}).encode(), version=node.version)


def _moved_back(world: World) -> None:
    _content(world, {"version": 0})


def _replaced(world: World) -> None:
    world.machines[0].store_at(world.history.tables[0].location).put(commit_key(1), b"{}")


def _forgotten(world: World) -> None:
    del world.coordination.witness._log[world.history.tables[0].location, commit_key(1)]


def _misreported(world: World) -> None:
    answered = [call for call in world.history.calls if call.answer is not None and call.answer.kind == "committed"]
    answered[0].answer = Answer("refused", reason="somebody says so")
    world.coordination.witness.told(answered[0])


_WRONG: dict[str, tuple[str, Callable[[World], None]]] = {
    "the head goes back": ("I1: ", _moved_back),
    "a version is replaced": ("I5: ", _replaced),
    "a version is forgotten": ("I2: ", _forgotten),
    "an answer is wrong": ("I12: ", _misreported),
}


@pytest.mark.parametrize("name", _WRONG)
def test_the_judge_sees_every_request_and_every_answer(name: str) -> None:
    noticed, wrong = _WRONG[name]

    def prepare(world: World) -> None:
        def step() -> None:
            if world.history.tables[0].published and len(world.history.calls) > 20:
                world.scheduler.spawn(world.machines[0], lambda: wrong(world), "wrong")
            else:
                world.scheduler.at(world.scheduler.now + 0.5, step)

        world.scheduler.at(1.0, step)

    found = simulate(Plan(0, faults=()), prepare).violations
    assert found
    assert found[0].startswith(noticed), found


@pytest.mark.parametrize("batches", [0, 4])
@pytest.mark.parametrize("by", ["this call", "one before", "nobody"])
def test_the_judge_knows_when_time_went_by_with_what_others_gave_up(batches: int, by: str) -> None:
    """A transaction without an answer after three seconds waited behind four batches of dead owners, or was forgotten."""
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


@pytest.mark.parametrize("batches", [0, 4])
@pytest.mark.parametrize("level", ["serial", "latest"])
def test_the_judge_knows_when_a_serial_read_decided_what_others_gave_up(batches: int, level: str) -> None:
    """A serial read of three seconds may fail behind four batches whose owners were gone; other reads do not wait for them."""
    result = simulate(Plan(0))
    told = result.history.tables[0]
    gone = next(call for call in result.history.calls if call.operation.kind == "write" and call.filed and call.ended is not None)
    call = [each for each in result.history.calls if each.operation.kind == "read" and each.ended is not None][-1]
    call.operation = replace(call.operation, options={**call.operation.options, "level": level})
    call.answer, call.timeout_s, call.ended = Answer("failed"), 3.0, call.began + 4
    result.history.healed_s = call.began_s - 1.0
    told.verdicts += [replace(told.verdicts[0], tick=call.began + 1 + n, guid=gone.filed[0]) for n in range(batches)]
    levels = [table.level for table in result.conditions.tables]
    found = judge(result.history, result.objects, levels, result.conditions.retention_s)
    assert (f"liveness: {call}, after the last fault" in found) == (batches == 0 or level == "latest")


@pytest.mark.slow
def test_the_command_ends_with_one_object() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulator", "--seeds", "2"], cwd=FOLDER.parent.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith('{"seeds": 2, "steps": ')
