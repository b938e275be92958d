"""An S3 server for tests, demos and measurements: moto's, in its own process, on a free port of the loopback interface.

As a program: ``python -m sluice.dev --port 5000 --latency-ms 30`` prints one line of JSON when it is ready.
From Python::

    with S3DevServer(latency_ms=30) as server:
        store = open_store("s3://sluice/table", server.options)

moto is not thread-safe (two conditional PUTs of one key may both succeed), so requests are handled one at a time, under a
lock; the added latency is slept outside it, in each connection's thread. moto is called directly: its Flask application
would double the cost.

Only the server's own access key is accepted, so that wrong credentials fail as in production; signatures are not checked.
A request that was signed in advance (its signature is in the query) is refused when its time is over.

`HttpServer` is a small threaded HTTP/1.1 server with keep-alive. The servers of Python's web frameworks close the connection after every
request (Werkzeug's also adds 10 ms), so that measuring a client would measure the server. This one keeps connections, reads a whole
request before it calls the application, and answers with one write.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import select
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from http.client import responses
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import parse_qsl, unquote_to_bytes

from .installation import install_command
from .storage.errors import InvalidRequest, StorageUnavailable

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Application", "ConditionalPut", "HttpServer", "Reply", "S3DevServer", "main", "moto_application"]

ConditionalPut = Literal["honoured", "ignored", "refused"]
"""The reaction to `If-None-Match` in a PUT: like S3; overwrite all the same; answer 501 NotImplemented."""

ACCESS_KEY_ID = "sluice-dev"
SECRET_ACCESS_KEY = "sluice-dev-secret"  # noqa: S105 (guards nothing)
REGION = "us-east-1"

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_PARENT_CHECK_S = 1.0
_ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'


Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers, body."""

Application = Callable[[dict[str, Any]], Reply]
"""Gets a WSGI environment whose input has the whole body; must be thread-safe."""

_MAX_HEADER_LINE = 65536
_BODYLESS = frozenset({204, 304})


class HttpServer(socketserver.ThreadingTCPServer):
    """Serves `application` on `host:port` (port 0: a free one, see `port`), one thread per connection.

    `latency_s` is slept in the connection's thread between receiving and handling a request.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, host: str, port: int, application: Application, *, latency_s: float = 0.0) -> None:
        super().__init__((host, port), _Connection)
        self.host = host
        self.port = int(self.server_address[1])
        self.application = application
        self.latency_s = latency_s

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up; the application answers its own failures."""


class _Connection(socketserver.StreamRequestHandler):
    server: HttpServer  # pyright: ignore[reportIncompatibleVariableOverride]
    disable_nagle_algorithm = True
    rbufsize = 1 << 16
    wbufsize = 0

    def handle(self) -> None:
        while (environ := self._read_request()) is not None:
            if self.server.latency_s:
                time.sleep(self.server.latency_s)
            status, headers, body = self.server.application(environ)
            self._answer(environ["REQUEST_METHOD"], status, headers, body)
            if environ.get("HTTP_CONNECTION", "").lower() == "close":
                return

    def _read_request(self) -> dict[str, Any] | None:
        """The next request of this connection as a WSGI environment; None if the client is done."""
        line = self.rfile.readline(_MAX_HEADER_LINE)
        if not line.strip():
            return None
        method, target, protocol = line.decode("latin-1").split()
        path, _, query = target.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "RAW_URI": target,
            "REQUEST_URI": target,
            "QUERY_STRING": query,
            "SERVER_NAME": self.server.host,
            "SERVER_PORT": str(self.server.port),
            "SERVER_PROTOCOL": protocol,
            "REMOTE_ADDR": self.client_address[0],
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        while (line := self.rfile.readline(_MAX_HEADER_LINE).rstrip(b"\r\n")) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            key = name.upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                key = "HTTP_" + key
            environ[key] = f"{environ[key]},{value.strip()}" if key in environ else value.strip()
        body = self._read_body(environ)
        environ["CONTENT_LENGTH"] = str(len(body))
        environ["wsgi.input"] = BytesIO(body)
        return environ

    def _read_body(self, environ: dict[str, Any]) -> bytes:
        if environ.get("HTTP_EXPECT", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" not in environ.pop("HTTP_TRANSFER_ENCODING", "").lower():
            return self._read_exactly(int(environ.get("CONTENT_LENGTH") or 0))
        chunks = bytearray()
        while size := int(self.rfile.readline(_MAX_HEADER_LINE).split(b";")[0], 16):
            chunks += self._read_exactly(size)
            self.rfile.readline(_MAX_HEADER_LINE)
        while self.rfile.readline(_MAX_HEADER_LINE).strip():  # trailers
            continue
        return bytes(chunks)

    def _read_exactly(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) != size:
            raise ConnectionError(f"the client hung up after {len(data)} of {size} bytes")
        return data

    def _answer(self, method: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        lines = [f"HTTP/1.1 {status} {responses.get(status, 'Unknown')}"]
        given = {name.lower() for name in headers}
        lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "content-length" or method == "HEAD"]
        if status not in _BODYLESS and not (method == "HEAD" and "content-length" in given):
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        self.request.sendall(head if method == "HEAD" or status in _BODYLESS else head + body)

    def finish(self) -> None:
        super().finish()
        sock: socket.socket = self.request
        sock.close()


class S3DevServer:
    """Runs the S3 server from `start` (or entering the context) until `stop`, at the latest until this process ends.

    `latency_ms` is added to every request; `bucket` is made at the start (None: none).
    """

    def __init__(self, latency_ms: float = 0, bucket: str | None = "sluice", *, conditional_put: ConditionalPut = "honoured") -> None:
        self.latency_ms = latency_ms
        self.bucket = bucket
        self.conditional_put = conditional_put
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    @property
    def endpoint_url(self) -> str:
        """The server's address, such as `http://127.0.0.1:40123`."""
        if self._process is None:
            raise InvalidRequest("the S3 development server is not running; use it as a context manager or call start()")
        return f"http://127.0.0.1:{self._port}"

    @property
    def options(self) -> dict[str, str]:
        """The options for `open_store`."""
        return {
            "endpoint_url": self.endpoint_url,
            "region": REGION,
            "path_style": "true",
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET_ACCESS_KEY,
        }

    @property
    def env(self) -> dict[str, str]:
        """The options as environment variables, for child processes and other engines."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> S3DevServer:
        """Start the process and wait until it answers. Raises InvalidRequest without moto, StorageUnavailable if it fails."""
        _require_moto()
        command = [sys.executable, "-m", "sluice.dev", "--port", "0", "--latency-ms", str(self.latency_ms), "--watch-parent"]
        command += ["--conditional-put", self.conditional_put, *(["--bucket", self.bucket] if self.bucket else ["--no-bucket"])]
        source = str(Path(__file__).resolve().parents[1])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        try:
            assert self._process.stdout is not None
            ready, _, _ = select.select([self._process.stdout], [], [], _START_TIMEOUT_S)
            line = self._process.stdout.readline() if ready else ""
            if not line:
                raise StorageUnavailable(
                    f"the S3 development server did not start within {_START_TIMEOUT_S:.0f} s; its own message is above"
                )
            self._port = int(json.loads(line)["port"])
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the process and its contents; stopping twice is harmless."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> S3DevServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _require_moto() -> None:
    if find_spec("moto") is None:
        raise InvalidRequest(f"the S3 development server needs moto, which is not installed: {install_command('dev')}")


def moto_application(conditional_put: ConditionalPut = "honoured") -> Application:
    """moto's S3 as an application for `HttpServer`: one request at a time, with S3's errors."""
    _require_moto()
    # imported by name: moto is optional and hardly annotated
    Request = import_module("moto.core.request").Request  # noqa: N806
    S3Response = import_module("moto.s3.responses").S3Response  # noqa: N806

    lock = threading.Lock()
    mine = f"Credential={ACCESS_KEY_ID}/"

    def dispatch(environ: dict[str, Any]) -> Reply:
        request = Request(environ)
        bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
        verb = S3Response.key_dispatch if key else S3Response.ambiguous_dispatch if bucket else S3Response.bucket_dispatch
        with lock:
            status, headers, body = verb(request, request.raw_url, request.headers)
        return status, headers, body.encode() if isinstance(body, str) else body

    def application(environ: dict[str, Any]) -> Reply:
        authorization: str = environ.get("HTTP_AUTHORIZATION", "")
        signed = {} if authorization else dict(parse_qsl(environ.get("QUERY_STRING", "")))
        if "X-Amz-Signature" in signed:
            authorization = f"Credential={signed['X-Amz-Credential']}"
            made = datetime.strptime(signed["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
            if time.time() > made.timestamp() + int(signed["X-Amz-Expires"]):
                return _error(403, "AccessDenied", "Request has expired")
        if mine not in authorization:
            code = "InvalidAccessKeyId" if "Credential=" in authorization else "AccessDenied"
            return _error(403, code, "The server lets only its own access key in")
        if environ["REQUEST_METHOD"] == "PUT" and "HTTP_IF_NONE_MATCH" in environ:
            if conditional_put == "refused":
                return _error(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
            if conditional_put == "ignored":
                del environ["HTTP_IF_NONE_MATCH"]
        try:
            return dispatch(environ)
        except Exception as error:  # noqa: BLE001 (a server answers whatever happens)
            return _error(500, "InternalError", f"{type(error).__name__}: {error}")

    return application


def _error(status: int, code: str, message: str) -> Reply:
    return status, {"Content-Type": "application/xml"}, _ERROR.format(code=code, message=message).encode()


def _exit_with_parent(stdin: IO[str]) -> None:
    """Exit when the parent closes its end of our standard input, or is gone (a fork of it may hold the pipe open)."""
    parent = os.getppid()
    while os.getppid() == parent:
        ready, _, _ = select.select([stdin], [], [], _PARENT_CHECK_S)
        if ready and not stdin.read(1):
            break
    os._exit(0)


def main(argv: list[str] | None = None) -> None:
    """Serve until interrupted; the module's docstring says what is printed."""
    parser = argparse.ArgumentParser(prog="python -m sluice.dev", description="moto's S3 server, for development")
    parser.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: loopback only)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="milliseconds added to every request")
    bucket = parser.add_mutually_exclusive_group()
    bucket.add_argument("--bucket", default="sluice", help="bucket made at the start (default: sluice)")
    bucket.add_argument("--no-bucket", action="store_const", const=None, dest="bucket", help="make no bucket")
    parser.add_argument("--conditional-put", choices=get_args(ConditionalPut), default="honoured", help="what to do with If-None-Match")
    parser.add_argument("--watch-parent", action="store_true", help="end when standard input is closed")
    arguments = parser.parse_args(argv)
    application = moto_application(arguments.conditional_put)
    if arguments.bucket:
        account = import_module("moto.core.models").DEFAULT_ACCOUNT_ID
        import_module("moto.s3.models").s3_backends[account]["aws"].create_bucket(arguments.bucket, REGION)
    gc.freeze()  # moto's modules are large: keep them out of every later collection
    with HttpServer(arguments.host, arguments.port, application, latency_s=arguments.latency_ms / 1000) as server:
        sys.stdout.write(json.dumps({"endpoint_url": f"http://{arguments.host}:{server.port}", "port": server.port}) + "\n")
        sys.stdout.flush()
        if arguments.watch_parent:
            threading.Thread(target=_exit_with_parent, args=(sys.stdin,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
