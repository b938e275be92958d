"""A job that commits a few versions and ends without closing its table: `python -m tests.tables.checkpoint_program JSON`."""

from __future__ import annotations

import json
import sys
import time
from unittest import mock

import sluice
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.objects import ObjectStore

from .conftest import flights

_SECONDS_OF_A_LARGE_TABLE = 1.0


def _slowly(store: ObjectStore, snapshot: Snapshot) -> None:
    time.sleep(_SECONDS_OF_A_LARGE_TABLE)
    write_checkpoint(store, snapshot)


def main(location: str, coordinator: str, first: int, commits: int) -> None:
    mock.patch("sluice.tables.maintain.background.write_checkpoint", _slowly).start()
    table = sluice.Table.open(location, coordinator=coordinator)
    for delay in range(first, first + commits):
        table.append(flights(("JFK", 1, delay)))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
