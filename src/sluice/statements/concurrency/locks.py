"""LOCK TABLE and UNLOCK TABLE, leases that a session holds from one statement to another; SHOW LOCKS, QUEUE and TRANSACTIONS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...coordinator.api import (
    EXCLUSIVE,
    SHARED,
    LeaseOn,
    Place,
    Queued,
    RefusedTransaction,
    TableTree,
    connect,
    list_leases,
    list_queue,
    list_refused,
)
from ...storage.errors import InvalidRequest
from ...tables.read.history import HistoryEntry
from ...tables.table import Table
from ..engine import Engine, R
from ..parse.locks import Lock, Locked, ShowState, Unlock
from ..places import catalog_of, table_of, title
from ..reports import Answer, moment
from ..request import LockedTable, Request

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


_LOCKS: Final = (
    "table string, lease string, state string, waits_for string, mode string, condition string, name string, application string, "
    "host string, pid bigint, since timestamp, token bigint"
)
_QUEUE: Final = (
    "table string, position int, transaction_id string, operation string, application string, host string, pid bigint, "
    "isolation string, read_version bigint, since timestamp, tables array<string>"
)
_TRANSACTIONS: Final = (
    "table string, transaction_id string, state string, operation string, version bigint, ordinal int, application string, host string, "
    "pid bigint, at timestamp, waited_ms bigint, rule string, reason string"
)
_LATEST: Final = 20

Row = tuple[Any, ...]


def show_state(request: Request, statement: ShowState) -> Answer:
    """One row for each lease, waiting transaction or transaction of a table, or of all tables that have names."""
    shows, columns = _SHOWN[statement.what]
    limit = None if statement.limit is None else int(statement.limit)
    rows = [row for name, table in _tables(request, statement) for row in shows(request, name, table, limit)]
    return Answer(columns, tuple(rows))


def _tables(request: Request, statement: ShowState) -> list[tuple[str, Table]]:
    target = statement.target
    if target is not None:
        return [(title(target), table_of(request, target, "part in what sluice coordinates"))]
    catalog = catalog_of(request)
    names = [each.full_name for namespace in catalog.namespaces() for each in catalog.tables(namespace.name)]
    return [(name, catalog.open(name)) for name in names]


def _locks(request: Request, name: str, table: Table, limit: int | None) -> list[Row]:
    entries = list_leases(connect(request.coordinator), Place.of_table(TableTree(table.location)))
    return [
        (
            name,
            each.lease,
            "held" if each.held else "waits",
            each.waits_for,
            each.mode,
            each.where or None,
            each.name or None,
            each.application,
            each.host,
            each.pid,
            moment(each.since_ms),
            each.token,
        )
        for each in entries[:limit]
    ]


def _queue(_: Request, name: str, table: Table, limit: int | None) -> list[Row]:
    return [
        (
            name,
            number,
            each.transaction_id,
            each.operation or None,
            each.client.application or None,
            each.client.host or None,
            each.client.pid or None,
            each.isolation or None,
            each.read_version,
            moment(each.claimed_ms),
            list(each.tables) or [table.location],
        )
        for number, each in enumerate(list_queue(table.coordinated.context)[:limit], 1)
    ]


def _transactions(_: Request, name: str, table: Table, limit: int | None) -> list[Row]:
    """The waiting ones, then those that were decided, the newest first."""
    limit = _LATEST if limit is None else limit
    context = table.coordinated.context
    waiting = [_waiting(name, each) for each in list_queue(context)]
    decided = [(each.decided_ms, _refused(name, each)) for each in list_refused(context)]
    decided += [(each.timestamp, _committed(name, each)) for each in table.history(limit)]
    decided.sort(key=lambda each: each[0], reverse=True)
    return [*waiting, *(row for _, row in decided)][:limit]


def _waiting(name: str, each: Queued) -> Row:
    client = each.client
    who = client.application or None, client.host or None, client.pid or None
    return (name, each.transaction_id, "waiting", each.operation or None, None, None, *who, moment(each.claimed_ms), None, None, None)


def _refused(name: str, each: RefusedTransaction) -> Row:
    columns = (name, each.transaction_id, "refused", None, None, None, None, None, None, moment(each.decided_ms), None)
    return (*columns, each.refusal.rule, each.refusal.message)


def _committed(name: str, each: HistoryEntry) -> Row:
    who = each.application or None, each.host or None, each.pid or None
    columns = (name, each.transaction_id or None, "committed", each.operation, each.version, each.ordinal, *who)
    return (*columns, moment(each.timestamp), each.waited_ms, None, None)


_SHOWN: Final[Mapping[str, tuple[Callable[[Request, str, Table, int | None], Sequence[Row]], str]]] = {
    "locks": (_locks, _LOCKS),
    "queue": (_queue, _QUEUE),
    "transactions": (_transactions, _TRANSACTIONS),
}
