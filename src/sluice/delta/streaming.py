"""`sluice.stream`: streams whose batches change tables in other ways than by appends, each batch one commit, once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ..spark_integration.active_session import default_storage_options, user_metadata_of
from ..spark_integration.data_source.write_plan import opened
from ..spark_integration.errors import as_spark_users_know
from ..spark_integration.rows.analysis import Clause
from ..spark_integration.rows.conditions import written_with_reads
from ..spark_integration.session.writer import BatchWriter
from ..spark_integration.streams import Batch
from ..statements.request import Place
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest
from ..storage.schema.sqltypes import quoted_name
from ..tables.client.address import TableAddress
from ..tables.joint_transaction import JointTransaction
from ..tables.table import Table
from ..tables.write.transaction_end import ATTEMPTS, repeated
from .builders import DeltaMergeBuilder, TablePart, assignments
from .tables import DeltaTable

if TYPE_CHECKING:
    from typing_extensions import Unpack

_TARGET: Final = "target"
_SOURCE: Final = "source"
_NUMBER: Final = "sluice_row_number"


@checked
def stream(df: DataFrame, *, coordinator: str | None = None, storage_options: Mapping[str, str] | None = None) -> Stream:
    """A streaming DataFrame, to be merged into a table or written to several: `sluice.stream(df).merge_into(table, on="id")`.

    `coordinator` and `storage_options` are for tables that are given by location.
    """
    return Stream(df, coordinator, storage_options)


class UsualClauses(TypedDict, total=False):
    """The clauses that most merges of batches have."""

    matched_update: bool | Mapping[str, str | Column]
    """Rows that match get the new row's values: of all columns (True, the default), of none (False), or these values."""
    matched_delete: str | Column | None
    """Rows that match and satisfy this condition are deleted."""
    not_matched_insert: bool | Mapping[str, str | Column]
    """New rows that match none are inserted: all columns (True, the default), none (False), or these values."""


@checked
class Stream:
    """A streaming DataFrame whose batches change tables. Its methods return a `DataStreamWriter` with the target set: go on with
    `outputMode`, `option("checkpointLocation", ...)`, `trigger` and `start()`.

    Each batch is one commit, once: a batch that was committed is not written again, however often the query is started. Of several
    runs of one checkpoint and its copies one goes on, the others raise ConcurrentTransactionException.
    """

    def __init__(self, df: DataFrame, coordinator: str | None, storage_options: Mapping[str, str] | None) -> None:
        self._df = df
        self._coordinator = coordinator
        self._storage_options = storage_options

    @as_spark_users_know()
    def merge_into(
        self,
        table: Table | str | os.PathLike[str],
        on: str | Sequence[str] | Column,
        *,
        newest_by: str | None = None,
        clauses: Callable[[DeltaMergeBuilder], DeltaMergeBuilder] | None = None,
        schema_evolution: bool = False,
        attempts: int = ATTEMPTS,
        **usual: Unpack[UsualClauses],
    ) -> BatchWriter:
        """Merge each batch into a table: by default rows with the key of a new row are replaced, and others inserted.

        `on`: a column or columns that both sides have, or a condition over `target` and `source`. `matched_delete`: rows that match
        and satisfy this condition are deleted. `matched_update` and `not_matched_insert`: True for all columns, False for nothing, or
        columns and their values. `clauses` builds the MERGE's clauses itself, in the place of these three. `newest_by`: of several
        rows of a batch with one key, only the one with the largest value of this column counts; otherwise two rows that change one row
        of the table are refused. A batch that lost against other commits is tried again, `attempts` times in all.
        """
        keys = self._keys(on, newest_by)
        condition: Any = on if not keys else " AND ".join(f"{_TARGET}.{quoted_name(key)} = {_SOURCE}.{quoted_name(key)}" for key in keys)
        listed = [] if clauses is not None else _clauses(usual)
        address = self._address(table)
        opened(address)  # so that a missing table is noticed at once

        def write(frame: DataFrame, batch: Batch) -> None:
            rows = frame
            if newest_by is not None:  # of equal ones any
                order = Window.partitionBy(*keys).orderBy(F.col(newest_by).desc_nulls_last())
                rows = frame.withColumn(_NUMBER, F.row_number().over(order)).where(F.col(_NUMBER) == 1).drop(_NUMBER)
            place = Place(address.location, address.coordinator, address.storage_options)
            begun = DeltaTable(frame.sparkSession, place, opened(address)).alias(_TARGET).merge(rows.alias(_SOURCE), condition)
            built = begun._with(*listed) if clauses is None else clauses(begun)
            (built.withSchemaEvolution() if schema_evolution else built).execute(transaction=batch.transaction, attempts=attempts)

        return BatchWriter(self._df, [address], write)

    @as_spark_users_know()
    def for_each_batch(
        self, work: Callable[[DataFrame, JointTransaction], None], *tables: Table | str | os.PathLike[str], attempts: int = ATTEMPTS
    ) -> BatchWriter:
        """Call `work(batch, t)` for each batch, in a transaction over these tables that commits when it returns.

        `t[table]` has `append`, `overwrite`, `delete`, `update` and `merge`, as in `sluice.transaction(spark, ...)`: all tables show the
        batch, or none does. If the transaction lost against other commits, `work` is called again, on the new state, `attempts` times in
        all. What it does beside `t` may happen several times.
        """
        if not tables:
            raise InvalidRequest("no table was given: name those that the batches change")
        addresses = [self._address(table) for table in tables]
        for address in addresses:
            opened(address)

        def write(frame: DataFrame, batch: Batch) -> None:
            targets = [opened(address) for address in addresses]

            def begin(after: JointTransaction | None) -> JointTransaction:
                spark = frame.sparkSession
                return JointTransaction(
                    tables=targets,
                    transaction=batch.transaction,
                    foreign=written_with_reads,
                    user_metadata=user_metadata_of(spark),
                    by_engine=lambda joint, table: TablePart(spark, joint, table),
                    after=after,
                )

            repeated(begin, lambda t: work(frame, t), attempts)

        return BatchWriter(self._df, addresses, write)

    def _address(self, table: Table | str | os.PathLike[str]) -> TableAddress:
        if isinstance(table, Table):
            return table.access.address
        options = default_storage_options() if self._storage_options is None else self._storage_options
        return TableAddress.of(os.fspath(table), self._coordinator, options)

    def _keys(self, on: str | Sequence[str] | Column, newest_by: str | None) -> list[str]:
        """The columns that `on` names; empty if it is a condition.

        Raises InvalidRequest, also for a column `newest_by` that cannot say which of a key's rows is the newest.
        """
        listed, columns = ", ".join(self._df.columns), {name.lower() for name in self._df.columns}
        if isinstance(on, Column) or (isinstance(on, str) and on.lower() not in columns and not on.isidentifier()):
            keys: list[str] = []
        else:
            keys = [on] if isinstance(on, str) else list(on)
            if not keys or any(each.lower() not in columns for each in keys):
                raise InvalidRequest(
                    f"on={on!r}: give columns of the stream, which are {listed}, or a condition over `{_TARGET}` and `{_SOURCE}`", on=on
                )
        if newest_by is None:
            return keys
        said = f"newest_by={newest_by!r}"
        if not keys:
            raise InvalidRequest(f"{said} needs keys: give `on` as columns", newest_by=newest_by)
        if newest_by.lower() not in columns:
            raise InvalidRequest(f"{said}: give a column of the stream, which are {listed}", newest_by=newest_by)
        if newest_by.lower() in ("_commit_version", "_commit_timestamp") and "_change_type" in columns:
            raise InvalidRequest(
                f"{said}: an update's old and new row have the same {newest_by}, so it does not say which is newer. "
                "Add a column that does: F.expr(\"2 * _commit_version + CAST(_change_type IN ('insert', 'update_postimage') AS INT)\")",
                newest_by=newest_by,
            )
        return keys


def _clauses(usual: UsualClauses) -> list[Clause]:
    clauses: list[Clause] = []
    delete, update, insert = usual.get("matched_delete"), usual.get("matched_update", True), usual.get("not_matched_insert", True)
    if delete is not None:
        clauses.append(Clause("matched", "delete", delete))
    if isinstance(update, Mapping):
        clauses.append(Clause("matched", "update", None, assignments(dict(update), "matched_update")))
    elif update:
        clauses.append(Clause("matched", "update_all"))
    if isinstance(insert, Mapping):
        clauses.append(Clause("not_matched", "insert", None, assignments(dict(insert), "not_matched_insert")))
    elif insert:
        clauses.append(Clause("not_matched", "insert_all"))
    if not clauses:
        raise InvalidRequest("the merge does nothing: give matched_update, matched_delete, not_matched_insert or clauses")
    return clauses
