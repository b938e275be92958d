"""MERGE, whichever engine runs it: the rules for its clauses, what it counts, and what the history shows. And upsert by keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import Final, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Reads
from ...coordinator.rules.intent import Kind
from ...storage.actions import AddFile
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.pruning.predicate import Filter, Predicate
from ...storage.schema.conform import conform
from ...storage.schema.datatypes import VARIANT
from ...storage.schema.schema import PrimitiveType, StructType
from ..client.property_rules import newest_key, primary_key_of
from .data_writing import WritePlan, check_rows
from .draft import Draft
from .row_operations import Step, reads_in

MATCHED: Final = "matched"
NOT_MATCHED: Final = "not_matched"
NOT_MATCHED_BY_SOURCE: Final = "not_matched_by_source"

_ACTIONS: Final = {
    MATCHED: ("update", "update_all", "delete"),
    NOT_MATCHED: ("insert", "insert_all"),
    NOT_MATCHED_BY_SOURCE: ("update", "delete"),
}
_PREDICATES: Final = {
    MATCHED: "matchedPredicates",
    NOT_MATCHED: "notMatchedPredicates",
    NOT_MATCHED_BY_SOURCE: "notMatchedBySourcePredicates",
}
_SHOWN_CHARACTERS: Final = 200

_VALUES_MAX: Final = 64
"""Up to this many values of a key column are looked for one by one, more as a range."""
_TUPLES_MAX: Final = 16
"""Up to this many keys of several columns are looked for one by one."""


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
        for clause in [clause for clause in clauses if clause.matched == kind][:-1]:
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
    listed: dict[str, list[dict[str, str]]] = {kind: [] for kind in _PREDICATES}
    for clause, condition in clauses:
        chosen = {} if condition is None else {"predicate": condition}
        listed[clause.matched].append({**chosen, "actionType": clause.action.removesuffix("_all")})
    return {"predicate": predicate, **{name: orjson.dumps(listed[kind]).decode() for kind, name in _PREDICATES.items()}}


def merge_metrics(counts: RowCounts, source_rows: int) -> dict[str, int]:
    """The metrics of a MERGE under Delta's names."""
    return {
        "numSourceRows": source_rows,
        "numOutputRows": counts.updated + counts.inserted,
        "numTargetRowsInserted": counts.inserted,
        "numTargetRowsUpdated": counts.updated,
        "numTargetRowsDeleted": counts.deleted,
    }


# -- upsert: rows replace those with the same key, or are added if there are none ---------------------------------------------


@dataclass(frozen=True, slots=True)
class Keys:
    """The distinct keys of some rows: for each column its distinct values, and the existing combinations, as numbers.

    Two keys are equal if `=` is TRUE for all their columns: a null equals nothing, except in a column of `null_safe`; NaN equals NaN,
    and 0.0 equals -0.0.
    """

    names: tuple[str, ...]
    values: tuple[pa.Array, ...]
    combined: tuple[pa.Array, ...]
    null_safe: frozenset[str] = frozenset()

    @staticmethod
    def of(rows: pa.Table, names: Sequence[str], null_safe: Iterable[str] = ()) -> Keys:
        """The keys of `rows` in the columns `names`; rows with a null in one of them (except `null_safe`) have none."""
        safe = frozenset(null_safe)
        columns = [_comparable(rows, name) for name in names]
        distinct = [pc.unique(column) for column in columns]
        values = [known if name in safe else pc.drop_null(known) for name, known in zip(names, distinct, strict=True)]
        combined: list[pa.Array] = []
        code = pc.index_in(columns[0], value_set=values[0]).cast(pa.int64())
        for column, known in zip(columns[1:], values[1:], strict=True):
            code = _paired(code, column, known)
            combined.append(pc.drop_null(pc.unique(code)))
            code = pc.index_in(code, value_set=combined[-1]).cast(pa.int64())
        return Keys(tuple(names), tuple(values), tuple(combined), safe)

    def __len__(self) -> int:
        return len(self.combined[-1] if self.combined else self.values[0])

    def find(self, rows: pa.Table) -> pa.Array:
        """For each row the number of its key (int64), null if it has none of these."""
        code = pc.index_in(_comparable(rows, self.names[0]), value_set=self.values[0]).cast(pa.int64())
        for name, known, pairs in zip(self.names[1:], self.values[1:], self.combined, strict=True):
            code = pc.index_in(_paired(code, _comparable(rows, name), known), value_set=pairs).cast(pa.int64())
        return code

    def condition(self, rows: pa.Table, schema: StructType) -> Predicate | None:
        """A condition that holds for all rows with one of these keys, which `rows` have, and few others; None if there is none."""
        floats = [name for name in self.names if pa.types.is_floating(rows.schema.field(name).type)]
        if len(self.names) > 1 and len(self) <= _TUPLES_MAX and not floats:
            places = rows.select(list(self.names)).filter(pc.is_valid(self.find(rows))).to_pylist()
            unique = {tuple(place.items()): place for place in places}.values()
            equal: list[list[Filter]] = [
                [("IsNull" if value is None else "EqualTo", (name,), value) for name, value in place.items()] for place in unique
            ]
            return reduce(Predicate.or_, (Predicate.from_filters(each, schema) for each in equal)) if equal else None
        terms = [each for name, values in zip(self.names, self.values, strict=True) if (each := _among(name, values, schema)) is not None]
        return reduce(Predicate.and_, terms) if terms else None


def _comparable(rows: pa.Table, name: str) -> pa.Array:
    """A column whose equal values are equal to Arrow, which distinguishes 0.0 from -0.0, and NaNs by their bits."""
    column = rows.column(name).combine_chunks()
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), pc.add(column, pa.scalar(0.0, column.type)))
    return column


def _paired(code: pa.Array, column: pa.Array, known: pa.Array) -> pa.Array:
    """One number for the key so far and the next column's value; both are below 2**31."""
    return pc.add(pc.multiply(code, pa.scalar(len(known), pa.int64())), pc.index_in(column, value_set=known).cast(pa.int64()))


def _among(name: str, values: pa.Array, schema: StructType) -> Predicate | None:
    """A condition that holds for every value of a column; None if there is none."""
    not_null = pc.drop_null(values)
    if pa.types.is_floating(values.type) or not len(values):
        return None  # bounds of floats omit NaN
    if len(not_null) <= _VALUES_MAX:
        filters: list[Filter] = [("In", (name,), not_null.to_pylist())]
    elif pa.types.is_binary(values.type):
        return None
    else:
        bounds = pc.min_max(not_null).as_py()
        filters = [("GreaterThanOrEqual", (name,), bounds["min"]), ("LessThanOrEqual", (name,), bounds["max"])]
    if len(not_null) == len(values):
        return Predicate.from_filters(filters, schema)
    is_null = Predicate.from_filters([("IsNull", (name,), None)], schema)
    return Predicate.from_filters(filters, schema).or_(is_null) if len(not_null) else is_null


def plain_columns(names: str | Sequence[str], schema: StructType) -> tuple[str, ...]:
    """The columns, as the schema spells them. Raises InvalidRequest for those whose values cannot be compared, or that are named twice."""
    columns: list[str] = []
    for name in (names,) if isinstance(names, str) else names:
        column = schema.named(name)
        if not isinstance(column.type, PrimitiveType) or column.type == VARIANT:
            raise InvalidRequest(
                f"column {column.name!r} is of type {column.type}, whose values cannot be compared; name columns of plain values",
                column=column.name,
            )
        if column.name in columns:
            raise InvalidRequest(f"column {column.name!r} is named twice; name it once", column=column.name)
        columns.append(column.name)
    return tuple(columns)


def require_key_scope(plan: WritePlan, key: Sequence[str]) -> None:
    """Raise InvalidRequest unless a plan's overwrite depends on the key alone: other remaining rows may have the same keys."""
    if plan.where is None:
        return
    if beside := sorted(Predicate.parse(plan.where, plan.schema).columns - set(key)):
        raise InvalidRequest(
            f"one row is kept per key ({', '.join(key)}), but the overwrite depends on {', '.join(map(repr, beside))}, so that "
            "a remaining row could have the key of a new one: delete those rows and upsert the new ones in one transaction (Table.begin)",
            columns=beside,
        )


def newest_rows(rows: pa.Table, keys: Keys) -> pa.Table:
    """The last row of each key, and all rows without a key, in order."""
    numbers = keys.find(rows)
    places = pa.array(range(rows.num_rows), pa.int64())
    last = pa.table({"key": numbers, "place": places}).group_by("key").aggregate([("place", "max")])
    chosen = last.filter(pc.is_valid(last["key"]))["place_max"]
    return rows.filter(pc.or_(pc.is_null(numbers), pc.is_in(places, value_set=chosen)))


def _require_distinct(rows: pa.Table, keys: Keys, numbers: pa.Array) -> None:
    """Raise InvalidRequest, naming a key, if a key occurs twice in the data."""
    if len(numbers) - numbers.null_count == len(keys):
        return
    counted = pc.value_counts(pc.drop_null(numbers))
    most = counted.filter(pc.greater(counted.field("counts"), 1))[0].as_py()
    place = pc.index(numbers, most["values"]).as_py()
    key = {name: rows.column(name)[place].as_py() for name in keys.names}
    shown = ", ".join(f"{name} = {value!r}" for name, value in key.items())
    raise InvalidRequest(
        f"the data has the key {shown} {most['counts']} times, so it is unclear which row counts: give each key once, or make the "
        "table with a primary key (sluice.primaryKey), where the last row counts",
        key=key,
        rows=most["counts"],
    )


def upsert_rows(draft: Draft, data: pa.Table, on: str | Sequence[str] | None, *, label: str, kind: Kind = Kind.CHANGE) -> Step:
    """Replace the rows with the keys of `data`, and add the rest of `data`.

    If `on` is the table's primary key the last row of a key counts; otherwise a key that occurs twice is refused. Raises
    InvalidRequest, SchemaMismatch and ConstraintViolated before anything is written.
    """
    newest = newest_key(draft.metadata, draft.schema)
    names = newest if on is None else plain_columns(on, draft.schema)
    if not names:
        raise InvalidRequest("upsert needs the columns that make the key: give on=[...], or make the table with sluice.primaryKey")
    rows = _as_stored(conform(data, draft.schema), draft)
    if newest and set(names) in (set(newest), set(primary_key_of(draft.metadata.configuration, draft.schema))):
        names = newest
        keys = Keys.of(rows, names, draft.partition_columns)
        rows = newest_rows(rows, keys)
    else:
        keys = Keys.of(rows, names)
    numbers = keys.find(rows)
    _require_distinct(rows, keys, numbers)
    if not rows.num_rows:
        return Step("MERGE", kind, changes=False)
    check_rows(draft.metadata)(rows)
    met = _meet(draft, rows, keys)
    draft.foresee(add for add, _ in met.gone)
    if draft.row_ids is not None and met.gone:
        row_ids = pa.concat_tables(met.ids)  # of several rows with one key the first one's id counts
        places = pc.index_in(numbers, value_set=row_ids["key"].combine_chunks())
        rows = rows.append_column(draft.row_ids.row_id, row_ids["id"].combine_chunks().take(places))
    if draft.captures_changes:
        succeeds = pc.is_in(numbers, value_set=pa.array(met.succeeded, pa.int64()), skip_nulls=True)
        draft.replace(met.gone, draft.write([rows.filter(succeeds)], label=f"{label}s", with_ids=True))
        draft.add(draft.write([rows.filter(pc.invert(succeeds))], label=label, with_ids=bool(met.gone)))
    else:
        draft.replace(met.gone, draft.write([rows], label=label, with_ids=bool(met.gone)))
    counts = RowCounts(updated=sum(len(positions) for _, positions in met.gone), inserted=rows.num_rows - len(met.keys))
    parameters = {
        "predicate": " AND ".join(f"target.{name} = source.{name}" for name in names),
        "matchedPredicates": '[{"actionType":"update"}]',
        "notMatchedPredicates": '[{"actionType":"insert"}]',
        "notMatchedBySourcePredicates": "[]",
    }
    return Step("MERGE", kind, parameters, {**merge_metrics(counts, data.num_rows), "numOutputRows": rows.num_rows}, met.reads)


def _as_stored(rows: pa.Table, draft: Draft) -> pa.Table:
    """The rows as the table will store them: an empty text is null as a partition value."""
    for name in draft.partition_columns:
        column = rows[name]
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            place = rows.schema.get_field_index(name)
            empty = pc.equal(column, pa.scalar("" if pa.types.is_string(column.type) else b"", column.type))
            rows = rows.set_column(place, rows.schema.field(name), pc.if_else(empty, pa.scalar(None, column.type), column))
    return rows


@dataclass(frozen=True, slots=True)
class _Met:
    """The table's rows with one of the keys: their places, what was read to find them, and the numbers of their keys."""

    reads: Reads
    gone: list[tuple[AddFile, pa.Array]] = field(default_factory=list)
    keys: set[int] = field(default_factory=set)
    succeeded: set[int] = field(default_factory=set)
    """The keys of rows that this transaction did not add itself."""
    ids: list[pa.Table] = field(default_factory=list)
    """The ids of rows that have one, with their keys."""


def _meet(draft: Draft, rows: pa.Table, keys: Keys) -> _Met:
    if not len(keys):
        return _Met(Reads())
    condition = keys.condition(rows, draft.schema)
    files = draft.candidates(condition)
    met = _Met(reads_in(draft, condition, files))
    for found in draft.find(condition, files, columns=list(keys.names), with_ids=True):
        numbers = keys.find(found.rows)
        if numbers.null_count < len(numbers):
            met.gone.append((found.file, found.positions.filter(pc.is_valid(numbers))))
            found_keys = pc.unique(pc.drop_null(numbers)).to_pylist()
            met.keys.update(found_keys)
            if not draft.is_new(found.file.path):
                met.succeeded.update(found_keys)
            if draft.row_ids is not None:
                ids = pa.table({"key": numbers, "id": found.rows[draft.row_ids.row_id]})
                met.ids.append(ids.filter(pc.and_(pc.is_valid(ids["key"]), pc.is_valid(ids["id"]))))
    return met
