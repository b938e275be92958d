"""One simulated client machine: its clock, its session, its way to the object store; and what goes wrong with them.

Every call of a service passes `Machine.call`, before it takes effect, and `Machine.reply`, before the answer arrives: there
other clients run, time passes, and faults happen.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import BinaryIO, TypeVar

from sluice.coordinator.formats import RENDERING, Release
from sluice.coordinator.nodes.presence import Presence
from sluice.coordinator.service.memory import Fault, MemorySession
from sluice.installation import ENGINE
from sluice.storage.arguments import check_folder, check_key
from sluice.storage.errors import StorageUnavailable
from sluice.storage.stores.memory import MemoryStore, Objects, listed_meanwhile
from sluice.storage.stores.objects import ObjectInfo

from .dice import Dice
from .faults import COORDINATION, Weather
from .history import Call, History, Stored
from .scheduler import Crashed, Event, Scheduler
from .witness import Witness

_T = TypeVar("_T")
_EPOCH_MS = 1_700_000_000_000
_HOUR_MS = 3_600_000
_PAGE = 4
"""Keys of one answer to a listing: what is stored between two answers may be missed or seen."""
_READ_IN_PARTS = 0.3
_SESSION_FAULTS = {
    "request-lost": Fault.REQUEST_LOST,
    "reply-lost": Fault.REPLY_LOST,
    "expired-before": Fault.EXPIRED_BEFORE,
    "expired-after": Fault.EXPIRED_AFTER,
}


@dataclass
class Surroundings:
    """What all machines of a run share."""

    scheduler: Scheduler
    dice: Dice
    weather: Weather
    history: History
    witness: Witness
    objects: Mapping[str, MemoryStore]
    connect: Callable[[str], MemorySession]
    restart: Callable[[Machine], None]
    conditional_put: bool
    folder_listings: bool = False
    session_timeout_s: float = 10.0
    retry_s: float = 15.0
    releases: str = "one"
    """What clients run, as `Conditions` says it."""
    application_of: Callable[[str, int], str] = lambda name, number: "simulated" if number % 3 else name
    """The application of a machine: those with quotas are several machines."""
    calendar_rate: float = 1.0
    """How many seconds of the calendar pass in one of the clocks: where days matter, a second is an hour."""


class SimulatedClock:
    """Virtual time as one machine sees it; its wall clock may be wrong."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def now_ms(self) -> int:
        return _EPOCH_MS + self._machine.skew_ms + int(self.monotonic_s() * self._machine.around.calendar_rate * 1000)

    def monotonic_s(self) -> float:
        return self._machine.around.scheduler.now

    def sleep(self, seconds: float) -> None:
        self._machine.around.scheduler.pause(seconds)

    def event(self) -> Event:
        """Something to wait for; what sets it is heard late."""
        return Event(self._machine.around.scheduler, self._machine.watch_delay)


@dataclass(eq=False)
class Machine:
    """A client machine, from its start to its crash."""

    name: str
    number: int
    around: Surroundings
    incarnation: int = 0
    dead: bool = False
    replaced: bool = False
    paused_until: float = 0.0
    skew_ms: int = 0
    doing: Call | None = None
    calls: int = 0
    draws: int = 0
    sessions: dict[str, list[MemorySession]] = field(default_factory=dict)
    """At each coordinator, by its address: the last one is the one in use."""
    presences: dict[str, Presence] = field(default_factory=dict)
    """The owners of its transactions there; made on first use."""

    def __post_init__(self) -> None:
        self._dice = self.around.dice.at(100 + self.number, self.incarnation)
        self.clock = SimulatedClock(self)
        self._stores = {location: SimulatedStore(self, location) for location in self.around.objects}
        self._pace = 0.3 + 2.5 * self.roll(20) ** 3
        self._cut_until = 0.0
        self._lingering = 0.0

    @property
    def release(self) -> Release:
        """The sluice that is installed: of older and newer ones, everybody has the newer one once nothing goes wrong any more."""
        around = self.around
        upgraded = self.incarnation > 0 or self.roll(30) < 0.5
        engine = "sluice/newer" if upgraded and around.releases != "one" else ENGINE
        if around.releases != "renderings":
            return Release(engine)
        return Release(engine, rendering=RENDERING + (upgraded or around.scheduler.now >= around.weather.until_s))

    def store_at(self, location: str) -> SimulatedStore:
        """The objects of a table as this machine reaches them."""
        return self._stores[location]

    def roll(self, *place: int) -> float:
        """A number for a place of this machine's life."""
        return self._dice.roll(*place)

    def draw(self) -> float:
        """The next number of this machine; for times that no fault is named by."""
        self.draws += 1
        return self.roll(21, self.draws)

    def guid(self) -> uuid.UUID:
        """A GUID that is the same in every run of the seed."""
        self.draws += 1
        high, low = (self._dice.bits(22, self.draws, n) for n in range(2))
        return uuid.UUID(int=high << 64 | low, version=4)

    def watch_delay(self) -> float:
        """How late a watch arrives: soon, mostly."""
        return 0.001 * self.draw() if self.draw() < 0.9 else 0.5 * self.draw()

    # -- calls of services -------------------------------------------------------------------------------------------

    def call(self, verb: str, *, coordinator: str | None = None, writes: bool = False) -> str | None:
        """A call of a coordinator, or of the store, is on its way: others run, and it is decided what goes wrong.

        Returns the fault that the service has to play, or None.
        """
        around, coordination, sessions = self.around, coordinator is not None, self.sessions.get(coordinator or "", [])
        self.calls += 1
        number = self.calls
        mean = 0.001 if coordination else 0.012
        around.scheduler.pause(mean * self._pace * (0.2 + self.roll(23, number)))
        fault = around.weather.fault(
            f"{self.name}.{self.incarnation}",
            self.number * 50 + self.incarnation,
            number,
            around.scheduler.now,
            coordination=coordination,
            writes=writes,
        )
        if fault is None:
            return None
        strength = self.roll(24, number)
        match fault:
            case "crash":
                self.crash()
                raise Crashed
            case "replaced":
                around.restart(self)
                self._stand_still(0.01 + 2.0 * strength**3)
            case "pause":
                self._stand_still(0.2 + 25.0 * strength**2)
            case "slow":
                around.scheduler.pause(0.1 + 8.0 * strength**2)
            case "clock":
                self.skew_ms = int((2 * strength - 1) * _HOUR_MS)
            case "expired-later":
                self._later(0.02 * strength, partial(self._expire, sessions))
            case "lag":
                self._fall_behind(sessions[-1], 1 + int(6 * strength), 0.05 + 2.0 * strength)
            case "cut":
                self._cut(sessions[-1], 0.05 + 20.0 * strength**2)
            case _:
                return fault
        return None

    def reply(self, *, coordination: bool) -> None:
        mean = 0.001 if coordination else 0.006
        lingering, self._lingering = self._lingering, 0.0
        self.around.scheduler.pause(mean * self._pace * self.draw() + lingering)

    def crash(self) -> None:
        """Die. The session is over when the service notices."""
        if self.dead:
            return
        self.dead = True
        self._later(self.around.session_timeout_s * (0.3 + 0.7 * self.draw()), self._expire)
        self.around.scheduler.wake_all(self)
        self.around.restart(self)

    def _stand_still(self, seconds: float) -> None:
        now = self.around.scheduler.now
        self.paused_until = now + seconds
        if seconds > self.around.session_timeout_s:
            self._later(self.around.session_timeout_s, self._expire)
        self.around.scheduler.pause(0.0)

    # -- the session -------------------------------------------------------------------------------------------------

    def connect(self, coordinator: str) -> MemorySession:
        """The session, a new one when the last is over."""
        sessions = self.sessions.setdefault(coordinator, [])
        if not sessions or sessions[-1].lost:
            self.around.scheduler.pause(0.002)
            sessions.append(self.around.connect(coordinator))
        return sessions[-1]

    def asked(self, coordinator: str, verb: str) -> Fault | None:
        """What the coordination service's twin asks before each call of this machine."""
        fault = self.call(verb, coordinator=coordinator, writes=verb in ("create", "write", "delete", "apply", "ensure_path"))
        patience = self.around.scheduler.now + self.around.retry_s
        sessions = self.sessions.get(coordinator)
        while sessions and not (sessions[-1].connected or sessions[-1].lost):
            wait_until = min(self._cut_until, patience)
            if wait_until <= self.around.scheduler.now:
                break
            self.around.scheduler.pause(wait_until - self.around.scheduler.now + 0.001)
        if fault in ("request-lost", "reply-lost"):  # nobody knows at once that a connection is gone
            self._lingering = 0.5 * self.draw() ** 3
        return None if fault is None else _SESSION_FAULTS.get(fault)

    def read_at_once(self, count: int) -> int:
        """How many of several nodes are read before others have their turn: requests in a row are no moment."""
        if count < 2 or self.roll(27, self.calls) >= _READ_IN_PARTS:
            return count
        return 1 + int(self.roll(28, self.calls) * (count - 1))

    def lose_lease(self, number: int) -> None:
        """Let the session expire while a change under a lease is on its way, sometimes."""
        name = f"{self.name}.{self.incarnation}:lease{number}"
        if self.around.weather.strikes(name, "expired-later", 0.4, self.roll(25, number), self.around.scheduler.now):
            self._later(0.15 * self.roll(26, number), self._expire)

    def heal(self) -> None:
        self.skew_ms = 0
        self._cut_until = self.around.scheduler.now
        for session in self.all_sessions():
            if not session.lost:
                session.reconnect()
                session.lag = 0

    def all_sessions(self) -> list[MemorySession]:
        return [session for sessions in self.sessions.values() for session in sessions]

    def _expire(self, sessions: Sequence[MemorySession] | None = None) -> None:
        for session in self.all_sessions() if sessions is None else sessions:
            if not session.lost:
                session.expire()

    def _fall_behind(self, session: MemorySession, transactions: int, seconds: float) -> None:
        session.lag = transactions

        def catch_up() -> None:
            session.lag = 0

        self._later(seconds, catch_up)

    def _cut(self, session: MemorySession, seconds: float) -> None:
        timeout = self.around.session_timeout_s
        self._cut_until = self.around.scheduler.now + min(seconds, timeout)
        session.disconnect()

        def reconnect() -> None:
            if not session.lost:
                session.reconnect() if seconds < timeout else session.expire()

        self._later(min(seconds, timeout), reconnect)

    def _later(self, seconds: float, event: Callable[[], None]) -> None:
        self.around.scheduler.at(self.around.scheduler.now + seconds, event)


class SimulatedStore:
    """The object store as one machine reaches it; implements ObjectStore."""

    def __init__(self, machine: Machine, location: str) -> None:
        self._machine = machine
        self._objects = machine.around.objects[location]

    @property
    def location(self) -> str:
        return self._objects.location

    @property
    def atomic_put_if_absent(self) -> bool:
        return self._machine.around.conditional_put

    def get(self, key: str) -> bytes:
        return self._call("get", partial(self._objects.get, key))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._call("get", partial(self._objects.get_range, key, offset, length))

    def open_input(self, key: str) -> BinaryIO:
        return self._call("get", partial(self._objects.open_input, key))

    def head(self, key: str) -> ObjectInfo:
        return self._call("head", partial(self._objects.head, key))

    def put(self, key: str, data: bytes) -> None:
        self._call("put", partial(self._store, check_key(key), data, self._machine.doing), writes=True)

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        """Write an object unless the key exists; in two steps where the store cannot do it in one."""
        data = data if isinstance(data, bytes) else data.read()
        check_key(key)
        if self.atomic_put_if_absent:
            return self._call("put", partial(self._store_if_absent, key, data, self._machine.doing), writes=True)
        if self._call("head", lambda: key in self._objects.disk.objects):
            return False
        self._call("put", partial(self._store, key, data, self._machine.doing), writes=True)
        return True

    def upload(self, key: str) -> AbstractContextManager[BinaryIO]:
        return self._upload(check_key(key))

    @contextmanager
    def _upload(self, key: str) -> Iterator[BinaryIO]:
        sink = _Sink()
        yield sink
        sink.close()
        self._call("put", partial(self._store, key, sink.content, self._machine.doing), writes=True)

    def delete(self, key: str) -> None:
        self._call("delete", partial(self._delete, check_key(key), self._machine.doing))

    @contextmanager
    def prepared_deletion(self, key: str) -> Iterator[Callable[[], None]]:
        yield partial(self.delete, key)

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        """The objects of a folder: page by page as a bucket's, or as a folder's on a disk; neither is one moment in time."""
        check_folder(prefix)
        if self._machine.around.folder_listings:
            yield from self._list_folder(prefix, start, recursive)
            return
        after: str | None = None
        while True:
            look = partial(self._objects.list_from, prefix, start if after is None else after, recursive=recursive)
            page = list(islice((each for each in self._call("list", look) if after is None or each.key > after), _PAGE))
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].key

    def _list_folder(self, prefix: str, start: str, recursive: bool) -> Iterator[ObjectInfo]:
        before = self._call("list", lambda: dict(self._objects.disk.objects))
        found = self._call("list", partial(self._shown, before))
        for key in sorted(found):
            if key >= start and key.startswith(prefix) and (recursive or "/" not in key[len(prefix) :]):
                yield ObjectInfo(key, len(found[key][0]), found[key][1])

    def _shown(self, before: Objects) -> Objects:
        return listed_meanwhile(before, self._objects.disk.objects, lambda _: self._machine.draw() < 0.5)

    # -- effects -----------------------------------------------------------------------------------------------------

    def _store(self, key: str, data: bytes, doing: Call | None) -> None:
        self._objects.put(key, data)
        self._note(key, bytes(data), doing)

    def _store_if_absent(self, key: str, data: bytes, doing: Call | None) -> bool:
        if key in self._objects.disk.objects:
            return False
        self._store(key, data, doing)
        return True

    def _delete(self, key: str, doing: Call | None) -> None:
        if key in self._objects.disk.objects:
            self._objects.delete(key)
            self._note(key, None, doing)

    def _note(self, key: str, content: bytes | None, doing: Call | None) -> None:
        history = self._machine.around.history
        history.at(self.location).stored.append(
            Stored(history.next_tick(), key, content, self._machine.name, doing, self._machine.release.rendering)
        )
        self._machine.around.witness.stored(self.location, key, content, self._machine.name)

    def _call(self, verb: str, effect: Callable[[], _T], *, writes: bool = False) -> _T:
        machine = self._machine
        fault = machine.call(verb, writes=writes)
        if fault in ("throttled", "request-lost"):
            raise StorageUnavailable(f"simulated: {verb} was not done ({fault})", code="SlowDown" if fault == "throttled" else "")
        if fault == "late":
            machine.around.scheduler.at(machine.around.scheduler.now + 12.0 * machine.draw() ** 2, lambda: (effect(), None)[1])
            raise StorageUnavailable(f"simulated: no answer to {verb}, which is still on its way")
        result = effect()
        machine.reply(coordination=False)
        if fault == "reply-lost":
            raise StorageUnavailable(f"simulated: the reply to {verb} was lost")
        return result


class _Sink(io.BytesIO):
    """A writable stream whose content outlives its closing."""

    content = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


assert set(_SESSION_FAULTS) <= set(COORDINATION)
