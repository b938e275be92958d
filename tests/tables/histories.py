"""Random histories: several writers with open transactions, committed in any order, against the meaning of what they did.

A row is (uid, k, v), and its uid is never used again. What a transaction means is a function from the rows it saw to the rows
it takes away and the rows it adds. That it stands in the log at version v means: had it run alone on the rows of version
v - 1, it would have done the same. That is all of serializability, with the log as the serial order. Under
WriteSerializable rows of blind appends that it did not see are left out of that comparison: those appends may count as later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

import sluice

State: TypeAlias = Mapping[int, tuple[int, int]]  # uid -> (k, v)
Effect: TypeAlias = tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]  # rows taken away, rows added

SCHEMA = pa.schema([pa.field("uid", pa.int64(), nullable=False), pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64())])


def table_of(rows: State) -> pa.Table:
    return pa.table(
        [pa.array(list(rows), pa.int64()), *(pa.array([r[n] for r in rows.values()], pa.int64()) for n in range(2))], schema=SCHEMA
    )


def state_of(rows: pa.Table) -> dict[int, tuple[int, int]]:
    """The rows by uid; none may be there twice."""
    uids = rows["uid"].to_pylist()
    assert len(uids) == len(set(uids)), f"rows are there twice: {sorted(u for u in uids if uids.count(u) > 1)}"
    return dict(zip(uids, zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True), strict=True))


@dataclass(frozen=True)
class Condition:
    """A condition as SQL and as a function of (uid, k, v)."""

    sql: str
    holds: Callable[[int, int, int], bool]


def condition(dice: random.Random) -> Condition:
    k, v, m = dice.randint(0, 3), dice.randint(0, 20), dice.randint(2, 4)
    return dice.choice(
        [
            Condition(f"k = {k}", lambda u, a, b: a == k),
            Condition(f"v < {v}", lambda u, a, b: b < v),
            Condition(f"v >= {v} AND v < {v + 4}", lambda u, a, b: v <= b < v + 4),
            Condition(f"k = {k} AND v % {m} = 0", lambda u, a, b: a == k and b % m == 0),
            Condition(f"uid % {m} = {k % m}", lambda u, a, b: u % m == k % m),
            Condition(f"k IN ({k}, {(k + 1) % 4})", lambda u, a, b: a in (k, (k + 1) % 4)),
        ]
    )


@dataclass
class Operation:
    """One operation of a transaction: how it is done, and what it means for the rows that its transaction sees."""

    name: str
    do: Callable[[sluice.Transaction], object]
    means: Callable[[State], dict[int, tuple[int, int]]]
    blind: bool = False


@dataclass
class Made:
    """A transaction with what it read and did."""

    handle: sluice.Transaction
    operations: list[Operation]
    table: sluice.Table
    isolation: str | None = None

    @property
    def blind(self) -> bool:
        return all(o.blind for o in self.operations)

    def effect(self, state: State) -> Effect:
        """What it takes away from and adds to a state."""
        after: dict[int, tuple[int, int]] = dict(state)
        for operation in self.operations:
            after = operation.means(after)
        gone = {u: r for u, r in state.items() if after.get(u) != r}
        new = {u: r for u, r in after.items() if state.get(u) != r}
        return gone, new


@dataclass
class History:
    """A run of random transactions on one table, checked commit by commit."""

    dice: random.Random
    tables: list[sluice.Table]
    level: str
    partitioned: bool
    uids: int = 0
    committed: int = 0
    refused: int = 0
    rebased: int = 0
    states: list[State] = field(default_factory=list)
    appended: list[set[int]] = field(default_factory=list)
    kept: list[Made] = field(default_factory=list)

    def fresh_rows(self) -> dict[int, tuple[int, int]]:
        rows = {}
        for _ in range(self.dice.randint(1, 4)):
            self.uids += 1
            rows[self.uids] = (self.dice.randint(0, 3), self.dice.randint(0, 20))
        return rows

    def operation(self, version: int) -> Operation:
        """An operation for a transaction that sees `version`."""
        dice = self.dice
        kind = dice.choices(["append", "delete", "update", "move", "overwrite", "upsert", "scan"], [5, 5, 4, 1, 1, 1, 1])[0]
        where = condition(dice)
        step = dice.randint(1, 3)
        if kind == "append":
            rows = self.fresh_rows()
            return Operation(kind, lambda t: t.append(table_of(rows)), lambda s: {**s, **rows}, blind=True)
        if kind == "delete":
            return Operation(
                f"delete {where.sql}",
                lambda t: t.delete(where.sql),
                lambda s: {u: r for u, r in s.items() if not where.holds(u, *r)},
            )
        if kind == "update":
            return Operation(
                f"update v + {step} {where.sql}",
                lambda t: t.update({"v": f"v + {step}"}, where.sql),
                lambda s: {u: (r[0], r[1] + step) if where.holds(u, *r) else r for u, r in s.items()},
            )
        if kind == "move":  # between partitions, where k is one
            return Operation(
                f"update k {where.sql}",
                lambda t: t.update({"k": f"(k + {step}) % 4"}, where.sql),
                lambda s: {u: ((r[0] + step) % 4, r[1]) if where.holds(u, *r) else r for u, r in s.items()},
            )
        if kind == "overwrite":
            k = dice.randint(0, 3)
            rows = {u: (k, r[1]) for u, r in self.fresh_rows().items()}
            return Operation(
                f"overwrite k = {k}",
                lambda t: t.overwrite(table_of(rows), where=f"k = {k}"),
                lambda s: {**{u: r for u, r in s.items() if r[0] != k}, **rows},
            )
        if kind == "upsert":
            known = dice.sample(sorted(self.states[version]), min(3, len(self.states[version])))
            rows = {u: (dice.randint(0, 3), dice.randint(0, 20)) for u in known} | self.fresh_rows()
            return Operation("upsert", lambda t: t.upsert(table_of(rows), on=["uid"]), lambda s: {**s, **rows})
        return Operation(f"scan {where.sql}", lambda t: t.scan(where=where.sql), lambda s: dict(s))

    def begin(self, table: sluice.Table) -> Made:
        count = self.dice.choices([1, 2, 3], [6, 3, 1])[0]
        made = Made(table.refresh().begin(), [], table)
        for _ in range(count):
            operation = self.operation(made.handle.read_version)
            made.operations.append(operation)
            try:
                operation.do(made.handle)
            except sluice.ConcurrentModification:
                self.refused += 1  # told before it went on
                made.handle.abort()
                break
        return made

    def compact(self, table: sluice.Table) -> None:
        before = len(self.states)
        try:
            commit = table.refresh().compact(self.dice.choice(["minor", "major"]), target_file_size=1_000_000)
        except sluice.ConcurrentModification:
            self.refused += 1
            return
        if commit is not None:
            self.note(commit.version, self.states[before - 1], set())

    def commit(self, made: Made) -> None:
        if made.handle.state != "open":
            return
        read = self.states[made.handle.read_version]
        try:
            commit = made.handle.commit()
        except sluice.ConcurrentModification:
            self.refused += 1
            self.check_unchanged(made.table)
            return
        if commit is None:
            return
        self.committed += 1
        gone, new = made.effect(read)
        last = self.states[-1]
        assert gone.keys() <= last.keys(), "takes rows away that are not there"
        expected = {**{u: r for u, r in last.items() if u not in gone}, **new}
        self.check_serial(made, last, (gone, new))
        self.note(commit.version, expected, set(new) if made.blind else set())
        self.kept.append(made)

    def check_serial(self, made: Made, last: State, effect: Effect) -> None:
        """It did what it would have done on the state before it, but for what blind appends added unseen (WriteSerializable)."""
        if self.level == "SnapshotIsolation":
            return
        base: State = last
        if self.level == "WriteSerializable":
            unseen = {u for uids in self.appended[made.handle.read_version + 1 :] for u in uids}
            base = {u: r for u, r in last.items() if u not in unseen}
        if made.blind:
            return
        assert made.effect(base) == effect, (self.level, [o.name for o in made.operations])

    def note(self, version: int, expected: State, appended: set[int]) -> None:
        table = self.dice.choice(self.tables)
        assert version == len(self.states), "only one of us commits at a time here"
        shown = state_of(table.snapshot().to_arrow())
        assert shown == dict(expected), f"version {version} shows {shown}, and should {expected}"
        self.states.append(shown)
        self.appended.append(appended)

    def check_unchanged(self, table: sluice.Table) -> None:
        assert state_of(table.snapshot().to_arrow()) == dict(self.states[-1]), "a refused transaction left something"


def run(seed: int, open_table: Callable[[], sluice.Table], level: str, *, partitioned: bool, steps: int = 40) -> History:
    """One history: transactions are begun, kept open for a while, and committed in another order; compactions come in between."""
    dice = random.Random(seed)
    history = History(dice, [open_table() for _ in range(3)], level, partitioned)
    history.states.append({})
    history.appended.append(set())
    first = history.fresh_rows() | history.fresh_rows() | history.fresh_rows()
    history.tables[0].append(table_of(first))
    history.note(1, first, set())
    waiting: list[Made] = []
    for _ in range(steps):
        if waiting and dice.random() < 0.45:
            history.commit(waiting.pop(dice.randrange(len(waiting))))
        elif dice.random() < 0.12:
            history.compact(dice.choice(history.tables))
        else:
            waiting.append(history.begin(dice.choice(history.tables)))
    for made in waiting:
        history.commit(made)
    return history


def settings(level: str, vectors: bool, **more: str) -> dict[str, Any]:
    """The properties of a history's table."""
    return {"delta.isolationLevel": level, "delta.enableDeletionVectors": str(vectors).lower(), **more}
