"""A store that refuses every write: what only looks goes on, and says the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import boto3
import pytest

import sluice
from sluice.storage.errors import AccessDenied
from sluice.storage.stores.local import LocalStore

from ..conftest import Place, flights


@pytest.fixture
def table(place: Place) -> sluice.Table:
    """A table with a file that is garbage."""
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    table.overwrite(flights(("EWR", 2, 2)))
    return table


def refuse(self: LocalStore, *_: Any, **__: Any) -> Any:
    raise AccessDenied(f"{self}: read-only")


def test_looking_needs_no_write_access(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {each.key for each in table.vacuum(0, dry_run=True, force=True).garbage}
    assert expected
    for write in ("put", "put_if_absent", "upload", "delete", "adopt", "staging", "abandon"):
        monkeypatch.setattr(LocalStore, write, refuse)
    opened = place.open()
    assert {each.key for each in opened.vacuum(0, dry_run=True, force=True).garbage} == expected
    assert sluice.doctor(place.location, coordinator=place.coordinator).ok
    with pytest.raises(AccessDenied):
        opened.vacuum(0, force=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_may_look_at_a_folder_that_only_its_owner_writes(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = sluice.Table.create(folder, flights().schema, coordinator="memory://here")
    table.append(flights(("JFK", 1, 1)))
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o555 if each.is_dir() else 0o444)
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_mode & 0o055 != 0o055:
            each.chmod(each.stat().st_mode | 0o055)
    program = (
        "import os, sluice, sluice.operating.doctor\n"
        "os.setuid(65534)\n"
        f"print(sluice.doctor({str(folder)!r}).ok)\n"
        f"try: open({str(folder / 'x')!r}, 'w')\n"
        "except PermissionError: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["True", "refused"], done.stderr


def options_of(endpoint: str, key: str, secret: str) -> dict[str, str]:
    return {"endpoint_url": endpoint, "region": "us-east-1", "path_style": "true", "access_key_id": key, "secret_access_key": secret}


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server of moto's that knows users and policies."""
    server = import_module("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@pytest.mark.costly
@pytest.mark.s3
def test_credentials_that_allow_no_write(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose policy allows what a reader of S3 needs, and a server that refuses the rest."""
    owner: dict[str, Any] = {"endpoint_url": endpoint, "region_name": "us-east-1", "aws_access_key_id": "o", "aws_secret_access_key": "o"}
    boto3.client("s3", **owner).create_bucket(Bucket="bucket")
    users: Any = boto3.client("iam", **owner)
    users.create_user(UserName="reader")
    policy = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [policy]})
    users.put_user_policy(UserName="reader", PolicyName="reads", PolicyDocument=document)
    key = users.create_access_key(UserName="reader")["AccessKey"]
    location, coordinator = "s3://bucket/t", "memory://read-only"
    table = sluice.Table.create(location, flights().schema, coordinator=coordinator, storage_options=options_of(endpoint, "o", "o"))
    table.append(flights(("JFK", 1, 1)))
    table.overwrite(flights(("EWR", 2, 2)))
    while not (expected := {each.key for each in table.vacuum(0, dry_run=True, force=True).garbage}):
        time.sleep(0.1)  # S3 tells the time in seconds
    monkeypatch.setattr(import_module("moto.settings"), "INITIAL_NO_AUTH_ACTION_COUNT", 0)  # from now on policies count
    mine = options_of(endpoint, key["AccessKeyId"], key["SecretAccessKey"])
    opened = sluice.Table.open(location, coordinator=coordinator, storage_options=mine)
    assert opened.snapshot().num_rows == 1
    assert {each.key for each in opened.vacuum(0, dry_run=True, force=True).garbage} == expected
    assert sluice.doctor(location, coordinator=coordinator, storage_options=mine).ok
    for write in (lambda: opened.vacuum(0, force=True), lambda: opened.append(flights(("JFK", 1, 1)))):
        with pytest.raises(AccessDenied):
            write()
    unknown = options_of(endpoint, "AKIA0000000000000000", "wrong")
    with pytest.raises(AccessDenied):
        sluice.Table.open(location, coordinator=coordinator, storage_options=unknown)
