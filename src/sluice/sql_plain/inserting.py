"""INSERT: which columns of the table the rows of a query fill."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..statements.rows import Insert
from ..storage.errors import SchemaMismatch
from ..storage.schema.schema import StructType
from .request import Request

__all__ = ["names_for"]


def names_for(asked: Request, statement: Insert, given: Sequence[str], schema: StructType, fixed: Collection[str]) -> list[str]:
    """The table's columns that the columns `given` by the query fill, in the order of the query.

    They are the query's own names (BY NAME), those that the statement lists, or by position the table's without those that PARTITION
    (...) has `fixed`. Raises InvalidRequest for a listed column that the table does not have, SchemaMismatch for another number of columns.
    """
    if statement.by_name:
        return list(given)
    names = [name for name in schema.names if name not in fixed]
    if statement.columns is not None:
        unknown = [name for name in statement.columns if schema.get(name) is None]
        if unknown and not statement.evolves:
            raise asked.refused(statement.target, f"column {unknown[0]!r} is not in the table; its columns are {', '.join(schema.names)}")
        names = list(statement.columns)
    if len(names) != len(given):
        said = (
            f"these rows have {len(given)} columns ({', '.join(given)}) for {len(names)} of the table ({', '.join(names)}); "
            "give as many, in this order"
        )
        condition = f"INSERT_COLUMN_ARITY_MISMATCH.{'NOT_ENOUGH' if len(given) < len(names) else 'TOO_MANY'}_DATA_COLUMNS"
        raise SchemaMismatch(asked.shown(statement.query, said), condition=condition)
    return names
