"""What the tests of `sluice daemon` share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import sluice
from sluice.operating.daemon import Daemon, Done

VECTORS = {"delta.enableDeletionVectors": "true"}
ROWS = pa.table({"id": [1, 2, 3]})


def fill(table: sluice.Table, files: int) -> None:
    for _ in range(files):
        table.append(ROWS)


def care(coordinator: str, **terms: Any) -> Daemon:
    """A daemon that examines nothing."""
    return Daemon(coordinator, doctor_hours=0.0, **terms)


def fail_to_store(*_: object, **__: object) -> bool:
    raise sluice.errors.StorageUnavailable("the store is away")


def done(daemon: Daemon) -> dict[str, Done]:
    return {each.task: each for each in daemon.round()}


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
