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

from sluice.storage import checkpoint, scan_file
from sluice.storage.checkpoint import _Content
from sluice.storage.objects import ObjectStore

from .scheduler import current

__all__ = ["decoded_once"]

_KEPT_MAX = 512
_T = TypeVar("_T")
_parquet = scan_file._parquet
_read_parquet = checkpoint._read_parquet


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
        """These columns of all rows."""
        assert columns is not None
        names = tuple(columns)
        if names not in self._tables:
            self._tables[names] = super().read(list(names), use_threads=use_threads, use_pandas_metadata=use_pandas_metadata)
        return self._tables[names]


class _Holding:
    """The one object of a store."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get(self, _key: str) -> bytes:
        """Its bytes."""
        return self._data


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

    def read_parquet(store: ObjectStore, key: str, size: int, content: _Content, with_files: bool) -> None:
        if current() is None or size > checkpoint._WHOLE_BYTES:
            _read_parquet(store, key, size, content, with_files)
            return
        data = store.get(key)

        def read() -> _Content:
            found = _Content()
            _read_parquet(_Holding(data), key, size, found, with_files)  # type: ignore[arg-type]
            return found

        found = checkpoints.of((data, with_files), read)
        content.files += found.files
        content.tombstones += found.tombstones
        content.actions += found.actions

    with patch.object(scan_file, "_parquet", parquet), patch.object(checkpoint, "_read_parquet", read_parquet):
        yield
