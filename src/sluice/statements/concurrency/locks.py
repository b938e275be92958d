"""LOCK TABLE and UNLOCK TABLE: leases that a session holds from one statement to another."""

from __future__ import annotations

from typing import Any, Final

from ...coordinator.api import EXCLUSIVE, SHARED, LeaseOn
from ...storage.errors import InvalidRequest
from ..engine import Engine, R
from ..parse.locks import Lock, Locked, Unlock
from ..places import table_of, title
from ..reports import Answer
from ..request import Request
from ..session_locks import LockedTable

_COLUMNS: Final = "table string, mode string, condition string, token bigint"


def lock(engine: Engine[R, Any], request: R, statement: Lock) -> Answer:
    """Take leases for the session, all of them or none. Answers one row for each table: table, mode, condition, token.

    Raises InvalidRequest, with the place, for a condition that leases cannot take.
    """
    requests = [_wanted(engine, request, each) for each in statement.tables]
    taken = request.locks.take(requests, None if statement.wait_s is None else float(statement.wait_s))
    return Answer(_COLUMNS, tuple(taken.rows))


def _wanted(engine: Engine[R, Any], request: R, locked: Locked) -> tuple[LeaseOn, LockedTable]:
    table = table_of(request, locked.target, "locks")
    mode, where = SHARED if locked.shared else EXCLUSIVE, None
    try:
        if locked.where is not None:
            where = engine.lease_condition(request, table, locked.where)
        return table.lease_on(mode, where), LockedTable(table.location, title(locked.target), mode, where)
    except InvalidRequest as error:
        if locked.where is None or "place" in error.details:
            raise
        raise request.refused(locked.where, error.message) from error


def unlock(request: Request, statement: Unlock) -> Answer:
    """Release leases of the session. Answers their rows. Raises LeaseLost, after it released them, if one of them was lost before."""
    names = {table_of(request, each, "locks").location: each for each in statement.targets}
    locks = request.locks.covering(names)
    covered = {each.location: each.name for lock in locks for each in lock.tables}
    for location, name in names.items():
        if location not in covered:
            said = f"this session holds no lock on {title(name)}; SHOW LOCKS IN {title(name)} shows who does"
            raise request.refused(name, said)
    others = sorted({name for location, name in covered.items() if names and location not in names})
    if others:
        first = next(iter(names.values()))
        raise request.refused(first, f"it was locked together with {', '.join(others)}: unlock all of them, or UNLOCK TABLES")
    rows = [row for lock in locks for row in lock.rows]
    request.locks.release(locks)
    return Answer(_COLUMNS, tuple(rows))
