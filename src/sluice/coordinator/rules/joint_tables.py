"""The tables of a transaction over several, as its slots name them.

One multi makes the slots, and each names the same tables. So the slots of two such transactions have the same order in all
tables they share, and a client that meets one slot can find the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.stores.location import SCHEMES, normalise
from ...storage.stores.objects import check_key
from ..fields import MalformedRecord, typed

__all__ = ["TABLES_MAX", "Joint", "JointTable"]

TABLES_MAX: Final = 64
"""Tables of one transaction: their intents, and later their verdicts, have to fit into one request."""


@dataclass(frozen=True, slots=True, order=True)
class JointTable:
    """One table: its normalised location, and the generation in which its slot was made."""

    location: str
    generation: int


@dataclass(frozen=True, slots=True)
class Joint:
    """The tables of a transaction over several, ordered by location; at least two, each once."""

    tables: tuple[JointTable, ...]

    @staticmethod
    def of(value: object) -> Joint | None:
        """From the JSON object; None if there is none. Raises MalformedRecord for a list that no correct client makes."""
        if value is None:
            return None
        listed = typed(typed(value, dict, "intent.joint").get("tables"), list, "intent.joint.tables")
        return Joint.checked([_table(each) for each in listed])

    @staticmethod
    def checked(tables: Sequence[JointTable]) -> Joint:
        """The joint of these tables, which must be in order. Raises MalformedRecord."""
        locations = [each.location for each in tables]
        if locations != sorted(set(locations)) or not 2 <= len(locations) <= TABLES_MAX:
            raise MalformedRecord(f"intent.joint.tables names {locations}: 2 to {TABLES_MAX} tables in order, each once", kind="intent")
        return Joint(tuple(tables))

    @property
    def locations(self) -> tuple[str, ...]:
        """The tables' locations, in order."""
        return tuple(each.location for each in self.tables)


def _table(value: object) -> JointTable:
    fields = typed(value, dict, "intent.joint.tables")
    location = typed(fields.get("location"), str, "intent.joint.location")
    generation = typed(fields.get("generation"), int, "intent.joint.generation")
    if not _is_place(location) or generation < 0:
        raise MalformedRecord(f"intent.joint names {location!r}, generation {generation}, which is not a place of a table", kind="intent")
    return JointTable(location, generation)


def _is_place(location: str) -> bool:
    """Whether it may be a table's location, decided without I/O: a path of this machine may be a link elsewhere."""
    scheme, separator, rest = location.partition("://")
    if not separator or scheme not in SCHEMES or not location.isprintable():
        return False
    try:
        return rest.startswith("/") and bool(check_key(rest[1:])) if scheme == "file" else normalise(location) == location
    except InvalidRequest:
        return False
