"""No credential appears in what is written down: a marker is planted as each of them, and everything is searched for it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sluice.cli import main as sluice_command
from sluice.coordinator.service.connect import close_all, connect
from sluice.coordinator.service.store import CoordinationStore
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.coordinator.service.zookeeper.wire import below
from sluice.dev import S3DevServer
from sluice.storage.stores.location import open_store
from tests.coordinator.secured import Secured, secured_server

MARK = f"marked{uuid.uuid4().hex}"

pytestmark = pytest.mark.zookeeper


@pytest.fixture(scope="module")
def zk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_server(tmp_path_factory.mktemp("secured") / "server") as running:
        yield running


@pytest.fixture
def coordinator(zk: Secured, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Through TLS with a sealed key, as a user with a password; both in the environment."""
    cert, key = zk.authority.issue("writer", password=f"key-{MARK}")
    monkeypatch.setenv("SLUICE_ZOOKEEPER_USER", "ann")
    monkeypatch.setenv("SLUICE_ZOOKEEPER_PASSWORD", f"password-{MARK}")
    monkeypatch.setenv("SLUICE_ZOOKEEPER_KEY_PASSWORD", f"key-{MARK}")
    monkeypatch.setenv("MARK", MARK)
    yield f"zk://{zk.secure}/test-{uuid.uuid4().hex}?tls=true&ca={zk.authority.ca}&cert={cert}&key={key}"
    close_all()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.secrets_program", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=dict(os.environ))


def nodes(store: CoordinationStore, path: str = "/") -> Iterator[str]:
    found = store.read(path)
    assert found is not None
    assert isinstance(store, ZooKeeperStore)
    yield f"{path} {found.data!r} {store._client.get_acls(below(store._root, path))}"
    for name in store.children(path) or ():
        yield from nodes(store, f"{path.rstrip('/')}/{name}")


def holders(texts: dict[str, str]) -> list[str]:
    """Where the mark is, with the text around it."""
    return [f"{name}: ...{text[max(0, text.index(MARK) - 200) : text.index(MARK) + 60]}..." for name, text in texts.items() if MARK in text]


def everything(folder: Path, ran: subprocess.CompletedProcess[str], location: str, coordinator: str, server: S3DevServer) -> dict[str, str]:
    objects = open_store(location, server.options)
    texts = {"stdout": ran.stdout, "stderr": ran.stderr}
    texts |= {f"the object {each.key}": repr(objects.get(each.key)) for each in objects.list_from("", recursive=True)}
    texts |= {f"the file {path}": path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}
    texts["ZooKeeper"] = "\n".join(nodes(connect(coordinator)))
    return texts


@pytest.mark.costly
def test_tables_conflicts_and_outages(coordinator: str, s3_server: S3DevServer, s3_location: str, tmp_path: Path) -> None:
    ran = run(tmp_path, s3_location, coordinator, s3_server.endpoint_url, "")
    assert ran.stdout.endswith("done\n"), ran.stderr[-3000:]
    texts = everything(tmp_path, ran, s3_location, coordinator, s3_server)
    assert len(texts) > 8
    assert "Sending request" in texts[f"the file {tmp_path / 'job.log'}"]
    assert "AccessDenied" in ran.stdout
    assert "CoordinatorUnavailable" in ran.stdout
    assert holders(texts) == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_spark(coordinator: str, s3_server: S3DevServer, s3_location: str, tmp_path: Path) -> None:
    ran = run(tmp_path, s3_location, coordinator, s3_server.endpoint_url, "spark")
    assert ran.stdout.endswith("done\n"), ran.stderr[-3000:]
    texts = everything(tmp_path, ran, s3_location, coordinator, s3_server)
    travels = texts.pop(f"the file {tmp_path / 'travels.pickle'}")
    assert "== Physical Plan ==" in ran.stdout
    assert any("SparkListenerJobStart" in text for text in texts.values())
    assert holders(texts) == []
    # The store's credentials have to reach the tasks, ZooKeeper's do not.
    assert f"secret-{MARK}" in travels
    assert f"password-{MARK}" not in travels
    assert f"key-{MARK}" not in travels


@pytest.mark.parametrize(
    "arguments",
    [
        ["history", "{location}", "--coordinator", "{coordinator}", "{options}"],
        ["show", "{location}", "--coordinator", "{coordinator}", "{options}"],
        ["clients", "--coordinator", "{coordinator}"],
        ["history", "{location}", "--coordinator", "zk://u:{mark}@h1", "{options}"],
        ["history", "{location}", "--coordinator", "zk://127.0.0.1:1?connect_timeout_s=0.2", "{options}"],
        ["history", "s3://{mark}@bucket/t", "--coordinator", "{coordinator}"],
        ["show", "{location}", "--storage-option", "secret_access_key", "--storage-option", "{mark}"],
        ["show", "{location}", "--storage-option", "={mark}"],
        ["show", "{location}", "--storage-option", "endpoint_url=http://u:{mark}@h"],
        ["show", "{location}", "--storage-option", "password={mark}"],
    ],
    ids=lambda arguments: " ".join(arguments[:5]),
)
def test_the_command_line(coordinator: str, s3_server: S3DevServer, s3_location: str, arguments: list[str]) -> None:
    options = {**s3_server.options, "secret_access_key": f"secret-{MARK}", "session_token": f"token-{MARK}"}
    given: list[str] = []
    for argument in arguments:
        if argument == "{options}":
            given += [word for name, value in options.items() for word in ("--storage-option", f"{name}={value}")]
        else:
            given.append(argument.format(location=s3_location, coordinator=coordinator, mark=MARK))
    result = CliRunner().invoke(sluice_command, given)
    assert result.output
    assert holders({"output": result.output, "exception": f"{result.exception!r} {getattr(result.exception, 'details', '')}"}) == []
