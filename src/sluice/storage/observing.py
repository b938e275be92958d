"""What this process does, told to who listens: requests to stores and to the coordinator, decisions, publications, deletions.

A class says which of its methods are told, and of what kind (`observed`). While somebody listens to a kind (`observe`), methods that
measure stand in the place of these. Without a listener the class has its own methods: nothing is measured, and no call costs more.

A listener is told when a method ended, in the thread that called it. It delays that thread, so it only counts, or puts aside.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Final, TypeVar

from .dataclass import dataclass

_C = TypeVar("_C")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """What was done: a method of the object `by` with these arguments; `error` is the class of what it raised, "" if it returned."""

    operation: str
    by: Any
    arguments: tuple[Any, ...]
    seconds: float
    result: Any
    error: str


Listener = Callable[[Done], object]
_listeners: Final[dict[str, list[Listener]]] = {}
_methods: Final[dict[str, list[tuple[type, str, str, Callable[..., Any]]]]] = {}
"""By kind: classes, names of methods, what these do, and the methods."""
_inside: Final = threading.local()
"""Its attributes are the kinds that this thread is doing."""


def observed(kind: str, **operations: str) -> Callable[[type[_C]], type[_C]]:
    """Tell the listeners of this kind of these methods, by the names of their operations; "" is the first word of the first argument.

    Of methods that call one another in one thread only the outer one is told. The block of a method that returns a context is a part of it.
    """

    def register(cls: type[_C]) -> type[_C]:
        _methods.setdefault(kind, []).extend((cls, name, operation, vars(cls)[name]) for name, operation in operations.items())
        if _listeners.get(kind):
            _put_in_place(kind)
        return cls

    return register


def observe(kind: str, listener: Listener) -> Callable[[], None]:
    """Tell `listener` of what this process does of a kind from now on; returns what ends that."""
    listeners = _listeners.setdefault(kind, [])
    listeners.append(listener)
    _put_in_place(kind)

    def end() -> None:
        if listener in listeners:
            listeners.remove(listener)
        _put_in_place(kind)

    return end


def _put_in_place(kind: str) -> None:
    for cls, name, operation, method in _methods.get(kind, ()):
        setattr(cls, name, _measuring(kind, operation, method) if _listeners.get(kind) else method)


def _measuring(kind: str, operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def measured(self: Any, *arguments: Any, **named: Any) -> Any:
        inside = vars(_inside)
        if kind in inside:
            return method(self, *arguments, **named)
        began = time.monotonic()

        def tell(result: Any, error: str) -> None:
            _tell(kind, Done(operation or str(arguments[0]).partition("_")[0], self, arguments, time.monotonic() - began, result, error))

        inside[kind] = True
        try:
            result = method(self, *arguments, **named)
        except BaseException as raised:
            tell(None, type(raised).__name__)
            raise
        finally:
            del inside[kind]
        if isinstance(result, AbstractContextManager):
            return _until_left(result, tell)
        tell(result, "")
        return result

    return measured


@contextmanager
def _until_left(block: AbstractContextManager[Any], tell: Callable[[Any, str], None]) -> Iterator[Any]:
    try:
        with block as value:
            yield value
    except BaseException as raised:
        tell(None, type(raised).__name__)
        raise
    tell(None, "")


def _tell(kind: str, done: Done) -> None:
    for listener in tuple(_listeners.get(kind, ())):
        try:
            listener(done)
        except Exception:  # noqa: BLE001 - what was done is not to blame
            _log.exception("a listener to %s failed", kind)
