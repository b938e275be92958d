"""Rows of a DataFrame with the types of a table's columns, cast as Spark casts rows for its own tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from ...storage.schema.datatypes import as_nullable
from ...storage.schema.schema import StructField, StructType
from ..jvm import quoted
from ..schemas import from_spark, to_spark
from .assignments import as_stored, has_struct
from .session import session_for_changes
from .source import of_session


@contextmanager
def as_the_table_stores(frame: DataFrame, schema: StructType, *, evolves: bool) -> Iterator[DataFrame]:
    """The frame, its columns cast where the table has other types: Spark's ANSI store assignment (whole numbers and floating ones into
    one another, anything into text, never text into something else), and an error for a value that does not fit.

    A column that the table lacks, or takes as it is, stays as it is; so do structs if the write `evolves` the schema, for their
    new fields. Raises SchemaMismatch for a type that cannot be stored. A frame with casts is of a copy of its session, which is
    the thread's own within the block.
    """
    unfit = {each.name for each in from_spark(frame.schema).fields if not _fits(each, schema)}
    kinds = {each.name: each.dataType for each in to_spark(schema).fields}
    wanted = {
        name: kind for name in unfit if (known := schema.get(name)) and not (has_struct(kind := kinds[known.name]) and evolves)
    }  # fmt: skip
    if not wanted or not hasattr(frame.sparkSession, "_jsparkSession"):  # over Spark Connect, Arrow's rules decide
        yield frame
        return
    with session_for_changes(frame.sparkSession) as session:
        given = of_session(session, frame)
        columns = [
            as_stored(session, column, each.dataType, wanted[each.name], (each.name,)).alias(each.name) if each.name in wanted else column
            for each in frame.schema.fields
            for column in (given[quoted(each.name)],)
        ]
        yield given.select(*columns)


def _fits(given: StructField, schema: StructType) -> bool:
    """Whether the table lacks the column, or has the same type, whatever may be null."""
    known = schema.get(given.name)
    return known is None or as_nullable(known).type == as_nullable(given).type
