"""A crowd: many clients of one application that append to one table at the same moment, and one client of another application.

``python -m tests.simulator.crowd --clients 10000 --slots 16`` prints how long they wait, in virtual seconds, and what the model says of the
run. Nothing fails here: what is looked at is who waits for whom.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import quantiles
from unittest.mock import patch

from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.quotas import Quota
from sluice.storage.actions import codec
from sluice.storage.jsontext import loads

from .dice import Dice
from .many import prepare
from .model_operations import operation
from .opening import Settings
from .run import Plan, World, simulated
from .settings import conditions_of

_CROWD = "crowd"
_BESIDE = "beside"
_TIMEOUT_S = 20_000.0


@dataclass(frozen=True)
class Waits:
    """How long calls took, in virtual seconds: those of the crowd, in the order in which they began, and those beside it."""

    crowd: tuple[float, ...]
    beside: tuple[float, ...]
    most_waited_s: float
    violations: tuple[str, ...]
    steps: int

    def summary(self) -> dict[str, object]:
        """What is printed."""
        parts = quantiles(self.crowd, n=100)
        return {
            "clients": len(self.crowd),
            "p50_s": round(parts[49], 2),
            "p99_s": round(parts[98], 2),
            "longest_s": round(max(self.crowd), 2),
            "beside_median_s": round(quantiles(self.beside, n=2)[0], 2),
            "beside_longest_s": round(max(self.beside), 2),
            "violations": len(self.violations),
            "steps": self.steps,
        }


def crowd(clients: int, quota: Quota | None, *, beside: int = 20, seed: int = 1) -> Waits:
    """Let so many clients append once at the same moment; another application's client appends `beside` times meanwhile."""
    dice = Dice(seed)
    table = Settings("memory://crowd", {"delta.isolationLevel": "WriteSerializable", "delta.checkpointInterval": "100"}, ())
    conditions = replace(
        conditions_of(dice), tables=(table,), limits=Limits(), loses_all=False, calendar_rate=1.0, quota=quota, releases="one"
    )
    world = World(Plan(seed, faults=()), conditions, steps_max=sys.maxsize)
    world.around.application_of = lambda _, number: _CROWD if number < clients else _BESIDE
    world.weather.until_s = 1.0
    world.prepared = True
    world.scheduler.steps_between_collections = 500 * max(1, clients // 100)  # there is more to look through

    def appends(client: int, many: int) -> list[object]:
        return [
            replace(operation(dice, {"append": 1.0, "rush": 0.0}, client, number, 1), application=None, options={"begun": False})
            for number in range(many)
        ]

    world.programs = [(appends(number, 1), _TIMEOUT_S, 0.0) for number in range(clients)]  # type: ignore[misc]
    world.programs.append((appends(clients, beside), _TIMEOUT_S, 0.0))  # type: ignore[arg-type]
    actions_of = codec._actions_of
    decoded = cache(lambda line: actions_of(loads(line)))  # thousands share one memory
    with patch.multiple(codec, loads=bytes, _actions_of=lambda each: decoded(each) if isinstance(each, bytes) else actions_of(each)):
        result = simulated(world)
    calls = [each for each in result.history.calls if each.answer is not None and each.answer.kind == "committed"]
    mine = tuple(each.ended_s - each.began_s for each in calls if each.client != f"w{clients}")
    theirs = tuple(each.ended_s - each.began_s for each in calls if each.client == f"w{clients}")
    assert (len(mine), len(theirs)) == (clients, beside), (result.answers, result.violations[:3])
    return Waits(mine, theirs, max(mine), tuple(result.violations), result.steps)


def main(arguments: Sequence[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="A crowd in virtual time.")
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--slots", type=int, help="how many of each application may be filed at once; default: no quota")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    prepare()
    quota = None if options.slots is None else Quota(slots=options.slots)
    waits = crowd(options.clients, quota, seed=options.seed)
    for each in waits.violations:
        print(each[:2000], file=sys.stderr)
    print(json.dumps(waits.summary()))


if __name__ == "__main__":
    main()
