"""Loads one airport like `spark_load`, but without Spark: for machines with little memory, and for quick tests."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from .flights import load, read_csv
from .job import Job, run


def load_months(job: Job) -> None:
    """One append for each group of files."""
    with job.open() as table:
        job.await_start()
        for each in job.assignment.inputs:
            rows = load(pa.concat_tables(read_csv(Path(path)) for path in each.paths))
            job.commit(partial(table.append, rows), len(rows))


if __name__ == "__main__":
    run(load_months)
