"""LOCK TABLE and UNLOCK TABLE: leases that a session holds from one statement to another.

The thread that locks commits under the lease, by whatever way it writes; so do the session's statements in other threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ..coordinator.facade.leasing import EXCLUSIVE, SHARED, Lease, LeaseOn, leases
from ..spark_integration.rows.conditions import predicate_text
from ..spark_integration.session.ending import when_stopped
from ..sql_plain.place import title
from ..statements.locks import Lock, Locked, Unlock
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from .asked import Asked
from .queries import table_of

__all__ = ["lock", "under_locks", "unlock"]

_COLUMNS: Final = "table string, mode string, condition string, token bigint"
_NO_PART: Final = "locks"


@dataclass(frozen=True, slots=True)
class _OnTable:
    """A table that a lock covers: its name in the statement, and what of it."""

    location: str
    name: str
    mode: str
    condition: str | None


@dataclass(frozen=True, slots=True)
class _Held:
    """What one LOCK TABLE took, and the thread that ran it."""

    lease: Lease
    tables: tuple[_OnTable, ...]
    thread: int

    @property
    def rows(self) -> list[tuple[str, str, str | None, int]]:
        return [(each.name, each.mode, each.condition, self.lease.token) for each in self.tables]


_of_sessions: Final[dict[SparkSession, list[_Held]]] = {}
_guard: Final = threading.Lock()


def lock(asked: Asked, statement: Lock) -> DataFrame:
    """Take leases, all of them or none, for the session. Returns one row for each table: table, mode, condition, token."""
    wanted = [_wanted(asked, each) for each in statement.tables]
    wait_s = None if statement.wait_s is None else float(statement.wait_s)
    lease = leases([request for request, _ in wanted], wait_s=wait_s)
    held = _Held(lease, tuple(on for _, on in wanted), threading.get_ident())
    with _guard:
        _of_sessions.setdefault(asked.spark, []).append(held)
    return asked.spark.createDataFrame(held.rows, _COLUMNS)


def _wanted(asked: Asked, each: Locked) -> tuple[LeaseOn, _OnTable]:
    table = table_of(asked, each.target, _NO_PART)
    mode, where = SHARED if each.shared else EXCLUSIVE, None
    try:
        if each.where is not None:
            where = predicate_text(asked.spark, table.struct, asked.expression(each.where), "LOCK TABLE ... WHERE")
        return table.lease_on(mode, where), _OnTable(table.location, title(each.target), mode, where)
    except InvalidRequest as error:
        if each.where is None:
            raise
        raise asked.refused(each.where, error.message) from error


def unlock(asked: Asked, statement: Unlock) -> DataFrame:
    """Release leases of the session. Returns their rows. Raises LeaseLost, after it released them, if one of them was lost before."""
    wanted = {table_of(asked, each, _NO_PART).location: each for each in statement.targets}
    with _guard:
        mine = _of_sessions.get(asked.spark, [])
        going = [held for held in mine if not wanted or any(each.location in wanted for each in held.tables)]
        known = {each.location for held in going for each in held.tables}
        for location, name in wanted.items():
            if location not in known:
                raise asked.refused(name, f"this session holds no lock on {title(name)}; SHOW LOCKS IN {title(name)} tells who does")
        others = sorted({each.name for held in going for each in held.tables if wanted and each.location not in wanted})
        if others:
            first = next(iter(wanted.values()))
            raise asked.refused(first, f"it was locked together with {', '.join(others)}: unlock all of them, or UNLOCK TABLES")
        _of_sessions[asked.spark] = [held for held in mine if held not in going]
    rows = [row for held in going for row in held.rows]
    with ExitStack() as ending:
        for held in going:
            ending.enter_context(held.lease)
    return asked.spark.createDataFrame(rows, _COLUMNS)


@contextmanager
def under_locks(spark: SparkSession) -> Iterator[None]:
    """What this thread commits in the block depends on the locks of the session, also those that another thread took."""
    with _guard:
        others = [held.lease for held in _of_sessions.get(spark, ()) if held.thread != threading.get_ident()]
    with ExitStack() as stack:
        for lease in others:
            stack.enter_context(lease.bind())
        yield


@when_stopped
def _release_all() -> None:
    """Spark stops, and with it all sessions of the process."""
    with _guard:
        everything = [held for mine in _of_sessions.values() for held in mine]
        _of_sessions.clear()
    for held in everything:
        held.lease.release()
