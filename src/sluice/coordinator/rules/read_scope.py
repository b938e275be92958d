"""Which added files hold rows that a transaction would have read: the predicates of a footprint against a winner's files.

A footprint may be coarser than what was read, never smaller. So whatever cannot be evaluated counts as TRUE: a part of a
predicate that names a column without a type, a function nobody knows, text that is no SQL, a file without statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...storage.actions import AddFile
from ...storage.caches import cached_by_size
from ...storage.errors import SluiceError
from ...storage.expressions import build
from ...storage.expressions.nodes import And, Node, columns
from ...storage.expressions.sql import parse_widely
from ...storage.jsontext import dumps, loads
from ...storage.pruning.single_file import FileCheck, FileFacts
from ...storage.schema.schema import StructField, StructType, parse_schema, to_arrow

__all__ = ["ReadScope", "condition", "schema_of"]

_UNUSABLE: Final = (SluiceError, ValueError, TypeError, ArithmeticError, NotImplementedError, RecursionError)
"""What text that others wrote may do to a parser; a poor predicate must not stop those who decide about it."""
_SCOPES_BYTES_MAX: Final = 32 * 1024 * 1024


class ReadScope:
    """The predicates under which a transaction read; see `of` and `touched`."""

    __slots__ = ("_checks", "_own_checks", "_partitioned")

    def __init__(self, roots: Sequence[Node], schema: StructType, partition_columns: Sequence[str]) -> None:
        """Conditions over columns of `schema`; a file is touched when one of them may be TRUE for a row of it."""
        self._partitioned = bool(partition_columns)
        self._checks = tuple(FileCheck(root, schema, partition_columns) for root in roots)
        self._own_checks = tuple(FileCheck(_of_partitions(root, partition_columns), schema, partition_columns) for root in roots)

    @staticmethod
    def of(predicates: Sequence[str], partition_types: Mapping[str, str], column_types: Mapping[str, str]) -> ReadScope:
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
        if not statistics and not self._partitioned:
            return list(adds)
        checks = self._checks if statistics else self._own_checks
        found = []
        for add in adds:
            file = FileFacts(add.partition_values, add.stats)
            for check in checks:
                if check.may_match(file):
                    found.append(add)
                    break
        return found


def _of_partitions(root: Node, partition_columns: Sequence[str]) -> Node:
    """The conjuncts that name partition columns alone."""
    terms = root.terms if isinstance(root, And) else (root,)
    return build.and_(*(term for term in terms if all(path[0] in partition_columns for path in columns(term))))


@cached_by_size(_SCOPES_BYTES_MAX, per_character=100)
def _scope(
    predicates: tuple[str, ...], partition_types: tuple[tuple[str, str], ...], column_types: tuple[tuple[str, str], ...]
) -> ReadScope:
    stored = [_field(name, text) for name, text in column_types]
    schema = StructType((*schema_of(dict(partition_types)).fields, *(field for field in stored if field is not None)))
    names = tuple(name for name, _ in partition_types)
    return ReadScope([_root(sql, schema) for sql in predicates], schema, names)


def schema_of(partition_types: Mapping[str, str]) -> StructType:
    """Partition columns as a schema, from their Delta primitive types; without those that sluice cannot evaluate."""
    fields = [_field(name, dumps(kind).decode()) for name, kind in partition_types.items()]
    return StructType(field for field in fields if field is not None)


def condition(sql: str, partition_types: Mapping[str, str]) -> Node:
    """A condition as far as it speaks of partition columns; "" and what cannot be evaluated are TRUE. Never raises."""
    return _root(sql, schema_of(partition_types))


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
