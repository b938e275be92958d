"""What every object store promises, whatever it is made of."""

from __future__ import annotations

import os
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.storage.actions.texts import LongText, concatenated, sha256, stored_text, stream_of
from sluice.storage.errors import InvalidRequest, ObjectNotFound, SluiceError
from sluice.storage.stores.location import open_store
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.stores.objects import ObjectStore, copy_object

WITHOUT_SERVER = ["local", "local-no-links", "memory", "memory-plain", "memory-folder"]
STORES = [*WITHOUT_SERVER, "s3", "s3-plain", "s3-auto", "s3-auto-ignored", "s3-auto-refused", "azure"]
ONE_DIFFERENCE = {
    **dict.fromkeys(("local-no-links", "memory-plain", "memory-folder"), pytest.mark.slow),
    **dict.fromkeys(("s3-plain", "s3-auto", "s3-auto-ignored", "s3-auto-refused"), pytest.mark.long),
}
"""They put, if absent, or list in ways of their own; in all else they are as the plain ones are."""
ATOMIC = ["local", "local-no-links", "memory", "memory-folder", "s3", "s3-auto", "azure"]
MIB = 1 << 20


def _no_link(source: object, target: object) -> None:
    raise OSError(95, "Operation not supported")


def marked(*kinds: str, rarely: Mapping[str, pytest.MarkDecorator] | None = None) -> list[Any]:
    """Kinds of stores as parameters, those marked that need a server, and by `rarely` those that are not tried each time."""
    marks = {each: [pytest.mark.s3] * each.startswith("s3") + [pytest.mark.clouds] * (each == "azure") for each in kinds}
    return [pytest.param(each, marks=[*marks[each], *([rarely[each]] if rarely and each in rarely else [])]) for each in kinds]


of_every_kind = pytest.mark.parametrize("kind", marked(*STORES))


@pytest.fixture(params=marked(*STORES, rarely=ONE_DIFFERENCE))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    if kind.startswith("local"):
        if kind == "local-no-links":
            monkeypatch.setattr(os, "link", _no_link)
        yield open_store(tmp_path / "a table, 100% ü")
    elif kind.startswith("memory"):
        memory = MemoryStore.open(uuid.uuid4().hex)
        memory.disk.conditional_put = kind != "memory-plain"
        memory.disk.hides = (lambda key: sum(key.encode()) % 2 == 0) if kind == "memory-folder" else None
        yield memory
        memory.forget()
    elif kind == "azure":
        options = request.getfixturevalue("azure_server").options
        yield open_store(f"abfss://sluice@devstoreaccount1.dfs.core.windows.net/a-table_1.0=~,@+/{uuid.uuid4().hex}", options)
    else:
        server = {"s3-auto-ignored": "s3_server_ignoring", "s3-auto-refused": "s3_server_refusing"}.get(kind, "s3_server")
        conditional = {"s3": "true", "s3-plain": "false"}.get(kind, "auto")
        options = {**request.getfixturevalue(server).options, "conditional_put": conditional}
        yield open_store(f"s3://sluice/a table, 100% ü/{uuid.uuid4().hex}", options)


def keys(store: ObjectStore, prefix: str = "", start: str = "", *, recursive: bool = False) -> list[str]:
    return [found.key for found in store.list_from(prefix, start, recursive=recursive)]


def test_what_was_put_is_read_back(store: ObjectStore) -> None:
    store.put("folder/object", b"one")
    assert store.get("folder/object") == b"one"
    store.put("folder/object", b"two, longer")
    assert store.get("folder/object") == b"two, longer"
    store.put("empty", b"")
    assert store.get("empty") == b""


def test_a_range_is_cut_at_the_end(store: ObjectStore) -> None:
    store.put("object", b"0123456789")
    assert store.get_range("object", 0, 10) == b"0123456789"
    assert store.get_range("object", 3, 4) == b"3456"
    assert store.get_range("object", 8, 100) == b"89"
    assert store.get_range("object", 10, 5) == b""
    assert store.get_range("object", 50, 5) == b""
    assert store.get_range("object", 5, 0) == b""


def test_head_tells_size_and_time(store: ObjectStore) -> None:
    before = time.time()
    store.put("folder/object", b"x" * 1234)
    found = store.head("folder/object")
    assert (found.key, found.size) == ("folder/object", 1234)
    assert abs(found.modified_ms / 1000 - before) < 10
    assert [found] == list(store.list_from("folder/")) or store.location.startswith("s3://")  # S3's HEAD has whole seconds


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get("no/such"),
        lambda store: store.get_range("no/such", 0, 1),
        lambda store: store.get_range("no/such", 0, 0),
        lambda store: store.head("no/such"),
        lambda store: store.open_input("no/such"),
    ],
    ids=["get", "get_range", "empty range", "head", "open_input"],
)
def test_what_is_not_there_is_not_found(store: ObjectStore, read: Callable[[ObjectStore], object]) -> None:
    with pytest.raises(ObjectNotFound, match="no/such"):
        read(store)
    store.put("no/such/thing", b"")  # now "no/such" is at most a folder
    with pytest.raises(ObjectNotFound, match="no/such"):
        read(store)


@of_every_kind
@pytest.mark.many
def test_put_if_absent_sends_a_stream(store: ObjectStore) -> None:
    """Content too large to hold: a commit that removes very many files."""
    store.put("staged", os.urandom(10 * MIB))
    text = concatenated([b"first line", stored_text(store, "staged")])
    assert isinstance(text, LongText)
    assert store.put_if_absent("folder/object", stream_of(text, sha256(text))) is True
    assert store.put_if_absent("folder/object", stream_of(text, sha256(text))) is False
    assert store.get("folder/object") == b"first line" + store.get("staged")


@of_every_kind
def test_a_stream_that_turns_out_wrong_becomes_no_object(store: ObjectStore) -> None:
    store.put("staged", os.urandom(10 * MIB))
    text = stored_text(store, "staged")
    assert isinstance(text, LongText)
    with pytest.raises(SluiceError):
        store.put_if_absent("folder/object", stream_of(text, "0" * 64))
    assert keys(store, "folder/") == []


@of_every_kind
def test_put_if_absent_writes_once(store: ObjectStore, kind: str) -> None:
    assert store.put_if_absent("folder/object", b"first") is True
    assert store.put_if_absent("folder/object", b"second") is False
    assert store.get("folder/object") == b"first"
    store.put("other", b"put")
    assert store.put_if_absent("other", b"late") is False
    store.delete("other")
    assert store.put_if_absent("other", b"again") is True
    assert store.get("other") == b"again"
    assert keys(store, recursive=True) == ["folder/object", "other"]  # no probe, no temporary file
    assert store.atomic_put_if_absent == (kind in ATOMIC)


@pytest.mark.parametrize("kind", marked(*ATOMIC))
def test_of_many_at_once_exactly_one_wins(store: ObjectStore) -> None:
    for round_ in range(10):
        start = threading.Barrier(8)

        def attempt(number: int, key: str = f"log/{round_}", start: threading.Barrier = start) -> bool:
            start.wait()
            return store.put_if_absent(key, b"%d" % number * 100)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(attempt, range(8)))
        assert won.count(True) == 1
        assert store.get(f"log/{round_}") == b"%d" % won.index(True) * 100


def test_threads_may_share_a_store(store: ObjectStore) -> None:
    def work(number: int) -> bytes:
        store.put(f"{number}", b"%d" % number)
        return store.get(f"{number}")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(40))) == [b"%d" % number for number in range(40)]
    assert len(keys(store)) == 40


def test_delete_removes_and_forgives(store: ObjectStore) -> None:
    store.put("folder/object", b"x")
    store.delete("folder/object")
    store.delete("folder/object")
    store.delete("never/was")
    assert keys(store, recursive=True) == []


def test_a_prepared_deletion_removes_and_forgives(store: ObjectStore) -> None:
    for key in ("log/a b", "ü"):
        store.put(key, b"x")
        with store.prepared_deletion(key) as delete:
            assert store.get(key) == b"x"
            delete()
            delete()
        with pytest.raises(ObjectNotFound):
            store.get(key)
    with store.prepared_deletion("nothing/here") as delete:
        delete()
    store.put("log/kept", b"x")
    with store.prepared_deletion("log/kept"):
        pass
    assert store.get("log/kept") == b"x"


@pytest.mark.parametrize("kind", marked("memory", "s3", "azure"))  # a disk has no file and folder of one name
def test_a_file_and_a_folder_may_have_one_name(store: ObjectStore) -> None:
    names = ["a", "a-b", "a.c", "a/x", "a/y/z", "b", "B", "ab"]
    for name in names:
        store.put(name, b"")
    assert keys(store) == ["B", "a", "a-b", "a.c", "ab", "b"]
    assert keys(store, recursive=True) == sorted(names)
    assert keys(store, "a/") == ["a/x"]
    assert keys(store, "a/", recursive=True) == ["a/x", "a/y/z"]


def test_a_recursive_listing_is_ordered_by_the_whole_key(store: ObjectStore, kind: str) -> None:
    names = ["a-b", "a.c", "a/x", "a/y/z", "a0", "a-/1", "b", "ü/1", "ü/2/3", "𝄞/1"]
    names += ["￿"] * (kind != "azure")  # which XML lacks, and with it Azure's listing
    for name in names:
        store.put(name, b"")
    assert keys(store, recursive=True) == sorted(names, key=str.encode)
    assert keys(store) == sorted((name for name in names if "/" not in name), key=str.encode)
    for start in [*names, "a", "a/", "a/x0", "a/y", "a/z", "c", "ü/", "zzz", "𝄞"]:
        wanted = [name for name in sorted(names, key=str.encode) if name.encode() >= start.encode()]
        assert keys(store, start=start, recursive=True) == wanted, start
        assert keys(store, start=start) == [name for name in wanted if "/" not in name], start


def test_a_listing_begins_at_start(store: ObjectStore) -> None:
    for version in range(8, 13):
        store.put(f"_delta_log/{version:020}.json", b"")
        store.put(f"_delta_log/{version:020}.crc", b"")
    assert keys(store, "_delta_log/", f"_delta_log/{10:020}") == [
        f"_delta_log/{version:020}.{end}" for version in (10, 11, 12) for end in ("crc", "json")
    ]
    assert keys(store, "_delta_log/", f"_delta_log/{12:020}.json") == [f"_delta_log/{12:020}.json"]
    assert keys(store, "_delta_log/", f"_delta_log/{13:020}") == []


def test_what_does_not_exist_is_empty(store: ObjectStore) -> None:
    assert keys(store) == []
    assert keys(store, "no/such/", recursive=True) == []
    store.put("file", b"")
    assert keys(store, "file/") == []


@pytest.mark.costly
@pytest.mark.parametrize("kind", marked("local", "memory", "s3", "azure"))
def test_a_listing_goes_beyond_one_page(store: ObjectStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: store.put(f"many/{number:04}", b"x"), range(1100)))
    assert keys(store, "many/") == [f"many/{number:04}" for number in range(1100)]
    assert keys(store, "many/", "many/0050") == [f"many/{number:04}" for number in range(50, 1100)]


ODD_KEYS = ["with space", "100%", "a%20b", "a+b", "a=b/c=d", "ümläut/漢字/🎷", "a?b#c", "quote'\"", "a&b;c", "__HIVE_DEFAULT_PARTITION__"]
ODD_KEYS += ["a:b", "~", "..a", "a\\b"]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_keys_are_literal(store: ObjectStore, kind: str, key: str) -> None:
    if kind == "azure" and "\\" in key:  # which Azure takes for a slash
        with pytest.raises(InvalidRequest, match="has a backslash"):
            store.put(key, b"")
        return
    store.put(key, key.encode())
    assert store.get(key) == key.encode()
    assert store.head(key).key == key
    assert keys(store, recursive=True) == [key]
    assert store.put_if_absent(key, b"") is False
    with store.open_input(key) as stream:
        assert stream.read() == key.encode()
    store.delete(key)
    assert keys(store, recursive=True) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../../b", "a/./b", "a\0b"])
def test_other_keys_are_refused_by_every_verb(store: ObjectStore, key: str) -> None:
    verbs: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.put(key, b""),
        lambda: store.put_if_absent(key, b""),
        lambda: store.head(key),
        lambda: store.delete(key),
        lambda: store.upload(key).__enter__(),
        lambda: store.open_input(key),
    ]
    for verb in verbs:
        with pytest.raises(InvalidRequest, match="is not an object key"):
            verb()


@pytest.mark.parametrize("prefix", ["a", "/", "../", "a//", "/a/"])
def test_other_folders_are_refused(store: ObjectStore, prefix: str) -> None:
    with pytest.raises(InvalidRequest, match=r"is not an object key|names no folder"):
        list(store.list_from(prefix))


def test_a_copy_has_the_bytes_of_its_original(store: ObjectStore) -> None:
    content = os.urandom(9 * MIB + 1)
    store.put("a/one 1%", content)
    copy_object(store, "a/one 1%", store, "b=ü/two")
    copy_object(store, "a/one 1%", store, "b=ü/two")
    store.delete("a/one 1%")
    assert store.get("b=ü/two") == content
    assert keys(store, recursive=True) == ["b=ü/two"]
    with pytest.raises(ObjectNotFound):
        copy_object(store, "a/one 1%", store, "c")
    memory = MemoryStore.open(uuid.uuid4().hex)
    copy_object(store, "b=ü/two", memory, "there")
    copy_object(memory, "there", store, "back")
    assert store.get("back") == content
    memory.forget()


@pytest.mark.parametrize("size", [0, 10, 20 * MIB])
def test_an_upload_appears_when_it_ends(store: ObjectStore, size: int) -> None:
    content = os.urandom(min(size, MIB)) * max(1, size // MIB)
    with store.upload("folder/large") as stream:
        for at in range(0, len(content), 3 * MIB + 7):
            stream.write(content[at : at + 3 * MIB + 7])
        stream.flush()
        assert keys(store, recursive=True) == []
    assert store.get("folder/large") == content
    assert store.head("folder/large").size == len(content)


def _break_off(store: ObjectStore, key: str, data: bytes, *, close: bool) -> None:
    with store.upload(key) as stream:
        stream.write(data)
        if close:
            stream.close()
        raise KeyError("stop")


@pytest.mark.parametrize("size", [10, 20 * MIB])
def test_nothing_remains_of_a_broken_upload(store: ObjectStore, size: int, tmp_path: Path) -> None:
    store.put("large", b"before")
    with pytest.raises(KeyError, match="stop"):
        _break_off(store, "large", b"x" * size, close=False)
    assert store.get("large") == b"before"
    assert keys(store, recursive=True) == ["large"]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.name != "large"] == []


def test_a_stream_may_be_closed_inside_its_context(store: ObjectStore) -> None:
    with store.upload("object") as stream:
        stream.write(b"whole")
        stream.close()
    assert store.get("object") == b"whole"
    with pytest.raises(KeyError, match="stop"):
        _break_off(store, "object", b"half", close=True)
    assert store.get("object") == b"whole"


def test_an_input_is_a_seekable_file(store: ObjectStore) -> None:
    content = os.urandom(3 * MIB)
    store.put("object", content)
    with store.open_input("object") as stream:
        assert stream.seekable()
        assert stream.readable()
        assert stream.read(10) == content[:10]
        assert stream.tell() == 10
        assert stream.seek(-8, os.SEEK_END) == len(content) - 8
        assert stream.read() == content[-8:]
        assert stream.read() == b""
        stream.seek(MIB)
        assert stream.read(MIB + 5) == content[MIB : 2 * MIB + 5]
        stream.seek(5, os.SEEK_CUR)
        assert stream.read(2) == content[2 * MIB + 10 : 2 * MIB + 12]
        stream.seek(0)
        assert stream.read() == content
    store.put("empty", b"")
    with store.open_input("empty") as stream:
        assert stream.read() == b""


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_an_input_is_of_one_version_of_the_object(store: ObjectStore, change: str) -> None:
    store.put("object", b"1" * (5 * MIB))
    with store.open_input("object") as stream:
        stream.seek(-4, os.SEEK_END)
        found = stream.read()
        if change == "replaced":
            store.put("object", b"2" * (5 * MIB))
        else:
            store.delete("object")
        for offset in (0, 2 * MIB):
            stream.seek(offset)
            with suppress(ObjectNotFound):
                found += stream.read(4)
    assert set(found) == set(b"1")


@cache
def long_table() -> pa.Table:
    """A table that does not compress well."""
    return pa.table({"n": pa.array(range(200_000)), "text": pa.array([uuid.uuid4().hex for _ in range(200_000)])})


def test_parquet_goes_through_the_streams(store: ObjectStore) -> None:
    table = long_table()
    with store.upload("part.parquet") as sink:
        pq.write_table(table, sink, row_group_size=50_000)
    with store.open_input("part.parquet") as source:
        assert pq.read_table(source).equals(table)
    with store.open_input("part.parquet") as source:
        assert pq.ParquetFile(source).read_row_group(2, columns=["n"]).equals(table.slice(100_000, 50_000).select(["n"]))


def test_a_store_can_be_pickled(store: ObjectStore) -> None:
    store.put("object", b"x")
    other = pickle.loads(pickle.dumps(store))
    assert other.location == store.location
    assert other.get("object") == b"x"


def test_a_listing_shows_what_was_there_and_stays_whatever_comes_and_goes_beside_it(store: ObjectStore) -> None:
    lasting = [f"folder/{number:03}-stays" for number in range(0, 60, 3)]
    for key in lasting:
        store.put(key, b"x")
    over = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not over.is_set():
            store.put_if_absent(f"folder/{number % 60:03}-comes", b"x")
            store.delete(f"folder/{(number - 5) % 60:03}-comes")
            number += 7

    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(come_and_go)
        try:
            for _ in range(20):
                shown = keys(store, "folder/")
                assert shown == sorted(set(shown))
                assert [key for key in shown if key.endswith("stays")] == lasting
        finally:
            over.set()
        busy.result()
