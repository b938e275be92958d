"""Upsert: rows replace those with the same key, or are added if there are none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Reads
from ...coordinator.rules.intent import Kind
from ...storage.actions import AddFile
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.pruning.predicate import Filter, Predicate
from ...storage.schema.conform import conform
from ...storage.schema.schema import PrimitiveType, StructType
from ..client.property_rules import newest_key, primary_key_of
from .data_writing import WritePlan, check_rows
from .draft import Draft
from .row_operations import Step, reads_in

# Up to this many values of a key column are looked for one by one, more as a range.
_VALUES_MAX: Final = 64
# Up to this many keys of several columns are looked for one by one.
_TUPLES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Keys:
    """The distinct keys of some rows: for each column its distinct values, and the existing combinations, as numbers.

    Two keys are equal if `=` is TRUE for all their columns: a null equals nothing, except in a column of `null_safe`; NaN
    equals NaN, and 0.0 equals -0.0.
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
        """A condition that holds for all rows with one of these keys, and few others; None if there is none.

        `rows` are those the keys were taken from.
        """
        has_floats = any(pa.types.is_floating(rows.schema.field(name).type) for name in self.names)
        if len(self.names) > 1 and len(self) <= _TUPLES_MAX and not has_floats:
            places = rows.select(list(self.names)).filter(pc.is_valid(self.find(rows))).to_pylist()
            unique = {tuple(place.items()): place for place in places}.values()
            equal: list[list[Filter]] = [
                [("IsNull" if value is None else "EqualTo", (name,), value) for name, value in place.items()] for place in unique
            ]
            return reduce(Predicate.or_, (Predicate.from_filters(each, schema) for each in equal)) if equal else None
        found = [each for name, values in zip(self.names, self.values, strict=True) if (each := _among(name, values, schema)) is not None]
        return reduce(Predicate.and_, found) if found else None


def _comparable(rows: pa.Table, name: str) -> pa.Array:
    """A column whose equal values are equal to Arrow, which distinguishes 0.0 from -0.0, and NaNs by their bits."""
    column = rows.column(name).combine_chunks()
    if pa.types.is_floating(column.type):
        nan = pa.scalar(float("nan"), column.type)
        column = pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))
    return column


def _paired(code: pa.Array, column: pa.Array, known: pa.Array) -> pa.Array:
    """One number for the key so far and the next column's value; both are below 2**31, so it fits."""
    return pc.add(pc.multiply(code, pa.scalar(len(known), pa.int64())), pc.index_in(column, value_set=known).cast(pa.int64()))


def _among(name: str, values: pa.Array, schema: StructType) -> Predicate | None:
    """A condition that holds for every value of a column; None if there is none."""
    known = pc.drop_null(values)
    if pa.types.is_floating(values.type) or not len(values):
        return None  # bounds of floats omit NaN
    if len(known) <= _VALUES_MAX:
        filters: list[Filter] = [("In", (name,), known.to_pylist())]
    elif pa.types.is_binary(values.type):
        return None
    else:
        bounds = pc.min_max(known).as_py()
        filters = [("GreaterThanOrEqual", (name,), bounds["min"]), ("LessThanOrEqual", (name,), bounds["max"])]
    if len(known) == len(values):
        return Predicate.from_filters(filters, schema)
    is_null = Predicate.from_filters([("IsNull", (name,), None)], schema)
    return Predicate.from_filters(filters, schema).or_(is_null) if len(known) else is_null


def key_columns(on: str | Sequence[str], schema: StructType) -> tuple[str, ...]:
    """The columns of the key, as the schema spells them. Raises InvalidRequest."""
    asked = (on,) if isinstance(on, str) else tuple(on)
    if not asked:
        raise InvalidRequest("upsert needs the columns that make the key: on=[] names none")
    found: list[str] = []
    for name in asked:
        column = schema.get(name) if isinstance(name, str) else None
        if column is None:
            raise InvalidRequest(f"the key column {name!r} is not in the table; its columns are {', '.join(schema.names)}", column=name)
        if not isinstance(column.type, PrimitiveType):
            raise InvalidRequest(
                f"the key column {column.name!r} is of type {column.type}, which cannot be compared; use columns of plain values",
                column=column.name,
            )
        if column.name in found:
            raise InvalidRequest(f"the key column {column.name!r} is named twice; name it once", column=column.name)
        found.append(column.name)
    return tuple(found)


def require_key_scope(plan: WritePlan, key: Sequence[str]) -> None:
    """Raise InvalidRequest unless a plan's overwrite depends on the key alone: otherwise remaining rows may have the same keys."""
    if plan.where is None:
        return
    beside = sorted(Predicate.parse(plan.where, plan.schema).columns - set(key))
    if beside:
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
    times = counted.field("counts")
    most = counted.filter(pc.greater(times, 1))[0].as_py()
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
    if on is None and not newest:
        raise InvalidRequest("upsert needs the columns that make the key: give on=[...], or make the table with sluice.primaryKey")
    names = newest if on is None else key_columns(on, draft.schema)
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
    metrics = {
        "numSourceRows": data.num_rows,
        "numOutputRows": rows.num_rows,
        "numTargetRowsInserted": rows.num_rows - len(met.keys),
        "numTargetRowsUpdated": sum(len(positions) for _, positions in met.gone),
        "numTargetRowsDeleted": 0,
    }
    parameters = {
        "predicate": " AND ".join(f"target.{name} = source.{name}" for name in names),
        "matchedPredicates": '[{"actionType":"update"}]',
        "notMatchedPredicates": '[{"actionType":"insert"}]',
        "notMatchedBySourcePredicates": "[]",
    }
    return Step("MERGE", kind, parameters, metrics, met.reads)


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
    """The table's rows with one of the keys: their places, what was read to find them, and the numbers of their keys.

    `succeeded` are the keys of those that this transaction did not add itself, `ids` the ids of rows that have one, with their keys.
    """

    reads: Reads
    gone: list[tuple[AddFile, pa.Array]] = field(default_factory=list)
    keys: set[int] = field(default_factory=set)
    succeeded: set[int] = field(default_factory=set)
    ids: list[pa.Table] = field(default_factory=list)


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
