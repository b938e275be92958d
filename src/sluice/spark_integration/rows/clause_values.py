"""What the clauses of a MERGE assign, resolved against the table and the source before rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType as SparkType

from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.schema.computed import default_of, generated_of
from ...tables.write.row_operations import keys_among, require_no_keys, with_those_made_of
from ...tables.write.upsert import newest_key
from ..files.filling import default_value
from ..jvm import quoted
from ..schemas import to_spark
from .assignments import Assigned, Path, assigned_in, defaults_in, new_values, path_of
from .change_job import Work
from .clauses import Clause
from .conditions import expression_in
from .source import Keys

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
    keys: Keys,
    evolves: bool,
    subqueries: bool = False,
) -> Assigned:
    """What a clause assigns to columns, over the rows of `frame` with their `old` values; nothing for a deletion.

    In rows that match, columns of the table equal expressions of the source: the `keys`. Such a column may be given that value, although
    it is part of the table's primary key.

    Raises AnalysisException, InvalidRequest and SchemaMismatch for what cannot be assigned.
    """
    if not clause.writes:
        return Assigned({}, {}, clause.name)
    schema = work.schema
    if clause.action.endswith("_all"):
        lacking = [each.name for each in schema.fields if each.name.lower() not in source and generated_of(each) is None]
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
        assigned = assigned_in(frame, defaults_in(work.session, values, schema), clause.name, subqueries=subqueries)
    if clause.inserts and newest_key(work.draft.metadata, schema):
        raise InvalidRequest(
            f"{clause.name}: the table has a primary key (sluice.primaryKey), so that its rows cannot be written in parts that do not "
            "know of one another: Table.upsert, or MERGE without Spark (sluice sql --engine local), keep the newest row of each key"
        )
    given = [path[0] for path in assigned.values]
    if not clause.inserts and keys_among(work.draft, given):
        given = [path[0] for path, value in assigned.values.items() if not _stays(frame, path, value, old, keys)]
    require_no_keys(work.draft, with_those_made_of(schema, given))
    if clause.inserts:
        assigned = _with_defaults(assigned, work)
    new_values(work.session, assigned, schema, {} if clause.inserts else old)
    return assigned


def _stays(frame: DataFrame, path: Path, value: Column, old: Mapping[str, Column], keys: Keys) -> bool:
    """Whether a value in rows of the frame is the one that the column has: the column itself, or what it equals in rows that match."""
    [name, *below] = path
    same = [old[name], *(key for column, key in keys if column == name)]
    found = [expression_in(frame, each) for each in (value, *same)]
    return not below and any(found[0].semanticEquals(each) for each in found[1:])


def _with_defaults(assigned: Assigned, work: Work) -> Assigned:
    """What an insertion assigns, and the defaults of the columns that it does not."""
    left = [each for each in work.schema.fields if default_of(each) is not None and not assigned.gives(each.name)]
    if not left:
        return assigned
    kinds = to_spark(work.schema)
    values: dict[Path, Column] = {(each.name,): default_value(work.session, each) for each in left}
    types: dict[Path, SparkType] = {(each.name,): kinds[each.name].dataType for each in left}
    return Assigned({**assigned.values, **values}, {**assigned.types, **types}, assigned.what)
