"""EXPLAIN CONFLICT: whether two statements can conflict, decided by the engine that decides commits, without running them.

The engine of the statements interprets their conditions and values: it gives conditions that sluice can evaluate, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ...coordinator.api import Explanation, Foreseen, ForeseenTable, advice_of
from ...coordinator.rules.isolation import IsolationLevel
from ...storage.errors import PredicateError
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import StructType
from ...tables.table import Table
from ..engine import Engine, R
from ..parse.compound import ExplainConflict, Part
from ..parse.maintenance import Optimize
from ..parse.reading import Malformed
from ..parse.rows import Delete, Insert, Merge, Truncate, Update
from ..partitions import partition_condition
from ..places import relations_of_sluice, table_of, title
from ..reports import Answer
from ..request import Request
from ..sources import current_tables

ANY: Final = ""
"""The condition of any row."""
ROWS_MAX: Final = 64
"""Up to this many literal rows of a statement are compared by value; more count as any row."""
_COLUMNS: Final = "second int, isolation string, verdict string, error string, rule string, why string, remedy string"
_KINDS: Final = (Insert, Update, Delete, Merge, Truncate, Optimize)

Foreseeable: TypeAlias = Insert | Update | Delete | Merge | Truncate | Optimize


def explain_conflict(engine: Engine[R, Any], request: R, statement: ExplainConflict) -> Answer:
    """One row for each isolation level, and for each of the two statements as the one that commits second.

    `verdict` is "cannot conflict" or "may conflict"; then `error` and `rule` are those of the refusal, `remedy` says what avoids it.
    """
    one, other = (_statement(request, part) for part in (statement.one, statement.other))
    tables = [table_of(request, each.target, "part in transactions") for each in (one, other)]
    levels = [level.value for level in IsolationLevel] if statement.isolation is None else [statement.isolation]
    if tables[0].location != tables[1].location:
        names = title(one.target), title(other.target)
        why = f"the statements change different tables, {names[0]} and {names[1]}; what a statement reads of another table does not count"
        return Answer(_COLUMNS, tuple((second, level, "cannot conflict", None, None, why, None) for level in levels for second in (2, 1)))
    both = [_foreseen(engine, request, each, tables[0]) for each in (one, other)]
    table = ForeseenTable(tables[0].snapshot().raw)
    return Answer(
        _COLUMNS,
        tuple(
            (second, level, *_verdict(table.meets(both[second - 1], both[2 - second], IsolationLevel(level))))
            for level in levels
            for second in (2, 1)
        ),
    )


def _verdict(explanation: Explanation) -> tuple[str | None, ...]:
    if explanation.verdict == "ok":
        return "cannot conflict", None, None, explanation.because, None
    why = f"the first statement {explanation.winner_did}"
    return "may conflict", explanation.verdict, explanation.rule, why, advice_of(explanation.rule)


def _statement(request: Request, part: Part) -> Foreseeable:
    statement = part.statement
    if isinstance(statement, Malformed):
        raise request.refused(statement.at, statement.message)
    if not isinstance(statement, _KINDS):
        raise request.refused(part.at, "EXPLAIN CONFLICT takes INSERT, UPDATE, DELETE, MERGE, TRUNCATE and OPTIMIZE")
    return statement


def _foreseen(engine: Engine[R, Any], request: R, statement: Foreseeable, table: Table) -> Foreseen:
    """What the statement would do, as far as the engine can tell without running it."""
    schema, columns = table.struct, table.partition_columns
    if isinstance(statement, Truncate):
        where = partition_condition(request, statement.partition, schema, columns) or ANY
        return Foreseen("TRUNCATE", reads=where, removes=where, whole_files=True)
    if isinstance(statement, Insert):
        new = engine.new_rows(request, statement, table)
        adds = new.adds or partition_condition(request, statement.partition, schema, columns) or ANY
        if new.replaces is None:
            return Foreseen("INSERT", reads=new.reads, adds=adds)
        reads = new.replaces if new.reads is None else ANY
        return Foreseen("INSERT OVERWRITE", reads=reads, removes=new.replaces, adds=adds, whole_files=True)
    where = engine.sought(request, statement, table)
    if isinstance(statement, Optimize):
        orders = statement.z_order_by or table.clustering_columns
        return Foreseen("OPTIMIZE ZORDER" if orders else "OPTIMIZE", removes=where, changes_data=False)
    reads_itself = any(each.location == table.location for each in current_tables(relations_of_sluice(request, statement.relations)))
    if isinstance(statement, Merge):
        return _merging(statement, where, reads_itself=reads_itself)
    reads = ANY if reads_itself else where
    if isinstance(statement, Delete):
        return Foreseen("DELETE", reads=reads, removes=where)
    return Foreseen("UPDATE", reads=reads, removes=where, adds=_updated(request, statement, schema, where))


def _merging(statement: Merge, where: str, *, reads_itself: bool) -> Foreseen:
    """What a MERGE would do whose ON says `where` of the table alone."""
    kinds = {clause.matched for clause in statement.clauses}
    matching = ANY if "not_matched_by_source" in kinds else where
    changes = kinds != {"not_matched"}
    adds = any(not clause.action.startswith("delete") for clause in statement.clauses)
    reads = ANY if reads_itself else matching
    return Foreseen("MERGE", reads=reads, removes=matching if changes else None, adds=ANY if adds else None)


def _updated(request: Request, statement: Update, schema: StructType, where: str) -> str:
    """What the new rows satisfy: the parts of the condition about columns that keep their values."""
    if not where:
        return ANY
    texts = {each.column.of(request.text).replace("`", "").lower() for each in statement.assignments}
    assigned = {part for text in texts for part in (text, text.split(".")[0], text.split(".")[-1])}
    unchanged, _ = Predicate.parse(where, schema).split(name for name in schema.names if name.lower() not in assigned)
    return ANY if unchanged is None else unchanged.to_sql()


def written_out(rows: Sequence[Mapping[str, Any]], schema: StructType) -> str:
    """A condition that these rows satisfy and few others; ANY if there are too many, or of nothing that can be compared."""
    if len(rows) > ROWS_MAX:
        return ANY
    any_row = Predicate.any_of(_equals(row.items(), schema) for row in rows)
    return ANY if any_row is None else any_row.to_sql()


def _equals(values: Iterable[tuple[str, Any]], schema: StructType) -> Predicate | None:
    """The condition that columns have these values, as far as it can be written."""
    parts: list[Predicate] = []
    for name, value in values:
        with suppress(PredicateError):
            parts.append(Predicate.from_filters([("IsNull" if value is None else "EqualTo", (name,), value)], schema))
    return Predicate.all_of(parts)
