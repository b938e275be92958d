"""The local store: durable before a put returns, nothing half visible, and errors by what to do about them."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluice.storage.errors import AccessDenied, InvalidRequest, ObjectNotFound, SluiceError, StorageFull, StorageUnavailable
from sluice.storage.stores import local
from sluice.storage.stores.local import LocalStore
from sluice.storage.stores.location import open_store

if TYPE_CHECKING:
    from typing_extensions import Buffer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "table"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(f"file://{root}")


def each_flush(monkeypatch: pytest.MonkeyPatch, note: Callable[[Path], None]) -> None:
    """From now on `note` gets what is flushed to the disk."""
    flush = os.fsync

    def noted(handle: int) -> None:
        flush(handle)
        note(Path(f"/proc/self/fd/{handle}").readlink())

    monkeypatch.setattr(os, "fsync", noted)


@pytest.mark.parametrize("verb", ["put", "put_if_absent", "upload"])
def test_content_then_folder_are_flushed_before_a_write_returns(
    store: LocalStore, root: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir(parents=True)
    events: list[str] = []
    rename, link = Path.rename, os.link
    each_flush(monkeypatch, lambda path: events.append(f"flushed {'folder' if path == root else f'{path.stat().st_size} bytes'}"))

    def noted_rename(source: Path, target: Path) -> Path:
        events.append("named")
        return rename(source, target)

    def noted_link(source: Path, target: Path) -> None:
        events.append("named")
        link(source, target)

    monkeypatch.setattr(Path, "rename", noted_rename)
    monkeypatch.setattr(os, "link", noted_link)
    if verb == "upload":
        with store.upload("object") as stream:
            stream.write(b"12345")
    else:
        getattr(store, verb)("object", b"12345")
    assert events == ["flushed 5 bytes", "named", "flushed folder"]


def test_folders_that_a_put_makes_are_flushed_into_their_parents(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    each_flush(monkeypatch, flushed.append)
    store.put("sub/object", b"")
    assert flushed[:3] == [tmp_path, tmp_path / "deep", tmp_path / "deep" / "table"]


def test_without_links_the_folder_is_locked(store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(source: object, target: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    in_lock = threading.Event()
    go_on = threading.Event()
    results: list[bool] = []
    flock = fcntl.flock

    def slow(handle: int, operation: int) -> None:
        flock(handle, operation)
        in_lock.set()
        go_on.wait(10)

    monkeypatch.setattr(fcntl, "flock", slow)
    threads = [threading.Thread(target=lambda: results.append(store.put_if_absent("object", b"x"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert in_lock.wait(10)
    go_on.set()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, False, True]
    assert [path.name for path in root.iterdir()] == ["object"]


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (errno.ENOSPC, StorageFull, "disk is full; free some space"),
        (errno.EDQUOT, StorageFull, "quota is used up"),
        (errno.EACCES, AccessDenied, "check the owner"),
        (errno.EROFS, AccessDenied, "read-only"),
        (errno.EIO, StorageUnavailable, "Input/output error"),
    ],
)
@pytest.mark.parametrize("verb", ["put", "put_if_absent", "upload"])
def test_a_failing_disk_leaves_nothing_and_says_why(
    store: LocalStore, root: Path, verb: str, number: int, kind: type[SluiceError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("before", b"x")

    class Failing(io.FileIO):
        def write(self, data: Buffer, /) -> int:
            raise OSError(number, os.strerror(number))

    class FailingSink(local._Sink, Failing):
        """The real sink over a file that cannot be written."""

    def upload(key: str, data: bytes) -> None:
        with store.upload(key) as stream:
            stream.write(data)

    monkeypatch.setattr(local, "_Sink", FailingSink)
    with pytest.raises(kind, match=message) as caught:
        {"put": store.put, "put_if_absent": store.put_if_absent, "upload": upload}[verb]("object", b"x" * (3 << 20))
    assert str(root / "object") in str(caught.value)
    assert [path.name for path in root.iterdir()] == ["before"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_device_is_storage_full() -> None:
    # the exclusive creation would fail on a device, so only the write is tried here
    class Device(local._Sink):
        def __init__(self) -> None:
            self._path = Path("/t/object")
            io.FileIO.__init__(self, "/dev/full", "wb")

    with Device() as sink, pytest.raises(StorageFull, match="/t/object: the disk is full"):
        sink.write(b"x")


def test_a_folder_without_permission_is_access_denied() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to the user that root becomes here
        store = open_store(folder)
        store.put("before", b"x")
        Path(folder).chmod(0o555)
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)
            for write in (store.put, store.put_if_absent):
                with pytest.raises(AccessDenied, match=f"{folder}/object: permission denied; check the owner"):
                    write("object", b"")
            with pytest.raises(AccessDenied, match="check the owner"):
                store.put("sub/object", b"")
            with pytest.raises(AccessDenied, match="check the owner"):
                store.delete("before")
            assert store.get("before") == b"x"
        finally:
            os.seteuid(user)
            Path(folder).chmod(0o755)


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = open_store(tmp_path / "file")
    with pytest.raises(InvalidRequest, match="a part of the path is a file"):
        store.put("object", b"")
    with pytest.raises(ObjectNotFound):
        store.get("object")
    assert list(store.list_from("")) == []
    folder = open_store(tmp_path)
    folder.put("sub/object", b"")
    with pytest.raises(InvalidRequest, match="is a folder"):
        folder.put("sub", b"")
    with pytest.raises(InvalidRequest, match="too long"):
        folder.put("n" * 300, b"")


def test_unfinished_files_are_hidden(store: LocalStore, root: Path) -> None:
    with store.upload("object") as stream:
        stream.write(b"x")
        stream.flush()
        unfinished = [path.name for path in root.iterdir()]
        assert len(unfinished) == 1
        assert unfinished[0].startswith(".")
        assert list(store.list_from("")) == []
    assert [path.name for path in root.iterdir()] == ["object"]


def test_files_of_another_program_become_objects(store: LocalStore, root: Path) -> None:
    with store.staging("mine") as folder:
        (folder / "inner").mkdir()
        for name in ("a", "inner/b", "left"):
            (folder / name).write_text(name)
        assert list(store.list_from("", recursive=True)) == []
        assert [each.key for each in store.unfinished()] == [folder.name]
        store.adopt({"x/a": folder / "a", "y": folder / "inner/b"})
        assert not (folder / "a").exists()
    assert {path.relative_to(root).as_posix() for path in root.rglob("*")} == {"x", "x/a", "y"}
    assert store.get("x/a") == b"a"
    assert store.get("y") == b"inner/b"


def test_all_files_become_objects_or_none(store: LocalStore, root: Path) -> None:
    store.put("taken", b"")
    with store.staging("mine") as folder:
        for name in ("a", "b"):
            (folder / name).write_text(name)
        with pytest.raises(InvalidRequest, match="is a file"):
            store.adopt({"a": folder / "a", "taken/b": folder / "b"})
        with pytest.raises(SluiceError):
            store.adopt({"b": folder / "b", "c": folder / "gone"})
    assert [each.key for each in store.list_from("", recursive=True)] == ["taken"]


def test_an_abandoned_folder_goes_with_all_that_is_in_it(store: LocalStore, root: Path) -> None:
    with store.staging("mine") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("")
        [begun] = store.unfinished()
        store.abandon(begun)
        assert not folder.exists()
        store.abandon(begun)
    assert list(root.iterdir()) == []


def test_other_hidden_files_are_listed(store: LocalStore, root: Path) -> None:
    store.put("object", b"")
    (root / ".object.crc").write_bytes(b"")
    assert [found.key for found in store.list_from("")] == [".object.crc", "object"]


def test_a_broken_link_or_a_vanished_file_is_left_out(store: LocalStore, root: Path) -> None:
    store.put("object", b"")
    (root / "gone").symlink_to(root / "nowhere")
    assert [found.key for found in store.list_from("", recursive=True)] == ["object"]
    assert store.put_if_absent("gone", b"") is False
