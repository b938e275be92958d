"""Small PUTs to S3 without boto3: signed here, and sent by urllib3, which boto3 uses, too.

For every request, boto3 determines again what hardly ever changes: the bucket's endpoint, the rules, checksums and signatures that apply,
the headers. That takes more processor time than the rest of an append. So one successful PUT of the ordinary client is inspected per
bucket, and later ones are made like it (`Route.of`). If anything about it is unusual, or the answer is neither "stored" nor "exists", the
ordinary client takes over: retries, redirects and errors are left to it. Decision 0018 has the reasons and figures.
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

STORED: Final = 200
"""The status of a stored object."""
ALREADY: Final = 412
"""The status if the object exists already."""

_KNOWN: Final = frozenset(
    {
        *("amz-sdk-invocation-id", "amz-sdk-request", "authorization", "content-length", "expect", "if-none-match", "user-agent"),
        *("x-amz-content-sha256", "x-amz-date", "x-amz-security-token"),
    }
)
"""The headers of an ordinary PUT; any other header means a request that is not understood here."""
_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]+)/(?P<day>\d{8})/(?P<region>[a-z0-9-]+)/s3/aws4_request, "
    r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=[0-9a-f]{64}"
)

_CONNECT_TIMEOUT_S: Final = 5.0
_ANSWER_TIMEOUT_S: Final = 60.0
_CONNECTIONS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that sign a request; its repr shows none of them."""

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
    """The Authorization header of a PUT with these lower-case headers, which include `x-amz-date` and `x-amz-content-sha256`.

    AWS Signature Version 4 for S3, for a request without a query; `path` is percent-encoded.
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
    """The common parts of all PUTs to a bucket: `prefix` is the path before the key, `host` the header."""

    tls: bool
    address: tuple[str, int]
    host: str
    prefix: str
    region: str
    user_agent: str

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str | bytes], key: str, credentials: Credentials | None) -> Route | None:
        """The route of a PUT that stored this object; None if anything about it is unusual, or signed in another way than here."""
        sent = {name.lower(): value.decode() if isinstance(value, bytes) else value for name, value in headers.items()}
        parts, path = urlsplit(url), quote(key, safe="/~")
        scope = _AUTHORIZATION.fullmatch(sent.get("authorization", ""))
        usual = scope is not None and _KNOWN.issuperset(sent) and parts.scheme in ("http", "https") and not parts.query
        if not usual or scope is None or credentials is None or not parts.hostname or not parts.path.endswith("/" + path):
            return None
        proxied = {parts.scheme, "all"} & getproxies().keys() and not proxy_bypass(parts.netloc)
        if parts.username is not None or ":" in parts.hostname or proxied:
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
        """Path and headers for a PUT of the object, with `absent` for one that replaces nothing."""
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

    def connections(self, trusted: Callable[[], ssl.SSLContext]) -> HTTPConnectionPool:
        """Connections to the bucket; `trusted` returns the accepted certificates."""
        timeout = Timeout(connect=_CONNECT_TIMEOUT_S, read=_ANSWER_TIMEOUT_S)
        if not self.tls:
            return HTTPConnectionPool(*self.address, timeout=timeout, maxsize=_CONNECTIONS_MAX)
        return HTTPSConnectionPool(*self.address, timeout=timeout, maxsize=_CONNECTIONS_MAX, ssl_context=trusted())


def put_directly(
    route: Route, connections: HTTPConnectionPool, key: str, data: bytes, credentials: Credentials | None, *, absent: bool
) -> int | None:
    """The answer's status if it is final: STORED, or ALREADY with `absent`. Other answers are left to the ordinary client.

    None without credentials or a complete answer: the object may have been stored.
    """
    if credentials is None or not (credentials.token or "x").isprintable():
        return None
    path, headers = route.request(key, data, credentials, time.time(), absent=absent)
    try:
        answer = connections.urlopen("PUT", path, body=data, headers=headers, retries=False, redirect=False, assert_same_host=False)
    except (HTTPError, OSError, ValueError):  # ValueError: invalid in a request
        return None
    return answer.status
