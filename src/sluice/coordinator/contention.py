"""Contention as rows: what refusals and waits cost the process that met them, filed in batches.

::

    /contention                      data: an id, and the location of the table in which daemons keep the rows
        b-<guid>-<rows>-<sequence>   one batch: persistent, immutable; gone when a daemon has taken it, or newer ones need its place

The owner of a transaction makes its row when the call ends, whichever process decided. So each refusal and each wait has one row. A
process keeps its rows in memory, and a thread of its own files them: one batch in `EVERY_S` seconds at most, and what is left when the
process ends. This never opens a session, delays no commit and fails none. What does not fit is dropped, the oldest first, and counted:
neither memory nor the tree grows. Nobody files a batch again whose reply was lost, since a daemon may have taken it already: the process
looks for it, and counts it as dropped if it is not there.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final

from ..storage.caches import ForkSafeLock
from ..storage.dataclass import dataclass
from ..storage.errors import SluiceError
from .errors import UnknownFormat
from .formats import CONTENTION_FORMAT, MalformedRecord, NodeData, Record, node_data
from .nodes.layout import CLIENTS
from .rules.intent import ClientName
from .service.clock import SystemClock, bounding
from .service.connect import session_of
from .service.store import BadVersion, CoordinationStore, NoNode, ReplyLost, make_node

_log = logging.getLogger(__name__)

CONTENTION: Final = "/contention"
EVERY_S: Final = 10.0
BATCH_ROWS_MAX: Final = 100
"""About 80 KB, far below what a node may have."""
BATCHES_MAX: Final = 256
"""With all of them, the tree has about 20 MB of rows."""
ROWS_MAX: Final = 2000
"""Of one process, in memory."""
_TEXT_MAX: Final = 400
_OLD_MS: Final = 86_400_000
"""A row counts as no older than this when it is filed, nor as later than its batch, whatever a broken or strange client says."""
_FILING_S: Final = 5.0
_AT_EXIT_S: Final = 2.0
_BATCH: Final = re.compile(r"b-([0-9a-f]{32})-([0-9]{1,9})-([0-9]{10})")
_SWITCH: Final = "SLUICE_CONTENTION"
"""The environment variable that turns the rows of a process off ("off")."""
_REMEDIES: Final[Mapping[str, str]] = {
    "lease-held": "take leases on the partitions that the work needs (where=...), and release them as soon as it is done",
    "expected-version": "read the table again and repeat; leave out if_version where the rows do not depend on the whole table",
    "quota": "a larger quota (`sluice quotas set`), or fewer, larger commits",
    "queue": "`sluice status` says what limits the table while it happens; fewer, larger commits wait less",
}


@dataclass(frozen=True, slots=True)
class Contention:
    """What a refusal or a wait cost one call: `seconds`, at least, at the time `at_ms`.

    `kind` is "refused" (the transaction, whose work since it was begun is lost, or a request for a lease), "repeated" (it committed, but
    attempts before it were refused), "lease" or "quota" (it waited for one), "queue" (it waited long to be decided). `location` is that of
    a table, or the name of a lease. `winner` is the application that was in the way, "" if none is known; `what` are the partitions, files
    or condition that both concern, `remedy` says what would have kept them apart.
    """

    at_ms: int
    application: str
    host: str
    pid: int
    kind: str
    location: str
    transaction_id: str = ""
    operation: str = ""
    winner: str = ""
    winner_host: str = ""
    winner_operation: str = ""
    winner_version: int = -1
    rule: str = ""
    what: str = ""
    seconds: float = 0.0
    attempts: int = 1
    remedy: str = ""

    @staticmethod
    def of(client: ClientName, at_ms: int, details: Mapping[str, Any], **fields: Any) -> Contention:
        """The row of a client; `details` are those of a refusal: with whom, by which rule, about what, and what keeps both apart."""
        facts: Mapping[str, Any] = details.get("facts") or {}
        rule, winner = details.get("rule") or ("lease-held" if "holder" in facts else ""), facts.get("winner") or {}
        texts: dict[str, Any] = {
            "winner": winner.get("application") or facts.get("holder"),
            "winner_host": winner.get("host") or ("holder" in facts and facts.get("host")),
            "winner_operation": details.get("winning_operation") or facts.get("mode"),
            "what": facts.get("what") or facts.get("where"),
            "remedy": facts.get("advice") or _REMEDIES.get(rule),
        }
        fields |= {name: str(text or "")[:_TEXT_MAX] for name, text in texts.items()}
        fields["winner_version"] = -1 if details.get("winning_version") is None else details["winning_version"]
        return Contention(at_ms, client.application, client.host, client.pid, rule=rule, **fields)


@node_data("contention")
class _Root(NodeData):
    """The `id` distinguishes this node from one of a tree that was lost; `location` is "" until a daemon keeps the rows."""

    id: str = ""
    location: str = ""


@node_data("contention batch")
class Batch(Record):
    """Rows of one process. `filed_ms` is its time, `dropped` counts rows that had no room, also those of batches that made place."""

    rows: tuple[Contention, ...] = ()
    dropped: int = 0
    filed_ms: int = 0
    format: int = CONTENTION_FORMAT


# -- telling -----------------------------------------------------------------------------------------------------------------


class _Recorder:
    """What this process has to tell, by coordinator, and the thread that files it; a forked process has nothing to tell."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._rows: dict[str, list[Contention]] = {}
        self._dropped = Counter[str]()
        _begun.cache_clear()

    def keep(self, coordinator: str, row: Contention) -> None:
        """Keep a row until the next batch."""
        with self._lock:
            self._put(coordinator, [*self._rows.get(coordinator, ()), row])
        _begun()

    def _put(self, coordinator: str, rows: list[Contention]) -> None:
        self._dropped[coordinator] += max(0, len(rows) - ROWS_MAX)
        self._rows[coordinator] = rows[-ROWS_MAX:]

    def finish(self) -> None:
        """File what is left while the time allows: one batch after the other, and in its second half a last one, which counts the rest."""
        end_s, left = time.monotonic() + _AT_EXIT_S, 0
        while (rows := sum(map(len, list(self._rows.values())))) not in (0, left) and (rest_s := end_s - time.monotonic()) > 0:
            left = rows
            self.flush(rest_s, last=rest_s < _AT_EXIT_S / 2)

    def flush(self, limit_s: float, *, last: bool = False) -> None:
        """File a batch for each coordinator that this process is connected to, if there is anything to tell; the `last` has the newest rows
        and counts the others as dropped."""
        for coordinator in [each for each, rows in list(self._rows.items()) if rows]:
            session = session_of(coordinator)
            if session is None or not session.connected:
                continue
            with self._lock:
                rows, lost = self._rows.pop(coordinator, []), self._dropped.pop(coordinator, 0)
            if last:
                lost, rows = lost + max(0, len(rows) - BATCH_ROWS_MAX), rows[-BATCH_ROWS_MAX:]
            batch = Batch(tuple(rows[:BATCH_ROWS_MAX]), lost, SystemClock().now_ms())
            try:
                with bounding(limit_s):
                    lost = 0 if file_batch(session, batch) else len(batch.rows) + lost
                rows = rows[len(batch.rows) :]
            except SluiceError as away:
                _log.info("%d rows of contention are filed later: %s", len(rows), away)
            except Exception:  # noqa: BLE001 - no commit depends on it
                _log.exception("rows of contention could not be filed")
                lost, rows = lost + len(batch.rows), rows[len(batch.rows) :]
            with self._lock:
                self._dropped[coordinator] += lost
                self._put(coordinator, [*rows, *self._rows.get(coordinator, ())])

    def work(self) -> None:
        """File again and again, in a thread of its own."""
        while True:
            time.sleep(EVERY_S)
            self.flush(_FILING_S)


@cache
def _begun() -> None:
    """File from now on, and when the process ends, before its sessions do: what is registered later runs earlier."""
    atexit.register(_recorder.finish)
    multiprocessing.util.Finalize(None, _recorder.finish, exitpriority=1)
    with suppress(RuntimeError):  # the process is ending
        threading.Thread(target=_recorder.work, name="sluice-contention", daemon=True).start()


_recorder: Final = _Recorder()
os.register_at_fork(after_in_child=lambda: _recorder.forget())  # noqa: PLW0108 - a test has its own


def tell(coordinator: str, client: ClientName, at_ms: int, details: Mapping[str, Any], **fields: Any) -> None:
    """Keep a row (see `Contention.of`) for the coordinator whose address has this `repr`, if this process has a session with it.

    It is filed later; this never waits.
    """
    if os.environ.get(_SWITCH, "").lower() != "off" and session_of(coordinator) is not None:
        _recorder.keep(coordinator, Contention.of(client, at_ms, details, **fields))


# -- the tree ----------------------------------------------------------------------------------------------------------------


def _names(session: CoordinationStore) -> list[re.Match[str]]:
    """The names of the batches, the oldest first."""
    return sorted(filter(None, map(_BATCH.fullmatch, session.children(CONTENTION) or ())), key=lambda name: name[3])


def _make_root(session: CoordinationStore) -> None:
    make_node(session, CONTENTION, _Root(uuid.uuid4().hex).encode(), lambda store: store.ensure_path(CLIENTS))


def file_batch(session: CoordinationStore, batch: Batch) -> bool:
    """File a batch; where there are too many, the oldest make place. False if the reply was lost and it is not there.

    Raises CoordinatorUnavailable, SessionLost: nothing was filed.
    """
    # check: batches-are-bounded
    for oldest in _names(session)[: 1 - BATCHES_MAX]:
        with suppress(NoNode, ReplyLost):
            session.delete(f"{CONTENTION}/{oldest[0]}")
            batch = replace(batch, dropped=batch.dropped + int(oldest[2]))
    guid = uuid.uuid4().hex
    while True:
        try:
            session.create(f"{CONTENTION}/b-{guid}-{len(batch.rows)}-", batch.encode(), sequential=True)
        except NoNode:
            _make_root(session)
        except ReplyLost:
            with suppress(SluiceError):
                session.barrier()
                if any(name[1] == guid for name in _names(session)):
                    return True
            # check: a-batch-without-reply-is-not-filed-twice (return False -> continue)
            return False
        else:
            return True


@dataclass(frozen=True, slots=True)
class FiledBatch:
    """A batch in the tree; `number` only grows. All its times are by the coordinator's clock."""

    path: str
    number: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class FiledContention:
    """What the tree has: the id of its root, where daemons keep the rows ("": nowhere), and the batches, the oldest first.

    They end before the first one that only a newer release can read: who takes them notes by number how far it got. `newer` says so.
    """

    id: str
    location: str
    batches: tuple[FiledBatch, ...]
    newer: bool


def read_contention(session: CoordinationStore, newest: int = BATCHES_MAX) -> FiledContention:
    """The `newest` batches. One that cannot be read, and never will be, has no rows."""
    names = _names(session)[-newest:]
    root, *nodes = session.read_many([CONTENTION, *(f"{CONTENTION}/{name[0]}" for name in names)])
    batches: list[FiledBatch] = []
    newer = False
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        try:
            batch = Batch.decode(node.data)
        except UnknownFormat:
            newer = True
            # check: batches-after-a-newer-one-wait (break -> continue)
            break
        except MalformedRecord as malformed:
            _log.warning("the rows of %s are left out: %s", node.path, malformed)
            batch = Batch()
        rows = tuple([replace(each, at_ms=node.created_ms - max(0, min(_OLD_MS, batch.filed_ms - each.at_ms))) for each in batch.rows])
        batches.append(FiledBatch(node.path, int(name[3]), replace(batch, rows=rows, filed_ms=node.created_ms)))
    says = (None if root is None else _Root.readable(root.data)) or _Root()
    return FiledContention(says.id, says.location, tuple(batches), newer)


def keep_contention_in(session: CoordinationStore, location: str) -> None:
    """Record that daemons keep the rows in the table at this location from now on."""
    while True:
        node = session.read(CONTENTION)
        if node is None:
            _make_root(session)
            continue
        says = _Root.readable(node.data) or _Root()
        if says.location == location:
            return
        with suppress(BadVersion, NoNode, ReplyLost):
            session.write(CONTENTION, _Root(says.id or uuid.uuid4().hex, location).encode(), version=node.version)
