"""The clauses of a MERGE whose conditions and values are Spark's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from pyspark.sql import Column

from ...storage.dataclass import dataclass
from ...tables.write.merging import NOT_MATCHED, clause_name


def _none() -> dict[str, Column | str]:
    return {}


@dataclass(frozen=True, slots=True)
class Clause:
    """`WHEN matched [AND condition] THEN action`.

    `matched` is "matched", "not_matched" or "not_matched_by_source"; `action` "update", "update_all", "delete", "insert" or
    "insert_all". `assignments` map target columns (paths as Spark writes them: `a.b`, with backticks where needed) to
    expressions, as Columns or SQL.
    """

    matched: str
    action: str
    condition: Column | str | None = None
    assignments: Mapping[str, Column | str] = field(default_factory=_none)

    @property
    def name(self) -> str:
        """As in SQL, for messages."""
        return clause_name(self)

    @property
    def writes(self) -> bool:
        """Whether it makes new rows."""
        return self.action != "delete"

    @property
    def inserts(self) -> bool:
        """Whether it is for rows of the source that match nothing."""
        return self.matched == NOT_MATCHED
