"""Programs beside which a table is clustered, each a process of its own, for tests that count refusals and kill."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa

import sluice
from sluice.coordinator.limits import Limits
from sluice.tables.maintain import rewriting

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("a", pa.int64()), pa.field("b", pa.int64())])
SORTS = ("delete", "update", "merge", "delete")


def rows(ids: list[int]) -> pa.Table:
    """Rows of these ids, with values that a curve shuffles."""
    return pa.table([ids, [number * 7919 % 1009 for number in ids], [number * 104729 % 997 for number in ids]], schema=SCHEMA)


def _table(location: str, coordinator: str, *, fast_path: bool = False) -> sluice.Table:
    setattr(rewriting, "_PIECE_ROWS", 5)  # noqa: B010 - it is final everywhere else
    limits = Limits(fast_path=fast_path, patience_s=0.05, patience_s_max=0.5, inline_bytes_max=128)
    return sluice.Table.open(location, coordinator=coordinator, limits=limits)


def change(location: str, coordinator: str, share: int, ids: list[int]) -> None:
    """Delete, update or merge these ids, some at a time, and tell how many were refused."""
    table = _table(location, coordinator, fast_path=share % 2 == 0)
    refused = done = 0
    while ids:
        now, ids = ids[:3], ids[3:]
        where = f"id IN ({', '.join(map(str, now))})"
        try:
            if SORTS[share] == "delete":
                table.delete(where)
            elif SORTS[share] == "update":
                table.update({"b": "b + 100000"}, where)
            else:
                table.upsert(pa.table([now, [1_000_000] * len(now), now], schema=SCHEMA), on="id")
            done += 1
        except sluice.errors.ConcurrentModification as conflict:
            refused += 1
            print(f"refused: {conflict}", file=sys.stderr)
    print("changes", done, "refused", refused, flush=True)


def cluster(location: str, coordinator: str, until: str = "", times: int = 10_000) -> None:
    """Cluster the whole table again and again, until there is a file of that name, and tell how many runs were refused."""
    table = _table(location, coordinator)
    refused = done = 0
    while times and not (until and Path(until).exists()):
        times -= 1
        try:
            # by one column and then by two, so that each run has everything to do
            table.cluster_by(["a"] if times % 2 else ["b", "a"])
            done += table.compact("full") is not None
        except sluice.errors.ConcurrentModification as conflict:
            refused += 1
            print(f"refused: {conflict}", file=sys.stderr)
        time.sleep(0.01)
    print("runs", done, "refused", refused, flush=True)


def cluster_once(location: str, coordinator: str) -> None:
    """One run over everything, and nothing else."""
    print("began", flush=True)
    _table(location, coordinator).compact("full")
    print("committed", flush=True)


def delete_once(location: str, coordinator: str, begun: str, then: str) -> None:
    """Delete rows in a transaction that begins before there is the file `then`, and commits after."""
    transaction = _table(location, coordinator).begin()
    transaction.delete("id % 5 = 2")
    Path(begun).touch()
    while not Path(then).exists():
        time.sleep(0.01)
    print("began", flush=True)
    transaction.commit()
    print("committed", flush=True)
