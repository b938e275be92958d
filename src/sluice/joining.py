"""`sluice.transaction`: operations on several tables, on Arrow and on Spark data alike, that become one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .tables.several import JointTransaction
from .tables.table import Table
from .tables.transactions import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    import pyarrow as pa

    from .storage.actions import AddFile
    from .tables.writing import WritePlan

__all__ = ["transaction"]


def transaction(
    coordinator: str | None = None,
    *,
    tables: Sequence[Table | str | os.PathLike[str]] = (),
    isolation: str | None = None,
    transaction: tuple[str, int] | None = None,
    key: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    ack: str = "published",
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> JointTransaction:
    """Begin a transaction over several tables; use it in a `with` block, or call its `commit`.

    Tables are given to its operations as `sluice.Table` or by location; `coordinator` and `storage_options` are what those given by
    location are opened with. All must be kept by one coordinator, below one chroot. They are read as of the moment of the first
    use of one of them; those in `tables` as of now. `isolation` may be stricter than the tables' levels, never weaker.
    `transaction` = (application id, number) makes it happen once: the answer is `Commit.repeated` when all its tables have that number;
    so does a `key`, any text that tells it from all others, such as "nightly-2026-01-01".
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


def _dataframes(rows: Any) -> tuple[pa.Schema, Callable[[WritePlan, str], Sequence[AddFile]]] | None:
    """What writes a Spark DataFrame; nothing of Spark is imported for other rows."""
    if not type(rows).__module__.startswith("pyspark."):
        return None
    dataframes = import_module(".spark_integration.dataframes", __package__)  # the rows are Spark's, so it is there
    written: tuple[pa.Schema, Callable[[WritePlan, str], Sequence[AddFile]]] = dataframes.written_by_executors(rows)
    return written
