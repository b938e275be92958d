"""A writer as a process of its own, for tests that kill it: `python -m tests.tables.writer_program JSON`.

Prints the transaction's id before anything is committed, and `committed <version>` afterwards.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa

import sluice
from sluice.coordinator.limits import Limits


def main(
    location: str,
    coordinator: str,
    mode: str,
    rows: int,
    inline_bytes_max: int = 64 * 1024,
    fast_path: bool = False,
    creates: bool = False,
) -> None:
    if creates:
        sluice.Table.create(location, pa.schema([("part", pa.string()), ("value", pa.int64())]), coordinator=coordinator)
    limits = Limits(inline_bytes_max=inline_bytes_max, fast_path=fast_path)
    table = sluice.Table.open(location, coordinator=coordinator, application="doomed", limits=limits)
    data = pa.table({"part": pa.array(["p"] * rows), "value": pa.array(range(rows), pa.int64())})
    plan = table.plan_write(data.schema, mode=mode)
    print(plan.transaction_id, flush=True)
    commit = table.commit_write(plan, plan.write(data))
    print("committed", commit and commit.version, flush=True)


def append(location: str, coordinator: str) -> None:
    """Append in a transaction, which ends with its session; a planned write does not. Prints the transaction's id before it has files."""
    table = sluice.Table.open(location, coordinator=coordinator, limits=Limits(fast_path=False, inline_bytes_max=64))
    begun = table.begin()
    print(begun.id, flush=True)
    begun.append(pa.table({"part": ["p"], "value": pa.array([1], pa.int64())}))
    begun.commit()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
