"""A change of rows as it is requested, and as Spark's analyser resolves it: every name, condition and value, before any row is read.

The request is a MERGE with its clauses; UPDATE and DELETE are a MERGE without a source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType as SparkType

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import default_of, generated_of, is_identity
from ...storage.schema.identity import check_given
from ...storage.schema.schema import PrimitiveType, StructField, StructType
from ...tables.client.property_rules import newest_key
from ...tables.write.data_writing import WritePlan
from ...tables.write.draft import Draft
from ...tables.write.evolution import evolved, types_for
from ...tables.write.merging import MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE, check_clauses, clause_name
from ...tables.write.numbering import Numbering
from ...tables.write.row_operations import RowOperation, keys_among, require_no_keys, with_those_made_of
from ..active_session import evolves_schemas
from ..jvm import column_of, in_session, quoted, tree_of, without_rows
from ..scan.file_rows import unused
from ..schemas import for_new_table, from_spark, to_spark
from ..writing import as_session_says, default_value
from .assignments import Assigned, Path, assigned_in, key_of_names, new_values, parts_of, path_of
from .conditions import attributes_in, equal_keys, names_of, numbered_as, numbers_in, predicate_of, resolved
from .source import Keys


@dataclass(frozen=True, slots=True)
class Clause:
    """`WHEN matched [AND condition] THEN action`."""

    matched: str
    """The rows that it is for: "matched", "not_matched" or "not_matched_by_source"."""
    action: str
    """What happens to them: "update", "update_all", "delete", "insert" or "insert_all"."""
    condition: Column | str | None = None
    """Chooses among them, as a Column or SQL; None: all."""
    assignments: Mapping[str, Column | str] = field(default_factory=dict)
    """Columns of the target (paths as Spark writes them: `a.b`, with backticks where needed), and their values as Columns or SQL."""

    @property
    def writes(self) -> bool:
        """Whether it makes new rows."""
        return self.action != "delete"

    @property
    def inserts(self) -> bool:
        """Whether it is for rows of the source that match nothing."""
        return self.matched == NOT_MATCHED


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A change of a table's rows: for each pair that satisfies `on`, each row of the source without one ("not_matched") and each row of
    the table without one ("not_matched_by_source") the first clause that applies.

    Columns and SQL name the columns of both sides, by their aliases; in clauses for rows without a match those of the side that these are
    from.
    """

    source: DataFrame | None
    """The rows to merge, evaluated once; UPDATE and DELETE have none."""
    on: Column | str | None
    """When a row of the table and one of the source are a pair."""
    clauses: Sequence[Clause] = ()
    target_alias: str | None = None
    """The table's name in expressions."""
    source_alias: str | None = None
    """The source's name in expressions, if it has no alias of its own."""
    schema_evolution: bool = False
    """Whether columns and fields of the source that clauses write and the table lacks are added to the table, once all names are
    resolved, and fields of structs that the source lacks stay as they are; the session's setting may say so, too."""
    frames: Sequence[DataFrame] = ()
    """DataFrames of the table: their columns mean the table's without an alias, unless the source is such a frame itself."""
    subqueries: bool = False
    """Whether conditions and values may have subqueries. What these read of other tables does not count as read, and a caller whose
    subqueries read this table says so (`depend_on`)."""
    operation: str = "MERGE"
    """Its name in the history: "MERGE", "UPDATE" or "DELETE"."""

    @staticmethod
    def delete(
        condition: Column | str | None = None, *, alias: str | None = None, frames: Sequence[DataFrame] = (), subqueries: bool = False
    ) -> MergeRequest:
        """Delete the rows that satisfy `condition` (None: all). Files of which statistics show that all rows do are not read."""
        clause = Clause(NOT_MATCHED_BY_SOURCE, "delete", condition)
        return MergeRequest(None, None, (clause,), alias, frames=frames, subqueries=subqueries, operation="DELETE")

    @staticmethod
    def update(
        assignments: Mapping[str, Column | str],
        condition: Column | str | None = None,
        *,
        alias: str | None = None,
        frames: Sequence[DataFrame] = (),
        subqueries: bool = False,
    ) -> MergeRequest:
        """Give columns new values, made of the row before the change, in the rows that satisfy `condition` (None: all)."""
        clause = Clause(NOT_MATCHED_BY_SOURCE, "update", condition, assignments)
        return MergeRequest(None, None, (clause,), alias, frames=frames, subqueries=subqueries, operation="UPDATE")

    def check(self) -> None:
        """Raise InvalidRequest for a source or clauses that cannot be, whatever the tables hold."""
        if self.operation == "UPDATE" and not self.clauses[0].assignments:
            raise InvalidRequest("the update assigns no column; name columns and their values")
        check_clauses(self.clauses)
        if self.operation == "MERGE" and not isinstance(self.source, DataFrame):
            raise InvalidRequest(f"the source is of type {type(self.source).__name__}; give a Spark DataFrame")
        if self.operation == "MERGE" and not isinstance(self.on, (Column, str)):
            raise InvalidRequest(f"the condition of the merge is {self.on!r}; give a Column, or SQL as text")


@dataclass(frozen=True, slots=True)
class ResolvedClause:
    """A clause whose expressions Spark has resolved, each against the rows that the clause is for."""

    clause: Clause
    """The clause as requested."""
    condition: Column | None
    """Which of these rows it is for; None: all."""
    assigned: Assigned
    """The values that it gives to columns; none if it deletes."""


@dataclass(frozen=True, slots=True)
class AnalysedMerge:
    """A MERGE whose expressions Spark has resolved: they hold in every frame of the two sides, whatever their columns are called there."""

    request: MergeRequest
    session: SparkSession
    """The session that runs it, with settings of its own."""
    draft: Draft
    """The table as the transaction sees it, which gets the changes."""
    plan: WritePlan
    """How new rows are written, into the schema that the table has afterwards."""
    label: str
    """Distinguishes the operation's files from those of others of its transaction."""
    columns: DataFrame
    """A frame without rows that has the columns which the table had before, against which names were resolved."""
    source: DataFrame | None
    """The rows to merge, in this session; None for UPDATE and DELETE."""
    on: Column | None
    """When a row of the table and one of the source are a pair."""
    clauses: Sequence[ResolvedClause]
    """What happens to rows: the first clause that applies to one counts."""
    keys: Keys
    """Columns of the table that equal expressions of the source in every pair."""
    matching: Predicate | None
    """A condition that the table's row of every pair satisfies; None: nothing is known."""
    unmatched: Predicate | None
    """A condition that every row satisfies which changes without a pair; None: any may."""
    is_exact: bool
    """Whether all rows that satisfy `unmatched` change."""
    numbering: Numbering | None
    """Takes numbers for the identity columns of new rows."""
    records: bool
    """Whether tasks write change data: later operations of a transaction leave that to its end."""

    @property
    def inserts(self) -> bool:
        """Whether rows of the source that match nothing are inserted."""
        return any(each.clause.inserts for each in self.clauses)

    @property
    def keeps_target(self) -> bool:
        """Whether rows of the table change that match nothing."""
        return any(each.clause.matched == NOT_MATCHED_BY_SOURCE for each in self.clauses)

    def names(self, words: Sequence[str], beside: DataFrame | None) -> list[str]:
        """Names for columns beside those of the table and of a frame."""
        taken = {each.lower() for each in (*self.plan.schema.names, *([] if beside is None else beside.columns))}
        return [unused(word, taken) for word in words]

    def columns_used(self) -> frozenset[str]:
        """The table's columns whose values the operation needs."""
        kept: set[str] = set()
        values = [] if self.on is None else [self.on]
        for each in self.clauses:
            if not each.clause.inserts:  # those use the source alone
                values += [*each.assigned.values.values(), *([] if each.condition is None else [each.condition])]
                whole = {path[0] for path in each.assigned.values if len(path) == 1}
                kept |= set(self.plan.schema.names) - whole if each.clause.writes else set()
        numbers = {number for value in values for number in numbers_in(tree_of(self.session, value))}
        return frozenset(kept.union(name for number, name in names_of(self.columns).items() if number in numbers))


class Analyser:
    """Has Spark resolve the parts of one request."""

    def __init__(self, session: SparkSession, operation: RowOperation, request: MergeRequest) -> None:
        self._session = session
        self._operation = operation
        self._draft = operation.draft
        self._request = request
        plan, source = operation.plan, request.source
        self._evolves = source is not None and (request.schema_evolution or evolves_schemas(session))
        if source is not None:
            source = in_session(session, source)
            source = source if request.source_alias is None else source.alias(request.source_alias)
            plan = _evolved(session, plan, source, request, self._draft) if self._evolves else plan
        self._source = source
        self._plan = replace(as_session_says(plan, session), computed=True)
        self._schema = plan.schema
        self._kinds = to_spark(plan.schema)
        # the columns that the table has before the operation, with the fields that it has after it
        self._before = StructType([each for each in plan.schema.fields if self._draft.schema.get(each.name) is not None])
        expressions = [request.on, *(value for each in request.clauses for value in (each.condition, *each.assignments.values()))]
        attributes = attributes_in(request.frames, expressions, source)
        self._columns = numbered_as(without_rows(session, to_spark(self._before)), attributes)
        alias = request.target_alias
        target = self._columns if alias is None else self._columns.alias(alias)
        self._target = target
        # the columns of the target in its own frame stay what they are in a join
        self._old = {name: target[quoted(name)] for name in target.columns}
        self._names = names_of(target)

    def analysed(self) -> AnalysedMerge:
        """The request with each expression resolved against the rows that it is for. Raises AnalysisException, InvalidRequest and
        SchemaMismatch.
        """
        request = self._request
        on: Any = None
        keys: Keys = ()
        matching: Predicate | None = None
        sides = {NOT_MATCHED_BY_SOURCE: self._target}
        if self._source is not None and request.on is not None:
            pairs = self._target.crossJoin(self._source)
            sides |= {MATCHED: pairs, NOT_MATCHED: self._source}
            on = resolved(pairs, request.on, "the merge", subqueries=request.subqueries)
            keys = equal_keys(on, self._names, names_of(self._source), self._session)
            matching, _ = predicate_of([on], self._names, self._schema)
        clauses: list[ResolvedClause] = []
        unmatched: list[tuple[Predicate | None, bool]] = []
        for clause in request.clauses:
            frame, what = sides[clause.matched], clause_name(clause) if request.operation == "MERGE" else request.operation
            tree = None if clause.condition is None else resolved(frame, clause.condition, what, subqueries=request.subqueries)
            if clause.matched == NOT_MATCHED_BY_SOURCE:
                unmatched.append((None, True) if tree is None else predicate_of([tree], self._names, self._schema))
            condition = None if tree is None else column_of(self._session, tree)
            clauses.append(ResolvedClause(clause, condition, self._assigned(clause, what, frame, keys)))
        return AnalysedMerge(
            request,
            self._session,
            self._draft,
            self._plan,
            self._operation.label,
            self._columns,
            self._source,
            None if on is None else column_of(self._session, on),
            clauses,
            keys,
            matching,
            Predicate.any_of([each for each, _ in unmatched]),
            all(exact for _, exact in unmatched),
            self._operation.numbering,
            self._draft.captures_changes and self._draft.is_pristine,
        )

    def _assigned(self, clause: Clause, what: str, frame: DataFrame, keys: Keys) -> Assigned:
        """What a clause, `what` in messages, assigns to columns over the rows of `frame`; nothing for a deletion.

        In rows that match, columns of the table equal expressions of the source: the `keys`. Such a column may be given that value,
        although it is part of the table's primary key.
        """
        if not clause.writes:
            return Assigned({}, {}, what)
        if clause.inserts and newest_key(self._draft.metadata, self._schema):
            raise InvalidRequest(
                f"{what}: the table has a primary key (sluice.primaryKey), so that its rows cannot be written in parts that do not "
                "know of one another: Table.upsert, or MERGE without Spark (sluice sql --engine local), keep the newest row of each key"
            )
        if clause.action.endswith("_all"):
            assigned = self._all_columns(what)
            named: dict[Path, Column | str] = dict(assigned.values)
        else:
            # only clauses that see the source know the columns which it brings
            schema = self._before if clause.matched == NOT_MATCHED_BY_SOURCE else self._schema
            named = {
                path_of(self._session, name, schema, self._request.target_alias, before=self._before): value
                for name, value in clause.assignments.items()
            }
            if len(named) < len(clause.assignments):
                raise InvalidRequest(f"{what} assigns a column twice: {', '.join(clause.assignments)}")
            assigned = assigned_in(frame, named, self._schema, what, evolves=self._evolves, subqueries=self._request.subqueries)
        check_given(self._schema, [path[0] for path in (assigned.values if clause.inserts else named)], changes=not clause.inserts)
        columns = [path[0] for path in assigned.values]
        if not clause.inserts and self._source is not None and keys_among(self._draft, columns):
            columns = [path[0] for path, value in assigned.values.items() if not self._stays(path, value, keys)]
        require_no_keys(self._draft, with_those_made_of(self._schema, columns))
        if clause.inserts:
            left = [each for each in self._schema.fields if default_of(each) is not None and not assigned.gives(each.name)]
            values: dict[Path, Column] = {(each.name,): default_value(self._session, each) for each in left}
            types: dict[Path, SparkType] = {(each.name,): self._kinds[each.name].dataType for each in left}
            assigned = replace(assigned, values={**assigned.values, **values}, types={**assigned.types, **types})
        new_values(self._session, assigned, self._kinds, {} if clause.inserts else self._old)
        return assigned

    def _all_columns(self, what: str) -> Assigned:
        """All columns of the table get those of the source. Raises SchemaMismatch if it lacks one, or if the schema evolves and it spells
        one differently in a session in which case counts; AnalysisException if several have that name.
        """
        assert self._source is not None
        key = key_of_names(self._session)
        kinds = {key(each.name): each.dataType for each in self._source.schema.fields}
        fields = [each for each in self._schema.fields if key(each.name) in kinds]
        lacking = [each.name for each in self._schema.fields if each not in fields and generated_of(each) is None and not is_identity(each)]
        spelled = {name.lower() for name in kinds}
        if lacking and (not self._evolves or any(name.lower() in spelled for name in lacking)):
            raise SchemaMismatch(
                f"{what}: the source has no column {', '.join(map(repr, lacking))}; it has {', '.join(kinds)}. "
                "Add it, name the columns to write, or evolve the schema",
                columns=lacking,
            )
        values: dict[Path, Column] = {(each.name,): self._source[quoted(each.name)] for each in fields}
        types: dict[Path, SparkType] = {(each.name,): kinds[key(each.name)] for each in fields}
        return Assigned(values, types, what, self._evolves)

    def _stays(self, path: Path, value: Column, keys: Keys) -> bool:
        """Whether a new value is the one that the column has: the column itself, or what it equals in rows that match."""
        [name, *below] = path
        new = tree_of(self._session, value)
        same = [self._old[name], *(key for column, key in keys if column == name)]
        return not below and any(new.semanticEquals(tree_of(self._session, each)) for each in same)


# -- columns that a MERGE adds to the table ------------------------------------------------------------------------------


def _evolved(session: SparkSession, plan: WritePlan, source: DataFrame, request: MergeRequest, draft: Draft) -> WritePlan:
    """The plan with the source's columns that the clauses write.

    Clauses for all columns write all of the source's, others those columns and fields that they assign. Columns that the table has keep
    their types, unless it widens them; structs get new fields. Raises SchemaMismatch for columns that cannot be added.
    """
    writing = [each for each in request.clauses if each.writes and each.matched != NOT_MATCHED_BY_SOURCE]
    table, alias = plan.schema, request.target_alias
    paths: set[Path] | None = None if any(each.action.endswith("_all") for each in writing) else set()
    if paths is not None:  # what clauses assign, in lower case, without the table's alias
        for text in (text for clause in writing for text in clause.assignments):
            parts = tuple(part.lower() for part in parts_of(session, text))
            paths.add(parts[1:] if alias is not None and len(parts) > 1 and parts[0] == alias.lower() else parts)
    columns = [name for name in source.columns if paths is None or any(path[0] == name.lower() for path in paths)]
    source_schema = for_new_table(from_spark(source.select(*[source[quoted(name)] for name in columns]).schema))
    fields: list[StructField] = []
    written = source_schema if paths is None else _written(source_schema, paths)
    wider = types_for(draft, table, written)
    for each in written.fields:
        column = table.get(each.name)
        plain = column is not None and (isinstance(column.type, PrimitiveType) or isinstance(each.type, PrimitiveType))
        if not plain or wider.named(each.name) != column:  # other plain columns that the table has bring nothing new
            fields.append(each)
    metadata = evolved(draft, plan.metadata, StructType(fields))
    return plan if metadata is plan.metadata else replace(plan, metadata=metadata, changes_metadata=True)


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
