"""Small PUTs to S3 the short way: signed here, and sent by urllib3, which boto3 sends by, too.

boto3 works out for every request what hardly ever changes: where the bucket is, which rules, checksums and signatures apply, what the
headers are. That takes more processor time than all the rest of an append. So a PUT of the ordinary client that succeeded is looked
at once per bucket, and later ones are made like it (`Route.of`). Whatever is unusual about it, and whatever has another answer than
"stored" or "there is one already", is left to the ordinary client: retries, redirects and errors are its alone.
Decision 0018 has the reasons, and the figures.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.exceptions import HTTPError

from ..dataclass import dataclass

__all__ = ["ALREADY", "STORED", "Credentials", "DirectPuts", "Route", "signed"]

STORED: Final = 200
"""The status that says that the object is stored."""
ALREADY: Final = 412
"""The status that says that there is an object already."""

_KNOWN: Final = frozenset(
    {
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "authorization",
        "content-length",
        "expect",
        "if-none-match",
        "user-agent",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-security-token",
    }
)
"""The headers of an ordinary PUT; with any other one something is asked for that is not known here."""
_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]+)/(?P<day>\d{8})/(?P<region>[a-z0-9-]+)/s3/aws4_request, "
    r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=[0-9a-f]{64}"
)

_CONNECT_TIMEOUT_S: Final = 5.0
_ANSWER_TIMEOUT_S: Final = 60.0
_CONNECTIONS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request is signed with; shows nothing of it."""

    key: str
    secret: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(***)"


@lru_cache(maxsize=16)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def signed(credentials: Credentials, region: str, path: str, headers: Mapping[str, str]) -> str:
    """The Authorization header of a PUT with these headers, in lower case, `x-amz-date` and `x-amz-content-sha256` among them.

    This is AWS Signature Version 4 for S3, of a request without a query; `path` is percent-encoded.
    """
    names = sorted(headers)
    listed, when, content = ";".join(names), headers["x-amz-date"], headers["x-amz-content-sha256"]
    canonical = "\n".join(["PUT", path, "", *(f"{name}:{headers[name]}" for name in names), "", listed, content])
    scope = f"{when[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{when}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.digest(_signing_key(credentials.secret, when[:8], region), text.encode(), "sha256").hex()
    return f"AWS4-HMAC-SHA256 Credential={credentials.key}/{scope}, SignedHeaders={listed}, Signature={signature}"


@dataclass(frozen=True, slots=True)
class Route:
    """What is the same for all PUTs to a bucket: `prefix` is the path before the key, `host` what the header says."""

    tls: bool
    address: tuple[str, int]
    host: str
    prefix: str
    region: str
    user_agent: str

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str | bytes], key: str, credentials: Credentials | None) -> Route | None:
        """From a PUT that stored the object of this key; None where anything about it is not as usual.

        The signature that is computed here for it has to be the one that it has.
        """
        sent = {name.lower(): value.decode() if isinstance(value, bytes) else value for name, value in headers.items()}
        parts, path = urlsplit(url), quote(key, safe="/~")
        scope = _AUTHORIZATION.fullmatch(sent.get("authorization", ""))
        usual = scope is not None and _KNOWN.issuperset(sent) and parts.scheme in ("http", "https") and not parts.query
        if not usual or scope is None or credentials is None or not parts.hostname or not parts.path.endswith("/" + path):
            return None
        if parts.username is not None or ":" in parts.hostname or _through_proxy(parts.scheme, parts.netloc):
            return None
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        host = parts.hostname if port == (443 if tls else 80) else f"{parts.hostname}:{port}"
        sealed = {name: host if name == "host" else sent.get(name, "") for name in scope["names"].split(";")}
        if not {"x-amz-date", "x-amz-content-sha256"} <= sealed.keys():
            return None
        if signed(credentials, scope["region"], parts.path, sealed) != sent["authorization"]:
            return None
        prefix = parts.path[: len(parts.path) - len(path)]
        return cls(tls, (parts.hostname, port), host, prefix, scope["region"], sent.get("user-agent", ""))

    def request(self, key: str, data: bytes, credentials: Credentials, now_s: float, *, absent: bool) -> tuple[str, Mapping[str, str]]:
        """Path and headers of a PUT of the object, with `absent` of one that replaces nothing."""
        headers = {
            "host": self.host,
            "x-amz-content-sha256": hashlib.sha256(data).hexdigest(),
            "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s)),
        }
        if absent:
            headers["if-none-match"] = "*"
        if credentials.token:
            headers["x-amz-security-token"] = credentials.token
        path = self.prefix + quote(key, safe="/~")
        headers["authorization"] = signed(credentials, self.region, path, headers)
        headers["user-agent"], headers["content-length"] = self.user_agent, str(len(data))
        return path, headers


def _through_proxy(scheme: str, netloc: str) -> bool:
    return bool({scheme, "all"} & getproxies().keys()) and not proxy_bypass(netloc)


class DirectPuts:
    """The short way to the buckets of one ordinary client. Safe for several threads; not for a process forked from this one."""

    def __init__(self, credentials: Callable[[], Credentials | None], trusted: Callable[[], ssl.SSLContext]) -> None:
        """`credentials` gives those of now, `trusted` says whose certificates count, as the ordinary client has them."""
        self._credentials = credentials
        self._trusted = trusted
        self._ways: dict[str, tuple[Route, HTTPConnectionPool] | None] = {}

    def knows(self, bucket: str) -> bool:
        """Whether it was found out how PUTs get to the bucket, or that they go the ordinary way only."""
        return bucket in self._ways

    def learn(self, bucket: str, key: str, url: str, headers: Mapping[str, str | bytes]) -> None:
        """Take an ordinary PUT that stored the object of this key as the example for others to the bucket."""
        route = Route.of(url, headers, key, self._credentials())
        self._ways[bucket] = None if route is None else (route, self._connections(route))

    def unlearn(self, bucket: str) -> None:
        """Leave all PUTs to the bucket to the ordinary client, which did what was refused here."""
        self._ways[bucket] = None

    def put(self, bucket: str, key: str, data: bytes, *, absent: bool) -> int | None:
        """The answer's status when it is final: STORED, or ALREADY with `absent`. Another one is to be heard from the ordinary client.

        None when there is no way, or no whole answer: the object may have been stored.
        """
        way, credentials = self._ways.get(bucket), self._credentials()
        if way is None or credentials is None or not (credentials.token or "x").isprintable():
            return None
        route, connections = way
        path, headers = route.request(key, data, credentials, time.time(), absent=absent)
        try:
            answer = connections.urlopen("PUT", path, body=data, headers=headers, retries=False, redirect=False, assert_same_host=False)
        except (HTTPError, OSError, ValueError):  # ValueError: what no request can hold
            return None
        return answer.status

    def _connections(self, route: Route) -> HTTPConnectionPool:
        timeout = Timeout(connect=_CONNECT_TIMEOUT_S, read=_ANSWER_TIMEOUT_S)
        name, port = route.address
        if not route.tls:
            return HTTPConnectionPool(name, port, timeout=timeout, maxsize=_CONNECTIONS_MAX)
        return HTTPSConnectionPool(name, port, timeout=timeout, maxsize=_CONNECTIONS_MAX, ssl_context=self._trusted())
