"""A real ZooKeeper that asks who comes: users for SASL, a port for TLS that demands certificates. Digest needs no setup."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sluice.coordinator.service.embedded.server import find_jars, find_java
from tests.chaos.ensemble import free_ports

SASL_USERS = {"loader": "marked-sasl-password", "other": "other-password"}

_CONFIG = """\
dataDir=./data
clientPort={plain}
clientPortAddress=127.0.0.1
secureClientPort={secure}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
tickTime=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
ssl.keyStore.location=./server.pem
ssl.trustStore.location=./ca.pem
ssl.clientAuth=need
"""


class Authority:
    """Signs certificates; its own is `ca`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._sign(self._name, self._key, is_ca=True)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, hosts: tuple[str, ...] = (), password: str | None = None) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._sign(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, hosts=hosts)
        sealed = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        cert, private = self._folder / f"{name}.cert.pem", self._folder / f"{name}.key.pem"
        cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed))
        return cert, private

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_ca: bool = False, hosts: tuple[str, ...] = ()
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if not is_ca:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host)) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


@dataclass(frozen=True, slots=True)
class Secured:
    """A running server: `plain` and `secure` are its addresses as host:port, `authority` signed its certificate."""

    plain: str
    secure: str
    authority: Authority
    folder: Path


@contextlib.contextmanager
def secured_server(folder: Path) -> Iterator[Secured]:
    folder.mkdir(parents=True)
    (folder / "data").mkdir()
    authority = Authority(folder / "certificates", "the authority")
    cert, key = authority.issue("server", hosts=("127.0.0.1",))
    (folder / "server.pem").write_bytes(key.read_bytes() + cert.read_bytes())
    shutil.copy(authority.ca, folder / "ca.pem")
    users = "\n".join(f'    user_{name}="{password}"' for name, password in SASL_USERS.items())
    jaas = f"Server {{\n    org.apache.zookeeper.server.auth.DigestLoginModule required\n{users};\n}};\n"
    (folder / "jaas.conf").write_text(jaas)
    plain, secure = free_ports(2)
    (folder / "zoo.cfg").write_text(_CONFIG.format(plain=plain, secure=secure))
    jars = find_jars()
    netty = sorted(jars[0].parent.glob("netty-*.jar"))
    command = [
        find_java(),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.security.auth.login.config=./jaas.conf",
        "-cp",
        os.pathsep.join(map(str, [*jars, *netty])),
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        "./zoo.cfg",
    ]
    with (folder / "server.log").open("wb") as said:
        server = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        for port in (plain, secure):
            _await_port(port, server, folder / "server.log")
        yield Secured(f"127.0.0.1:{plain}", f"127.0.0.1:{secure}", authority, folder)
    finally:
        server.kill()
        server.wait()


def _await_port(port: int, server: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert server.poll() is None, said.read_text()[-2000:]
            assert time.monotonic() < deadline, said.read_text()[-2000:]
            time.sleep(0.05)
        else:
            return
