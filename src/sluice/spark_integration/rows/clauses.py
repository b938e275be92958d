"""The clauses of a MERGE: what they assign, and the columns that they add to the table, resolved by Spark before rows are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType as SparkType

from ...storage.data.row_ids import refuse_reserved
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.schema.computed import default_of, generated_of
from ...storage.schema.schema import PrimitiveType, StructField, StructType, merge, schema_to_json
from ...tables.write.data_writing import WritePlan
from ...tables.write.merging import NOT_MATCHED_BY_SOURCE
from ...tables.write.row_operations import keys_among, require_no_keys, with_those_made_of
from ...tables.write.upsert import newest_key
from ..files.filling import default_value
from ..jvm import quoted
from ..schemas import for_new_table, from_spark, to_spark
from .assignments import Assigned, Path, assigned_in, defaults_in, key_of_names, new_values, parts_of, path_of
from .change_job import Work
from .conditions import tree_of
from .request import Clause
from .source import Keys


def assigned_by(
    clause: Clause,
    frame: DataFrame,
    source: DataFrame,
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
        assigned = _all_columns(clause, source, work, evolves=evolves)
    else:
        # only clauses that see the source know the columns which it brings
        known = work.before if clause.matched == NOT_MATCHED_BY_SOURCE else schema
        values: dict[Path, Column | str] = {
            path_of(work.session, name, known, alias, before=work.before): value for name, value in clause.assignments.items()
        }
        if len(values) < len(clause.assignments):
            raise InvalidRequest(f"{clause.name} assigns a column twice: {', '.join(clause.assignments)}")
        values = defaults_in(work.session, values, schema)
        assigned = assigned_in(frame, values, clause.name, evolves=evolves, subqueries=subqueries)
    if clause.inserts and newest_key(work.draft.metadata, schema):
        raise InvalidRequest(
            f"{clause.name}: the table has a primary key (sluice.primaryKey), so that its rows cannot be written in parts that do not "
            "know of one another: Table.upsert, or MERGE without Spark (sluice sql --engine local), keep the newest row of each key"
        )
    given = [path[0] for path in assigned.values]
    if not clause.inserts and keys_among(work.draft, given):
        given = [path[0] for path, value in assigned.values.items() if not _stays(work, path, value, old, keys)]
    require_no_keys(work.draft, with_those_made_of(schema, given))
    if clause.inserts:
        assigned = _with_defaults(assigned, work)
    new_values(work.session, assigned, schema, {} if clause.inserts else old)
    return assigned


def _all_columns(clause: Clause, source: DataFrame, work: Work, *, evolves: bool) -> Assigned:
    """All columns of the table get those of the source. Raises SchemaMismatch if it lacks one, or if `evolves` spells one differently in a
    session in which case counts; AnalysisException if several have that name.
    """
    key = key_of_names(work.session)
    kinds = {key(each.name): each.dataType for each in source.schema.fields}
    fields = [each for each in work.schema.fields if key(each.name) in kinds]
    lacking = [each.name for each in work.schema.fields if each not in fields and generated_of(each) is None]
    spelled = {name.lower() for name in kinds}
    if lacking and (not evolves or any(name.lower() in spelled for name in lacking)):
        raise SchemaMismatch(
            f"{clause.name}: the source has no column {', '.join(map(repr, lacking))}; it has {', '.join(kinds)}. "
            "Add it, name the columns to write, or evolve the schema",
            columns=lacking,
        )
    values: dict[Path, Column] = {(each.name,): source[quoted(each.name)] for each in fields}
    types: dict[Path, SparkType] = {(each.name,): kinds[key(each.name)] for each in fields}
    return Assigned(values, types, clause.name, evolves)


def _stays(work: Work, path: Path, value: Column, old: Mapping[str, Column], keys: Keys) -> bool:
    """Whether a new value is the one that the column has: the column itself, or what it equals in rows that match."""
    [name, *below] = path
    new = tree_of(work.session, value)
    same = [old[name], *(key for column, key in keys if column == name)]
    return not below and any(new.semanticEquals(tree_of(work.session, each)) for each in same)


def _with_defaults(assigned: Assigned, work: Work) -> Assigned:
    """What an insertion assigns, and the defaults of the columns that it does not."""
    left = [each for each in work.schema.fields if default_of(each) is not None and not assigned.gives(each.name)]
    if not left:
        return assigned
    kinds = to_spark(work.schema)
    values: dict[Path, Column] = {(each.name,): default_value(work.session, each) for each in left}
    types: dict[Path, SparkType] = {(each.name,): kinds[each.name].dataType for each in left}
    return replace(assigned, values={**assigned.values, **values}, types={**assigned.types, **types})


def evolved(
    session: SparkSession, plan: WritePlan, source: DataFrame, clauses: Sequence[Clause], alias: str | None
) -> tuple[WritePlan, bool]:
    """The plan with the source's columns that the clauses write, and whether there is a new one.

    Clauses for all columns write all of the source's, others those columns and fields that they assign. Columns that the table has keep
    their types; structs get new fields. Raises SchemaMismatch for columns that cannot be added.
    """
    writing = [each for each in clauses if each.writes and each.matched != NOT_MATCHED_BY_SOURCE]
    paths = None if any(each.action.endswith("_all") for each in writing) else _assigned_paths(session, writing, alias)
    columns = [name for name in source.columns if paths is None or any(path[0] == name.lower() for path in paths)]
    wanted = for_new_table(from_spark(source.select(*[source[quoted(name)] for name in columns]).schema))
    fields = [each for each in (wanted if paths is None else _written(wanted, paths)).fields if _adds(each, plan.schema)]
    merged = merge(plan.schema, StructType(fields))
    if merged == plan.schema:
        return plan, False
    refuse_reserved(plan.metadata.configuration, merged)
    metadata = replace(plan.metadata, schema_string=schema_to_json(merged))
    return replace(plan, metadata=metadata, changes_metadata=True), True


def _assigned_paths(session: SparkSession, clauses: Sequence[Clause], alias: str | None) -> set[Path]:
    """What clauses assign, in lower case, without the table's alias."""
    paths: set[Path] = set()
    for text in (text for clause in clauses for text in clause.assignments):
        parts = tuple(part.lower() for part in parts_of(session, text))
        paths.add(parts[1:] if alias is not None and len(parts) > 1 and parts[0] == alias.lower() else parts)
    return paths


def _written(schema: StructType, paths: set[Path], above: Path = ()) -> StructType:
    """The columns and fields that have one of these paths, or one below them that has."""
    fields: list[StructField] = []
    for each in schema.fields:
        path = (*above, each.name.lower())
        if path in paths:
            fields.append(each)
        elif isinstance(each.type, StructType) and (below := _written(each.type, paths, path)).fields:
            fields.append(replace(each, type=below))
    return StructType(fields)


def _adds(field: StructField, table: StructType) -> bool:
    """Whether a column may bring something new: plain columns that the table has do not."""
    known = table.get(field.name)
    return known is None or not (isinstance(known.type, PrimitiveType) or isinstance(field.type, PrimitiveType))
