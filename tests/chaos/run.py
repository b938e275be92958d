"""A run: builds the world, lets it suffer, heals it, asks for what is open, and has what is left judged."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sluice
from sluice.coordinator.nodes.layout import OPEN, TableTree
from sluice.coordinator.service.connect import connect

from .evidence import Verdict, judge_folder
from .followers import CONSUMED, FOLLOWS, STREAMED
from .history import Diary, History, read_history
from .jobs import CLUSTERED, contention_of
from .schedule import fault_schedule
from .world import KEPT_S, SESSION_S, World

__all__ = ["Plan", "run_chaos", "summary"]

_FINISH_LIMIT_S = 300.0
_SPARK_START_LIMIT_S = 60.0
_WARM_S = 3.0
_CERTAIN_ASKED = 20


@dataclass(frozen=True)
class Plan:
    """What to run: for how long, with which seed, who, and how long each pauses between its operations."""

    seed: int
    seconds: float
    roles: dict[str, str]
    pause_s: float = 0.3

    @property
    def follows(self) -> dict[str, str]:
        """The tables that note the changes of others, where somebody does it, and of which."""
        by = {CONSUMED: "consumer", STREAMED: "spark"}
        return {name: source for name, source in FOLLOWS.items() if by[name] in self.roles.values()}

    @staticmethod
    def usual(seed: int, seconds: float, *, spark: bool = True) -> Plan:
        """What two cores stand."""
        roles = {
            "events-a": "events",
            "events-b": "events",
            "loader": "loader",
            "leases-a": "leases",
            "leases-b": "leases",
            "numbers-a": "numbers",
            "numbers-b": "numbers",
            "changes-a": "changes",
            "changes-b": "changes",
            "clusterer": "clusterer",
            "ledgers-a": "ledgers",
            "ledgers-b": "ledgers",
            "blocks-a": "blocks",
            "blocks-b": "blocks",
            "tidy-a": "tidy",
            "tidy-b": "tidy",
            "daemon-a": "daemon",
            "daemon-b": "daemon",
            "reader": "reader",
            "together": "together",
            "consumer-a": "consumer",
            "consumer-b": "consumer",
        }
        return Plan(seed, seconds, {**roles, **({"spark": "spark"} if spark else {})})

    @staticmethod
    def tiny(seed: int, seconds: float) -> Plan:
        """A few processes for some seconds."""
        named = ("events", "loader", "ledgers", "blocks", "changes", "clusterer", "tidy", "reader", "together")
        pairs = {f"{role}-{one}": role for role in ("numbers", "consumer", "daemon") for one in "ab"}
        roles = {**{name: name for name in named}, **pairs}
        return Plan(seed, seconds, roles, pause_s=0.15)


def run_chaos(plan: Plan, folder: Path, told: Callable[[str], None]) -> Verdict:
    """Run it in an empty folder, where the evidence stays; what was found."""
    spark = next((name for name, role in plan.roles.items() if role == "spark"), "")
    consumers = [name for name, role in plan.roles.items() if role == "consumer"]
    schedule = fault_schedule(plan.seed, plan.seconds, list(plan.roles), spark, consumers)
    (folder / "schedule.json").write_text(json.dumps([asdict(fault) for fault in schedule], indent=1))
    with _ended_in_order(), World(folder, plan.seed, plan.roles, plan.pause_s) as world:
        told(f"seed {plan.seed}, {plan.seconds:.0f} s, {len(plan.roles)} processes, {len(schedule)} faults")
        told(f"{', '.join(world.locations.values())}; If-None-Match is {world.conditional} by the bucket `plain`")
        for name in plan.roles:
            world.hire(name)
        _await_beginnings(folder / "history", list(plan.roles))
        began = time.monotonic()
        world.suffer(schedule, plan.seconds, told)
        healed = time.monotonic()
        told("healing, and letting everybody finish")
        world.heal()
        followers = {"consumer", "spark"}
        for roles in ({*plan.roles.values()} - followers, {"spark"}, {"consumer"}):  # who follows others has to be the last
            world.staff.finish(roles, _FINISH_LIMIT_S, told)
        world.staff.close()
        told("asking for what is open, and collecting garbage")
        _settle(world, Diary(folder / "history" / "the-end.jsonl", "the-end"))
        doubled, lost_s = _doubled(world)
        told(f"jobs lost {lost_s:.0f} s to one another")
        store = world.store.finish()
        facts = {
            "seed": plan.seed,
            "seconds": plan.seconds,
            "locations": world.locations,
            "kept_s": KEPT_S,
            "follows": plan.follows,
            "clustered": CLUSTERED,
            "open_plans": sorted(connect(world.coordinator).children(OPEN) or ()),
            "began": began,
            "healed": healed,
            "faults": world.faults,
            "effects": {**{f"store: {name}": count for name, count in sorted(store["counts"].items())}, **world.wires.counts},
            "complaints": [*world.staff.complaints, *store["notes"], *doubled],
        }
        (folder / "facts.json").write_text(json.dumps(facts, indent=1))
    told("judging")
    return judge_folder(folder)


def _await_beginnings(histories: Path, names: list[str]) -> None:
    """Wait until every process has begun to do something."""
    deadline = time.monotonic() + _SPARK_START_LIMIT_S
    while time.monotonic() < deadline and not all(_begun(histories / f"{name}-1.jsonl") for name in names):
        time.sleep(0.2)
    time.sleep(_WARM_S)


def _begun(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _settle(world: World, diary: Diary) -> None:
    """Ask what became of every transaction whose answer is open, and of some whose answer is certain; then collect garbage."""
    time.sleep(SESSION_S + 4)  # dead clients are known to be dead
    tables = world.open_tables()
    history = read_history(world.folder / "history")
    for operation, id_ in _to_ask(history, random.Random(f"{world.seed}/asking")):
        names = list(history.operations[operation].does)
        if len(names) > 1:
            outcome = sluice.outcome(id_, world.coordinator, storage_options=world.store.options)
            by_location = {table.location: name for name, table in tables.items()}
            places = {by_location[location]: commit for location, commit in outcome.commits.items()}
        else:
            outcome = tables[names[0]].outcome(id_)
            places = {} if outcome.commit is None else {names[0]: outcome.commit}
        told = {name: (commit.version, commit.ordinal) for name, commit in places.items()}
        diary.note("asked", op=operation, id=id_, state=outcome.state, places=told, error=str(outcome.error or "")[:300])
    for name, table in tables.items():
        report = table.vacuum()
        diary.note("vacuumed", table=name, counts=report.counts)
        table.close()


def _doubled(world: World) -> tuple[list[str], float]:
    """Which rows of contention a daemon kept twice, and how many seconds all of them are."""
    place = contention_of(world.locations)
    if connect(world.coordinator).read(TableTree(place).head) is None:
        return [], 0.0
    with sluice.Table.open(place, coordinator=world.coordinator, storage_options=world.store.options) as table:
        rows = table.snapshot().to_arrow().to_pylist()
    counts = Counter(tuple(row.values()) for row in rows)
    return [f"told twice: {row}" for row, count in counts.items() if count > 1], sum(row["seconds"] for row in rows)


def _to_ask(history: History, dice: random.Random) -> Iterator[tuple[str, str]]:
    operations = [each for each in history.operations.values() if each.ids]
    certain = [each for each in operations if not each.is_open]
    for each in [*(each for each in operations if each.is_open), *dice.sample(certain, min(_CERTAIN_ASKED, len(certain)))]:
        for id_ in each.ids:
            yield each.name, id_


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let a termination signal unwind the stack, so that nothing is left behind."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    former = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def summary(plan: Plan, verdict: Verdict) -> dict[str, Any]:
    """The one JSON object at the end."""
    answers = {
        answer: sum(counts[answer] for counts in verdict.operations.values())
        for answer in ("committed", "nothing", "refused", "unavailable", "missing", "unknown", "died", "broken")
    }
    return {
        "seed": plan.seed,
        "seconds": plan.seconds,
        "faults": sum(verdict.faults.values()),
        "operations": sum(answers.values()),
        **answers,
        "reads": sum(verdict.reads.values()),
        "versions": verdict.versions,
        "transactions": verdict.transactions,
        "consumed": verdict.consumed,
        "longest_stall_s": round(verdict.stall_s, 1),
        "longest_call_s": round(verdict.longest_s, 1),
        "violations": len(verdict.violations),
    }
