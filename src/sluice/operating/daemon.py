"""`sluice daemon`: does what is due to any number of tables beside their writers, with any number of instances.

Each round looks at all tables and does what is due: publishes what is pending, decides what nobody decides, writes checkpoints, compacts,
clusters, vacuums, examines, expires dropped tables, and puts rows of contention into their table. While an instance does something to a
table, it holds a lease on a name, and looks at the table again first. So several share the work, nothing is done twice, and one that dies
leaves it to the others. Everything it does is done by the calls that a user makes, which may be killed at any step.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from ..coordinator.api import Address, bounding, connect, keep_contention_in, lease, note_examination, write_through
from ..coordinator.errors import LeaseHeld
from ..storage.dataclass import dataclass
from ..storage.errors import SluiceError
from ..storage.observing import observe
from ..storage.stores.location import normalise
from ..tables.catalog import Catalog
from ..tables.maintain.background import FILES_MIN
from ..tables.table import Table
from .contention import take
from .doctor import doctor
from .document import Table as TableStatus
from .document import Upkeep
from .exporter import Page, serve_pages
from .memory import Memory
from .status import WINDOW_S
from .tables import begin_look, read_tables
from .upkeep import with_upkeep

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
_AWAITED: Final = ("decide", "publish", "checkpoint")
"""Writers and readers of a table wait until these are done."""

_log = logging.getLogger(__name__)


def due(table: TableStatus, doctor_hours: float) -> tuple[str, ...]:
    """What is to be done to a table: "decide", "publish", "look" (at its log, which could not be read), "checkpoint", "cluster" or
    "compact", "vacuum", "doctor". Pure.
    """
    oldest, upkeep = table.queue.oldest, table.upkeep
    if table.version < 0 or (upkeep is not None and not upkeep.daemon):
        return ()
    tasks: list[str] = []
    if oldest is not None and oldest.waits_s > _LATE_S and not (table.leases.held or table.detached):
        tasks.append("decide")
    if table.publication.seconds > _LATE_S and not table.detached:
        tasks.append("publish")
    if table.log_trouble is not None:
        tasks.append("look")
    if table.queue.length > _QUEUE_MAX:
        return tuple(tasks)
    if upkeep is not None and not (upkeep.foreign or table.detached or table.log_trouble):
        behind = upkeep.version if upkeep.versions_since_checkpoint is None else upkeep.versions_since_checkpoint
        tasks += ["checkpoint"] if behind >= _CHECKPOINT_VERSIONS else []
        # without deletion vectors a change of rows that reads the same files would lose to what rewrites them
        if (upkeep.moves_rows or not table.committed) and not (table.leases.held or table.leases.waiting):
            enough = upkeep.unclustered_files >= FILES_MIN or upkeep.unclustered_bytes >= upkeep.file_bytes
            tasks += ["cluster"] if upkeep.unclustered_files and enough else ["compact"] if upkeep.small_files >= FILES_MIN else []
        tasks += ["vacuum"] if _is_late(table.since_vacuum_s, upkeep.vacuum_hours) else []
    return (*tasks, "doctor") if _is_late(table.since_examined_s, doctor_hours) else tuple(tasks)


def _is_late(since_s: float | None, hours: float) -> bool:
    """Whether something is due that is done every so many hours (0: never), and was done last so many seconds ago (None: never)."""
    return hours > 0 and (since_s is None or since_s > hours * _HOUR_S)


def _decide(table: Table, seen: TableStatus) -> str:
    assert seen.queue.oldest is not None
    return f"is {table.outcome(seen.queue.oldest.id).state}"


def _compact(table: Table, _seen: TableStatus) -> str:
    commit = table.compact()
    return "nothing to do" if commit is None else f"version {commit.version}"


def _vacuum(table: Table, _seen: TableStatus) -> str:
    report = table.vacuum()
    return f"{len(report.garbage)} objects of {report.size_bytes:,} bytes deleted, and {len(report.log_files)} files of the log"


_TASKS: Final[Mapping[str, Callable[[Table, TableStatus], str]]] = {
    "decide": _decide,
    "publish": lambda table, _: f"version {table.coordinated.publish()} is in the log",
    "checkpoint": lambda table, _: f"of version {table.checkpoint()}",
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
    """What the last look saw of each table's log, by location."""
    _last_s: float = field(default_factory=time.monotonic)

    def run(self, over: threading.Event) -> None:
        """Make rounds until the event is set, which ends a round after the task in hand; trouble is waited out."""
        end = observe("store", self._go_on)
        while not over.is_set():
            began = time.monotonic()
            try:
                for each in self.round(over):
                    facts = each.location, each.task, each.error or each.result
                    _log.log(logging.WARNING if each.error else logging.INFO, "%s: %s: %s", *facts)
            except Exception as trouble:  # noqa: BLE001 - there is always another round
                unexpected = None if isinstance(trouble, SluiceError) else trouble
                _log.warning(
                    "the daemon could not look at the tables; the next round tries again: %s: %s",
                    type(trouble).__name__,
                    trouble,
                    exc_info=unexpected,
                )
            self._go_on()
            over.wait(max(0.0, self.interval_s - (time.monotonic() - began)))
        end()

    def round(self, over: threading.Event | None = None) -> Iterator[Done]:
        """Look at all tables, and do what is due: first what somebody waits for, then the rest by chance, so that no table is always last.

        With `over`, a round of many: it ends after the task in which the event is set, or the time of the next look comes, since somebody
        may wait meanwhile. What is left is due then. Raises the errors of the coordinator.
        """
        address = str(Address.parse(self.coordinator))
        tables = self._look()
        began = time.monotonic()
        tasks = [(address, "expire"), (address, "contention")]
        tasks += [(table.location, task) for table in tables for task in due(table, self.doctor_hours)]
        random.shuffle(tasks)
        for where, task in sorted(tasks, key=lambda each: each[1] not in _AWAITED):
            if self._pauses_now(where, task):
                continue
            done = self._alone(where, task)
            yield from done
            if over is not None and (over.is_set() or (done and time.monotonic() - began > self.interval_s)):
                return

    def is_alive(self) -> bool:
        """Whether it goes on: a task or a request to a store ended lately, or a round is about to begin.

        No request takes an hour, nor what a task computes between two requests.
        """
        return time.monotonic() - self._last_s < 3 * self.interval_s + _HOUR_S

    def is_ready(self) -> bool:
        """Whether a write of the coordinator goes through now."""
        with suppress(SluiceError), bounding(_TIMEOUT_S):
            write_through(connect(self.coordinator))
            return True
        return False

    def _go_on(self, _request: object = None) -> None:
        self._last_s = time.monotonic()

    def _look(self, only: str | None = None) -> tuple[TableStatus, ...]:
        """All tables, or one, with what maintenance they need now. Where a log could not be read, all but `only` that table waits."""
        with bounding(_TIMEOUT_S):
            session = connect(self.coordinator)
            tables = read_tables(begin_look(session, write_through(session)[1], WINDOW_S, Memory()), only)
        if only is None:
            last, why = self._upkeep.get, dict.fromkeys(("trouble", "log_trouble"), "its log could not be read, and is read again later")
            tables = tuple(
                [replace(each, upkeep=last(each.location), **why) if self._pauses_now(each.location, "look") else each for each in tables]
            )
        tables = with_upkeep(tables, session, self.storage_options, self._upkeep)
        seen = {each.location: each.upkeep for each in tables if each.upkeep is not None}
        self._upkeep = seen if only is None else self._upkeep | seen
        return tables

    def _alone(self, where: str, task: str) -> list[Done]:
        """Do a task to a table, or to the coordinator as a whole (`where`), unless another instance does something there."""
        kind = "awaited " if task in _AWAITED else ""  # what somebody waits for does not wait for a vacuum
        name = f"{APPLICATION} {kind}{sha256(where.encode()).hexdigest()[:32]}"  # a location may be too long for it
        done: list[Done] = []
        try:
            try:
                held = lease(name, wait_s=0, coordinator=self.coordinator, application=APPLICATION)
            except LeaseHeld:
                return done
            with held:
                done += self._do(where, task)
            self._pauses.pop((where, task), None)
        except Exception as trouble:  # noqa: BLE001 - other tasks and tables are not to blame
            done.append(self._failed(where, task, trouble))
        self._go_on()
        return done

    def _do(self, where: str, task: str) -> Iterator[Done]:
        reached: dict[str, Any] = {"coordinator": self.coordinator, "storage_options": self.storage_options, "application": APPLICATION}
        if task == "expire":
            for report in Catalog(**reached).vacuum():
                yield Done(report.location, task, f"{report.deleted} objects deleted")
        elif task == "contention":
            if self.contention is not None:
                keep_contention_in(connect(self.coordinator), normalise(self.contention))
            if taken := take(self.coordinator, self.storage_options, APPLICATION, self.contention_days):
                yield Done(where, task, taken)
        else:
            for seen in self._look(where):
                if task not in due(seen, self.doctor_hours):
                    continue  # another instance has done it, or the table is gone
                if task == "look":
                    raise SluiceError(seen.trouble or "")
                if task == "doctor":
                    yield from self._examine(where)
                else:
                    with Table.open(where, **reached) as table:
                        yield Done(where, task, _TASKS[task](table, seen))

    def _examine(self, location: str) -> Iterator[Done]:
        """The doctor's findings; what is an error is one of the daemon, too, and is logged as a warning."""
        findings = doctor(location, coordinator=self.coordinator, storage_options=self.storage_options).findings
        note_examination(connect(self.coordinator), location)
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
