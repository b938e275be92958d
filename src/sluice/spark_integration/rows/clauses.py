"""The clauses of a MERGE, and the rules for a list of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from pyspark.sql import Column

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest

__all__ = ["MATCHED", "NOT_MATCHED", "NOT_MATCHED_BY_SOURCE", "Clause", "RowCounts", "check_clauses"]

MATCHED: Final = "matched"
NOT_MATCHED: Final = "not_matched"
NOT_MATCHED_BY_SOURCE: Final = "not_matched_by_source"

_ACTIONS: Final = {
    MATCHED: ("update", "update_all", "delete"),
    NOT_MATCHED: ("insert", "insert_all"),
    NOT_MATCHED_BY_SOURCE: ("update", "delete"),
}


def _none() -> dict[str, Column | str]:
    return {}


@dataclass(frozen=True, slots=True)
class Clause:
    """`WHEN matched [AND condition] THEN action`.

    `matched` is "matched", "not_matched" or "not_matched_by_source"; `action` "update", "update_all", "delete", "insert" or
    "insert_all". `assignments` map target columns (paths as Spark writes them: `a.b`, with backticks where needed) to
    expressions, as Columns or SQL.
    """

    matched: str
    action: str
    condition: Column | str | None = None
    assignments: Mapping[str, Column | str] = field(default_factory=_none)

    @property
    def name(self) -> str:
        """As in SQL, for messages."""
        return f"WHEN {self.matched.replace('_', ' ').upper()} THEN {self.action.replace('_all', ' *').upper()}"

    @property
    def writes(self) -> bool:
        """Whether it makes new rows."""
        return self.action != "delete"

    @property
    def inserts(self) -> bool:
        """Whether it is for rows of the source that match nothing."""
        return self.matched == NOT_MATCHED


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows an operation changed; `affected` is the sum of the others."""

    updated: int = 0
    deleted: int = 0
    inserted: int = 0

    @property
    def affected(self) -> int:
        """All rows that were changed, removed or added."""
        return self.updated + self.deleted + self.inserted


def check_clauses(clauses: Sequence[Clause]) -> None:
    """Raise InvalidRequest for a list of clauses that cannot be a MERGE's, whatever the tables hold."""
    if not clauses:
        raise InvalidRequest("the merge has no clause: say what happens to rows that match, or do not")
    for clause in clauses:
        allowed = _ACTIONS.get(clause.matched)
        if allowed is None:
            raise InvalidRequest(f"a clause is for rows {clause.matched!r}; use one of {', '.join(_ACTIONS)}")
        if clause.action not in allowed:
            raise InvalidRequest(f"{clause.name}: the action may be {' or '.join(allowed)}")
        if clause.action in ("update", "insert") and not clause.assignments:
            raise InvalidRequest(f"{clause.name}: it assigns no column; name columns and their values")
        if clause.action not in ("update", "insert") and clause.assignments:
            raise InvalidRequest(f"{clause.name}: it takes no assignments")
    for kind in _ACTIONS:
        same = [clause for clause in clauses if clause.matched == kind]
        for clause in same[:-1]:
            if clause.condition is None:
                raise InvalidRequest(
                    f"{clause.name}: it has no condition, so that the clauses after it would never apply; only the last clause "
                    f"for rows {kind.replace('_', ' ')} may omit the condition"
                )
