"""The sixth process: deletes cancelled flights, month by month, while the others write, and finally in the whole table.

It deletes rows by deletion vectors: no data file is rewritten, and an append to the same month is no conflict.
"""

from __future__ import annotations

from functools import partial

from .flights import IS_CANCELLED
from .job import Job, run

_PAUSE_S = 0.25


def delete_cancelled(job: Job) -> None:
    """Delete until the writers are done, and once more."""
    with job.open() as table:
        job.await_start()
        while not job.finish.is_set():
            for month in range(1, 13):
                job.commit(partial(table.delete, f"month = {month} AND {IS_CANCELLED}"))
                job.finish.wait(_PAUSE_S)
        job.commit(lambda: table.delete(IS_CANCELLED))


if __name__ == "__main__":
    run(delete_cancelled)
