"""Two jobs merge by user, date and country, each the rows of one date: the partition values of its source narrow what a merge reads."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

import sluice
from sluice.coordinator.service.connect import release
from sluice.delta import DeltaTable, tables
from sluice.spark_integration.rows import source
from sluice.statements.duckdb import changing
from sluice.statements.duckdb.engine import run
from sluice.statements.spark import engine

from .test_several import LIMITS

pytestmark = pytest.mark.spark

ON: Final = "s.user_id = t.user_id AND s.date = t.date AND s.country = t.country"
BEFORE: Final = [(1, "2026-01-01", "at", 1), (2, "2026-01-01", "ch", 1), (1, "2026-01-02", "at", 1), (2, "2026-01-02", "ch", 1)]
LEVELS: Final = ("Serializable", "WriteSerializable")
CELLS: Final = list(product([("api", math.inf), ("api", 0), ("spark", math.inf), ("spark", 0), ("duckdb", math.inf)], LEVELS))
ALWAYS: Final = {(("api", math.inf), "Serializable"), (("spark", 0), "WriteSerializable"), *product([("duckdb", math.inf)], LEVELS)}
"""Those of the cells that the standard suite has."""
MERGED_BY: Final[dict[str, Any]] = {"api": tables, "spark": engine, "duckdb": changing}
"""The modules that carry a merge out, between the beginning and the commit of its transaction."""


def values(date: str, user: int = 1) -> str:
    """The rows of one job: one that is there, and a new one."""
    return f"SELECT * FROM VALUES ({user}L, '{date}', 'at', 10L), (9L, '{date}', 'at', 90L) AS v(user_id, date, country, n)"


class Job:
    """Merges by one of the ways."""

    def __init__(self, spark: SparkSession, way: str, coordinator: str) -> None:
        self.spark, self.way, self.coordinator = spark, way, coordinator

    def merge(self, source: str) -> None:
        """As one commit."""
        text = f"MERGE INTO t USING ({source}) s ON {ON} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        if self.way == "duckdb":
            run(text, coordinator=self.coordinator)
        elif self.way == "spark":
            sluice.sql(self.spark, text, coordinator=self.coordinator).collect()
        else:
            table = DeltaTable.forName(self.spark, "t", coordinator=self.coordinator).alias("t")
            frame = self.spark.sql(source).alias("s")
            table.merge(frame, ON).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[str]:
    address = f"memory://{uuid.uuid4().hex}"
    sluice.Catalog(address, root=tmp_path)
    columns = "user_id BIGINT, date STRING, country STRING, n BIGINT"
    run(f"CREATE TABLE t ({columns}) USING sluice PARTITIONED BY (date, country)", coordinator=address)
    run(f"INSERT INTO t VALUES {', '.join(map(str, BEFORE))}", coordinator=address)
    yield address
    release(address)


def meanwhile(monkeypatch: pytest.MonkeyPatch, way: str, work: Callable[[], None]) -> None:
    """The next merge of this way has read what it reads, and is not committed: then `work` happens."""
    module = MERGED_BY[way]
    merged = module.merge_rows

    def merging(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(module, "merge_rows", merged)
        counts = merged(*given, **more)
        work()
        return counts

    monkeypatch.setattr(module, "merge_rows", merging)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("way", "size", "level"), [pytest.param(*way, level, marks=[pytest.mark.long] * ((way, level) not in ALWAYS)) for way, level in CELLS]
)
def test_jobs_of_two_dates_both_commit(
    spark: SparkSession, coordinator: str, monkeypatch: pytest.MonkeyPatch, way: str, size: float, level: str
) -> None:
    for limit in LIMITS:
        monkeypatch.setattr(source, limit, size)
    table = sluice.Catalog(coordinator).open("t")
    table.set_properties({"delta.isolationLevel": level})
    job = Job(spark, way, coordinator)
    meanwhile(monkeypatch, way, lambda: job.merge(values("2026-01-02")))
    job.merge(values("2026-01-01"))
    held = sorted(tuple(row.values()) for row in table.refresh().snapshot().to_arrow().to_pylist())
    new = [(user, date, "at", user * 10 if user == 1 else 90) for user in (1, 9) for date in ("2026-01-01", "2026-01-02")]
    assert held == sorted([*(row for row in BEFORE if row[0] == 2), *new])

    meanwhile(monkeypatch, way, lambda: job.merge(values("2026-01-01")))
    with pytest.raises(sluice.errors.ConcurrentModification):  # both change a row, and would insert one twice
        job.merge(values("2026-01-01", user=3))
