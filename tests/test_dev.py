"""The S3 development server: started and ended with its owner, fast enough to measure clients, atomic."""

from __future__ import annotations

import http.client
import io
import os
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from moto.s3.models import S3Backend

from sluice import dev
from sluice.dev import S3DevServer
from sluice.storage.errors import InvalidRequest
from sluice.storage.stores.location import open_store

pytestmark = pytest.mark.s3

AUTHORIZATION = f"AWS4-HMAC-SHA256 Credential={dev.ACCESS_KEY_ID}/20250101/us-east-1/s3/aws4_request"


def connect(server: S3DevServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.endpoint_url).netloc, timeout=30)


def request(connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers={"Authorization": AUTHORIZATION, **named})
    reply = connection.getresponse()
    return reply.status, reply.read()


def test_a_connection_is_kept_and_every_request_read_whole(s3_server: S3DevServer) -> None:
    connection = connect(s3_server)
    connection.connect()
    socket = connection.sock
    assert request(connection, "PUT", "/sluice/kept/a", b"x" * 100_000)[0] == 200
    assert request(connection, "PUT", "/sluice/kept/b", b"y", Expect="100-continue")[0] == 200
    assert request(connection, "HEAD", "/sluice/kept/a") == (200, b"")
    assert request(connection, "GET", "/sluice/kept/a", Range="bytes=0-4") == (206, b"xxxxx")
    assert request(connection, "GET", "/sluice/kept/none")[0] == 404
    connection.request(
        "PUT", "/sluice/kept/c", body=iter([b"in ", b"chunks"]), headers={"Authorization": AUTHORIZATION}, encode_chunked=True
    )
    assert connection.getresponse().read() == b""
    assert request(connection, "GET", "/sluice/kept/c") == (200, b"in chunks")
    assert request(connection, "DELETE", "/sluice/kept/a") == (204, b"")
    assert connection.sock is socket
    connection.close()


def test_conditional_puts_are_atomic(s3_server: S3DevServer) -> None:
    def put(number: int) -> list[int]:
        connection = connect(s3_server)
        statuses = [request(connection, "PUT", f"/sluice/race/{key}", b"%d" % number, If_None_Match="*")[0] for key in range(30)]
        connection.close()
        return statuses

    with ThreadPoolExecutor(8) as pool:
        for statuses in zip(*pool.map(put, range(8)), strict=True):
            assert sorted(statuses) == [200] + [412] * 7


def test_moto_is_entered_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between moto's look and its write another thread may look, too; here it surely does, if it gets in."""
    application = dev.moto_application()
    write = S3Backend.put_object

    def slow_write(*arguments: Any, **named: Any) -> Any:
        time.sleep(0.02)
        return write(*arguments, **named)

    monkeypatch.setattr(S3Backend, "put_object", slow_write)

    def put(key: str) -> int:
        environ: dict[str, Any] = {"REQUEST_METHOD": "PUT", "PATH_INFO": f"/{key}", "RAW_URI": f"/{key}", "QUERY_STRING": ""}
        environ |= {"SERVER_NAME": "127.0.0.1", "SERVER_PORT": "80", "HTTP_HOST": "127.0.0.1", "HTTP_AUTHORIZATION": AUTHORIZATION}
        environ |= {"HTTP_IF_NONE_MATCH": "*", "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(b"x")}
        environ["CONTENT_LENGTH"] = "1" if "/" in key else "0"
        return application(environ)[0]

    bucket = f"threads-{uuid.uuid4().hex}"
    assert put(bucket) == 200
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(put, [f"{bucket}/key"] * 4)) == [200, 412, 412, 412]


def test_latency_is_added_to_each_request_and_not_shared() -> None:
    with S3DevServer(latency_ms=400) as server:

        def put(number: int) -> None:
            connection = connect(server)
            for _ in range(3):
                assert request(connection, "PUT", f"/sluice/{number}", b"")[0] == 200
            connection.close()

        start = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(put, range(8)))
        assert 1.2 <= time.monotonic() - start < 9.6  # one after the other would take at least 9.6 s


def test_strangers_are_denied(s3_server: S3DevServer) -> None:
    connection = connect(s3_server)
    other = "AWS4-HMAC-SHA256 Credential=other/20250101/us-east-1/s3/aws4_request"
    for authorization, reason in {other: b"InvalidAccessKeyId", "": b"AccessDenied"}.items():
        status, body = request(connection, "GET", "/sluice/a", Authorization=authorization)
        assert (status, reason in body) == (403, True)
    connection.close()


def test_it_starts_and_stops() -> None:
    with S3DevServer(bucket="mine") as server:
        store = open_store("s3://mine/t", server.options)
        store.put("a", b"x")
        process = server._process
        assert process is not None
    assert process.poll() is not None
    server.stop()
    with pytest.raises(InvalidRequest, match="is not running"):
        _ = server.endpoint_url


def test_it_ends_with_its_parent() -> None:
    code = (
        "import os, sys, time\n"
        "from sluice.dev import S3DevServer\n"
        "server = S3DevServer().start()\n"
        "sys.stdout.write(f'{server._process.pid}\\n'); sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        os.kill(server, 0)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(server, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(server, signal.SIGKILL)
    pytest.fail("the server outlived its parent")


def test_without_moto_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "find_spec", {}.get)
    with pytest.raises(InvalidRequest, match=r"pip install '.*\[dev\]'"):
        S3DevServer().start()
