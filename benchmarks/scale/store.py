"""An S3 server in memory that counts its requests: ``python -m benchmarks.scale.store --latency-ms 30``.

It prints one line of JSON with its port. It has what tables need (objects, conditional PUT, ranges, listings in order) and nothing else: no
uploads in parts, no copies, no signatures. `GET /-/counts` answers with the requests so far by kind, and the seconds spent in them.

moto, which the tests use, takes milliseconds for a request and handles one at a time: it would be what is measured.
"""

from __future__ import annotations

import argparse
import bisect
import gc
import hashlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from sluice.dev import HttpServer, Reply

__all__ = ["COUNTS", "MemoryS3", "main"]

COUNTS = "/-/counts"
_PAGE_KEYS = 1000


class MemoryS3:
    """The application; objects of all buckets in one mapping, since nothing here lists more than one folder of one bucket."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._busy_s = 0.0
        self._objects: dict[str, tuple[bytes, str, float]] = {}
        self._keys: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any]) -> Reply:
        """Answer a request, one at a time."""
        path = environ["PATH_INFO"].lstrip("/")
        if f"/{path}" == COUNTS:
            with self._lock:
                counted = {"requests": dict(self.counts), "busy_s": self._busy_s, "objects": len(self._objects)}
            return 200, {"Content-Type": "application/json"}, json.dumps(counted).encode()
        query = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
        begun = time.perf_counter()
        with self._lock:
            kind, reply = self._answer(environ, path, query)
            self.counts[kind] += 1
            self._busy_s += time.perf_counter() - begun
        return reply

    def _answer(self, environ: dict[str, Any], path: str, query: Mapping[str, str]) -> tuple[str, Reply]:
        method = environ["REQUEST_METHOD"]
        if method == "GET" and query.get("list-type") == "2":
            return "LIST", self._list(path.strip("/"), query)
        if method in ("GET", "HEAD"):
            return method, self._get(environ, path)
        if method == "PUT" and not query.keys() - {"x-id"}:
            return "PUT", self._put(environ, path)
        if method == "DELETE" and not query.keys() - {"x-id"}:
            if self._objects.pop(path, None) is not None:
                del self._keys[bisect.bisect_left(self._keys, path)]
            return "DELETE", (204, {}, b"")
        return f"{method} refused", _error(501, "NotImplemented")

    def _put(self, environ: dict[str, Any], path: str) -> Reply:
        if path in self._objects:
            if environ.get("HTTP_IF_NONE_MATCH") == "*":
                return _error(412, "PreconditionFailed")
        else:
            bisect.insort(self._keys, path)
        body: bytes = environ["wsgi.input"].read()
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        self._objects[path] = (body, etag, time.time())
        return 200, {"ETag": etag}, b""

    def _get(self, environ: dict[str, Any], path: str) -> Reply:
        if path not in self._objects:
            return _error(404, "NoSuchKey") if environ["REQUEST_METHOD"] == "GET" else (404, {}, b"")
        body, etag, modified = self._objects[path]
        headers = {"ETag": etag, "Last-Modified": formatdate(modified, usegmt=True), "Content-Type": "binary/octet-stream"}
        if environ["REQUEST_METHOD"] == "HEAD":
            return 200, {**headers, "Content-Length": str(len(body))}, b""
        span = environ.get("HTTP_RANGE", "").removeprefix("bytes=")
        if not span:
            return 200, headers, body
        first, _, last = span.partition("-")
        start = int(first) if first else max(0, len(body) - int(last))
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        if start >= len(body):
            return _error(416, "InvalidRange")
        return 206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(body)}"}, body[start:end]

    def _list(self, bucket: str, query: Mapping[str, str]) -> Reply:
        prefix, delimiter = f"{bucket}/{query.get('prefix', '')}", query.get("delimiter", "")
        after = f"{bucket}/{query.get('continuation-token') or query.get('start-after', '')}"
        keys, folders = list[str](), dict[str, None]()
        limit = int(query.get("max-keys", _PAGE_KEYS))
        position = max(bisect.bisect_left(self._keys, prefix), bisect.bisect_right(self._keys, after))
        truncated = ""
        while position < len(self._keys) and (key := self._keys[position]).startswith(prefix):
            head, separator, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            folder = f"{prefix}{head}{separator}"
            if len(keys) + len(folders) == limit and not (separator and folder in folders):
                truncated = self._keys[position - 1].removeprefix(f"{bucket}/")
                break
            if separator:
                folders[folder] = None
            else:
                keys.append(key)
            position += 1
        return 200, {"Content-Type": "application/xml"}, self._listing(bucket, keys, list(folders), truncated)

    def _listing(self, bucket: str, keys: list[str], folders: list[str], next_token: str) -> bytes:
        def entry(key: str) -> str:
            body, etag, modified = self._objects[key]
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(modified))
            name = escape(key.removeprefix(f"{bucket}/"))
            facts = f"<Key>{name}</Key><LastModified>{stamp}</LastModified><ETag>{escape(etag)}</ETag><Size>{len(body)}</Size>"
            return f"<Contents>{facts}</Contents>"

        common = (f"<CommonPrefixes><Prefix>{escape(each.removeprefix(f'{bucket}/'))}</Prefix></CommonPrefixes>" for each in folders)
        token = f"<NextContinuationToken>{escape(next_token)}</NextContinuationToken>" if next_token else ""
        is_truncated = str(bool(next_token)).lower()
        head = f"<Name>{bucket}</Name><KeyCount>{len(keys) + len(folders)}</KeyCount><IsTruncated>{is_truncated}</IsTruncated>"
        parts = "".join((head, token, *map(entry, keys), *common))
        return f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>{parts}</ListBucketResult>'.encode()


def _error(status: int, code: str) -> Reply:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{code}</Message></Error>'
    return status, {"Content-Type": "application/xml"}, body.encode()


def main() -> None:
    """Serve until standard input is closed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    gc.freeze()
    with HttpServer("127.0.0.1", 0, MemoryS3(), latency_s=arguments.latency_ms / 1000) as server:
        print(json.dumps({"port": server.port}), flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()


if __name__ == "__main__":
    main()
