"""A small threaded HTTP/1.1 server with keep-alive, for test doubles of web services.

The servers of Python's web frameworks close the connection after every request (Werkzeug's also adds 10 ms), so that
measuring a client would measure the server. This one keeps connections, reads a whole request before it calls the
application, and answers with one write.
"""

from __future__ import annotations

import socket
import socketserver
import time
from collections.abc import Callable, Mapping
from http.client import responses
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

__all__ = ["Application", "HttpServer", "Reply"]

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
        self._read_headers(environ)
        body = self._read_body(environ)
        environ["CONTENT_LENGTH"] = str(len(body))
        environ["wsgi.input"] = BytesIO(body)
        return environ

    def _read_headers(self, environ: dict[str, Any]) -> None:
        while (line := self.rfile.readline(_MAX_HEADER_LINE).rstrip(b"\r\n")) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            key = name.upper().replace("-", "_")
            if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                key = "HTTP_" + key
            value = value.strip()
            environ[key] = f"{environ[key]},{value}" if key in environ else value

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
