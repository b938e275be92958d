"""Times and durations: milliseconds inside, those of times since 1970 (UTC); what people write and read outside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Final, TypeAlias

from .errors import InvalidRequest

Moment: TypeAlias = "int | datetime | str"
"""A time as a caller gives it: milliseconds since 1970, a `datetime`, or ISO 8601 text. One without a zone is in UTC."""
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


def milliseconds_of(moment: Moment, *, name: str = "timestamp") -> int:
    """The milliseconds since 1970 of a moment; a fraction of one is dropped. Raises InvalidRequest for what is no time."""
    if type(moment) is int:
        return moment
    try:
        time = datetime.fromisoformat(moment.strip().replace("Z", "+00:00")) if isinstance(moment, str) else moment
    except ValueError:
        time = None
    if not isinstance(time, datetime):
        raise InvalidRequest(
            f"{name} {moment!r} is not a time: give a datetime, ISO 8601 text such as '2026-01-31 13:00:00+00:00', or milliseconds since "
            "1970",
            **{name: moment},
        )
    since = (time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def time_of(milliseconds: int) -> datetime:
    """The time in UTC of milliseconds since 1970. Raises OverflowError for one beyond the year 9999."""
    return datetime.fromtimestamp(milliseconds // 1000, timezone.utc).replace(microsecond=milliseconds % 1000 * 1000)


def text_of(milliseconds: int) -> str:
    """Milliseconds since 1970 as "2013-01-01T00:00:00.000Z"; as a number if the year does not have four digits."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def interval_ms(text: str, *, name: str) -> int:
    """The milliseconds of a duration such as `interval 1 week`, `7 days` or `interval 1 day 12 hours`.

    It has no months or years: they vary. Raises InvalidRequest, which names the property `name`.
    """
    if (match := _INTERVAL.fullmatch(text)) is None:
        raise InvalidRequest(
            f"{name} is {text!r}, which is not a duration; write it like 'interval 7 days', with units from weeks to nanoseconds",
            property=name,
            value=text,
        )
    words = match[1].lower().split()
    total = sum(int(number) * _NANOSECONDS[unit.removesuffix("s")] for number, unit in zip(words[::2], words[1::2], strict=True))
    return total // 1_000_000
