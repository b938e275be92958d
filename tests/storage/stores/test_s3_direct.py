"""Small PUTs that go past the ordinary client: signed as it signs them, and left to it where anything is unusual."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials as BotoCredentials
from botocore.exceptions import CredentialRetrievalError
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.errors import AccessDenied, StorageUnavailable
from sluice.storage.stores import s3
from sluice.storage.stores.location import open_store
from sluice.storage.stores.objects import ObjectStore
from sluice.storage.stores.s3_direct import Credentials, Route
from tests.coordinator.secured import Authority

pytestmark = pytest.mark.s3

STORED = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
THERE = b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 3\r\n\r\nno!"
BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"
DENIED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


class Scripted(socketserver.ThreadingTCPServer):
    """Answers PUTs with the bytes of a script, then with STORED, and hangs up after what is empty."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Put)
        self.script: list[bytes] = []
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.lines: list[socket.socket] = []
        self.context: ssl.SSLContext | None = None

    def get_request(self) -> tuple[Any, Any]:
        line, address = super().get_request()
        self.connections += 1
        self.lines.append(line)
        return (line if self.context is None else self.context.wrap_socket(line, server_side=True)), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""

    def hang_up(self) -> None:
        """Close all connections that are open now, and return when their clients can know."""
        for line in self.lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self.lines.clear()

    @property
    def direct(self) -> list[bool]:
        """Of each request whether it came the short way: the ordinary client tells which attempt it is."""
        return ["amz-sdk-request" not in head.lower() for head in self.heads]


class _Put(socketserver.StreamRequestHandler):
    server: Scripted  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        while head := self._head():
            length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
            if "100-continue" in head:
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.server.bodies.append(self.rfile.read(length))
            self.server.heads.append(head)
            answer = self.server.script.pop(0) if self.server.script else STORED
            self.wfile.write(answer)
            if not answer or b"close" in answer or b"half" in answer:
                return

    def _head(self) -> str:
        lines: list[str] = []
        while line := self.rfile.readline().decode().strip():
            lines.append(line)
        return "\r\n".join(lines)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def options(server: Scripted, **more: str) -> dict[str, str]:
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    base = {"endpoint_url": endpoint, "access_key_id": "AK", "secret_access_key": "hunter2", "conditional_put": "true", "max_attempts": "2"}
    return base | more


def taught(server: Scripted, **more: str) -> ObjectStore:
    """A store whose first PUT showed the way."""
    store = open_store("s3://bucket/table", options(server, **more))
    store.put("first", b"")
    return store


# -- what is sent ------------------------------------------------------------------------------------------------------


@given(
    key=st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=30),
    token=st.none() | st.text("abc/+=", min_size=1),
    absent=st.booleans(),
    host=st.sampled_from(["http://127.0.0.1:9000/bucket/", "https://bucket.s3.eu-west-1.amazonaws.com/", "https://store:8443/a%20b/"]),
)
def test_the_signature_is_botocores(key: str, token: str | None, absent: bool, host: str) -> None:
    url = host + quote(key, safe="/~")
    example = AWSRequest("PUT", url, headers={"User-Agent": "sluice"}, data=b"x")
    if absent:
        example.headers["If-None-Match"] = "*"
    botocore.auth.S3SigV4Auth(BotoCredentials("AK", "hunter2", token), "s3", "eu-west-1").add_auth(example)
    route = Route.of(url, dict(example.headers.items()), key, Credentials("AK", "hunter2", token))
    assert route is not None
    assert Route.of(url, dict(example.headers.items()), key, Credentials("AK", "another", token)) is None
    path, said = route.request(key, b"x", Credentials("AK", "hunter2", token), 1_700_000_000.0, absent=absent)
    again = AWSRequest("PUT", url, headers={n: v for n, v in said.items() if n not in ("authorization", "content-length")})
    again.context["timestamp"] = said["x-amz-date"]
    signer = botocore.auth.S3SigV4Auth(BotoCredentials("AK", "hunter2", token), "s3", "eu-west-1")
    text = signer.string_to_sign(again, signer.canonical_request(again))
    assert said["authorization"].endswith(f"Signature={signer.signature(text, again)}")
    assert path == urlsplit(url).path
    assert ("if-none-match" in said, said.get("x-amz-security-token")) == (absent, token)


def test_objects_with_odd_keys_are_what_was_put(s3_store: ObjectStore) -> None:
    """And every one after the first goes past the ordinary client."""
    assert isinstance(s3_store, s3.S3Store)
    s3_store.put("first", b"x")
    events, ordinary = s3_store._client.meta.events, list[str]()
    events.register("before-send.s3.PutObject", lambda request, **_: ordinary.append(request.url), unique_id="odd")
    keys = ["a b", "k=1/é=ü%2F", "q?x=1&y#z", "plus+'\"()*!,;:@$~", "日本/x", "tail."]
    try:
        for key in keys:
            s3_store.put(key, key.encode())
            assert s3_store.put_if_absent(key, b"another") is False
            assert s3_store.put_if_absent(key + "2", b"") is True
    finally:
        events.unregister("before-send.s3.PutObject", unique_id="odd")
    assert [s3_store.get(key).decode() for key in keys] == keys
    assert ordinary == []


def test_the_credentials_are_those_of_now(server: Scripted) -> None:
    store = taught(server, session_token="hunter3")
    store.put("key", b"x")
    assert server.direct == [False, True]
    assert "x-amz-security-token: hunter3" in server.heads[1]
    assert isinstance(store, s3.S3Store)
    s3._shared.client(store._client_key)[1]._credentials = lambda: Credentials("AK2", "s", "t2")
    store.put("key", b"x")
    assert "Credential=AK2/" in server.heads[2]
    assert "x-amz-security-token: t2" in server.heads[2]
    assert "hunter" not in repr(Credentials("hunter2", "hunter2", "hunter3"))


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
def test_credentials_that_cannot_be_renewed_are_denied(server: Scripted, verb: str) -> None:
    store = taught(server)
    assert isinstance(store, s3.S3Store)

    def expired() -> Credentials:
        raise CredentialRetrievalError(provider="sso", error_msg="log in again")

    s3._shared.client(store._client_key)[1]._credentials = expired
    with pytest.raises(AccessDenied, match=r"table/key: no usable credentials.*log in again"):
        getattr(store, verb)("key", b"x")


# -- what is left to the ordinary client -------------------------------------------------------------------------------


def test_only_the_ordinary_client_repeats_and_refuses(server: Scripted) -> None:
    store = taught(server)
    server.script = [BUSY, BUSY, STORED]
    store.put("key", b"busy")
    assert server.direct == [False, True, False, False]
    assert set(server.bodies[1:]) == {b"busy"}
    server.script = [BUSY] * 3
    with pytest.raises(StorageUnavailable):
        store.put("key", b"x")
    server.script = [DENIED] * 2
    with pytest.raises(AccessDenied):
        store.put("key", b"x")
    store.put("key", b"x")  # trouble, and what is refused to both, does not end the short way
    assert server.direct[-1]


def test_what_only_the_short_way_is_refused_is_not_tried_again(server: Scripted) -> None:
    store = taught(server)
    server.script = [DENIED]
    store.put("key", b"x")
    store.put("key", b"x")
    assert server.direct == [False, True, False, False]


def test_there_is_one_already(server: Scripted) -> None:
    store = taught(server)
    server.script = [THERE]
    assert store.put_if_absent("key", b"x") is False
    assert store.put_if_absent("key", b"x") is True
    assert [("if-none-match: *" in head) for head in server.heads] == [False, True, True]
    assert server.connections == 2  # the ordinary client's, and the one that the rest of the answer was read from
    server.script = [THERE, DENIED]
    with pytest.raises(AccessDenied):  # without a condition there is no such answer
        store.put("key", b"x")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 412 No\r\nContent-Length: 10\r\n\r\nhalf", b"garbage\r\n\r\nclose"])
def test_without_a_whole_answer_the_ordinary_client_asks_again(server: Scripted, answer: bytes) -> None:
    store = taught(server)
    server.script = [answer, THERE]
    assert store.put_if_absent("key", b"x") is False  # it may have been stored by the request without an answer
    assert server.direct == [False, True, False]


def test_a_connection_that_the_server_ends_or_closed_is_not_used_again(server: Scripted) -> None:
    store = taught(server)
    for answer in (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"):
        server.script = [answer]
        store.put("key", b"x")
    store.put("key", b"x")
    assert (server.direct, server.connections) == ([False, True, True, True], 4)
    server.hang_up()
    store.put("key", b"x")
    assert (server.direct[-1], server.connections) == (True, 5)


def test_what_is_large_or_streamed_goes_the_ordinary_way(server: Scripted) -> None:
    store = taught(server)
    store.put("key", b"x" * ((1 << 20) + 1))
    store.put("key", b"x" * (1 << 20))
    assert server.direct == [False, False, True]


def test_headers_that_are_not_known_are_the_ordinary_clients(server: Scripted) -> None:
    store = open_store("s3://bucket/table", options(server, access_key_id="encrypted"))
    assert isinstance(store, s3.S3Store)

    def encrypt(params: dict[str, Any], **_: Any) -> None:
        params["headers"]["x-amz-server-side-encryption"] = "aws:kms"

    store._client.meta.events.register("before-call.s3.PutObject", encrypt)
    for _ in range(3):
        store.put("key", b"x")
    assert server.direct == [False] * 3


def test_hooks_that_answer_for_the_store_are_asked(server: Scripted) -> None:
    """As those of moto's decorators do."""
    store = open_store("s3://bucket/table", options(server, access_key_id="mocked"))
    assert isinstance(store, s3.S3Store)
    answered: list[str] = []

    def answer(request: Any, **_: Any) -> Any:
        answered.append(request.url)
        raw = type("Raw", (), {"stream": lambda *_, **__: iter(()), "read": lambda *_: b""})()
        return AWSResponse(request.url, 200, HTTPHeaders(), raw)

    store._client.meta.events.register("before-send.s3.PutObject", answer)
    for _ in range(3):
        store.put("key", b"x")
    assert server.heads == []
    assert len(answered) >= 3


def test_a_proxy_is_the_ordinary_clients(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", options(server)["endpoint_url"])
    monkeypatch.setenv("no_proxy", "")
    store = open_store("s3://bucket/table", options(server, endpoint_url="http://store.invalid", access_key_id="proxied"))
    for _ in range(2):
        store.put("key", b"x")
    assert server.direct == [False, False]
    assert server.heads[1].startswith("PUT http://store.invalid/bucket/table/key ")


def test_tls_trusts_whom_the_ordinary_client_trusts(server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "ca")
    certificate, key = authority.issue("store", hosts=("127.0.0.1",))
    server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.context.load_cert_chain(certificate, key)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.ca))
    endpoint = f"https://127.0.0.1:{server.server_address[1]}"
    store = taught(server, endpoint_url=endpoint)
    store.put("key", b"x")
    assert store.put_if_absent("key", b"y")
    assert server.direct == [False, True, True]
    assert server.bodies == [b"", b"x", b"y"]
    assert isinstance(store, s3.S3Store)
    puts = s3._shared.client(store._client_key)[1]
    way = puts._ways["bucket"]
    assert way is not None
    puts._ways["bucket"] = way[0], way[0].connections(ssl.create_default_context)  # which does not know who signed
    store.put("key", b"x")
    assert server.direct == [False, True, True, False]
