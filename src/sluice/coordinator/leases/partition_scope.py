"""Parts of a table, as leases and turns cover them."""

from __future__ import annotations

from typing import Final

from ...storage.dataclass import dataclass
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import PrimitiveType, parse_schema

__all__ = ["PartitionScope"]

_SQL_CHARACTERS_MAX: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """Partitions of a table: a condition over its partition columns as SQL, and the types of these columns."""

    sql: str
    types: tuple[tuple[str, str], ...]

    @staticmethod
    def of(snapshot: Snapshot, sql: str | None) -> PartitionScope | None:
        """The partitions that satisfy a condition; None, the whole table, without a condition."""
        if sql is None:
            return None
        types = {field.name: field.type for field in parse_schema(snapshot.metadata.schema_string).fields}
        columns = snapshot.partition_columns
        return PartitionScope(sql, tuple((name, kind.name) for name in columns if isinstance(kind := types.get(name), PrimitiveType)))

    @staticmethod
    def covering(snapshot: Snapshot, condition: Predicate | None) -> PartitionScope | None:
        """Like `of`; also the whole table if the condition would be too long to keep."""
        sql = None if condition is None else condition.to_sql()
        return PartitionScope.of(snapshot, sql if sql is not None and len(sql) <= _SQL_CHARACTERS_MAX else None)
