"""The policies of docs/security.md are what sluice needs in S3, and no more: each role runs on a server that refuses the rest."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
import pytest

import sluice
from sluice.dev import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, HttpServer, Reply, moto_application
from sluice.operating.daemon import Daemon
from sluice.storage.errors import AccessDenied
from sluice.storage.stores import streams
from sluice.storage.stores.location import open_store
from tests.test_docs import blocks
from tests.test_docs_tables import section

ROLES = ("reader", "writer", "daemon")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def action_of(environ: dict[str, Any]) -> str:
    """The action of IAM that a request needs. Raises AssertionError for one that nobody thought of."""
    method, query = environ["REQUEST_METHOD"], dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
    named = {each for each in query if not each.startswith(("X-Amz-", "x-id"))}
    _, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
    if not key:
        assert query["prefix"].startswith("tables/"), "the policy is about this folder"
        if method == "GET" and "uploads" in named:
            return "s3:ListBucketMultipartUploads"
        assert method == "GET", (method, query)
        assert "list-type" in named, (method, query)
        return "s3:ListBucket"
    if "uploadId" in named:
        return {"DELETE": "s3:AbortMultipartUpload"}.get(method, "s3:PutObject")
    assert named <= {"uploads"}, (method, query)
    return {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "POST": "s3:PutObject", "DELETE": "s3:DeleteObject"}[
        method
    ]


class Guarded:
    """moto behind rights; `used` are the actions of this role so far."""

    def __init__(self) -> None:
        self.allowed: set[str] = set()
        self.used: set[str] = set()
        self._inner = moto_application()
        account = import_module("moto.core.models").DEFAULT_ACCOUNT_ID
        self.bucket = f"rights-{uuid.uuid4().hex[:8]}"
        import_module("moto.s3.models").s3_backends[account]["aws"].create_bucket(self.bucket, REGION)

    def __call__(self, environ: dict[str, Any]) -> Reply:
        needed = {action_of(environ)} | ({"s3:GetObject"} if "HTTP_X_AMZ_COPY_SOURCE" in environ else set())
        self.used |= needed
        if not needed <= self.allowed:
            return 403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code><Message>not in the policy</Message></Error>"
        return self._inner(environ)


@pytest.fixture
def guard() -> Guarded:
    return Guarded()


@pytest.fixture
def options(guard: Guarded) -> Iterator[dict[str, str]]:
    with HttpServer("127.0.0.1", 0, guard) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        keys = {"access_key_id": ACCESS_KEY_ID, "secret_access_key": SECRET_ACCESS_KEY, "max_attempts": "1"}
        yield {"endpoint_url": f"http://127.0.0.1:{server.port}", "region": REGION, "path_style": "true", **keys}
        server.shutdown()
        thread.join()


def policies() -> list[list[dict[str, Any]]]:
    """The statements of each policy of the page."""
    texts = [block.code for block in blocks(section("security.md", "Rights in S3")) if block.info == "json"]
    parsed = [json.loads(text) for text in texts]
    assert all(each["Version"] == "2012-10-17" for each in parsed)
    return [each["Statement"] for each in parsed]


def actions(role: str) -> set[str]:
    """A role has its policy and those before it."""
    return {action for each in policies()[: ROLES.index(role) + 1] for statement in each for action in statement["Action"]}


def read(location: str, options: dict[str, str]) -> None:
    with sluice.Table.open(location, storage_options=options, consistency="published") as table:
        assert table.snapshot().to_arrow().num_rows > 0
        assert table.history()
        assert table.changes(after=0).num_rows > 0


def write(location: str, options: dict[str, str], coordinator: str) -> sluice.Table:
    """All ways of writing: small and in parts, refused and given up, compactions and checkpoints, a copy."""
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true", "delta.checkpointPolicy": "v2"}
    table = sluice.Table.create(location, SCHEMA, properties=properties, coordinator=coordinator, storage_options=options)
    table.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    table.append(pa.table({"id": list(range(9, 5000)), "name": [uuid.uuid4().hex for _ in range(9, 5000)]}))  # in parts
    table.update({"name": "'d'"}, "id = 2")
    table.upsert(pa.table({"id": [3], "name": ["e"]}), on="id")
    table.delete("id = 1")
    read_version = table.version
    table.overwrite(pa.table({"id": [2], "name": ["f"]}), where="id = 2")
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.overwrite(pa.table({"id": [2], "name": ["g"]}), where="id = 2", read_version=read_version)
    given_up = table.begin()
    given_up.append(pa.table({"id": [4], "name": ["h"]}))
    given_up.abort()
    table.compact("major")
    table.checkpoint()
    table.clone(f"{location}-copy", deep=True)
    return table


def break_off(location: str, options: dict[str, str]) -> None:
    """An upload that fails after some of its parts were sent takes them back."""
    with open_store(location, options).upload("big") as stream:
        stream.write(b"x" * (1 << 17))
        raise ZeroDivisionError


@pytest.mark.costly
@pytest.mark.slow
def test_each_role_works_with_its_rights_and_uses_all_of_them(
    guard: Guarded, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PART_BYTES", 1 << 15)  # large files are sent in parts from here on
    location, coordinator = f"s3://{guard.bucket}/tables/t", f"memory://{uuid.uuid4().hex}"

    guard.allowed = actions("writer")
    table = write(location, options, coordinator)
    with pytest.raises(ZeroDivisionError):
        break_off(location, options)
    assert guard.used == actions("writer")

    guard.allowed, guard.used = actions("reader"), set()
    read(location, options)
    assert guard.used == actions("reader")

    guard.allowed, guard.used = actions("daemon"), set()
    done = Daemon(coordinator, storage_options=options).round()
    assert [each for each in done if each.error] == []
    table.vacuum(retain_hours=0, force=True)
    table.drop()
    assert guard.used - actions("writer") == actions("daemon") - actions("writer")
    assert guard.used <= actions("daemon")


@pytest.mark.parametrize("missing", ["s3:GetObject", "s3:ListBucket"])
def test_a_right_that_is_missing_is_noticed(guard: Guarded, options: dict[str, str], missing: str) -> None:
    location, coordinator = f"s3://{guard.bucket}/tables/t", f"memory://{uuid.uuid4().hex}"
    guard.allowed = actions("writer")
    table = sluice.Table.create(location, SCHEMA, coordinator=coordinator, storage_options=options)
    table.append(pa.table({"id": [1], "name": ["a"]}))
    table.append(pa.table({"id": [2], "name": ["b"]}))
    guard.allowed = actions("reader") - {missing}
    with pytest.raises(AccessDenied):
        read(location, options)


def test_objects_and_buckets_are_named_where_their_actions_belong() -> None:
    for statement in (each for policy in policies() for each in policy):
        of_objects = {action for action in statement["Action"] if re.fullmatch(r"s3:(\w+Object|AbortMultipartUpload)", action)}
        assert of_objects in (set(), set(statement["Action"])), "one statement is about objects or about the bucket"
        assert statement["Resource"].endswith("/*") == bool(of_objects)
