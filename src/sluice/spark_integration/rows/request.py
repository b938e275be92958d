"""What is asked of a change of rows: a MERGE with its clauses. UPDATE and DELETE are a MERGE without a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from pyspark.sql import Column, DataFrame

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...tables.write.merging import NOT_MATCHED, NOT_MATCHED_BY_SOURCE, check_clauses, clause_name


@dataclass(frozen=True, slots=True)
class Clause:
    """`WHEN matched [AND condition] THEN action`."""

    matched: str
    """The rows that it is for: "matched", "not_matched" or "not_matched_by_source"."""
    action: str
    """What happens to them: "update", "update_all", "delete", "insert" or "insert_all"."""
    condition: Column | str | None = None
    """Chooses among them, as a Column or SQL; None: all."""
    assignments: Mapping[str, Column | str] = field(default_factory=dict)
    """Columns of the target (paths as Spark writes them: `a.b`, with backticks where needed), and their values as Columns or SQL."""

    @property
    def writes(self) -> bool:
        """Whether it makes new rows."""
        return self.action != "delete"

    @property
    def inserts(self) -> bool:
        """Whether it is for rows of the source that match nothing."""
        return self.matched == NOT_MATCHED


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A change of a table's rows: for each pair that satisfies `on`, each row of the source without one ("not_matched") and each row of
    the table without one ("not_matched_by_source") the first clause that applies.

    Columns and SQL name the columns of both sides, by their aliases; in clauses for rows without a match those of the side that these are
    from.
    """

    source: DataFrame | None
    """The rows to merge, evaluated once; UPDATE and DELETE have none."""
    on: Column | str | None
    """When a row of the table and one of the source are a pair."""
    clauses: Sequence[Clause] = ()
    """What happens to rows."""
    target_alias: str | None = None
    """The table's name in expressions."""
    source_alias: str | None = None
    """The source's name in expressions, if it has no alias of its own."""
    schema_evolution: bool = False
    """Whether columns and fields of the source that clauses write and the table lacks are added to the table, once all names are
    resolved, and fields of structs that the source lacks stay as they are; the session's setting may say so, too."""
    frames: Sequence[DataFrame] = ()
    """DataFrames of the table: their columns mean the table's without an alias, unless the source is such a frame itself."""
    subqueries: bool = False
    """Whether conditions and values may have subqueries. What these read of other tables does not count as read, and a caller whose
    subqueries read this table says so (`depend_on`)."""
    operation: str = "MERGE"
    """Its name in the history: "MERGE", "UPDATE" or "DELETE"."""

    @staticmethod
    def delete(
        condition: Column | str | None = None,
        *,
        alias: str | None = None,
        frames: Sequence[DataFrame] = (),
        subqueries: bool = False,
    ) -> MergeRequest:
        """Delete the rows that satisfy `condition` (None: all). Files of which statistics show that all rows do are not read."""
        return MergeRequest._of_rows("DELETE", Clause(NOT_MATCHED_BY_SOURCE, "delete", condition), alias, frames, subqueries)

    @staticmethod
    def update(
        assignments: Mapping[str, Column | str],
        condition: Column | str | None = None,
        *,
        alias: str | None = None,
        frames: Sequence[DataFrame] = (),
        subqueries: bool = False,
    ) -> MergeRequest:
        """Give columns new values, made of the row before the change, in the rows that satisfy `condition` (None: all)."""
        return MergeRequest._of_rows("UPDATE", Clause(NOT_MATCHED_BY_SOURCE, "update", condition, assignments), alias, frames, subqueries)

    @staticmethod
    def _of_rows(operation: str, clause: Clause, alias: str | None, frames: Sequence[DataFrame], subqueries: bool) -> MergeRequest:
        return MergeRequest(None, None, (clause,), alias, frames=frames, subqueries=subqueries, operation=operation)

    def name_of(self, clause: Clause) -> str:
        """A clause as in SQL, for messages."""
        return clause_name(clause) if self.operation == "MERGE" else self.operation

    @property
    def replaces(self) -> bool:
        """Whether it may change or remove rows of the table: an append-only table has none of it."""
        return any(not clause.inserts for clause in self.clauses)

    @property
    def expressions(self) -> list[Column | str | None]:
        """All its conditions and values."""
        return [self.on, *(value for clause in self.clauses for value in (clause.condition, *clause.assignments.values()))]

    def check(self) -> None:
        """Raise InvalidRequest for a source or clauses that cannot be, whatever the tables hold."""
        if self.operation == "UPDATE" and not self.clauses[0].assignments:
            raise InvalidRequest("the update assigns no column; name columns and their values")
        check_clauses(self.clauses)
        if self.operation == "MERGE" and not isinstance(self.source, DataFrame):
            raise InvalidRequest(f"the source is of type {type(self.source).__name__}; give a Spark DataFrame")
        if self.operation == "MERGE" and not isinstance(self.on, (Column, str)):
            raise InvalidRequest(f"the condition of the merge is {self.on!r}; give a Column, or SQL as text")
