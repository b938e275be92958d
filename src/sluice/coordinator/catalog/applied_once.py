"""Changes that take effect once: after a lost reply the client knows whether its multi happened.

Each multi also creates a node of a fresh name, its mark. Once a barrier has returned, the mark exists exactly if the multi
took effect, whatever others have changed since. The client removes its mark when it has its answer; marks of clients that
died before that are removed by later changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ...storage.errors import Unavailable
from ..errors import SessionLost
from ..nodes.layout import CATALOG_CHANGES
from ..service.store import ApplyRefused, Create, NoNode, Op, ReplyLost, StoreError
from .meaning import Home

__all__ = ["applied_once"]

_ATTEMPTS: Final = 20
_FORGOTTEN_AFTER_MS: Final = 24 * 3600 * 1000
"""A mark is read within the time of one call; a day is longer than any."""


def applied_once(home: Home, ops: Sequence[Op]) -> bool:
    """Apply a multi exactly once, although replies and sessions get lost; False if it was refused, since others were faster.

    Its parent nodes must exist. Raises CoordinatorUnavailable, after which it may have taken effect if the coordinator went away
    before it could be asked.
    """
    mark = f"{CATALOG_CHANGES}/{uuid.uuid4().hex}"
    whole = [*ops, Create(mark, str(home.clock.now_ms()).encode())]
    for _ in range(_ATTEMPTS):
        try:
            home.connect().apply(whole)
        except ApplyRefused:
            return False
        except SessionLost:  # nothing was sent
            continue
        except ReplyLost:
            # check: lost-changes-of-names-are-looked-for (not _took_effect(home, mark) -> True)
            if not _took_effect(home, mark):
                continue
        _forget(home, mark)
        return True
    raise Unavailable("the coordinator's sessions end before a change of names is answered: try again")


def _took_effect(home: Home, mark: str) -> bool:
    while True:
        try:
            session = home.connect()
            session.barrier()
            return session.read(mark) is not None
        except SessionLost:
            continue


def _forget(home: Home, mark: str) -> None:
    """Remove this mark, and those that dead clients left. What fails is left to later changes."""
    with suppress(StoreError, Unavailable):
        session = home.connect()
        names = session.children(CATALOG_CHANGES) or ()
        others = session.read_many([f"{CATALOG_CHANGES}/{name}" for name in names if f"{CATALOG_CHANGES}/{name}" != mark])
        old = [node.path for node in others if node is not None and home.clock.now_ms() - int(node.data) > _FORGOTTEN_AFTER_MS]
        for path in (mark, *old):
            with suppress(NoNode):
                session.delete(path)
