"""One of many writers in `test_lease_holders`: `python -m tests.tables.stress_program JSON`.

Appends rows of its own and now and then overwrites its own partition; prints what must be in the table at the end.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa

import sluice

SCHEMA = pa.schema([pa.field("writer", pa.int32(), nullable=False), pa.field("number", pa.int64(), nullable=False)])


def rows(writer: int, numbers: list[int]) -> pa.Table:
    """Rows of one writer."""
    return pa.table({"writer": pa.array([writer] * len(numbers), pa.int32()), "number": pa.array(numbers, pa.int64())}, schema=SCHEMA)


def main(location: str, coordinator: str, writer: int, seconds: float, most: int) -> None:
    table = sluice.Table.open(location, coordinator=coordinator, application=f"writer-{writer}")
    present: list[int] = []
    number = commits = conflicts = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and commits < most:
        if commits % 7 == 6:
            kept = present[len(present) // 2 :]
            try:
                table.overwrite(rows(writer, kept), where=f"writer = {writer}")
            except sluice.errors.ConcurrentModification:
                conflicts += 1
                continue
            present = kept
        else:
            mine = list(range(number, number + 3))
            number += 3
            assert table.append(rows(writer, mine)) is not None
            present += mine
        commits += 1
    print(json.dumps({"writer": writer, "present": present, "commits": commits, "conflicts": conflicts}))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
