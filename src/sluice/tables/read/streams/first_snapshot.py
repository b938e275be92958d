"""The files of the version with which a stream begins, in a fixed order. Pure.

By default in the order in which they were written. In the order of an event time, a batch is a range of times instead: the files are
sorted by their least time, and the offset after `n` of them means that all rows before the least time of file `n` were read, in
whichever files they are. So a watermark never passes rows of the snapshot that are still to come.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ....storage.actions.filetable import rows_at
from ....storage.errors import InvalidRequest
from ....storage.expressions.nodes import Column
from ....storage.pruning.files import LOW, Files
from ....storage.pruning.predicate import Predicate
from ....storage.schema.schema import StructType, to_arrow

__all__ = ["FirstSnapshot"]

_TIMES: Final = ("timestamp", "timestamp_ntz", "date")


class FirstSnapshot:
    """A snapshot's files in order, and which rows of them lie between two indices."""

    def __init__(self, files: pa.Table, struct: StructType, partition_columns: tuple[str, ...], event_time: str | None) -> None:
        """Raises InvalidRequest if `event_time` names no column with times."""
        self._struct = struct
        self._column = None if event_time is None else _time_column(struct, partition_columns, event_time)
        self.ends: tuple[int, ...] | None = None
        """The indices at which a batch may end; None: at each."""
        least = self._bounds(files)
        keys = pa.table({"told": least.is_valid(), "least": least, "written": files["modification_time"], "path": files["path"]})
        places = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        self.files: pa.Table = rows_at(files, places.to_pylist())
        """All files."""
        self._least: list[Any] = keys["least"].take(places).to_pylist()
        if self._column is not None:
            starts = (n for n in range(1, len(self._least)) if self._least[n] != self._least[n - 1])
            self.ends = tuple(dict.fromkeys((0, *starts, len(self._least))))

    def _bounds(self, files: pa.Table) -> pa.Array:
        """The least time of each file; null if its statistics do not tell it."""
        if self._column is None:
            return pa.nulls(files.num_rows, pa.int64())
        wanted = Column((LOW, self._column), to_arrow(self._struct).field(self._column).type)
        return Files.of_table(files).columns([wanted], {})(wanted)

    def rows_between(self, start: int, stop: int) -> Predicate | None:
        """The condition on the rows that a batch from file `start` to file `stop` reads, of all files; None: all rows of these files."""
        if self._column is None:
            return None
        since = [("GreaterThanOrEqual", (self._column,), self._least[start])] if start > 0 else []
        before = [("LessThan", (self._column,), self._least[stop])] if stop < len(self._least) else []
        if not since and not before:
            return None
        inside = Predicate.from_filters([*since, *before], self._struct)
        # rows without a time come first
        return inside if since else inside.or_(Predicate.from_filters([("IsNull", (self._column,), None)], self._struct))


def _time_column(struct: StructType, partition_columns: tuple[str, ...], name: str) -> str:
    """The column's name as the table spells it. Raises InvalidRequest."""
    field = struct.get(name)
    times = [each.name for each in struct.fields if str(each.type) in _TIMES and each.name not in partition_columns]
    if field is None or field.name not in times:
        raise InvalidRequest(
            f"eventTimeColumn is {name!r}, and the snapshot is read in the order of a timestamp or date that is no partition column; "
            f"the table has {', '.join(times) or 'none'}",
            option="eventTimeColumn",
        )
    return field.name
