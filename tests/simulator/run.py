"""One simulated run: a seed becomes tables, machines, faults and a history; the model judges it.

A safety phase with faults, as long as the weather says; from then on everything works, and whatever is undecided has to be
decided and published within bounded virtual time. In the end all clients but one are gone, and that one collects the garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sluice.coordinator.nodes.quotas import Quota, set_quota
from sluice.coordinator.service.store import NoNode, ReplyLost
from sluice.storage.errors import InvalidRequest, Unavailable
from sluice.storage.stores.memory import MemoryDisk, MemoryStore

from .client import Program, ask, collect
from .dice import Dice
from .environment import simulated_environment
from .faults import Weather
from .history import Answer, Call, History, TableHistory
from .machine import Machine, Surroundings
from .model import judge
from .model_operations import Operation, operation, relocations
from .opening import COORDINATORS, Address, create_table
from .recording import NotedCoordination
from .scheduler import Scheduler, current
from .settings import Conditions, conditions_of
from .witness import Witness

_STEPS_MAX = 150_000
_ASKED_MAX = 25
_INCARNATIONS_MAX = 40
_EPOCH_MS = 1_700_000_000_000
_LONG_S = 40 * 24 * 3600.0
"""Longer than anything is retained."""


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
    conditions: Conditions
    objects: dict[str, dict[str, bytes]] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return self.plan.seed

    def forgotten(self) -> Result:
        """The same without its history, which takes much memory."""
        return replace(self, history=History(), operations=[], objects={})


class World:
    def __init__(self, plan: Plan, conditions: Conditions | None = None, steps_max: int = _STEPS_MAX) -> None:
        self.plan = plan
        self.dice = dice = Dice(plan.seed)
        self.conditions = conditions = conditions or conditions_of(dice)
        self.scheduler = Scheduler(steps_max)
        locations = [table.location for table in conditions.tables]
        self.history = History([TableHistory(number, location) for number, location in enumerate(locations)])
        self.history.clock = lambda: self.scheduler.now
        self.weather = Weather(dice, plan.faults)
        self.weather.until_s += conditions.extra_s
        self.witness = Witness(self.history)
        self.coordinations = {address: self._coordination(address) for address in COORDINATORS[: 1 + conditions.moves]}
        self.coordination = self.coordinations[COORDINATORS[0]]
        self.around = Surroundings(
            self.scheduler,
            dice,
            self.weather,
            self.history,
            self.witness,
            {location: self._disk_at(location) for location in locations},
            lambda address: self.coordinations[address].connect(),
            self._restart,
            conditional_put=dice.roll(4, 1) < 0.6,
            folder_listings=dice.roll(4, 2) < 0.4,
            calendar_rate=conditions.calendar_rate,
            releases=conditions.releases,
        )
        self.machines: list[Machine] = []
        self.programs = self._programs()
        self.prepared = False  # whether the tables are there before the clients begin; else each client creates those that are not

    def _now_ms(self) -> int:
        """The time by the clocks of the services."""
        return _EPOCH_MS + int(self.scheduler.now * self.conditions.calendar_rate * 1000)

    def _disk_at(self, location: str) -> MemoryStore:
        objects = MemoryStore(location)
        objects.disk = MemoryDisk(clock_ms=self._now_ms)
        return objects

    def _coordination(self, address: str) -> NotedCoordination:
        made = NotedCoordination(self.history, self.witness, lambda: self._now_ms() * 1_000_000)
        made.before = lambda call: self._machine_here().asked(address, call.verb) if current() else None
        made.after = lambda _: self._machine_here().reply(coordination=True) if current() else None
        made.split = lambda count: self._machine_here().read_at_once(count) if current() else count
        return made

    def _programs(self) -> list[tuple[list[Operation], float, float]]:
        dice, weights, tables = self.dice, self.conditions.weights, len(self.conditions.tables)
        programs = []
        clients = 2 + int(3 * dice.roll(5, 1))
        for client in range(clients + self.conditions.moves):
            count = 5 + int(12 * dice.roll(5, 2, client))
            if client < clients:
                operations = [operation(dice, weights, client, number, tables) for number in range(count)]
            else:
                operations = relocations(dice, count, tables)
            thinks_s = dice.choice((0.02, 0.3, 4.0) if client < clients else (1.0, 5.0, 15.0), 5, 4)
            kept = [each for each in operations if f"w{client}#{each.number}" not in self.plan.without]
            programs.append((kept, dice.choice((0.3, 3.0, 20.0, 60.0), 5, 3, client), thinks_s))
        return programs

    @staticmethod
    def _machine_here() -> Machine:
        task = current()
        assert task is not None
        assert isinstance(task.owner, Machine)
        return task.owner

    def machine(self, number: int, incarnation: int = 0) -> Machine:
        made = Machine(f"w{number}", number, self.around, incarnation)
        self.machines.append(made)
        return made

    def addresses(self, machine: Machine) -> list[Address]:
        return [self.address(machine, table.location) for table in self.conditions.tables]

    def address(self, machine: Machine, location: str, coordinator: str | None = None) -> Address:
        return Address.on(machine, self.conditions.limits, location, coordinator)

    def start(self, number: int, incarnation: int, program: Program | None, delay: float) -> None:
        """Let a client begin, or go on where its former incarnation stopped."""
        machine = self.machine(number, incarnation)
        operations, timeout_s, think_s = self.programs[number]
        addresses = self.addresses(machine)
        fresh = Program(addresses, operations, timeout_s, think_s)
        if program is not None:
            fresh.go_on_from(program)
        self.running[number] = fresh

        def live() -> None:
            if machine.skew_ms == 0 and self.dice.roll(6, number) < 0.3:
                machine.skew_ms = int(20_000 * (self.dice.roll(6, number, 1) - 0.5))
            if not self.prepared:
                self._create(addresses)
            fresh.run()

        self.scheduler.spawn(machine, live, machine.name, delay=delay)

    def _create(self, addresses: Sequence[Address]) -> None:
        for address, table in zip(addresses, self.conditions.tables, strict=True):
            create_table(address, table)

    def _restart(self, machine: Machine) -> None:
        if machine.number < len(self.programs) and machine.incarnation < _INCARNATIONS_MAX and not machine.replaced:
            machine.replaced = True
            delay = 0.1 + 10.0 * machine.draw() ** 2
            self.start(machine.number, machine.incarnation + 1, self.running[machine.number], delay)

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The safety phase, then the healed one, then the questions, then the garbage."""
        self.running: dict[int, Program] = {}
        self.scheduler.on_exhaustion = self._end_all
        if self.prepared:
            founder = self.machine(len(self.programs) + 3)
            self.scheduler.spawn(founder, lambda: self._create(self.addresses(founder)), founder.name)
            self._finish("the one who creates the tables")
        for number in range(len(self.programs)):
            self.start(number, 0, None, 0.02 * self.dice.roll(6, 2, number))
        self.scheduler.at(self.weather.until_s, self._heal)
        if self.conditions.loses_all:
            self.coordination.after_heads = self._maybe_lose
        if (quota := self.conditions.quota) is not None and not quota.allows_everything:
            operator = self.machine(len(self.programs) + 2)
            self.scheduler.spawn(operator, lambda: self._operate(operator, quota), operator.name, delay=self.dice.roll(10, 3))
        self._finish("the clients")
        self.coordination.after_heads = None
        if self.history.trouble:
            return
        self.weather.until_s = -1.0
        asker = self.machine(len(self.programs))
        self.scheduler.spawn(asker, lambda: self._ask(self.addresses(asker)), asker.name)
        self._finish("the one who asks")
        if not self.history.trouble and not self._given_back():
            self._collect(self.machine(len(self.programs) + 1))
        if not self.history.trouble:
            self.witness.ended()

    def _operate(self, operator: Machine, quota: Quota) -> None:
        """Set the quota, and remove it some time after everything has healed."""
        until_s = self.weather.until_s + 10.0 * self.dice.roll(10, 4)
        for change in (quota, replace(quota, slots=None, commits_per_s=None)):
            done = False
            while not done:
                try:
                    with suppress(Unavailable, ReplyLost, NoNode):
                        set_quota(operator.connect(COORDINATORS[0]), change)
                        done = True
                except InvalidRequest:  # an attempt whose reply was lost has removed it
                    if change is quota:
                        raise
                    done = True
                operator.clock.sleep(1.0)
            while self.scheduler.now < until_s and change is quota:
                operator.clock.sleep(1.0)

    def _maybe_lose(self) -> None:
        """When a head has moved, from some time on: a moment later, in the midst of its publication, all data are lost."""
        lose_s = (0.1 + 0.5 * self.dice.roll(10, 1)) * (self.weather.until_s - self.conditions.extra_s)
        all_there = all(table.published and table.published[-1][1]["version"] >= 0 for table in self.history.tables)
        if self.scheduler.now >= lose_s and all_there:
            self.coordination.after_heads = None
            lost_s = self.scheduler.now + 0.06 * self.dice.roll(10, 2) ** 2
            self.history.healed_s = max(self.history.healed_s, lost_s)
            self.scheduler.at(lost_s, self.coordination.lose_everything)

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
        self.history.healed_s = max(self.history.healed_s, self.scheduler.now)
        for machine in self.machines:
            machine.heal()

    def _ask(self, addresses: Sequence[Address]) -> None:
        unclear = [c for c in self.history.calls if c.answer is None or c.answer.kind not in ("committed", "refused")]
        undecided = {guid for call in unclear for guid in call.filed}
        asked: list[list[str]] = []
        for table in self.history.tables:
            filed = list(dict.fromkeys(each for call in self.history.calls for each in call.filed if each in table.intents))
            told = [each for each in filed if each not in undecided]
            asked.append([*[each for each in filed if each in undecided], *told[-5:]][:_ASKED_MAX])
        call = Call("asker", Operation("read", 0), self.history.next_tick())
        call.reads = ask(addresses, asked, 60.0)
        call.answer, call.ended = Answer("read"), self.history.next_tick()
        self.history.calls.append(call)

    def _given_back(self) -> bool:
        return any(call.operation.kind == "rebring" for call in self.history.calls)

    def _collect(self, collector: Machine) -> None:
        """When all clients are gone and long after: what is left of them is garbage, and nothing else is."""

        def work() -> None:
            collector.clock.sleep(_LONG_S)
            collect(self.addresses(collector))

        for machine in self.machines:
            for session in machine.all_sessions():
                session.close()
        over = len(self.history.times)
        for pin in (pin for table in self.history.tables for pin in table.pins.values()):
            pin.gone = pin.gone or over  # one that came along with a table lasts for some days, whoever is gone
        self.scheduler.spawn(collector, work, collector.name)
        self._finish("the collector")
        for table in self.history.tables:
            table.left = frozenset(self.around.objects[table.location].disk.objects)


def simulate(plan: Plan, prepare: Callable[[World], object] = lambda _: None) -> Result:
    """Run one seed and judge it; `prepare` may change the world before it runs."""
    world = World(plan)
    prepare(world)
    return simulated(world)


def simulated(world: World) -> Result:
    """Run a world and judge it."""
    plan, conditions = world.plan, world.conditions
    with simulated_environment(
        inline_vector_bytes=conditions.inline_vector_bytes,
        forget_every=conditions.forget_every,
        term_s=conditions.term_s,
        address_of=world.address,
    ):
        world.run()
    history = world.history
    stores = world.around.objects
    objects = {at: {key: content for key, (content, _) in store.disk.objects.items()} for at, store in stores.items()}
    levels = [table.level for table in conditions.tables]
    violations = judge(history, objects, levels, conditions.retention_s)
    for store in stores.values():
        store.forget()
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
        conditions,
        objects,
    )
