"""Coordinators' addresses: their syntax and meaning.

::

    embedded://                            the embedded ZooKeeper of this user, one server
    embedded:///directory?jars=/lib        one in its own directory, started from these jars
    zk://h1:2181,h2:2181,h3:2181/chroot    an ensemble; the port defaults to 2181, the chroot to /sluice
    memory://name                          a tree in the memory of this process, for tests

The embedded ones and ensembles take `retry_s`, `session_timeout_s` and `connect_timeout_s` (seconds), as in
`zk://h1/?retry_s=30`. Ensembles also take:

=======================  ===================================================================================================
``tls=true``             use TLS; the next four options need it
``ca=FILE``              certificates that may have signed the server's (PEM); by default, those the system trusts
``cert=FILE key=FILE``   this client's certificate and key; if one file has both, omit `key`
``verify_hostname``      "false" accepts a certificate for any host name
``credentials=FILE``     one line `user:password`; by default SLUICE_ZOOKEEPER_USER and SLUICE_ZOOKEEPER_PASSWORD are used
``auth``                 "digest" (the default with credentials), "sasl" (DIGEST-MD5), or "x509": the certificate alone
=======================  ===================================================================================================

An address contains no password, so it may be shown: one with a password is refused, and the error does not repeat it.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ...storage.arguments import RULES
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, UnknownScheme
from .store import check_path

TIMES = {"retry_s": 120.0, "session_timeout_s": 10.0, "connect_timeout_s": 15.0}
_TLS = {"ca", "cert", "key", "verify_hostname"}
_TRUST = {"tls", "auth", "credentials", *_TLS}
_OPTIONS = {"embedded": {*TIMES, "jars"}, "zk": {*TIMES, *_TRUST}, "memory": set[str]()}
_SHOWN = {"servers", *(name for names in _OPTIONS.values() for name in names)}
"""The options whose values have no secrets."""

_DEFAULT_PORT = 2181
_DEFAULT_CHROOT = "/sluice"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address; within a process, equal addresses mean the same session.

    `place` is a directory ("" for the user's own), hosts, or a name, depending on the scheme.
    """

    scheme: str
    place: str
    chroot: str = _DEFAULT_CHROOT
    jars: str | None = None
    retry_s: float = TIMES["retry_s"]
    session_timeout_s: float = TIMES["session_timeout_s"]
    connect_timeout_s: float = TIMES["connect_timeout_s"]
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify_hostname: bool = True
    auth: str | None = None
    credentials: str | None = None

    @staticmethod
    def parse(text: str | None) -> Address:
        """Parse an address; None means SLUICE_COORDINATOR, or `embedded://` if that is not set.

        Raises UnknownScheme or InvalidRequest, naming what was written and what is allowed.
        """
        return _parse(text if text is not None else os.environ.get("SLUICE_COORDINATOR") or "embedded://")

    def __str__(self) -> str:
        """The place, for people: without options."""
        return f"{self.scheme}://{self.place}{self.chroot if self.scheme == 'zk' else ''}"


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Address:
    scheme, separator, rest = text.partition("://")
    # without possible passwords: anything before an `@`, and the values of unknown options
    shown = re.sub(r"^([^/?]*://)?[^=]*@", r"\1***@", text)
    shown = re.sub(r"([?&])([^=&]*)=([^&]*)", lambda m: m[0] if unquote(m[2]) in _SHOWN else f"{m[1]}{m[2]}=***", shown)
    if not separator or scheme not in _OPTIONS:
        hint = f"; a ZooKeeper server is written zk://{shown}" if not separator else ""
        message = f"{shown!r} is not the address of a coordinator: it begins with embedded://, zk:// or memory://{hint}"
        raise UnknownScheme(message, address=shown)
    if not text.isprintable():
        raise InvalidRequest(f"{shown!r} is not the address of a coordinator: it holds a control character", address=shown)
    try:
        parts = urlsplit("//" + rest)
    except ValueError as cause:  # such as a bracket that is not closed
        message = f"{shown!r} is not the address of a coordinator: {cause}; write zk://host1:2181,host2:2181/chroot"
        raise InvalidRequest(message, address=shown) from None
    if "@" in (rest.partition("=")[0] if scheme == "zk" else parts.netloc):
        raise InvalidRequest(
            f"{shown!r}: credentials are not part of an address, which is shown and stored: set SLUICE_ZOOKEEPER_USER and "
            "SLUICE_ZOOKEEPER_PASSWORD, or name a file as ?credentials=/path",
            address=shown,
        )
    options = _options(shown, scheme, parts.query)
    if scheme == "embedded":
        if parts.netloc:
            message = f"{shown!r}: a directory is written with three slashes, embedded:///{parts.netloc}{parts.path}"
            raise InvalidRequest(message, address=shown)
        return Address(scheme, unquote(parts.path), **options)
    if scheme == "zk":
        _check_trust(shown, options)
        hosts, chroot = _hosts(shown, parts.netloc), unquote(parts.path).rstrip("/") or _DEFAULT_CHROOT
        check_path(chroot)
        return Address(scheme, hosts, chroot, **options)
    return Address(scheme, parts.netloc + parts.path)


def _options(text: str, scheme: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if (scheme, name) == ("embedded", "servers"):
            raise InvalidRequest(
                f"servers={value} in the address {text!r}: an embedded ZooKeeper has one server; leave servers out, or start an ensemble "
                "(docker-compose.yml has one of three servers) and name it with zk://h1:2181,h2:2181,h3:2181",
                address=text,
                option=name,
            )
        if name not in _OPTIONS[scheme]:
            known = ", ".join(sorted(_OPTIONS[scheme])) or "none"
            raise InvalidRequest(f"{text!r}: unknown option {name!r}, known are {known}", address=text, option=name)
        rule = RULES["key_file" if name == "key" else name]
        options[name] = rule.of_text(f"{name} in the address {text!r}", value, address=text, option=name)
    return options


def _check_trust(text: str, options: dict[str, Any]) -> None:
    """Raise InvalidRequest if the options for TLS and credentials contradict each other."""
    without = sorted(_TLS & options.keys())
    if without and not options.get("tls"):
        raise InvalidRequest(f"{text!r}: {', '.join(without)} need tls=true", address=text, option=without[0])
    if "key" in options and "cert" not in options:
        raise InvalidRequest(f"{text!r}: a key needs its certificate, cert=FILE", address=text, option="key")
    if options.get("auth") == "x509" and ("cert" not in options or "credentials" in options):
        raise InvalidRequest(f"{text!r}: auth=x509 needs tls=true and cert=FILE, without credentials", address=text, option="auth")


def _hosts(text: str, netloc: str) -> str:
    hosts = []
    for host in netloc.split(","):
        name, _, port = host.rpartition(":") if host.rpartition("]")[2].startswith(":") or host.count(":") == 1 else (host, "", "")
        port = port or str(_DEFAULT_PORT)
        if not name or not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidRequest(f"{text!r}: {host!r} is not host:port; write zk://host1:2181,host2:2181/chroot", address=text)
        hosts.append(f"{name}:{port}")
    return ",".join(hosts)
