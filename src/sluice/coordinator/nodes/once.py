"""Changes that take effect once: after a lost reply the client knows whether its multi happened.

Each multi also creates a node of a fresh name, its mark. Once a barrier has returned, the mark exists exactly if the multi
took effect, whatever others have changed since. The client removes its mark when it has its answer; marks of clients that
died before that are removed by later changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ...storage.errors import Unavailable
from ..errors import SessionLost
from ..service.clock import Clock
from ..service.store import CoordinationStore, Create, NoNode, Op, ReplyLost, StoreError
from .layout import CATALOG_CHANGES

__all__ = ["apply_once"]

_ATTEMPTS: Final = 20
_FORGOTTEN_AFTER_MS: Final = 24 * 3600 * 1000
"""A mark is read within the time of one call; a day is longer than any."""


def apply_once(connect: Callable[[], CoordinationStore], ops: Sequence[Op], clock: Clock) -> None:
    """Apply a multi exactly once, although replies and sessions get lost.

    Its parent nodes must exist. Raises ApplyRefused if it was refused; CoordinatorUnavailable, after which it may have taken
    effect if the coordinator went away before it could be asked.
    """
    mark = f"{CATALOG_CHANGES}/{uuid.uuid4().hex}"
    whole = [*ops, Create(mark, str(clock.now_ms()).encode())]
    for _ in range(_ATTEMPTS):
        try:
            connect().apply(whole)
        except SessionLost:  # nothing was sent
            continue
        except ReplyLost:
            # check: lost-changes-of-names-are-looked-for (not _took_effect(connect, mark) -> True)
            if not _took_effect(connect, mark):
                continue
        _forget(connect, mark, clock)
        return
    raise Unavailable("the coordinator's sessions end before a change of names is answered: try again")


def _took_effect(connect: Callable[[], CoordinationStore], mark: str) -> bool:
    while True:
        try:
            session = connect()
            session.barrier()
            return session.read(mark) is not None
        except SessionLost:
            continue


def _forget(connect: Callable[[], CoordinationStore], mark: str, clock: Clock) -> None:
    """Remove this mark, and those that dead clients left. What fails is left to later changes."""
    with suppress(StoreError, Unavailable):
        session = connect()
        names = session.children(CATALOG_CHANGES) or ()
        others = session.read_many([f"{CATALOG_CHANGES}/{name}" for name in names if f"{CATALOG_CHANGES}/{name}" != mark])
        old = [node.path for node in others if node is not None and clock.now_ms() - int(node.data) > _FORGOTTEN_AFTER_MS]
        for path in (mark, *old):
            with suppress(NoNode):
                session.delete(path)
