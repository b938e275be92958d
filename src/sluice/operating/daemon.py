"""`sluice daemon`: does what is due to any number of tables beside their writers, with any number of instances.

Each round looks at a `status` and does what it says: publishes what is pending, decides what nobody decides, writes checkpoints, compacts,
clusters, vacuums, examines, expires dropped tables, and puts rows of contention into their table. While an instance works for a table, it
holds a lease on a name, so several share the work, and one that dies leaves it to the others. Everything it does is done by the calls that
a user makes, which may be killed at any step.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import field
from functools import partial
from hashlib import sha256
from typing import Any, Final

from ..coordinator.api import connect, keep_contention_in, lease
from ..coordinator.errors import LeaseHeld
from ..storage.dataclass import dataclass
from ..storage.errors import SluiceError
from ..storage.stores.location import normalise
from ..tables.catalog import Catalog
from ..tables.maintain.background import FILES_MIN
from ..tables.table import Table
from .contention import take
from .doctor import doctor
from .document import Table as TableStatus
from .document import Upkeep
from .exporter import Page, serve_pages
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
    """What is to be done to a table, in this order: "decide", "publish", "checkpoint", "cluster" or "compact", "vacuum". Pure."""
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
        # without deletion vectors a change of rows that reads the same files would lose to what rewrites them
        if (upkeep.moves_rows or not table.committed) and not (table.leases.held or table.leases.waiting):
            enough = upkeep.unclustered_files >= FILES_MIN or upkeep.unclustered_bytes >= upkeep.file_bytes
            tasks += ["cluster"] if upkeep.unclustered_files and enough else ["compact"] if upkeep.small_files >= FILES_MIN else []
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
    report = table.vacuum()
    return f"{len(report.garbage)} objects of {report.size_bytes:,} bytes deleted, and {len(report.log_files)} files of the log"


_TASKS: Final[Mapping[str, Callable[[Table, TableStatus], str]]] = {
    "decide": _decide,
    "publish": _publish,
    "checkpoint": _checkpoint,
    "cluster": _compact,
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
    """One instance. `interval_s` is between the beginnings of two rounds, `doctor_hours` between two examinations of a table (0: none).

    `contention` is the location of the table in which all instances keep the coordinator's rows of contention, for `contention_days`; None:
    where they do already.
    """

    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None
    interval_s: float = 30.0
    doctor_hours: float = 24.0
    contention: str | None = None
    contention_days: float = 30.0
    _pauses: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict[tuple[str, str], tuple[float, float]])
    """By location and task: how long the last pause after a failure was, and when it ends, by the monotonic clock."""
    _upkeep: dict[str, Upkeep] = field(default_factory=dict[str, Upkeep])
    """What the last round saw of each table's log, by location."""
    _examined_s: dict[str, float] = field(default_factory=dict[str, float])
    """When each table, by location, is examined the next time, by the monotonic clock."""
    _last_s: float = field(default_factory=time.monotonic)
    _is_ready: bool = False
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self, over: threading.Event) -> None:
        """Make rounds until the event is set, which ends a round after what is being done; trouble is waited out."""
        self._over = over
        while not over.is_set():
            began = time.monotonic()
            try:
                for each in self.round():
                    self._last_s = time.monotonic()
                    facts = each.location, each.task, each.error or each.result
                    _log.log(logging.WARNING if each.error else logging.INFO, "%s: %s: %s", *facts)
                    if over.is_set():
                        break
            except Exception:  # noqa: BLE001 - there is always another round
                self._is_ready = False
                _log.exception("the daemon could not look at the tables; the next round tries again")
            over.wait(max(0.0, self.interval_s - (time.monotonic() - began)))

    def round(self) -> Iterator[Done]:
        """Look once, and do what is due."""
        seen = look(self.coordinator, WINDOW_S, BOUND_S, _TIMEOUT_S, upkeep=True, storage_options=self.storage_options, former=self._upkeep)
        self._upkeep = {each.location: each.upkeep for each in seen.tables if each.upkeep is not None}
        self._is_ready = seen.coordinator.trouble is None
        for table in seen.tables if self._is_ready else ():
            if self._over.is_set():
                return
            tasks = [task for task in due(table) if not self._pauses_now(table.location, task)]
            if tasks:
                yield from self._alone(table.location, tasks[0], partial(self._care_for, table, tasks))
            if self._examines(table):
                yield from self._alone(table.location, "doctor", partial(self._examine, table.location))
            self._last_s = time.monotonic()
        if self._is_ready:
            yield from self._alone(seen.coordinator.address, "expire", self._expire)
            yield from self._alone(seen.coordinator.address, "contention", partial(self._take, seen.coordinator.address))
        self._last_s = time.monotonic()

    def is_alive(self) -> bool:
        """Whether it went on lately: a round, or a table within one, ended not much longer ago than a round takes to begin."""
        return time.monotonic() - self._last_s < 3 * self.interval_s + _HOUR_S

    def is_ready(self) -> bool:
        """Whether the last round reached the coordinator."""
        return self._is_ready

    def _alone(self, where: str, task: str, work: Callable[[], Iterator[Done]]) -> Iterator[Done]:
        """Do what concerns one table, or the coordinator as a whole (`where`), unless another instance does something there."""
        if self._pauses_now(where, task):
            return
        name = f"{APPLICATION} {sha256(where.encode()).hexdigest()[:32]}"  # a location may be too long for it
        with ExitStack() as held:
            try:
                try:
                    held.enter_context(lease(name, wait_s=0, coordinator=self.coordinator, application=APPLICATION))
                except LeaseHeld:
                    return
                yield from work()
            except Exception as trouble:  # noqa: BLE001 - other tables are not to blame
                yield self._failed(where, task, trouble)

    def _care_for(self, seen: TableStatus, tasks: list[str]) -> Iterator[Done]:
        """Do the tasks of one table."""
        reached: dict[str, Any] = {"coordinator": self.coordinator, "storage_options": self.storage_options, "application": APPLICATION}
        with Table.open(seen.location, **reached) as table:
            for task in tasks:
                yield from self._do(table, seen, task)

    def _do(self, table: Table, seen: TableStatus, task: str) -> Iterator[Done]:
        try:
            result = _TASKS[task](table, seen)
        except Exception as trouble:  # noqa: BLE001 - other tasks are not to blame
            yield self._failed(seen.location, task, trouble)
            return
        self._pauses.pop((seen.location, task), None)
        yield Done(seen.location, task, result)

    def _expire(self) -> Iterator[Done]:
        """Delete the data of tables that were dropped by name longer ago than they can be brought back."""
        for report in Catalog(self.coordinator, storage_options=self.storage_options, application=APPLICATION).vacuum():
            yield Done(report.location, "expire", f"{report.deleted} objects deleted")

    def _take(self, where: str) -> Iterator[Done]:
        if self.contention is not None:
            keep_contention_in(connect(self.coordinator), normalise(self.contention))
        taken = take(self.coordinator, self.storage_options, APPLICATION, self.contention_days)
        if taken:
            yield Done(where, "contention", taken)

    def _examines(self, table: TableStatus) -> bool:
        """Whether a table is to be examined now; the first time at some time of the first period, not all tables at once."""
        is_ours = table.upkeep is None or table.upkeep.daemon
        may_be = self.doctor_hours and table.version >= 0 and table.queue.length <= _QUEUE_MAX and is_ours
        period_s, now_s = self.doctor_hours * _HOUR_S, time.monotonic()
        is_due = now_s >= self._examined_s.setdefault(table.location, now_s + period_s * random.random())  # noqa: S311 - no secret
        if may_be and is_due:
            self._examined_s[table.location] = now_s + period_s
        return bool(may_be and is_due)

    def _examine(self, location: str) -> Iterator[Done]:
        """The doctor's findings; what is an error is one of the daemon, too, and is logged as a warning."""
        findings = doctor(location, coordinator=self.coordinator, storage_options=self.storage_options).findings
        for each in findings:
            text = f"{each.severity}: {each.about}: {each.what}; {each.remedy}"
            yield Done(location, "doctor", "", text) if each.severity == "error" else Done(location, "doctor", text)
        if not findings:
            yield Done(location, "doctor", "nothing is wrong")

    def _pauses_now(self, location: str, task: str) -> bool:
        return time.monotonic() < self._pauses.get((location, task), (0.0, 0.0))[1]

    def _failed(self, location: str, task: str, trouble: Exception) -> Done:
        pause_s = min(_PAUSE_MAX_S, 2 * self._pauses.get((location, task), (self.interval_s / 2, 0.0))[0])
        self._pauses[location, task] = pause_s, time.monotonic() + pause_s
        if not isinstance(trouble, SluiceError):
            _log.error("%s: %s failed by an error of the program or the machine", location, task, exc_info=trouble)
        message = trouble.message if isinstance(trouble, SluiceError) else str(trouble)
        return Done(location, task, "", f"{type(trouble).__name__}: {message}; tried again in {pause_s:.0f} s")


def serve_probes(daemon: Daemon, host: str, port: int, *, metrics: Page | None = None) -> tuple[int, Callable[[], None]]:
    """Answer `/healthz` (it goes on) and `/readyz` (it reaches the coordinator) with 200 or 503, and `/metrics` if there are any.

    Returns the port, and what ends it.
    """
    pages: dict[str, Page] = {
        "/healthz": lambda: b"" if daemon.is_alive() else None,
        "/readyz": lambda: b"" if daemon.is_ready() else None,
    }
    return serve_pages(pages if metrics is None else {**pages, "/metrics": metrics}, host, port)
