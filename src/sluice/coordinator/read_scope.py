"""Which added files hold rows that a transaction would have read: the predicates of a footprint against a winner's files.

A footprint may be coarser than what was read, never smaller. So whatever cannot be evaluated counts as TRUE: a part of a
predicate that names a column without a type, a function nobody knows, text that is no SQL, a file without statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from ..storage.actions import AddFile
from ..storage.errors import SluiceError
from ..storage.expressions import build
from ..storage.expressions.nodes import And, Node, columns
from ..storage.expressions.parse import parse_widely
from ..storage.jsontext import dumps, loads
from ..storage.predicate import Predicate
from ..storage.schema import PrimitiveType, StructField, StructType, parse_schema, to_arrow

__all__ = ["ReadScope"]

_UNUSABLE: Final = (SluiceError, ValueError, TypeError, ArithmeticError, NotImplementedError, RecursionError)
"""What text that others wrote may do to a parser; a poor predicate must not stop those who decide about it."""
_TEXT_MAP: Final = pa.map_(pa.string(), pa.string())
_SCOPES: Final = 1024


@dataclass(frozen=True)
class ReadScope:
    """The predicates under which a transaction read; see `touched`."""

    schema: StructType
    partition_columns: tuple[str, ...]
    predicates: tuple[Predicate, ...]

    @classmethod
    def of(cls, predicates: Sequence[str], partition_types: Mapping[str, str], column_types: Mapping[str, str]) -> ReadScope:
        """The scope of these conditions ("" is the whole table), as a footprint has them.

        `partition_types` are the table's partition columns with their Delta primitive types, `column_types` the data columns
        that the conditions name, with their types as in Delta's schema JSON. Never raises: see the module.
        """
        return _scope(tuple(predicates), tuple(partition_types.items()), tuple(column_types.items()))

    def touched(self, adds: Sequence[AddFile], *, statistics: bool = True) -> list[AddFile]:
        """Those of the files that may hold a row for which one of the predicates is TRUE.

        With `statistics` false the answer is Delta Lake's own: of each predicate only those conjuncts count that name
        partition columns alone, and in a table without partitions every file is touched.
        """
        if not adds:
            return []
        if not statistics and not self.partition_columns:
            return list(adds)
        values = [list(add.partition_values.items()) for add in adds]
        files = pa.table({"partition_values": pa.array(values, _TEXT_MAP), "stats": pa.array([add.stats for add in adds], pa.string())})
        hit: set[int] = set()
        for predicate in self.predicates:
            root = predicate if statistics else predicate.split(self.partition_columns)[0] or Predicate(build.TRUE)
            try:
                mask = root.may_match(files, schema=self.schema, partition_columns=self.partition_columns)
            except _UNUSABLE:
                return list(adds)
            hit.update(number for number, may in enumerate(mask.to_pylist()) if may)
        return [adds[number] for number in sorted(hit)]


@lru_cache(maxsize=_SCOPES)
def _scope(
    predicates: tuple[str, ...], partition_types: tuple[tuple[str, str], ...], column_types: tuple[tuple[str, str], ...]
) -> ReadScope:
    fields = [StructField(name, PrimitiveType(kind)) for name, kind in partition_types]
    for name, text in column_types:
        field = _field(name, text)
        fields.extend([field] if field is not None else [])
    schema = StructType(fields)
    roots = tuple(Predicate(_root(sql, schema)) for sql in predicates)
    return ReadScope(schema, tuple(name for name, _ in partition_types), roots)


def _field(name: str, text: str) -> StructField | None:
    """The column, or None when its type is none that sluice can evaluate: then what names it counts as TRUE."""
    try:
        body = {"name": name, "type": loads(text.encode()), "nullable": True}
        schema = parse_schema(dumps({"type": "struct", "fields": [body]}).decode())
        to_arrow(schema)
    except _UNUSABLE:
        return None
    return schema.fields[0]


def _root(sql: str, schema: StructType) -> Node:
    if not sql:
        return build.TRUE
    try:
        return parse_widely(sql, to_arrow(schema))
    except _UNUSABLE:
        return build.TRUE
