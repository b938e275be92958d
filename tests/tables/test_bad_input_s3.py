"""What bad input gets on S3: buckets that are not there, credentials that are not let in, endpoints where nobody answers."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import sluice
from sluice.dev import S3DevServer
from sluice.storage.stores.location import open_store

from .conftest import FLIGHTS, flights, rows_of
from .pictures import nodes_of, objects_of, refused

Way = Callable[[], object]


def ways(location: str, coordinator: str, options: dict[str, str]) -> list[Way]:
    """Every call that goes to the store first."""
    there: dict[str, Any] = {"storage_options": options}
    return [
        lambda: sluice.Table.create(location, FLIGHTS, coordinator=coordinator, **there),
        lambda: sluice.Table.open(location, coordinator=coordinator, **there),
        lambda: sluice.Table.open(location, consistency="published", **there),
        lambda: sluice.Table.attach(location, coordinator=coordinator, **there),
    ]


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


def test_a_bucket_that_does_not_exist(s3_options: dict[str, str], s3_server: S3DevServer, coordinator: str) -> None:
    location = "s3://no-such-bucket/flights"
    for way in ways(location, coordinator, s3_options):
        words = (location, "there is no such bucket", "create it, or check the endpoint", s3_server.endpoint_url)
        with refused(sluice.errors.NoSuchBucket, *words, leaves=lambda: nodes_of(coordinator)):
            way()


def test_wrong_credentials(s3_options: dict[str, str], s3_location: str, coordinator: str) -> None:
    right = open_store(s3_location, s3_options)
    options = {**s3_options, "access_key_id": "somebody-else", "secret_access_key": "a-secret-that-is-not-told"}
    words = (s3_location, "the store does not know the access key", "check access_key_id", s3_options["endpoint_url"])
    for way in ways(s3_location, coordinator, options):
        with refused(sluice.errors.AccessDenied, *words, leaves=lambda: {**objects_of(right), **nodes_of(coordinator)}) as caught:
            way()
        assert "a-secret-that-is-not-told" not in str(caught.value)


def test_no_credentials(s3_options: dict[str, str], s3_location: str, coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = open_store(s3_location, s3_options)
    before = {**objects_of(right), **nodes_of(coordinator)}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    options = {name: value for name, value in s3_options.items() if name not in ("access_key_id", "secret_access_key")}
    for way in ways(s3_location, coordinator, options):
        with refused(sluice.errors.AccessDenied, s3_location, "no usable credentials", "set AWS_ACCESS_KEY_ID", leaves=dict):
            way()
    assert {**objects_of(right), **nodes_of(coordinator)} == before


def test_wrong_credentials_for_a_table_that_is_there(s3_options: dict[str, str], s3_location: str, coordinator: str) -> None:
    table = sluice.Table.create(s3_location, FLIGHTS, coordinator=coordinator, storage_options=s3_options)
    table.append(flights(("JFK", 1, 1)))
    right = open_store(s3_location, s3_options)
    for way in ways(s3_location, coordinator, {**s3_options, "access_key_id": "somebody-else"}):
        with refused(
            sluice.errors.AccessDenied,
            s3_location,
            "the store does not know the access key",
            leaves=lambda: {**objects_of(right), **nodes_of(coordinator)},
        ):
            way()
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]


def test_a_place_where_nothing_may_be_written_is_refused_before_anything_is_decided(
    s3_options: dict[str, str], s3_location: str, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the coordinator would keep a table for good that can never be published."""
    right = open_store(s3_location, s3_options)

    def denied(*arguments: object) -> None:
        raise sluice.errors.AccessDenied(f"{s3_location}: check the credentials and what they allow (AccessDenied)")

    monkeypatch.setattr("sluice.storage.stores.s3.S3Store.put", denied)
    with refused(
        sluice.errors.AccessDenied, s3_location, "check the credentials", leaves=lambda: {**objects_of(right), **nodes_of(coordinator)}
    ):
        sluice.Table.create(s3_location, FLIGHTS, coordinator=coordinator, storage_options=s3_options)
    monkeypatch.undo()
    assert sluice.Table.create(s3_location, FLIGHTS, coordinator=coordinator, storage_options=s3_options).version == 0
    assert [key for key in objects_of(right) if "probe" in key] == []


def test_an_endpoint_where_nobody_answers(s3_options: dict[str, str], s3_location: str, coordinator: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    started = time.monotonic()
    for way in ways(s3_location, coordinator, {**s3_options, "endpoint_url": endpoint, "max_attempts": "1"}):
        with refused(
            sluice.errors.StorageUnavailable, s3_location, endpoint, "cannot reach the store", leaves=lambda: nodes_of(coordinator)
        ):
            way()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("endpoint_url", "127.0.0.1:9000", ["'127.0.0.1:9000'", "https://host:port"]),
        ("path_style", "perhaps", ["'perhaps'", "true or false"]),
        ("conditional_put", "never", ["'never'", "auto, true, false"]),
        ("max_attempts", "0", ["'0'", "1 to 999"]),
        ("acess_key_id", "x", ["'acess_key_id'", "access_key_id"]),
    ],
)
def test_storage_options_that_mean_nothing(
    s3_options: dict[str, str], s3_location: str, coordinator: str, option: str, value: str, words: list[str]
) -> None:
    for way in ways(s3_location, coordinator, {**s3_options, option: value}):
        with refused(sluice.errors.InvalidRequest, option, *words, leaves=lambda: nodes_of(coordinator)):
            way()


def test_locations_on_s3_that_are_none(s3_options: dict[str, str], coordinator: str) -> None:
    for location, words in (
        ("s3:///flights", ["'s3:///flights'", "s3://bucket/path"]),
        ("s3:/bucket/flights", ["'s3:/bucket/flights'", "two slashes"]),
        ("s3://key:secret@bucket/flights", ["credentials", "options or in the environment"]),
    ):
        for way in ways(location, coordinator, s3_options):
            with refused(sluice.errors.InvalidRequest, *words, leaves=lambda: nodes_of(coordinator)) as caught:
                way()
            assert "key:secret" not in str(caught.value)
