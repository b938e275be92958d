"""EXPLAIN CONFLICT: whether two statements can conflict, decided by the engine that decides commits, without running them.

The engine interprets a statement's conditions and values: it gives conditions that sluice can evaluate, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ...coordinator.api import Explanation, Foreseen, ForeseenTable, advice_of
from ...coordinator.rules.isolation import IsolationLevel
from ...statements.compound import ExplainConflict, Part
from ...statements.cursor import Name, Span
from ...statements.maintenance import Optimize
from ...statements.reading import Malformed
from ...statements.rows import Delete, Insert, Merge, Truncate, Update
from ...storage.dataclass import dataclass
from ...storage.errors import PredicateError
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import StructType
from ...tables.table import Table
from ..partitions import partition_condition
from ..place import title
from ..reports import Answer
from ..request import Request

ANY: Final = ""
"""The condition of any row."""
ROWS_MAX: Final = 64
"""Rows that are written in a statement itself count as what they are up to so many."""
_COLUMNS: Final = "second int, isolation string, verdict string, error string, rule string, why string, remedy string"
_KINDS: Final = (Insert, Update, Delete, Merge, Truncate, Optimize)

Foreseeable: TypeAlias = Insert | Update | Delete | Merge | Truncate | Optimize


@dataclass(frozen=True, slots=True)
class Known:
    """What an engine knows of a statement: the condition of the rows that it looks for (ANY: nothing), and whether it reads its table."""

    where: str
    reads_itself: bool

    @property
    def reads(self) -> str:
        """The condition of all rows that it reads."""
        return ANY if self.reads_itself else self.where


def explain_conflict(
    asked: Request, statement: ExplainConflict, opened: Callable[[Name], Table], foreseen: Callable[[Foreseeable, Table], Foreseen]
) -> Answer:
    """One row for each isolation level, and for each of the two statements as the one that commits second.

    `verdict` is "cannot conflict" or "may conflict"; then `error` and `rule` are those of the refusal, `remedy` says what avoids it.
    """
    one, other = (_statement(asked, part) for part in (statement.one, statement.other))
    tables = [opened(each.target) for each in (one, other)]
    levels = [level.value for level in IsolationLevel] if statement.isolation is None else [statement.isolation]
    if tables[0].location != tables[1].location:
        names = title(one.target), title(other.target)
        why = f"the statements change different tables, {names[0]} and {names[1]}; what a statement reads of another table does not count"
        return Answer(_COLUMNS, tuple((second, level, "cannot conflict", None, None, why, None) for level in levels for second in (2, 1)))
    both = [foreseen(each, tables[0]) for each in (one, other)]
    known = ForeseenTable(tables[0].snapshot().raw)
    return Answer(
        _COLUMNS,
        tuple(
            (second, level, *_told(known.meets(both[second - 1], both[2 - second], IsolationLevel(level))))
            for level in levels
            for second in (2, 1)
        ),
    )


def _told(found: Explanation) -> tuple[str | None, ...]:
    if found.verdict == "ok":
        return "cannot conflict", None, None, found.because, None
    what = found.because.split(" came first and ", 1)[-1].split("; ", 1)[0]
    return "may conflict", found.verdict, found.rule, f"the first statement {what}", advice_of(found.rule)


def _statement(asked: Request, part: Part) -> Foreseeable:
    statement = part.statement
    if isinstance(statement, Malformed):
        raise asked.refused(statement.at, statement.message)
    if not isinstance(statement, _KINDS):
        raise asked.refused(part.at, "EXPLAIN CONFLICT takes INSERT, UPDATE, DELETE, MERGE, TRUNCATE and OPTIMIZE")
    return statement


def without_rows(
    asked: Request, statement: Truncate | Optimize, table: Table, condition: Callable[[Span], str | None]
) -> Foreseen:  # fmt: skip
    """What a statement would do that changes whole files."""
    if isinstance(statement, Truncate):
        where = partition_condition(asked, statement.partition, table.struct, table.partition_columns) or ANY
        return Foreseen("TRUNCATE", reads=where, removes=where, whole_files=True)
    found = ANY if statement.where is None else condition(statement.where) or ANY
    orders = statement.z_order_by or table.clustering_columns
    return Foreseen("OPTIMIZE ZORDER" if orders else "OPTIMIZE", removes=found, changes_data=False)


def changing_rows(asked: Request, statement: Update | Delete, known: Known, schema: StructType) -> Foreseen:
    """What an UPDATE or DELETE would do."""
    if isinstance(statement, Delete):
        return Foreseen("DELETE", reads=known.reads, removes=known.where)
    return Foreseen("UPDATE", reads=known.reads, removes=known.where, adds=_updated(asked, statement, schema, known.where))


def _updated(asked: Request, statement: Update, schema: StructType, where: str) -> str:
    """What the new rows satisfy: the parts of the condition about columns that keep their values."""
    if not where:
        return ANY
    texts = {each.column.of(asked.text).replace("`", "").lower() for each in statement.assignments}
    assigned = {part for text in texts for part in (text, text.split(".")[0], text.split(".")[-1])}
    kept, _ = Predicate.parse(where, schema).split(name for name in schema.names if name.lower() not in assigned)
    return ANY if kept is None else kept.to_sql()


def inserting(asked: Request, statement: Insert, table: Table, rows: str, replaces: str | None, reads: str | None) -> Foreseen:
    """What an INSERT would do: `rows` is what is known of its rows as a condition, `replaces` the condition that it overwrites, if any,
    `reads` the one of the rows of the table that its query reads, if any.
    """
    adds = rows or partition_condition(asked, statement.partition, table.struct, table.partition_columns) or ANY
    if replaces is None:
        return Foreseen("INSERT", reads=reads, adds=adds)
    return Foreseen("INSERT OVERWRITE", reads=replaces if reads is None else ANY, removes=replaces, adds=adds, whole_files=True)


def merging(statement: Merge, known: Known) -> Foreseen:
    """What a MERGE would do: `known` is what its ON says of the table alone."""
    kinds = {clause.matched for clause in statement.clauses}
    matching = ANY if "not_matched_by_source" in kinds else known.where
    changes = kinds != {"not_matched"}
    adds = any(not clause.action.startswith("delete") for clause in statement.clauses)
    reads = ANY if known.reads_itself else matching
    return Foreseen("MERGE", reads=reads, removes=matching if changes else None, adds=ANY if adds else None)


def written_out(rows: Sequence[Mapping[str, Any]], schema: StructType) -> str:
    """A condition that these rows satisfy and few others; ANY if there are too many, or of nothing that can be compared."""
    if len(rows) > ROWS_MAX:
        return ANY
    found: Predicate | None = None
    for row in rows:
        each = _equals(row.items(), schema)
        if each is None:
            return ANY
        found = each if found is None else found.or_(each)
    return ANY if found is None else found.to_sql()


def _equals(values: Iterable[tuple[str, Any]], schema: StructType) -> Predicate | None:
    """The condition that columns have these values, as far as it can be written."""
    both: Predicate | None = None
    for name, value in values:
        try:
            each = Predicate.from_filters([("IsNull" if value is None else "EqualTo", (name,), value)], schema)
        except PredicateError:
            continue
        both = each if both is None else both.and_(each)
    return both
