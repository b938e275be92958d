"""Which added files may have rows that a transaction would have read: a footprint's predicates against a winner's files.

A footprint may be coarser than what was read, never smaller. So everything that cannot be evaluated counts as TRUE: a part
of a predicate that names a column without a type, an unknown function, text that is not SQL, a file without statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...storage.actions import AddFile
from ...storage.caches import cached_by_size
from ...storage.expressions import build
from ...storage.expressions.nodes import Node
from ...storage.expressions.sql import parse_widely
from ...storage.jsontext import dumps, loads
from ...storage.pruning.skipping import Skipper
from ...storage.schema.schema import StructField, StructType, parse_schema, to_arrow
from .refusal import UNJUDGEABLE

_SCOPES_BYTES_MAX: Final = 32 * 1024 * 1024


class ReadScope:
    """The predicates under which a transaction read; see `of` and `touched`."""

    __slots__ = ("_partitioned", "_skippers")

    def __init__(self, roots: Sequence[Node], schema: StructType, partition_columns: Sequence[str]) -> None:
        """Conditions over columns of `schema`; a file is touched if one of them may be TRUE for one of its rows."""
        self._partitioned = bool(partition_columns)
        self._skippers = tuple(Skipper(root, schema, partition_columns) for root in roots)

    @staticmethod
    def of(predicates: Sequence[str], partition_types: Mapping[str, str], column_types: Mapping[str, str]) -> ReadScope:
        """The scope of a footprint's conditions ("" is the whole table).

        `partition_types` are the table's partition columns with their Delta primitive types, `column_types` the data columns
        that the conditions name, with their types as in Delta's schema JSON. Never raises: see the module.
        """
        return _scope(tuple(predicates), tuple(partition_types.items()), tuple(column_types.items()))

    def touched(self, adds: Sequence[AddFile], *, statistics: bool = True) -> list[AddFile]:
        """The files that may have a row for which one of the predicates is TRUE.

        With `statistics` false as Delta Lake answers: only conjuncts on partition columns alone count, and without partitions all files
        match.
        """
        if not statistics and not self._partitioned:
            return list(adds)
        picked = [skipper.picked(adds, statistics=statistics) for skipper in self._skippers]
        if len(picked) < 2:
            return picked[0] if picked else []
        found = {id(add) for some in picked for add in some}
        return [add for add in adds if id(add) in found]


@cached_by_size(_SCOPES_BYTES_MAX)
def _scope(
    predicates: tuple[str, ...], partition_types: tuple[tuple[str, str], ...], column_types: tuple[tuple[str, str], ...]
) -> ReadScope:
    schema = StructType((*schema_of(dict(partition_types)).fields, *evaluable(dict(column_types)).fields))
    names = tuple(name for name, _ in partition_types)
    return ReadScope([_root(sql, schema) for sql in predicates], schema, names)


def evaluable(column_types: Mapping[str, str]) -> StructType:
    """Columns as a schema, from their types as in Delta's schema JSON, without types that sluice cannot evaluate."""
    fields: list[StructField] = []
    for name, text in column_types.items():
        try:
            body = {"name": name, "type": loads(text.encode()), "nullable": True}
            schema = parse_schema(dumps({"type": "struct", "fields": [body]}).decode())
            to_arrow(schema)
        except UNJUDGEABLE:  # what names it counts as TRUE
            continue
        fields.append(schema.fields[0])
    return StructType(fields)


def schema_of(partition_types: Mapping[str, str]) -> StructType:
    """`evaluable`, for partition columns with their Delta primitive types."""
    return evaluable({name: dumps(kind).decode() for name, kind in partition_types.items()})


def condition(sql: str, partition_types: Mapping[str, str]) -> Node:
    """The part of a condition about partition columns; "" and parts that cannot be evaluated are TRUE. Never raises."""
    return _root(sql, schema_of(partition_types))


def _root(sql: str, schema: StructType) -> Node:
    if not sql:
        return build.TRUE
    try:
        return parse_widely(sql, to_arrow(schema))
    except UNJUDGEABLE:
        return build.TRUE
