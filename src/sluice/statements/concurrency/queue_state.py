"""SHOW LOCKS, SHOW QUEUE and SHOW TRANSACTIONS: what the coordinator knows of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...coordinator.api import (
    Place,
    Queued,
    RefusedTransaction,
    TableTree,
    connect,
    list_leases,
    list_queue,
    list_refused,
)
from ...tables.read.history import HistoryEntry
from ...tables.table import Table
from ..parse.locks import ShowState
from ..places import catalog_of, table_of, title
from ..reports import Answer, moment
from ..request import Request

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
