"""Deletion vectors: which rows of a data file are deleted ("Deletion Vectors" in PROTOCOL.md).

A vector is a set of row positions: a 64-bit roaring bitmap in its portable serialisation, after a magic number. A small
vector is in the log itself, as Z85 text; a larger one is in a file: a version byte, the size of the bitmap, its bytes and
their CRC-32. A second format, which Spark uses in memory and some writers have stored, is read but never written.
"""

from __future__ import annotations

import array
import base64
import hashlib
import re
import struct
import sys
import uuid
import zlib
from typing import Final, TypeAlias

import pyarrow as pa
from pyroaring import BitMap64

from ..actions.records import DeletionVector
from ..actions.uris import key_inside, object_at
from ..arguments import check_key
from ..errors import BadChecksum, Corrupt, InvalidRequest, MissingObject, ObjectNotFound
from ..stores.objects import ObjectStore

Rows: TypeAlias = BitMap64
"""Positions of rows in a data file, from 0 in the file's own order, including deleted rows."""

INLINE_BYTES_MAX: Final = 512
"""Vectors up to this size are inline in the log: readers save a request, and checkpoints stay small."""

_PORTABLE: Final = 1681511377
_NATIVE: Final = 1681511376
_FILE_VERSION: Final = 1
# The offset of a file's first vector, after the version byte.
_FIRST: Final = 1
# A vector's size precedes its bytes, their checksum follows.
_FRAME_BYTES: Final = 4 + 4
_POSITION_BITS: Final = 63

_UUID_CHARACTERS: Final = 20
_NAMESPACE: Final = uuid.UUID("8f6d1a0e-5b0c-5c7e-9d43-2f1c1a4be0a7")
_OWNER: Final = re.compile(r"[A-Za-z0-9_-]+")

# Z85 is Base85 with other letters; other characters become a blank, which Base85 refuses.
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85: Final = bytes.maketrans(_B85, _Z85)
_FROM_Z85: Final = bytes(_B85[_Z85.index(code)] if code in _Z85 else ord(" ") for code in range(256))


def read_vector(store: ObjectStore, vector: DeletionVector) -> Rows:
    """The rows deleted by `vector`.

    Raises Corrupt (BadChecksum, MissingObject) if its bytes are not those the log describes, and UnsupportedFeature for one
    outside the table, as in a shallow clone, that sluice cannot reach.
    """
    if vector.storage_type == "p":
        return _rows_of(vector, _stored(*object_at(store, vector.path_or_inline_dv), vector))
    key = vector_key(vector)
    return inline_rows(vector) if key is None else _rows_of(vector, _stored(store, key, vector))


def inline_rows(vector: DeletionVector) -> Rows:
    """The rows of an inline vector, without a store."""
    try:
        payload = _from_z85(vector.path_or_inline_dv)
    except ValueError as cause:
        raise _corrupt(vector, f"its text is not Z85: {cause}") from cause
    if len(payload) != vector.size_in_bytes + -vector.size_in_bytes % 4:
        raise _corrupt(vector, f"it has {len(payload)} bytes, the log says {vector.size_in_bytes}")
    return _rows_of(vector, payload[: vector.size_in_bytes])


def _rows_of(vector: DeletionVector, payload: bytes) -> Rows:
    try:
        rows = decode_payload(payload)
    except ValueError as cause:
        raise _corrupt(vector, str(cause)) from cause
    if len(rows) != vector.cardinality:
        raise _corrupt(vector, f"it lists {len(rows)} rows, the log says {vector.cardinality}")
    return rows


def vector_key(vector: DeletionVector, location: str | None = None) -> str | None:
    """The key of the object in the table with `vector`; None for an inline vector and one outside the table.

    A vector with an absolute path needs the table's `location`. Raises Corrupt if the descriptor is malformed.
    """
    match vector.storage_type:
        case "i":
            return None
        case "u":
            return _relative_key(vector)
        case "p":
            if location is None:
                raise ValueError("the key of a vector with an absolute path needs the table's location")
            return key_inside(location, vector.path_or_inline_dv)
    raise _corrupt(vector, f"its storage type {vector.storage_type!r} is not 'u', 'i' or 'p'")


def plan_vector(rows: Rows, *, owner: str) -> tuple[DeletionVector, tuple[str, bytes] | None]:
    """The descriptor of a vector of these rows, and the object (key, content) to put before it is used; None if it is inline.

    The name is made from the content and `owner`, the transaction's id, so repeated plans are identical. It begins with the owner, so that
    garbage collection knows whose it is. Raises ValueError for no rows, or an owner that cannot be a folder's name.
    """
    if not rows:
        raise ValueError("an empty set of rows needs no deletion vector")
    if not _OWNER.fullmatch(owner):
        raise ValueError(f"{owner!r} becomes a folder's name; use letters, digits, '_' and '-' only")
    payload = encode_payload(rows)
    size, cardinality = len(payload), len(rows)
    if size <= INLINE_BYTES_MAX:
        return DeletionVector("i", _to_z85(payload + bytes(-size % 4)), size, cardinality), None
    name = uuid.uuid5(_NAMESPACE, f"{owner}/{hashlib.sha256(payload).hexdigest()}")
    vector = DeletionVector("u", owner + _to_z85(name.bytes), size, cardinality, _FIRST)
    return vector, (_relative_key(vector), bytes([_FILE_VERSION]) + _frame(payload))


class VectorFile:
    """Sets of numbers one after the other in one object, whose `key` is below `folder`."""

    def __init__(self, folder: str) -> None:
        self._text = folder + _to_z85(uuid.uuid4().bytes)
        self.key = _relative_key(DeletionVector("u", self._text, 0, 0))
        self._offset = 0

    def framed(self, rows: Rows) -> tuple[DeletionVector, bytes]:
        """The descriptor of the next set, and the bytes to append to the object for it."""
        payload = encode_payload(rows)
        before = b"" if self._offset else bytes([_FILE_VERSION])
        content = before + _frame(payload)
        vector = DeletionVector("u", self._text, len(payload), len(rows), self._offset + len(before))
        self._offset += len(content)
        return vector, content


def encode_payload(rows: Rows) -> bytes:
    """The bytes of a vector without its frame: equal sets give equal bytes."""
    if rows and rows.max() >> _POSITION_BITS:
        raise ValueError(f"{rows.max()} is not a position of a row: the largest is 2^{_POSITION_BITS} - 1")
    compact = rows.copy()
    compact.run_optimize()
    return struct.pack("<I", _PORTABLE) + compact.serialize()


def decode_payload(payload: bytes) -> Rows:
    """The rows in a vector's bytes. Raises ValueError if they are malformed."""
    magic = int.from_bytes(payload[:4], "little")
    body = payload[4:]
    if magic == _NATIVE:
        body = _portable(body)
    elif magic != _PORTABLE:
        raise ValueError(f"it begins with {magic}, not with the magic number {_PORTABLE}")
    try:
        rows = BitMap64.deserialize(body)
    except (ValueError, IndexError) as cause:
        raise ValueError(f"its {len(payload)} bytes are not a roaring bitmap") from cause
    if rows and rows.max() >> _POSITION_BITS:
        raise ValueError(f"{rows.max()} in it is not a position of a row")
    return rows


def to_text(rows: Rows) -> str:
    """A set of rows as text for JSON, without escapes; not a deletion vector of the protocol."""
    return base64.b85encode(encode_payload(rows)).decode("ascii")


def from_text(text: str) -> Rows:
    """The rows in a text made by `to_text`. Raises ValueError for any other text."""
    return decode_payload(base64.b85decode(text))


def rows_at(positions: pa.Array | pa.ChunkedArray) -> Rows:
    """The set of these positions (int64, without nulls, in any order)."""
    rows = BitMap64()
    for chunk in positions.chunks if isinstance(positions, pa.ChunkedArray) else [positions]:
        values = array.array("Q")
        # The buffer ignores the array's offset.
        start, stop = 8 * chunk.offset, 8 * (chunk.offset + len(chunk))
        values.frombytes(memoryview(chunk.buffers()[1])[start:stop] if len(chunk) else b"")
        rows |= BitMap64(values)
    return rows


def positions_of(rows: Rows) -> pa.Array:
    """The positions in ascending order, as int64."""
    values = rows.to_array()
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _portable(body: bytes) -> bytes:
    """The portable form of Spark's own, which has a bitmap for every number up to the highest used one, each after its size."""
    try:
        (count,) = struct.unpack_from("<i", body)
        at, buckets = 4, []
        for number in range(count):
            (size,) = struct.unpack_from("<i", body, at)
            at += 4
            if size < 0 or at + size > len(body):
                raise ValueError("a bitmap in it ends beyond its end")
            buckets.append(struct.pack("<i", number) + body[at : at + size])
            at += size
    except struct.error as cause:
        raise ValueError("it ends before its last bitmap") from cause
    return struct.pack("<q", len(buckets)) + b"".join(buckets)


def _stored(store: ObjectStore, key: str, vector: DeletionVector) -> bytes:
    offset = vector.offset or 0
    # The version byte is read, too, if that costs no extra request.
    start = 0 if offset == _FIRST else offset
    try:
        content = store.get_range(key, start, offset - start + vector.size_in_bytes + _FRAME_BYTES)
    except ObjectNotFound as cause:
        raise MissingObject(
            f"deletion vector {key!r} of {store.location} is gone; restore it, or read a version that does not need it",
            path=key,
            location=store.location,
        ) from cause
    if start < offset and content[:1] != bytes([_FILE_VERSION]):
        raise _corrupt(vector, f"{key!r} begins with {content[:1].hex() or 'nothing'}, not with the version {_FILE_VERSION}")
    frame = content[offset - start :]
    if len(frame) != vector.size_in_bytes + _FRAME_BYTES:
        raise _corrupt(vector, f"{key!r} ends before it does")
    if (size := int.from_bytes(frame[:4], "big")) != vector.size_in_bytes:
        raise _corrupt(vector, f"{key!r} says it has {size} bytes at {offset}, the log says {vector.size_in_bytes}")
    payload = frame[4:-4]
    if zlib.crc32(payload) != int.from_bytes(frame[-4:], "big"):
        raise BadChecksum(
            f"deletion vector {key!r} of {store.location} does not match its checksum; restore it from a copy",
            path=key,
            location=store.location,
        )
    return payload


def _frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))


def _relative_key(vector: DeletionVector) -> str:
    """`[<prefix>/]deletion_vector_<uuid>.bin`, from the prefix and the twenty characters of the UUID."""
    prefix, encoded = vector.path_or_inline_dv[:-_UUID_CHARACTERS], vector.path_or_inline_dv[-_UUID_CHARACTERS:]
    try:
        name = f"deletion_vector_{uuid.UUID(bytes=_from_z85(encoded))}.bin"
        return check_key(f"{prefix}/{name}" if prefix else name)
    except (ValueError, InvalidRequest) as cause:
        raise _corrupt(vector, f"it names no file: {cause}") from cause


def _to_z85(data: bytes) -> str:
    """The text of `data`, a multiple of four bytes."""
    return base64.b85encode(data).translate(_TO_Z85).decode("ascii")


def _from_z85(text: str) -> bytes:
    """The bytes of a text. Raises ValueError if it is not Z85."""
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters are not a multiple of five")
    return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))


def _corrupt(vector: DeletionVector, reason: str) -> Corrupt:
    shown = vector.path_or_inline_dv if len(vector.path_or_inline_dv) <= 80 else vector.path_or_inline_dv[:77] + "..."
    return Corrupt(f"deletion vector {vector.storage_type}{shown!r} cannot be read: {reason}; restore it from a copy", reason=reason)


# Positions are passed on without copying.
assert sys.byteorder == "little"
assert array.array("Q").itemsize == 8
