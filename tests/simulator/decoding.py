"""The same bytes are decoded once in a run: every client reads every file, and what Parquet makes of its bytes is always the same.

What is kept belongs to the bytes themselves, whatever their key: a file that is replaced is another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.storage.actions import Action
from sluice.storage.data import scan
from sluice.storage.log.checkpoint_part import CheckpointPart, FileColumn

from .scheduler import current

_KEPT_MAX = 512
_T = TypeVar("_T")
_parquet = scan._parquet
_actions = CheckpointPart.actions
_files = CheckpointPart.files


class _Kept:
    """The last things that were made, by what they were made of."""

    def __init__(self) -> None:
        self._made: OrderedDict[Any, Any] = OrderedDict()

    def of(self, key: Any, make: Callable[[], _T]) -> _T:
        """What was made of it before, or now."""
        if key in self._made:
            self._made.move_to_end(key)
        else:
            self._made[key] = make()
            if len(self._made) > _KEPT_MAX:
                self._made.popitem(last=False)
        made: _T = self._made[key]
        return made


class _DecodedFile(pq.ParquetFile):  # type: ignore[misc]
    """A file whose columns stay decoded."""

    def __init__(self, buffer: pa.Buffer) -> None:
        super().__init__(pa.BufferReader(buffer), coerce_int96_timestamp_unit="us", pre_buffer=False)
        self._tables: dict[tuple[str, ...], pa.Table] = {}

    def read(self, columns: Sequence[str] | None = None, use_threads: bool = False, use_pandas_metadata: bool = False) -> pa.Table:
        assert columns is not None
        names = tuple(columns)
        if names not in self._tables:
            self._tables[names] = super().read(list(names), use_threads=use_threads, use_pandas_metadata=use_pandas_metadata)
        return self._tables[names]


@contextmanager
def decoded_once() -> Iterator[None]:
    """Decode Parquet files of simulated threads once each."""
    files, checkpoints = _Kept(), _Kept()

    def parquet(source: pa.NativeFile) -> pq.ParquetFile:
        if current() is None or not isinstance(source, pa.BufferReader):
            return _parquet(source)
        whole = source.read_buffer()
        # The buffer is kept, so nothing else can come to lie where it is.
        return files.of((whole.address, whole.size), lambda: _DecodedFile(whole))

    def actions(part: CheckpointPart) -> list[Action]:
        kept = current() is not None and part.content is not None
        return checkpoints.of((part.content, None), lambda: _actions(part)) if kept else _actions(part)

    def rows(part: CheckpointPart, column: FileColumn) -> list[pa.RecordBatch]:
        kept = current() is not None and part.content is not None
        return checkpoints.of((part.content, column), lambda: _files(part, column)) if kept else _files(part, column)

    with (
        patch.object(scan, "_parquet", parquet),
        patch.object(CheckpointPart, "actions", actions),
        patch.object(CheckpointPart, "files", rows),
    ):
        yield
