"""The named consumers of a table, as an operator sees them: each one's position, its running instance and its lag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...coordinator.api import Hold, consumers_of, hold_consumer
from ...storage.actions import AddFile
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, LogGap, VersionNotFound
from ..client.open_table import OpenTable
from ..client.published_table import beyond
from .following import latest_of
from .versions import CommitsAhead

_WAIT_S: Final = 2.0
"""How long a consumer that somebody runs is waited for: no longer than its requests may take."""


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """A named consumer: `position` is the last version it consumed (-1: none), recorded at `moved_ms` (since the epoch).

    Of the next version it consumed the first `files` of the files with that version's changes. It lags `behind` versions, which added
    `bytes_behind` bytes of data files (None if commits among them were cleaned up). `holder` is the application of the instance that is
    the consumer now, on `host` as process `pid` since `since_ms`; "" and None if there is none. `into` are the locations of its outputs,
    `run` the number of its resets.
    """

    name: str
    position: int
    behind: int
    bytes_behind: int | None
    moved_ms: int
    holder: str
    host: str
    pid: int | None
    since_ms: int | None
    into: tuple[str, ...]
    run: int
    files: int


def consumers(table: OpenTable) -> list[ConsumerState]:
    """The consumers of a table, by name."""
    records, latest = consumers_of(table.context), latest_of(table)
    return [
        ConsumerState(
            name=record.name,
            position=record.version,
            behind=max(0, latest - record.version),
            bytes_behind=_bytes_after(table, record.version, latest),
            moved_ms=record.moved_ms,
            holder="" if lease is None else lease.application,
            host="" if lease is None else lease.host,
            pid=None if lease is None else lease.pid,
            since_ms=None if lease is None else lease.since_ms,
            into=record.into,
            run=record.run,
            files=record.files,
        )
        for record, lease in records
    ]


def reset_consumer(table: OpenTable, name: str, after: int | None) -> int:
    """Let a consumer that is not running go on after another version (None: the latest); returns it.

    Raises InvalidRequest for an unknown consumer, VersionNotFound, LeaseHeld for one that runs.
    """
    latest = latest_of(table)
    version = latest if after is None else after
    if version > latest:
        raise beyond(table.location, version, latest)
    with _existing(table, name) as held:
        assert held.record is not None
        # check: resets-begin-a-run (held.record.run + 1 -> held.record.run)
        held.place(version, held.record.run + 1, held.record.into)
    return version


def remove_consumer(table: OpenTable, name: str) -> None:
    """Remove the position of a consumer that is not running. Raises InvalidRequest for an unknown one, LeaseHeld."""
    with _existing(table, name) as held:
        held.remove()


@contextmanager
def _existing(table: OpenTable, name: str) -> Iterator[Hold]:
    """A consumer that has a position and is not running."""
    names = [record.name for record, _ in consumers_of(table.context)]
    if name not in names:
        there = f"its consumers are {', '.join(names)}" if names else "it has none"
        raise InvalidRequest(f"{table.location} has no consumer {name!r}: {there}", name=name)
    held = hold_consumer(table.context, name, _WAIT_S)
    try:
        yield held
    finally:
        held.release()


def _bytes_after(table: OpenTable, after: int, latest: int) -> int | None:
    """The bytes of the data files that versions added, without those of reorganisations; None if commits were cleaned up."""
    commits, total = CommitsAhead(table, published=False), 0
    for version in range(after + 1, latest + 1):
        try:
            actions = commits.actions(version, latest)
        except (LogGap, VersionNotFound):
            return None
        total += sum(each.size for each in actions if isinstance(each, AddFile) and each.data_change)
    return total
