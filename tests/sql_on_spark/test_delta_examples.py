"""The SQL of Delta Lake's documentation (docs.delta.io) that Spark carries out, as it is there but for places, versions and providers."""

from __future__ import annotations

import pytest

from ..sql_on_duckdb.delta_merges import merges
from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]


def test_merges(warehouse: Warehouse) -> None:
    merges(warehouse.sql, warehouse.rows)
