"""Functions that run before a session of sluice stops Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_hooks: Final[list[Callable[[], None]]] = []


def when_stopped(do: Callable[[], None]) -> Callable[[], None]:
    """Call `do` whenever a session of sluice is stopped; works as a decorator."""
    _hooks.append(do)
    return do


def run_stop_hooks() -> None:
    """Call them all, in the order in which they came."""
    for do in _hooks:
        do()
