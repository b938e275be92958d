"""What becomes of each commit, told once to everybody in this process who listens: metrics, logs, and the record of contention.

Listeners get the event when the call ends, however it ends. It counts all attempts of the call: a caller never sees retries that
succeed, and they show contention. A listener delays the call that it listens to, so it only counts or puts aside. Without listeners
nothing is measured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Final

from ...storage.dataclass import dataclass
from ..commit.outcomes import Commit
from ..commit.table import CoordinatedTable
from ..errors import NotCommitted, OutcomeUnknown
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


Listener = Callable[[CommitEvent], None]
_listeners: list[Listener] = []


def listen(listener: Listener) -> Callable[[], None]:
    """Tell `listener` of each commit that ends in this process from now on; returns what ends that."""
    _listeners.append(listener)

    def end() -> None:
        if listener in _listeners:
            _listeners.remove(listener)

    return end


class Course:
    """What happens to a call that commits, besides its end: its attempts, and its waits for leases."""

    def __init__(self) -> None:
        self.attempts = 0
        self.lease_s = 0.0
        self.commits: Mapping[str, Commit] = {}

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The block waits for leases."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.lease_s += time.monotonic() - began


@contextmanager
def reported(changes: Sequence[tuple[CoordinatedTable, Change]], *, commits: bool = True) -> Iterator[Course]:
    """Tell the listeners how a block ends that commits these changes; of one that only compares them (`commits` is false) its refusals."""
    course = Course()
    if not _listeners and not commits_log.isEnabledFor(logging.INFO):
        yield course
        return
    began = time.monotonic()
    with timed() as times:
        error: BaseException | None = None
        try:
            yield course
        except BaseException as failure:
            error = failure
            raise
        finally:
            if commits or isinstance(error, NotCommitted):
                _tell(_event(changes, course, error, began, times))
            error = None  # no circle of references


def _event(
    changes: Sequence[tuple[CoordinatedTable, Change]],
    course: Course,
    error: BaseException | None,
    began: float,
    times: Mapping[str, float],
) -> CommitEvent:
    ended = time.monotonic()
    table, change = changes[0]
    filed = times.get("before-claim", times.get("before-ratify", ended))
    decided = times.get("decided", ended)
    details = getattr(error, "details", {})
    facts = details.get("facts") or {}
    if error is None:
        outcome = "repeated" if all(each.repeated for each in course.commits.values()) else "committed"
    else:
        outcome = "refused" if isinstance(error, NotCommitted) else "unknown" if isinstance(error, OutcomeUnknown) else "failed"
    phases = {"compare": filed - began, "decide": max(0.0, decided - filed), "publish": max(0.0, ended - decided)}
    return CommitEvent(
        transaction_id=str(change.transaction_id),
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
