"""IF VERSION n before a statement that Spark carries out."""

from __future__ import annotations

import pytest

import sluice

from ..duckdb.test_if_version import REFUSED, STATEMENTS, prepare
from .conftest import Warehouse

pytestmark = [pytest.mark.spark, pytest.mark.zookeeper]

BY_SPARK = [each for each in STATEMENTS if each.split()[0] in ("INSERT", "UPDATE", "MERGE", "OPTIMIZE")]
ONE_OF_EACH = list({each.split()[0]: each for each in BY_SPARK}.values())


@pytest.mark.parametrize("statements", [ONE_OF_EACH, pytest.param(BY_SPARK, marks=pytest.mark.long)], ids=["one of each", "all"])
def test_it_commits_as_the_next_version_or_not_at_all(warehouse: Warehouse, statements: list[str]) -> None:
    prepare(warehouse.sql)
    table = warehouse.catalog.open("sales.t")
    for version, statement in enumerate(statements, 3):
        for other, error in ((version - 1, sluice.errors.ConcurrentModification), (version + 1, sluice.errors.VersionNotFound)):
            with pytest.raises(error):
                warehouse.sql(f"IF VERSION {other} {statement}")
        assert table.refresh().version == version, statement
        warehouse.sql("IF VERSION :v " + statement, {"v": version})
        assert table.refresh().version == version + 1, statement
    latest = table.version
    block = "BEGIN ATOMIC IF VERSION {} INSERT INTO sales.t VALUES (7, 'b'); END"
    with pytest.raises(sluice.errors.ConcurrentModification, match="expected-version"):
        warehouse.sql(block.format(latest - 1))
    warehouse.sql(block.format(latest))
    assert table.refresh().version == latest + 1


def test_what_takes_no_version_is_refused(warehouse: Warehouse) -> None:
    prepare(warehouse.sql)
    for statement, why in REFUSED.items():
        with pytest.raises(sluice.errors.InvalidRequest, match=why):
            warehouse.sql(f"IF VERSION 3 {statement}")
    assert warehouse.catalog.open("sales.t").version == 3
    with pytest.raises(sluice.errors.InvalidRequest, match="expected a version"):
        warehouse.sql("IF VERSION x DELETE FROM sales.t")
    with pytest.raises(sluice.errors.InvalidRequest, match="a table of sluice, and this is none"):
        warehouse.sql("IF VERSION 3 INSERT INTO of_spark VALUES (1)")
