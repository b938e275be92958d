"""What clients do, and what it means: each operation as something to ask of sluice, and as a function of rows for the model.

A row is (uid, k, v, w), where w came later and may be None; a state maps uid to (k, v, w), and a uid is never used for two rows.
Nothing here knows sluice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .dice import Dice, weighted

Row: TypeAlias = "tuple[int, int, int | None]"
State: TypeAlias = "Mapping[int, Row]"
States: TypeAlias = "Mapping[int, State]"
PARTITIONS = 3
VALUES = 12


@dataclass(frozen=True)
class Condition:
    """A condition as SQL and as a function of uid, k and v."""

    sql: str
    holds: Callable[[int, int, int], bool]

    def of(self, state: State) -> dict[int, Row]:
        """The rows that satisfy it."""
        return {uid: row for uid, row in state.items() if self.holds(uid, row[0], row[1])}


@dataclass(frozen=True)
class Step:
    """One step on one table: `kind` and what it takes; `means` makes of a table's rows, and of those it was shown, the rows after it.

    `source` is the table whose rows satisfying `looks_for` it is shown; `blind` when it only adds rows.
    """

    kind: str
    means: Callable[[State, State], dict[int, Row]]
    rows: State = field(default_factory=dict)
    where: str = ""
    amount: int = 0
    blind: bool = False
    table: int = 0
    source: int | None = None
    looks_for: Condition | None = None

    def __str__(self) -> str:
        shown = "" if self.looks_for is None else f" of {self.source} where {self.looks_for.sql}"
        return f"{self.kind} {self.table}: {self.where or sorted(self.rows) or ''}{shown}".rstrip(": ")


@dataclass(frozen=True)
class Operation:
    """One thing a client does. `kind` is "write" (one step, or several in a transaction) or something else than changing rows.

    `application` is the number under which a restarted job repeats it; `options` hold what else the client needs to know.
    """

    kind: str
    number: int
    steps: tuple[Step, ...] = ()
    application: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    table: int = 0
    """The table it is about; of several, the one that is named first."""

    @property
    def tables(self) -> list[int]:
        of_steps = {n for step in self.steps for n in (step.table, step.source) if n is not None}
        return sorted({self.table, *of_steps, *self.options.get("tables", ())}) if self.kind != "joint" else sorted(of_steps)

    @property
    def blind(self) -> bool:
        """Whether it only adds rows, having read none."""
        return all(step.blind for step in self.steps)

    def after(self, states: States, told: Sequence[State] = ()) -> tuple[dict[int, dict[int, Row]], list[dict[int, Row]]]:
        """The rows of its tables after it, and what its steps were shown, had it run alone on these states.

        Of a table that is not among them nobody knows the rows: what its steps were shown there is taken as they were `told`.
        """
        rows = {table: dict(states.get(table, {})) for table in self.tables}
        seen: list[dict[int, Row]] = []
        for step in self.steps:
            shown: dict[int, Row] = {}
            if step.source is not None and step.looks_for is not None:
                known = step.source in states
                shown = step.looks_for.of(rows[step.source]) if known else dict(told[len(seen)])
                seen.append(shown)
            rows[step.table] = step.means(rows[step.table], shown)
        return rows, seen

    def __str__(self) -> str:
        steps = " + ".join(map(str, self.steps)) or f"table {self.table}"
        repeated = "" if self.application is None else f" as number {self.application}"
        return f"#{self.number} {self.kind}: {steps}{repeated} {dict(self.options) or ''}".rstrip()


def condition(dice: Dice, *place: int) -> Condition:
    """A condition that holds for some rows of most states."""
    k, v, m = dice.bits(*place, 1) % PARTITIONS, dice.bits(*place, 2) % VALUES, 2 + dice.bits(*place, 3) % 3
    return dice.choice(
        [
            Condition(f"k = {k}", lambda _u, k_, _v: k_ == k),
            Condition(f"v < {v // 2}", lambda _u, _k, v_: v_ < v // 2),
            Condition(f"v >= {v} AND v < {v + 3}", lambda _u, _k, v_: v <= v_ < v + 3),
            Condition(f"k = {k} AND v % {m} = 0", lambda _u, k_, v_: k_ == k and v_ % m == 0),
            Condition(f"uid % {m} = {k % m}", lambda u, _k, _v: u % m == k % m),
        ],
        *place,
        4,
    )


# -- steps ---------------------------------------------------------------------------------------------------------------


def _fresh(dice: Dice, first_uid: int, *place: int, k: int | None = None) -> dict[int, Row]:
    count = 1 + dice.bits(*place, 1) % 4
    if dice.roll(*place, 3) < 0.1:
        count += 20
    rows: dict[int, Row] = {}
    for n in range(count):
        rows[first_uid + n] = (dice.bits(*place, 4, n) % PARTITIONS if k is None else k, dice.bits(*place, 5, n) % VALUES, None)
    return rows


def _append(dice: Dice, table: int, uid: int, *place: int) -> Step:
    rows = _fresh(dice, uid, *place)
    return Step("append", lambda s, _: {**s, **rows}, rows=rows, blind=True, table=table)


def _widen(dice: Dice, table: int, uid: int, *place: int) -> Step:
    rows: dict[int, Row] = {u: (k, v, u % 7) for u, (k, v, _) in _fresh(dice, uid, *place).items()}
    return Step("widen", lambda s, _: {**s, **rows}, rows=rows, blind=True, table=table)


def _delete(dice: Dice, table: int, _uid: int, *place: int) -> Step:
    where = condition(dice, *place)
    return Step("delete", lambda s, _: {u: r for u, r in s.items() if not where.holds(u, r[0], r[1])}, where=where.sql, table=table)


def _update(dice: Dice, table: int, _uid: int, *place: int) -> Step:
    where, amount = condition(dice, *place), 1 + dice.bits(*place, 9) % 3

    def means(state: State, _: State) -> dict[int, Row]:
        return {u: (k, v + amount, w) if where.holds(u, k, v) else (k, v, w) for u, (k, v, w) in state.items()}

    return Step("update", means, where=where.sql, amount=amount, table=table)


def _move(dice: Dice, table: int, _uid: int, *place: int) -> Step:
    where, amount = condition(dice, *place), 1 + dice.bits(*place, 9) % (PARTITIONS - 1)

    def means(state: State, _: State) -> dict[int, Row]:
        return {u: ((k + amount) % PARTITIONS, v, w) if where.holds(u, k, v) else (k, v, w) for u, (k, v, w) in state.items()}

    return Step("move", means, where=where.sql, amount=amount, table=table)


def _overwrite(dice: Dice, table: int, uid: int, *place: int) -> Step:
    k = dice.bits(*place, 8) % PARTITIONS
    rows = _fresh(dice, uid, *place, k=k)
    return Step("overwrite", lambda s, _: {**{u: r for u, r in s.items() if r[0] != k}, **rows}, rows=rows, where=f"k = {k}", table=table)


def _upsert(dice: Dice, table: int, uid: int, *place: int) -> Step:
    rows = _fresh(dice, uid, *place)
    known = range(40 + dice.bits(*place, 7) % 6, 60, 6)  # keys that all clients upsert, and nobody appends
    rows |= {u: (dice.bits(*place, 6, u) % PARTITIONS, VALUES, None) for u in known}
    return Step("upsert", lambda s, _: {**s, **rows}, rows=rows, table=table)


STEPS = {
    "append": _append,
    "delete": _delete,
    "update": _update,
    "move": _move,
    "overwrite": _overwrite,
    "upsert": _upsert,
    "widen": _widen,
}


def _scan(dice: Dice, source: int, *place: int) -> Step:
    """Rows of a table are read, and nothing is done with them."""
    return Step("scan", lambda s, _: dict(s), table=source, source=source, looks_for=condition(dice, *place))


def _copy(dice: Dice, source: int, table: int, uid: int, *place: int) -> Step:
    """A row is added to one table that tells how many rows another one has."""
    looks_for, k = condition(dice, *place), dice.bits(*place, 8) % PARTITIONS
    return Step(
        "copy", lambda s, seen: {**s, uid: (k, len(seen), None)}, rows={uid: (k, -1, None)}, table=table, source=source, looks_for=looks_for
    )


# -- operations ----------------------------------------------------------------------------------------------------------

_LEVELS = ("latest", "published", "serial", "session")
_RUSHED = 4
"""How often a transaction takes numbers that meets those of others."""
_BETWEEN_RUSHES = 3
"""In runs with identity columns, one operation of so many of each client is such a transaction, besides those by chance."""


def operation(dice: Dice, weights: Mapping[str, float], client: int, number: int, tables: int = 1) -> Operation:
    """The operation with this number of a client, in a run with so many tables."""
    place = (7, client, number)
    if client == 0 and number < tables:
        rows: dict[int, Row] = {
            1000 * number + uid: (uid % PARTITIONS, uid % VALUES, None) for uid in range(1, 10 + dice.bits(*place) % 22)
        }
        first = Step("append", lambda s, _: {**s, **rows}, rows=rows, blind=True, table=number)
        return Operation("write", number, (first,), options={"begun": False}, table=number)
    kind = "rush" if weights["rush"] and number % _BETWEEN_RUSHES == 2 else weighted(weights, dice.roll(*place))
    options: dict[str, Any] = {"ratified": dice.roll(*place, 1) < 0.25, "pause": dice.roll(*place, 2), "begun": dice.roll(*place, 3) < 0.3}
    uid = client * 1_000_000 + number * 1_000 + 100
    table = 0 if dice.roll(*place, 15) < 0.5 else dice.bits(*place, 16) % tables
    if kind in ("joint", "together"):
        return _several(dice, weights, place, kind, uid, tables, options)
    if kind == "read":
        shown = {"level": dice.choice(_LEVELS, *place, 4), "pause": options["pause"]}
        return Operation(kind, number, options=shown, table=table)
    if kind == "rush":
        steps = tuple(_append(dice, 0, uid + 100 * n, *place, 10 + n) for n in range(_RUSHED))
        return Operation("write", number, steps, options={**options, "begun": True, "meets": True}, table=0)
    if kind == "transaction":
        names = [weighted({n: weights.get(n, 0.0) for n in STEPS}, dice.roll(*place, 5, n)) for n in range(2)]
        steps = tuple(STEPS[name](dice, table, uid + 100 * n, *place, 10 + n) for n, name in enumerate(names))
        return Operation("write", number, steps, options={**options, "begun": True}, table=table)
    if kind in STEPS:
        numbered = kind in ("append", "overwrite") and dice.roll(*place, 6) < 0.3
        step = STEPS[kind](dice, table, uid, *place, 10)
        return Operation("write", number, (step,), application=number if numbered else None, options=options, table=table)
    if kind == "plan":
        return Operation(kind, number, (_append(dice, table, uid, *place, 10),), options={**options, "begun": False}, table=table)
    if kind == "leased":
        name = weighted({n: weights.get(n, 0.0) for n in STEPS}, dice.roll(*place, 5))
        options["mode"] = "exclusive" if dice.roll(*place, 8) < 0.7 else "shared"
        return Operation(kind, number, (STEPS[name](dice, table, uid, *place, 10),), options=options, table=table)
    if kind == "compact":
        options["mode"] = dice.choice(["minor", "major", "z-order"], *place, 8)
    elif kind == "vacuum":
        options["forced"] = dice.roll(9, 5) < 0.5 and dice.roll(*place, 8) < 0.6
    elif kind == "pinned":
        options["back"] = dice.bits(*place, 8) % 4
    return Operation(kind, number, options=options, table=table)


def relocations(dice: Dice, count: int, tables: int) -> list[Operation]:
    """What an operator does: it moves tables to the other coordinator (1) or back to the first (0), mostly all of them in a row."""
    made: list[Operation] = []
    places = [0] * tables
    while len(made) < count:
        place = (12, len(made))
        some = range(tables) if dice.roll(*place) < 0.7 else [dice.bits(*place, 1) % tables]
        for table in some:
            options: dict[str, Any] = {
                "from": places[table] * (dice.roll(*place, 4) < 0.5),
                "to": 1 - places[table],
                "pause": float(table == some[0]),
                "dies": dice.roll(*place, 2) < 0.3,
            }
            made.append(
                Operation("relocate", len(made), options={**options, "wait_s": dice.choice((0.5, 5.0, 30.0), *place, 3)}, table=table)
            )
            places[table] = 1 - places[table]
    return made


def _several(
    dice: Dice, weights: Mapping[str, float], place: tuple[int, ...], kind: str, uid: int, tables: int, options: dict[str, Any]
) -> Operation:
    """A transaction over several tables, or a read of several: two of them mostly, in any order."""
    first = dice.bits(*place, 20) % tables
    second = (first + 1 + dice.bits(*place, 21) % max(tables - 1, 1)) % tables
    some = [first, second] if dice.roll(*place, 22) < 0.7 else list(range(tables))
    if kind == "together":
        return Operation(kind, place[-1], options={"tables": some, "pause": options["pause"]}, table=first)
    steps: list[Step] = []
    for n in range(2 + dice.bits(*place, 23) % 2):
        table, roll = some[n % len(some)], dice.roll(*place, 24, n)
        if roll < 0.25:
            steps.append(_copy(dice, some[(n + 1) % len(some)], table, uid + 100 * n, *place, 25 + n))
        elif roll < 0.4 and n:
            steps.append(_scan(dice, table, *place, 25 + n))
        else:
            name = weighted({each: weights.get(each, 0.0) for each in STEPS}, dice.roll(*place, 5, n))
            steps.append(STEPS[name](dice, table, uid + 100 * n, *place, 25 + n))
    options["named"] = dice.roll(*place, 30) < 0.5
    number = place[-1] if dice.roll(*place, 6) < 0.3 else None
    return Operation(kind, place[-1], tuple(steps), application=number, options=options, table=first)
