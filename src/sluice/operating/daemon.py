"""`sluice daemon`: does what is due to any number of tables beside their writers, with any number of instances.

Each round looks at a `status` and does what it says: publishes what is pending, decides what nobody decides, writes checkpoints, compacts,
vacuums, expires dropped tables. While an instance works for a table, it holds a lease on a name, so several share the work, and one that
dies leaves it to the others. Everything it does is done by the calls that a user makes, which may be killed at any step.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from ..coordinator.api import lease
from ..coordinator.errors import LeaseHeld
from ..storage.dataclass import dataclass
from ..storage.errors import SluiceError
from ..tables.catalog import Catalog
from ..tables.maintain.background import FILES_MIN
from ..tables.table import Table
from .document import Table as TableStatus
from .document import Upkeep
from .judging import BOUND_S
from .status import WINDOW_S, look

APPLICATION: Final = "sluice daemon"
"""The name of its commits in the history."""
_TIMEOUT_S: Final = 30.0
_LATE_S: Final = 10.0
_QUEUE_MAX: Final = 4
"""With more transactions in the queue the table is left to its writers, but for what they wait for."""
_CHECKPOINT_VERSIONS: Final = 150
"""Writers make checkpoints themselves; these failed to."""
_PAUSE_MAX_S: Final = 3600.0
_HOUR_S: Final = 3600.0

_log = logging.getLogger(__name__)


def due(table: TableStatus) -> tuple[str, ...]:
    """What is to be done to a table, in this order: "decide", "publish", "checkpoint", "compact", "vacuum". Pure."""
    oldest, upkeep = table.queue.oldest, table.upkeep
    if table.trouble is not None or table.detached or table.version < 0 or (upkeep is not None and not upkeep.daemon):
        return ()
    tasks: list[str] = []
    if oldest is not None and oldest.waits_s > _LATE_S and not table.leases.held:
        tasks.append("decide")
    if table.publication.seconds > _LATE_S:
        tasks.append("publish")
    if table.queue.length > _QUEUE_MAX or (upkeep is not None and upkeep.foreign):
        return tuple(tasks)
    if upkeep is not None:
        behind = upkeep.version if upkeep.versions_since_checkpoint is None else upkeep.versions_since_checkpoint
        tasks += ["checkpoint"] if behind >= _CHECKPOINT_VERSIONS else []
        # without deletion vectors a change of rows that reads the same files would lose to a compaction
        tasks += ["compact"] if upkeep.small_files >= FILES_MIN and (upkeep.moves_rows or not table.committed) else []
        is_late = table.since_vacuum_s is None or table.since_vacuum_s > upkeep.vacuum_hours * _HOUR_S
        tasks += ["vacuum"] if upkeep.vacuum_hours and is_late else []
    return tuple(tasks)


def _decide(table: Table, seen: TableStatus) -> str:
    assert seen.queue.oldest is not None
    return f"is {table.outcome(seen.queue.oldest.id).state}"


def _publish(table: Table, _seen: TableStatus) -> str:
    return f"version {table.coordinated.publish()} is in the log"


def _checkpoint(table: Table, _seen: TableStatus) -> str:
    return f"of version {table.checkpoint()}"


def _compact(table: Table, _seen: TableStatus) -> str:
    commit = table.compact()
    return "nothing to do" if commit is None else f"version {commit.version}"


def _vacuum(table: Table, _seen: TableStatus) -> str:
    return f"{len(table.vacuum().garbage)} objects deleted"


_TASKS: Final[Mapping[str, Callable[[Table, TableStatus], str]]] = {
    "decide": _decide,
    "publish": _publish,
    "checkpoint": _checkpoint,
    "compact": _compact,
    "vacuum": _vacuum,
}


@dataclass(frozen=True, slots=True)
class Done:
    """One thing that a round did, or could not do: then `error` says why, and it is tried again after a pause that doubles."""

    location: str
    task: str
    result: str
    error: str = ""


@dataclass(slots=True)
class Daemon:
    """One instance. `interval_s` is between the beginnings of two rounds."""

    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None
    interval_s: float = 30.0
    _pauses: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict[tuple[str, str], tuple[float, float]])
    """By location and task: how long the last pause after a failure was, and when it ends, by the monotonic clock."""
    _upkeep: dict[str, Upkeep] = field(default_factory=dict[str, Upkeep])
    """What the last round saw of each table's log, by location."""
    _last_s: float = field(default_factory=time.monotonic)
    _is_ready: bool = False

    def run(self, over: threading.Event) -> None:
        """Make rounds until the event is set; trouble with the coordinator is waited out."""
        while not over.is_set():
            began = time.monotonic()
            for each in self.round():
                _log.log(logging.WARNING if each.error else logging.INFO, "%s: %s: %s", each.location, each.task, each.error or each.result)
            over.wait(max(0.0, self.interval_s - (time.monotonic() - began)))

    def round(self) -> Iterator[Done]:
        """Look once, and do what is due."""
        seen = look(
            self.coordinator,
            WINDOW_S,
            BOUND_S,
            _TIMEOUT_S,
            upkeep=True,
            storage_options=self.storage_options,
            former=self._upkeep,
        )
        self._upkeep = {each.location: each.upkeep for each in seen.tables if each.upkeep is not None}
        self._is_ready = seen.coordinator.trouble is None
        for table in seen.tables if self._is_ready else ():
            tasks = [task for task in due(table) if not self._pauses_now(table.location, task)]
            if tasks:
                yield from self._care_for(table, tasks)
            self._last_s = time.monotonic()
        if self._is_ready:
            yield from self._expire(seen.coordinator.address)
        self._last_s = time.monotonic()

    def is_alive(self) -> bool:
        """Whether it went on lately: a round, or a table within one, ended not much longer ago than a round takes to begin."""
        return time.monotonic() - self._last_s < 3 * self.interval_s + _HOUR_S

    def is_ready(self) -> bool:
        """Whether the last round reached the coordinator."""
        return self._is_ready

    def _care_for(self, seen: TableStatus, tasks: list[str]) -> Iterator[Done]:
        """Do the tasks of one table, unless another instance does them."""
        place = f"{APPLICATION} {seen.location}"
        try:
            with (
                lease(place, wait_s=0, coordinator=self.coordinator, application=APPLICATION),
                Table.open(
                    seen.location, coordinator=self.coordinator, storage_options=self.storage_options, application=APPLICATION
                ) as table,
            ):
                for task in tasks:
                    yield from self._do(table, seen, task)
        except LeaseHeld:
            return
        except SluiceError as trouble:
            yield self._failed(seen.location, tasks[0], trouble)

    def _do(self, table: Table, seen: TableStatus, task: str) -> Iterator[Done]:
        try:
            result = _TASKS[task](table, seen)
        except SluiceError as trouble:
            yield self._failed(seen.location, task, trouble)
            return
        self._pauses.pop((seen.location, task), None)
        yield Done(seen.location, task, result)

    def _expire(self, where: str) -> Iterator[Done]:
        """Delete the data of tables that were dropped by name longer ago than they can be brought back; `where` is the coordinator."""
        if self._pauses_now(where, "expire"):
            return
        try:
            with lease(f"{APPLICATION} dropped tables", wait_s=0, coordinator=self.coordinator, application=APPLICATION):
                for report in Catalog(self.coordinator, storage_options=self.storage_options, application=APPLICATION).vacuum():
                    yield Done(report.location, "expire", f"{report.deleted} objects deleted")
        except LeaseHeld:
            return
        except SluiceError as trouble:
            yield self._failed(where, "expire", trouble)

    def _pauses_now(self, location: str, task: str) -> bool:
        return time.monotonic() < self._pauses.get((location, task), (0.0, 0.0))[1]

    def _failed(self, location: str, task: str, trouble: SluiceError) -> Done:
        pause_s = min(_PAUSE_MAX_S, 2 * self._pauses.get((location, task), (self.interval_s / 2, 0.0))[0])
        self._pauses[location, task] = pause_s, time.monotonic() + pause_s
        return Done(location, task, "", f"{type(trouble).__name__}: {trouble.message}; tried again in {pause_s:.0f} s")


def serve_probes(daemon: Daemon, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Answer `/healthz` (it goes on) and `/readyz` (it reaches the coordinator) with 200 or 503; returns the port, and what ends it."""
    answers = {"/healthz": daemon.is_alive, "/readyz": daemon.is_ready}

    class Probes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path)
            code = HTTPStatus.NOT_FOUND if answer is None else HTTPStatus.OK if answer() else HTTPStatus.SERVICE_UNAVAILABLE
            self.send_response(code)
            self.end_headers()
            self.wfile.write(f"{code.phrase}\n".encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
            _log.debug(format, *arguments)

    server = ThreadingHTTPServer((host, port), Probes)
    thread = threading.Thread(target=server.serve_forever, name="sluice-probes", daemon=True)
    thread.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_address[1], end
