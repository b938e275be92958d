"""Some seeds of the simulator in every test run; `make simulate` runs as many as one likes.

Long runs: shared by processes they come to the same, and nothing of a seed remains in the next one.
What the judge of rows makes of a transaction that read, in another table, what was lost with the coordinator's data.
A long transaction beside many short ones does not starve: it never loses twice in a row, unless faults take its turn away.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluice.coordinator import api
from sluice.coordinator.formats import RENDERING
from sluice.coordinator.nodes import counters
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.service.store import ANY_VERSION, Write
from tests.simulator.dice import Dice
from tests.simulator.evidence import Evidence, TableEvidence
from tests.simulator.history import Answer, Call, History, Stored, TableHistory
from tests.simulator.log import Log, Transaction, Version, commit_key
from tests.simulator.many import Tally, outcome_of
from tests.simulator.model import NEWEST_RENDERING, judge
from tests.simulator.model_operations import Condition, Operation, Row, State, Step
from tests.simulator.opening import Settings
from tests.simulator.rows import judge_rows
from tests.simulator.run import Plan, Result, World, simulate
from tests.simulator.scheduler import Lock, Scheduler, TaskLocal
from tests.simulator.settings import conditions_of

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


@pytest.mark.costly
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
    del world.witness._log[world.history.tables[0].location, commit_key(1)]


def _misreported(world: World) -> None:
    answered = [call for call in world.history.calls if call.answer is not None and call.answer.kind == "committed"]
    answered[0].answer = Answer("refused", reason="somebody says so")
    world.witness.told(answered[0])


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


def _is_late(result: Result, call: Call, answer: Answer, batches: int) -> bool:
    """Whether the judge says so of a call with this answer after three seconds, behind batches whose owners were gone."""
    told = result.history.tables[0]
    gone = next(each for each in result.history.calls if each.operation.kind == "write" and each.filed and each.ended is not None)
    call.answer, call.timeout_s, call.ended = answer, 3.0, call.began + 4
    result.history.healed_s = call.began_s - 1.0
    told.verdicts += [replace(told.verdicts[0], tick=call.began + 1 + n, guid=gone.filed[0]) for n in range(batches)]
    levels = [table.level for table in result.conditions.tables]
    return f"liveness: {call}, after the last fault" in judge(result.history, result.objects, levels, result.conditions.retention_s)


@pytest.mark.parametrize("batches", [0, 4])
@pytest.mark.parametrize("by", ["this call", "one before", "nobody"])
@pytest.mark.many
def test_the_judge_knows_when_time_went_by_with_what_others_gave_up(batches: int, by: str) -> None:
    """A transaction without an answer after three seconds waited behind four batches of dead owners, or was forgotten."""
    result = simulate(Plan(0))
    call = [each for each in result.history.calls if each.operation.kind == "write" and each.filed and each.ended is not None][-1]
    filed = "never-filed" if by == "nobody" else call.filed[0]
    if by == "one before":
        call.filed.clear()
    assert _is_late(result, call, Answer("unknown", transaction_id=filed), batches) == (batches == 0 or by == "nobody")


@pytest.mark.parametrize(("puts", "content", "filed"), [(50, b"", False), (61, b"", False), (61, None, False), (61, b"", True)])
def test_the_judge_knows_when_time_went_by_with_storing_vectors(puts: int, content: bytes | None, filed: bool) -> None:
    """After three seconds it is not filed: 61 objects of 50 ms at most were stored first. Fewer, or deleted ones, excuse nothing."""
    result = simulate(Plan(0))
    call = [each for each in result.history.calls if each.operation.kind == "write" and each.filed and each.ended is not None][-1]
    guid = call.filed[0] if filed else "never-filed"
    if not filed:
        call.filed.clear()
    result.history.tables[0].stored += [Stored(call.began + 1, f"{guid}/{n}.bin", content, "w0", call) for n in range(puts)]
    assert _is_late(result, call, Answer("unknown", transaction_id=guid), 0) == (puts == 50 or content is None or filed)


@pytest.mark.parametrize(
    ("kind", "reason", "filed"), [("plan", "quota", False), ("plan", "quota", True), ("plan", "", False), ("write", "quota", False)]
)
def test_the_judge_knows_when_a_quota_kept_a_plan_from_being_filed(kind: str, reason: str, filed: bool) -> None:
    """Another process may commit the plan: its outcome is unknown, if it was not filed and its quota is named."""
    result = simulate(Plan(0))
    call = [each for each in result.history.calls if each.operation.kind == "write" and each.filed and each.ended is not None][-1]
    guid = call.filed[0] if filed else "never-filed"
    if not filed:
        call.filed.clear()
    call.operation = replace(call.operation, kind=kind)
    answer = Answer("unknown", transaction_id=guid, reason="OutcomeUnknown: application simulated is over its quota" if reason else "")
    assert _is_late(result, call, answer, 0) == (kind == "write" or filed or not reason)


@pytest.mark.parametrize("batches", [0, 4])
@pytest.mark.parametrize("level", ["serial", "latest"])
def test_the_judge_knows_when_a_serial_read_decided_what_others_gave_up(batches: int, level: str) -> None:
    """A serial read of three seconds may fail behind four batches whose owners were gone; other reads do not wait for them."""
    result = simulate(Plan(0))
    call = [each for each in result.history.calls if each.operation.kind == "read" and each.ended is not None][-1]
    call.operation = replace(call.operation, options={**call.operation.options, "level": level})
    assert _is_late(result, call, Answer("failed"), batches) == (batches == 0 or level == "latest")


@pytest.mark.costly
@pytest.mark.slow
def test_the_command_ends_with_one_object() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulator", "--seeds", "2"], cwd=FOLDER.parent.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith('{"seeds": 2, "steps": ')


ROOT = Path(__file__).resolve().parent.parent.parent


def summary(*arguments: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.simulator", *arguments]
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    told: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.slow
@pytest.mark.long
def test_seeds_come_to_the_same_in_several_processes() -> None:
    assert summary("--first", "1", "--seeds", "2", "--workers", "2", "--no-shrink") == summary(
        "--first", "1", "--seeds", "2", "--no-shrink"
    )


@pytest.mark.costly
def test_a_seed_does_not_know_what_ran_before_it() -> None:
    before = set(threading.enumerate())  # of which some may end meanwhile: tests before this one left them
    first = outcome_of(simulate(Plan(11)))
    for seed in (12, 13):
        simulate(Plan(seed))
    assert outcome_of(simulate(Plan(11))) == first
    assert set(threading.enumerate()) <= before


def test_outcomes_are_added_up() -> None:
    tally = Tally()
    results = [simulate(Plan(seed)) for seed in (21, 22)]
    for each in results:
        tally.add(outcome_of(each))
    assert tally.summary()["seeds"] == 2
    assert tally.summary()["steps"] == sum(each.steps for each in results)
    assert tally.summary()["faults"] == sum(len(each.faults) for each in results)


def test_order_locks_and_what_is_kept_per_thread() -> None:
    scheduler = Scheduler(1000)
    lock, local, seen = Lock(scheduler), TaskLocal(), list[tuple[str, float]]()

    def work(name: str, seconds: float) -> None:
        local.name = name
        with lock:
            scheduler.pause(seconds)
            seen.append((local.name, scheduler.now))

    scheduler.spawn(None, lambda: work("one", 2.0), "one")
    scheduler.spawn(None, lambda: work("other", 1.0), "other", delay=0.5)
    assert scheduler.run() == []
    assert seen == [("one", 2.0), ("other", 3.0)]


def test_who_waits_for_ever_is_told() -> None:
    scheduler = Scheduler(1000)
    lock = Lock(scheduler)

    def take() -> None:
        lock.acquire()

    scheduler.spawn(None, take, "has it")
    scheduler.spawn(None, take, "waits", delay=1.0)
    assert scheduler.run() == ["waits"]


_HERE: State = {1: (0, 0, None)}
"""What is left of the table that is read; version 2, in which row 2 was added, is lost."""
_LOST: State = {**_HERE, 2: (0, 0, None)}
_RATIFIED, _LOST_AT = 10, 20


_ALL = Condition("true", lambda _u, _k, _v: True)
_FILL = Step("append", lambda s, _: {**s, **_HERE}, rows=_HERE, blind=True)
_CLEAR = Step("delete", lambda _s, _: {}, where=_ALL.sql)
_COPY = Step("copy", lambda s, seen: {**s, 9: (0, len(seen), None)}, table=1, source=0, looks_for=_ALL)


def _version(number: int, rows: State, guid: str = "", **joint: int) -> Version:
    transactions = [Transaction(guid, number, 0, number - 1, "WRITE", joint)] if guid else []
    return Version(number, transactions, number, {}, gives_away=False, rows=dict(rows))


def _call(guid: str, kind: str, *steps: Step) -> Call:
    return Call("w0", Operation(kind, 0, steps), began=1, filed=[guid])


def _found(*, read: int, shown: State, wrote: int, at: int = _RATIFIED, clears: bool = False) -> list[str]:
    """What is found where a transaction that read this version of table 0 tells in table 1 how many rows it was shown.

    The log of table 0 goes on after the loss with a version that changes nothing, and one that deletes all. With `clears` the
    transaction had deleted all there, too, as version 3.
    """
    calls = [_call("fill", "write", _FILL), _call("copy", "joint", _COPY, *([_CLEAR] if clears else [])), _call("clear", "write", _CLEAR)]
    calls[1].read_versions, calls[1].scans = {0: read, 1: 0}, [shown]
    told = [TableHistory(0, "read"), TableHistory(1, "written")]
    told[0].heads = [(tick, {"version": n}) for n, tick in enumerate((0, 1, 2, *([at] if clears else [])))]
    joint = {"read": 3, "written": 1} if clears else {"written": 1}
    logs = (
        Log([_version(0, {}), _version(1, _HERE, "fill"), _version(2, _HERE), _version(3, {}, "clear")]),
        Log([_version(0, {}), _version(1, {9: (0, wrote, None)}, "copy", **joint)]),
    )
    evidence = Evidence(History(lost_at=_LOST_AT), {}, [])
    evidence.calls = {each.filed[0]: each for each in calls}
    evidence.tables = [TableEvidence(t, "Serializable", {}, log, log.places()) for t, log in zip(told, logs, strict=True)]
    evidence.tables[0].sealed = 2
    evidence.tables[1].ratified = {1: at}
    return list(judge_rows(evidence))


@pytest.mark.parametrize("clears", [False, True])
def test_what_was_read_of_a_lost_version_is_not_looked_for_in_the_one_that_has_its_number(clears: bool) -> None:
    assert _found(read=2, shown=_LOST, wrote=2, clears=clears) == []


def test_it_wrote_what_came_of_what_it_was_shown() -> None:
    [sentence] = _found(read=2, shown=_LOST, wrote=1)
    assert sentence.startswith("version 1 ")


def test_what_was_read_of_a_published_version_is_what_that_holds() -> None:
    sentences = _found(read=1, shown=_LOST, wrote=2)
    assert any("was shown" in each for each in sentences), sentences


def test_what_was_ratified_after_the_loss_read_nothing_that_was_lost() -> None:
    sentences = _found(read=2, shown=_LOST, wrote=2, at=_LOST_AT + 1)
    assert any("was shown" in each for each in sentences), sentences


def test_it_is_not_compared_with_a_version_that_came_later_in_the_place_of_a_lost_one() -> None:
    """It was ratified on a published version, after one that is lost: which version 3 is, in the log, says nothing of it."""
    assert _found(read=1, shown=_HERE, wrote=1, clears=True) == []


COUNTING = [seed for seed in range(100) if any(table.numbered for table in conditions_of(Dice(seed)).tables)][:20]
"""The first seeds with identity columns."""


@pytest.mark.slow
@pytest.mark.long
def test_fifteen_of_twenty_seeds_notice_that_numbers_are_taken_without_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "Write", lambda path, data, _: Write(path, data, ANY_VERSION))
    noticed = [seed for seed in COUNTING if any(each.startswith("numbers: ") for each in simulate(Plan(seed)).violations)]
    assert len(noticed) >= 15, noticed


@pytest.mark.costly
def test_the_judge_sees_a_table_that_leaves_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    free = SimpleNamespace(nodes=(), token=0, check=lambda: None, release=lambda: None)
    monkeypatch.setattr(api, "leases", lambda *_, **__: free)
    seed = next(seed for seed in range(100) if conditions_of(Dice(seed)).moves)
    assert any(each.startswith("I9: a table left") for each in simulate(Plan(seed)).violations)


ATTEMPTS = 6
WORKS_S = 15.0
SHORT_ONES = 5


def _append() -> Operation:
    rows: dict[int, Row] = {uid: (uid % 3, uid, None) for uid in range(1, 13)}
    return Operation("write", 0, (Step("append", lambda s, _: {**s, **rows}, rows=rows, blind=True),), options={"begun": False})


def _update(number: int, where: str, k: int | None, **options: object) -> Operation:
    def means(state: State, _: State) -> dict[int, Row]:
        return {u: (r[0], r[1] + 1, r[2]) if k in (None, r[0]) else r for u, r in state.items()}

    return Operation("write", number, (Step("update", means, where=where, amount=1),), options={"begun": True, **options})


def _crowd(world: World) -> None:
    """One client whose transactions take long, and others who change some of the same rows all the time."""
    dice = world.dice
    properties = {
        "delta.isolationLevel": dice.choice(("Serializable", "WriteSerializable", "SnapshotIsolation"), 90, 1),
        "delta.enableDeletionVectors": dice.choice(("true", "false"), 90, 2),
        "delta.checkpointInterval": "10",
    }
    first, *more = world.conditions.tables
    table = Settings(first.location, properties, ("k",) if dice.roll(90, 3) < 0.5 else ())
    world.conditions = replace(world.conditions, tables=(table, *more), loses_all=False)
    world.around.releases = "one"  # an older release would wait for a newer one, and tell nothing of turns
    long = [_append(), *(_update(1 + n, "v >= 0", None, works_s=WORKS_S, pause=1.0) for n in range(ATTEMPTS))]
    world.programs = [(long, 60.0, 1.0)]
    for _ in range(SHORT_ONES):
        world.programs.append(([_update(n, f"k = {n % 3}", n % 3, pause=1.0) for n in range(60)], 20.0, 2.0))


def _long_ones(result: Result) -> list[Answer]:
    calls = [call for call in result.history.calls if call.client == "w0" and call.operation.number > 0]
    return [call.answer for call in calls if call.answer is not None]


def _never_twice(seed: int) -> None:
    result = simulate(Plan(seed, faults=()), _crowd)
    assert result.violations == []
    kinds = [answer.kind for answer in _long_ones(result)]
    assert len(kinds) == ATTEMPTS
    assert set(kinds) <= {"committed", "refused"}
    assert ("refused", "refused") not in pairwise(kinds), kinds
    assert kinds[0] == "refused", "the others are many enough to be in its way"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 60))])
@pytest.mark.long
def test_a_long_transaction_never_loses_twice_in_a_row(seed: int) -> None:
    _never_twice(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_faults_break_no_promise_to_those_who_wait_for_a_turn(seed: int) -> None:
    assert simulate(Plan(seed), _crowd).violations == []
