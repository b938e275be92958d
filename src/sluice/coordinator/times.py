"""Times: milliseconds since 1970 (UTC) inside, what people write and read outside."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TypeAlias

from ..storage.errors import InvalidRequest

Moment: TypeAlias = "int | datetime | str"
"""A time as a caller gives it: milliseconds since 1970, a `datetime`, or ISO 8601 text. One without a zone is in UTC."""


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
