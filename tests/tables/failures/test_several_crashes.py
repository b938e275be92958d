"""Writers over two tables that die by SIGKILL at every step, on a real ZooKeeper and real disks.

Goal: every reader sees all of a transaction or nothing of it, however its writer died; the others go on at once.
"""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.failure_points import FAILPOINTS
from tests.killed import until_killed
from tests.tables import joint_program

pytestmark = pytest.mark.zookeeper

SCHEMA = pa.schema([pa.field("sku", pa.int64()), pa.field("n", pa.int64())])
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5)
NOTHING_FILED = {"data-staged", "actions-staged", "before-claim"}

ASKED_BY = ("a writer of one table", "a reader", "an outcome")
PASSAGES = [(name, 1) for name in FAILPOINTS] + [(name, 2) for name in ("before-publish", "after-publish", "after-raise")]
"""The second time is that of the second table."""

CASES = [(*each, ASKED_BY[number % 3]) for number, each in enumerate(PASSAGES)]
CASES += [(name, 1, asks) for name in ("after-claim", "after-ratify") for asks in ASKED_BY if (name, 1, asks) not in CASES]


def rows(sku: int, n: int) -> pa.Table:
    return pa.table({"sku": pa.array([sku], pa.int64()), "n": pa.array([n], pa.int64())}, schema=SCHEMA)


def shop(folder: Path, coordinator: str) -> list[sluice.Table]:
    tables: list[sluice.Table] = []
    for name in ("orders", "stock"):
        sluice.Table.create(folder / name, SCHEMA, coordinator=coordinator)
        tables.append(sluice.Table.open(folder / name, coordinator=coordinator, limits=IMPATIENT))
    tables[1].append(rows(1, 10))
    return tables


def doom(failpoint: str, passage: int, order: dict[str, object]) -> str:
    """Run the writer until it kills itself; returns its transaction's id."""
    return until_killed(joint_program.main, order, failpoint=f"{failpoint}:{passage}")[0]


@pytest.mark.parametrize(("failpoint", "passage", "asks"), CASES)
@pytest.mark.many
def test_a_writer_over_two_tables_killed_at_any_step(
    failpoint: str, passage: int, asks: str, tmp_path: Path, zookeeper_address: str
) -> None:
    orders, stock = shop(tmp_path, zookeeper_address)
    order: dict[str, object] = {"orders": orders.location, "stock": stock.location, "coordinator": zookeeper_address}
    transaction_id = doom(failpoint, passage, {**order, "inline_bytes_max": 16 if failpoint == "actions-staged" else 64 * 1024})
    if asks == "a writer of one table":
        stock.append(rows(2, 5))
    elif asks == "a reader":
        together = sluice.read_together([orders, stock])
        assert (together[0].to_arrow().num_rows == 1) == (9 in together[1].to_arrow()["n"].to_pylist())
    outcome = sluice.outcome(transaction_id, zookeeper_address)
    bought, left = orders.snapshot().to_arrow().num_rows, stock.snapshot().to_arrow(where="sku = 1")["n"].to_pylist()
    if failpoint in NOTHING_FILED:
        assert outcome.state == "unknown"
        assert (bought, left) == (0, [10])
    else:
        assert outcome.state == "committed"
        assert set(outcome.commits) == {orders.location, stock.location}
        assert (bought, left) == (1, [9])
    with sluice.transaction(tables=[orders, stock]) as tx:
        tx[orders].append(rows(2, 1))
        tx[stock].update({"n": "n - 1"}, "sku = 1")
    assert deltalake.DeltaTable(orders.location).to_pyarrow_table().num_rows == bought + 1
    assert deltalake.DeltaTable(stock.location).version() == tx.commit_info[stock].version


def test_dead_owners_in_opposite_orders_hold_nobody_up(tmp_path: Path, zookeeper_address: str) -> None:
    orders, stock = shop(tmp_path, zookeeper_address)
    order: dict[str, object] = {"coordinator": zookeeper_address, "inline_bytes_max": 64 * 1024}
    ids = [
        doom(failpoint, 1, {**order, "orders": orders.location, "stock": stock.location})
        for failpoint in ("after-claim", "before-ratify", "after-ratify")
    ]
    assert stock.append(rows(2, 5)) is not None
    states = [sluice.outcome(each, zookeeper_address).state for each in ids]
    assert states.count("committed") == orders.snapshot().to_arrow().num_rows
    assert states[0] == "committed"
    assert set(states[1:]) <= {"committed", "refused"}
    assert stock.snapshot().to_arrow(where="sku = 1")["n"].to_pylist() == [10 - states.count("committed")]
