"""Refusals of statements that mean nothing for a table of sluice; each says what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..statements.foreign import Foreign
from .place import Place
from .reports import Answer
from .request import Request

_FOREIGN: Final[Mapping[str, str]] = {
    "REPAIR": "the log lists the partitions, so there is nothing to look for; FSCK REPAIR TABLE takes files out that the store lacks",
    "REFRESH": "each statement reads the latest version by itself: leave it out",
    "CACHE": "a cached table would stay as it is now; cache the rows of a query: spark.sql('SELECT ...').cache()",
    "EXPLAIN": "Spark has no plan for a change of it; EXPLAIN CONFLICT compares two changes, DESCRIBE HISTORY tells what one did",
    "LOAD": "files become rows of the table by COPY INTO t FROM 'path' FILEFORMAT = PARQUET, CSV or JSON",
}
_ALTER: Final[Mapping[str, str]] = {
    "ADD PARTITION": "a partition comes with its first row: INSERT INTO t PARTITION (day = '...') ...",
    "DROP PARTITION": "a partition goes with its rows: TRUNCATE TABLE t PARTITION (day = '...'), or DELETE FROM t WHERE ...",
    "RECOVER PARTITIONS": "the log lists the partitions, so there is nothing to look for",
    "SET LOCATION": "a table stays where its log is: CREATE TABLE ... SHALLOW CLONE, or CREATE TABLE ... LOCATION '...' AS SELECT",
    "CLUSTER BY AUTO": "sluice does not choose the columns by itself: name them, CLUSTER BY (a, b)",
}
_MAPPED: Final = ("RENAME COLUMN", "DROP COLUMN", "DROP COLUMNS", "REPLACE COLUMNS")


def foreign(asked: Request, statement: Foreign, _: Place) -> Answer:
    """Raise UnsupportedFeature for a statement of Spark's about a table of sluice."""
    raise asked.unsupported(statement.target, f"this is a table of sluice: {_FOREIGN[statement.what]}", statement.what)


def of_alter(words: str) -> str:
    """Why a table cannot be altered by these words."""
    if words in _MAPPED:
        return (
            f"{words} needs column mapping, which sluice does not write yet; write the table anew: "
            "CREATE OR REPLACE TABLE t USING sluice AS SELECT ..."
        )
    return f"{words}: {_ALTER[words]}" if words in _ALTER else f"sluice has no ALTER TABLE ... {words}"
