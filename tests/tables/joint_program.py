"""A writer over several tables, for tests that kill it in a process of its own.

Prints the transaction's id before anything is committed, and `committed` afterwards.
"""

from __future__ import annotations

import pyarrow as pa

import sluice
from sluice.coordinator.limits import Limits


def main(orders: str, stock: str, coordinator: str, inline_bytes_max: int) -> None:
    limits = Limits(inline_bytes_max=inline_bytes_max)
    tables = [sluice.Table.open(location, coordinator=coordinator, application="doomed", limits=limits) for location in (orders, stock)]
    with sluice.transaction(tables=tables) as tx:
        print(tx.id, flush=True)
        tx[tables[0]].append(pa.table({"sku": pa.array([1], pa.int64()), "n": pa.array([1], pa.int64())}))
        tx[tables[1]].update({"n": "n - 1"}, "sku = 1")
    print("committed", flush=True)
