"""Authentication in both directions: this client's credentials and access lists, and the servers it trusts (TLS).

Passwords come from the environment or from a file, never from an address. They are held as `Secret`, a text that shows
itself as `***`, and removed from what the client library logs of its handshake.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from ....installation import install_command
from ....storage.dataclass import dataclass
from ....storage.errors import InvalidRequest
from ..address import Address

USER_VARIABLE: Final = "SLUICE_ZOOKEEPER_USER"
PASSWORD_VARIABLE: Final = "SLUICE_ZOOKEEPER_PASSWORD"  # noqa: S105
KEY_PASSWORD_VARIABLE: Final = "SLUICE_ZOOKEEPER_KEY_PASSWORD"  # noqa: S105

_REMEDY = f"set {USER_VARIABLE} and {PASSWORD_VARIABLE}, or name a file with one line user:password as ?credentials=/path in the address"


_SEALED: Final = re.compile(r"(scheme='digest', id='[^':]*:)[^']*'")


class Secret(str):
    """A text that is not shown: its repr, and the repr of objects that hold it, has `***` instead. It cannot be pickled."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __reduce_ex__(self, protocol: object) -> Any:
        raise InvalidRequest("a password is not pickled: every process reads its own from the environment or from the file")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files for TLS: the accepted signers of server certificates (None: those the system trusts), and this client's certificate.

    `key` may be None if the certificate's file has it, too.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: Secret = field(default=Secret(), repr=False)
    verify_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """The TLS context for this client's connections. Raises InvalidRequest, naming the file that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify_hostname
        if self.ca is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _use(f"ca={self.ca}", "certificates in PEM form of who signed the server's", lambda: context.load_verify_locations(self.ca))
        if self.cert is not None:
            cert, key = self.cert, self.key
            files = f"cert={cert}" + (f", key={key}" if key else "")
            wanted = f"this client's certificate and its private key in PEM form, the key's password in {KEY_PASSWORD_VARIABLE}"
            # Always a callable, even without a password: otherwise OpenSSL would ask at the terminal.
            _use(files, wanted, lambda: context.load_cert_chain(cert, key, lambda: str.__str__(self.key_password)))
        return context


def _use(files: str, wanted: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise InvalidRequest(f"{files} cannot be used ({error}): name {wanted}") from error


@dataclass(frozen=True, slots=True)
class Trust:
    """What a client shows to ZooKeeper.

    `scheme` says who gets the rights on its nodes: "digest" and "sasl" (only `user`), "x509" (only the subject of the
    client's certificate), "" (anybody who reaches the server).
    """

    scheme: str = ""
    user: str = ""
    password: Secret = field(default=Secret(), repr=False)
    tls: Tls | None = None

    @staticmethod
    def of(address: Address, environment: Mapping[str, str] | None = None) -> Trust:
        """From the address and the environment. Raises InvalidRequest if they are contradictory or incomplete."""
        environment = os.environ if environment is None else environment
        if address.scheme != "zk":
            return Trust()
        tls = None
        if address.tls:
            password = Secret(environment.get(KEY_PASSWORD_VARIABLE, ""))
            tls = Tls(address.ca, address.cert, address.key, password, address.verify_hostname)
        if address.auth == "x509":
            return Trust("x509", tls=tls)
        user, password = _credentials(address.credentials, environment)
        if not user and address.auth:
            raise InvalidRequest(f"auth={address.auth} needs a user and a password: {_REMEDY}", option="auth")
        if not user:
            return Trust(tls=tls)
        scheme = address.auth or "digest"
        if scheme == "sasl" and importlib.util.find_spec("puresasl") is None:
            raise InvalidRequest(f"auth=sasl needs the package pure-sasl: {install_command('sasl')}", option="auth")
        return Trust(scheme, user, password, tls)

    @property
    def access(self) -> tuple[str, str] | None:
        """The only owner of all rights on this client's nodes, as ZooKeeper's scheme and id; None: everybody."""
        if self.scheme == "digest":
            sealed = hashlib.sha1(f"{self.user}:{str.__str__(self.password)}".encode(), usedforsecurity=False).digest()
            return "digest", f"{self.user}:{base64.b64encode(sealed).decode()}"
        if self.scheme == "sasl":
            return "sasl", self.user
        return ("auth", "") if self.scheme == "x509" else None

    @property
    def auth_data(self) -> list[tuple[str, str]]:
        """What the client library sends after connecting."""
        return [("digest", Secret(f"{self.user}:{str.__str__(self.password)}"))] if self.scheme == "digest" else []

    @property
    def sasl_options(self) -> dict[str, str] | None:
        """The options that the client library passes to pure-sasl."""
        return {"mechanism": "DIGEST-MD5", "username": self.user, "password": self.password} if self.scheme == "sasl" else None

    def __str__(self) -> str:
        """The client's name in messages."""
        if self.scheme == "x509":
            return f"the holder of {self.tls.cert if self.tls else None}"
        return f"user {self.user!r} ({self.scheme})" if self.scheme else "a client without credentials"


def _credentials(file: str | None, environment: Mapping[str, str]) -> tuple[str, Secret]:
    """User and password, from the file if one is named, else from the environment; "" if there are none."""
    if file:
        where = file
        try:
            text = Path(file).expanduser().read_text()
        except (OSError, ValueError) as error:  # the contents are not shown
            raise InvalidRequest(f"credentials={file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
        user, _, password = text.strip("\r\n").partition(":")
        if not user or not password or "\n" in password:
            raise InvalidRequest(f"credentials={file} does not hold one line user:password")
    else:
        where = USER_VARIABLE
        user, password = environment.get(USER_VARIABLE, ""), Secret(environment.get(PASSWORD_VARIABLE, ""))
        if bool(user) != bool(password):
            set_variable, unset_variable = (USER_VARIABLE, PASSWORD_VARIABLE) if user else (PASSWORD_VARIABLE, USER_VARIABLE)
            raise InvalidRequest(f"{set_variable} is set and {unset_variable} is not: set both or neither")
    if ":" in user or not user.isprintable():
        raise InvalidRequest(f"the user named by {where} holds a colon or a control character")
    return user, Secret(password)


class Line:
    """Makes one client's connections through TLS, and remembers the last trouble.

    `refused` is set when this client or the server refused the other for good: trying again changes nothing. `trouble` is
    the last error of any kind. Both are None once the server answered through a connection.
    """

    def __init__(self, tls: Tls) -> None:
        self._context = tls.context()
        self._context.sslsocket_class = _telling(self)
        self.refused: str | None = None
        self.trouble: str | None = None

    def connect(self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any) -> ssl.SSLSocket:
        """A connection after its TLS handshake; replaces the library's `create_connection`, so it takes the same parameters."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return self._context.wrap_socket(plain, server_hostname=hostname or address[0])
        except OSError as error:
            plain.close()
            self.note(error)
            raise

    def note(self, error: OSError) -> None:
        """Remember trouble; alerts and invalid certificates are refusals."""
        self.trouble = str(error)
        if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            self.refused = str(error)

    def heard(self) -> None:
        """The server answered this client."""
        self.refused = self.trouble = None


def _telling(line: Line) -> type[ssl.SSLSocket]:
    """Sockets that report to the line: with TLS 1.3 a server refuses the client's certificate only after the handshake."""

    class Telling(ssl.SSLSocket):
        def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
            try:
                data = super().recv(buflen, flags)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except OSError as error:
                line.note(error)
                raise
            if data:
                line.heard()
            return data

    return Telling


def ready(look: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt the library's `select`, which sees the kernel's buffers only, to sockets with decrypted bytes of their own."""

    def select_(
        readers: Sequence[Any], writers: Sequence[Any], errors: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        holding = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending() > 0]
        readable, writable, failed = look(readers, writers, errors, 0 if holding else timeout)
        return [*holding, *(each for each in readable if each not in holding)], list(writable), list(failed)

    return select_


class Discreet(logging.Filter):
    """Keeps credentials and session passwords out of the client library's log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Log the handshake's requests by name only; suppress what is below the debug level."""
        if record.levelno < logging.DEBUG:
            return False
        if isinstance(record.args, tuple):
            record.args = tuple(type(arg).__name__ if type(arg).__name__ in ("Auth", "Connect", "SASL") else arg for arg in record.args)
        if record.levelno == logging.DEBUG:  # this level shows access lists with hashes of passwords
            record.msg, record.args = _SEALED.sub(r"\1***'", record.getMessage()), ()
        return True
