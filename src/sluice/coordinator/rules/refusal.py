"""Refusals: what a verdict records about a transaction that is not committed, and its owner's error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from ...storage.dataclass import dataclass
from ...storage.errors import Corrupt, InvalidRequest
from .. import errors as committing
from ..errors import NotCommitted, Refused

UNJUDGEABLE: Final = (
    Corrupt,
    InvalidRequest,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
    RecursionError,
)
"""Exceptions that the contents of an intent or a winner may cause; none of them means that a service is away.

pyarrow raises NotImplementedError (as ArrowNotImplementedError) where it has no kernel for a type. Which kernels it has depends on its
release.
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an intent was not committed: the rule, the error class to raise, and the winner, if any."""

    rule: str
    error: str
    message: str
    winning_version: int | None = None
    winning_operation: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def withdrawal(transaction_id: str) -> Refusal:
    """The refusal of a transaction that its owner, or an operator, withdraws."""
    return Refusal("withdrawn", "Withdrawn", f"transaction {transaction_id} was withdrawn before it was decided")


def refusal_error(refusal: Refusal, transaction_id: str, *, filed: bool = True) -> NotCommitted:
    """The exception for a refusal; `filed` is false if nothing of the transaction is on record."""
    cls = getattr(committing, refusal.error, Refused)
    if not (isinstance(cls, type) and issubclass(cls, NotCommitted)):
        cls = Refused
    winner = refusal.facts.get("winner")
    author: dict[str, object] = {}
    if isinstance(winner, Mapping):
        author = {f"winning_{name}": winner.get(name) for name in ("application", "host", "pid", "transaction_id", "time_ms")}
    return cls(
        refusal.message,
        rule=refusal.rule,
        winning_version=refusal.winning_version,
        winning_operation=refusal.winning_operation,
        **author,
        transaction_id=transaction_id,
        facts=dict(refusal.facts),
        filed=filed,
    )


def forgotten(transaction_id: str) -> Refusal:
    """The refusal that remains after its record was pruned."""
    return Refusal("forgotten", "Refused", f"transaction {transaction_id} was refused; the reason is no longer kept")
