"""What clients do, and what it means: each operation as SQL for the table and as a function of rows for the model.

A row is (uid, k, v); a state maps uid to (k, v), and a uid is never used for two rows. Nothing here knows sluice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .dice import Dice, weighted

__all__ = ["Condition", "Operation", "State", "Step", "condition", "operation"]

State: TypeAlias = Mapping[int, tuple[int, int]]
PARTITIONS = 3
VALUES = 12


@dataclass(frozen=True)
class Condition:
    """A condition as SQL and as a function of uid, k and v."""

    sql: str
    holds: Callable[[int, int, int], bool]

    def of(self, state: State) -> dict[int, tuple[int, int]]:
        """The rows that satisfy it."""
        return {uid: (k, v) for uid, (k, v) in state.items() if self.holds(uid, k, v)}


@dataclass(frozen=True)
class Step:
    """One change of rows: `kind` and what it takes, `means` what it makes of a state; `blind` when it reads nothing."""

    kind: str
    means: Callable[[State], dict[int, tuple[int, int]]]
    rows: State = field(default_factory=dict)
    where: str = ""
    amount: int = 0
    blind: bool = False


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

    @property
    def blind(self) -> bool:
        """Whether it only adds rows, having read none."""
        return all(step.blind for step in self.steps)

    def after(self, state: State) -> dict[int, tuple[int, int]]:
        """The rows after it, had it run alone on a state."""
        rows = dict(state)
        for step in self.steps:
            rows = step.means(rows)
        return rows

    def __str__(self) -> str:
        steps = " + ".join(f"{s.kind} {s.where or sorted(s.rows) or ''}".strip() for s in self.steps)
        repeated = "" if self.application is None else f" as number {self.application}"
        return f"#{self.number} {self.kind}{': ' if steps else ''}{steps}{repeated} {dict(self.options) or ''}".rstrip()


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


def _fresh(dice: Dice, first_uid: int, *place: int, k: int | None = None) -> dict[int, tuple[int, int]]:
    count = 1 + dice.bits(*place, 1) % 4
    if dice.roll(*place, 3) < 0.1:
        count += 20
    rows = {}
    for n in range(count):
        rows[first_uid + n] = (dice.bits(*place, 4, n) % PARTITIONS if k is None else k, dice.bits(*place, 5, n) % VALUES)
    return rows


def _append(dice: Dice, uid: int, *place: int) -> Step:
    rows = _fresh(dice, uid, *place)
    return Step("append", lambda s: {**s, **rows}, rows=rows, blind=True)


def _delete(dice: Dice, _uid: int, *place: int) -> Step:
    where = condition(dice, *place)
    return Step("delete", lambda s: {u: r for u, r in s.items() if not where.holds(u, *r)}, where=where.sql)


def _update(dice: Dice, _uid: int, *place: int) -> Step:
    where, amount = condition(dice, *place), 1 + dice.bits(*place, 9) % 3
    return Step(
        "update",
        lambda s: {u: (k, v + amount) if where.holds(u, k, v) else (k, v) for u, (k, v) in s.items()},
        where=where.sql,
        amount=amount,
    )


def _move(dice: Dice, _uid: int, *place: int) -> Step:
    where, amount = condition(dice, *place), 1 + dice.bits(*place, 9) % (PARTITIONS - 1)
    return Step(
        "move",
        lambda s: {u: ((k + amount) % PARTITIONS, v) if where.holds(u, k, v) else (k, v) for u, (k, v) in s.items()},
        where=where.sql,
        amount=amount,
    )


def _overwrite(dice: Dice, uid: int, *place: int) -> Step:
    k = dice.bits(*place, 8) % PARTITIONS
    rows = _fresh(dice, uid, *place, k=k)
    return Step("overwrite", lambda s: {**{u: r for u, r in s.items() if r[0] != k}, **rows}, rows=rows, where=f"k = {k}")


def _upsert(dice: Dice, uid: int, *place: int) -> Step:
    rows = _fresh(dice, uid, *place)
    known = range(40 + dice.bits(*place, 7) % 6, 60, 6)  # keys that all clients upsert, and nobody appends
    rows |= {u: (dice.bits(*place, 6, u) % PARTITIONS, VALUES) for u in known}
    return Step("upsert", lambda s: {**s, **rows}, rows=rows)


_STEPS = {"append": _append, "delete": _delete, "update": _update, "move": _move, "overwrite": _overwrite, "upsert": _upsert}
_LEVELS = ("latest", "published", "serial", "session")


def operation(dice: Dice, weights: Mapping[str, float], client: int, number: int) -> Operation:
    """The operation with this number of a client."""
    place = (7, client, number)
    if client == number == 0:
        rows = {uid: (uid % PARTITIONS, uid % VALUES) for uid in range(1, 10 + dice.bits(*place) % 22)}
        return Operation("write", 0, (Step("append", lambda s: {**s, **rows}, rows=rows, blind=True),), options={"begun": False})
    kind = weighted(weights, dice.roll(*place))
    options = {"ratified": dice.roll(*place, 1) < 0.25, "pause": dice.roll(*place, 2), "begun": dice.roll(*place, 3) < 0.3}
    uid = client * 1_000_000 + number * 1_000 + 100
    if kind == "read":
        return Operation(kind, number, options={"level": dice.choice(_LEVELS, *place, 4), "pause": options["pause"]})
    if kind == "transaction":
        names = [weighted({n: weights.get(n, 0.0) for n in _STEPS}, dice.roll(*place, 5, n)) for n in range(2)]
        steps = tuple(_STEPS[name](dice, uid + 100 * n, *place, 10 + n) for n, name in enumerate(names))
        return Operation("write", number, steps, options={**options, "begun": True})
    if kind in _STEPS:
        numbered = kind in ("append", "overwrite") and dice.roll(*place, 6) < 0.3
        return Operation("write", number, (_STEPS[kind](dice, uid, *place, 10),), application=number if numbered else None, options=options)
    if kind == "plan":
        return Operation(kind, number, (_append(dice, uid, *place, 10),), options={**options, "begun": False})
    if kind == "leased":
        name = weighted({n: weights.get(n, 0.0) for n in _STEPS}, dice.roll(*place, 5))
        mode = "exclusive" if dice.roll(*place, 8) < 0.7 else "shared"
        return Operation(kind, number, (_STEPS[name](dice, uid, *place, 10),), options={**options, "mode": mode})
    if kind == "compact":
        return Operation(kind, number, options={**options, "mode": dice.choice(["minor", "major", "major"], *place, 8)})
    return Operation(kind, number, options=options)
