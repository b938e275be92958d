"""Idempotent writes: an application's own number, or a key of the caller's choice, makes a write happen once.

Both use Delta's `txn` action, which the log keeps for each application id: if the number, or a higher one, is already there,
the answer is the commit that wrote it. A key is an application id of its own that is written once.
"""

from __future__ import annotations

from typing import Final

from ...storage.errors import InvalidRequest

__all__ = ["KEY_PREFIX", "application_transaction", "as_it_was_given", "check_application_transaction", "check_user_metadata"]

KEY_PREFIX: Final = "sluice.key:"
"""The prefix of a key's application id, which no streaming query or application uses."""
_KEY_CHARACTERS_MAX: Final = 1000
_USER_METADATA_CHARACTERS_MAX: Final = 8 * 1024


def application_transaction(transaction: tuple[str, int] | None, key: str | None) -> tuple[str, int] | None:
    """The application transaction to write: the given one, or that of a key. Raises InvalidRequest."""
    check_application_transaction(transaction)
    if key is None:
        return transaction
    if transaction is not None:
        raise InvalidRequest(f"transaction={transaction!r} and key={key!r} were given; give one of them", key=key)
    if not isinstance(key, str) or not 0 < len(key) <= _KEY_CHARACTERS_MAX:
        raise InvalidRequest(f"key={key!r}: give a text of 1 to {_KEY_CHARACTERS_MAX} characters that identifies this write")
    return KEY_PREFIX + key, 0


def as_it_was_given(application: tuple[str, int]) -> str:
    """What the caller passed for this application transaction, for messages."""
    app, _ = application
    return f"key={app[len(KEY_PREFIX) :]!r}" if app.startswith(KEY_PREFIX) else f"transaction={application!r}"


def check_application_transaction(transaction: object) -> None:
    """Raise InvalidRequest unless this is None or (application id, number), as in Delta's `txn` action."""
    match transaction:
        case None:
            return
        case (str(app), int(number)) if app and type(number) is int and 0 <= number < 2**63:
            return
    raise InvalidRequest(
        f"transaction={transaction!r}: give (application id, number), a text that is not empty and a whole number, 0 or more"
    )


def check_user_metadata(text: object) -> str:
    """The text that a commit shows in the history ("" for None). Raises InvalidRequest for no text, or a very long one."""
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > _USER_METADATA_CHARACTERS_MAX:
        shown = f"{text[:40]!r}... ({len(text):,} characters)" if isinstance(text, str) else repr(text)
        raise InvalidRequest(f"user_metadata={shown}: give a text of at most {_USER_METADATA_CHARACTERS_MAX:,} characters")
    return text
