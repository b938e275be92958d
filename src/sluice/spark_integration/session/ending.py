"""What is to be done before a session of sluice stops Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["end", "when_stopped"]

_todo: Final[list[Callable[[], None]]] = []


def when_stopped(do: Callable[[], None]) -> Callable[[], None]:
    """Have this done whenever a session of sluice is stopped; may decorate it."""
    _todo.append(do)
    return do


def end() -> None:
    """Do it."""
    for do in _todo:
        do()
