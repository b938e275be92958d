"""The tables of a transaction over several, as its slots name them.

One multi makes the slots, and each names the same tables. So the slots of two such transactions have the same order in all
tables they share, and a client that meets one slot can find the others.
"""

from __future__ import annotations

from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.stores.location import SCHEMES, normalise
from ...storage.stores.objects import check_key
from ..fields import MalformedRecord

__all__ = ["TABLES_MAX", "Joint", "JointTable"]

TABLES_MAX: Final = 64
"""Tables of one transaction: their intents, and later their verdicts, have to fit into one request."""


@dataclass(frozen=True, slots=True, order=True)
class JointTable:
    """One table: its normalised location, and the generation in which its slot was made."""

    location: str
    generation: int

    def __post_init__(self) -> None:
        """Raises MalformedRecord for what is no place of a table."""
        if not _is_place(self.location) or self.generation < 0:
            what = f"{self.location!r}, generation {self.generation}"
            raise MalformedRecord(f"intent.joint names {what}, which is not a place of a table", kind="intent")


@dataclass(frozen=True, slots=True)
class Joint:
    """The tables of a transaction over several, ordered by location; at least two, each once."""

    tables: tuple[JointTable, ...]

    def __post_init__(self) -> None:
        """Raises MalformedRecord for a list that no correct client makes."""
        locations = list(self.locations)
        if locations != sorted(set(locations)) or not 2 <= len(locations) <= TABLES_MAX:
            raise MalformedRecord(f"intent.joint.tables names {locations}: 2 to {TABLES_MAX} tables in order, each once", kind="intent")

    @property
    def locations(self) -> tuple[str, ...]:
        """The tables' locations, in order."""
        return tuple(each.location for each in self.tables)


def _is_place(location: str) -> bool:
    """Whether it may be a table's location, decided without I/O: a path of this machine may be a link elsewhere."""
    scheme, separator, rest = location.partition("://")
    if not separator or scheme not in SCHEMES or not location.isprintable():
        return False
    try:
        return rest.startswith("/") and bool(check_key(rest[1:])) if scheme == "file" else normalise(location) == location
    except InvalidRequest:
        return False
