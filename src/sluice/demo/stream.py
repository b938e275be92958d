"""The stream: flights of small airlines, appended a few at a time in order of departure.

Each batch carries the application transaction ("stream", number), and every tenth is sent twice, like a restarted program
that does not know whether its last batch arrived: the table takes it once.
"""

from __future__ import annotations

from functools import partial

from .flights import STREAM, read_flights, stream_flights
from .job import Job, run

_BATCH_ROWS = 20
_SENT_TWICE_EVERY = 10
_PAUSE_S = 0.2


def append_batches(job: Job) -> None:
    """Append all of the stream's flights in batches, with a pause after each."""
    flights = stream_flights(read_flights(job.assignment.rows, seed=job.assignment.seed))
    with job.open() as table:
        job.await_start()
        for number, start in enumerate(range(0, len(flights), _BATCH_ROWS)):
            batch = flights.slice(start, _BATCH_ROWS)
            for _ in range(1 if number % _SENT_TWICE_EVERY else 2):
                job.commit(partial(table.append, batch, transaction=(STREAM, number)), len(batch))
            job.finish.wait(_PAUSE_S)


if __name__ == "__main__":
    run(append_batches)
