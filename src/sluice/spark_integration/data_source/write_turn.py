"""The turn of a Spark write that lost before, held by its own process while the tasks run.

A write is planned in one process and committed in another; neither lives while the tasks write. So the plan of a repeated
write starts a keeper, which holds the turn until the commit releases it, the turn's time is over, or the process that the
plan was made for is gone. Only a write that lost before has one.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Final

from ...coordinator.api import Deadline, PartitionScope, lasting_s, named_after, reserve, take_ticket, turns_stand
from ...coordinator.errors import SessionLost
from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError, Unavailable
from ...tables.client.address import TableAddress
from ...tables.client.open_table import open_coordinated
from ...tables.table import Table
from ...tables.write.data_writing import work_of
from ..options import WriteOptions

_log = logging.getLogger(__name__)

_KEEPER: Final = "sluice.spark_integration.data_source.write_turn"


@dataclass(frozen=True, slots=True)
class Asked:
    """A keeper's request, how long it waits and holds the turn, and the process (id) with which it ends.

    `leases` are those that the write depends on: its turn is reserved beside them.
    """

    address: TableAddress
    where: str | None
    name: str
    wait_s: float
    lasts_s: float
    until_gone: int
    leases: tuple[str, ...] = ()

    @staticmethod
    def of(text: str) -> Asked:
        """From JSON."""
        told = json.loads(text)
        return Asked(**{**told, "address": TableAddress(**told["address"]), "leases": tuple(told["leases"])})


@dataclass(frozen=True, slots=True)
class Waited:
    """The turns of a write, and after how many losses in a row."""

    turns: tuple[str, ...] = ()
    losses: int = 0


def turn_after_loss(table: Table, options: WriteOptions, until_gone: int) -> Waited:
    """Wait for the turn of a write that lost before; no turn if it did not lose, or does not get one in time."""
    if options.mode == "append" and options.terms.read_version is None:
        return Waited()
    ticket = take_ticket(table.coordinated.context, table.coordinated.application, work_of(options.mode, options.where, options.read_where))
    if ticket is None:
        return Waited()
    name = named_after(ticket.losses)
    asked = Asked(options.address, ticket.where, name, options.timeout_s, lasting_s(ticket.took_s), until_gone, options.leases)
    turns = kept(asked)
    if not turns:
        _log.info("a write to %s goes on without its turn %s", table.location, name)
    return Waited(turns, ticket.losses)


def kept(asked: Asked) -> tuple[str, ...]:
    """The turns that a newly started keeper holds from now on."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", _KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    # It may outlive this process. A thread still waits for its end, in case this process lives to see it.
    threading.Thread(target=keeper.wait, name="sluice-keeper", daemon=True).start()
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with keeper.stdin as told, keeper.stdout as answer:
        told.write(json.dumps(asdict(asked)).encode())
        told.close()
        return tuple(json.loads(answer.readline() or "[]"))


_LOOK_S: Final = 1.0


def _keep(asked: Asked) -> None:
    table = open_coordinated(asked.address)
    parts = [(table.leases, PartitionScope.of(table.current(), asked.where))]
    turn = reserve(parts, asked.name, asked.leases, lasts_s=asked.lasts_s, wait=Deadline.after(asked.wait_s))
    if turn is None:
        return
    print(json.dumps(turn.paths), flush=True)  # noqa: T201 - the answer
    ends = Deadline.after(asked.lasts_s)
    try:
        while not ends.over and _is_there(asked.until_gone):
            time.sleep(_LOOK_S)
            try:
                if not turns_stand(table.context, turn.paths):
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
