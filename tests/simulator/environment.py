"""Inside a simulation, chance, threads and time come from the simulator.

Production code draws GUIDs with `uuid.uuid4`, reads and writes files side by side in thread pools, and publishes and writes
checkpoints in threads of its own. In a simulated thread the GUIDs come from the machine's dice, pools run their work at
once, and threads, locks and what is kept per thread are simulated ones. Other threads of the process get the real things.
"""

from __future__ import annotations

import concurrent.futures
import gc
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from importlib import import_module
from itertools import count
from pkgutil import iter_modules
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import sluice.coordinator
import sluice.storage
import sluice.tables
from sluice.coordinator import api
from sluice.coordinator.leases import lease as leases
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes import presence
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.publication import background, publisher
from sluice.coordinator.publication.background import Background
from sluice.coordinator.service import clock
from sluice.coordinator.service.clock import Clock, Deadline, Timeout
from sluice.storage.data import datafiles, numbers, vectors
from sluice.storage.log import checkpoint_writer
from sluice.tables.client.address import TableAddress
from sluice.tables.maintain import rewriting
from sluice.tables.maintain.background import Checkpointer
from sluice.tables.manage import moving, recovery
from sluice.tables.write import numbering

from .decoding import decoded_once
from .machine import Machine
from .scheduler import Crashed, Event, Lock, Task, TaskLocal, current

_T = TypeVar("_T")
_uuid4 = uuid.uuid4
_RUNS_BETWEEN_COLLECTIONS = 8
"""A run's circles are let go of some runs later."""


def _machine() -> Machine | None:
    task = current()
    owner = None if task is None else task.owner
    return owner if isinstance(owner, Machine) else None


def _guid() -> uuid.UUID:
    machine = _machine()
    return _uuid4() if machine is None else machine.guid()


def _time_ns() -> int:
    machine = _machine()
    return time.time_ns() if machine is None else machine.clock.now_ms() * 1_000_000


def _bits(count: int) -> int:
    machine = _machine()
    return secrets.randbits(count) if machine is None else (machine.guid().int ^ machine.guid().int << 61) & (1 << count) - 1


def _below(limit: int) -> int:
    machine = _machine()
    return secrets.randbelow(limit) if machine is None else machine.guid().int % limit


class _AtOnce(Executor):
    """A pool that does what it is given in the thread that gives it."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Do it; a crash of the machine goes right through."""
        future: Future[_T] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Crashed:
            raise
        except BaseException as error:  # noqa: BLE001 - as a pool does
            future.set_exception(error)
        return future


def _pool(*args: Any, **kwargs: Any) -> Executor:
    return ThreadPoolExecutor(*args, **kwargs) if _machine() is None else _AtOnce()


class _Threads(Executor):
    """A machine's pool, with a simulated thread for each work."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        future: Future[_T] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - as a pool does
                future.set_exception(error)

        self._machine.around.scheduler.spawn(self._machine, work, f"{self._machine.name} background")
        return future


_real_pool = background._pool


def _background_pool() -> Executor:
    machine = _machine()
    return _real_pool() if machine is None else _Threads(machine)


def _wait(futures: Collection[Future[Any]], timeout: float | None = None) -> Any:
    """`concurrent.futures.wait`, in virtual time where that is what there is."""
    machine = _machine()
    if machine is None:
        return concurrent.futures.wait(futures, timeout)
    wake = machine.clock.event()
    for each in futures:
        each.add_done_callback(lambda _: wake.set())
    end = machine.clock.monotonic_s() + (1e9 if timeout is None else timeout)
    while not all(each.done() for each in futures) and machine.clock.monotonic_s() < end:
        wake.clear()
        wake.wait(end - machine.clock.monotonic_s())
    done = {each for each in futures if each.done()}
    return concurrent.futures.wait(done)._replace(not_done=set(futures) - done)


class _Thread:
    """The part of `threading.Thread` that a checkpointer uses."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...] = (), name: str = "", daemon: bool = True) -> None:
        machine = _machine()
        assert machine is not None
        self._machine = machine
        self._target, self._args, self._name = target, args, name
        self._done = Event(machine.around.scheduler, lambda: 0.0)

    def start(self) -> None:
        self._machine.around.scheduler.spawn(self._machine, self._run, f"{self._machine.name} {self._name}")

    def _run(self) -> None:
        self._target(*self._args)
        self._done.set()

    def join(self, timeout: float | None = None) -> None:
        self._done.wait(timeout)


def _lock() -> Any:
    machine = _machine()
    return threading.Lock() if machine is None else Lock(machine.around.scheduler)


class _RLock:
    """A lock among simulated threads that its holder may take again."""

    def __init__(self, machine: Machine) -> None:
        self._lock = Lock(machine.around.scheduler)
        self._holder: Task | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True) -> bool:
        """Take it, or say that another holds it."""
        task = current()
        if task is None or self._holder is not task:
            if not self._lock.acquire(blocking):
                return False
            self._holder = task
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
            self._lock.release()


def _rlock() -> Any:
    machine = _machine()
    return threading.RLock() if machine is None else _RLock(machine)


def _thread(*args: Any, **kwargs: Any) -> Any:
    return threading.Thread(*args, **kwargs) if _machine() is None else _Thread(*args, **kwargs)


class _Threading:
    """The module `threading` as the modules of sluice see it."""

    Lock = staticmethod(_lock)
    RLock = staticmethod(_rlock)
    Thread = staticmethod(_thread)

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


def _import_all() -> None:
    """Import what sluice imports only when it is needed: a module that came during a run would keep what is replaced in it."""
    for package in (sluice.coordinator, sluice.storage, sluice.tables):
        for module in iter_modules(package.__path__, package.__name__ + "."):
            import_module(module.name)


_import_all()


@lru_cache(maxsize=1)
def _replaced(_modules: int) -> list[tuple[ModuleType, str, Any, Any]]:
    """What is replaced in all modules of sluice that have been imported: module, name, what it is, and what it shall be."""
    found: list[tuple[ModuleType, str, Any, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("sluice."):
            continue
        if getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor and module is not background:
            found.append((module, "ThreadPoolExecutor", ThreadPoolExecutor, _pool))
        if getattr(module, "threading", None) is threading:
            found.append((module, "threading", threading, _Threading()))
    return found


@contextmanager
def _garbage_collected_by_the_scheduler() -> Iterator[None]:
    """What hangs together in a circle is let go of at steps that the seed tells: weak references see when that is."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        _runs_over()


_runs = count(1)


def _runs_over() -> None:
    if next(_runs) % _RUNS_BETWEEN_COLLECTIONS == 0:
        gc.collect()


@contextmanager
def simulated_environment(
    *, inline_vector_bytes: int, forget_every: int, term_s: float, address_of: Callable[[Machine, str, str | None], TableAddress]
) -> Iterator[None]:
    """Give simulated threads the simulator's chance, threads and time; vectors beyond that size are files.

    Old refusals are looked for with every so many batches, clients count terms of `term_s`; `address_of` says how a machine
    reaches a location at a coordinator.
    """

    def address(location: str, coordinator: str | None = None, *_: object) -> TableAddress:
        machine = _machine()
        assert machine is not None
        return address_of(machine, location, coordinator)

    def bounding(limit: Timeout, by: Clock | None = None) -> AbstractContextManager[Deadline]:
        machine = _machine()
        return clock.bounding(limit, by if machine is None else by or machine.clock)

    def context(plain: TableAddress, limits: Limits | None = None) -> TableContext:
        return address(plain.location, plain.coordinator).context(limits)

    before, before_too = set(Background._all), set(Checkpointer._all)
    patches: list[Any] = [
        patch.object(uuid, "uuid4", _guid),
        patch.object(background, "_pool", _background_pool),
        patch.object(background, "wait", _wait),
        patch.object(background, "_drain_at_exit", lambda: None),
        patch.object(leases, "_of_thread", TaskLocal()),
        patch.object(presence, "secrets", SimpleNamespace(randbits=_bits, randbelow=_below)),
        patch.object(presence, "_TERM_S", term_s),
        patch.object(TableAddress, "context", context),
        patch.object(recovery, "TableAddress", SimpleNamespace(of=address)),
        patch.object(moving, "TableAddress", SimpleNamespace(of=address)),
        patch.object(api, "bounding", bounding),
        patch.object(checkpoint_writer, "time", SimpleNamespace(time_ns=_time_ns)),
        patch.object(datafiles, "time", SimpleNamespace(time_ns=_time_ns)),
        patch.object(publisher, "FORGET_EVERY", forget_every),
        patch.object(vectors, "INLINE_BYTES_MAX", inline_vector_bytes),
        patch.object(numbering, "_AHEAD_MIN", 6),  # so that a few rows raise the marks of identity columns
        patch.object(numbering, "ROWS_OF_TASK", 30),
        patch.object(numbering, "TASKS_MAX", 2),
        patch.object(numbers, "TASKS_MAX", 2),
        patch.object(rewriting, "_PIECE_ROWS", 2),  # so that a few rows are many pieces
    ]
    replaced = _replaced(len(sys.modules))
    for module, name, _, simulated in replaced:
        setattr(module, name, simulated)
    try:
        with ExitStack() as patched, _garbage_collected_by_the_scheduler(), decoded_once():
            for each in patches:
                patched.enter_context(each)
            yield
    finally:
        for module, name, real, _ in replaced:
            setattr(module, name, real)
        for left in set(Background._all) - before:  # nobody drains them at the end of the process
            Background._all.discard(left)
        for written in set(Checkpointer._all) - before_too:
            Checkpointer._all.discard(written)
