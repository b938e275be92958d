"""Durations in Delta's table properties: `interval 1 week`, `7 days`, `interval 1 day 12 hours`; and times as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Final

from .errors import InvalidRequest

_NANOSECONDS: Final[Mapping[str, int]] = {
    "nanosecond": 1,
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": 1_000_000_000,
    "minute": 60 * 1_000_000_000,
    "hour": 3600 * 1_000_000_000,
    "day": 24 * 3600 * 1_000_000_000,
    "week": 7 * 24 * 3600 * 1_000_000_000,
}
_TERM: Final = rf"\d{{1,15}}\s+(?:{'|'.join(_NANOSECONDS)})s?"
_INTERVAL: Final = re.compile(rf"\s*(?:interval\s+)?({_TERM}(?:\s+{_TERM})*)\s*", re.IGNORECASE)


def interval_ms(text: str, *, name: str) -> int:
    """The milliseconds of a duration, which has no months or years: they vary. Raises InvalidRequest, which names the property `name`."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"{name} is {text!r}, which is not a duration; write it like 'interval 7 days', with units from weeks to nanoseconds",
            property=name,
            value=text,
        )
    words = match[1].lower().split()
    total = sum(int(number) * _NANOSECONDS[unit.removesuffix("s")] for number, unit in zip(words[::2], words[1::2], strict=True))
    return total // 1_000_000


def iso_time(timestamp_ms: int) -> str:
    """A time as people read it; the plain number where the calendar ends."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, tz=timezone.utc).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
