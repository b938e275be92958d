"""The SQL of Delta Lake's documentation (docs.delta.io) that Spark carries out, as it is there but for places, versions and providers."""

from __future__ import annotations

import pytest

from ..duckdb.delta_merges import MERGES
from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]


@pytest.mark.costly
@pytest.mark.parametrize(
    "name",
    # `test_rows` merges with clauses of each kind; this one has the richest source and target
    [pytest.param(name, marks=[pytest.mark.long] * (name != "slowly changing")) for name in MERGES],
)
def test_merges(warehouse: Warehouse, name: str) -> None:
    MERGES[name](warehouse.sql, warehouse.rows)
