"""Transactions that are repeated when they lose, and that cannot lose for ever.

One that lost three times takes an exclusive lease over what it reads, in all of its tables at once: from then on nobody commits
what would be in its way, so that a long job gets through beside any number of short ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, Protocol, TypeVar

from ..coordinator.errors import ConcurrentModification, DeadlockDetected
from ..coordinator.nodes.lease_records import EXCLUSIVE
from ..coordinator.service.clock import Timeout
from ..storage.errors import InvalidRequest, InvariantBroken
from .client.leasing import LeaseOn, leases
from .transaction import Transaction
from .write.scopes import scope_of_reads
from .write.transaction_end import OpenTransaction

__all__ = ["ATTEMPTS", "Transactional", "repeated", "transact"]

_log = logging.getLogger(__name__)

ATTEMPTS: Final = 10
_LOSSES_BEFORE_LEASE: Final = 3

T = TypeVar("T")
Begun = TypeVar("Begun", bound="OpenTransaction[Any]")


class Transactional(Protocol):
    """What `transact` needs of a table."""

    def begin(self, isolation: str | None = None, *, timeout_s: Timeout | None = None) -> Transaction:
        """An open transaction on the latest version."""
        ...

    def lease_on(self, mode: str = EXCLUSIVE, where: str | None = None, *, name: str | None = None) -> LeaseOn:
        """A lease over the table or some of its partitions, to ask for."""
        ...


def transact(
    table: Transactional,
    work: Callable[[Transaction], T],
    *,
    attempts: int,
    isolation: str | None,
    timeout_s: Timeout,
    application: str,
) -> T:
    """Run `work` in a transaction and commit it; again, on the new state, when others were faster. See `Table.transact`."""

    def scopes(lost: Transaction, name: str, whole: bool) -> list[LeaseOn]:
        return [table.lease_on(EXCLUSIVE, None if whole else scope_of_reads(*lost.basis), name=name)]

    return repeated(lambda: table.begin(isolation, timeout_s=timeout_s), work, scopes, attempts, timeout_s, application)


def repeated(
    begin: Callable[[], Begun],
    work: Callable[[Begun], T],
    scopes: Callable[[Begun, str, bool], list[LeaseOn]],
    attempts: int,
    timeout_s: Timeout,
    application: str,
) -> T:
    """The same for any open transaction: `begin` makes one, `scopes(lost, name, whole)` tells which leases to take after losses.

    Those over what it read, or over the whole of its tables, when the former did not help.
    """
    if type(attempts) is not int or attempts < 1:
        raise InvalidRequest(f"attempts is {attempts!r}; give a whole number, 1 or more", attempts=attempts)
    with ExitStack() as held:
        for losses in range(1, attempts + 1):
            transaction = begin()
            try:
                with transaction:
                    result = work(transaction)
            except ConcurrentModification as lost:
                if losses == attempts:
                    raise
                _log.info("transaction %s lost (%s) and is repeated", transaction.id, lost)
                if losses in (_LOSSES_BEFORE_LEASE, 2 * _LOSSES_BEFORE_LEASE):
                    held.close()
                    name = f"{application}: lost {losses} times"
                    _escalate(scopes(transaction, name, losses > _LOSSES_BEFORE_LEASE), held, timeout_s, name)
            else:
                return result
    raise InvariantBroken("the last attempt neither returned nor raised")


def _escalate(wanted: list[LeaseOn], held: ExitStack, timeout_s: Timeout, name: str) -> None:
    """Take exclusive leases; where that would be a deadlock, or nothing was read, go on without."""
    try:
        if wanted:
            held.enter_context(leases(wanted, wait_s=timeout_s))
    except DeadlockDetected as circle:
        _log.info("%s, and goes on without a lease: %s", name, circle)
