"""The demo's Python jobs, each in a process of its own: the assignment's name says which.

- A loader loads one airport like `spark_load`, but without Spark: for machines with little memory, and for quick tests.
- The stream appends flights of small airlines, a few at a time in order of departure. Each batch carries the application transaction
  ("stream", number), and every tenth is sent twice, like a restarted program that does not know whether its last batch arrived: the
  table takes it once.
- The corrections job re-reads single partitions with rows to correct, and overwrites them. It names the version its rows were computed
  from. Rows that others append to the partition meanwhile stay, and are corrected in the next round; if others change what was read, the
  commit is refused, and the partition is read again.
- The cancellations job deletes cancelled flights, month by month, while the others write, and finally in the whole table. It deletes rows
  by deletion vectors: no data file is rewritten, and an append to the same month is no conflict.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from sluice import Commit, Table

from .flights import IS_CANCELLED, NEEDS_CORRECTION, PARTITION_BY, STREAM, correct, load, read_csv, read_flights, stream_flights
from .job import Job, run

CORRECTIONS: Final = "corrections"
CANCELLATIONS: Final = "cancellations"
"""The names of two jobs; a loader's is `loader(airport)`."""

_BATCH_ROWS = 20
_SENT_TWICE_EVERY = 10
_PAUSE_BETWEEN_BATCHES_S = 0.2
_PAUSE_BETWEEN_PLACES_S = 0.1
_PAUSE_BETWEEN_MONTHS_S = 0.25


def load_months(job: Job) -> None:
    """One append for each group of files."""
    with job.open() as table:
        job.await_start()
        for each in job.assignment.inputs:
            rows = load(pa.concat_tables(read_csv(Path(path)) for path in each.paths))
            job.commit(partial(table.append, rows), len(rows))


def append_batches(job: Job) -> None:
    """Append all of the stream's flights in batches, with a pause after each."""
    flights = stream_flights(read_flights(job.assignment.rows, seed=job.assignment.seed))
    with job.open() as table:
        job.await_start()
        for number, start in enumerate(range(0, len(flights), _BATCH_ROWS)):
            batch = flights.slice(start, _BATCH_ROWS)
            for _ in range(1 if number % _SENT_TWICE_EVERY else 2):
                job.commit(partial(table.append, batch, transaction=(STREAM, number)), len(batch))
            job.finish.wait(_PAUSE_BETWEEN_BATCHES_S)


def _places(table: Table) -> list[tuple[str, int]]:
    """The partitions (origin, month) with rows to correct."""
    rows = table.snapshot().to_arrow(columns=PARTITION_BY, where=NEEDS_CORRECTION)
    found = rows.group_by(list(PARTITION_BY)).aggregate([])
    return sorted(zip(*(found[name].to_pylist() for name in PARTITION_BY), strict=True))


def correct_partitions(job: Job) -> None:
    """Go round until the others are done and nothing is left to correct."""
    order = random.Random(job.assignment.seed)  # noqa: S311 (an order, no secret)
    with job.open() as table:

        def overwrite(where: str) -> Commit | None:
            read = table.snapshot()
            rows = correct(read.to_arrow(where=where))
            return table.overwrite(rows, where=where, read_version=read.version)

        job.await_start()
        while True:
            last_round = job.finish.is_set()
            places = _places(table)
            order.shuffle(places)
            for origin, month in places:
                where = f"origin = '{origin}' AND month = {month}"
                job.commit(partial(overwrite, where))
                job.finish.wait(_PAUSE_BETWEEN_PLACES_S)
            if last_round and not places:
                return
            if not places:
                job.finish.wait(_PAUSE_BETWEEN_PLACES_S)


def delete_cancelled(job: Job) -> None:
    """Delete until the writers are done, and once more."""
    with job.open() as table:
        job.await_start()
        while not job.finish.is_set():
            for month in range(1, 13):
                job.commit(partial(table.delete, f"month = {month} AND {IS_CANCELLED}"))
                job.finish.wait(_PAUSE_BETWEEN_MONTHS_S)
        job.commit(lambda: table.delete(IS_CANCELLED))


_JOBS: Final = {STREAM: append_batches, CORRECTIONS: correct_partitions, CANCELLATIONS: delete_cancelled}

if __name__ == "__main__":
    run(lambda job: _JOBS.get(job.assignment.name, load_months)(job))
