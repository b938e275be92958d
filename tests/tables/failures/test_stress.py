"""Many writer processes at once on a real ZooKeeper: every row that was acknowledged is there, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import deltalake
import pytest

import sluice
from tests.tables.stress_program import SCHEMA

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("count", "seconds", "most"),
    [(4, 120.0, 20), pytest.param(8, 12.0, 1_000_000, marks=LONG), pytest.param(16, 60.0, 1_000_000, marks=LONG)],
)
def test_processes_append_and_overwrite(tmp_path: Path, zookeeper_address: str, count: int, seconds: float, most: int) -> None:
    """Until each did its share, or as many as they can in a time: then none gets less than half of what others get."""
    location = tmp_path / "table"
    table = sluice.Table.create(location, SCHEMA, partition_by=["writer"], coordinator=zookeeper_address)
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.tables.stress_program", json.dumps(order)],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        for order in (
            {"location": str(location), "coordinator": zookeeper_address, "writer": n, "seconds": seconds, "most": most}
            for n in range(count)
        )
    ]
    try:
        told = [json.loads(w.communicate(timeout=seconds + 120)[0]) for w in writers]
    finally:
        for writer in writers:
            writer.kill()
    expected = sorted((t["writer"], n) for t in told for n in t["present"])
    found = table.refresh().snapshot().to_arrow()
    assert sorted(zip(found["writer"].to_pylist(), found["number"].to_pylist(), strict=True)) == expected
    foreign = deltalake.DeltaTable(location).to_pyarrow_table(columns=["writer", "number"])
    assert sorted(zip(foreign["writer"].to_pylist(), foreign["number"].to_pylist(), strict=True)) == expected
    names = sorted(p.name for p in (location / "_delta_log").glob("*.json"))
    assert names == [f"{v:020d}.json" for v in range(len(names))]
    commits = [t["commits"] for t in told]
    # overwrites of a partition of one's own conflict with nobody
    assert sum(t["conflicts"] for t in told) == 0
    assert sum(commits) == len(table.history(limit=None)) - 1
    assert min(commits) >= 0.5 * sum(commits) / count, f"somebody starved: {commits}"
