"""Where a stream is in a table: which files it has read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ....storage.dataclass import dataclass
from ....storage.errors import InvalidRequest

__all__ = ["StreamOffset"]

_FORMAT: Final = 1
_KEYS: Final = ("table", "version", "index", "first")


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """All rows before this point were read: the versions before `version`, and the first `index` files of that one.

    In the `first` snapshot the files are those that the version shows; later they are those that it added. `table` is the table's id.
    Offsets of one stream are in order as (version, index).
    """

    table: str
    version: int
    index: int = 0
    first: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """For comparing the offsets of one stream."""
        return self.version, self.index

    def after(self, read: int, of: int, following: int) -> StreamOffset:
        """The offset when the first `read` of the version's `of` files are read; after the last one `following` is next."""
        return StreamOffset(self.table, following) if read >= of else StreamOffset(self.table, self.version, read, self.first)

    def to_json(self) -> dict[str, Any]:
        """The form in which a checkpoint keeps it."""
        return {"format": _FORMAT, "table": self.table, "version": self.version, "index": self.index, "first": self.first}

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
        offset = StreamOffset(*(value.get(key) for key in _KEYS))  # type: ignore[arg-type]
        kinds = str, int, int, bool
        if number != _FORMAT or any(type(getattr(offset, key)) is not kind for key, kind in zip(_KEYS, kinds, strict=True)):
            raise InvalidRequest(
                f"the stream's checkpoint has the offset {dict(value)!r}, which is none of sluice's: another source wrote it; use a new "
                "checkpoint, and startingVersion to begin where that stream ended"
            )
        return offset
