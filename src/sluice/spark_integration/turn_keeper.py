"""A process that keeps the turn of one Spark write; started by `turns`, told on its standard input what to ask for."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import Final

from ..coordinator.errors import SessionLost
from ..coordinator.service.clock import Deadline
from ..storage.errors import SluiceError, Unavailable
from ..tables.client.access import Access
from ..tables.client.leasing import reserve
from .turns import Asked

__all__: list[str] = []

_LOOK_S: Final = 1.0


def _keep(asked: Asked) -> None:
    access = Access.coordinated(asked.address)
    turn = reserve([(access, asked.where)], asked.name, asked.leases, lasts_s=asked.lasts_s, wait=Deadline.after(asked.wait_s))
    if turn is None:
        return
    print(json.dumps(turn.paths), flush=True)  # noqa: T201 - the answer
    session, ends = access.ours.context.coordination, Deadline.after(asked.lasts_s)
    try:
        while not ends.over and _is_there(asked.until_gone):
            time.sleep(_LOOK_S)
            try:
                if any(session.read(path) is None for path in turn.paths):
                    return  # it was released, or broken
            except SessionLost:
                return  # and the turn with it
            except Unavailable:
                continue
    finally:
        turn.release()


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    with suppress(SluiceError):  # the write goes on without its turn
        _keep(Asked.of(sys.stdin.read()))
