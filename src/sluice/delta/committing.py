"""Runs an operation as a transaction: at a level of isolation, once under a key, again on the new state if it lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..coordinator.api import DEFAULT_TIMEOUT_S
from ..storage.dataclass import dataclass
from ..tables.table import Table
from ..tables.transact import transact
from ..tables.transaction import Transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """How an operation is to be committed, beyond what Delta's methods take.

    `isolation` may be stricter than the table's level. `attempts` is how often it is tried: a lost one is repeated on the new
    state. With a `key`, or `transaction` = (application id, number), it happens once. The history shows `user_metadata`.
    With `if_version` it is committed only as the version after that one.
    """

    isolation: str | None = None
    attempts: int = 1
    key: str | None = None
    transaction: tuple[str, int] | None = None
    user_metadata: str | None = None
    if_version: int | None = None


def committed(table: Table, terms: Terms, work: Callable[[Transaction], T]) -> T | None:
    """What `work` returned for the transaction that was committed; None if the table has the commit of this key already.

    Raises the conflict of the last attempt, and the errors of `work`, after which nothing is committed.
    """

    def unless_done(part: Transaction) -> T | None:
        return None if part.repeated() is not None else work(part)

    begin = partial(
        table.begin,
        terms.isolation,
        transaction=terms.transaction,
        key=terms.key,
        if_version=terms.if_version,
        user_metadata=terms.user_metadata,
        timeout_s=DEFAULT_TIMEOUT_S,
    )
    return transact(
        begin,
        table.lease_on,
        unless_done,
        attempts=terms.attempts,
        timeout_s=DEFAULT_TIMEOUT_S,
        application=table.coordinated.application,
    )
