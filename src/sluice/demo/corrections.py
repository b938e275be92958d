"""The corrections job: re-reads single partitions with rows to correct, and overwrites them.

It names the version its rows were computed from. Rows that others append to the partition meanwhile stay, and are corrected
in the next round; if others change what was read, the commit is refused, and the partition is read again.
"""

from __future__ import annotations

import random
from functools import partial

from ..coordinator.facade.values import Commit
from ..tables.table import Table
from .flights import NEEDS_CORRECTION, PARTITION_BY, correct
from .job import Job, run

_PAUSE_S = 0.1


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
                job.finish.wait(_PAUSE_S)
            if last_round and not places:
                return
            if not places:
                job.finish.wait(_PAUSE_S)


if __name__ == "__main__":
    run(correct_partitions)
