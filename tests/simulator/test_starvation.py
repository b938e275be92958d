"""A long transaction beside many short ones does not starve: it never loses twice in a row, unless faults take its turn away."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from .history import Answer
from .model_operations import Operation, Row, State, Step
from .opening import Settings
from .run import Plan, Result, World, simulate

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
@pytest.mark.parametrize("seed", range(1))
def test_a_long_transaction_never_loses_twice_in_a_row(seed: int) -> None:
    _never_twice(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 60))
def test_a_long_transaction_never_loses_twice_in_a_row_in_many_runs(seed: int) -> None:
    _never_twice(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_faults_break_no_promise_to_those_who_wait_for_a_turn(seed: int) -> None:
    assert simulate(Plan(seed), _crowd).violations == []
