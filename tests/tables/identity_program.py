"""Appends of numbered rows as a process of its own: `append` may be killed at any step, `appends` has several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

import sluice
from sluice.coordinator.limits import Limits

__all__ = ["append", "appends"]


def append(location: str, coordinator: str, rows: int, fast_path: bool, staged: bool) -> None:
    limits = Limits(fast_path=fast_path, inline_bytes_max=16 if staged else 64 * 1024)
    table = sluice.Table.open(location, coordinator=coordinator, limits=limits)
    table.append(pa.table({"name": ["doomed"] * rows}))
    print("committed", flush=True)


def appends(location: str, coordinator: str, sizes: list[list[int]]) -> None:
    """In each of several threads one append of so many rows after the other."""

    def work(thread: list[int]) -> None:
        table = sluice.Table.open(location, coordinator=coordinator)
        for rows in thread:
            table.append(pa.table({"name": [f"{rows}"] * rows}))

    with ThreadPoolExecutor(len(sizes)) as pool:
        list(pool.map(work, sizes))
