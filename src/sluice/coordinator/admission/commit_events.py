"""What becomes of each commit, told once to everybody in this process who listens: metrics, logs, and the record of contention.

Listeners get the event when the call ends, however it ends. It counts all attempts of the call: a caller never sees retries that
succeed, and they show contention. A listener delays the call that it listens to, so it only counts or puts aside. Without listeners
no event is made of a call that met nobody; of one that did a row is kept (`contention.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from typing import Any, Final

from ...storage.actions.features import deletion_vectors
from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError
from ...storage.observing import Done, observe
from ..commit.outcomes import Commit
from ..commit.table import CoordinatedTable
from ..errors import NotCommitted, OutcomeUnknown
from ..nodes.context import TableContext
from ..nodes.presence import made_ms
from ..publication.failure_points import timed
from .change import Change

_log = logging.getLogger(__name__)
commits_log: Final = logging.getLogger("sluice.commits")
"""Has one record for each commit at INFO, with its fields in the attribute `sluice`."""


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """How one call that commits ended.

    `outcome` is "committed", "repeated" (it had been committed before), "refused", "unknown" (its outcome must be asked for), or "failed"
    (nothing was committed, for another reason); `error` is the exception's class, "" without one. `tables` are the locations, `versions`
    the committed versions by location. `attempts` counts how often it was compared and filed, `lease_s` are the seconds it waited for
    leases, `seconds` all of the call, and `phases` parts of them: "compare" (with commits that came first, and storing large actions),
    "decide" (filed, until the verdict), "publish" (until other engines can read it). `rule` and `winner` say what it lost to.
    """

    transaction_id: str
    operation: str
    application: str
    tables: tuple[str, ...]
    outcome: str
    error: str
    seconds: float
    phases: Mapping[str, float]
    attempts: int
    lease_s: float
    at_ms: int
    versions: Mapping[str, int] = field(default_factory=dict)
    rule: str = ""
    winner: Mapping[str, Any] = field(default_factory=dict)


_QUEUED: Final[Mapping[str, Any]] = {"rule": "queue"}
_QUOTA: Final[Mapping[str, Any]] = {"rule": "quota"}
_QUOTA_S: Final = 0.5
"""A longer wait for a quota makes a row."""
_QUEUE_S: Final = 5.0
"""A longer wait for the decision makes a row: a queue of some seconds is usual where many write."""
Listener = Callable[[CommitEvent], None]
_listeners: list[Listener] = []


def listen(listener: Listener) -> Callable[[], None]:
    """Tell `listener` of each commit that ends in this process from now on; returns what ends that."""
    _listeners.append(listener)

    def end() -> None:
        if listener in _listeners:
            _listeners.remove(listener)

    return end


@dataclass(frozen=True, slots=True)
class StepEvent:
    """What this process did to transactions of other clients, in one table: `step` is "decide" or "publish"."""

    step: str
    table: str
    transaction_ids: tuple[str, ...]
    seconds: float
    at_ms: int


def listen_to_steps(listener: Callable[[StepEvent], None]) -> Callable[[], None]:
    """Tell `listener` of each decision and publication of others' transactions in this process from now on; returns what ends that."""

    def tell(step: str, context: TableContext, transaction_ids: Iterable[str], seconds: float) -> None:
        presence = context.presence
        others = tuple(each for each in transaction_ids if presence is None or not presence.owns(each))
        if others:
            listener(StepEvent(step, context.tree.location, others, seconds, context.clock.now_ms()))

    def decided(done: Done) -> None:
        for batch in done.result or ():
            tell("decide", batch.table.context, (each.transaction_id for each in batch.record.verdicts), done.seconds)

    def published(done: Done) -> None:
        record, plan = done.arguments
        if done.result:
            tell(
                "publish", done.by.context, (each.transaction_id for each in record.verdicts if each.version == plan.version), done.seconds
            )

    ends = ExitStack()
    ends.callback(observe("decisions", decided))
    ends.callback(observe("publications", published))
    return ends.close


@dataclass(slots=True)
class Course:
    """What happens to a call that commits, besides its end: its attempts, and its waits for leases."""

    began_s: float = field(default_factory=time.monotonic)
    attempts: int = 0
    lease_s: float = 0.0
    repeated_s: float = 0.0
    """How long the attempts took that were refused and repeated."""
    commits: Mapping[str, Commit] = field(default_factory=dict[str, Commit])
    met: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The details of the last refusal after which it was tried again."""

    @contextmanager
    def waiting(self, held: NotCommitted) -> Iterator[None]:
        """The block waits for leases, one of which refused an attempt."""
        began, self.met = time.monotonic(), held.details
        try:
            yield
        finally:
            self.lease_s += time.monotonic() - began

    def held_back(self, seconds: float) -> None:
        """An attempt waited so long before it was within a quota."""
        if seconds > _QUOTA_S:
            self.lease_s, self.met = self.lease_s + seconds, _QUOTA

    def repeats(self, refusal: NotCommitted) -> None:
        """Another attempt follows one that was refused."""
        self.met, self.repeated_s = refusal.details, time.monotonic() - self.began_s - self.lease_s


@contextmanager
def reported(changes: Sequence[tuple[CoordinatedTable, Change]], *, commits: bool = True) -> Iterator[Course]:
    """Tell the listeners how a block ends that commits these changes; of one that only compares them (`commits` is false) its refusals."""
    course = Course()
    with timed() as times:
        error: BaseException | None = None
        try:
            yield course
        except BaseException as failure:
            error = failure
            raise
        finally:
            is_heard = _listeners or commits_log.isEnabledFor(logging.INFO)
            met_others = error is not None or course.met or time.monotonic() - course.began_s > _QUEUE_S
            if (is_heard or met_others) and (commits or isinstance(error, NotCommitted)):
                details = error.details if isinstance(error, SluiceError) else {}
                try:
                    event = _event(changes, course, error, details, times)
                    if is_heard:
                        _tell(event)
                    if met_others:
                        _record(changes[0], course, event, details)
                except Exception:  # noqa: BLE001 - the commit is not to blame
                    _log.exception("what became of a commit could not be told")
            error = None  # no circle of references


def _event(
    changes: Sequence[tuple[CoordinatedTable, Change]],
    course: Course,
    error: BaseException | None,
    details: Mapping[str, Any],
    times: Mapping[str, float],
) -> CommitEvent:
    ended, began = time.monotonic(), course.began_s
    table, change = changes[0]
    filed = times.get("before-claim", times.get("before-ratify", ended))
    decided = times.get("decided", ended)
    facts = details.get("facts") or {}
    if error is None:
        outcome = "repeated" if all(each.repeated for each in course.commits.values()) else "committed"
    else:
        outcome = "refused" if isinstance(error, NotCommitted) else "unknown" if isinstance(error, OutcomeUnknown) else "failed"
    phases = {"compare": filed - began, "decide": max(0.0, decided - filed), "publish": max(0.0, ended - decided)}
    return CommitEvent(
        transaction_id=str(
            next((each.transaction_id for each in course.commits.values()), details.get("transaction_id")) or change.transaction_id
        ),
        operation=change.operation,
        application=table.context.client.application,
        tables=tuple([each.location for each, _ in changes]),
        outcome=outcome,
        error="" if error is None else type(error).__name__,
        seconds=ended - began,
        phases=phases,
        attempts=max(1, course.attempts),
        lease_s=course.lease_s,
        at_ms=table.clock.now_ms(),
        versions={location: each.version for location, each in course.commits.items()},
        rule=str(details.get("rule") or ""),
        winner=facts.get("winner") or {},
    )


def _tell(event: CommitEvent) -> None:
    for listener in tuple(_listeners):
        try:
            listener(event)
        except Exception:  # noqa: BLE001 - the commit is not to blame
            _log.exception("a listener of commits failed; the commit of transaction %s did not", event.transaction_id)
    lost = f" by the rule {event.rule}" if event.rule else ""
    where = ", ".join(f"{location} as version {version}" for location, version in event.versions.items()) or ", ".join(event.tables)
    message = "%s %s %s%s in %.3f s, attempts: %d"
    values = (event.operation, event.outcome, where, lost, event.seconds, event.attempts)
    commits_log.info(message, *values, extra={"sluice": event})


def _record(of: tuple[CoordinatedTable, Change], course: Course, event: CommitEvent, details: Mapping[str, Any]) -> None:
    """Have a call that met others told as a row: it was refused, made several attempts, or waited for a lease or long in the queue.

    A refused one lost its work since the transaction was begun, which its id says to the second.
    """
    from ..contention import tell

    (table, change), snapshot, waited_s = of, of[1].snapshot, event.phases["decide"]
    if event.outcome == "refused" and event.error != "Withdrawn":  # by its own owner
        begun_ms = made_ms(str(change.transaction_id))
        kind, seconds = "refused", max(event.seconds, 0.0 if begun_ms is None else (event.at_ms - begun_ms) / 1000 - 1)
    elif course.met:
        waited = "quota" if course.met is _QUOTA else "lease"
        kind, seconds, details = (waited, course.lease_s, course.met) if course.lease_s else ("repeated", course.repeated_s, course.met)
    elif waited_s > _QUEUE_S:
        kind, seconds, details = "queue", waited_s, _QUEUED
    else:
        return
    facts = dict(details.get("facts") or {})
    if str(details.get("rule")).startswith("removed-") and not (snapshot and deletion_vectors(snapshot.protocol, snapshot.metadata)):
        facts["advice"] = f"{facts.get('advice')}; with deletion vectors (delta.enableDeletionVectors) only changes of the same rows meet"
    said = {"operation": event.operation, "location": facts.get("table") or table.location, "attempts": event.attempts, "kind": kind}
    said |= {"transaction_id": details.get("transaction_id") or event.transaction_id, "seconds": round(seconds, 3)}
    tell(table.leases.home.coordinator, table.context.client, event.at_ms, {**details, "facts": facts}, **said)
