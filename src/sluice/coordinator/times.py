"""Times for people."""

from __future__ import annotations

from datetime import datetime, timezone


def text_of(milliseconds: int) -> str:
    """Milliseconds since 1970 as "2013-01-01T00:00:00.000Z"; as a number if the year does not have four digits."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
