"""`sluice.metrics`: what this process commits, as metrics of Prometheus, and as lines of JSON in the log.

`start()` counts in a registry of `prometheus_client`, which the program exposes as it likes: `prometheus_client.start_http_server(8000)`, a
push gateway, or its web framework. `sluice exporter` has the metrics of a whole coordinator. Names follow Prometheus's conventions (base
units, `_total`), and no label has an id, so there are as many series as tables, rules and outcomes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import orjson

from .coordinator.api import CommitEvent, listen
from .coordinator.times import text_of
from .installation import install_command

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["JsonFormatter", "require_prometheus", "start"]

_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Seconds: a commit takes some milliseconds, and its call gives up after two minutes unless it says otherwise."""


def start(registry: CollectorRegistry | None = None) -> Callable[[], None]:
    """Count this process's commits from now on; returns what ends that, and takes the metrics out of the registry.

    `registry` is the default one of `prometheus_client` if it is None.

    ====================================================  =================================================================
    `sluice_commits_total{table, outcome}`                calls that commit, by their end: "committed", "repeated", "refused",
                                                          "unknown", "failed"; one over several tables counts in each
    `sluice_commit_duration_seconds{phase}`               how long they took: "compare" (with what came first), "decide", "publish",
                                                          "lease" (waiting for leases), "all"
    `sluice_attempts_total{table}`                        how often they were compared and filed: one call may make several attempts
    `sluice_refusals_total{table, rule}`                  calls that were refused, by the rule
    ====================================================  =================================================================

    Raises ImportError, with what to install, if `prometheus_client` is missing; ValueError if the registry has these metrics already.
    """
    require_prometheus()
    from prometheus_client import REGISTRY, Counter, Histogram

    into = registry or REGISTRY
    commits = Counter("sluice_commits", "Calls that commit, by their end.", ("table", "outcome"), registry=into)
    attempts = Counter("sluice_attempts", "Attempts to commit: compared with others and filed.", ("table",), registry=into)
    refusals = Counter("sluice_refusals", "Calls that were refused, by the rule.", ("table", "rule"), registry=into)
    seconds = Histogram("sluice_commit_duration_seconds", "How long calls that commit take.", ("phase",), registry=into, buckets=_BUCKETS)

    def count(event: CommitEvent) -> None:
        for table in event.tables:
            commits.labels(table, event.outcome).inc()
            attempts.labels(table).inc(event.attempts)
            if event.rule:
                refusals.labels(table, event.rule).inc()
        for phase, took_s in {**event.phases, "lease": event.lease_s, "all": event.seconds}.items():
            seconds.labels(phase).observe(took_s)

    end_listening = listen(count)

    def end() -> None:
        end_listening()
        for each in (commits, attempts, refusals, seconds):
            into.unregister(each)

    return end


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
