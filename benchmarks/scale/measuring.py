"""What each process spends while the clients write, and which of them is the ceiling."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from .store import COUNTS

__all__ = ["Look", "Point", "ceiling", "look", "requests_per_commit"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FULL: Final = 0.85
"""The share of what there is from which on a part counts as used up."""


@dataclass(frozen=True, slots=True)
class Look:
    """The machine at one moment: processor seconds of the parts, the store's counts, ZooKeeper's own."""

    leader_s: float
    followers_s: float
    store_s: float
    machine_s: float
    """Processor seconds of all processes of the machine, also of those that are no part of this."""
    requests: Mapping[str, int]
    fsync_ms: float
    """Sum of the leader's waits for its disk."""
    fsyncs: int


def look(servers: Mapping[int, int], store_pid: int, store_url: str) -> Look:
    """`servers` are the process ids of the ZooKeeper servers by port."""
    by_server = {port: _mntr(port) for port in servers}
    spent = {port: cpu_s(pid) for port, pid in servers.items()}
    leads = [port for port in servers if by_server[port].get("zk_server_state") in ("leader", "standalone")]
    leader = leads[0] if leads else next(iter(servers))
    with urllib.request.urlopen(f"{store_url}{COUNTS}", timeout=30) as answer:
        counts = json.load(answer)["requests"]
    return Look(
        leader_s=spent[leader],
        followers_s=sum(spent.values()) - spent[leader],
        store_s=cpu_s(store_pid),
        machine_s=machine_s(),
        requests=counts,
        fsync_ms=float(by_server[leader].get("zk_sum_fsynctime", 0)),
        fsyncs=int(float(by_server[leader].get("zk_cnt_fsynctime", 0))),
    )


def cpu_s(pid: int) -> float:
    """Processor seconds of a process, all its threads."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def machine_s() -> float:
    """Processor seconds of the whole machine that were not idle."""
    words = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(words[:8]) - words[3] - words[4]) / _TICKS


def _mntr(port: int) -> dict[str, str]:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"mntr")
        text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
    return dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one point of the matrix."""

    sweep: str
    """Which of the three numbers grows here."""
    system: str
    tables: int
    clients: int
    writers: int
    """For each table."""
    latency_ms: float
    commits: int
    commits_per_s: float
    versions_per_s: float
    p50_ms: float
    p99_ms: float
    lost: int
    duplicated: int
    unfinished: int
    cores: dict[str, float]
    """Cores that each part used: leader, followers, store, clients, other."""
    fsync_ms: float
    """Mean wait of ZooKeeper's leader for its disk."""
    requests: dict[str, float]
    """Requests to the store for each commit, by kind."""
    limit: str = ""

    @property
    def sound(self) -> bool:
        """Whether the tables hold exactly what was acknowledged."""
        return self.lost == 0 and self.duplicated == 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def cores_used(before: Look, after: Look, clients_s: float, seconds: float) -> dict[str, float]:
    """Cores that each part used between two looks; the clients tell their own processor time."""
    parts = {
        "leader": after.leader_s - before.leader_s,
        "followers": after.followers_s - before.followers_s,
        "store": after.store_s - before.store_s,
        "clients": clients_s,
    }
    parts["other"] = max(0.0, after.machine_s - before.machine_s - sum(parts.values()))
    return {name: round(spent / seconds, 3) for name, spent in parts.items()}


def requests_per_commit(before: Look, after: Look, commits: int) -> dict[str, float]:
    """By kind; what other threads ask for beside commits (checkpoints, comparisons of the log) is in it."""
    kinds = sorted(after.requests)
    return {kind: round((after.requests[kind] - before.requests.get(kind, 0)) / max(1, commits), 4) for kind in kinds}


def ceiling(cores: Mapping[str, float], available: int, fsync_ms: float, latency_ms: float, store_waits: Sequence[float]) -> str:
    """Which part is the ceiling: one whose processor is used up, or else what a commit waits for.

    The store of this benchmark and ZooKeeper's leader each handle most of their work in one thread, so one core is all that they can use.
    `store_waits` are the requests to the store that a commit waits for, by kind.
    """
    if sum(cores.values()) >= _FULL * available:
        parts = {name: used for name, used in cores.items() if name != "other"}
        most = max(parts, key=lambda name: parts[name])
        return "processor: other programs" if cores["other"] > parts[most] else f"processor: {most}"
    for part in ("store", "leader"):
        if cores[part] >= _FULL:
            return f"processor: {part}"
    return "waiting: store" if latency_ms * sum(store_waits) > fsync_ms * 3 else "waiting: ZooKeeper's disk"
