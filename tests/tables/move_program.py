"""Programs around a table that moves, for tests that kill them: the mover, and writers that append until they are told to stop."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

import sluice

__all__ = ["move", "writes"]


def move(location: str, coordinator: str, to: str) -> None:
    sluice.move(location, to, coordinator=coordinator)
    print("moved", flush=True)


def writes(location: str, coordinator: str, writers: list[int], until: str) -> None:
    """Print each acknowledged row's number, and last the longest time that an append took, in milliseconds."""
    longest = [0.0]

    def write(writer: int) -> None:
        table, number = sluice.Table.open(location, coordinator=coordinator), 0
        while not Path(until).exists():
            number, begun = number + 1, time.monotonic()
            row = writer * 1_000_000 + number
            table.append(pa.table({"v": pa.array([row], pa.int64())}))
            longest[0] = max(longest[0], time.monotonic() - begun)
            print(f"{row}\n", end="", flush=True)
            time.sleep(0.005)

    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(write, writers))
    print(f"longest {round(longest[0] * 1000)}", flush=True)
