"""Asks each server of a ZooKeeper ensemble for its state, with the four-letter word `srvr`, which is open by default.

See "ZooKeeper Commands: The Four Letter Words" in ZooKeeper's administrator's guide. If an operator has closed it
(`4lw.commands.whitelist`), an answer shows only that the server runs.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ...storage.dataclass import dataclass
from .zookeeper.trust import Line, Tls

_ANSWER_MAX: Final = 1 << 16
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Server:
    """One server: `state` is "leader", "follower", "observer", "standalone", "not serving", "away" or "closed".

    "not serving": it runs but belongs to no quorum; "away": it does not answer; "closed": it answers without its state.
    `zxid` is the number of its last transaction; -1 if it is unknown.
    """

    host: str
    state: str
    zxid: int = -1

    @property
    def serves(self) -> bool | None:
        """Whether clients may use it; None if unknown."""
        return None if self.state == "closed" else self.state in ("leader", "follower", "observer", "standalone")


def ask_servers(hosts: str, *, tls: Tls | None = None, timeout_s: float = 2.0) -> tuple[Server, ...]:
    """Ask the servers in `hosts` ("h1:2181,h2:2181") in parallel; the result is in the same order."""
    names = hosts.split(",")
    with ThreadPoolExecutor(len(names), thread_name_prefix="sluice-health") as pool:
        return tuple(pool.map(lambda name: _ask(name, tls, timeout_s), names))


def await_sync(look: Callable[[], Sequence[Server]], timeout_s: float) -> tuple[Sequence[Server], tuple[str, ...]]:
    """The servers, and those that did not reach, in time, the transaction that the leader had at the first look."""
    servers = look()
    target = max((each.zxid for each in servers if each.state == "leader"), default=-1)
    end = time.monotonic() + timeout_s
    while True:
        behind = tuple(each.host for each in servers if each.serves and 0 <= each.zxid < target)
        if not behind or time.monotonic() >= end:
            return servers, behind
        time.sleep(_PAUSE_S)
        servers = look()


def _ask(name: str, tls: Tls | None, timeout_s: float) -> Server:
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
    return _server(name, answer.decode(errors="replace"))


def _server(name: str, answer: str) -> Server:
    mode = re.search(r"^Mode: (\w+)", answer, re.MULTILINE)
    if mode is None:
        return Server(name, "not serving" if "not currently serving" in answer else "closed")
    zxid = re.search(r"^Zxid: 0x([0-9a-f]+)", answer, re.MULTILINE)
    return Server(name, mode[1], int(zxid[1], 16) if zxid else -1)
