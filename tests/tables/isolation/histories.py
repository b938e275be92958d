"""Random histories: several writers with open transactions, committed in any order, against the meaning of what they did.

A row is (uid, k, v), and its uid is never used again. What a transaction means is a function from the rows it saw to the rows
it takes away and the rows it adds. That the log has it at version v means: had it run alone on the rows of version
v - 1, it would have done the same. That is all of serializability, with the log as the serial order. Under
WriteSerializable rows of blind appends that it did not see are left out of that comparison: those appends may count as later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

import sluice

State: TypeAlias = Mapping[int, tuple[int, int]]  # uid -> (k, v)
# Rows taken away, rows added, and what was seen on the way.
Effect: TypeAlias = tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]], list[dict[int, tuple[int, int]]]]

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
    holds: Callable[[tuple[int, int, int]], bool]


def condition(dice: random.Random) -> Condition:
    k, v, m = dice.randint(0, 3), dice.randint(0, 20), dice.randint(2, 4)
    return dice.choice(
        [
            Condition(f"k = {k}", lambda row: row[1] == k),
            Condition(f"v < {v}", lambda row: row[2] < v),
            Condition(f"v >= {v} AND v < {v + 4}", lambda row: v <= row[2] < v + 4),
            Condition(f"k = {k} AND v % {m} = 0", lambda row: row[1] == k and row[2] % m == 0),
            Condition(f"uid % {m} = {k % m}", lambda row: row[0] % m == k % m),
            Condition(f"k IN ({k}, {(k + 1) % 4})", lambda row: row[1] in (k, (k + 1) % 4)),
        ]
    )


@dataclass
class Operation:
    """One operation of a transaction: how it is done, and what it means for the rows that its transaction sees."""

    name: str
    do: Callable[[sluice.Transaction], object]
    means: Callable[[State], dict[int, tuple[int, int]]]
    blind: bool = False
    sees: Callable[[State], dict[int, tuple[int, int]]] | None = None
    """The rows that the transaction itself sees."""
    locks: bool = False
    """Whether what it sees has to be the same at the commit, whatever the level; only as a transaction's first operation."""


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
        """What it takes away from and adds to a state, and what it sees there."""
        after: dict[int, tuple[int, int]] = dict(state)
        seen: list[dict[int, tuple[int, int]]] = []
        for operation in self.operations:
            if operation.sees is not None:
                seen.append(operation.sees(after))
            after = operation.means(after)
        gone = {u: r for u, r in state.items() if after.get(u) != r}
        new = {u: r for u, r in after.items() if state.get(u) != r}
        return gone, new, seen


@dataclass
class Author:
    """Makes up operations; its uids begin with `uids` and are used once."""

    dice: random.Random
    uids: int = 0

    def fresh_rows(self) -> dict[int, tuple[int, int]]:
        rows = {}
        for _ in range(self.dice.randint(1, 4)):
            self.uids += 1
            rows[self.uids] = (self.dice.randint(0, 3), self.dice.randint(0, 20))
        return rows

    def first_rows(self) -> dict[int, tuple[int, int]]:
        """Enough rows to begin with."""
        return self.fresh_rows() | self.fresh_rows() | self.fresh_rows()

    def operation(self, seen: State, *, first: bool = False) -> Operation:
        """An operation for a transaction that sees these rows."""
        dice = self.dice
        if first and dice.random() < 0.15:
            read = condition(dice)
            return Operation(
                f"scan for update {read.sql}",
                lambda t: t.scan(where=read.sql, for_update=True),
                dict,
                sees=lambda s: {u: r for u, r in s.items() if read.holds((u, *r))},
                locks=True,
            )
        kind = dice.choices(["append", "delete", "update", "move", "overwrite", "upsert", "scan"], [5, 5, 4, 1, 1, 1, 3])[0]
        where = condition(dice)
        step = dice.randint(1, 3)
        if kind == "append":
            rows = self.fresh_rows()
            return Operation(kind, lambda t: t.append(table_of(rows)), lambda s: {**s, **rows}, blind=True)
        if kind == "delete":
            return Operation(
                f"delete {where.sql}",
                lambda t: t.delete(where.sql),
                lambda s: {u: r for u, r in s.items() if not where.holds((u, *r))},
            )
        if kind == "update":
            return Operation(
                f"update v + {step} {where.sql}",
                lambda t: t.update({"v": f"v + {step}"}, where.sql),
                lambda s: {u: (r[0], r[1] + step) if where.holds((u, *r)) else r for u, r in s.items()},
            )
        if kind == "move":  # between partitions, where k is one
            return Operation(
                f"update k {where.sql}",
                lambda t: t.update({"k": f"(k + {step}) % 4"}, where.sql),
                lambda s: {u: ((r[0] + step) % 4, r[1]) if where.holds((u, *r)) else r for u, r in s.items()},
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
            known = dice.sample(sorted(seen), min(3, len(seen)))
            rows = {u: (dice.randint(0, 3), dice.randint(0, 20)) for u in known} | self.fresh_rows()
            return Operation("upsert", lambda t: t.upsert(table_of(rows), on=["uid"]), lambda s: {**s, **rows})
        return Operation(
            f"scan {where.sql}",
            lambda t: t.scan(where=where.sql),
            dict,
            sees=lambda s: {u: r for u, r in s.items() if where.holds((u, *r))},
        )

    def begin(self, table: sluice.Table, seen: Callable[[int], State]) -> Made | None:
        """A transaction with one to three operations; None when it heard on the way that it is lost. `seen` gives the rows of a version."""
        count = self.dice.choices([1, 2, 3], [6, 3, 1])[0]
        made = Made(table.refresh().begin(), [], table)
        for number in range(count):
            operation = self.operation(seen(made.handle.read_version), first=number == 0)
            made.operations.append(operation)
            try:
                operation.do(made.handle)
            except sluice.errors.ConcurrentModification:
                made.handle.abort()
                return None
        return made


def serial_alike(made: Made, level: str, before: State, unseen: set[int], effect: Effect) -> bool:
    """Whether it did what it would have done on the rows before it, but for what blind appends added unseen (WriteSerializable)."""
    if made.operations[0].locks and made.effect(before)[2][0] != effect[2][0]:
        return False
    if made.blind or level == "SnapshotIsolation":
        return True
    base = {u: r for u, r in before.items() if u not in unseen} if level == "WriteSerializable" else before
    return made.effect(base) == effect


def applied(before: State, effect: Effect) -> dict[int, tuple[int, int]]:
    """The rows after an effect."""
    gone, new, _ = effect
    assert gone.keys() <= before.keys(), "takes rows away that are not there"
    return {**{u: r for u, r in before.items() if u not in gone}, **new}


@dataclass
class History:
    """Random transactions on one table in one thread, checked commit by commit."""

    author: Author
    tables: list[sluice.Table]
    level: str
    committed: int = 0
    refused: int = 0
    states: list[State] = field(default_factory=list)
    appended: list[set[int]] = field(default_factory=list)
    collected: int = 0
    expired: int = 0
    disturb: Callable[[], object] = field(default=lambda: None)
    """What happens before garbage is collected."""

    def vacuum(self) -> None:
        """Collect garbage, keeping nothing for readers of older versions; what the latest version shows stays as it is."""
        self.disturb()
        table = self.author.dice.choice(self.tables)
        report = table.vacuum(retain_hours=0, force=True)
        self.collected += len(report.garbage)
        if report.garbage:  # which is told by two versions
            self.note(len(self.states), self.states[-1], set())
            self.note(len(self.states), self.states[-1], set())
        shown = state_of(self.author.dice.choice(self.tables).snapshot().to_arrow())
        assert shown == self.states[-1]

    @property
    def losses(self) -> tuple[type[sluice.errors.SluiceError], ...]:
        """How a transaction may be lost: to a conflict; to a vacuum, when its client was taken for dead or what it read is gone."""
        return (
            sluice.errors.ConcurrentModification,
            *((sluice.errors.TransactionExpired, sluice.errors.MissingObject) if self.collected else ()),
        )

    def begin(self) -> list[Made]:
        made = self.author.begin(self.author.dice.choice(self.tables), lambda version: self.states[version])
        self.refused += made is None
        return [] if made is None else [made]

    def compact(self) -> None:
        table = self.author.dice.choice(self.tables)
        commit = table.refresh().compact(self.author.dice.choice(["minor", "major"]), target_file_size=1_000_000)
        if commit is not None:
            self.note(commit.version, self.states[-1], set())

    def commit(self, made: Made) -> None:
        try:
            commit = made.handle.commit()
        except self.losses as lost:
            self.refused += 1
            self.expired += isinstance(lost, sluice.errors.TransactionExpired)
            assert state_of(made.table.snapshot().to_arrow()) == self.states[-1], "a refused transaction left something"
            return
        if commit is None:
            return
        self.committed += 1
        read = made.handle.read_version
        effect = made.effect(self.states[read])
        unseen = {u for uids in self.appended[read + 1 :] for u in uids}
        assert serial_alike(made, self.level, self.states[-1], unseen, effect), (self.level, [o.name for o in made.operations])
        self.note(commit.version, applied(self.states[-1], effect), set(effect[1]) if made.blind else set())

    def note(self, version: int, expected: State, appended: set[int]) -> None:
        assert version == len(self.states), "only one of us commits at a time here"
        shown = state_of(self.author.dice.choice(self.tables).snapshot().to_arrow())
        assert shown == expected, f"version {version} shows {shown}, and should {expected}"
        self.states.append(shown)
        self.appended.append(appended)


def run(
    seed: int,
    open_table: Callable[[], sluice.Table],
    level: str,
    *,
    steps: int = 40,
    vacuums: float = 0.0,
    disturb: Callable[[random.Random], object] = lambda _: None,
) -> History:
    """One history: transactions are begun, kept open for a while, and committed in another order; compactions come in between.

    `vacuums` is how often garbage is collected, too: then transactions may also find that what they read is gone.
    """
    dice = random.Random(seed)
    history = History(Author(dice), [open_table() for _ in range(3)], level, states=[{}], appended=[set()], disturb=lambda: disturb(dice))
    first = history.author.first_rows()
    history.tables[0].append(table_of(first))
    history.note(1, first, set())
    waiting: list[Made] = []
    for _ in range(steps):
        if waiting and dice.random() < 0.45:
            history.commit(waiting.pop(dice.randrange(len(waiting))))
        elif dice.random() < 0.12:
            history.compact()
        elif vacuums and dice.random() < vacuums:
            history.vacuum()
        else:
            waiting += history.begin()
    for made in waiting:
        history.commit(made)
    return history


@dataclass
class Race:
    """Random transactions of several threads, so that the queue decides; checked when all is over, from the log."""

    open_table: Callable[[], sluice.Table]
    level: str
    committed: list[tuple[sluice.Commit, Made]] = field(default_factory=list)
    refused: int = 0
    compacted: int = 0

    def writer(self, seed: int, number: int, rounds: int) -> None:
        """What one thread does."""
        table, author = self.open_table(), Author(random.Random(f"{seed}/{number}"), uids=1_000_000 * (number + 1))
        for _ in range(rounds):
            try:
                if author.dice.random() < 0.1:
                    self.compacted += table.refresh().compact("major") is not None
                    continue
                made = author.begin(table, lambda version: state_of(table.snapshot(version=version).to_arrow()))
                commit = None if made is None else made.handle.commit()
            except sluice.errors.ConcurrentModification:
                made, commit = None, None
            if made is None:
                self.refused += 1
            elif commit is not None:
                self.committed.append((commit, made))

    def check(self) -> None:
        """Every version shows what its transactions did to the one before, and incremental reads tell the same."""
        table = self.open_table()
        places = {(commit.version, commit.ordinal): made for commit, made in self.committed}
        assert len(places) == len(self.committed), "two commits have one place"
        states = [state_of(table.snapshot(version=v).to_arrow()) for v in range(table.version + 1)]
        appended: list[set[int]] = [set(), set()]
        for version in range(2, len(states)):
            rows: State = states[version - 1]
            appended.append(set())
            for (_, ordinal), made in sorted((place, made) for place, made in places.items() if place[0] == version):
                read = made.handle.read_version
                effect = made.effect(states[read])
                unseen = {u for uids in appended[read + 1 :] for u in uids}
                assert serial_alike(made, self.level, rows, unseen, effect), (version, ordinal, [o.name for o in made.operations])
                rows = applied(rows, effect)
                appended[version] |= set(effect[1]) if made.blind else set()
            assert states[version] == rows, f"version {version} shows something else than its transactions did"
            assert told_by(table.changes(after=version - 1, up_to=version)) == (
                {u: r for u, r in states[version - 1].items() if rows.get(u) != r},
                {u: r for u, r in rows.items() if states[version - 1].get(u) != r},
            )


def told_by(changes: pa.Table) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
    """The rows that an incremental read says were deleted and inserted, without what was written as it had been."""
    rows = changes.to_pylist()
    gone = {r["uid"]: (r["k"], r["v"]) for r in rows if r["_change_type"] in ("delete", "update_preimage")}
    new = {r["uid"]: (r["k"], r["v"]) for r in rows if r["_change_type"] in ("insert", "update_postimage")}
    same = {u for u in gone if new.get(u) == gone[u]}
    return {u: r for u, r in gone.items() if u not in same}, {u: r for u, r in new.items() if u not in same}


def race(seed: int, open_table: Callable[[], sluice.Table], level: str, *, writers: int = 4, rounds: int = 8) -> Race:
    """Several threads commit at once; the result is checked."""
    done = Race(open_table, level)
    open_table().append(table_of(Author(random.Random(seed)).first_rows()))
    with ThreadPoolExecutor(writers) as pool:
        for finished in [pool.submit(done.writer, seed, number, rounds) for number in range(writers)]:
            finished.result()
    done.check()
    return done


def settings(level: str, vectors: bool, **more: str) -> dict[str, Any]:
    """The properties of a history's table."""
    return {"delta.isolationLevel": level, "delta.enableDeletionVectors": str(vectors).lower(), **more}
