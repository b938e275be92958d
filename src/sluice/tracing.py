"""`sluice.tracing`: what this process commits, decides and publishes, as spans of OpenTelemetry, and how long its commits take.

A transaction's spans are made by several processes: one files it, another one may decide it or write its version into the log. Nothing
is passed between them. The trace's id follows from the transaction's id, which all of them know (`trace_of`). Names and attributes are
those of OpenTelemetry's semantic conventions for databases.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from .coordinator.api import CommitEvent, StepEvent, listen, listen_to_steps
from .installation import __version__, install_command

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import SpanContext, Tracer, TracerProvider

__all__ = ["start", "trace_of"]

_SYSTEM: Final = "sluice"
_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
"""The buckets that the semantic conventions advise."""
_PHASES: Final = ("compare", "decide", "publish")


def start(tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None) -> Callable[[], None]:
    """Make spans of what this process commits from now on, and of what it does to transactions of others; returns what ends that.

    The providers are OpenTelemetry's global ones if they are None. Each call that commits is a span with a child for each of its phases,
    which follow one another: "compare", "decide", "publish". It is a child of the current span; without one it is in the transaction's own
    trace (`trace_of`). What this process decides or publishes for another client is a span in the trace of that one's transaction.
    The histogram `db.client.operation.duration` has the seconds of the calls. Raises ImportError, with what to install, without the
    package `opentelemetry-api`.
    """
    try:
        from opentelemetry import metrics, trace
    except ModuleNotFoundError as missing:
        raise ImportError(f"tracing needs opentelemetry-api, which is not installed: {install_command('tracing')}") from missing
    tracer = trace.get_tracer("sluice", __version__, tracer_provider)
    durations = metrics.get_meter("sluice", __version__, meter_provider).create_histogram(
        "db.client.operation.duration", "s", "Duration of database client operations.", explicit_bucket_boundaries_advisory=_SECONDS
    )
    spans, ends = _Spans(trace, tracer, durations), ExitStack()
    ends.callback(listen(spans.of_commit))
    ends.callback(listen_to_steps(spans.of_step))
    return ends.close


def trace_of(transaction_id: str) -> str:
    """The id of the trace in which all processes put what they do for a transaction: 32 hexadecimal digits, the first of a SHA-256."""
    return hashlib.sha256(transaction_id.encode()).hexdigest()[:32]


class _Spans:
    """Makes spans of what has ended, with the times at which it began and ended; `trace` is OpenTelemetry's module."""

    def __init__(self, trace: Any, tracer: Tracer, durations: Histogram) -> None:
        self._trace, self._tracer, self._durations = trace, tracer, durations

    def of_commit(self, event: CommitEvent) -> None:
        """The span of a call that committed, or tried to, and those of its phases."""
        about: dict[str, Any] = {"db.system.name": _SYSTEM, "db.operation.name": event.operation}
        if len(event.tables) == 1:
            about["db.collection.name"] = event.tables[0]
        if event.error:
            about["error.type"] = event.error
        self._durations.record(event.seconds, about)
        attributes = {
            **about,
            "sluice.transaction.id": event.transaction_id,
            "sluice.application": event.application,
            "sluice.attempts": event.attempts,
            "sluice.outcome": event.outcome,
            "sluice.rule": event.rule,
            "sluice.tables": event.tables,
            "sluice.versions": [event.versions[each] for each in event.tables if each in event.versions],
        }
        ended, home = 1_000_000 * event.at_ms, self._home_of(event.transaction_id)
        at = ended - _ns(event.seconds)
        is_within = self._trace.get_current_span().get_span_context().is_valid
        span = self._tracer.start_span(
            " ".join((event.operation, *event.tables[: len(event.tables) == 1])),
            None if is_within else self._below(home),
            self._trace.SpanKind.CLIENT,
            attributes,
            [self._trace.Link(home)] if is_within else [],
            at,
        )
        for phase in _PHASES:
            part = self._tracer.start_span(f"sluice.{phase}", self._trace.set_span_in_context(span), start_time=at)
            at += _ns(event.phases[phase])
            part.end(at)
        if event.error:
            span.set_status(self._trace.StatusCode.ERROR, event.outcome)
        span.end(ended)

    def of_step(self, event: StepEvent) -> None:
        """What this process did for transactions of others: a span in the trace of each."""
        ended = 1_000_000 * event.at_ms
        for each in event.transaction_ids:
            about = {"db.system.name": _SYSTEM, "db.collection.name": event.table, "sluice.transaction.id": each}
            began, below = ended - _ns(event.seconds), self._below(self._home_of(each))
            self._tracer.start_span(f"sluice.{event.step}", below, attributes=about, start_time=began).end(ended)

    def _home_of(self, transaction_id: str) -> SpanContext:
        """The place below which all spans of a transaction are, in its own trace; there is no span in the place itself."""
        digest = hashlib.sha256(transaction_id.encode()).hexdigest()
        flags = self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED)
        context: SpanContext = self._trace.SpanContext(int(digest[:32], 16), int(digest[32:48], 16), is_remote=True, trace_flags=flags)
        return context

    def _below(self, home: SpanContext) -> Any:
        return self._trace.set_span_in_context(self._trace.NonRecordingSpan(home))


def _ns(seconds: float) -> int:
    return round(1e9 * seconds)
