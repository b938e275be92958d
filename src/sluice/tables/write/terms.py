"""The keywords that every operation takes, typed once; and what makes a write happen once.

An application's own number, or a key of the caller's choice, makes a write happen once. Both use Delta's `txn` action, which the log keeps
for each application id: if the number, or a higher one, is already there, the answer is the commit that wrote it. A key is an application
id of its own.

Two writers may have one application id and number for different rows, as two runs of one stream's checkpoint have. A mark distinguishes
them: a second `txn` action, whose number holds the first one's and 32 bits of a digest of the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypedDict

from ...coordinator.errors import ConcurrentTransactionException
from ...storage.actions import Txn
from ...storage.arguments import RULES
from ...storage.errors import InvalidRequest

if TYPE_CHECKING:
    from ...coordinator.api import Timeout

KEY_PREFIX: Final = "sluice.key:"
"""The prefix of a key's application id, which no streaming query or application uses."""
_MARK_SUFFIX: Final = "/rows"
_MARK_BITS: Final = 32


class TermsArgs(TypedDict, total=False):
    """The terms of every commit."""

    user_metadata: str | None
    """A text of at most 8,192 characters, which the history shows with the commit."""
    ack: str | None
    """When the call returns: "published" (any engine reads the commit) or "ratified" (it is decided for good); None: as the table says."""
    timeout_s: Timeout | None
    """How long the call may take, in seconds; None: as long as the table says."""


class ChangeArgs(TermsArgs, total=False):
    """The terms of a change of one table."""

    if_version: int | None
    """Commit only as the very next version after this one: nothing may come in between, not even a compaction."""


class OnceArgs(TermsArgs, total=False):
    """The terms of a transaction."""

    isolation: str | None
    """A level that is stricter than the table's: "Serializable", "WriteSerializable" or "SnapshotIsolation"."""
    transaction: tuple[str, int] | None
    """(application id, number): it happens once. If the table has that number, or a higher one, the answer is the existing commit
    (`Commit.repeated`).
    """
    key: str | None
    """The same by any text that distinguishes this write from all others to the table, such as "nightly-2026-01-01"."""


class WriteArgs(ChangeArgs, OnceArgs, total=False):
    """The terms of a write to one table."""

    read_version: int | None
    """The version from which its rows were computed: if others changed meanwhile what was read of it, the write is refused
    (ConcurrentModification). A replacement replaces what this version holds (None: the latest one).
    """


def application_transaction(transaction: tuple[str, int] | None, key: str | None) -> tuple[str, int] | None:
    """The application transaction to write, which may be one that a key stands for. Raises InvalidRequest, also if both are given."""
    if key is None:
        return transaction
    if transaction is not None:
        raise InvalidRequest(f"transaction={transaction!r} and key={key!r} were given; give one of them", key=key)
    RULES["key"].check("key", key)
    return KEY_PREFIX + key, 0


_mark: ContextVar[tuple[tuple[str, int], int] | None] = ContextVar("sluice_mark", default=None)


def mark_of(number: int, rows: bytes) -> int:
    """The number of the mark beside an application's number, for rows that these bytes determine."""
    return (number << _MARK_BITS) | int.from_bytes(hashlib.blake2b(rows, digest_size=_MARK_BITS // 8).digest(), "big")


@contextmanager
def marked(application: tuple[str, int], mark: int | None) -> Iterator[None]:
    """Write this mark with an application's transaction, where this thread commits it in the block; None: no mark."""
    token = _mark.set(None if mark is None else (application, mark))
    try:
        yield
    finally:
        _mark.reset(token)


def transaction_actions(application: tuple[str, int], now_ms: int) -> list[Txn]:
    """The actions of an application's transaction: its number, and its mark if it has one."""
    app, number = application
    actions = [Txn(app_id=app, version=number, last_updated=now_ms)]
    mark = _mark.get()
    if mark is not None and mark[0] == application:
        actions.append(Txn(app_id=app + _MARK_SUFFIX, version=mark[1], last_updated=now_ms))
    return actions


def require_same_rows(numbers: Mapping[str, Txn], application: tuple[str, int], location: str) -> None:
    """Raise ConcurrentTransactionException if a table, by its `numbers`, has a later number of a marked transaction or another mark."""
    mark = _mark.get()
    app, number = application
    if mark is None or mark[0] != application or app not in numbers:
        return
    rows = numbers.get(app + _MARK_SUFFIX)
    later = numbers[app].version > number
    # check: another-run-is-no-repetition
    if later or (rows is not None and rows.version >> _MARK_BITS == number and rows.version != mark[1]):
        has = f"batch {numbers[app].version}" if later else f"other rows as batch {number}"
        raise ConcurrentTransactionException(
            f"{location} has {has} of query {app} already, and this run was about to write batch {number}: another run went on from a "
            "copy of the same checkpoint, or this checkpoint is an old copy. Its rows would be lost, or written twice: stop the other run "
            "and go on from its checkpoint, or give this query an empty one",
            rule="application-advanced",
            facts={"table": location, "query": app, "batch": number, "written": numbers[app].version},
        )
