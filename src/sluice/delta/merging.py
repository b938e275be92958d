"""`DeltaMergeBuilder`: the clauses of a MERGE, in order, and its execution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame

from ..spark_integration.errors import as_spark_users_know
from ..spark_integration.rows.clauses import Clause
from ..storage.dataclass import dataclass
from ..tables.write.merging import check_clauses
from .arguments import Assignments, Expression, assignments, expression
from .committing import Terms


@dataclass(frozen=True, slots=True)
class Merge:
    """A MERGE as far as it is built."""

    source: DataFrame
    condition: Expression
    clauses: tuple[Clause, ...] = ()
    schema_evolution: bool = False


class DeltaMergeBuilder:
    """What a MERGE does with rows that match, and with those that do not; `DeltaTable.merge` makes one.

    There may be any number of clauses of each kind; only the last of a kind may have no condition. The first clause that applies
    to a row decides what becomes of it; a row to which none applies stays as it is, or is not inserted. Every method returns a
    new builder, so that one may be the beginning of several.
    """

    def __init__(self, merge: Merge, execute: Callable[[Merge, Terms], DataFrame]) -> None:
        self._merge = merge
        self._execute = execute

    def whenMatchedUpdate(
        self,
        condition: Expression | None = None,
        set: Assignments | None = None,
    ) -> DeltaMergeBuilder:
        """Give the columns in `set` new values, in rows that match and satisfy `condition`. Raises ValueError, TypeError."""
        return self._with("matched", "update", condition, assignments(set, "set in whenMatchedUpdate"))

    def whenMatchedUpdateAll(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Give every column the value of the source's column of that name, in rows that match and satisfy `condition`."""
        return self._with("matched", "update_all", condition)

    def whenMatchedDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete rows that match and satisfy `condition`."""
        return self._with("matched", "delete", condition)

    def whenNotMatchedInsert(self, condition: Expression | None = None, values: Assignments | None = None) -> DeltaMergeBuilder:
        """Insert a row of these values for each row of the source that matches none and satisfies `condition`."""
        return self._with("not_matched", "insert", condition, assignments(values, "values in whenNotMatchedInsert"))

    def whenNotMatchedInsertAll(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Insert each row of the source that matches none and satisfies `condition`, column by column."""
        return self._with("not_matched", "insert_all", condition)

    def whenNotMatchedBySourceUpdate(
        self,
        condition: Expression | None = None,
        set: Assignments | None = None,
    ) -> DeltaMergeBuilder:
        """Give columns new values in rows of the table that no row of the source matches; all may name the table's columns only."""
        return self._with("not_matched_by_source", "update", condition, assignments(set, "set in whenNotMatchedBySourceUpdate"))

    def whenNotMatchedBySourceDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete rows of the table that no row of the source matches."""
        return self._with("not_matched_by_source", "delete", condition)

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add columns that the source has and the table lacks, in `updateAll` and `insertAll` and where an assignment names them."""
        return DeltaMergeBuilder(replace(self._merge, schema_evolution=True), self._execute)

    def execute(
        self,
        *,
        isolation: str | None = None,
        attempts: int = 1,
        key: str | None = None,
        transaction: tuple[str, int] | None = None,
    ) -> DataFrame:
        """Merge, as one commit. Returns one row: num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows.

        `isolation`, `attempts`, `key` and `transaction` are those of `DeltaTable.delete`. Raises AnalysisException for clauses in
        the wrong order and for columns that do not resolve, ConcurrentModification if other commits stand against every attempt.
        """
        with as_spark_users_know():
            check_clauses(self._merge.clauses)
            return self._execute(self._merge, Terms(isolation, attempts, key, transaction))

    def _with(self, matched: str, action: str, condition: Expression | None, values: Assignments | None = None) -> DeltaMergeBuilder:
        clause = Clause(matched, action, expression(condition), {} if values is None else values)
        return DeltaMergeBuilder(replace(self._merge, clauses=(*self._merge.clauses, clause)), self._execute)
