"""The two streams of the S3 store: a sink that uploads large content in parts, and a source that reads by ranges.

Below them: the listing of multipart uploads that were begun, but neither completed nor aborted.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from .objects import Unfinished

if TYPE_CHECKING:
    from typing_extensions import Buffer

PART_BYTES = 8 << 20
"""The size of a part; the smallest that S3 allows is 5 MiB."""

_PARTS_PER_SIZE = 1000
"""S3 allows 10,000 parts: after this many, parts grow by PART_BYTES, which lets an object reach 440 GB."""

_PARTS_AT_ONCE = 4
TAIL_BYTES = 512 << 10
"""How much of the end is fetched when opening: all of a small object, or the footer of a Parquet file."""

READ_AHEAD_BYTES = 1 << 20


class Upload(Protocol):
    """Writes one object, whole or in parts."""

    def put(self, data: bytes) -> None:
        """Write the whole object at once."""
        ...

    def begin(self) -> str:
        """Begin an upload in parts; returns its id."""
        ...

    def part(self, upload_id: str, number: int, data: bytes) -> str:
        """Upload part `number` (from 1); returns its ETag."""
        ...

    def complete(self, upload_id: str, etags: list[str], size: int) -> None:
        """Make the parts the object, `size` bytes long."""
        ...

    def abort(self, upload_id: str) -> None:
        """Discard the parts."""
        ...


class MultipartSink(io.RawIOBase):
    """Collects writes; beyond one part it uploads parts in the background, a few at once, in bounded memory.

    Closing it decides nothing: `finish` makes the object, `abort` leaves nothing behind.
    """

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self._buffer = bytearray()
        self._size = 0
        self._upload_id: str | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._parts: list[Future[str]] = []
        self._in_flight: deque[Future[str]] = deque()
        self._aborted = False

    def writable(self) -> bool:
        """True."""
        return True

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
        if self._pool is None or self._upload_id is None:
            self._upload_id = self._upload.begin()
            self._pool = ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="sluice-upload")
        while len(self._in_flight) >= _PARTS_AT_ONCE:
            self._in_flight.popleft().result()
        future = self._pool.submit(self._upload.part, self._upload_id, len(self._parts) + 1, data)
        self._parts.append(future)
        self._in_flight.append(future)

    def finish(self) -> None:
        """Make the object."""
        if self._pool is None or self._upload_id is None:
            self._upload.put(bytes(self._buffer))
            return
        if self._buffer:
            self._send(bytes(self._buffer))
        self._upload.complete(self._upload_id, [part.result() for part in self._parts], self._size)
        self._pool.shutdown()

    def abort(self) -> None:
        """Discard everything; waits for parts in flight, since one that arrives later would stay for good."""
        self._aborted = True
        self._buffer.clear()
        if self._pool is not None and self._upload_id is not None:
            self._pool.shutdown(cancel_futures=True)
            wait([part for part in self._parts if not part.cancelled()])
            self._upload.abort(self._upload_id)


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
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position, in bytes from the start."""
        return self._position

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

    def readall(self) -> bytes:
        """The rest of the object."""
        return self.read()

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


def unfinished_uploads(page: Callable[..., dict[str, Any]], root: str) -> Iterator[Unfinished]:
    """The uploads below `root`; `page` lists them as S3's ListMultipartUploads does."""
    parameters: dict[str, Any] = {"Prefix": root}
    while True:
        listed = page(**parameters)
        for found in listed.get("Uploads", ()):
            yield Unfinished(str(found["Key"])[len(root) :], str(found["UploadId"]), milliseconds(found["Initiated"]))
        if not listed.get("IsTruncated"):
            return
        parameters |= {"KeyMarker": listed["NextKeyMarker"], "UploadIdMarker": listed["NextUploadIdMarker"]}


def milliseconds(moment: datetime) -> int:
    """A time from S3 in ms since the epoch."""
    return round(moment.timestamp() * 1000)


def just_before(key: str) -> str:
    """A key just below `key`, with almost nothing in between: S3 lists keys *after* a given one, but callers want `key`, too."""
    last = key[-1]
    return key[:-1] + (chr(ord(last) - 1) + "~" if " " < last <= "~" else "")
