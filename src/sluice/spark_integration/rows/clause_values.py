"""What the clauses of a MERGE assign, resolved against the table and the source before rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType as SparkType

from ...storage.errors import InvalidRequest, SchemaMismatch
from ...tables.write.row_operations import require_no_keys
from ..jvm import quoted
from .assignments import Assigned, Path, assigned_in, new_values, path_of
from .clauses import Clause
from .work import Work

__all__ = ["SourceColumns", "assigned_by", "source_columns"]

SourceColumns: TypeAlias = "Mapping[str, tuple[Column, SparkType]]"
"""The columns of the source and their types by name in lower case."""


def source_columns(source: DataFrame) -> SourceColumns:
    """Without those whose name occurs several times."""
    names = [name.lower() for name in source.columns]
    once = [each for each in source.schema.fields if names.count(each.name.lower()) == 1]
    return {each.name.lower(): (source[quoted(each.name)], each.dataType) for each in once}


def assigned_by(
    clause: Clause,
    frame: DataFrame,
    source: SourceColumns,
    old: Mapping[str, Column],
    work: Work,
    alias: str | None,
    *,
    evolves: bool,
    subqueries: bool = False,
) -> Assigned:
    """What a clause assigns to columns, over the rows of `frame` with their `old` values; nothing for a deletion.

    Raises AnalysisException, InvalidRequest and SchemaMismatch for what cannot be assigned.
    """
    if not clause.writes:
        return Assigned({}, {}, clause.name)
    schema = work.schema
    if clause.action.endswith("_all"):
        lacking = [name for name in schema.names if name.lower() not in source]
        if lacking and not evolves:
            raise SchemaMismatch(
                f"{clause.name}: the source has no column {', '.join(map(repr, lacking))} (or several); it has "
                f"{', '.join(source)}. Add it, name the columns to write, or evolve the schema",
                columns=lacking,
            )
        found = {(name,): source[name.lower()] for name in schema.names if name.lower() in source}
        assigned = Assigned(
            {path: value for path, (value, _) in found.items()}, {path: kind for path, (_, kind) in found.items()}, clause.name
        )
    else:
        values: dict[Path, Column | str] = {path_of(work.session, name, schema, alias): value for name, value in clause.assignments.items()}
        if len(values) < len(clause.assignments):
            raise InvalidRequest(f"{clause.name} assigns a column twice: {', '.join(clause.assignments)}")
        assigned = assigned_in(frame, values, clause.name, subqueries=subqueries)
    require_no_keys(work.draft, [path[0] for path in assigned.values])
    new_values(work.session, assigned, schema, {} if clause.inserts else old)
    return assigned
