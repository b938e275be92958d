"""What a MERGE means, in plain Python: conditions and clauses over rows as tuples, and the changes that they make.

UPDATE and DELETE are merges whose source has no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sluice.spark_integration.rows.analysis import Clause

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Condition:
    """The same condition in SQL, and over a row of each side."""

    sql: str | None
    holds: Callable[[Row, Row], bool]


ALWAYS = Condition(None, lambda _t, _s: True)


@dataclass(frozen=True)
class Ruled:
    """A clause, and what it means: the new row, None for a deletion."""

    clause: Clause
    holds: Callable[[Row, Row], bool]
    becomes: Callable[[Row, Row], Row | None]


class Ambiguous(Exception):
    """Several rows of the source change one row."""


def null_plus(*terms: Any) -> Any:
    return None if None in terms else sum(terms)


def first(rules: Sequence[Ruled], kind: str, target: Row, source: Row) -> Ruled | None:
    return next((rule for rule in rules if rule.clause.matched == kind and rule.holds(target, source)), None)


def changes(target: Sequence[Row], source: Sequence[Row], on: Condition, rules: Sequence[Ruled]) -> list[tuple[Row | None, Row | None]]:
    """The rows that the merge changes, before and after: None before for a new row, None after for a deleted one."""
    matched_rules = [rule for rule in rules if rule.clause.matched == "matched"]
    only_deletes = len(matched_rules) == 1 and matched_rules[0].clause.action == "delete" and matched_rules[0].clause.condition is None
    found: list[tuple[Row | None, Row | None]] = []
    for row in target:
        pairs = [other for other in source if on.holds(row, other)]
        kind, others = ("matched", pairs) if pairs else ("not_matched_by_source", [()])
        apply = [(rule, other) for other in others if (rule := first(rules, kind, row, other)) is not None]
        if len(apply) > 1 and not only_deletes:
            raise Ambiguous
        found += [(row, rule.becomes(row, other)) for rule, other in apply[:1]]
    for other in source:
        if not any(on.holds(row, other) for row in target):
            rule = first(rules, "not_matched", (), other)
            found += [] if rule is None else [(None, rule.becomes((), other))]
    return found
