"""The console as an ASGI application, and a server for it.

::

    GET  /                          the page; /static/... is what it loads
    GET  /healthz, /readyz          200, or 503: it serves; it reaches the coordinator
    GET  /api/settings              release, and whether there are actions
    GET  /api/status                the document of `sluice status`, not older than a second
    GET  /api/events                server-sent events: the document, whenever it has something new
    GET  /api/table?location=...    a table from near; /api/files?location=... its files by partition
    POST /api/actions/NAME          what the token allows

Texts of tables, clients and errors reach the page as JSON, and it shows them as text.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import json
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from uvicorn import Config, Server

from ...installation import __version__
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError, TableNotFound
from ..status import watching
from .actions import act
from .guard import Guard, read_token
from .table_page import TablePages
from .watcher import Watcher

_STILL_S: Final = 5.0
"""So often a page hears that nothing is new."""
_STATIC: Final = Path(__file__).with_name("static")


@dataclass(frozen=True, slots=True)
class Console:
    """What the console shows, and lets people do. The application must run in one process."""

    watcher: Watcher
    pages: TablePages
    act: Callable[[str, bytes, str], Any]
    token: str | None = None
    names: Sequence[str] = ()
    readers: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, 16))
    """So many threads read tables: those wait for the object store, too, and leave the others to the status and to actions."""

    @staticmethod
    def of(
        coordinator: str | None, storage_options: Mapping[str, str] | None = None, token_file: Path | None = None, names: Sequence[str] = ()
    ) -> Console:
        """The console of a coordinator; `names` are names of this machine that it answers to, beside the usual ones.

        Raises InvalidRequest for a token file that cannot be used."""
        token = None if token_file is None else read_token(token_file)
        watcher, action = Watcher(watching(coordinator)), partial(act, coordinator, storage_options)
        return Console(watcher, TablePages(coordinator, storage_options, watcher.now_ms), action, token, names)

    def application(self, host: str) -> Guard:
        """The ASGI application, which is to listen on this host."""
        routes = [
            Route("/", lambda _request: FileResponse(_STATIC / "index.html")),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route("/healthz", self._settings),
            Route("/readyz", self._ready),
            Route("/api/settings", self._settings),
            Route("/api/status", self._status),
            Route("/api/events", self._events),
            Route("/api/table", partial(self._about_table, self.pages.page)),
            Route("/api/files", partial(self._about_table, self.pages.files)),
            Route("/api/actions/{name}", self._act, methods=["POST"]),
        ]
        return Guard(Starlette(routes=routes, exception_handlers={SluiceError: _refused}), host, self.token, self.names)

    async def _settings(self, _request: Request) -> Response:
        return _in_json({"release": __version__, "actions": self.token is not None})  # also when all threads wait for the coordinator

    def _ready(self, _request: Request) -> Response:
        trouble = json.decode(self.watcher.now().text)["coordinator"]["trouble"]
        return _in_json(None) if trouble is None else _in_json({"error": trouble}, 503)

    def _status(self, _request: Request) -> Response:
        return Response(self.watcher.now().text, media_type="application/json")

    async def _events(self, _request: Request) -> Response:
        return StreamingResponse(self._news(), media_type="text/event-stream")

    async def _news(self) -> AsyncIterator[bytes]:
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(news.set)

        yield b"retry: 1000\n\n"
        with self.watcher.watched(wake):
            sent = 0
            while not self.watcher.over:
                seen = self.watcher.seen
                if seen.text and seen.number != sent:
                    sent = seen.number
                    yield b"id: %d\ndata: %b\n\n" % (seen.number, seen.text)
                elif seen.text:
                    yield b"event: still\ndata: %b\n\n" % seen.at.encode()
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(news.wait(), _STILL_S)
                news.clear()

    async def _about_table(self, read: Callable[[str], Any], request: Request) -> Response:
        async with self.readers:
            return await run_in_threadpool(lambda: _in_json(read(request.query_params.get("location", ""))))

    async def _act(self, request: Request) -> Response:
        peer, body = "" if request.client is None else request.client.host, await request.body()
        return await run_in_threadpool(lambda: _in_json(self.act(request.path_params["name"], body, peer)))


def _refused(_request: Request, trouble: Exception) -> Response:
    """Why a call cannot be answered."""
    assert isinstance(trouble, SluiceError)
    status = 404 if isinstance(trouble, TableNotFound) else 400 if isinstance(trouble, InvalidRequest) else 503
    return _in_json({"error": trouble.message}, status)


def _in_json(content: Any, status: int = 200) -> Response:
    return Response(json.encode(content), status, media_type="application/json")


def serve(console: Console, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve the console at http://host:port/; returns the port (a free one for 0), and what ends it.

    Raises OSError if the port is taken.
    """
    listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    settings: dict[str, Any] = {"log_level": "warning", "access_log": False, "lifespan": "off", "ws": "none", "server_header": False}
    server = Server(Config(console.application(host), **settings, timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="sluice-console", daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)

    def end() -> None:
        console.watcher.close()
        server.should_exit = True
        thread.join()
        listening.close()

    return listening.getsockname()[1], end
