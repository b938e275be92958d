"""Properties through Spark's option: given to the table that a write creates, compared with the one that is there."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import sluice
from sluice.spark_integration.data_source.write_plan import plan_for
from sluice.spark_integration.options import WriteOptions
from sluice.tables.planned_writes import commit_creation

types = pytest.importorskip("pyspark.sql.types")


def parsed(folder: Path, properties: dict[str, str]) -> tuple[dict[str, str], WriteOptions]:
    """Where a table is, and the options of a write to it."""
    place = {"path": str(folder / "t"), "coordinator": f"memory://{uuid.uuid4().hex}"}
    return place, WriteOptions.parse({**place, "properties": json.dumps(properties)}, overwrite=False)


def test_properties_of_a_created_table_are_true_of_it_the_next_time(tmp_path: Path) -> None:
    told = {"delta.feature.domainMetadata": "supported", "sluice.conflictPolicy": "maxcompute-delta"}
    place, options = parsed(tmp_path, told)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    sluice.Table.create(place["path"], columns, coordinator=place["coordinator"], properties=told)
    schema = types.StructType([types.StructField("id", types.LongType(), False)])
    plan, _ = plan_for(options, schema)
    assert plan.read_version == 0
    other = WriteOptions.parse({**place, "properties": '{"delta.feature.changeDataFeed": "supported"}'}, overwrite=False)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"sluice\.Table\.set_properties"):
        plan_for(other, schema)


def test_a_table_is_created_with_its_first_rows_and_its_features(tmp_path: Path) -> None:
    told = {"delta.enableRowTracking": "true", "delta.feature.vacuumProtocolCheck": "supported", "delta.enableDeletionVectors": "true"}
    place, options = parsed(tmp_path, told)
    schema = types.StructType([types.StructField("id", types.LongType())])
    plan, _ = plan_for(options, schema)
    files = plan.write(pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    _, commit = commit_creation(plan, files)
    assert commit is not None
    assert commit.version == 0
    raw = sluice.Table.open(place["path"], coordinator=place["coordinator"]).snapshot().raw
    assert set(raw.protocol.reader_features or ()) == {"deletionVectors", "vacuumProtocolCheck"}
    assert {"domainMetadata", "rowTracking"} <= set(raw.protocol.writer_features or ())
    assert [(add.base_row_id, add.default_row_commit_version) for add in raw.add_files()] == [(0, 0)]
    assert raw.domains["delta.rowTracking"].configuration == '{"rowIdHighWaterMark":2}'
    assert [key for key in raw.configuration if key.startswith("delta.feature.")] == []
