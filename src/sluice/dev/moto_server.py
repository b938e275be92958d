"""An S3 server for tests, demos and measurements: moto's, in its own process, on a free port of the loopback interface.

As a program: ``python -m sluice.dev.moto_server --port 5000 --latency-ms 30`` prints one line of JSON when it is ready.
From Python::

    with S3DevServer(latency_ms=30) as server:
        store = open_store("s3://sluice/table", server.options)

moto is not thread-safe (two conditional PUTs of one key may both succeed), so requests are handled one at a time, under a
lock; the added latency is slept outside it, in each connection's thread. moto is called directly: its Flask application
would double the cost.

Only the server's own access key is accepted, so that wrong credentials fail as in production; signatures are not checked.
A request that was signed in advance (its signature is in the query) is refused when its time is over.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import select
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import parse_qsl

from ..installation import install_command
from ..storage.errors import InvalidRequest, StorageUnavailable
from .http_server import Application, HttpServer, Reply

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ConditionalPut", "S3DevServer", "main", "moto_application"]

ConditionalPut = Literal["honoured", "ignored", "refused"]
"""The reaction to `If-None-Match` in a PUT: like S3; overwrite all the same; answer 501 NotImplemented."""

ACCESS_KEY_ID = "sluice-dev"
SECRET_ACCESS_KEY = "sluice-dev-secret"  # noqa: S105 (guards nothing)
REGION = "us-east-1"

_MODULE = "sluice.dev.moto_server"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_PARENT_CHECK_S = 1.0
_ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'


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
        command = [sys.executable, "-m", _MODULE, "--port", "0", "--latency-ms", str(self.latency_ms), "--watch-parent"]
        command += ["--conditional-put", self.conditional_put, *(["--bucket", self.bucket] if self.bucket else ["--no-bucket"])]
        source = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        try:
            self._port = int(json.loads(self._first_line())["port"])
        except BaseException:
            self.stop()
            raise
        return self

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise StorageUnavailable(f"the S3 development server did not start within {_START_TIMEOUT_S:.0f} s; its own message is above")
        return line

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


def _make_bucket(bucket: str) -> None:
    account = import_module("moto.core.models").DEFAULT_ACCOUNT_ID
    import_module("moto.s3.models").s3_backends[account]["aws"].create_bucket(bucket, REGION)


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
    parser = argparse.ArgumentParser(prog="python -m sluice.dev.moto_server", description="moto's S3 server, for development")
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
        _make_bucket(arguments.bucket)
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
