"""An S3 that fails, as a program: moto's, behind what a network and a busy service do to requests.

``python -m tests.chaos.object_store JSON`` prints one line of JSON, `{"port": ..}`, when it is ready. Each line of its standard
input is a command: `{"faults": {"slowdown": 0.5, ..}}` sets how probable each kind is from now on, `{"finish": true}` writes
everything that is stored into a folder, answers with what happened how often, and ends. What is deleted is kept in another folder,
for the judge. Of two buckets, `honest` honours `If-None-Match`; `plain` ignores it, or refuses it.

=========  ==========================================================================================
slowdown   503 SlowDown, without effect
error      500 InternalError, without effect
mute       500 InternalError, after the effect
cut        the connection is closed, without effect
lost       the connection is closed after the effect
late       the connection of a PUT is closed, and it takes effect a second or two later
delay      up to a second before the effect
slow       the body of an answer comes in pieces, with pauses
torn       the connection breaks in the middle of an answer's body
=========  ==========================================================================================
"""

from __future__ import annotations

import gc
import json
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import responses
from importlib import import_module
from pathlib import Path
from typing import Any

from sluice.dev import REGION, HttpServer, Reply, moto_application

__all__ = ["BUCKETS", "KINDS", "main"]

BUCKETS = ("honest", "plain")
KINDS = ("slowdown", "error", "mute", "cut", "lost", "late", "delay", "slow", "torn")

_COMMIT = re.compile(r"/[^/]+/.*_delta_log/\d{20}\.json$")
_ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>not now</Message></Error>'
_SLOW = "X-Chaos-Body"


class Hangup(ConnectionError):
    """Raised to close a connection without an answer."""


@dataclass
class Store:
    """The application with its faults; `notes` lists what no writer of a log may do."""

    folder: Path
    seed: int
    conditional: str
    faults: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._inner = moto_application()
        self._backend = import_module("moto.s3.models").s3_backends[import_module("moto.core.models").DEFAULT_ACCOUNT_ID]["aws"]
        for bucket in BUCKETS:
            self._backend.create_bucket(bucket, REGION)
        self._random = random.Random(f"{self.seed}/object store")
        self._lock = threading.RLock()

    def __call__(self, environ: dict[str, Any]) -> Reply:
        self.counts["requests"] += 1
        kind = self._kind(environ["REQUEST_METHOD"])
        if kind:
            self.counts[kind] += 1
        if kind in ("slowdown", "error"):
            return _refusal(503, "SlowDown") if kind == "slowdown" else _refusal(500, "InternalError")
        if kind == "cut":
            raise Hangup
        if kind == "late":
            threading.Timer(self._random.uniform(0.3, 2.0), self._do, [environ]).start()
            raise Hangup
        if kind == "delay":
            time.sleep(self._random.uniform(0.05, 1.0))
        reply = self._do(environ)
        if kind == "lost":
            raise Hangup
        if kind == "mute":
            return _refusal(500, "InternalError")
        if kind in ("slow", "torn") and reply[2]:
            return reply[0], {**reply[1], _SLOW: kind}, reply[2]
        return reply

    def _kind(self, method: str) -> str:
        """What happens to a request; at most one thing."""
        drawn = self._random.random()
        for kind, probability in list(self.faults.items()):
            if drawn < probability:
                fits = method == "PUT" if kind == "late" else method == "GET" if kind in ("slow", "torn") else True
                return kind if fits else ""
            drawn -= probability
        return ""

    def _do(self, environ: dict[str, Any]) -> Reply:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method == "PUT" and path.startswith("/plain/") and "HTTP_IF_NONE_MATCH" in environ:
            if self.conditional == "refused":
                return _refusal(501, "NotImplemented")
            del environ["HTTP_IF_NONE_MATCH"]
        with self._lock:
            before = self._stored(path)
            if method == "DELETE" and before is not None:
                _write(self.folder / "deleted" / path.lstrip("/"), before)
            reply = self._inner(environ)
            if method == "PUT" and _COMMIT.match(path):
                self._watch_commit(path, before)
            return reply

    def _watch_commit(self, path: str, before: bytes | None) -> None:
        """A version's bytes never change, and it comes after the one before it."""
        number, after = int(path[-25:-5]), self._stored(path)
        if before is not None and before != after:
            self.notes.append(f"overwritten: {path} was put again with other bytes")
        if before is None and after is not None and number and self._stored(f"{path[:-25]}{number - 1:020d}.json") is None:
            self.notes.append(f"out of order: {path} was put before the version before it")

    def _stored(self, path: str) -> bytes | None:
        """The bytes of an object, "/bucket/key"; None where there is none."""
        bucket, _, key = path.lstrip("/").partition("/")
        known = self._backend.buckets.get(bucket)
        found = known.keys.get(key) if known is not None and key else None
        return None if found is None else found.value

    def dump(self) -> None:
        """Write everything that is stored below `kept`."""
        for bucket in BUCKETS:
            for name, key in self._backend.buckets[bucket].keys.items():
                _write(self.folder / "kept" / bucket / name, key.value)


def _write(path: Path, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def _refusal(status: int, code: str) -> Reply:
    return status, {"Content-Type": "application/xml"}, _ERROR.format(code).encode()


class _Server(HttpServer):
    """Also sends bodies that are slow, or break off."""

    def __init__(self, store: Store) -> None:
        super().__init__("127.0.0.1", 0, store)
        self.RequestHandlerClass = _connection_class(self.RequestHandlerClass)


def _connection_class(base: Any) -> Any:
    class Connection(base):  # type: ignore[misc]
        def _answer(self, method: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
            how = headers.get(_SLOW)
            if how is None:
                super()._answer(method, status, headers, body)
                return
            lines = [f"HTTP/1.1 {status} {responses.get(status, 'Unknown')}", f"Content-Length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() not in ("content-length", _SLOW.lower())]
            self.request.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
            half = len(body) // 2
            self.request.sendall(body[:half])
            if how == "torn":
                raise Hangup
            time.sleep(0.7)
            self.request.sendall(body[half:])

    return Connection


def main(folder: str, seed: int, conditional: str) -> None:
    """Serve until told to finish, or until standard input ends."""
    store = Store(Path(folder), seed, conditional)
    gc.freeze()
    with _Server(store) as server:
        print(json.dumps({"port": server.port}), flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for line in sys.stdin:
            command = json.loads(line)
            store.faults = command.get("faults", {})
            if command.get("finish"):
                store.dump()
                print(json.dumps({"counts": store.counts, "notes": store.notes}), flush=True)
                return


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
