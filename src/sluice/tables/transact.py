"""Transactions that are repeated when they lose, without losing for ever.

After three losses a transaction takes exclusive leases over what it reads, in all of its tables at once: from then on nobody
commits anything in its way, so that a long job gets through against any number of short ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final, TypeVar

from ..coordinator.api import EXCLUSIVE, Deadline, LeaseOn, Timeout, leases, touched_by_reads
from ..coordinator.errors import ConcurrentModification, DeadlockDetected
from ..storage.errors import InvariantBroken
from .transaction import Transaction
from .write.transaction_end import OpenTransaction

_log = logging.getLogger(__name__)

ATTEMPTS: Final = 10
_LOSSES_BEFORE_LEASE: Final = 3

T = TypeVar("T")
Begun = TypeVar("Begun", bound="OpenTransaction[Any]")


def transact(
    begin: Callable[[], Transaction],
    lease_on: Callable[..., LeaseOn],
    work: Callable[[Transaction], T],
    *,
    attempts: int,
    timeout_s: Timeout,
    application: str,
) -> T:
    """Run `work` in a transaction that `begin` makes, and commit it; repeat it on the new state when another commit came first.

    `lease_on` is the table's. See `Table.transact`.
    """

    def scopes(lost: Transaction, name: str, whole: bool) -> list[LeaseOn]:
        read = None if whole else touched_by_reads(*lost.basis)
        return [lease_on(EXCLUSIVE, None if read is None else read.sql, name=name)]

    return repeated(begin, work, scopes, attempts, timeout_s, application)


def repeated(
    begin: Callable[[], Begun],
    work: Callable[[Begun], T],
    scopes: Callable[[Begun, str, bool], list[LeaseOn]],
    attempts: int,
    timeout_s: Timeout,
    application: str,
) -> T:
    """`transact` for any open transaction: `begin` makes one, `scopes(lost, name, whole)` returns the leases to take after losses.

    These cover what it read, or the whole of its tables if the former did not help.
    """
    with ExitStack() as held:
        for losses in range(1, attempts + 1):
            transaction = begin()
            try:
                with transaction:
                    result = work(transaction)
            except ConcurrentModification as lost:
                if losses == attempts or lost.rule == "expected-version":  # its version stays taken
                    raise
                _log.info("transaction %s lost (%s) and is repeated", transaction.id, lost)
                if losses in (_LOSSES_BEFORE_LEASE, 2 * _LOSSES_BEFORE_LEASE):
                    held.close()
                    name = f"{application}: lost {losses} times"
                    _escalate(scopes(transaction, name, losses > _LOSSES_BEFORE_LEASE), held, timeout_s, name)
            else:
                return result
    raise InvariantBroken("the last attempt neither returned nor raised")


def _escalate(requests: list[LeaseOn], held: ExitStack, timeout_s: Timeout, name: str) -> None:
    """Take exclusive leases; go on without them if that would be a deadlock, or if nothing was read."""
    try:
        if requests:
            held.enter_context(leases(requests, wait_s=Deadline.of(timeout_s)))
    except DeadlockDetected as circle:
        _log.info("%s, and goes on without a lease: %s", name, circle)
