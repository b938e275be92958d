"""Transaction ids name their owner: filing a transaction and collecting its garbage depend on the same node.

A transaction id is a UUID of version 8, which leaves its bits to the application (RFC 9562). Every object a transaction
writes has the id in its key, so an object's owner is known from its name:

- for a client's transaction, the last 48 bits are the client's id: its owner is the ephemeral node `clients/<client>`. The 14
  bits before them count the client's terms: a living client gives up former terms (presence.py). The first 32 bits are the
  second since 1970 in which the id was made, and the next 28 number the client's transactions;
- for a plan's transaction, made in one process and committed in another, the first 8 of these 48 bits are 0: its owner is the
  persistent node `open/<plan>`, which exists from planning until the commit and is named by the first 60 bits, which are
  random. The 14 bits count attempts, and the last 40 are the second in which the id was made.

So an id tells the earliest moment its transaction can be in a log, as far as its maker's clock is right.

A transaction is filed in a multi that checks its owner's node. Once the node is gone and kept from coming back, the
transaction is never filed. An id of any other form has no owner, and nothing is known about it.
"""

from __future__ import annotations

import re
import secrets
import uuid
from typing import Final

from ...storage.dataclass import dataclass
from .layout import CLIENTS, OPEN

_CLIENT_BITS: Final = 48
_SECOND_BITS: Final = 40
"""Bits of the second in a plan's id: no client has an id this small."""
_NUMBER_BITS: Final = 28
_COUNT_BITS: Final = 14
TERM_MAX: Final = (1 << _COUNT_BITS) - 1
"""A client stays in its last term."""
_VERSION: Final = 8 << 76
_VARIANT: Final = 2 << 62
_NODE: Final = (1 << _CLIENT_BITS) - 1
_COUNT: Final = TERM_MAX << _CLIENT_BITS
_HEX: Final = "[0-9a-f]"
_ID: Final = re.compile(rf"(?<![0-9a-fA-F]){_HEX}{{8}}-{_HEX}{{4}}-8{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}(?![0-9a-fA-F])")


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The owner of a client's or a plan's transactions: the node `path`."""

    path: str

    @property
    def is_client(self) -> bool:
        """Whether the owner is a client's presence, not a plan's node."""
        return self.path.startswith(f"{CLIENTS}/")

    @property
    def name(self) -> str:
        """The node's own name: the client's or the plan's id."""
        return self.path.rpartition("/")[2]


def new_client() -> str:
    """A new client id: 12 hexadecimal digits that do not begin with 00."""
    return f"{secrets.randbelow(_NODE - (1 << _SECOND_BITS)) + (1 << _SECOND_BITS):012x}"


def new_id(client: str, term: int, number: int, now_ms: int) -> str:
    """A transaction id of a client in one of its terms; the client must not use a number twice in one second."""
    second = now_ms // 1000 & 0xFFFF_FFFF
    return _text(second << _NUMBER_BITS | number & (1 << _NUMBER_BITS) - 1, term, int(client, 16))


def new_plan_id(now_ms: int) -> str:
    """The transaction id of a plan's first attempt."""
    return _text(secrets.randbits(60), 0, now_ms // 1000 & (1 << _SECOND_BITS) - 1)


def made_ms(transaction_id: str) -> int | None:
    """When an id was made by its maker's clock, in milliseconds since 1970; None for an id of another form."""
    if not _ID.fullmatch(transaction_id):
        return None
    number = uuid.UUID(transaction_id).int
    client = number & _NODE
    return (client if _is_plan(client) else number >> 96) * 1000


def another_id(transaction_id: str) -> str:
    """Another id with the same owner, for filing the same files again after a refusal.

    A plan's attempts are counted, so a second commit of the same plan tries the same ids.
    """
    owner = owner_of(transaction_id)
    if owner is None:
        return str(uuid.uuid4())
    if owner.is_client:
        return new_id(owner.name, term_of(transaction_id), secrets.randbits(_NUMBER_BITS), made_ms(transaction_id) or 0)
    number = uuid.UUID(transaction_id).int
    attempt = (number + (1 << _CLIENT_BITS)) & _COUNT
    return str(uuid.UUID(int=number & ~_COUNT | attempt))


def owner_of(transaction_id: str) -> Owner | None:
    """The owner of a transaction; None for an id of another form."""
    if not _ID.fullmatch(transaction_id):
        return None
    number = uuid.UUID(transaction_id).int
    client = number & _NODE
    if not _is_plan(client):
        return Owner(f"{CLIENTS}/{client:012x}")
    plan = (number >> 80) << 12 | (number >> 64) & 0xFFF
    return Owner(f"{OPEN}/{plan:015x}")


def term_of(transaction_id: str) -> int:
    """The client's term in which an id was made."""
    return (uuid.UUID(transaction_id).int & _COUNT) >> _CLIENT_BITS


def id_in(key: str) -> str | None:
    """The first transaction id in an object's key; None if there is none of this form."""
    found = _ID.search(key)
    return None if found is None else found[0]


def _is_plan(client: int) -> bool:
    return client >> _SECOND_BITS == 0


def _text(first: int, count: int, client: int) -> str:
    """An id from its first 60 bits, the 14 counting bits and the last 48."""
    free = first >> 12 << 80 | (first & 0xFFF) << 64
    return str(uuid.UUID(int=free | _VERSION | _VARIANT | min(count, TERM_MAX) << _CLIENT_BITS | client))
