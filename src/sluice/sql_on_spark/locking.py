"""The locks of Spark's sessions: LOCK TABLE and UNLOCK TABLE, and the statements under them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ..delta.metrics import frame
from ..spark_integration.active_session import when_stopped
from ..spark_integration.rows.conditions import predicate_text
from ..sql_plain.concurrency import locking
from ..sql_plain.concurrency.locking import Locks
from ..statements.cursor import Span
from ..statements.locks import Lock, Unlock
from ..tables.table import Table
from .queries import table_of
from .spark_request import Asked

_of_sessions: Final[dict[SparkSession, Locks]] = {}
_guard: Final = threading.Lock()


def _locks_of(spark: SparkSession) -> Locks:
    with _guard:
        return _of_sessions.setdefault(spark, Locks())


def lock(asked: Asked, statement: Lock) -> DataFrame:
    """Take leases, all of them or none, for the session. Returns one row for each table: table, mode, condition, token."""

    def condition(table: Table, where: Span) -> str:
        return predicate_text(asked.spark, table.struct, asked.expression(where), "LOCK TABLE ... WHERE")

    return frame(asked.spark, locking.lock(asked, statement, _locks_of(asked.spark), partial(table_of, asked, takes_no="locks"), condition))


def unlock(asked: Asked, statement: Unlock) -> DataFrame:
    """Release leases of the session. Returns their rows. Raises LeaseLost, after it released them, if one of them was lost before."""
    return frame(asked.spark, locking.unlock(asked, statement, _locks_of(asked.spark), partial(table_of, asked, takes_no="locks")))


@contextmanager
def under_locks(spark: SparkSession) -> Iterator[None]:
    """What this thread commits in the block depends on the locks of the session, also those that another thread took."""
    with _guard:
        locks = _of_sessions.get(spark)
    if locks is None:
        yield
        return
    with locks.bound():
        yield


@when_stopped
def _release_all() -> None:
    """Spark stops, and with it all sessions of the process."""
    with _guard:
        everything = list(_of_sessions.values())
        _of_sessions.clear()
    for each in everything:
        each.release()
