"""One simulated run: a seed becomes a table, machines, faults and a history; the model judges it.

A safety phase with faults, as long as the weather says; from then on everything works, and whatever is undecided has to be
decided and published within bounded virtual time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.coordinator.limits import Limits
from sluice.coordinator.memory import MemoryCoordination, MemorySession
from sluice.coordinator.tree import Change
from sluice.storage.memory import MemoryDisk, MemoryStore

from .client import Address, Program, create_table, outcomes_of
from .dice import Dice
from .environment import simulated_environment
from .faults import Weather
from .history import Answer, Call, History, LeaseTold
from .machine import Machine, Surroundings
from .model import judge
from .operations import Operation, operation
from .scheduler import Scheduler, current

__all__ = ["Plan", "Result", "simulate"]

_STEPS_MAX = 150_000
_ASKED_MAX = 25
_INCARNATIONS_MAX = 40
_NO_CHANGES_OF_ROWS = ("CREATE TABLE", "ATTACH", "DETACH")
_LEVELS = ("WriteSerializable", "WriteSerializable", "Serializable", "SnapshotIsolation")


@dataclass(frozen=True)
class Plan:
    """What to run: a seed, and what to leave out of it (names of faults, names of operations such as "w1#3")."""

    seed: int
    faults: tuple[str, ...] | None = None
    without: frozenset[str] = frozenset()


@dataclass
class Result:
    """What one run came to. `faults` are (name, kind), `operations` the names of all that could be left out."""

    plan: Plan
    steps: int
    virtual_s: float
    faults: list[tuple[str, str]]
    operations: list[str]
    answers: dict[str, int]
    violations: list[str]
    history: History
    objects: dict[str, bytes] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed it ran with."""
        return self.plan.seed

    def forgotten(self) -> Result:
        """The same without its history, which takes much memory."""
        return replace(self, history=History(), operations=[], objects={})


class _Coordination(MemoryCoordination):
    """The twin of the coordination service, which notes what takes effect."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def publish(self, changes: Sequence[Change]) -> None:
        """Note changes, and show them to every session."""
        for change in changes:
            if change.after is not None:
                self._note(change.path, change.after.data)
            elif "/leases/" in change.path:
                self._history.lease(change.path).gone = self._history.next_tick()
        super().publish(changes)

    def _note(self, path: str, data: bytes) -> None:
        parts = path.split("/")[3:]  # "", "tables", the table
        history = self._history
        if parts == ["head"]:
            history.heads.append((history.next_tick(), json.loads(data)))
        elif parts == ["published"]:
            history.published.append((history.next_tick(), json.loads(data)))
        elif len(parts) == 3 and parts[0] == "slots":
            guid, _, sequence = parts[2].removeprefix("i-").rpartition("-")
            history.slots[path] = history.next_tick(), int(parts[1]), int(sequence)
            history.slot_of.setdefault(guid, []).append(path)
            self._file(history, json.loads(data))
        elif parts == ["leases"] and data:
            for name in json.loads(data)["granted"]:
                lease = history.lease(f"{path}/{name}")
                lease.granted = history.next_tick() if lease.granted is None else lease.granted
        elif len(parts) == 2 and parts[0] == "leases":
            history.leases.append(LeaseTold(path, json.loads(data)["mode"]))
        elif len(parts) == 2 and parts[0] == "verdicts":
            record = json.loads(data)
            tick, generation = history.next_tick(), record["generation"]
            history.verdicts += [(tick, generation, v["slot"], v["transaction_id"], v["refusal"]) for v in record["verdicts"]]
            if record.get("direct"):
                intent = json.loads(record["direct"])
                history.direct[intent["transaction_id"]] = history.next_tick()
                self._file(history, intent)

    @staticmethod
    def _file(history: History, intent: Mapping[str, Any]) -> None:
        """Note whose call filed it; what brings a table in or gives it back is not what a call is about."""
        if intent["operation"] in _NO_CHANGES_OF_ROWS:
            return
        guid = intent["transaction_id"]
        history.depends[guid] = tuple(intent.get("leases", ()))
        task = current()
        owner = task.owner if task is not None else None
        if isinstance(owner, Machine) and owner.doing is not None:
            call = owner.doing
            of = history.owners.setdefault(guid, (call.client, call.operation.number))  # others may file it again for a dead owner
            if of == (call.client, call.operation.number) and guid not in call.filed:
                call.filed.append(guid)


class _World:
    """Everything of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dice = dice = Dice(plan.seed)
        self.history = History()
        self.scheduler = Scheduler(_STEPS_MAX)
        self.weather = Weather(dice, plan.faults)
        self.coordination = _Coordination(self.history)
        self.coordination.before = lambda call: self._machine_here().asked(call.verb) if current() else None
        self.coordination.after = lambda _: self._machine_here().reply(coordination=True) if current() else None
        objects = MemoryStore("memory://simulated")
        objects.disk = MemoryDisk(clock_ms=lambda: 1_700_000_000_000 + int(self.scheduler.now * 1000))
        self.around = Surroundings(
            self.scheduler, dice, self.weather, self.history, objects, self._connect, self._restart, conditional_put=dice.roll(4, 1) < 0.6
        )
        self.level = dice.choice(_LEVELS, 4, 2)
        self.properties = {
            "delta.isolationLevel": self.level,
            "delta.enableDeletionVectors": str(dice.roll(4, 3) < 0.75).lower(),
            "delta.checkpointInterval": dice.choice(("4", "10", "100"), 4, 4),
        }
        if dice.roll(4, 6) < 0.15:
            self.properties["delta.enableRowTracking"] = "true"
        self.partition_by = ("k",) if dice.roll(4, 5) < 0.4 else ()
        self.limits = _limits(dice)
        self.machines: list[Machine] = []
        self.programs = self._programs()

    def _programs(self) -> list[tuple[list[Operation], float, float]]:
        dice, weights = self.dice, _weights(self.dice)
        programs = []
        for client in range(2 + int(3 * dice.roll(5, 1))):
            count = 5 + int(12 * dice.roll(5, 2, client))
            operations = [operation(dice, weights, client, number) for number in range(count)]
            kept = [each for each in operations if f"w{client}#{each.number}" not in self.plan.without]
            programs.append((kept, dice.choice((0.3, 3.0, 20.0, 60.0), 5, 3, client), dice.choice((0.02, 0.3, 4.0), 5, 4)))
        return programs

    @staticmethod
    def _machine_here() -> Machine:
        task = current()
        assert task is not None
        assert isinstance(task.owner, Machine)
        return task.owner

    def _connect(self) -> MemorySession:
        return self.coordination.connect()

    def machine(self, number: int, incarnation: int = 0) -> Machine:
        """A machine, started."""
        made = Machine(f"w{number}", number, self.around, incarnation)
        self.machines.append(made)
        return made

    def start(self, number: int, incarnation: int, program: Program | None, delay: float) -> None:
        """Let a client begin, or go on where its former incarnation stopped."""
        machine = self.machine(number, incarnation)
        operations, timeout_s, think_s = self.programs[number]
        address = Address.on(machine, self.limits)
        fresh = Program(address, operations, timeout_s, think_s)
        if program is not None:
            fresh.go_on_from(program)
        self.running[number] = fresh

        def live() -> None:
            if machine.skew_ms == 0 and self.dice.roll(6, number) < 0.3:
                machine.skew_ms = int(20_000 * (self.dice.roll(6, number, 1) - 0.5))
            create_table(address, self.properties, self.partition_by)
            fresh.run()

        self.scheduler.spawn(machine, live, machine.name, delay=delay)

    def _restart(self, machine: Machine) -> None:
        if machine.number < len(self.programs) and machine.incarnation < _INCARNATIONS_MAX and not machine.replaced:
            machine.replaced = True
            delay = 0.1 + 10.0 * machine.draw() ** 2
            self.start(machine.number, machine.incarnation + 1, self.running[machine.number], delay)

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The safety phase, then the healed one, then the questions."""
        self.running: dict[int, Program] = {}
        self.scheduler.on_exhaustion = self._end_all
        for number in range(len(self.programs)):
            self.start(number, 0, None, 0.02 * self.dice.roll(6, 2, number))
        self.scheduler.at(self.weather.until_s, self._heal)
        self._finish("the clients")
        if self.history.trouble:
            return
        self.weather.until_s = -1.0
        asker = self.machine(len(self.programs))
        self.scheduler.spawn(asker, lambda: self._ask(Address.on(asker, self.limits)), asker.name)
        self._finish("the one who asks")

    def _finish(self, who: str) -> None:
        waiting = self.scheduler.run()
        trouble = self.history.trouble
        if waiting:
            trouble.append(f"liveness: {waiting} wait for ever")
            self._end_all()
            self.scheduler.run()
        if self.scheduler.exhausted:
            trouble.append(f"liveness: {who} took more than {_STEPS_MAX} steps")
        trouble += [f"{name} failed: {type(error).__name__}: {error}" for name, error in self.scheduler.failed]
        self.scheduler.failed.clear()

    def _end_all(self) -> None:
        for machine in self.machines:
            machine.dead = True
        for task in sorted(self.scheduler.tasks, key=lambda each: each.name):
            self.scheduler.push(self.scheduler.now, task)

    def _heal(self) -> None:
        self.history.healed_s = self.scheduler.now
        for machine in self.machines:
            machine.heal()

    def _ask(self, address: Address) -> None:
        undecided = [g for c in self.history.calls for g in c.filed if c.answer is None or c.answer.kind not in ("committed", "refused")]
        decided = [g for c in self.history.calls for g in c.filed if g not in undecided]
        asked = list(dict.fromkeys(undecided + decided[-5:]))[:_ASKED_MAX]
        call = Call("asker", Operation("read", 0), self.history.next_tick())
        self.history.outcomes, call.read = outcomes_of(address, asked, 60.0)
        call.answer, call.ended = Answer("read", call.read.version), self.history.next_tick()
        self.history.calls.append(call)


def _limits(dice: Dice) -> Limits:
    return Limits(
        inline_bytes_max=dice.choice((600, 1500, 4000, 64 * 1024), 8, 1),
        batch_bytes_max=dice.choice((10_000, 140_000), 8, 2) if dice.choice((600, 1500, 4000, 64 * 1024), 8, 1) < 5000 else 512 * 1024,
        fast_path=dice.roll(8, 3) < 0.6,
        batch_slots_max=dice.choice((1, 2, 5, 512), 8, 4),
        backlog_versions_max=dice.choice((1, 2, 8), 8, 5),
        footprint_files_max=dice.choice((1, 3, 500), 8, 6),
        patience_s=dice.choice((0.02, 0.1, 0.4), 8, 7),
        patience_s_max=dice.choice((0.5, 10.0), 8, 8),
        generation_slots_max=dice.choice((2, 4, 9, 1_000_000), 8, 9),
        verdicts_kept=dice.choice((9, 12, 128), 8, 10),
        publication_wait_s=dice.choice((0.3, 5.0, 60.0), 8, 11),
    )


def _weights(dice: Dice) -> dict[str, float]:
    base = {
        "append": 6.0,
        "delete": 3.0,
        "update": 2.0,
        "move": 0.7,
        "overwrite": 1.0,
        "upsert": 0.8,
        "transaction": 1.0,
        "plan": 1.0,
        "compact": 1.0,
        "leased": 0.8 if dice.roll(9, 2, 0) < 0.5 else 0.0,
        "properties": 0.3,
        "read": 3.0,
        "checkpoint": 0.5,
        "reopen": 0.4,
        "rebring": 0.3 if dice.roll(9, 0) < 0.1 else 0.0,
    }
    if dice.choice(_LEVELS, 4, 2) == "SnapshotIsolation":
        base["upsert"] = 0.0  # two that add one key at once may both do so there
    return {kind: weight * (dice.roll(9, 1, n) * 2) for n, (kind, weight) in enumerate(base.items())}


def simulate(plan: Plan) -> Result:
    """Run one seed and judge it."""
    world = _World(plan)
    with simulated_environment(inline_vector_bytes=world.dice.choice((10, 512), 8, 12), prune_every=world.dice.choice((2, 32), 8, 13)):
        world.run()
    history = world.history
    objects = {key: content for key, (content, _) in world.around.objects.disk.objects.items()}
    violations = judge(history, objects, world.level)
    MemoryStore("memory://simulated").forget()
    answers: dict[str, int] = {}
    for call in history.calls:
        kind = (call.answer or Answer("unanswered")).kind
        answers[kind] = answers.get(kind, 0) + 1
    return Result(
        plan,
        world.scheduler.steps,
        world.scheduler.now,
        world.weather.happened,
        [f"w{n}#{each.number}" for n, (operations, _, _) in enumerate(world.programs) for each in operations],
        answers,
        violations,
        history,
        objects,
        {"limits": world.limits, "properties": world.properties, "partition_by": world.partition_by},
    )
