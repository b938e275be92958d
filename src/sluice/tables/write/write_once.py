"""What makes a write happen once, whoever repeats it: an application's own number, or a key of the caller's choice.

Both are Delta's `txn` action, which the log keeps for each application id: a number that is there already, or a higher one, is
answered with the commit that wrote it. A key is an application id of its own that is written once.
"""

from __future__ import annotations

from typing import Final

from ...storage.errors import InvalidRequest

__all__ = ["KEY_PREFIX", "application_transaction", "as_it_was_given", "check_application_transaction"]

KEY_PREFIX: Final = "sluice.key:"
"""What the application id of a key begins with, so that it is no streaming query's and no application's."""
_KEY_CHARACTERS_MAX: Final = 1000


def application_transaction(transaction: tuple[str, int] | None, key: str | None) -> tuple[str, int] | None:
    """The application transaction to write: as it is given, or what stands for a key. Raises InvalidRequest."""
    check_application_transaction(transaction)
    if key is None:
        return transaction
    if transaction is not None:
        raise InvalidRequest(f"transaction={transaction!r} and key={key!r} were given; give one of them", key=key)
    if not isinstance(key, str) or not 0 < len(key) <= _KEY_CHARACTERS_MAX:
        raise InvalidRequest(f"key={key!r}: give a text of 1 to {_KEY_CHARACTERS_MAX} characters that tells this write from all others")
    return KEY_PREFIX + key, 0


def as_it_was_given(application: tuple[str, int]) -> str:
    """What a caller gave to have this application transaction written, for messages."""
    app, _ = application
    return f"key={app[len(KEY_PREFIX) :]!r}" if app.startswith(KEY_PREFIX) else f"transaction={application!r}"


def check_application_transaction(transaction: object) -> None:
    """Raise InvalidRequest unless this is None or (application id, number), as Delta's `txn` action holds them."""
    match transaction:
        case None:
            return
        case (str(app), int(number)) if app and type(number) is int and 0 <= number < 2**63:
            return
    raise InvalidRequest(
        f"transaction={transaction!r}: give (application id, number), a text that is not empty and a whole number, 0 or more"
    )
