"""Data skipping for one file at a time, in plain Python: for a decision about a few files, where making Arrow arrays would take longest.

The answers are those of `skipping`, which says what they mean; a file is described by its partition values and the text of its
statistics. Where something cannot be read or evaluated, every answer is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from ..errors import Corrupt
from ..expressions.nodes import And, Node, columns
from ..expressions.scalars import Plain, Row, of_arrow
from ..schema.partitions import decode_column
from ..schema.schema import PrimitiveType, StructType
from .file_answers import MAY_BE_TRUE, AnswerMaker
from .file_bounds import Body, day_of, read_body
from .skipping import numbers_in

__all__ = ["FileCheck", "FileFacts"]

_PLACES: Final = 4096
_DIGITS_OF_EVERY_INTEGER: Final = 10


class FileFacts:
    """What the log says of a file; its statistics are read when they are asked for."""

    __slots__ = ("_body", "_stats", "partition_values")

    def __init__(self, partition_values: Mapping[str, str | None], stats: str | None) -> None:
        self.partition_values = partition_values
        self._stats = stats
        self._body: Body | None = None

    @property
    def body(self) -> Body:
        """The statistics; empty where there are none."""
        if self._body is None:
            self._body = read_body(self._stats)
        return self._body


class FileCheck:
    """A condition, made ready to be asked about one file after the other. The second file of a partition costs less than the first."""

    __slots__ = ("_by_stats", "_by_values", "_decoders", "_names", "_rows")

    def __init__(self, root: Node, schema: StructType, partition_columns: Sequence[str]) -> None:
        read = {path[0] for path in columns(root)}
        fields = [(name, schema.get(name)) for name in partition_columns]
        kinds = {f.name: f.type for name, f in fields if f is not None and f.name in read and isinstance(f.type, PrimitiveType)}
        self._names = tuple(kinds)
        self._decoders = tuple(kinds.values())
        terms = root.terms if isinstance(root, And) else (root,)
        by_values = [term for term in terms if all(path[0] in kinds for path in columns(term))]
        by_stats = [term for term in terms if any(path[0] not in kinds for path in columns(term))]
        maker = AnswerMaker(self._names, numbers_in(by_stats))
        self._by_values = [maker.answers(term) for term in by_values]
        self._by_stats = [maker.could_hold(term) for term in by_stats]
        self._rows: dict[tuple[str | None, ...], Row | bool] = {}

    def may_match(self, file: FileFacts) -> bool:
        """False when no row of the file can satisfy the condition."""
        texts = tuple(map(file.partition_values.get, self._names))
        row = self._rows.get(texts)
        if row is None:
            row = self._rows[texts] = self._row(texts)
        if isinstance(row, bool):
            return row
        body = file.body
        for could_hold in self._by_stats:  # noqa: SIM110 - this loop is the cost of a decision, and a generator would add to it
            if not could_hold(row, body):
                return False
        return True

    def _row(self, texts: tuple[str | None, ...]) -> Row | bool:
        """The values of a partition; or false when they alone say that no row matches, true when nothing more can be said."""
        if len(self._rows) >= _PLACES:
            self._rows.clear()
        try:
            row = tuple(map(_decoded, texts, self._decoders))
        except Corrupt:
            return True
        if not all(answers(row, {}) & MAY_BE_TRUE for answers in self._by_values):
            return False
        return row if self._by_stats else True


@lru_cache(maxsize=_PLACES)
def _decoded(text: str | None, dtype: PrimitiveType) -> Plain:
    """The plain value behind the text of a partition value. Raises Corrupt when it is none of the type."""
    if not text or dtype.name == "string":
        return text or None
    if dtype.name in ("integer", "long") and len(text) < _DIGITS_OF_EVERY_INTEGER and text.isascii() and text.isdigit():
        return int(text)
    if dtype.name == "date":
        try:
            return day_of(text)
        except ValueError:
            return _decoded_by_arrow(text, dtype)  # it says what is wrong
    return _decoded_by_arrow(text, dtype)


def _decoded_by_arrow(text: str, dtype: PrimitiveType) -> Plain:
    return of_arrow(decode_column(pa.array([text], pa.string()), dtype))
