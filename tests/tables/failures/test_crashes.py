"""Writers that die by SIGKILL at every step of the commit protocol, on a real ZooKeeper and real disks.

Goal: nothing is half visible, the others go on, and the outcome can be asked for by anybody. Method: a process of its own
kills itself at a named failure point (coordinator/publication/failure_points.py); then this process writes, asks and reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.failure_points import FAILPOINTS
from tests.killed import until_killed
from tests.tables import writer_program

pytestmark = pytest.mark.zookeeper

SCHEMA = pa.schema([pa.field("part", pa.string(), nullable=False), pa.field("value", pa.int64())])
_NOTHING_FILED = {"data-staged", "actions-staged", "before-claim"}
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5)


def doom(failpoint: str, order: dict[str, object]) -> str:
    """Run the writer until it kills itself at `failpoint`; returns its transaction's id."""
    return until_killed(writer_program.main, order, failpoint=failpoint)[0]


def ones(rows: pa.Table) -> list[int]:
    return sorted(v for v in rows["value"].to_pylist() if v is not None)


CASES: list[Any] = [(f, "append", False) for f in FAILPOINTS]
FEW = {"data-staged", "after-claim", "before-publish"}
"""Where an overwrite is killed in each run; what it replaces makes a difference to its verdict only."""
CASES += [pytest.param(f, "overwrite", False, marks=[] if f in FEW else pytest.mark.long) for f in FAILPOINTS]
CASES += [(f, "append", True) for f in FAILPOINTS if f not in {"actions-staged", "before-claim", "after-claim"}]


@pytest.mark.shows("writer-killed")
@pytest.mark.parametrize(("failpoint", "mode", "fast_path"), CASES)
def test_a_writer_killed_at_any_step(failpoint: str, mode: str, fast_path: bool, tmp_path: Path, zookeeper_address: str) -> None:
    location = tmp_path / "table"
    sluice.Table.create(location, SCHEMA, coordinator=zookeeper_address)
    table = sluice.Table.open(location, coordinator=zookeeper_address, limits=IMPATIENT)
    table.append(pa.table({"part": ["before"], "value": pa.array([100], pa.int64())}, schema=SCHEMA))
    order: dict[str, object] = {"location": str(location), "coordinator": zookeeper_address, "mode": mode, "rows": 3}
    order["fast_path"] = fast_path
    order["inline_bytes_max"] = 64 if failpoint == "actions-staged" else 64 * 1024
    transaction_id = doom(failpoint, order)

    # the others go on at once, whatever the dead one left
    mine = table.append(pa.table({"part": ["after"], "value": pa.array([200], pa.int64())}, schema=SCHEMA))
    assert mine is not None
    assert mine.published

    outcome = table.outcome(transaction_id)
    found = ones(table.snapshot().to_arrow())
    if failpoint in _NOTHING_FILED or (fast_path and failpoint == "before-ratify"):
        assert outcome.state == "unknown"
        assert found == [100, 200]
    else:
        assert outcome.state == "committed"
        assert outcome.commit is not None
        kept = [100] if mode == "append" else []
        assert found == sorted([*kept, 200, *range(3)])
    assert ones(deltalake.DeltaTable(location).to_pyarrow_table()) == found
    names = sorted(p.name for p in (location / "_delta_log").glob("*.json"))
    assert names == [f"{v:020d}.json" for v in range(len(names))]


def test_a_writer_killed_while_it_decides_for_others(tmp_path: Path, zookeeper_address: str) -> None:
    """The first in the queue dies after ratifying everybody's intents: they are published by the others."""
    location = tmp_path / "table"
    table = sluice.Table.create(location, SCHEMA, coordinator=zookeeper_address)
    ids = [
        doom("after-claim", {"location": str(location), "coordinator": zookeeper_address, "mode": "append", "rows": 1}) for _ in range(3)
    ]
    ids.append(doom("after-ratify", {"location": str(location), "coordinator": zookeeper_address, "mode": "append", "rows": 1}))
    for transaction_id in ids:
        outcome = table.outcome(transaction_id)
        assert outcome.state == "committed"
        assert outcome.commit is not None
        assert outcome.commit.version == 1
    assert table.refresh().snapshot().to_arrow().num_rows == 4
