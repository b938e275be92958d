"""Transactions that are repeated when they lose, without losing for ever: each attempt has priority over those that others begin later.

`coordinator/leases/priority.py` says what an attempt keeps out after how many losses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..coordinator.errors import ConcurrentModification, NotCommitted
from ..storage.errors import InvariantBroken
from .write.transaction_end import OpenTransaction

_log = logging.getLogger(__name__)

ATTEMPTS: Final = 10

T = TypeVar("T")
Begun = TypeVar("Begun", bound="OpenTransaction[Any]")


def repeated(begin: Callable[[Begun | None], Begun], work: Callable[[Begun], T], attempts: int) -> T:
    """Run `work` in a transaction and commit it; repeat both on the new state when another commit came first, up to `attempts` times.

    `begin(after)` makes a transaction with the priority that `after`, the attempt that lost (None: there is none yet), gives it. Returns
    the result of `work`. Raises the last conflict, and the exceptions of `work`, after which nothing is committed.
    """
    transaction: Begun | None = None
    for attempt in range(1, attempts + 1):
        transaction = begin(transaction)
        losses_before = transaction.losses
        try:
            with transaction:
                result = work(transaction)
        except NotCommitted as lost:
            may_win = lost.rule != "expected-version" if isinstance(lost, ConcurrentModification) else transaction.losses > losses_before
            if attempt == attempts or not may_win:  # an expected version stays taken
                raise
            _log.info("transaction %s lost (%s) and is repeated", transaction.id, lost)
        else:
            return result
    raise InvariantBroken("the last attempt neither returned nor raised")
