"""What will go wrong, and when: decided by the seed before anything starts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .object_store import KINDS

__all__ = ["Fault", "fault_schedule"]


@dataclass(frozen=True, order=True)
class Fault:
    """One fault: from `at_s` after the beginning, for `seconds`; `target` is a process or "", `strength` a probability or a number."""

    at_s: float
    seconds: float
    kind: str
    target: str = ""
    strength: float = 0.0


SERVERS: Final[Mapping[str, tuple[int, float, float]]] = {
    "server killed": (3, 0.5, 4.0),
    "leader killed": (3, 0.5, 4.0),
    "server paused": (2, 1.0, 8.0),
    "leader paused": (2, 1.0, 8.0),
    "majority lost": (2, 2.0, 6.0),
    "all servers killed": (1, 1.0, 3.0),
}
"""By kind: how often it is chosen, and between which times it lasts, in seconds."""

WIRES: Final[Mapping[str, tuple[int, float, float]]] = {
    "client cut off": (3, 0.1, 9.0),
    "everybody cut off": (1, 0.1, 4.0),
    "silence to the servers": (2, 0.5, 9.0),
    "silence from the servers": (2, 0.5, 9.0),
    "silence both ways": (2, 0.5, 9.0),
    "slow line": (2, 2.0, 8.0),
    "breaking line": (3, 2.0, 6.0),
}

PROCESSES: Final[Mapping[str, tuple[int, float, float]]] = {
    "process killed": (5, 0.2, 2.0),
    "process paused": (2, 0.5, 3.0),
    "process paused beyond its session": (2, 9.0, 13.0),
    "process paused, replaced, and continued": (2, 8.0, 13.0),
}

STORE: Final[Mapping[str, tuple[int, float, float]]] = {f"store: {kind}": (1, 1.0, 5.0) for kind in KINDS}

CONSUMERS: Final[Mapping[str, tuple[int, float, float]]] = {
    "process killed": (12, 0.2, 2.0),
    "process paused": (2, 0.5, 3.0),
    "process paused beyond its session": (1, 9.0, 13.0),
    "process paused, replaced, and continued": (1, 8.0, 13.0),
}

SPARK: Final[Mapping[str, tuple[int, float, float]]] = {
    "process killed": (6, 0.5, 2.0),
    "process paused beyond its session": (1, 9.0, 12.0),
    "process paused, replaced, and continued": (1, 12.0, 16.0),
}
_SPARK_WARM_S: Final = 30.0
"""So long a Spark application is left alone: it needs most of that to start."""


def fault_schedule(seed: int, seconds: float, processes: Sequence[str], spark: str = "", consumers: Sequence[str] = ()) -> list[Fault]:
    """The faults of a run in the order in which they begin; all are over when it ends. Consumers have faults of their own, and many."""
    pause = (1.0, 5.0) if seconds >= 60 else (0.3, 1.5)
    faults = [
        *_lane(seed, "servers", SERVERS, seconds, (2 * pause[0], 2 * pause[1])),
        *_lane(seed, "wires", WIRES, seconds, pause, processes),
        *_lane(seed, "store", STORE, seconds, pause),
        *_lane(seed, "processes", PROCESSES, seconds, pause, [each for each in processes if each not in (spark, *consumers)]),
    ]
    if consumers:
        faults += _lane(seed, "consumers", CONSUMERS, seconds, (0.5, 3.0), consumers)
    if spark and seconds > 2 * _SPARK_WARM_S:
        faults += _lane(seed, "spark", SPARK, seconds, (_SPARK_WARM_S, 1.5 * _SPARK_WARM_S), [spark])
    return sorted(faults)


def _lane(
    seed: int,
    name: str,
    kinds: Mapping[str, tuple[int, float, float]],
    seconds: float,
    pause: tuple[float, float],
    targets: Sequence[str] = ("",),
) -> list[Fault]:
    """Faults one after the other: first each kind once, in some order, then as it comes."""
    dice = random.Random(f"{seed}/{name}")
    first = dice.sample(list(kinds), len(kinds))
    at_s, faults = dice.uniform(*pause), list[Fault]()
    while True:
        kind = first.pop() if first else dice.choices(list(kinds), [often for often, _, _ in kinds.values()])[0]
        fault = _fault(dice, kind, kinds, at_s, dice.choice(targets))
        at_s = fault.at_s + fault.seconds + dice.uniform(*pause)
        if fault.at_s + fault.seconds > seconds:
            return faults
        faults.append(fault)


def _fault(dice: random.Random, kind: str, kinds: Mapping[str, tuple[int, float, float]], at_s: float, target: str) -> Fault:
    _, shortest, longest = kinds[kind]
    return Fault(round(at_s, 2), round(dice.uniform(shortest, longest), 2), kind, target, round(dice.random(), 3))
