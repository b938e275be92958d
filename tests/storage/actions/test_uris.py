from __future__ import annotations

from pathlib import Path

import pytest

from sluice.storage.actions.uris import key_inside, object_at, spellings
from sluice.storage.errors import UnsupportedFeature
from sluice.storage.log.replay import ReplayState
from sluice.storage.stores.local import LocalStore
from sluice.storage.stores.objects import ObjectStore
from sluice.storage.stores.s3 import S3Store
from sluice.storage.stores.storage_options import StorageOptions
from tests.storage.logs import add, remove


@pytest.mark.parametrize(
    ("location", "uri", "key"),
    [
        ("file:///a/t", "x.parquet", "x.parquet"),
        ("file:///a/t", "p=1%25/x%20y", "p=1%/x y"),
        ("file:///a/t", "part:1/x", "part:1/x"),
        ("file:///a/t", "file:/a/t/x%20y", "x y"),
        ("file:///a/t", "file:///a/t/x%20y", "x y"),
        ("file:///a/t", "file://localhost/a/t/x", "x"),
        ("file:///a/t", "FILE:/a/t/x", "x"),
        ("file:///a/t", "/a/t/p=1/x", "p=1/x"),
        ("file:///a/t", "/a/t/../t/x", "x"),
        ("file:///a/t", "/a/t/../../etc/x", None),
        ("file:///a/t", "/a/tx/x", None),
        ("file:///a/t", "file:/a/other/x", None),
        ("file:///a/t", "s3://a/t/x", None),
        # a location is literal, a path is encoded
        ("file:///a/100%25 b", "file:/a/100%2525%20b/x", "x"),
        ("file:///a/100%25 b", "file:/a/100%25%20b/x", None),
        ("s3://b/t", "s3a://b/t/p%3D1/x", "p=1/x"),
        ("s3://b/t", "s3n://b/t/x", "x"),
        ("s3://b/t", "s3://b/t/x", "x"),
        ("s3://b/t", "/t/x", "x"),
        ("s3://b/t", "s3://other/t/x", None),
        ("abfss://c@a.dfs.core.windows.net/t", "abfs://c@a.dfs.core.windows.net/t/x", "x"),
        ("abfss://c@a.dfs.core.windows.net/t", "/t/x", "x"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@b.dfs.core.windows.net/t/x", None),
        ("s3://b/t", "s3a://b/u/x", None),
        ("s3://b/t", "file:///t/x", None),
    ],
)
def test_every_spelling_of_a_file_inside_the_table_is_that_file(location: str, uri: str, key: str | None) -> None:
    assert key_inside(location, uri) == key


def test_symbolic_links_to_the_table_are_followed(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    assert key_inside(f"file://{(tmp_path / 't').resolve()}", f"file:{tmp_path}/link/p/x") == "p/x"


@pytest.mark.notices("spellings-are-one-file")
@pytest.mark.parametrize("names", [("/a/t/x", "file:/a/t/x", "file:///a/t/x"), ("s3://b/t/x", "s3a://b/t/x", "s3n://b/t/x")])
def test_a_file_that_is_removed_under_another_spelling_is_gone(names: tuple[str, ...]) -> None:
    assert spellings("p=1/x") == ()
    for one in names:
        assert {one, *spellings(one)} == set(names)
        for other in names:
            state = ReplayState().after([[add(one)], [remove(other)]])
            assert state.files.table.num_rows == 0
            assert state.tombstones.table.column("path").to_pylist() == [other]
            assert state.after([[add(one)]]).files.table.column("path").to_pylist() == [one]
            assert state.after([[add(one)]]).tombstones.table.num_rows == 0


@pytest.mark.parametrize(
    ("store", "uri", "location", "key"),
    [
        (LocalStore("file:///a/t"), "file:/a/source/p=1/x%20y", "file:///a/source/p=1", "x y"),
        (S3Store("s3://b/t"), "s3a://c/source/x", "s3://c", "source/x"),
        (S3Store("s3://b/t"), "/source/x", "s3://b", "source/x"),
    ],
)
def test_a_file_outside_of_the_table_is_looked_for_where_it_is(store: ObjectStore, uri: str, location: str, key: str) -> None:
    found, name = object_at(store, uri)
    assert (found.location, name) == (location, key)


def test_another_bucket_is_reached_with_the_same_options() -> None:
    options = StorageOptions.parse({"endpoint_url": "http://127.0.0.1:1", "region": "eu-north-1"})
    found, _ = object_at(S3Store("s3://b/t", options), "s3://c/x")
    assert isinstance(found, S3Store)
    assert "endpoint_url='http://127.0.0.1:1'" in repr(found)


@pytest.mark.parametrize(
    ("store", "uri"),
    [
        (S3Store("s3://b/t"), "file:///etc/x"),
        (LocalStore("file:///a/t"), "s3a://b/source/x"),
        (LocalStore("file:///a/t"), "hdfs://name:8020/x"),
        (LocalStore("file:///a/t"), "memory://nowhere/x"),
    ],
)
def test_what_sluice_does_not_reach_is_named(store: ObjectStore, uri: str) -> None:
    with pytest.raises(UnsupportedFeature, match=r"lies outside of the table .* make a full copy"):
        object_at(store, uri)
