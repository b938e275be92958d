"""Texts of the log that may be too large for memory: bytes, or a sequence of bytes and stored objects, read in pieces.

A commit that removes a million files has some 300 MB. Deciding, rendering, digesting, publishing and replaying it all work
piece by piece, line by line. Small texts, nearly all of them, are plain `bytes`.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, TypeAlias, cast

from ..dataclass import dataclass
from ..errors import BadChecksum
from ..stores.objects import ObjectStore

if TYPE_CHECKING:
    from typing_extensions import Buffer

PIECE_BYTES: Final = 8 * 1024 * 1024
"""How much of a text is in memory at once; a stored text up to this size is read as a whole."""


class Part(Protocol):
    """A part of a long text that is not in memory; may be read more than once."""

    def __len__(self) -> int:
        """Its size in bytes."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """Its bytes in order, in pieces of any size."""
        ...


@dataclass(frozen=True, slots=True)
class _Stored:
    """An object that must not change while it is read. Reading raises ObjectNotFound, and BadChecksum if it became shorter."""

    store: ObjectStore
    key: str
    size: int

    def __len__(self) -> int:
        return self.size

    def pieces(self) -> Iterator[bytes]:
        for offset in range(0, self.size, PIECE_BYTES):
            wanted = min(PIECE_BYTES, self.size - offset)
            data = self.store.get_range(self.key, offset, wanted)
            if len(data) != wanted:
                raise BadChecksum(f"{self.key} in {self.store.location} became shorter while it was read")
            yield data


class _Spooled:
    """A temporary file of this process, removed with the last reference to this object."""

    def __init__(self) -> None:
        # Without a buffer: a buffer's lock may be held by another thread when a process forks, and closing takes that lock.
        self._file = tempfile.TemporaryFile(prefix="sluice-", buffering=0)  # noqa: SIM115 (it lives as long as this)
        self._size = 0

    def __del__(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._size

    def append(self, data: bytes | bytearray) -> None:
        """Append data, before anybody reads."""
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        self._size += len(data)

    def pieces(self) -> Iterator[bytes]:
        """The bytes in order."""
        for offset in range(0, self._size, PIECE_BYTES):
            yield os.pread(self._file.fileno(), PIECE_BYTES, offset)


@dataclass(frozen=True, slots=True)
class LongText:
    """A text in several parts, some of which are not in memory."""

    parts: tuple[bytes | Part, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))


Text: TypeAlias = "bytes | LongText"


def pieces(text: Text) -> Iterator[bytes]:
    """The bytes of a text in order."""
    for part in (text,) if isinstance(text, bytes) else text.parts:
        if isinstance(part, bytes):
            yield part
        else:
            yield from part.pieces()


def lines(text: Text) -> Iterator[bytes]:
    """The lines without their ends; like `bytes.split`, ends with an empty line if the text ends with a newline."""
    left = b""
    for piece in pieces(text):
        *whole, left = (left + piece).split(b"\n")
        yield from whole
    yield left


def sha256(text: Text) -> str:
    """The SHA-256 of a text, in hexadecimal digits; it identifies ratified content (I5)."""
    digest = hashlib.sha256()
    for piece in pieces(text):
        digest.update(piece)
    return digest.hexdigest()


def concatenated(texts: Iterable[Text]) -> Text:
    """The texts one after the other."""
    parts = [part for text in texts for part in ((text,) if isinstance(text, bytes) else text.parts)]
    in_memory = [part for part in parts if isinstance(part, bytes)]
    return b"".join(in_memory) if len(in_memory) == len(parts) else LongText(tuple(parts))


def stored_text(store: ObjectStore, key: str) -> Text:
    """An object's text: its bytes, or a reference if it is long. Raises ObjectNotFound."""
    begin = store.get_range(key, 0, PIECE_BYTES + 1)
    return begin if len(begin) <= PIECE_BYTES else LongText((_Stored(store, key, store.head(key).size),))


def spooled(parts: Iterable[bytes]) -> Text:
    """The concatenation of very many parts, such as lines; in a temporary file if it is long."""
    buffer = bytearray()
    spool: _Spooled | None = None
    for part in parts:
        buffer += part
        if len(buffer) > PIECE_BYTES:
            spool = spool or _Spooled()
            spool.append(buffer)
            buffer.clear()
    return bytes(buffer) if spool is None else LongText((spool, bytes(buffer)))


def put_text(store: ObjectStore, key: str, text: Text) -> None:
    """Write or replace an object; uploads a long text in parts."""
    if isinstance(text, bytes):
        store.put(key, text)
        return
    with store.upload(key) as stream:
        for piece in pieces(text):
            stream.write(piece)


def stream_of(text: LongText, digest: str) -> BinaryIO:
    """A seekable stream of a text, for one request with a body of that size.

    A read from beginning to end compares the SHA-256: if the text has changed, reading the last bytes raises BadChecksum, so
    that the request never completes.
    """
    return cast(BinaryIO, io.BufferedReader(_Stream(text, digest), 1 << 20))


class _Stream(io.RawIOBase):
    def __init__(self, text: LongText, digest: str) -> None:
        self._text, self._expected, self._size = text, digest, len(text)
        self._restart()

    def _restart(self) -> None:
        self._position = self._delivered = 0
        self._pieces = pieces(self._text)
        self._piece = memoryview(b"")
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; reading there first reads everything before it."""
        self._position = max(0, {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence] + offset)
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        if self._position < self._delivered:
            position = self._position
            self._restart()
            self._position = position
        while self._delivered < self._position and self._take(self._position - self._delivered):
            pass
        room = memoryview(buffer).cast("B")
        taken = self._take(len(room))
        room[: len(taken)] = taken
        self._position += len(taken)
        return len(taken)

    def _take(self, most: int) -> memoryview:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return self._piece
            self._hash.update(piece)
            self._piece = memoryview(piece)
        taken, self._piece = self._piece[:most], self._piece[most:]
        self._delivered += len(taken)
        if self._delivered >= self._size and self._hash.hexdigest() != self._expected:
            raise BadChecksum(f"a text of {self._size:,} bytes has changed since it was decided")
        return taken
