"""Clients elsewhere, played in this process: with sessions and presences of their own, which may die, sleep and come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import orjson

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.nodes.presence import Presence
from sluice.coordinator.service.clock import Clock, SystemClock
from sluice.coordinator.service.memory import MemoryCoordination, MemorySession
from sluice.coordinator.service.tree import Tree
from sluice.storage.constants import COORDINATOR_KEY
from sluice.storage.log.segment import latest_version
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.location import normalise, open_store
from sluice.storage.stores.memory import MemoryDisk, MemoryStore
from sluice.tables.client.address import TableAddress
from sluice.tables.client.open_table import OpenTable

from .conftest import Place

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS


def disk_of(place: Place) -> MemoryDisk:
    """What stores the table."""
    return MemoryStore(place.location).disk


def service_of(place: Place) -> MemoryCoordination:
    """What coordinates the table's writers."""
    return MemoryCoordination.named(place.coordinator.removeprefix("memory://"))


def lose_everything(place: Place) -> None:
    """Every server of the coordinator comes back with an empty disk."""
    service = service_of(place)
    with service.lock:
        for session in list(service._sessions.values()):
            session.expire()
        service.tree = Tree()


def former_of(place: Place) -> str | None:
    """The coordinator that the table names, if there is a table and it names one."""
    store = open_store(normalise(place.location))
    return None if latest_version(store) is None else Snapshot.load(store).configuration.get(COORDINATOR_KEY)


def later(place: Place, ms: int) -> None:
    """Let the object store's clock go on."""
    disk_of(place).clock_ms = lambda: time.time_ns() // 1_000_000 + ms


def expire_all(place: Place) -> None:
    """All connected clients are paused for longer than their sessions last."""
    for session in list(service_of(place)._sessions.values()):
        session.expire()


def rested(place: Place) -> None:
    """Nothing that a client sent before its session ended takes effect any more."""
    session, path = service_of(place).connect(), TableTree(normalise(place.location)).deleter_left
    left = session.read(path)
    if left is not None:
        session.write(path, orjson.dumps({**orjson.loads(left.data), "since_ms": 0}), version=-1)


def beside_fast_writers(places: Sequence[Place], work: Callable[[], object]) -> list[int]:
    """Run it while twenty writers raise the delay of JFK's rows in these tables by one again and again; returns how often in each."""
    stop = threading.Event()

    def fast(number: int) -> int:
        mine, done = places[number % len(places)].open(application=f"fast-{number}"), 0
        while not stop.is_set():
            try:
                mine.update({"delay": "delay + 1"}, "origin = 'JFK'")
                done += 1
            except sluice.errors.ConcurrentModification:
                continue
        return done

    with ThreadPoolExecutor(20) as pool:
        running = [pool.submit(fast, n) for n in range(20)]
        try:
            work()
        finally:
            stop.set()
        done = [each.result(60) for each in running]
    return [sum(done[number :: len(places)]) for number in range(len(places))]


@dataclass
class Writer:
    """A client elsewhere: a session, a presence and caches of its own."""

    place: Place
    limits: Limits = field(default_factory=Limits)
    clock: Clock = field(default_factory=SystemClock)
    storage_options: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.service = service_of(self.place)
        self.session: MemorySession = self.service.connect()
        self.address = TableAddress.of(self.place.location, self.place.coordinator, self.storage_options)
        self.presence = Presence(self.connect, application="writer", clock=self.clock)
        context = TableContext(
            self.address.store(),
            TableTree(self.address.location),
            self.connect,
            self.clock,
            self.limits,
            presence=self.presence,
            coordinator=self.place.coordinator,
        )
        self.access = OpenTable(self.address, context)
        self.table = sluice.Table(self.access)

    def connect(self) -> MemorySession:
        if self.session.lost:
            self.session = self.service.connect()
        return self.session

    def dies(self) -> None:
        """Its process is gone, and its session has expired."""
        self.session.expire()
