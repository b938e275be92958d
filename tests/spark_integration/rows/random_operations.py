"""Random operations on one table, as Spark is asked for them and as the model carries them out.

A seed, a name and a number decide an operation, so the judge needs no record of it. Every row has its own tag,
which no operation changes: so rows can be followed through the versions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sluice.spark_integration.rows.analysis import Clause

from .model import ALWAYS, Condition, Row, Ruled, null_plus

TABLE = pa.schema([("k", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("tag", pa.string())])
SOURCE = "k long, p string, w long, tag string"
KEYS = 40
TAG = 3

_ONS = [
    Condition("t.k = s.k", lambda t, s: t[0] is not None and t[0] == s[0]),
    Condition("t.k = s.k AND t.p = s.p", lambda t, s: None not in (t[0], t[1]) and t[:2] == s[:2]),
    Condition("s.k = t.k AND t.p IN ('a', 'b')", lambda t, s: t[0] is not None and t[0] == s[0] and t[1] in ("a", "b")),
    Condition("t.k = s.k AND t.v < 50", lambda t, s: t[0] is not None and t[0] == s[0] and t[2] is not None and t[2] < 50),
    Condition("t.k + 1 = s.k", lambda t, s: None not in (t[0], s[0]) and t[0] + 1 == s[0]),
]
_OF_TARGET = [
    Condition("t.v > 20", lambda t, _s: t[2] is not None and t[2] > 20),
    Condition("t.p = 'a'", lambda t, _s: t[1] == "a"),
]
_OF_SOURCE = [
    Condition("s.w % 2 = 0", lambda _t, s: s[2] % 2 == 0),
    Condition("s.p <> 'b'", lambda _t, s: s[1] is not None and s[1] != "b"),
]
_ALONE = [
    Condition("t.k < 4", lambda t, _s: t[0] is not None and t[0] < 4),
    Condition("t.p = 'c' AND t.k % 7 = 3", lambda t, _s: t[1] == "c" and t[0] is not None and t[0] % 7 == 3),
    Condition("t.v > 300 OR t.k = 11", lambda t, _s: (t[2] is not None and t[2] > 300) or t[0] == 11),
]
_MATCHED = [
    (Clause("matched", "update", None, {"v": "t.v + s.w"}), lambda t, s: (t[0], t[1], null_plus(t[2], s[2]), t[3])),
    (Clause("matched", "update", None, {"p": "s.p", "v": "t.v + 1"}), lambda t, s: (t[0], s[1], null_plus(t[2], 1), t[3])),
    (Clause("matched", "update", None, {"k": f"(t.k + s.w) % {KEYS}"}), lambda t, s: ((t[0] + s[2]) % KEYS, *t[1:])),
    (Clause("matched", "delete"), lambda _t, _s: None),
]
_NOT_MATCHED = [
    (Clause("not_matched", "insert", None, {"k": "s.k", "p": "s.p", "v": "s.w", "tag": "s.tag"}), lambda _t, s: s),
    (
        Clause("not_matched", "insert", None, {"k": f"s.k * 3 % {KEYS}", "p": "'c'", "v": "s.w + 100", "tag": "s.tag"}),
        lambda _t, s: (None if s[0] is None else s[0] * 3 % KEYS, "c", s[2] + 100, s[3]),
    ),
]
_BY_SOURCE = [
    (Clause("not_matched_by_source", "update", None, {"v": "t.v + 7"}), lambda t, _s: (*t[:2], null_plus(t[2], 7), t[3])),
    (Clause("not_matched_by_source", "update", None, {"p": "'b'"}), lambda t, _s: (t[0], "b", *t[2:])),
    (Clause("not_matched_by_source", "delete"), lambda _t, _s: None),
]


@dataclass(frozen=True)
class Operation:
    """An operation of a driver: a MERGE, or without a source an UPDATE or a DELETE of its only clause."""

    key: str
    kind: str
    source: Sequence[Row]
    on: Condition
    rules: Sequence[Ruled]
    isolation: str | None
    attempts: int

    @property
    def clauses(self) -> list[Clause]:
        """As the engine takes them."""
        return [rule.clause for rule in self.rules]


def _ruled(chance: random.Random, pool: Sequence[tuple[Clause, object]], conditions: Sequence[Condition]) -> Ruled:
    clause, becomes = chance.choice(pool)
    condition = chance.choice(conditions)
    return Ruled(replace(clause, condition=condition.sql), condition.holds, becomes)  # type: ignore[arg-type]


def rows(chance: random.Random, key: str, count: int) -> list[Row]:
    """Rows with different keys, or none; their tags begin with `key`."""
    keys = [None if chance.random() < 0.05 else k for k in chance.sample(range(KEYS), count)]
    return [(k, chance.choice(["a", "b", "c", None]), chance.randrange(10), f"{key}.{number}") for number, k in enumerate(keys)]


def operation(seed: int, who: str, number: int) -> Operation:
    """The operation of that number of a driver."""
    key = f"{who}-{number}"
    chance = random.Random(f"{seed}/{key}")
    isolation, attempts = chance.choice([None, None, "Serializable"]), chance.choice([1, 4, 12])
    kind = chance.choice(["merge"] * 8 + ["update", "delete"])
    if kind != "merge":
        pool = [each for each in _BY_SOURCE if each[0].action == kind]
        return Operation(key, kind, [], ALWAYS, [_ruled(chance, pool, _ALONE)], isolation, attempts)
    rules: list[Ruled] = []
    for pool, conditions, likely in (
        (_MATCHED, [*_OF_TARGET, *_OF_SOURCE], 0.85),
        (_NOT_MATCHED, _OF_SOURCE, 0.7),
        (_BY_SOURCE, _ALONE, 0.2),
    ):
        if chance.random() < likely:
            rules += [_ruled(chance, pool, conditions) for _ in range(chance.choice([0, 0, 1]))]
            rules.append(_ruled(chance, pool, conditions if pool is _BY_SOURCE else [ALWAYS, *conditions]))
    if not rules:
        rules = [_ruled(chance, _NOT_MATCHED, [ALWAYS])]
    on = chance.choice([*_ONS[:1] * 4, *_ONS])
    return Operation(key, kind, rows(chance, key, chance.randrange(1, 7)), on, rules, isolation, attempts)


def arrow(found: Sequence[Row]) -> pa.Table:
    """Rows as the table has them."""
    return pa.Table.from_pylist([dict(zip(TABLE.names, row, strict=True)) for row in found], TABLE)
