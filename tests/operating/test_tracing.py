"""Spans of commits, and of what is done for others' transactions, by OpenTelemetry's SDK; one trace across processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

import sluice
from sluice.coordinator.errors import NotCommitted
from sluice.tracing import trace_of

ROWS = pa.table({"id": [1, 2, 3]})


@dataclass
class Traced:
    """Where this process's spans and durations go."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    provider: TracerProvider = field(default_factory=TracerProvider)

    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def commits(self) -> list[ReadableSpan]:
        return [each for each in self.spans() if each.kind is SpanKind.CLIENT]


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    made.provider.add_span_processor(SimpleSpanProcessor(made.exporter))
    end = sluice.tracing.start(made.provider, MeterProvider([made.reader]))
    yield made
    end()


@pytest.fixture
def table(tmp_path: Path) -> sluice.Table:
    return sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=f"memory://{uuid.uuid4().hex}")


def place(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def trace(span: ReadableSpan) -> str:
    return f"{place(span).trace_id:032x}"


def test_a_commit_is_a_span_with_a_child_for_each_phase(table: sluice.Table, traced: Traced) -> None:
    began = time.time_ns()
    commit = table.append(ROWS)
    ended = time.time_ns()
    assert commit is not None
    [span] = traced.commits()
    assert span.name == f"WRITE {table.location}"
    attributes = dict(span.attributes or {})
    assert attributes["db.system.name"] == "sluice"
    assert attributes["db.collection.name"] == table.location
    assert attributes["db.operation.name"] == "WRITE"
    assert attributes["sluice.transaction.id"] == commit.transaction_id
    assert (attributes["sluice.outcome"], attributes["sluice.attempts"], attributes["sluice.versions"]) == ("committed", 1, (1,))
    assert "error.type" not in attributes
    assert span.status.status_code is StatusCode.UNSET
    parts = [each for each in traced.spans() if each is not span]
    assert [each.name for each in parts] == ["sluice.compare", "sluice.decide", "sluice.publish"]
    assert all(each.parent is not None and each.parent.span_id == place(span).span_id for each in parts)
    times = [span.start_time or 0, *(each.end_time or 0 for each in parts)]
    assert times == sorted(times)
    assert began - 2_000_000 <= times[0] <= times[-1] <= ended + 2_000_000
    assert abs(times[-1] - (span.end_time or 0)) < 1000


def test_without_a_current_span_a_commit_is_in_its_transactions_own_trace(table: sluice.Table, traced: Traced) -> None:
    commit = table.append(ROWS)
    assert commit is not None
    assert {trace(each) for each in traced.spans()} == {trace_of(commit.transaction_id)}
    assert trace_of("x") != trace_of("y") == trace_of("y")
    assert len(trace_of("x")) == 32


def test_within_a_span_a_commit_is_its_child_with_a_link_to_the_transactions_trace(table: sluice.Table, traced: Traced) -> None:
    with traced.provider.get_tracer("job").start_as_current_span("load") as load:
        commit = table.append(ROWS)
    assert commit is not None
    [span] = traced.commits()
    assert span.parent is not None
    assert span.parent.span_id == load.get_span_context().span_id
    [link] = span.links
    assert f"{link.context.trace_id:032x}" == trace_of(commit.transaction_id)


def test_a_refusal_is_an_error_with_its_type_and_rule(table: sluice.Table, traced: Traced) -> None:
    table.append(ROWS)
    late = table.begin()
    late.delete("id = 1")
    table.overwrite(ROWS)
    with pytest.raises(NotCommitted):
        late.commit()
    span = traced.commits()[-1]
    attributes = dict(span.attributes or {})
    assert (attributes["error.type"], attributes["sluice.rule"]) == ("ConcurrentAppendException", "appended-what-i-read")
    assert span.status.status_code is StatusCode.ERROR


def test_a_commit_of_two_tables_names_both_and_no_single_collection(table: sluice.Table, tmp_path: Path, traced: Traced) -> None:
    coordinator = table.coordinated.context.coordinator
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    traced.exporter.clear()
    with sluice.transaction(coordinator) as joint:
        joint[table].append(ROWS)
        joint[other].append(ROWS)
    [span] = traced.commits()
    attributes = dict(span.attributes or {})
    tables = attributes["sluice.tables"]
    assert isinstance(tables, tuple)
    assert set(tables) == {table.location, other.location}
    assert "db.collection.name" not in attributes
    assert span.name == attributes["db.operation.name"]


def test_the_durations_are_the_metric_of_the_semantic_conventions(table: sluice.Table, traced: Traced) -> None:
    table.append(ROWS)
    data: Any = traced.reader.get_metrics_data()
    [metric] = data.resource_metrics[0].scope_metrics[0].metrics
    assert (metric.name, metric.unit) == ("db.client.operation.duration", "s")
    [point] = metric.data.data_points
    assert dict(point.attributes) == {"db.system.name": "sluice", "db.operation.name": "WRITE", "db.collection.name": table.location}
    assert point.count == 1
    assert tuple(point.explicit_bounds) == (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)


def test_nothing_is_made_when_it_has_ended(table: sluice.Table) -> None:
    made = Traced()
    made.provider.add_span_processor(SimpleSpanProcessor(made.exporter))
    sluice.tracing.start(made.provider)()
    table.append(ROWS)
    assert made.spans() == ()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"tracing needs opentelemetry-api.*\[tracing\]"):
        sluice.tracing.start()


PROGRAM = textwrap.dedent(
    """
    import json, sys
    import pyarrow as pa
    import sluice
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    location, coordinator, application = sys.argv[1:]
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sluice.tracing.start(provider)
    table = sluice.Table.open(location, coordinator=coordinator, application=application)
    commit = table.append(pa.table({"id": [9]}))
    spans = [[f"{s.context.trace_id:032x}", s.name, dict(s.attributes or {})] for s in exporter.get_finished_spans()]
    print(json.dumps({"id": commit.transaction_id, "spans": spans}, default=str))
    """
)


def program(table: str, coordinator: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, table, coordinator, name], stdout=subprocess.PIPE, text=True)


@pytest.mark.costly
@pytest.mark.zookeeper
@pytest.mark.slow
def test_the_spans_of_filer_decider_and_publisher_are_in_one_trace(tmp_path: Path, zookeeper_address: str) -> None:
    """One process files a transaction and is stopped; another one decides and publishes it; then the first one goes on."""
    coordinator = f"{zookeeper_address}?session_timeout_s=60"
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    code = PROGRAM.replace(
        "table = sluice.Table.open(location, coordinator=coordinator, application=application)",
        "import os, signal\n"
        "from sluice.coordinator.commit import queue, transactions\n"
        "from sluice.coordinator.limits import Limits\n"
        "table = sluice.Table.open(location, coordinator=coordinator, application=application, limits=Limits(fast_path=False))\n"
        "filed = transactions.file_intents\n"
        "def stop_when_filed(*arguments, **named):\n"
        "    legs = filed(*arguments, **named)\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    return legs\n"
        "transactions.file_intents = stop_when_filed",
    )
    command = [sys.executable, "-c", code, table.location, coordinator, "filer"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as filer:
        try:
            _, status = os.waitpid(filer.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            with program(table.location, coordinator, "decider") as decider:
                assert decider.stdout is not None
                theirs = json.loads(decider.stdout.read())
            os.kill(filer.pid, signal.SIGCONT)
            assert filer.stdout is not None
            mine = json.loads(filer.stdout.read())
            assert filer.wait(60) == 0
        finally:
            if filer.returncode is None:
                filer.kill()
    own = trace_of(mine["id"])
    assert {each[0] for each in mine["spans"]} == {own}
    for_others = {name: attributes for at, name, attributes in theirs["spans"] if at == own}
    assert {"sluice.decide", "sluice.publish"} <= set(for_others)
    assert all(each["sluice.transaction.id"] == mine["id"] for each in for_others.values())
    assert all(each["db.collection.name"] == table.location for each in for_others.values())
    assert {at for at, name, _ in theirs["spans"] if name.startswith("WRITE")} == {trace_of(theirs["id"])}
    assert table.refresh().snapshot().num_rows == 2
