"""Objects on the local disk: atomic, and durable when a put returns.

Every write goes to a hidden temporary file beside its target, which is flushed to the disk (fsync), then renamed (put) or
linked (put_if_absent: unlike a rename, a link fails if the target exists); then the folder is flushed, too.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..arguments import check_folder, check_key
from ..errors import AccessDenied, InvalidRequest, InvariantBroken, ObjectNotFound, SluiceError, StorageFull, StorageUnavailable
from ..observing import observed
from .objects import ObjectInfo, ObjectStore, Unfinished

if TYPE_CHECKING:
    from typing_extensions import Buffer

_TEMPORARY = ".sluice-"
"""The prefix of unfinished files; listings omit them, and Spark skips names with a leading dot."""

_BUFFER_BYTES = 1 << 20
_FLUSHING_THREADS = 8

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""The errors of `link` on file systems without links (FAT, many network and container mounts)."""

_NO_COPIES = frozenset({errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM})
"""The errors of `copy_file_range` before its first byte, where kernel or file system cannot copy."""

_ERRORS: dict[int, tuple[type[SluiceError], str]] = {
    errno.ENOENT: (ObjectNotFound, "there is no such object"),
    errno.ENOSPC: (StorageFull, "the disk is full; free some space and repeat"),
    errno.EDQUOT: (StorageFull, "the disk quota is used up; free some space and repeat"),
    errno.EACCES: (AccessDenied, "permission denied; check the owner and mode of the folder"),
    errno.EPERM: (AccessDenied, "permission denied; check the owner and mode of the folder"),
    errno.EROFS: (AccessDenied, "the file system is read-only"),
    errno.ENOTDIR: (InvalidRequest, "a part of the path is a file, not a folder"),
    errno.EISDIR: (InvalidRequest, "the path is a folder, not a file"),
    errno.ENOTEMPTY: (InvalidRequest, "the path is a folder, not a file"),
    errno.ENAMETOOLONG: (InvalidRequest, "the name is too long for this file system"),
    errno.ELOOP: (InvalidRequest, "the path has a loop of symbolic links"),
}
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


@contextmanager
def _errors(path: Path | str, *, reading: bool = False) -> Iterator[None]:
    """Convert an OSError into the class that says what to do about it. What is not a file is no object for one who is `reading`."""
    try:
        yield
    except OSError as error:
        if reading and isinstance(error, _ABSENT):
            raise ObjectNotFound(f"{path}: there is no such object", path=str(path)) from error
        kind, remedy = _ERRORS.get(error.errno or 0, (StorageUnavailable, error.strerror or str(error)))
        raise kind(f"{path}: {remedy}", path=str(path), errno=error.errno) from error


@observed("store", get="get", get_range="get", head="head", put="put", put_if_absent="put", upload="put", adopt="put", delete="delete")
class LocalStore:
    """An ObjectStore in a folder, which the first put makes. `location` is normalised: `file:///data/t`."""

    atomic_put_if_absent = True
    """By a hard link, or under a lock on the folder if the file system has no links."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._root = Path(location.removeprefix("file://"))

    def __repr__(self) -> str:
        return f"LocalStore({self.location!r})"

    def elsewhere(self, uri: str) -> tuple[LocalStore, str] | None:
        """The folder of a file outside this store, and its name there."""
        folder, _, name = uri.rpartition("/")
        return (LocalStore(folder), name) if uri.startswith("file:///") else None

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def get(self, key: str) -> bytes:
        with self.open_input(key) as stream, _errors(key):
            return stream.read()

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        with self.open_input(key) as stream, _errors(key):
            stream.seek(offset)
            return stream.read(length)

    def open_input(self, key: str) -> BinaryIO:
        path = self._path(key)
        with _errors(path, reading=True):
            return path.open("rb", buffering=_BUFFER_BYTES)

    def head(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with _errors(path, reading=True):
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError
        return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object; on the disk when this returns."""
        with self.upload(key) as stream:
            stream.write(data)

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        path = self._path(key)
        if os.path.lexists(path):
            return False
        with _temporary(path) as temporary:
            with _Sink(temporary, path) as stream:
                if isinstance(data, bytes):
                    stream.write(data)
                else:
                    data.seek(0)
                    shutil.copyfileobj(data, stream, _BUFFER_BYTES)
            with _errors(path):
                _flush(temporary)
                return _publish_if_absent(temporary, path)

    @contextmanager
    def upload(self, key: str) -> Iterator[BinaryIO]:
        path = self._path(key)
        with _temporary(path) as temporary:
            with io.BufferedWriter(_Sink(temporary, path), _BUFFER_BYTES) as stream:
                yield stream
            with _errors(path):
                _flush(temporary)
                temporary.rename(path)
                _flush(path.parent)

    def copy_from(self, source: ObjectStore, source_key: str, key: str) -> bool:
        """By the kernel, which shares the blocks where the file system can."""
        if not isinstance(source, LocalStore) or not hasattr(os, "copy_file_range"):
            return False
        with source.open_input(source_key) as taken, self.upload(key) as made, _errors(self._path(key)):
            left = os.fstat(taken.fileno()).st_size
            while left > 0:
                try:
                    done = os.copy_file_range(taken.fileno(), made.fileno(), left)
                except OSError as unable:
                    if unable.errno not in _NO_COPIES:
                        raise
                    shutil.copyfileobj(taken, made, _BUFFER_BYTES)
                    break
                if not done:
                    raise InvariantBroken(f"{source_key} of {source.location} became shorter while it was copied")
                left -= done
        return True

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _errors(path), suppress(*_ABSENT):
            path.unlink()

    @contextmanager
    def prepared_deletion(self, key: str) -> Iterator[Callable[[], None]]:
        """A function that removes the object from the folder that is there now, whatever has its name when it is called."""
        path = self._path(key)
        folder: int | None = None
        with _errors(path), suppress(*_ABSENT):
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)

        def delete() -> None:
            with _errors(path), suppress(*_ABSENT):
                if folder is not None:
                    os.unlink(path.name, dir_fd=folder)

        try:
            yield delete
        finally:
            if folder is not None:
                os.close(folder)

    def remove_empty(self, folder: str) -> None:
        for place, _, _ in os.walk(self._root / check_folder(folder), topdown=False):
            with suppress(OSError):  # it has a file
                Path(place).rmdir()

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        folder = self._root / check_folder(prefix)
        with _errors(folder):
            try:
                with os.scandir(folder) as entries:
                    # a folder sorts as its name and "/", so that the keys below it come at the right place among the files
                    found = sorted(
                        (prefix + entry.name + "/" * entry.is_dir(), entry) for entry in entries if not entry.name.startswith(_TEMPORARY)
                    )
            except (FileNotFoundError, NotADirectoryError):
                return
        for key, entry in found:
            if key.endswith("/"):
                if recursive and key >= start[: len(key)]:
                    yield from self.list_from(key, start, recursive=True)
            elif key >= start:
                with _errors(entry.path), suppress(FileNotFoundError):  # removed since the scan
                    status = entry.stat()
                    yield ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def unfinished(self) -> Iterator[Unfinished]:
        """The temporary files and folders below the root: their writers are still at work, or were killed."""
        for folder, folders, names in os.walk(self._root):
            for name in (each for each in (*folders, *names) if each.startswith(_TEMPORARY)):
                path = Path(folder) / name
                with _errors(path), suppress(FileNotFoundError):  # finished meanwhile
                    yield Unfinished(path.relative_to(self._root).as_posix(), name, path.stat().st_mtime_ns // 1_000_000)
            folders[:] = [name for name in folders if not name.startswith(_TEMPORARY)]

    def abandon(self, upload: Unfinished) -> None:
        path = self._root / upload.key
        with _errors(path), suppress(*_ABSENT):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    @contextmanager
    def staging(self, name: str) -> Iterator[Path]:
        """A new empty folder for files that another program writes; nothing lists what is in it, and it is removed at the end.

        `name` is part of the folder's, and should tell whose it is.
        """
        path = self._path(f"{_TEMPORARY}{uuid.uuid4().hex}-{name}.tmp")
        with _errors(path):
            _make_folder(path)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)  # if a program still writes there, what it leaves is an unfinished object

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Make files of this disk objects under these new keys, durable when this returns. On an error none of the objects remains."""
        moved: list[str] = []
        try:
            with ThreadPoolExecutor(_FLUSHING_THREADS, thread_name_prefix="sluice-flush") as pool:
                list(pool.map(_flushed, files.values()))
            for key, source in files.items():
                path = self._path(key)
                with _errors(path):
                    if not path.parent.is_dir():
                        _make_folder(path.parent)
                    source.rename(path)
                moved.append(key)
            for folder in {self._path(key).parent for key in files}:
                with _errors(folder):
                    _flush(folder)
        except BaseException:
            for key in moved:
                self.delete(key)
            raise


class _Sink(io.FileIO):
    """A new file that raises our errors; `path` is the target named in messages."""

    def __init__(self, temporary: Path, path: Path) -> None:
        self._path = path
        with _errors(path):
            super().__init__(temporary, "xb")

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        with _errors(self._path):
            done = 0
            while done < len(view):
                done += super().write(view[done:])
        return done


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """The name of a new file beside `path`, in a folder that exists; removed at the end if it still exists."""
    folder = path.parent
    with _errors(folder):
        if not folder.is_dir():
            _make_folder(folder)
    # A dead writer's file shows its target in its name, and so its owner.
    temporary = folder / f"{_TEMPORARY}{uuid.uuid4().hex}-{path.name[:120]}.tmp"
    try:
        yield temporary
    finally:
        with suppress(OSError):  # renamed (the normal case), or as unwritable as the target; it is hidden either way
            temporary.unlink()


def _make_folder(folder: Path) -> None:
    """Make `folder` and its parents, each durable in its own parent."""
    if not folder.parent.is_dir():
        _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
        _flush(folder.parent)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "a part of the path is a file", str(folder))


def _flushed(path: Path) -> None:
    with _errors(path):
        _flush(path)


def _flush(path: Path) -> None:
    """fsync a file or folder by name: the stream that wrote it may be closed already."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _publish_if_absent(temporary: Path, path: Path) -> bool:
    """Rename the finished file unless the name is taken. Without links, the kernel's lock on the folder keeps others out."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)  # ends with the process that holds it
            if os.path.lexists(path):
                return False
            temporary.rename(path)
        finally:
            os.close(handle)
    _flush(path.parent)
    return True
