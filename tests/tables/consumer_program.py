"""A consumer as a process of its own, for tests that kill or stop it: `python -m tests.tables.consumer_program JSON`.

It copies the changes of `source` into `outputs`, and ends when everything is consumed. `dies` names a step of the batch that begins
with the number `at` at which it kills itself, or stops itself with `how` = "STOP". It prints what it did as lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import sluice
from sluice.coordinator.commit import decider, transactions
from sluice.coordinator.leases.consumers import Hold
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication import publisher

STEPS = ("batch-in-hand", "before-ratify", "after-ratify", "after-publish", "before-position", "after-position")


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class Doom:
    """What happens at the step."""

    def __init__(self, step: str, at: int, how: str) -> None:
        self.step, self.at, self.how = step, at, how
        self.number = -1

    def here(self, step: str) -> None:
        if step != self.step or self.number != self.at:
            return
        self.step = ""
        say(doomed=step)
        os.kill(os.getpid(), getattr(signal, f"SIG{self.how}"))

    def arm(self) -> None:
        for module in (transactions, publisher, decider):
            vars(module)["point"] = self.here
        honest = Hold.move

        def move(hold: Hold, version: int, files: int = 0) -> None:
            self.here("before-position")
            honest(hold, version, files)
            self.here("after-position")

        setattr(Hold, "move", move)  # noqa: B010 - a method is replaced


def main(
    source: str,
    outputs: list[str],
    coordinator: str,
    dies: str = "",
    at: int = -1,
    how: str = "KILL",
    wait_s: float | None = None,
    max_bytes: int | None = None,
) -> None:
    doom = Doom(dies, at, how)
    doom.arm()
    limits = Limits(patience_s=0.05, patience_s_max=0.5)
    table = sluice.Table.open(source, coordinator=coordinator, application="consumer", limits=limits)
    into = [sluice.Table.open(each, coordinator=coordinator, application="consumer", limits=limits) for each in outputs]
    with table.consumer("copy", into=into, rows="inserted", timeout_s=0, wait_s=wait_s, max_bytes=max_bytes) as consumer:
        say(token=consumer.lease.token, position=consumer.position)
        while True:
            try:
                for batch in consumer:
                    doom.number = next(iter(batch))["n"][0].as_py()
                    doom.here("batch-in-hand")
                    with consumer.transaction() as tx:
                        for output in into:
                            tx[output].append(batch)
            except sluice.errors.LeaseLost as error:
                say(heard=type(error).__name__)
            else:
                break
    say(done=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
