"""Who is connected: an ephemeral node per session, gone when the session is."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass

import orjson

from ..version import __version__
from .clock import SystemClock
from .layout import CLIENTS
from .store import CoordinationStore, NodeExists, ReplyLost

__all__ = ["Client", "announce", "list_clients"]


@dataclass(frozen=True, slots=True)
class Client:
    """One connected process, as it announced itself; `since_ms` is milliseconds since 1970 by its own clock."""

    id: str
    host: str
    pid: int
    application: str
    since_ms: int
    version: str


def announce(store: CoordinationStore, *, application: str, since_ms: int | None = None) -> str:
    """Make this session's node in `clients`, unless it is there, and return its path. `since_ms` defaults to now.

    The name is made of host, process and session, so that doing it again, also after a lost reply, changes nothing: the
    first application named in a session is the one that is shown.
    """
    host, pid = socket.gethostname(), os.getpid()
    since = SystemClock().now_ms() if since_ms is None else since_ms
    client = Client(f"{host}-{pid}-{store.session_id & (2**64 - 1):x}", host, pid, application, since, __version__)
    path = f"{CLIENTS}/{client.id}"
    body = asdict(client)
    del body["id"]  # it is the name
    store.ensure_path(CLIENTS)
    while True:
        try:
            return store.create(path, orjson.dumps(body), ephemeral=True)
        except NodeExists:
            return path
        except ReplyLost:
            store.barrier()


def list_clients(store: CoordinationStore) -> list[Client]:
    """The clients that are connected, oldest first. One that was killed is listed until its session times out."""
    names = store.children(CLIENTS) or []
    nodes = store.read_many([f"{CLIENTS}/{name}" for name in names])
    bodies = [(name, orjson.loads(node.data)) for name, node in zip(names, nodes, strict=True) if node is not None]
    clients = [Client(name, b["host"], b["pid"], b["application"], b["since_ms"], b["version"]) for name, b in bodies]
    return sorted(clients, key=lambda client: (client.since_ms, client.id))
