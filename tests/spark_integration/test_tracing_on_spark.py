"""The spans of what Spark jobs commit are made in the user's own process, below its current span."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from pyspark.sql import SparkSession

import sluice
from sluice.coordinator.service.connect import release

pytestmark = pytest.mark.spark


def test_a_job_of_spark_has_its_spans(spark: SparkSession, tmp_path: Path) -> None:
    coordinator, schema = f"memory://{uuid.uuid4().hex}", pa.schema([("id", pa.int64())])
    table = sluice.Table.create(tmp_path / "table", schema, coordinator=coordinator)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    end = sluice.tracing.start(provider)
    try:
        with provider.get_tracer("job").start_as_current_span("job") as job:
            sluice.sql(spark, f"INSERT INTO delta.`{tmp_path / 'table'}` VALUES (7)", coordinator=coordinator)
            spark.range(3).write.format("sluice").option("coordinator", coordinator).mode("append").save(str(tmp_path / "table"))
        commits = [each for each in exporter.get_finished_spans() if each.kind is SpanKind.CLIENT]
    finally:
        end()
        release(coordinator)
    assert [(each.attributes or {})["db.collection.name"] for each in commits] == [table.location] * 2
    assert [each.parent and each.parent.span_id for each in commits] == [job.get_span_context().span_id] * 2
