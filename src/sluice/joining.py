"""`sluice.transaction` and `sluice.transact`: operations on several tables, with Arrow and Spark data, in one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .storage.arguments import checked
from .storage.errors import InvalidRequest
from .tables.joint_transaction import JointArgs, JointTransaction, Named
from .tables.table import Table
from .tables.write.terms import OnceArgs
from .tables.write.transaction_end import ATTEMPTS, repeated

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .tables.consumer import Consumer
    from .tables.transaction import ForeignRows

T = TypeVar("T")


@checked
def transaction(
    first: Any = None,
    /,
    *named: Table | str | os.PathLike[str],
    coordinator: str | None = None,
    tables: Sequence[Table | str | os.PathLike[str]] = (),
    storage_options: Mapping[str, str] | None = None,
    consumer: Consumer | None = None,
    if_version: Mapping[Any, int] | None = None,
    **terms: Unpack[JointArgs],
) -> JointTransaction:
    """Begin a transaction over several tables; use it in a `with` block, or call its `commit`.

    The first argument is the coordinator's address, or a Spark session: then `t[table]` has `merge`, `update`, `delete`, `append` and
    `overwrite`, carried out by Spark's tasks with the arguments of `sluice.delta.DeltaTable`. Further ones are tables, as in `tables`.

    Its operations take tables as `sluice.Table` or by location; those given by location are opened with `coordinator` and
    `storage_options`. All must be kept by one coordinator, below one chroot. They are read as of the moment when one of them
    is first used; those in `tables` as of now. `isolation` may be stricter than the tables' levels, never weaker.
    `transaction` = (application id, number) makes it happen once: if the tables have that number, the answer is
    `Commit.repeated`; a `key`, any text that identifies it, such as "nightly-2026-01-01", does the same. `commit` raises
    HalfCommitted if the transaction was lost in some of the tables with the coordinator's data. `if_version` gives some tables, which
    take part from the beginning, the version that each must still have: it commits only as the very next one of each of them. The
    histories show the text `user_metadata` with the commits, by default the one in the session's settings. A loop that repeats
    a transaction gives the one that lost as `after`, as for `Table.begin`.

    With a `consumer` of a table it is `consumer.transaction()`, which consumes the batch in hand, with the rows and operations of Spark:
    the consumer says which tables take part, and what makes it happen once. Raises InvalidRequest if something else says so, too.

    Examples:
        ```python
        with sluice.transaction(coordinator, key="order-1") as tx:
            tx[table].append(pa.table({"id": [50], "state": ["new"]}))
            tx[other].update({"state": "'seen'"}, "id = 1")
        ```
    """
    by_engine = None
    if isinstance(first, str):
        if coordinator is not None:
            raise InvalidRequest(f"the coordinator was given twice, as {first!r} and {coordinator!r}; give it once")
        coordinator = first
    elif first is not None:
        by_engine = _by_spark(first)
        if terms.get("user_metadata") is None:
            from .spark_integration.active_session import user_metadata_of

            terms["user_metadata"] = user_metadata_of(first)
    if consumer is None:
        return JointTransaction(
            coordinator,
            tables=(*named, *tables),
            storage_options=storage_options,
            if_version=if_version,
            foreign=_dataframes,
            by_engine=by_engine,
            **terms,
        )
    fixed = {"coordinator": coordinator, "tables": (*named, *tables), "storage_options": storage_options, "if_version": if_version}
    for name, value in fixed.items():
        if value:
            raise InvalidRequest(f"consumer and {name} were given: the consumer says that itself, leave {name} out")
    return consumer.transaction(foreign=_dataframes, by_engine=by_engine, **terms)


@checked
def transact(
    work: Callable[[JointTransaction], T],
    coordinator: str | None = None,
    *,
    tables: Sequence[Table | str | os.PathLike[str]] = (),
    attempts: int = ATTEMPTS,
    storage_options: Mapping[str, str] | None = None,
    **terms: Unpack[OnceArgs],
) -> T:
    """Run `work(transaction)` over several tables and commit it; if another commit came first, run it again, up to `attempts` times.

    Each loss gives the next attempt more priority, in all tables at once, so that it gets through against any number of writers
    (docs/locks.md). Otherwise like `transaction`. Returns the result of `work`. Raises the last conflict, and the
    exceptions of `work`, after which nothing is committed.

    Examples:
        ```python
        def move(tx):
            late = tx[table].scan(where="state = 'late'")
            tx[other].append(late)
            tx[table].delete("state = 'late'")
            return late.num_rows


        moved = sluice.transact(move, coordinator, tables=[table, other])
        ```
    """

    def begin(after: JointTransaction | None) -> JointTransaction:
        return transaction(coordinator=coordinator, tables=tables, storage_options=storage_options, after=after, **terms)

    return repeated(begin, work, attempts)


def _by_spark(spark: Any) -> Callable[[JointTransaction, Named], Any]:
    """What makes a table's part with Spark's operations. Raises InvalidRequest for what is no session."""
    if not hasattr(spark, "createDataFrame"):
        raise InvalidRequest(f"the first argument is of type {type(spark).__name__}; give a Spark session or the coordinator's address")
    from .delta.builders import TablePart  # there is a session, so Spark is installed

    return lambda transaction, table: TablePart(spark, transaction, table)


def _dataframes(rows: Any) -> ForeignRows | None:
    """A Spark DataFrame, as a transaction has it written; None, without importing Spark, for other rows."""
    if not (type(rows).__module__.startswith("pyspark.") and hasattr(rows, "sparkSession")):
        return None
    from .spark_integration.rows.conditions import written_with_reads  # the rows are Spark's, so Spark is installed

    return written_with_reads(rows)
