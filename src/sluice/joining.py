"""`sluice.transaction` and `sluice.transact`: operations on several tables, on Arrow and on Spark data alike, that become one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from .coordinator.service.clock import DEFAULT_TIMEOUT_S, Timeout
from .tables.client.processes import this_client
from .tables.joint_transaction import JointTransaction
from .tables.table import Table
from .tables.transact import ATTEMPTS, repeated

if TYPE_CHECKING:
    import pyarrow as pa

    from .storage.actions import AddFile
    from .tables.write.data_writing import WritePlan

__all__ = ["transact", "transaction"]

T = TypeVar("T")


def transaction(
    coordinator: str | None = None,
    *,
    tables: Sequence[Table | str | os.PathLike[str]] = (),
    isolation: str | None = None,
    transaction: tuple[str, int] | None = None,
    key: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    ack: str = "published",
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> JointTransaction:
    """Begin a transaction over several tables; use it in a `with` block, or call its `commit`.

    Tables are given to its operations as `sluice.Table` or by location; `coordinator` and `storage_options` are what those given by
    location are opened with. All must be kept by one coordinator, below one chroot. They are read as of the moment of the first
    use of one of them; those in `tables` as of now. `isolation` may be stricter than the tables' levels, never weaker.
    `transaction` = (application id, number) makes it happen once: the answer is `Commit.repeated` when they have that number;
    so does a `key`, any text that tells it from all others, such as "nightly-2026-01-01". `commit` raises HalfCommitted when that was
    lost in some of them with the coordinator's data.
    """
    return JointTransaction(
        coordinator,
        tables=tables,
        isolation=isolation,
        transaction=transaction,
        key=key,
        storage_options=storage_options,
        ack=ack,
        timeout_s=timeout_s,
        elsewhere=_dataframes,
    )


def transact(
    work: Callable[[JointTransaction], T],
    coordinator: str | None = None,
    *,
    tables: Sequence[Table | str | os.PathLike[str]] = (),
    attempts: int = ATTEMPTS,
    isolation: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    ack: str = "published",
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> T:
    """Run `work(transaction)` over several tables and commit it; when another commit came first, run it again, `attempts` times in all.

    After three losses it takes exclusive leases over what it read, in all tables at once, so that it gets through beside any number of
    writers. The rest is as for `transaction`. Returns what `work` returned. Raises the last conflict, and what `work` raises, after which
    nothing is committed.
    """

    def begin() -> JointTransaction:
        return transaction(coordinator, tables=tables, isolation=isolation, storage_options=storage_options, ack=ack, timeout_s=timeout_s)

    return repeated(begin, work, JointTransaction.leases_on_reads, attempts, timeout_s, this_client().application)


def _dataframes(rows: Any) -> tuple[pa.Schema, Callable[[WritePlan, str], Sequence[AddFile]]] | None:
    """What writes a Spark DataFrame; nothing of Spark is imported for other rows."""
    if not type(rows).__module__.startswith("pyspark."):
        return None
    dataframes = import_module(".spark_integration.dataframes", __package__)  # the rows are Spark's, so it is there
    written: tuple[pa.Schema, Callable[[WritePlan, str], Sequence[AddFile]]] = dataframes.written_by_executors(rows)
    return written
