"""A job that may be restarted, for tests that kill it in a process of its own.

Prints `began` when its rows are about to be written, and `committed` at the end.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import sluice
from sluice.coordinator.limits import Limits

ROWS = pa.table({"sku": pa.array([1, 2], pa.int64()), "n": pa.array([10, 20], pa.int64())})


def run(
    tables: list[str], coordinator: str, once: dict[str, Any], how: str, *, fast_path: bool = False, inline_bytes_max: int = 64 * 1024
) -> None:
    """Do the job: what it does to its tables it does in one commit. `once` is what makes that happen once."""
    limits = Limits(fast_path=fast_path, inline_bytes_max=inline_bytes_max)
    opened = [sluice.Table.open(each, coordinator=coordinator, application="job", limits=limits) for each in tables]
    once = {name: tuple(value) if isinstance(value, list) else value for name, value in once.items()}
    print("began", flush=True)
    if how == "append":
        opened[0].append(ROWS, **once)
    elif how == "upsert":
        opened[0].upsert(ROWS, on="sku", **once)
    elif how == "plan":
        plan = opened[0].plan_write(ROWS.schema, **once)
        opened[0].commit_write(plan, plan.write(ROWS))
    else:
        with sluice.transaction(tables=opened, **once) as tx:
            tx[opened[0]].append(ROWS)
            tx[opened[1]].update({"n": "n + 1"}, "sku = 1")
    print("committed", flush=True)
