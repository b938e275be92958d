"""The clauses of a MERGE: what they assign, and the columns that they add to the table, resolved by Spark before rows are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType as SparkType

from ...storage.data.row_ids import refuse_reserved
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.schema.computed import default_of, generated_of
from ...storage.schema.schema import PrimitiveType, StructField, StructType, merge, schema_to_json
from ...tables.write.data_writing import WritePlan
from ...tables.write.merging import NOT_MATCHED, clause_name
from ...tables.write.row_operations import keys_among, require_no_keys, with_those_made_of
from ...tables.write.upsert import newest_key
from ..files.filling import default_value
from ..jvm import items, jvm_of, quoted
from ..schemas import for_new_table, from_spark, to_spark
from .assignments import Assigned, Path, assigned_in, defaults_in, new_values, path_of
from .change_job import Work
from .conditions import expression_in
from .source import Keys


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
        return clause_name(self)

    @property
    def writes(self) -> bool:
        """Whether it makes new rows."""
        return self.action != "delete"

    @property
    def inserts(self) -> bool:
        """Whether it is for rows of the source that match nothing."""
        return self.matched == NOT_MATCHED


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


def evolved(
    session: SparkSession, plan: WritePlan, source: DataFrame, clauses: Sequence[Clause], alias: str | None
) -> tuple[WritePlan, bool]:
    """The plan with the source's columns that the clauses write, and whether there is a new one.

    Clauses for all columns write all of the source's, others those that they assign. Columns that the table has keep their
    types; structs get new fields. Raises SchemaMismatch for columns that cannot be added.
    """
    wanted = {name.lower() for clause in clauses for name in _written(session, clause, source, alias)}
    fields = [each for each in for_new_table(from_spark(source.select(*_named(source, wanted)).schema)).fields if _adds(each, plan.schema)]
    merged = merge(plan.schema, StructType(fields))
    if merged == plan.schema:
        return plan, False
    refuse_reserved(plan.metadata.configuration, merged)
    metadata = replace(plan.metadata, schema_string=schema_to_json(merged))
    return replace(plan, metadata=metadata, changes_metadata=True), True


def _written(session: SparkSession, clause: Clause, source: DataFrame, alias: str | None) -> list[str]:
    """The names of top-level columns that a clause writes."""
    if clause.action.endswith("_all"):
        return source.columns
    jvm = jvm_of(session)
    names: list[str] = []
    for text in clause.assignments:
        parsed = jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute.parseAttributeName(text)
        parts = [str(each) for each in items(parsed)]
        names.append(parts[1] if alias is not None and len(parts) > 1 and parts[0].lower() == alias.lower() else parts[0])
    return names


def _named(source: DataFrame, wanted: set[str]) -> list[Any]:
    return [source[quoted(name)] for name in source.columns if name.lower() in wanted]


def _adds(field: StructField, table: StructType) -> bool:
    """Whether a column may bring something new: plain columns that the table has do not."""
    known = table.get(field.name)
    return known is None or not (isinstance(known.type, PrimitiveType) or isinstance(field.type, PrimitiveType))
