"""The place of a stream in a table, and the rules that the stream was begun with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ....storage.dataclass import dataclass
from ....storage.errors import InvalidRequest, VersionNotFound
from ....storage.times import text_of

_FORMAT: Final = 1
_KEYS: Final = ("table", "version", "index", "first")


@dataclass(frozen=True, slots=True)
class StreamRules:
    """The choices of one stream; `changes`: it reads what versions inserted and deleted, not only new rows."""

    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    exclude: re.Pattern[str] | None = None
    changes: bool = False
    fail_on_data_loss: bool = True
    event_time: str | None = None
    """The column by whose values the first snapshot is read in order."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum files of a batch, and the bytes after which it takes no further file; None: no limit."""

    files: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where a new stream begins: at a version, at a time (ms since the epoch), after the latest version, or with a first snapshot."""

    version: int | None = None
    timestamp_ms: int | None = None
    latest: bool = False

    def require_begun(self, location: str, latest: int, now_ms: int) -> None:
        """Raise VersionNotFound if no stream of the table can begin there yet."""
        if self.version is not None and self.version > latest + 1:
            raise VersionNotFound(
                f"startingVersion is {self.version}, and the latest version of {location} is {latest}; give a version up to that, or "
                "latest for those to come",
                version=self.version,
                latest=latest,
            )
        if self.timestamp_ms is not None and self.timestamp_ms > now_ms:
            raise VersionNotFound(
                f"startingTimestamp is {text_of(self.timestamp_ms)}, and it is {text_of(now_ms)} now; give an earlier time, or "
                "startingVersion=latest for the versions to come",
                timestamp_ms=self.timestamp_ms,
            )


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """All rows before this point were read: the versions before `version`, and the first `index` files of that one.

    In the `first` snapshot the files are those that the version shows; later they are those that it added. `table` is the table's id.
    `origin` is where the stream began, as (version, first): Spark keeps where a batch ends, and not where the first one begins, so a
    query that died in its first batch would begin again elsewhere. Offsets of one stream are in order as (version, index).
    `changes`: the stream reads changes, whose files are others. `order`: the column of times in whose order the first snapshot is read,
    in small letters, or "" for the order in which its files were written. Both are None in what former releases wrote.
    """

    table: str
    version: int
    index: int = 0
    first: bool = False
    origin: tuple[int, bool] = (0, False)
    changes: bool | None = None
    order: str | None = None

    @staticmethod
    def beginning(table: str, version: int, *, first: bool = False, changes: bool | None = None, order: str | None = None) -> StreamOffset:
        """Where a stream begins that has read nothing."""
        return StreamOffset(table, version, 0, first, (version, first), changes, order)

    def since(self, end: StreamOffset) -> StreamOffset:
        """Where the batch begins that ends at `end`, if this is its beginning or, for a stream's first batch, any other one's."""
        if self.origin == end.origin:
            return self
        return StreamOffset.beginning(end.table, end.origin[0], first=end.origin[1], changes=end.changes, order=end.order)

    @property
    def place(self) -> tuple[int, int]:
        """For comparing the offsets of one stream."""
        return self.version, self.index

    def to_json(self) -> dict[str, Any]:
        """The form in which a checkpoint keeps it."""
        origin = {"originVersion": self.origin[0], "originFirst": self.origin[1]}
        later = {key: value for key, value in (("changes", self.changes), ("order", self.order)) if value is not None}
        return {"format": _FORMAT, **{key: getattr(self, key) for key in _KEYS}, **origin, **later}

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> StreamOffset:
        """From a checkpoint. Raises InvalidRequest for what another release, or another source, wrote there."""
        number = value.get("format")
        if type(number) is int and number > _FORMAT:
            raise InvalidRequest(
                f"the stream's checkpoint has an offset of format {number}, which a newer release of sluice wrote; this one reads up to "
                f"{_FORMAT}: use that release, or a new checkpoint",
                format=number,
            )
        found = tuple(value.get(key) for key in (*_KEYS, "originVersion", "originFirst"))
        if number != _FORMAT or tuple(map(type, found)) != (str, int, int, bool, int, bool):
            raise InvalidRequest(
                f"the stream's checkpoint has the offset {dict(value)!r}, which another source wrote, not sluice; use a new "
                "checkpoint, and startingVersion to begin where that stream ended"
            )
        table, version, index, first, *origin = found
        later = value.get("changes"), value.get("order")
        return StreamOffset(table, version, index, first, (origin[0], origin[1]), *later)  # type: ignore[arg-type]


def another_table(location: str, expected: str, found: str) -> InvalidRequest:
    """The error for a stream whose table was replaced by another one at the same location."""
    return InvalidRequest(
        f"the stream read the table with the id {expected} at {location}, and the one that is there now has the id {found}: another table "
        "took its place; start the query with a new checkpoint to read that one",
        location=location,
        expected=expected,
        found=found,
    )
