"""A process that keeps the turn of one Spark write; `write_turn` starts it and passes the request on its standard input."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import Final

from ...coordinator.errors import SessionLost
from ...coordinator.facade.plans import keep_turn, turns_stand
from ...coordinator.facade.values import Deadline
from ...storage.errors import SluiceError, Unavailable
from ...tables.client.access import Access
from .write_turn import Asked

_LOOK_S: Final = 1.0


def _keep(asked: Asked) -> None:
    access = Access.coordinated(asked.address)
    turn = keep_turn(access.ours, asked.where, access.current(), asked.name, asked.leases, asked.lasts_s, asked.wait_s)
    if turn is None:
        return
    print(json.dumps(turn.paths), flush=True)  # noqa: T201 - the answer
    ends = Deadline.after(asked.lasts_s)
    try:
        while not ends.over and _is_there(asked.until_gone):
            time.sleep(_LOOK_S)
            try:
                if not turns_stand(access.ours, turn.paths):
                    return  # released or broken
            except SessionLost:
                return  # and so does the turn
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
