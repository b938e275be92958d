"""`sluice.metrics`: what this process commits, as metrics of Prometheus, and as lines of JSON in the log.

`start()` counts in a registry of `prometheus_client`, which the program exposes as it likes: `prometheus_client.start_http_server(8000)`, a
push gateway, or its web framework. `sluice exporter` has the metrics of a whole coordinator. Names follow Prometheus's conventions (base
units, `_total`), and no label has an id, so there are as many series as tables, rules and outcomes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson

from .coordinator.api import CommitEvent, listen
from .installation import install_command
from .storage.observing import Done, observe
from .storage.times import text_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

_Metric = TypeVar("_Metric", bound="Collector")

__all__ = ["JsonFormatter", "require_prometheus", "start"]

_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Seconds: a commit takes some milliseconds, and its call gives up after two minutes unless it says otherwise."""
_REQUEST_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
"""Seconds: a local server answers within a millisecond, and a store's retries end after a minute or two."""


def start(registry: CollectorRegistry | None = None) -> Callable[[], None]:
    """Count from now on what this process commits, and what it asks of stores and coordinators.

    Returns what ends that, and takes the metrics out of the registry. `registry` is the default one of `prometheus_client` if it is None.

    ==================================================================  ===================================================================
    `sluice_commits_total{table, outcome}`                              calls that commit, by their end: "committed", "repeated", "refused",
                                                                        "unknown", "failed"; one over several tables counts in each
    `sluice_commit_duration_seconds{phase}`                             how long they took: "compare" (with what came first), "decide",
                                                                        "publish", "lease" (waiting for leases and quotas), "all"
    `sluice_attempts_total{table}`                                      how often they were compared and filed: one call may make several
    `sluice_refusals_total{table, rule}`                                calls that were refused, by the rule
    `sluice_store_requests_total{store, operation, outcome}`            requests to object stores; `outcome` is "ok" or an error's class
    `sluice_store_request_duration_seconds{store, operation}`           how long they took
    `sluice_coordinator_requests_total{operation, outcome}`             requests to coordinators: "read", "write", "barrier"
    `sluice_coordinator_request_duration_seconds{operation}`            how long they took
    `sluice_sessions_lost_total`                                        sessions with coordinators that ended without being closed
    `sluice_vacuumed_objects_total{table}`                              objects that vacuums deleted
    `sluice_vacuumed_bytes_total{table}`                                their size
    ==================================================================  ===================================================================

    Raises ImportError, with what to install, if `prometheus_client` is missing; ValueError if the registry has these metrics already.
    """
    require_prometheus()
    from prometheus_client import REGISTRY

    with ExitStack() as ends:
        counted = _Counted(registry or REGISTRY, ends)
        ends.callback(listen(counted.commit))
        ends.callback(observe("store", counted.store_request))
        ends.callback(observe("coordinator", counted.coordinator_request))
        ends.callback(observe("deletions", counted.deletion))
        return ends.pop_all().close


class _Counted:
    """The metrics, in a registry until `ends` is closed, and what counts in them."""

    def __init__(self, registry: CollectorRegistry, ends: ExitStack) -> None:
        from prometheus_client import Counter, Histogram

        def kept(kind: Callable[..., _Metric], name: str, text: str, labels: str = "", **more: Any) -> _Metric:
            family = kind(name, text, labels.split(), registry=registry, **more)
            ends.callback(registry.unregister, family)
            return family

        requests: dict[str, Any] = {"text": "How long they take.", "buckets": _REQUEST_BUCKETS}
        self._commits = kept(Counter, "sluice_commits", "Calls that commit, by their end.", "table outcome")
        self._attempts = kept(Counter, "sluice_attempts", "Attempts to commit: compared with others and filed.", "table")
        self._refusals = kept(Counter, "sluice_refusals", "Calls that were refused, by the rule.", "table rule")
        took = "How long calls that commit take."
        self._seconds = kept(Histogram, "sluice_commit_duration_seconds", took, "phase", buckets=_BUCKETS)
        self._of_store = kept(Counter, "sluice_store_requests", "Requests to object stores.", "store operation outcome")
        self._store_seconds = kept(Histogram, "sluice_store_request_duration_seconds", labels="store operation", **requests)
        self._of_coordinator = kept(Counter, "sluice_coordinator_requests", "Requests to coordinators.", "operation outcome")
        self._coordinator_seconds = kept(Histogram, "sluice_coordinator_request_duration_seconds", labels="operation", **requests)
        self._lost = kept(Counter, "sluice_sessions_lost", "Sessions with coordinators that were lost.")
        self._objects = kept(Counter, "sluice_vacuumed_objects", "Objects that vacuums deleted.", "table")
        self._bytes = kept(Counter, "sluice_vacuumed_bytes", "Bytes of the objects that vacuums deleted.", "table")

    def commit(self, event: CommitEvent) -> None:
        for table in event.tables:
            self._commits.labels(table, event.outcome).inc()
            self._attempts.labels(table).inc(event.attempts)
            if event.rule:
                self._refusals.labels(table, event.rule).inc()
        for phase, took_s in {**event.phases, "lease": event.lease_s, "all": event.seconds}.items():
            self._seconds.labels(phase).observe(took_s)

    def store_request(self, done: Done) -> None:
        store = done.by.location.partition(":")[0]
        self._of_store.labels(store, done.operation, done.error or "ok").inc()
        self._store_seconds.labels(store, done.operation).observe(done.seconds)

    def coordinator_request(self, done: Done) -> None:
        if done.operation == "lose":
            self._lost.inc(done.by.session_id != 0)  # without a number it had never begun
            return
        self._of_coordinator.labels(done.operation, done.error or "ok").inc()
        self._coordinator_seconds.labels(done.operation).observe(done.seconds)

    def deletion(self, done: Done) -> None:
        if not done.error:
            self._objects.labels(done.by.table.location).inc()
            self._bytes.labels(done.by.table.location).inc(done.arguments[0].size)


def require_prometheus() -> None:
    """Raise ImportError with what to install unless `prometheus_client` can be imported."""
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as missing:
        raise ImportError(f"metrics need prometheus_client, which is not installed: {install_command('metrics')}") from missing


class JsonFormatter(logging.Formatter):
    """Each record of a log as one line of JSON: `time`, `level`, `logger`, `message`, and the fields of a commit.

    The logger `sluice.commits` has one record for each call that commits, at INFO. Its fields are those of the event: `transaction_id`,
    `operation`, `application`, `tables`, `outcome`, `error`, `seconds`, `phases`, `attempts`, `lease_s`, `versions`, `rule`, `winner`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, object] = {
            "time": text_of(round(1000 * record.created)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "sluice", None)
        if isinstance(event, CommitEvent):
            line |= {name: getattr(event, name) for name in event.__slots__ if name != "at_ms"}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()
