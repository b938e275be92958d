"""A writer of many partitions as a process of its own, for tests that kill it: `python -m tests.tables.overwriting_program JSON`.

Prints the transaction's id before anything is written, and `committed <version>` afterwards.
"""

from __future__ import annotations

import json
import sys

import sluice
from sluice.coordinator.limits import Limits
from tests.tables.isolation.matrices import table_of


def main(location: str, coordinator: str, mode: str, partitions: int) -> None:
    table = sluice.Table.open(location, coordinator=coordinator, application="doomed", limits=Limits(fast_path=False))
    transaction = table.begin()
    print(transaction.id, flush=True)
    rows = table_of({1_000_000 + part: (part, 1) for part in range(partitions)})
    if mode == "append":
        transaction.append(rows)
    else:
        transaction.overwrite(rows, dynamic=True)
    commit = transaction.commit()
    print("committed", commit and commit.version, flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
