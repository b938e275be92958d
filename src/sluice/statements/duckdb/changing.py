"""UPDATE, DELETE and MERGE in an open transaction.

Without subqueries sluice evaluates conditions and values of UPDATE and DELETE itself, file by file. Subqueries and MERGE are DuckDB's: it
gets the rows of the files that may hold rows to change, pairs them with those of the source, chooses the clause of each, and returns the
numbers of those that change, with their new values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ...coordinator.api import Reads
from ...coordinator.rules.intent import Kind
from ...storage.actions import AddFile
from ...storage.data.assignments import renewing
from ...storage.data.numbers import Take
from ...storage.data.vectors import Rows as Positions
from ...storage.data.vectors import rows_at
from ...storage.dataclass import dataclass
from ...storage.errors import PredicateError, SchemaMismatch
from ...storage.pruning.predicate import Predicate
from ...storage.schema.conform import conform
from ...storage.schema.datatypes import StructField, StructType, generated_of, is_identity
from ...storage.schema.identity import check_given
from ...storage.schema.schema import to_arrow
from ...storage.schema.sqltypes import quoted_name
from ...tables.client.property_rules import newest_key
from ...tables.transaction import Transaction
from ...tables.write.data_writing import WritePlan, check_rows
from ...tables.write.draft import Draft
from ...tables.write.merging import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    Keys,
    RowCounts,
    ambiguous,
    check_clauses,
    clause_name,
    may_repeat,
    merge_metrics,
    merge_parameters,
    upsert_rows,
)
from ...tables.write.row_operations import (
    RowChanges,
    Step,
    apply_changes,
    keys_changed,
    reads_of,
    require_no_keys,
    target_of,
    with_those_made_of,
)
from ..engine import RowChange
from ..parse.cursor import Span
from ..parse.rows import Delete, Merge, MergeClause, Update
from ..places import Source, renaming, target_edits
from ..request import Edit
from .database import LocalRequest, assigned, condition_of, conjuncts, known_part, run_query, unqualified, with_defaults
from .queries import as_views, filled_in, new_values, query

TARGET: Final = "__sluice_target"
"""The name of the table that is changed, in DuckDB."""
NUMBER: Final = "__sluice_number"
"""The column with the numbers of its rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of `files`: their values and numbers in `data`; the file and the position of each; the ids that they keep, if they do."""

    data: pa.Table
    files: list[AddFile]
    file_of: pa.ChunkedArray
    positions: pa.ChunkedArray
    ids: pa.Table | None

    @staticmethod
    def of(request: LocalRequest, draft: Draft, files: pa.Table) -> Rows:
        """All rows of these files, from the draft's candidates. Raises UnsupportedFeature ("Spark") if one process does not take them."""
        size = pc.sum(files["size"]).as_py() or 0
        if request.max_bytes is not None and size > request.max_bytes:
            said = (
                f"the change looks into {size >> 20} MiB of data files, more than the {request.max_bytes >> 20} MiB that one process takes"
            )
            raise request.needs_spark(Span(0, len(request.text)), said)
        schema = to_arrow(draft.schema)
        batches = list(draft.find(None, files, with_ids=True))
        whole = pa.concat_tables([each.rows for each in batches]) if batches else schema.empty_table()
        ids = None if draft.row_ids is None or not batches else whole.select([draft.row_ids.row_id])
        data = whole.select(schema.names).append_column(NUMBER, pa.array(range(whole.num_rows), pa.int64()))
        file_of = [pa.repeat(pa.scalar(number, pa.int32()), len(each.positions)) for number, each in enumerate(batches)]
        positions = pa.chunked_array([each.positions for each in batches], pa.int64())
        return Rows(data, [each.file for each in batches], pa.chunked_array(file_of, pa.int32()), positions, ids)

    def with_values(self, numbers: pa.ChunkedArray, new: pa.Table, schema: StructType) -> pa.Table:
        """The rows of these numbers with new values in some columns, and their numbers; generated columns are made again.

        Raises SchemaMismatch for a forbidden null.
        """
        rows = self.data.drop_columns([NUMBER]).take(numbers)
        for name in new.column_names:
            rows = rows.set_column(rows.column_names.index(name), name, new.column(name))
        return renewing(schema, new.column_names).apply(conform(rows, schema)).append_column(NUMBER, numbers)

    def places(self, numbers: pa.Array | pa.ChunkedArray) -> dict[str, Positions]:
        """The positions of the rows of these numbers, by file."""
        of = self.file_of.take(numbers)
        at = self.positions.take(numbers)
        return {self.files[number].path: rows_at(at.filter(pc.equal(of, number))) for number in pc.unique(of).to_pylist()}


@dataclass(frozen=True, slots=True)
class Changes:
    """What happens to rows: those of the numbers `deleted` go, those in `replaced`, with their numbers, get these values; `added` are new.

    The values fit the table's schema.
    """

    deleted: pa.Array | pa.ChunkedArray | None = None
    replaced: pa.Table | None = None
    added: pa.Table | None = None

    @property
    def counts(self) -> RowCounts:
        """How many rows."""
        return RowCounts(*[0 if each is None else len(each) for each in (self.replaced, self.deleted, self.added)])


def apply_to(draft: Draft, rows: Rows, changes: Changes, label: str, reads: Reads) -> Reads | None:
    """Make changes part of the draft; returns what was read.

    In a table with a primary key new rows replace those with their keys, as in an append. Raises InvalidRequest if a key would change,
    SchemaMismatch and ConstraintViolated for new values, before the draft changes.
    """
    key = newest_key(draft.metadata, draft.schema)
    if key and changes.replaced is not None:
        old, other = rows.data.take(changes.replaced.column(NUMBER)), list[str]()
        for name in key:
            values = Keys.of(old, [name], null_safe=[name])  # by which NaN equals NaN
            if not values.find(old).equals(values.find(changes.replaced)):
                other.append(name)
        if other:
            raise keys_changed(other)
    gone = {} if changes.deleted is None else rows.places(changes.deleted)
    replaced = {} if changes.replaced is None else rows.places(changes.replaced.column(NUMBER))
    draft.foresee([each for each in rows.files if each.path in replaced or each.path in gone])
    # Rows that this transaction added itself stay new to the table.
    own = {path: positions for path, positions in replaced.items() if draft.is_new(path)}
    added, successors = [], []
    if changes.replaced is not None:
        is_new = pa.array([draft.is_new(each.path) for each in rows.files], pa.bool_())
        mine = is_new.take(rows.file_of.take(changes.replaced.column(NUMBER)))
        added += _written(draft, rows, changes.replaced.filter(mine), f"{label}n")
        successors += _written(draft, rows, changes.replaced.filter(pc.invert(mine)), label)
    if changes.added is not None and changes.added.num_rows and not key:
        added += draft.write([changes.added], label=f"{label}i", check=check_rows(draft.metadata))
    deleted = {path: own.get(path, Positions()) | gone.get(path, Positions()) for path in (*own, *gone)}
    others = {path: positions for path, positions in replaced.items() if path not in own}
    apply_changes(draft, RowChanges(deleted=deleted, replaced=others, successors=successors, added=added))
    if not key or changes.added is None:
        return reads
    return reads_of([reads, upsert_rows(draft, changes.added, None, label=f"{label}k").reads])


def _written(draft: Draft, rows: Rows, replaced: pa.Table, label: str) -> list[AddFile]:
    """Files with new values of rows, which keep their ids."""
    if not replaced.num_rows:
        return []
    data = replaced.drop_columns([NUMBER])
    if rows.ids is not None:
        data = data.append_column(rows.ids.schema.field(0), rows.ids.column(0).take(replaced.column(NUMBER)))
    return draft.write([data], label=label, check=check_rows(draft.metadata), with_ids=True)


SOURCE: Final = "__sluice_source"
"""The name of a MERGE's source, in DuckDB."""
_SOURCE_NUMBER: Final = "__sluice_source_number"
_PAIRS: Final = "__sluice_pairs"
"""Pairs of rows, by their numbers; also the rows of one side alone."""
_MINE: Final = "__sluice_mine"
_THEIRS: Final = "__sluice_theirs"
_CLAUSE: Final = "__sluice_clause"
_NUMBERS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    MATCHED: (_MINE, _THEIRS),
    NOT_MATCHED: (_THEIRS,),
    NOT_MATCHED_BY_SOURCE: (_MINE,),
}
_SHOWN: Final = 3


def merge_rows(request: LocalRequest, statement: Merge, part: Transaction, sources: Sequence[Source]) -> RowCounts:
    """Merge a source into the table of an open transaction; `sources` are the tables that it reads.

    Raises UnsupportedFeature ("Spark") for what DuckDB cannot do, InvalidRequest for clauses that cannot be, and if two rows of the source
    change one row of the table; SchemaMismatch and ConstraintViolated for new rows that do not fit.
    """
    check_clauses(statement.clauses)
    if statement.evolves:
        raise request.needs_spark(statement.target, "WITH SCHEMA EVOLUTION in a MERGE")
    rows_of_source = source_of(request, statement, sources)
    views, tables = as_views(request, [each for each in sources if each.relation.start >= statement.source.end])
    kinds = {clause.matched for clause in statement.clauses}
    with part.operation("MERGE", replaces=kinds != {NOT_MATCHED}) as operation:
        draft = operation.draft
        views += [*target_edits(request, statement, draft.schema.names), *source_edits(request, statement, rows_of_source.column_names)]
        source = _with_distinct_names(request, statement, rows_of_source, draft.schema, views)
        values = [_values(request, statement, clause, source, draft.schema) for clause in statement.clauses]
        sought = None if NOT_MATCHED_BY_SOURCE in kinds else _looked_for(request, statement, source, draft.schema, views)
        target = target_of(draft, sought, sought)
        rows = Rows.of(request, draft, target.files)
        numbered = source.append_column(_SOURCE_NUMBER, pa.array(range(source.num_rows), pa.int64()))
        pairing = _Pairing(request, statement, views, {**tables, TARGET: rows.data, SOURCE: numbered})
        changes = pairing.changes(values, rows, operation.plan, operation.numbering)
        reads = apply_to(draft, rows, changes, operation.label, target.reads)
        counts = changes.counts
        clauses = [(each, None if each.condition is None else each.condition.of(request.text)) for each in statement.clauses]
        parameters = merge_parameters(statement.on.of(request.text), clauses)
        operation.step = Step("MERGE", Kind.CHANGE, parameters, merge_metrics(counts, source.num_rows), reads, changes=counts.affected > 0)
    return counts


def source_of(request: LocalRequest, statement: Merge, sources: Sequence[Source]) -> pa.Table:
    """The rows of the source. A query in brackets is run without them, since DuckDB renames columns of one name in an inner query."""
    at = statement.source
    if request.text[at.start] == "(":
        return query(request, (Span(at.start + 1, at.end - 1),), sources)
    return query(request, (at,), sources, [Edit(at.start, at.start, "SELECT * FROM ")])


def source_edits(request: LocalRequest, statement: Merge, columns: Sequence[str]) -> list[Edit]:
    """What the source is called, in place of its whole name in front of columns."""
    named = [each for each in statement.relations if each.start == statement.source.start and not each.has_alias]
    return [edit for each in named for edit in renaming(request.text, each.name.parts, each.called, columns)]


def _with_distinct_names(request: LocalRequest, statement: Merge, source: pa.Table, schema: StructType, views: list[Edit]) -> pa.Table:
    """The source without columns of which several have one name. DuckDB would take the first, where Spark refuses to choose.

    Raises InvalidRequest if the statement uses one; so may be a name without an alias inside a subquery, whatever it means there.
    """
    names = [name.lower() for name in source.column_names]
    if len(set(names)) == len(names):
        return source
    used = [(statement.source, name.lower()) for name in schema.names if any(each.action.endswith("_all") for each in statement.clauses)]
    alias = (statement.source_called or SOURCE).lower()
    spans = [statement.on]
    for clause in statement.clauses:
        spans += [*([] if clause.condition is None else [clause.condition]), *(each.value for each in clause.assignments)]
    for span in spans:
        tree = condition_of(request.expression(span, views))
        for column in tree.find_all(exp.Column) if tree is not None else ():
            first, *rest = (part.name.lower() for part in column.parts)
            used.append((span, rest[0] if rest and first == alias else first))
    for span, name in used:
        places = [number for number, each in enumerate(names) if each == name]
        if len(places) > 1:
            shown = " or ".join(f"{source.column_names[number]}, column {number + 1} of the source" for number in places)
            raise request.refused(span, f"{name} is ambiguous: it may be {shown}. Give them different names with AS")
    return source.select([number for number, name in enumerate(names) if names.count(name) == 1])


def _values(request: LocalRequest, statement: Merge, clause: MergeClause, source: pa.Table, schema: StructType) -> dict[str, str | Span]:
    """What a clause assigns: for each column a part of the statement, or text."""
    if clause.action.endswith("_all"):
        names = [name.lower() for name in source.column_names]
        made = {each.name for each in schema.fields if _is_made(each) and each.name.lower() not in names}
        lacking = [name for name in schema.names if names.count(name.lower()) != 1 and name not in made]
        if lacking:
            said = (
                f"{clause_name(clause)}: the source has no column {', '.join(map(repr, lacking))}; it has {', '.join(names)}. "
                "Add it, or name the columns to write"
            )
            raise request.error(SchemaMismatch, statement.source, said, columns=lacking)
        side = quoted_name(statement.source_called or SOURCE)
        columns = [name for name in schema.names if name not in made]
        check_given(schema, columns, changes=clause.matched != NOT_MATCHED)
        return {name: f"{side}.{quoted_name(source.column_names[names.index(name.lower())])}" for name in columns}
    values = assigned(request, statement, clause.assignments, schema)
    check_given(schema, () if clause.matched == NOT_MATCHED else values, changes=True)
    return with_defaults(request, values, schema)


def _is_made(field: StructField) -> bool:
    """Whether a source need not have the column."""
    return generated_of(field) is not None or is_identity(field)


# -- which rows ----------------------------------------------------------------------------------------------------------


def _looked_for(request: LocalRequest, statement: Merge, source: pa.Table, schema: StructType, views: Sequence[Edit]) -> Predicate | None:
    """A condition of all rows that a row of the source can match; None if nothing is known."""
    tree = condition_of(request.expression(statement.on, views))
    alone = known_part(tree, schema, statement.called)
    target, other = statement.called.lower(), (statement.source_called or SOURCE).lower()
    keys: dict[str, pa.ChunkedArray] = {}
    for part in conjuncts(tree) if tree is not None else ():
        sides = [part.left, part.right] if isinstance(part, exp.EQ) else []
        named = {side.table.lower(): side.name for side in sides if isinstance(side, exp.Column) and not side.args.get("db")}
        column = schema.get(named.get(target, ""))
        matches = [name for name in source.column_names if name.lower() == named.get(other, "").lower()]
        if column is None or len(matches) != 1 or target == other:
            continue
        values = source.column(matches[0])
        if values.type == to_arrow(schema).field(column.name).type and not pa.types.is_nested(values.type):
            keys[column.name] = values
    if not keys:
        return alone
    rows = pa.table(keys)
    try:
        in_keys = Keys.of(rows, list(keys)).condition(rows, schema)
    except PredicateError:
        return alone
    return Predicate.all_of([alone, in_keys])


# -- pairs and clauses ---------------------------------------------------------------------------------------------------


class _Pairing:
    """The queries of one MERGE. Each condition and each value is evaluated once for a row or a pair of rows."""

    def __init__(self, request: LocalRequest, statement: Merge, edits: Sequence[Edit], tables: Mapping[str, pa.Table]) -> None:
        self._request = request
        self._statement = statement
        self._edits = edits
        self._tables = dict(tables)
        mine, theirs = f"{TARGET} AS {quoted_name(statement.called)}", f"{SOURCE} AS {quoted_name(statement.source_called or SOURCE)}"
        self._sides = {NUMBER: mine, _SOURCE_NUMBER: theirs}
        both = f"FROM {mine} JOIN {theirs} ON {self._value(statement.on)}"
        pairs = self._run(f"SELECT {NUMBER} AS {_MINE}, {_SOURCE_NUMBER} AS {_THEIRS} {both}")
        self._chosen: dict[str, pa.Table] = {}
        """The rows for which a clause of a kind applies, with its number: the first whose condition holds."""
        for kind, columns in _NUMBERS_OF.items():
            conditions = [each.condition for each in statement.clauses if each.matched == kind]
            if not conditions:
                continue
            values = ["TRUE" if each is None else self._value(each) for each in conditions]
            tests = " ".join([f"WHEN {value} THEN {number}" for number, value in enumerate(values)])
            if kind == MATCHED:
                self._tables[_PAIRS] = pairs
            else:  # the rows of a side that are in no pair
                side = columns[0]
                numbers = tables[SOURCE].column(_SOURCE_NUMBER) if side == _THEIRS else tables[TARGET].column(NUMBER)
                self._tables[_PAIRS] = pa.table({side: numbers.filter(pc.invert(pc.is_in(numbers, value_set=pairs.column(side))))})
            self._chosen[kind] = self._run(f"SELECT {', '.join(columns)}, CASE {tests} END AS {_CLAUSE} {self._from(kind)}")

    def _run(self, text: str) -> pa.Table:
        return run_query(self._request, Span(0, len(self._request.text)), text, self._tables)

    def _from(self, kind: str) -> str:
        """The rows of `__sluice_pairs`, with the columns of both sides, or of the one."""
        numbers = [(NUMBER, _MINE), (_SOURCE_NUMBER, _THEIRS)]
        joined = [f"JOIN {self._sides[number]} ON {number} = {own}" for number, own in numbers if own in _NUMBERS_OF[kind]]
        return f"FROM {_PAIRS} {' '.join(joined)}"

    def _value(self, value: str | Span) -> str:
        return f"({self._request.sql((value,), self._edits) if isinstance(value, Span) else value})"

    def changes(self, values: Sequence[Mapping[str, str | Span]], rows: Rows, plan: WritePlan, take: Take | None) -> Changes:
        """What all clauses do together, which assign these values; `take` numbers new rows. Raises InvalidRequest if a row would be changed
        several times.
        """
        deleted: list[pa.Array] = []
        replaced: list[pa.Table] = []
        added: list[pa.Table] = []
        concerned: list[pa.Array] = []
        for clause, assigned_values in zip(self._statement.clauses, values, strict=True):
            numbers_of, chosen = _NUMBERS_OF[clause.matched], self._chosen[clause.matched]
            same = [each for each in self._statement.clauses if each.matched == clause.matched]
            self._tables[_PAIRS] = chosen.filter(pc.equal(chosen.column(_CLAUSE), same.index(clause)))
            columns = [*numbers_of, *[f"{self._value(value)} AS {quoted_name(name)}" for name, value in assigned_values.items()]]
            clause_rows = self._run(f"SELECT {', '.join(columns)} {self._from(clause.matched)}")
            at = clause.assignments[0].value if clause.assignments else self._statement.source
            new = clause_rows.drop_columns(list(numbers_of))
            if clause.matched == NOT_MATCHED:
                added.append(plan.gather(new_values(self._request, at, new, plan.schema), take))
                continue
            numbers = clause_rows.column(_MINE)
            concerned += numbers.chunks
            if clause.action == "delete":
                deleted += numbers.chunks
            else:
                replaced.append(rows.with_values(numbers, new_values(self._request, at, new, plan.schema), plan.schema))
        counted = pc.value_counts(pa.chunked_array(concerned, pa.int64()))
        often = counted.filter(pc.greater(counted.field("counts"), 1))
        if len(often) and not may_repeat(self._statement.clauses):
            shown = rows.data.drop_columns([NUMBER]).take(often.field("values").slice(0, _SHOWN)).to_pylist()
            some = zip(shown, often.field("counts").to_pylist(), strict=False)
            raise ambiguous(pc.sum(counted.field("counts")).as_py(), len(counted), some)
        gone = pc.unique(pa.chunked_array(deleted, pa.int64()))
        return Changes(gone, pa.concat_tables(replaced) if replaced else None, pa.concat_tables(added) if added else None)


def change(request: LocalRequest, statement: RowChange, part: Transaction, sources: Sequence[Source]) -> RowCounts:
    """Carry a change out in an open transaction; `sources` are the tables that it reads."""
    with filled_in(request, statement.target):
        if isinstance(statement, Merge):
            return merge_rows(request, statement, part, sources)
        is_update = isinstance(statement, Update)
        values = assigned(request, statement, statement.assignments, part.struct) if isinstance(statement, Update) else {}
        if statement.relations:
            return _by_duckdb(request, statement, part, sources, values)
        texts = {column: unqualified(request, value, statement, part.struct) for column, value in values.items()}
        where = None if statement.where is None else unqualified(request, statement.where, statement, part.struct)
        steps_before = len(part.steps)
        try:
            if is_update:
                part.update(texts, where)
            else:
                part.delete("TRUE" if where is None else where)
        except PredicateError as error:  # an expression that only Spark evaluates has another error than a wrong one
            at = statement.target if is_update or statement.where is None else statement.where
            if "columns" in error.details or error.details.get("wrong"):  # a column that the table lacks, or what Spark refuses, too
                raise request.refused(at, error.message) from error
            raise request.needs_spark(at, error.message) from error
        metrics = part.steps[-1].metrics if len(part.steps) > steps_before else {}
        return RowCounts(updated=metrics.get("numUpdatedRows", 0), deleted=metrics.get("numDeletedRows", 0))


def _by_duckdb(
    request: LocalRequest, statement: Update | Delete, part: Transaction, sources: Sequence[Source], values: Mapping[str, Span]
) -> RowCounts:
    """An UPDATE or DELETE (without values) with subqueries."""
    is_update = isinstance(statement, Update)
    views, tables = as_views(request, sources)
    views += target_edits(request, statement, part.struct.names)
    spans = [*values.values(), *([] if statement.where is None else [statement.where])]
    verb, metric = ("UPDATE", "numUpdatedRows") if is_update else ("DELETE", "numDeletedRows")
    with part.operation(verb) as operation:
        draft = operation.draft
        require_no_keys(draft, with_those_made_of(draft.schema, list(values)))
        check_given(draft.schema, values, changes=True)
        where = None if statement.where is None else request.expression(statement.where, views)
        sought = None if where is None else known_part(condition_of(where), draft.schema, statement.called)
        target = target_of(draft, sought, sought)
        rows = Rows.of(request, draft, target.files)
        assigned_values = with_defaults(request, values, draft.schema)
        texts = {column: request.sql((value,), views) if isinstance(value, Span) else value for column, value in assigned_values.items()}
        columns = "".join(f", ({value}) AS {quoted_name(column)}" for column, value in texts.items())
        condition = "" if statement.where is None else f" WHERE ({request.sql((statement.where,), views)})"
        asked_for = f"SELECT {NUMBER}{columns} FROM {TARGET} AS {quoted_name(statement.called)}{condition}"  # noqa: S608 - bound
        matching = run_query(request, Span(0, len(request.text)), asked_for, {**tables, TARGET: rows.data})
        numbers = matching.column(NUMBER)
        changes = Changes(deleted=numbers)
        if is_update:
            new = new_values(request, spans[0], matching.drop_columns([NUMBER]), draft.schema)
            changes = Changes(replaced=rows.with_values(numbers, new, draft.schema))
        reads = apply_to(draft, rows, changes, operation.label, target.reads)
        parameters = {} if statement.where is None else {"predicate": statement.where.of(request.text)}
        operation.step = Step(verb, Kind.CHANGE, parameters, {metric: matching.num_rows}, reads, changes=matching.num_rows > 0)
    return changes.counts
