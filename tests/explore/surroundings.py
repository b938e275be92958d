"""Inside a small world chance, threads and what a thread holds come from the client's seat; outside they are the real ones."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from sluice.coordinator.leases import lease as leases
from sluice.coordinator.nodes import presence
from sluice.coordinator.publication import background

from .actor import current_seat

_T = TypeVar("_T")


class _AtOnce(Executor):
    """A pool that does what it is given in the client that gives it."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        future: Future[_T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as a pool does
            future.set_exception(error)
        return future


def _with_pools() -> list[ModuleType]:
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("sluice.") and module is not background]
    return [module for module in modules if getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor]


def _pool(*args: Any, **kwargs: Any) -> Executor:
    return _AtOnce()


class _OfSeat:
    """What production code keeps by thread, kept by seat."""

    def __init__(self, elsewhere: dict[str, Any]) -> None:
        object.__setattr__(self, "_elsewhere", elsewhere)

    def __getattribute__(self, name: str) -> Any:
        seat = current_seat()
        kept = object.__getattribute__(self, "_elsewhere") if seat is None else seat.kept
        if name not in kept:
            raise AttributeError(name)
        return kept[name]

    def __setattr__(self, name: str, value: object) -> None:
        seat = current_seat()
        kept = object.__getattribute__(self, "_elsewhere") if seat is None else seat.kept
        kept[name] = value


class _Chance:
    """GUIDs and random bits that count."""

    def __init__(self) -> None:
        self._setup = 0

    def guid(self) -> uuid.UUID:
        """The seat's next GUID; one of the setup's own outside of a seat."""
        seat = current_seat()
        if seat is not None:
            return seat.guid()
        self._setup += 1
        return uuid.UUID(int=self._setup, version=4)

    def bits(self, count: int) -> int:
        seat = current_seat()
        if seat is not None:
            return seat.bits(count)
        self._setup += 1
        return self._setup & ((1 << count) - 1)

    def below(self, bound: int) -> int:
        return self.bits(64) % bound


@contextmanager
def in_a_small_world() -> Iterator[None]:
    """Let production code draw from its seat, work in its own thread, and leave alone what outlives a client.

    What a client owes when it was acknowledged as ratified is left to others: it may always have died right then.
    """
    chance = _Chance()
    patches: list[Any] = [
        patch.object(uuid, "uuid4", chance.guid),
        patch.object(presence, "secrets", SimpleNamespace(randbits=chance.bits, randbelow=chance.below)),
        patch.object(background, "_drain_at_exit", lambda: None),
        patch.object(background.Background, "submit", lambda *_, **__: None),
        patch.object(leases, "_of_thread", _OfSeat({})),
        *(patch.object(module, "ThreadPoolExecutor", _pool) for module in _with_pools()),
    ]
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
        logging.disable(before)
