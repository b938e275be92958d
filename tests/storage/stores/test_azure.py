"""The store of Azure: what its errors mean, what it never says, and tables in it. What all stores promise is in `test_object_store.py`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

import sluice
from sluice.storage.errors import AccessDenied, InvalidRequest, NoSuchBucket, ObjectNotFound, StorageUnavailable
from sluice.storage.stores import azure
from sluice.storage.stores.azure import AzureStore
from sluice.storage.stores.location import open_store
from sluice.storage.stores.objects import ObjectStore
from tests.fixtures.azure import ACCOUNT, CONTAINER, KEY, AzureServer
from tests.storage.stores.test_s3 import VERBS as VERBS_OF_S3
from tests.storage.stores.test_s3 import upload
from tests.storage.stores.test_s3_direct import BUSY, Scripted, server

__all__ = ["server"]

LOCATION = f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net"
SECRET = base64.b64encode(b"marked7c9e6679").decode()
STORED = b'HTTP/1.1 201 Created\r\nETag: "x"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n'
MIB = 1 << 20

VERBS: dict[str, Callable[[ObjectStore], object]] = {
    **VERBS_OF_S3,
    "list all": lambda store: list(store.list_from("", recursive=True)),
    "in parts": lambda store: upload(store, 20 * MIB),
}


def conflict(code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>said so\nRequestId:1</Message></Error>"
    return f"HTTP/1.1 409 Conflict\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.fixture
def scripted(server: Scripted) -> Scripted:
    """Answers PUTs from a script."""
    pytest.importorskip("obstore")
    return server


def store_at(server: Scripted, **options: str) -> ObjectStore:
    endpoint = f"http://127.0.0.1:{server.server_address[1]}/{ACCOUNT}"
    return open_store(f"{LOCATION}/t", {"azure_endpoint_url": endpoint, "azure_secret_key": KEY, "max_attempts": "2", **options})


# -- without a server --------------------------------------------------------------------------------------------------


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure, "_library", azure._Library())
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidRequest, match=r"needs the package obstore.*pip install '.*\[azure\]'"):
        open_store(f"{LOCATION}/t")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_that_it_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In it obstore would wait for ever."""
    pytest.importorskip("obstore")
    store = open_store(f"{LOCATION}/t", {"azure_secret_key": KEY})
    child = os.fork()
    if child == 0:
        for use in (lambda: store.get("key"), lambda: open_store(f"{LOCATION}/t")):
            try:
                use()
            except InvalidRequest as error:
                if "forked" not in str(error) or "spawn" not in str(error):
                    os._exit(1)
            else:
                os._exit(2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_another_account_is_not_reached_with_these_credentials() -> None:
    pytest.importorskip("obstore")
    store = AzureStore(f"{LOCATION}/t")
    found = store.elsewhere(f"abfss://other@{ACCOUNT}.dfs.core.windows.net/a/b")
    assert found is not None
    assert (found[0].location, found[1]) == (f"abfss://other@{ACCOUNT}.dfs.core.windows.net", "a/b")
    assert store.elsewhere(f"abfss://{CONTAINER}@stranger.dfs.core.windows.net/a") is None
    assert store.elsewhere("s3://bucket/a") is None


def test_a_store_that_is_not_there_is_unavailable() -> None:
    pytest.importorskip("obstore")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}/{ACCOUNT}"
    options = {"azure_endpoint_url": endpoint, "azure_sas_token": f"sv=1&sig={quote(SECRET)}", "max_attempts": "1"}
    for name, verb in VERBS.items():
        with pytest.raises(StorageUnavailable, match="cannot reach the store at http://127") as caught:
            verb(open_store(f"{LOCATION}/t", options))
        assert quote(SECRET) not in repr(caught.value), name
        assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True)


# -- answers of a script -----------------------------------------------------------------------------------------------


def test_only_a_blob_that_exists_is_one(scripted: Scripted) -> None:
    """obstore calls all of these "already exists"."""
    store = store_at(scripted)
    scripted.script = [conflict("BlobAlreadyExists")]
    assert store.put_if_absent("key", b"x") is False
    for code in ("LeaseIdMissing", "ContainerBeingDisabled", ""):
        scripted.script = [conflict(code)]
        with pytest.raises(StorageUnavailable, match=f"409 {code}: said so; endpoint"):
            store.put_if_absent("key", b"x")
    scripted.script = [conflict("BlobAlreadyExists")]
    with pytest.raises(StorageUnavailable):  # without a condition there is no such answer
        store.put("key", b"x")


def test_after_a_lost_answer_the_key_exists(scripted: Scripted) -> None:
    """Whose bytes they are the caller finds out, as in every store."""
    scripted.script = [b"", conflict("BlobAlreadyExists")]
    assert store_at(scripted).put_if_absent("key", b"x") is False
    assert scripted.bodies == [b"x", b"x"]
    scripted.script = [b""]
    with pytest.raises(StorageUnavailable, match="cannot reach the store"):
        store_at(scripted, max_attempts="1").put_if_absent("key", b"x")
    assert len(scripted.bodies) == 3


def test_passing_trouble_is_retried(scripted: Scripted) -> None:
    scripted.script = [BUSY, STORED]
    store_at(scripted).put("key", b"x")
    assert scripted.bodies == [b"x", b"x"]
    scripted.script = [BUSY, BUSY, STORED]
    with pytest.raises(StorageUnavailable, match="503"):
        store_at(scripted).put("key", b"x")


# -- Azurite -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_container_is_named_by_every_verb(verb: str, azure_options: dict[str, str]) -> None:
    store = open_store(f"abfss://no-such@{ACCOUNT}.dfs.core.windows.net/t", azure_options)
    with pytest.raises(NoSuchBucket, match=r"abfss://no-such@.*no such container; create it"):
        VERBS[verb](store)


@pytest.mark.parametrize("verb", VERBS)
def test_wrong_credentials_are_denied_by_every_verb(
    verb: str, azure_options: dict[str, str], azure_location: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(1), pytest.raises(AccessDenied, match="check") as caught:
        VERBS[verb](open_store(azure_location, {**azure_options, "azure_secret_key": SECRET}))
    assert SECRET not in repr(caught.value) + caplog.text


def test_a_shared_access_signature_reads_and_writes(azure_options: dict[str, str], azure_location: str) -> None:
    token = signature_for_container()
    options = {"azure_endpoint_url": azure_options["azure_endpoint_url"], "azure_sas_token": token}
    store = open_store(azure_location, options)
    assert store.put_if_absent("key", b"x")
    assert store.get("key") == b"x"
    assert [each.key for each in store.list_from("")] == ["key"]
    with pytest.raises(ObjectNotFound) as missing:
        store.get("other")
    with pytest.raises(InvalidRequest) as unsigned, store.prepared_deletion("key"):
        pass
    for error in (missing, unsigned):
        assert token.rpartition("sig=")[2] not in repr(error.value)


def signature_for_container() -> str:
    """A service SAS (2020-12-06): permissions, start, end, resource, and ten fields of which all but version and kind are empty."""
    end = (datetime.now(timezone.utc) + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = ["racwdl", "", end, f"/blob/{ACCOUNT}/{CONTAINER}", "", "", "", "2020-12-06", "c", *[""] * 7]
    signed = base64.b64encode(hmac.digest(base64.b64decode(KEY), "\n".join(fields).encode(), hashlib.sha256)).decode()
    return f"sv=2020-12-06&se={quote(end, safe='')}&sr=c&sp=racwdl&sig={quote(signed, safe='')}"


def test_a_prepared_deletion_that_comes_too_late_deletes_nothing(azure_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure, "DELETION_S", 1)
    for key in ("_delta_log/00000000000000000000.json", "p=ü/part"):
        azure_store.put(key, b"x")
        with azure_store.prepared_deletion(key) as delete:
            time.sleep(2.1)
            with pytest.raises(StorageUnavailable, match="repeat the call"):
                delete()
        assert azure_store.get(key) == b"x"


def test_no_credential_is_shown(azure_options: dict[str, str], azure_location: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        store = open_store(azure_location, azure_options)
        store.put("key", b"x")
        with store.prepared_deletion("key") as delete:
            delete()
    assert KEY not in caplog.text + repr(store) + str(store)
    assert pickle.loads(pickle.dumps(store)).location == store.location


APPEND = """
import sys, pyarrow as pa, sluice
location, coordinator, endpoint, key, first = sys.argv[1:]
table = sluice.Table.open(location, coordinator=coordinator, storage_options={"azure_endpoint_url": endpoint, "azure_secret_key": key})
for number in range(5):
    table.append(pa.table({"i": [int(first) + number], "p": ["a b%" if number % 2 else "c"]}))
table.close()
"""


def test_two_processes_append_to_a_table_that_is_read_vacuumed_and_dropped(
    azure_server: AzureServer, azure_location: str, zookeeper_address: str, tmp_path: Path
) -> None:
    options = azure_server.options
    schema = pa.schema([pa.field("i", pa.int64()), pa.field("p", pa.string())])
    table = sluice.Table.create(azure_location, schema, partition_by=["p"], coordinator=zookeeper_address, storage_options=options)
    endpoint, key = options["azure_endpoint_url"], options["azure_secret_key"]
    command = [sys.executable, "-c", APPEND, azure_location, zookeeper_address, endpoint, key]
    writers = [subprocess.Popen([*command, str(first)]) for first in (0, 100)]
    assert [each.wait(120) for each in writers] == [0, 0]
    assert table.refresh().version >= 1
    assert sorted(table.snapshot().to_arrow()["i"].to_pylist()) == [*range(5), *range(100, 105)]
    table.delete("i < 100")
    assert sorted(table.snapshot().to_arrow()["i"].to_pylist()) == [*range(100, 105)]
    table.compact()
    removed = table.vacuum(retain_hours=0, force=True)
    assert removed
    assert sorted(table.snapshot().to_arrow()["i"].to_pylist()) == [*range(100, 105)]
    table.drop()
    table.close()
    assert list(open_store(azure_location, options).list_from("", recursive=True)) == []
