"""Format numbers, by which two releases of sluice know what they understand of each other's nodes.

`docs/operations/upgrades.md` says which change raises which number, and what a release does that meets a higher one.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

import orjson

from ..storage.dataclass import dataclass
from ..version import ENGINE
from .errors import UnknownFormat
from .fields import MalformedRecord, decoded, load, typed

NODE_PROTOCOL: Final = 5
"""The node protocol: which nodes a table has, and who may write which of them when. Clients of another number do nothing."""
HEAD_FORMAT: Final = 1
"""The highest format of `records.Head` that this release reads, and the one it writes."""
PUBLISHED_FORMAT: Final = 1
"""Likewise for `records.Published`."""
INTENT_FORMAT: Final = 1
"""Likewise for `records.Intent`, including what it declares to have read."""
BATCH_FORMAT: Final = 1
"""Likewise for `records.BatchRecord` and its contents, except the intent of a transaction without a slot."""
CATALOG_FORMAT: Final = 1
"""Likewise for the records of names: the catalog's, its namespaces', names and dropped tables."""
CONSUMER_FORMAT: Final = 1
"""Likewise for the positions of consumers."""
RENDERING: Final = 2
"""The highest rendering that this release reads, and the one it writes: how a plan and its transactions become a version's bytes.

1: removed files have the time at which their writer removed them, by its own clock. 2: they have their version's time.
"""


@dataclass(frozen=True, slots=True)
class Release:
    """How a client signs and renders versions, and the highest rendering it understands."""

    engine: str = ENGINE
    rendering: int = RENDERING


_R = TypeVar("_R", bound="Record")


class Record:
    """The contents of a node as JSON: a dataclass with a field `format`. `KIND` is its name in errors, `FORMAT` the highest it knows.

    One that is `CHANGED` in its node has the number of the release that reads it, which writes it again.
    """

    __slots__ = ()
    KIND: ClassVar[str]
    FORMAT: ClassVar[int]
    CHANGED: ClassVar = False

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @classmethod
    def decode(cls: type[_R], data: bytes) -> _R:  # noqa: PYI019 - typing.Self came with Python 3.11
        """From JSON, which has exactly its fields. Raises MalformedRecord, and UnknownFormat for a number above `FORMAT`."""
        fields = load(data, cls.KIND)
        require_number(fields.get("format"), cls.FORMAT, f"{cls.KIND}.format")
        return decoded(cls, {**fields, "format": cls.FORMAT} if cls.CHANGED else fields, cls.KIND)


def require_number(value: object, known: int, what: str) -> int:
    """The number of a format or rendering. Raises MalformedRecord for an invalid one, UnknownFormat for one above `known`."""
    number = typed(value, int, what)
    if number < 1:
        raise MalformedRecord(f"{what} is {number}; the first one is 1", kind=what)
    # check: unknown-formats-wait (known -> known + 1_000_000)
    if number > known:
        raise UnknownFormat(
            f"{what} is {number}, this release of sluice knows up to {known}: a client of the newer release that wrote it must continue",
            found=number,
            expected=known,
        )
    return number
