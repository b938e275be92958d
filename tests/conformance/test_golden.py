"""Each table of the layouts, written by one engine and read by others: every version, the changes, and once from its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ..delta_spark.engine import Delta, DuckDB
from .comparing import changes_agree, deltalake_reads, duckdb_reads, newest, noted, sluice_reads, spark_reads, versions_agree
from .engines import DeltaLake, Engine, OnDuckDB, OnSpark
from .layouts import LAYOUTS, Layout
from .model import Model

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(900)]

EACH = pytest.mark.parametrize("layout", [pytest.param(each, id=each.name) for each in LAYOUTS])


def carried_out(layout: Layout, engine: Engine, path: Path) -> Model:
    """The table, made and changed by one engine."""
    model = layout.model()
    engine.create(path, layout.definition, layout.partitioned, layout.clustered, layout.properties)
    noted(model, path)
    for operation in layout.operations:
        engine.do(path, operation, model)
        operation.apply(model)
        noted(model, path)
    return model


def cut(path: Path) -> bool:
    """Remove the commits before the newest checkpoint, so that only it says what they did; whether there is one."""
    log = path / "_delta_log"
    checkpoints = [int(each.name[:20]) for each in log.glob("[0-9]*.checkpoint.*")]
    for each in log.glob("[0-9]*") if checkpoints else ():
        if int(each.name[:20]) < max(checkpoints):
            each.unlink()
    return bool(checkpoints)


@EACH
def test_sluice_reads_what_delta_lake_wrote(layout: Layout, tmp_path: Path, delta: Delta) -> None:
    if lacking := layout.lack_of("Delta Lake's SQL"):
        pytest.skip(lacking)
    path = tmp_path / "t"
    model = carried_out(layout, DeltaLake(delta), path)
    versions_agree(sluice_reads(path), model)
    if layout.changes:
        assert changes_agree(path, delta, model) >= 1
    cut(path)
    versions_agree(sluice_reads(path), model, [newest(path)])


@EACH
@pytest.mark.parametrize("engine", ["DuckDB", "Spark"])
def test_others_read_what_sluice_wrote(
    layout: Layout, engine: str, tmp_path: Path, delta: Delta, duckdb: DuckDB, spark: SparkSession, zookeeper_address: str
) -> None:
    path = tmp_path / "t"
    writer = OnDuckDB(zookeeper_address) if engine == "DuckDB" else OnSpark(spark, zookeeper_address)
    model = carried_out(layout, writer, path)
    versions_agree(sluice_reads(path), model)
    versions_agree(spark_reads(delta, path), model)
    if layout.changes:
        assert changes_agree(path, delta, model) >= 1
    lacking = [f"{reader}: {reason}" for reader in ("DuckDB", "deltalake") if (reason := layout.lack_of(reader))]
    if layout.lack_of("DuckDB") is None:
        versions_agree(duckdb_reads(duckdb, path), model)
    if layout.lack_of("deltalake") is None:
        versions_agree(deltalake_reads(path), model)
    cut(path)
    versions_agree(spark_reads(delta, path), model, [newest(path)])
    if lacking:
        pytest.skip("all others agree; " + "; ".join(lacking))
