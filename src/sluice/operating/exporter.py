"""`sluice exporter`: the status of a coordinator and its tables as metrics of Prometheus, looked up when they are asked for."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from ..metrics import require_prometheus
from ..storage.caches import ForkSafeLock
from .document import Status
from .status import look
from .upkeep import InBackground

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Page: TypeAlias = Callable[[], "bytes | None"]
"""What a path answers: text, or None for 503."""
_log = logging.getLogger(__name__)
_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus's text format."""
_LOOKS_EVERY_S: Final = 1.0
"""Several scrapers at once see one look."""
_TIMEOUT_S: Final = 3.5
"""For a write, and for what is read; two seconds for the servers: Prometheus gives up after ten."""
_OF_A_TABLE: Final[dict[str, tuple[str, Callable[..., float]]]] = {
    "sluice_table_version": ("The last ratified version.", lambda t: t.version),
    "sluice_commits_per_second": ("Transactions committed per second of the window.", lambda t: t.commits_per_s),
    "sluice_queue_length": ("Transactions that wait to be decided.", lambda t: t.queue.length),
    "sluice_oldest_waiter_seconds": (
        "How long the first of them has waited.",
        lambda t: t.queue.oldest.waits_s if t.queue.oldest is not None else 0.0,
    ),
    "sluice_publish_lag_versions": ("Versions that are ratified and not in the log.", lambda t: t.publication.versions),
    "sluice_publish_lag_seconds": ("How long the oldest of them has not been in the log.", lambda t: t.publication.seconds),
    "sluice_leases_held": ("Leases that are held.", lambda t: t.leases.held),
    "sluice_lease_requests_waiting": ("Requests that wait for leases.", lambda t: t.leases.waiting),
    "sluice_lease_wait_seconds": ("The longest wait for a lease.", lambda t: t.leases.longest_wait_s),
}


def looks(coordinator: str | None, *, upkeep: bool, storage_options: Mapping[str, str] | None) -> Callable[[], Status]:
    """A function that looks again and again; with `upkeep` the logs are read beside it, so that no look waits for the object store."""
    return partial(look, coordinator, timeout_s=_TIMEOUT_S, upkeep=InBackground(storage_options) if upkeep else None)


class StatusMetrics:
    """A collector of `prometheus_client`: the metrics of a status, which `look` makes."""

    def __init__(self, look: Callable[[], Status]) -> None:
        self._look = look
        self._lock = ForkSafeLock()
        self._seen: Status | None = None
        self._seen_s = 0.0

    def collect(self) -> Iterator[Metric]:
        """The metrics of now, or of a second ago."""
        return metrics_of(self._now())

    def ready(self) -> bytes | None:
        """A page that says whether the coordinator can be asked."""
        return b"" if self._now().coordinator.trouble is None else None

    def _now(self) -> Status:
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen_s > _LOOKS_EVERY_S:
                self._seen = self._look()
                self._seen_s = time.monotonic()
            return self._seen


def metrics_of(seen: Status) -> Iterator[Metric]:
    """The metrics of a status, as families of Prometheus."""
    from prometheus_client.core import GaugeMetricFamily

    def gauge(name: str, text: str, labels: str, values: Mapping[Any, float]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=labels.split())
        for key, value in values.items():
            family.add_metric(key, value)
        return family

    coordinator = seen.coordinator
    for name, text, value in (
        ("sluice_up", "1 if the coordinator can be asked.", float(coordinator.trouble is None)),
        ("sluice_coordinator_write_seconds", "How long a write through the quorum took.", coordinator.write_s),
        ("sluice_servers_may_stop", "How many servers may stop before commits do.", coordinator.may_stop_before_commits_do),
        ("sluice_servers_may_be_lost", "How many may lose their disks before data are lost.", coordinator.may_be_lost_before_data_are),
    ):
        if value is not None:
            yield GaugeMetricFamily(name, text, value)
    yield gauge("sluice_servers", "Servers, by their state.", "state", Counter((each.state,) for each in coordinator.servers))
    releases = {(release,): count for release, count in (coordinator.clients or {}).items()}
    yield gauge("sluice_clients", "Connected clients, by their release of sluice.", "release", releases)
    messages = Counter((each.name, each.severity) for each in seen.messages)
    yield gauge("sluice_messages", "What a person should know: see `sluice status`.", "name severity", messages)
    limits = {(each.location, each.limited_by): 1 for each in seen.tables}
    yield gauge("sluice_limited_by", "1 for the word that says what limits a table.", "table limit", limits)
    refusals = Counter[tuple[str, ...]]()
    for table in seen.tables:
        for lost in table.refusals:
            refusals[table.location, lost.rule] += lost.count
    yield gauge("sluice_recent_refusals", "Transactions refused in the window, by the rule.", "table rule", refusals)
    readable = [each for each in seen.tables if each.trouble is None or each.log_trouble is not None]
    for name, (text, value_of) in _OF_A_TABLE.items():
        yield gauge(name, text, "table", {(each.location,): value_of(each) for each in readable})


def serve(look: Callable[[], Status], host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve the metrics at http://host:port/metrics; returns the port (a free one for 0), and what ends it.

    `/healthz` answers 200, `/readyz` while the coordinator can be asked. Raises ImportError, with what to install, if
    `prometheus_client` is missing; OSError if the port is taken.
    """
    require_prometheus()
    from prometheus_client import CollectorRegistry, generate_latest

    registry, metrics = CollectorRegistry(auto_describe=False), StatusMetrics(look)
    registry.register(metrics)
    return serve_pages({"/metrics": partial(generate_latest, registry), "/healthz": lambda: b"", "/readyz": metrics.ready}, host, port)


def serve_pages(pages: Mapping[str, Page], host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve pages by their paths; returns the port (a free one for 0), and what ends it. Raises OSError if the port is taken."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(urlsplit(self.path).path)
            body = None if page is None else page()
            code = HTTPStatus.NOT_FOUND if page is None else HTTPStatus.SERVICE_UNAVAILABLE if body is None else HTTPStatus.OK
            self.send_response(code)
            self.send_header("Content-Type", _PLAIN)
            self.end_headers()
            self.wfile.write(body or f"{code.phrase}\n".encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
            _log.debug(format, *arguments)

    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET

        def handle_error(self, request: object, client_address: object) -> None:
            if not isinstance(sys.exc_info()[1], ConnectionError):  # a scraper that gives up hangs up
                _log.error("no answer to %s", client_address, exc_info=True)

    server = Server((host, port), Pages)
    thread = threading.Thread(target=server.serve_forever, name="sluice-pages", daemon=True)
    thread.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_address[1], end
