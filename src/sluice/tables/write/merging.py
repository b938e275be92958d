"""MERGE, whichever engine runs it: the rules for its clauses, what it counts, and what the history shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import orjson

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest

MATCHED: Final = "matched"
NOT_MATCHED: Final = "not_matched"
NOT_MATCHED_BY_SOURCE: Final = "not_matched_by_source"

_ACTIONS: Final = {
    MATCHED: ("update", "update_all", "delete"),
    NOT_MATCHED: ("insert", "insert_all"),
    NOT_MATCHED_BY_SOURCE: ("update", "delete"),
}
_SHOWN_CHARACTERS: Final = 200


class MergeClause(Protocol):
    """`WHEN matched [AND condition] THEN action`.

    `matched` is "matched", "not_matched" or "not_matched_by_source"; `action` "update", "update_all", "delete", "insert" or
    "insert_all".
    """

    @property
    def matched(self) -> str:
        """The kind of rows that it is for."""
        ...

    @property
    def action(self) -> str:
        """The action on these rows."""
        ...

    @property
    def condition(self) -> object:
        """The condition that chooses among them; None for all."""
        ...

    @property
    def assignments(self) -> Collection[object]:
        """The columns that get values."""
        ...


def clause_name(clause: MergeClause) -> str:
    """A clause as in SQL, for messages."""
    return f"WHEN {clause.matched.replace('_', ' ').upper()} THEN {clause.action.replace('_all', ' *').upper()}"


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


def check_clauses(clauses: Sequence[MergeClause]) -> None:
    """Raise InvalidRequest for a list of clauses that cannot be a MERGE's, whatever the tables hold."""
    if not clauses:
        raise InvalidRequest("the merge has no clause: say what happens to rows that match, or do not")
    for clause in clauses:
        allowed = _ACTIONS.get(clause.matched)
        if allowed is None:
            raise InvalidRequest(f"a clause is for rows {clause.matched!r}; use one of {', '.join(_ACTIONS)}")
        if clause.action not in allowed:
            raise InvalidRequest(f"{clause_name(clause)}: the action may be {' or '.join(allowed)}")
        if clause.action in ("update", "insert") and not clause.assignments:
            raise InvalidRequest(f"{clause_name(clause)}: it assigns no column; name columns and their values")
        if clause.action not in ("update", "insert") and clause.assignments:
            raise InvalidRequest(f"{clause_name(clause)}: it takes no assignments")
    for kind in _ACTIONS:
        same = [clause for clause in clauses if clause.matched == kind]
        for clause in same[:-1]:
            if clause.condition is None:
                raise InvalidRequest(
                    f"{clause_name(clause)}: it has no condition, so that the clauses after it would never apply; only the last clause "
                    f"for rows {kind.replace('_', ' ')} may omit the condition"
                )


def may_repeat(clauses: Sequence[MergeClause]) -> bool:
    """Whether several rows of the source may concern one row of the table: the only clause for matches deletes it in any case."""
    matched = [clause for clause in clauses if clause.matched == MATCHED]
    return not matched or (len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None)


def ambiguous(changes: int, rows: int, some: Iterable[tuple[Mapping[str, object], int]]) -> InvalidRequest:
    """Several source rows match one target row. `some`: a few of the target rows, with the number of changes of each."""
    shown: list[str] = []
    for values, times in some:
        text = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        shown.append(f"{text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + '...'} ({times} times)")
    return InvalidRequest(
        f"several rows of the source change the same row of the table ({changes} changes of {rows} rows), so it is unclear "
        f"which of them counts: {'; '.join(shown)}. Give each key once, or add conditions that choose one row",
        rule="ambiguous-merge",
        rows=shown,
    )


def merge_parameters(predicate: str, clauses: Iterable[tuple[MergeClause, str | None]]) -> dict[str, str]:
    """The parameters of a MERGE under Delta's names, from its clauses with the texts of their conditions."""
    listed: Mapping[str, list[dict[str, str]]] = {MATCHED: [], NOT_MATCHED: [], NOT_MATCHED_BY_SOURCE: []}
    for clause, condition in clauses:
        told = {} if condition is None else {"predicate": condition}
        listed[clause.matched].append({**told, "actionType": clause.action.removesuffix("_all")})
    names = {MATCHED: "matchedPredicates", NOT_MATCHED: "notMatchedPredicates", NOT_MATCHED_BY_SOURCE: "notMatchedBySourcePredicates"}
    return {"predicate": predicate, **{name: orjson.dumps(listed[kind]).decode() for kind, name in names.items()}}


def merge_metrics(counts: RowCounts, source_rows: int) -> dict[str, int]:
    """The metrics of a MERGE under Delta's names."""
    return {
        "numSourceRows": source_rows,
        "numOutputRows": counts.updated + counts.inserted,
        "numTargetRowsInserted": counts.inserted,
        "numTargetRowsUpdated": counts.updated,
        "numTargetRowsDeleted": counts.deleted,
    }
