"""The servers of a coordinator: which of them serve, whether they are in sync, and how many may fail.

Each server is asked for its state with the four-letter word `srvr`, which is open by default (see "ZooKeeper Commands: The Four
Letter Words" in ZooKeeper's administrator's guide). If an operator has closed it (`4lw.commands.whitelist`), an answer shows only
that the server runs.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from ..coordinator.api import Address, Line, Tls, Trust, hosts_of
from ..storage.caches import at_once
from .document import Server

_ASKING_S: Final = 2.0
_ANSWER_MAX: Final = 1 << 16
_PAUSE_S: Final = 0.1


def ask_servers(address: Address, timeout_s: float) -> tuple[Server, ...] | None:
    """The servers of an address with their states: () if it has none, None if they cannot be known. All are asked in parallel.

    A server is in sync if it reaches, in time, the transaction that the leader had at the first look.
    """
    if address.scheme == "memory":
        return ()
    hosts = hosts_of(address)
    if not hosts:
        return None
    return await_sync(hosts.split(","), Trust.of(address).tls if address.tls else None, min(timeout_s, _ASKING_S))


def await_sync(names: Sequence[str], tls: Tls | None, timeout_s: float) -> tuple[Server, ...]:
    """The servers of these names; the time of a server that does not answer is not taken from one that catches up."""
    target: int | None = None
    end = 0.0
    while True:
        servers = at_once(partial(ask_server, tls=tls, timeout_s=timeout_s), names, len(names), "sluice-status")
        if target is None:
            target = max((each.zxid for each in servers if each.state in ("leader", "standalone")), default=-1)
            end = time.monotonic() + timeout_s
        judged = tuple(replace(each, in_sync=_in_sync(each, target)) for each in servers)
        if not any(each.serves and each.in_sync is False for each in judged) or time.monotonic() >= end:
            return judged
        time.sleep(_PAUSE_S)


def _in_sync(server: Server, target: int) -> bool | None:
    """Whether a server has the transaction `target`; None if either is unknown."""
    if server.serves is False:
        return False
    return None if min(server.zxid, target) < 0 else server.zxid >= target


def ask_server(name: str, tls: Tls | None, timeout_s: float) -> Server:
    """The server of this name, "host:2181", as it answers within the time."""
    host, _, port = name.rpartition(":")
    address = (host.strip("[]"), int(port))
    try:
        with Line(tls).connect(address, timeout=timeout_s) if tls else socket.create_connection(address, timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(b"srvr")
            answer = b""
            while len(answer) < _ANSWER_MAX and (chunk := connection.recv(4096)):
                answer += chunk
    except OSError:
        return Server(name, "away")
    return server_of(name, answer.decode(errors="replace"))


def server_of(name: str, answer: str) -> Server:
    """What a server's answer to `srvr` says of it."""
    mode = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
    if mode is None:
        return Server(name, "not serving" if "not currently serving" in answer else "closed")
    zxid = re.search(r"^Zxid: 0x([0-9a-f]+)", answer, re.MULTILINE)
    return Server(name, mode[1], int(zxid[1], 16) if zxid else -1)


def margins(servers: Sequence[Server]) -> tuple[int | None, int | None]:
    """How many servers may stop before commits do, and how many disks may be lost before acknowledged commits are.

    A commit is acknowledged when a majority of the voting servers has it, so the disks of all but one of a majority may be lost. None if
    the servers do not show their states.
    """
    voters = [each for each in servers if each.state != "observer"]
    if not voters or any(each.serves is None for each in voters):
        return None, None
    majority = len(voters) // 2 + 1
    serving = sum(each.serves is True for each in voters)
    return max(0, serving - majority), majority - 1 if serving >= majority else None
