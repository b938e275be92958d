"""Streams of object stores: sinks that upload large content in parts, a source that reads by ranges, and streams as Arrow takes them."""

from __future__ import annotations

import io
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from ..errors import InvalidRequest, ObjectNotFound, SluiceError
from .objects import ObjectInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger(__name__)

PART_BYTES = 8 << 20
"""The size of a part; the smallest that S3 allows is 5 MiB."""

_PARTS_PER_SIZE = 1000
"""S3 allows 10,000 parts: after this many, parts grow by PART_BYTES, which lets an object reach 440 GB."""

_PARTS_AT_ONCE = 4
_BUFFER_BYTES = 64 << 10
TAIL_BYTES = 512 << 10
"""How much of the end is fetched when opening: all of a small object, or the footer of a Parquet file."""

READ_AHEAD_BYTES = 1 << 20


class Sink(io.RawIOBase):
    """Takes the content of one object. Closing it decides nothing: `finish` makes the object, `abort` leaves nothing behind."""

    def writable(self) -> bool:
        return True

    def finish(self) -> None:
        """Make the object."""
        raise NotImplementedError

    def abort(self) -> None:
        """Discard everything."""
        raise NotImplementedError


@contextmanager
def finished(sink: Sink) -> Iterator[BinaryIO]:
    """A stream whose content becomes the object when the block ends without an exception."""
    stream = io.BufferedWriter(sink, _BUFFER_BYTES)
    try:
        yield stream
        stream.close()
        sink.finish()
    except BaseException:
        sink.abort()
        stream.close()
        raise


class MultipartSink(Sink):
    """Collects writes; beyond one part it uploads parts to S3 in the background, a few at once, in bounded memory."""

    def __init__(self, uri: str, call: Callable[..., dict[str, Any]], put: Callable[[bytes], None], head: Callable[[], ObjectInfo]) -> None:
        """`call` sends a request of S3 for the object, which is `uri` in messages; `put` writes it whole, `head` says what is there."""
        self._uri = uri
        self._call = call
        self._put = put
        self._head = head
        self._buffer = bytearray()
        self._size = 0
        self._upload_id: str | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._parts: list[Future[str]] = []
        self._in_flight: deque[Future[str]] = deque()
        self._aborted = False

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`; raises the error of an earlier part's upload."""
        view = memoryview(data).cast("B")
        if not self._aborted:
            self._buffer += view
            self._size += len(view)
            while len(self._buffer) > (part_bytes := PART_BYTES * (1 + len(self._parts) // _PARTS_PER_SIZE)):
                self._send(bytes(self._buffer[:part_bytes]))
                del self._buffer[:part_bytes]
        return len(view)

    def _send(self, data: bytes) -> None:
        if self._pool is None:
            self._upload_id = str(self._call("create_multipart_upload")["UploadId"])
            self._pool = ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="sluice-upload")
        while len(self._in_flight) >= _PARTS_AT_ONCE:
            self._in_flight.popleft().result()
        future = self._pool.submit(self._upload_part, len(self._parts) + 1, data)
        self._parts.append(future)
        self._in_flight.append(future)

    def _upload_part(self, number: int, data: bytes) -> str:
        return str(self._call("upload_part", UploadId=self._upload_id, PartNumber=number, Body=data)["ETag"])

    def finish(self) -> None:
        """Make the object."""
        if self._pool is None:
            self._put(bytes(self._buffer))
            return
        if self._buffer:
            self._send(bytes(self._buffer))
        parts = [{"ETag": part.result(), "PartNumber": number} for number, part in enumerate(self._parts, 1)]
        try:
            self._call("complete_multipart_upload", UploadId=self._upload_id, MultipartUpload={"Parts": parts})
        except InvalidRequest as error:
            # the reply to an earlier try was lost: the upload is gone because it has become the object
            if error.details.get("code") != "NoSuchUpload" or self._head().size != self._size:
                raise
        self._pool.shutdown()

    def abort(self) -> None:
        """Discard everything; waits for parts in flight, since one that arrives later would stay for good."""
        self._aborted = True
        self._buffer.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            wait([part for part in self._parts if not part.cancelled()])
            try:
                self._call("abort_multipart_upload", UploadId=self._upload_id)
            except SluiceError as error:  # the failure that led here matters more
                _log.warning("parts of %s may be left behind: %s", self._uri, error)


class RangeSource(io.RawIOBase):
    """A seekable stream over an object that is fetched by ranges.

    `fetch_tail(n)` returns up to n last bytes, the object's size, and its version ("" if the store does not tell);
    `fetch(offset, length, version)` returns a range of that version, or raises ObjectNotFound. The tail and the last range
    are kept, so reading a Parquet footer, or a small file, takes only the request of opening it.
    """

    def __init__(self, fetch_tail: Callable[[int], tuple[bytes, int, str]], fetch: Callable[[int, int, str], bytes]) -> None:
        tail, self._size, self.version = fetch_tail(TAIL_BYTES)
        self._fetch = fetch
        self._tail = (self._size - len(tail), tail)
        self._block = self._tail
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move; fetches nothing."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}: before the start")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Exactly `size` bytes unless the object ends before; the rest of it when negative or None."""
        if self.closed:
            raise ValueError("read of a closed stream")
        rest = max(self._size - self._position, 0)
        wanted = rest if size is None or size < 0 else min(size, rest)
        data = self._range(self._position, wanted) if wanted else b""
        self._position += len(data)
        return data

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill `buffer` unless the object ends before."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _range(self, start: int, length: int) -> bytes:
        for first, kept in (self._tail, self._block):
            if first <= start and start + length <= first + len(kept):
                return kept[start - first : start - first + length]
        fetched = self._fetch(start, min(max(length, READ_AHEAD_BYTES), self._size - start), self.version)
        self._block = (start, fetched)
        return fetched[:length]


def milliseconds(moment: datetime) -> int:
    """A time from S3 in ms since the epoch."""
    return round(moment.timestamp() * 1000)


def just_before(key: str) -> str:
    """A key just below `key`, with almost nothing in between: S3 lists keys *after* a given one, but callers want `key`, too."""
    last = key[-1]
    return key[:-1] + (chr(ord(last) - 1) + "~" if " " < last <= "~" else "")


def version_of(stream: BinaryIO) -> object:
    """Equal for two streams of the same version of an object; None if the store cannot tell."""
    if isinstance(stream, io.BufferedReader | io.FileIO):
        found = os.fstat(stream.fileno())
        return found.st_dev, found.st_ino, found.st_mtime_ns
    return getattr(stream, "version", None) or None


def arrow_input(stream: BinaryIO) -> pa.NativeFile:
    """The stream for Arrow: a local file is read without Python. Raises ObjectNotFound for one that was removed at this moment."""
    if isinstance(stream, io.BufferedReader | io.FileIO) and isinstance(stream.name, str):
        with stream:
            try:
                return pa.OSFile(stream.name)
            except FileNotFoundError as gone:
                raise ObjectNotFound(f"{stream.name}: there is no such object", path=stream.name) from gone
    return pa.PythonFile(stream, mode="r")
