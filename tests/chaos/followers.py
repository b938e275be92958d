"""Processes that follow a table without Spark: instances of one named consumer, which notes each change of the table in another table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import sluice

from .meaning import note_of
from .worker import Worker, answer_of, arrow

__all__ = ["BATCH", "CONSUMED", "FOLLOWS", "KEEPS_UP", "SOURCE", "STREAMED", "consume", "consume_the_rest"]

SOURCE: Final = "events"
CONSUMED: Final = "consumed"
"""What the named consumer notes."""

STREAMED: Final = "streamed"
"""What the stream of the Spark application notes."""

BATCH: Final = "batch"
"""What the diary of a Spark application calls the end of a batch."""

KEEPS_UP: Final = 200
"""A stream that lies this many versions behind its table, or fewer, keeps up with it."""

FOLLOWS: Final = {CONSUMED: SOURCE, STREAMED: SOURCE}
_IDLE_S: Final = 1.0
"""After so long without news an instance ends, and another one may be the consumer."""
_WAIT_S: Final = 5.0


def consume(worker: Worker) -> None:
    """Be the consumer until nothing comes, or until told to finish."""
    with _consumer(worker, wait_s=_WAIT_S, timeout_s=_IDLE_S) as consumer:
        for batch in consumer:
            _note(worker, consumer, batch)
            if worker.finish.is_set():
                return


def consume_the_rest(worker: Worker) -> None:
    """Be the consumer until everything that there is now was consumed, and write that down."""
    version = worker.table(SOURCE).snapshot().version
    with _consumer(worker, wait_s=None, timeout_s=0) as consumer:
        for batch in consumer:
            _note(worker, consumer, batch)
    worker.diary.note("followed", table=CONSUMED, version=version)


def _consumer(worker: Worker, **waits: Any) -> sluice.Consumer:
    limits: dict[str, Any] = worker.dice.choice(({}, {"max_versions": 4}, {"max_versions": 50}, {"max_bytes": 1}))
    return worker.table(SOURCE).consumer("notes", into=[worker.table(CONSUMED)], **limits, **waits)


def _note(worker: Worker, consumer: sluice.Consumer, batch: sluice.ChangeBatch) -> None:
    """One commit for the batch; it comes again unless that is known to have happened."""
    rows = list(_notes(batch))
    try:
        with consumer.transaction(timeout_s=worker.to.patience_s) as transaction:
            if rows:
                transaction.part(worker.table(CONSUMED)).append(arrow(rows))
    except sluice.errors.SluiceError as error:
        answer = answer_of(error)
        worker.diary.note("not consumed", version=batch.version, answer=answer, error=f"{type(error).__name__}: {error}"[:300])
        if answer not in ("refused", "unknown", "unavailable"):
            raise
        worker.finish.wait(worker.dice.uniform(0, 0.5))
    else:
        worker.diary.note("consumed", after=batch.after, version=batch.version)


def _notes(batch: sluice.ChangeBatch) -> Iterator[list[Any]]:
    for row in batch.to_arrow().to_pylist():
        yield [note_of(row["_commit_version"], came=row["_change_type"] == "insert", name=row["id"]), row["part"], row["value"]]
