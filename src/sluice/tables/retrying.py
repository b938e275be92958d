"""Transactions that are repeated when they lose, and that cannot lose for ever.

One that lost three times takes an exclusive lease over what it reads: from then on nobody commits what would be in its way, so
that a long job gets through beside any number of short ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Protocol, TypeVar

from ..coordinator.errors import ConcurrentModification, DeadlockDetected
from ..coordinator.lease_records import EXCLUSIVE
from ..coordinator.leases import Lease
from ..storage.errors import InvalidRequest, InvariantBroken
from ..storage.predicate import Predicate
from ..storage.schema import parse_schema
from ..storage.snapshot import Snapshot
from .transaction import Transaction
from .transactions import Reads

__all__ = ["ATTEMPTS", "Transactional", "scope_of_reads", "transact"]

_log = logging.getLogger(__name__)

ATTEMPTS: Final = 10
_LOSSES_BEFORE_LEASE: Final = 3
_SCOPE_CHARACTERS_MAX: Final = 8 * 1024

T = TypeVar("T")


class Transactional(Protocol):
    """What `transact` needs of a table."""

    def begin(self, isolation: str | None = None, *, timeout_s: float | None = None) -> Transaction:
        """An open transaction on the latest version."""
        ...

    def lease(self, mode: str = EXCLUSIVE, where: str | None = None, wait_s: float | None = None, name: str | None = None) -> Lease:
        """A lease over the table or some of its partitions."""
        ...


def transact(
    table: Transactional,
    work: Callable[[Transaction], T],
    *,
    attempts: int,
    isolation: str | None,
    timeout_s: float,
    application: str,
) -> T:
    """Run `work` in a transaction and commit it; again, on the new state, when others were faster. See `Table.transact`."""
    if type(attempts) is not int or attempts < 1:
        raise InvalidRequest(f"attempts is {attempts!r}; give a whole number, 1 or more", attempts=attempts)
    with ExitStack() as held:
        for losses in range(1, attempts + 1):
            transaction = table.begin(isolation, timeout_s=timeout_s)
            try:
                with transaction:
                    result = work(transaction)
            except ConcurrentModification as lost:
                if losses == attempts:
                    raise
                _log.info("transaction %s lost (%s) and is repeated", transaction.id, lost)
                if losses in (_LOSSES_BEFORE_LEASE, 2 * _LOSSES_BEFORE_LEASE):
                    held.close()
                    where = scope_of_reads(*transaction.basis) if losses == _LOSSES_BEFORE_LEASE else None
                    _escalate(table, where, held, timeout_s, f"{application}: lost {losses} times")
            else:
                return result
    raise InvariantBroken("the last attempt neither returned nor raised")


def _escalate(table: Transactional, where: str | None, held: ExitStack, timeout_s: float, name: str) -> None:
    """Take an exclusive lease; where that would be a deadlock, go on without."""
    try:
        held.enter_context(table.lease(EXCLUSIVE, where, timeout_s, name))
    except DeadlockDetected as circle:
        _log.info("%s, and goes on without a lease: %s", name, circle)


def scope_of_reads(snapshot: Snapshot, reads: Reads | None) -> str | None:
    """A condition over partition columns that covers what was read; None for the whole table."""
    if reads is None or reads.whole_table or not reads.predicates or not snapshot.partition_columns:
        return None
    schema = parse_schema(snapshot.metadata.schema_string)
    scope: Predicate | None = None
    for sql in reads.predicates:
        inside = Predicate.parse(sql, schema).split(snapshot.partition_columns)[0] if sql else None
        if inside is None:
            return None
        scope = inside if scope is None else scope.or_(inside)
    text = None if scope is None else scope.to_sql()
    return text if text is not None and len(text) <= _SCOPE_CHARACTERS_MAX else None
