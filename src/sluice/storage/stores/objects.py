"""The object store protocol, with a local, an S3, an Azure and an in-memory implementation."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Final, Protocol, runtime_checkable

from ..dataclass import dataclass
from ..errors import StorageUnavailable

DELETION_S: Final = 60
"""How long a store takes a request to delete that was signed in advance, in seconds."""
_PAUSE_S: Final = 0.1


def send_deletion(uri: str, attempts: int, send: Callable[[], tuple[int, bytes]]) -> None:
    """Send a request to delete that was signed in advance, up to `attempts` times.

    `send` returns the status and the text of the answer, status 0 where none came. A missing object is not an error.
    Raises StorageUnavailable when the store refuses the request, or does not answer.
    """
    for attempt in range(attempts):
        status, text = send()
        if status in (200, 202, 204, 404):
            return
        if (status and status != 429 and status < 500) or attempt == attempts - 1:
            raise StorageUnavailable(
                f"{uri}: the store did not delete it ({status or 'no answer'}: {text[:200]!r}). The request was valid for {DELETION_S} s: "
                "if this process was stopped for longer, repeat the call",
                uri=uri,
                status=status,
            )
        time.sleep(_PAUSE_S * 2**attempt)


_COPIED_BYTES: Final = 1 << 20


def copy_object(source: ObjectStore, source_key: str, target: ObjectStore, key: str) -> None:
    """Make `key` a copy of an object of any store, by the store itself where it can, else in bounded memory. Raises ObjectNotFound.

    The copy becomes visible as a whole.
    """
    if isinstance(target, CopiesObjects) and target.copy_from(source, source_key, key):
        return
    with source.open_input(source_key) as stream, target.upload(key) as sink:
        shutil.copyfileobj(stream, sink, _COPIED_BYTES)


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object: `key` relative to the store's root, `size` in bytes, `modified_ms` since the epoch (UTC)."""

    key: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A stored but unfinished object: its future `key`, the store's name for it, and when it was begun."""

    key: str
    token: str
    begun_ms: int


@runtime_checkable
class KeepsUnfinished(Protocol):
    """An additional protocol of stores in which a killed writer may leave unfinished objects: S3, the disk."""

    def unfinished(self) -> Iterator[Unfinished]:
        """Uploads begun, but neither completed nor abandoned, in no order; some may be in progress."""
        ...

    def abandon(self, upload: Unfinished) -> None:
        """Remove it; a missing one is not an error. If its writer is alive, it cannot complete it any more."""
        ...


@runtime_checkable
class KeepsFolders(Protocol):
    """An additional protocol of stores in which a folder is there without objects: the disk."""

    def remove_empty(self, folder: str) -> None:
        """Remove a folder ("a/b/") with the folders in it, as far as they are empty; a missing one is not an error."""
        ...


@runtime_checkable
class ReachesElsewhere(Protocol):
    """An additional protocol of stores that can read objects outside their root."""

    def elsewhere(self, uri: str) -> tuple[ObjectStore, str] | None:
        """The store and key of the object with this normalised, literal URI; None for another kind of store."""
        ...


@runtime_checkable
class CopiesObjects(Protocol):
    """An additional protocol of stores that copy objects themselves, so that no byte passes through this process: S3, the disk."""

    def copy_from(self, source: ObjectStore, source_key: str, key: str) -> bool:
        """Make the object `key` a copy of another one, whole when it is visible; False if this store cannot reach `source`.

        Raises ObjectNotFound if there is nothing to copy.
        """
        ...


class ObjectStore(Protocol):
    """The objects below one location (a table's root folder).

    Keys are relative, separated by "/", never start with "/", and have no empty, "." or ".." part (InvalidRequest). Every
    verb may raise StorageUnavailable (after its own retries), AccessDenied and NoSuchBucket. Implementations are thread-safe
    and picklable (a copy makes its own connections).
    """

    @property
    def location(self) -> str:
        """The normalised URI of the root, without a trailing slash: `file:///data/t`, `s3://bucket/t`, `memory://t`."""
        ...

    @property
    def atomic_put_if_absent(self) -> bool:
        """Whether `put_if_absent` is atomic (local disk, conditional PUT); otherwise it is a look before a plain put."""
        ...

    def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectNotFound."""
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer at the object's end. Raises ObjectNotFound."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object; durable and visible as a whole when this returns."""
        ...

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        """Write an object unless the key exists: True if this call wrote it, False if the key exists.

        A stream must be seekable, for content too large for memory (up to 5 GB); it is read from beginning to end, perhaps twice.
        """
        ...

    def head(self, key: str) -> ObjectInfo:
        """Size and time of one object. Raises ObjectNotFound."""
        ...

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        """The objects in folder `prefix` ("" or ending in "/") with key >= `start`, ascending by key (UTF-8 bytes).

        Omits sub-folders unless `recursive`. A missing folder is empty. A listing is not a point in time: it shows what
        existed before it began and stays. It may or may not show an object that is stored, replaced or removed meanwhile,
        each object independently, whatever the order of these changes.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing key is not an error."""
        ...

    def prepared_deletion(self, key: str) -> AbstractContextManager[Callable[[], None]]:
        """A function that removes the object, for a caller that looks, before it calls it, whether it may.

        However long the caller is stopped between its look and the call, the call removes no object of a later table: on a disk none
        of a folder that was made after the preparation, in a bucket none once `DELETION_S` have passed since then. There the call
        raises StorageUnavailable.
        """
        ...

    def upload(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A writable binary stream whose content becomes the object when the context ends without an exception.

        Nothing is visible before that, and nothing remains after an exception. Large content is uploaded in parts
        while it is written (S3 multipart), so memory stays bounded.
        """
        ...

    def open_input(self, key: str) -> BinaryIO:
        """A seekable binary input stream for reading Parquet by ranges. Raises ObjectNotFound.

        All reads come from one version of the object: if it is replaced or removed meanwhile, a read returns the version
        that was opened, or raises ObjectNotFound.
        """
        ...
