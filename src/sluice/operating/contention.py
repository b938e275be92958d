"""Contention in a table: daemons put batches of rows into it, and `sluice.conflicts` ranks the pairs of jobs that cost each other most.

The table's commit notes the number of the last batch that it has, as an application's number. So a batch is in the table once, also if a
daemon was killed before it deleted the batch, or two daemons take it at the same time: of two commits that went on from one number the
later is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import timedelta
from itertools import takewhile
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from ..coordinator.api import Contention, CoordinationStore, FiledBatch, FiledContention, connect, read_contention, write_through
from ..storage.arguments import checked
from ..storage.errors import SluiceError, TableNotFound
from ..storage.stores.location import normalise
from ..storage.times import text_of, time_of
from ..tables.table import Table

_TYPES: Final = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
_COLUMNS: Final = tuple(each for each in fields(Contention) if each.name != "at_ms")
SCHEMA: Final = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), *((each.name, _TYPES[str(each.type)]) for each in _COLUMNS)]
)
TAKEN_AFTER_S: Final = 300.0
"""A batch is so old, or twice as old, when a daemon takes it: until then `status` judges it, and a table gets few small files."""
_MANY: Final = 64
"""So many batches are taken earlier."""
_JUDGED: Final = 16
"""The batches that `status` reads, at most: 1 MB."""
_PAIR: Final = ("location", "application", "winner", "rule")
_TEXTS: Final = ("operation", "winner_operation", "remedy")


class JobConflict(Struct, frozen=True, kw_only=True):
    """What one job lost by another: `count` refusals and waits of `application`, whose winner was `winner`, by this rule, in one table.

    `seconds` are lost in all, at least. `winner` is "" if none is known: a long wait in the queue. `operation` and `winner_operation` are
    one of those that met. `first` and `last` are times of ISO 8601 in UTC. `remedy` says what would have kept them apart.
    """

    location: str
    application: str
    winner: str
    rule: str
    seconds: float
    count: int
    operation: str
    winner_operation: str
    first: str
    last: str
    remedy: str


@checked
def conflicts(
    coordinator: str | None = None,
    *,
    since_s: float = 86400.0,
    location: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> tuple[JobConflict, ...]:
    """Who lost time to whom in the last `since_s` seconds, in all tables or in that at a location: the most seconds first.

    Reads the table in which daemons keep the rows (`sluice daemon --contention`), if there is one, which `storage_options` reach, and what
    processes filed in the coordinator since. Raises CoordinatorUnavailable, and the errors of opening that table.
    """
    filed = read_contention(connect(coordinator))  # before the table, which has what is taken meanwhile
    since_ms = time.time_ns() // 1_000_000 - round(1000 * since_s)
    kept, done = SCHEMA.empty_table(), -1
    if filed.location:
        with (
            suppress(TableNotFound),  # no daemon has put anything there yet
            Table.open(filed.location, coordinator=coordinator, storage_options=storage_options) as table,
        ):
            shown = table.snapshot()
            done = max((each.version for app, each in shown.raw.app_transactions.items() if app == _application(filed)), default=-1)
            kept = shown.to_arrow(where=f"day >= DATE '{time_of(since_ms).date()}'")
    rows = pa.concat_tables([kept, _rows(each for each in filed.batches if each.number > done)])
    return ranked(rows if location is None else rows.filter(pc.equal(rows["location"], normalise(location))), since_ms)


def ranked(rows: pa.Table, since_ms: int) -> tuple[JobConflict, ...]:
    """Rows of contention since a time by pairs of jobs, rules and tables, the most seconds first."""
    since = pa.scalar(time_of(since_ms), SCHEMA.field("at").type)
    sums = [("seconds", "sum"), ("at", "count"), ("at", "min"), ("at", "max"), *((name, "max") for name in _TEXTS)]
    grouped = rows.filter(pc.greater_equal(rows["at"], since)).group_by(list(_PAIR)).aggregate(sums)
    return tuple(
        JobConflict(
            **{name: row[name] for name in _PAIR},
            **{name: row[f"{name}_max"] for name in _TEXTS},
            **{name: text_of(round(1000 * row[f"at_{which}"].timestamp())) for name, which in (("first", "min"), ("last", "max"))},
            seconds=round(row["seconds_sum"], 3),
            count=row["at_count"],
        )
        for row in grouped.sort_by([("seconds_sum", "descending"), ("at_count", "descending")]).to_pylist()
    )


def recent(session: CoordinationStore, now_ms: int) -> tuple[JobConflict, ...]:
    """The same of the last minutes, which no daemon has taken yet: from the newest batches, for who looks often."""
    return ranked(_rows(read_contention(session, _JUDGED).batches), now_ms - round(1000 * TAKEN_AFTER_S))


def _application(filed: FiledContention) -> str:
    return f"sluice.contention:{filed.id}"


def _rows(batches: Iterable[FiledBatch]) -> pa.Table:
    """The rows of batches as the table has them."""
    rows = [(time_of(each.at_ms), each) for filed in batches for each in filed.batch.rows]
    return pa.Table.from_pylist(
        [{"at": at, "day": at.date(), **{column.name: getattr(each, column.name) for column in _COLUMNS}} for at, each in rows], SCHEMA
    )


def take(coordinator: str | None, storage_options: Mapping[str, str] | None, application: str, kept_days: float) -> str:
    """Put the batches that are old enough, or all where they are many, into their table, and delete them; returns what was done.

    "" if nothing was to be done. Rows of days before the last `kept_days` are deleted. Raises the exceptions of opening, creating and
    writing a table: ConcurrentTransactionException if another instance did it meanwhile.
    """
    session = connect(coordinator)
    filed, now_ms = read_contention(session), write_through(session)[1]  # rows go for good: not by a clock of this machine
    ages_s = [(now_ms - each.batch.filed_ms) / 1000 for each in filed.batches]
    if not filed.location or not (len(ages_s) >= _MANY or max(ages_s, default=0.0) > 2 * TAKEN_AFTER_S):
        return ""
    young = len(list(takewhile(lambda age_s: age_s <= TAKEN_AFTER_S, reversed(ages_s))))
    batches = filed.batches if len(ages_s) >= _MANY else filed.batches[: -young or None]
    reached: dict[str, Any] = {"coordinator": coordinator, "storage_options": storage_options, "application": application}
    with Table.create(filed.location, SCHEMA, partition_by=["day"], mode="if_not_exists", **reached) as table:
        with table.begin() as begun:
            # check: batches-are-taken-once (begun.applications.get(_application(filed), -1) -> -1)
            done = begun.applications.get(_application(filed), -1)
            rows = _rows(each for each in batches if each.number > done)
            if rows.num_rows:
                begun.append(rows)
                begun.note({_application(filed): batches[-1].number})
        for each in batches:
            with suppress(SluiceError):  # it is gone, or goes the next time
                session.delete(each.path)
        table.delete(f"day < DATE '{time_of(now_ms).date() - timedelta(kept_days)}'")
    dropped = sum(each.batch.dropped for each in batches if each.number > done)
    newer = "; others wait for a daemon of a newer release" if filed.newer else ""
    return f"{rows.num_rows} rows of {len(batches)} batches, {dropped} had no room{newer}"
