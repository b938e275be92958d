"""Who is answered, and what browsers may do with the answers: around the application, so that no page can forget it."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...storage.errors import InvalidRequest

TOKEN_HEADER: Final = b"x-sluice-token"
_TOKEN_MIN: Final = 16
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final[Sequence[tuple[bytes, bytes]]] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_SECRET: Final = re.compile("secret|pass(word|wd|phrase)|token|credential|private|(access|account|api)key|signature|sas|connectionstring")


class Guard:
    """An ASGI application around another one; `host` is the one that the server listens on, `token` allows actions, `allowed` are other
    names of this machine: a proxy's, for example.

    A request must name this machine as its host: a page of another site may have let its own name resolve to this machine (DNS
    rebinding). One that changes something must have the token in a header, which no page of another site may send.
    """

    def __init__(self, application: ASGIApp, host: str, token: str | None, allowed: Sequence[str] = ()) -> None:
        self._application = application
        self._allowed = {each.lower() for each in allowed}
        self._names = {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower(), *self._allowed}
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        refusal = self._refusal(scope["method"], dict(scope["headers"]))
        if refusal is None:
            await self._application(scope, receive, with_headers)
        else:
            status, why = refusal
            await PlainTextResponse(f"{why}\n", status)(scope, receive, with_headers)

    def _refusal(self, method: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Status and reason for a request that is not answered."""
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            return 421, "this is the console of sluice: open it by the address of its machine, by localhost, or by an --allow-host"
        if method in ("GET", "HEAD"):
            return None
        if method != "POST" or self._token is None:
            return 405, "the console only shows, unless it was started with --token-file"
        origin = headers.get(b"origin", b"").decode("latin-1")
        site = headers.get(b"sec-fetch-site", b"same-origin")
        from_host = origin.partition("://")[2] if origin else host
        if (from_host != host and _name_in(from_host) not in self._allowed) or site not in (b"same-origin", b"none"):
            return 403, "the request comes from a page of another site"
        if not hmac.compare_digest(headers.get(TOKEN_HEADER, b""), self._token.encode()):
            return 401, "the token is missing, or is not the one in the console's --token-file"
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether a host of a request is this machine; an address is always, because no name was resolved."""
        name = _name_in(host)
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name in self._names
        return True


def _name_in(host: str) -> str:
    """A host without its port."""
    return (host.rpartition(":")[0] if host.rpartition("]")[2].startswith(":") or host.count(":") == 1 else host).lower()


def read_token(path: Path) -> str:
    """The token in a file. Raises InvalidRequest for a short token, and for a file that not only its owner and its group may read.

    Kubernetes lets the group of a pod read its mounted secrets.
    """
    try:
        mode, text = path.stat().st_mode, path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the token file {path} cannot be read: {error}; name a file with one line, the token") from error
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IRWXO):
        raise InvalidRequest(f"other users can read the token file {path}, or its group can change it: chmod 600 {path}")
    if len(text) < _TOKEN_MIN or not text.isascii() or not text.isprintable() or " " in text:
        rule = f"at least {_TOKEN_MIN} printable characters of ASCII without spaces"
        raise InvalidRequest(f"the token in {path} is not {rule}: openssl rand -hex 32 > {path}")
    return text


def masked(properties: dict[str, str]) -> dict[str, Any]:
    """Properties without the values of those whose names say that they are secret."""
    return {name: "***" if _SECRET.search(re.sub("[-_.]", "", name.lower())) else value for name, value in properties.items()}
