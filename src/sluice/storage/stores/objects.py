"""What sluice asks of an object store: a small protocol, shipped with a local, an S3 and an in-memory implementation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol, runtime_checkable

from ..dataclass import dataclass
from ..errors import InvalidRequest

__all__ = ["KeepsUnfinished", "ObjectInfo", "ObjectStore", "ReachesElsewhere", "Unfinished", "check_folder", "check_key"]


def check_key(key: str) -> str:
    """`key` itself when it is a legal key; raises InvalidRequest when it is not (see ObjectStore)."""
    if not key or "\0" in key or not _NO_PARTS.isdisjoint(key.split("/")):
        rule = 'keys are relative, separated by "/", and hold no empty, "." or ".." part'
        raise InvalidRequest(f"{key!r} is no object key: {rule}", key=key)
    return key


def check_folder(prefix: str) -> str:
    """`prefix` itself when it names a folder: "" or a legal key and a "/"; raises InvalidRequest when it does not."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequest(f'{prefix!r} names no folder: a folder is "" or ends in "/"', prefix=prefix)
    if prefix:
        check_key(prefix[:-1])
    return prefix


_NO_PARTS = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object: `key` relative to the store's root, `size` in bytes, `modified_ms` since the epoch (UTC)."""

    key: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Something that is stored and no object yet: whose `key` it was to become, the store's name for it, when it was begun."""

    key: str
    token: str
    begun_ms: int


@runtime_checkable
class KeepsUnfinished(Protocol):
    """What a store has beside ObjectStore where a writer that is killed may leave something that is no object: S3, the disk."""

    def unfinished(self) -> Iterator[Unfinished]:
        """What was begun and neither completed nor given up, in no order; some of it may be going on."""
        ...

    def abandon(self, upload: Unfinished) -> None:
        """Remove it; what is gone is no error. Its writer, should it live, cannot complete it any more."""
        ...


@runtime_checkable
class ReachesElsewhere(Protocol):
    """What a store has beside ObjectStore that can read objects outside of its root."""

    def elsewhere(self, uri: str) -> tuple[ObjectStore, str] | None:
        """The store and the key there of the object with this normalised, literal URI; None when it is of another kind."""
        ...


class ObjectStore(Protocol):
    """The objects below one location (a table's root folder).

    Keys are relative, separated by "/", never start with "/", and hold no empty, "." or ".." part (InvalidRequest).
    Every verb may raise StorageUnavailable (after its own retries), AccessDenied and NoSuchBucket. Implementations are
    safe to use from several threads, and picklable (connections are made again where they arrive).
    """

    @property
    def location(self) -> str:
        """The normalised URI of the root, without a trailing slash: `file:///data/t`, `s3://bucket/t`, `memory://t`."""
        ...

    @property
    def atomic_put_if_absent(self) -> bool:
        """Whether `put_if_absent` is atomic (local disk, conditional PUT); else it is a look before a plain put."""
        ...

    def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectNotFound."""
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer at the end. Raises ObjectNotFound."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object; durable and visible as a whole when this returns."""
        ...

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        """Write an object unless the key exists: True when this call wrote it, False when something is there.

        A stream is a seekable one, for content too large to hold (up to 5 GB); it is read from its begin to its end, perhaps twice.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Size and time of one object. Raises ObjectNotFound."""
        ...

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        """The objects in folder `prefix` ("" or ending in "/") with key >= `start`, ascending by key (UTF-8 bytes).

        Sub-folders are left out unless `recursive`. A folder that does not exist is empty. A listing is not one moment: it shows
        what was there before it began and stays. What is stored, replaced or removed meanwhile it may show or hide, each object
        for itself, whatever the order in which that happened.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing key is no error."""
        ...

    def upload(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A writable binary stream whose content becomes the object when the context ends without an exception.

        Nothing is visible before that, and nothing remains after an exception. Large content is uploaded in parts
        while it is written (S3 multipart), so memory stays bounded.
        """
        ...

    def open_input(self, key: str) -> BinaryIO:
        """A seekable binary input stream for reading Parquet by ranges. Raises ObjectNotFound.

        All that is read comes from one version of the object: where it is replaced or removed meanwhile, a read gives what was there
        when the stream was opened, or raises ObjectNotFound.
        """
        ...
