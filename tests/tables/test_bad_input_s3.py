"""What bad input gets on S3: buckets that are not there, credentials that are not let in, endpoints where nobody answers."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import sluice
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


SECRET = "a-secret-that-is-not-told"
OTHER = {"access_key_id": "somebody-else", "secret_access_key": SECRET}
WRONG: list[tuple[str, dict[str, str], str, list[str]]] = [
    (
        "s3://no-such-bucket/flights",
        {},
        "NoSuchBucket",
        ["there is no such bucket", "create it, or check the endpoint", "s3://no-such-bucket"],
    ),
    ("", OTHER, "AccessDenied", ["the store does not know the access key", "check access_key_id"]),
    ("", {"endpoint_url": "127.0.0.1:9000"}, "InvalidRequest", ["endpoint_url", "'127.0.0.1:9000'", "https://host:port"]),
    ("", {"path_style": "perhaps"}, "InvalidRequest", ["path_style", "'perhaps'", "true or false"]),
    ("", {"conditional_put": "never"}, "InvalidRequest", ["conditional_put", "'never'", "auto, true, false"]),
    ("", {"max_attempts": "0"}, "InvalidRequest", ["max_attempts", "'0'", "1 to 999"]),
    ("", {"acess_key_id": "x"}, "InvalidRequest", ["'acess_key_id'", "access_key_id"]),
    ("s3:///flights", {}, "InvalidRequest", ["'s3:///flights'", "s3://bucket/path"]),
    ("s3:/bucket/flights", {}, "InvalidRequest", ["'s3:/bucket/flights'", "two slashes"]),
    (f"s3://key:{SECRET}@bucket/flights", {}, "InvalidRequest", ["credentials", "options or in the environment"]),
]
"""A location (or the test's own), options beside the right ones, and what they get."""


@pytest.mark.parametrize(("location", "options", "error", "words"), WRONG)
@pytest.mark.parametrize("there", [False, True])
def test_locations_and_options_that_are_none(
    s3_options: dict[str, str],
    s3_location: str,
    coordinator: str,
    there: bool,
    location: str,
    options: dict[str, str],
    error: str,
    words: list[str],
) -> None:
    right = open_store(s3_location, s3_options)
    table = sluice.Table.create(s3_location, FLIGHTS, coordinator=coordinator, storage_options=s3_options) if there else None
    if table is not None:
        table.append(flights(("JFK", 1, 1)))
    if error in ("NoSuchBucket", "AccessDenied"):  # only the store can tell
        words = [*words, location or s3_location, s3_options["endpoint_url"]]
    for way in ways(location or s3_location, coordinator, {**s3_options, **options}):
        left = {"leaves": lambda: {**objects_of(right), **nodes_of(coordinator)}}
        with refused(getattr(sluice.errors, error), *words, **left) as caught:
            way()
        assert SECRET not in str(caught.value)
    if table is not None:
        assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]


@pytest.mark.costly
def test_an_endpoint_where_nobody_answers(s3_options: dict[str, str], s3_location: str, coordinator: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    started = time.monotonic()
    for way in ways(s3_location, coordinator, {**s3_options, "endpoint_url": endpoint, "max_attempts": "1"}):
        words = (s3_location, endpoint, "cannot reach the store")
        with refused(sluice.errors.StorageUnavailable, *words, leaves=lambda: nodes_of(coordinator)):
            way()
    assert time.monotonic() - started < 10


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
