"""A writer under a lease that is stopped where the test wants it: `python -m tests.tables.lease_program JSON`.

Prints one line of JSON per step: {"held": token}, then {"stopping": ...} right before it stops itself, then what it heard.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import sluice
from sluice.coordinator.commit import decider, transactions

from .conftest import flights


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def stop_at(name: str) -> None:
    """Let this process stop when its commit passes a failure point for the first time."""
    passed = False

    def point(here: str) -> None:
        nonlocal passed
        if here == name and not passed:
            passed = True
            say(stopping=name)
            os.kill(os.getpid(), signal.SIGSTOP)

    for module in (transactions, decider):
        vars(module)["point"] = point


def main(location: str, coordinator: str, where: str) -> None:
    table = sluice.Table.open(location, coordinator=coordinator, application="sleeper", timeout_s=30)
    lease = table.lease(where="origin = 'JFK'")
    say(held=lease.token)
    if where == "idle":
        say(stopping=where)
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        stop_at(where)
    try:
        table.append(flights(("JFK", 1, 666)))
    except sluice.errors.SluiceError as error:
        say(heard=type(error).__name__)
    else:
        say(heard="committed")
    say(lost=lease.lost.wait(10))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
