"""Coordinators' addresses: what may be written, and what it means.

::

    embedded://                                  the embedded ZooKeeper of this user, one server
    embedded:///directory?servers=3&jars=/lib    one of its own in a directory, three servers, started from these jars
    zk://h1:2181,h2:2181,h3:2181/chroot          an ensemble; the port defaults to 2181, the chroot to /sluice
    memory://name                                a tree in the memory of this process, for tests

`retry_s`, `session_timeout_s` and `connect_timeout_s` (seconds) may be given to the first three, as in
`zk://h1/?retry_s=30`.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ..storage.errors import InvalidRequest, UnknownScheme
from .requests import check_path

__all__ = ["Address"]

_TIMES = {"retry_s": 120.0, "session_timeout_s": 10.0, "connect_timeout_s": 15.0}
_OPTIONS = {"embedded": {*_TIMES, "servers", "jars"}, "zk": {*_TIMES}, "memory": set[str]()}
_DEFAULT_PORT = 2181
_DEFAULT_CHROOT = "/sluice"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address; equal addresses mean the same session of a process.

    `place` is a directory ("" for the user's own), hosts, or a name, according to the scheme.
    """

    scheme: str
    place: str
    chroot: str = _DEFAULT_CHROOT
    servers: int | None = None
    jars: str | None = None
    retry_s: float = _TIMES["retry_s"]
    session_timeout_s: float = _TIMES["session_timeout_s"]
    connect_timeout_s: float = _TIMES["connect_timeout_s"]

    @staticmethod
    def parse(text: str | None) -> Address:
        """The address written as `text`; None means SLUICE_COORDINATOR, and `embedded://` when that is not set.

        Raises UnknownScheme or InvalidRequest, naming what was written and what may be.
        """
        return _parse(text or os.environ.get("SLUICE_COORDINATOR") or "embedded://")


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Address:
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _OPTIONS:
        hint = f"; a ZooKeeper server is written zk://{text}" if not separator else ""
        raise UnknownScheme(
            f"{text!r} is not the address of a coordinator: it begins with embedded://, zk:// or memory://{hint}", address=text
        )
    parts = urlsplit("//" + rest)
    options = _options(text, scheme, parts.query)
    if scheme == "embedded":
        if parts.netloc:
            raise InvalidRequest(
                f"{text!r}: a directory is written with three slashes, embedded:///{parts.netloc}{parts.path}", address=text
            )
        return Address(scheme, unquote(parts.path), **options)
    if scheme == "zk":
        return Address(scheme, _hosts(text, parts.netloc), _chroot(parts.path), **options)
    return Address(scheme, parts.netloc + parts.path)


def _options(text: str, scheme: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS[scheme]:
            known = ", ".join(sorted(_OPTIONS[scheme])) or "none"
            raise InvalidRequest(f"{text!r}: unknown option {name!r}, known are {known}", address=text, option=name)
        try:
            options[name] = value if name == "jars" else int(value) if name == "servers" else float(value)
        except ValueError as error:
            raise InvalidRequest(f"{text!r}: {name}={value!r} is not a number", address=text, option=name) from error
    return options


def _hosts(text: str, netloc: str) -> str:
    hosts = []
    for host in netloc.split(","):
        name, _, port = host.rpartition(":") if host.rpartition("]")[2].startswith(":") or host.count(":") == 1 else (host, "", "")
        port = port or str(_DEFAULT_PORT)
        if not name or not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidRequest(f"{text!r}: {host!r} is not host:port; write zk://host1:2181,host2:2181/chroot", address=text)
        hosts.append(f"{name}:{port}")
    return ",".join(hosts)


def _chroot(path: str) -> str:
    chroot = unquote(path).rstrip("/") or _DEFAULT_CHROOT
    check_path(chroot)
    return chroot
