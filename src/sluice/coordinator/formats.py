"""Format numbers, by which two releases of sluice know what they understand of each other's nodes.

`docs/operations/upgrades.md` says which change raises which number, and what a release does that meets a higher one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..storage.dataclass import dataclass
from ..version import ENGINE
from .errors import UnknownFormat
from .fields import MalformedRecord, typed

__all__ = [
    "BATCH_FORMAT",
    "HEAD_FORMAT",
    "INTENT_FORMAT",
    "NODE_PROTOCOL",
    "PUBLISHED_FORMAT",
    "RENDERING",
    "Release",
    "require_format",
    "require_number",
]

NODE_PROTOCOL: Final = 5
"""The node protocol: which nodes a table has, and who may write which of them when. Clients of another number do nothing."""
HEAD_FORMAT: Final = 1
"""The highest format of `records.Head` that this release reads, and the one it writes."""
PUBLISHED_FORMAT: Final = 1
"""Likewise for `records.Published`."""
INTENT_FORMAT: Final = 1
"""Likewise for `records.Intent`, including its footprint."""
BATCH_FORMAT: Final = 1
"""Likewise for `records.BatchRecord` and its contents, except the intent of a transaction without a slot."""
RENDERING: Final = 1
"""The highest rendering that this release reads, and the one it writes: how a plan and its transactions become a version's bytes."""


@dataclass(frozen=True, slots=True)
class Release:
    """How a client signs and renders versions, and the highest rendering it understands."""

    engine: str = ENGINE
    rendering: int = RENDERING


def require_format(fields: Mapping[str, Any], known: int, kind: str) -> None:
    """Check the number of a record's format. Raises MalformedRecord for an invalid number, UnknownFormat for one above `known`."""
    require_number(fields.get("format"), known, f"{kind}.format")


def require_number(value: object, known: int, what: str) -> int:
    """The number of a format or rendering that this release knows. Raises the same as `require_format`."""
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
