"""A Spark application of the run: `python -m tests.chaos.spark_worker JSON`. Batch appends in a loop, and a stream beside them.

The stream takes files from a folder, as they come, and appends them with its batch's number: each once, whatever kills it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sluice
from sluice.spark_integration import original

from .worker import Assignment, Worker

_SETTINGS = {
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_SCHEMA = "id string, part string, value long"
_PART = "spark"
_DRAIN_ATTEMPTS = 10
_TRANSACTION = re.compile(r"\btransaction ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")


class SparkWorker:
    """The application: a batch, some input for the stream, and a look at the stream, in turns."""

    def __init__(self, worker: Worker) -> None:
        to = worker.to
        self._worker = worker
        self._folder = Path(to.folder) / to.name
        self._location = to.tables["events"]
        builder = SparkSession.builder.appName(to.process).master("local[1]")
        for key, value in _SETTINGS.items():
            builder = builder.config(key, value)
        options = dict(to.storage_options)
        self._spark = sluice.configure(builder, coordinator=to.coordinator, storage_options=options, application=to.process).getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")
        (self._folder / "input").mkdir(parents=True, exist_ok=True)
        self._query: StreamingQuery | None = None

    def work(self) -> None:
        """Until told to finish; then until the stream has taken everything."""
        while not self._worker.finish.is_set():
            self._batch()
            self._feed()
            self._stream(availableNow=False)
            self._worker.finish.wait(self._worker.dice.uniform(0.3, 1.7) * self._worker.to.pause_s)
        for _ in range(_DRAIN_ATTEMPTS):
            if self._drain():
                self._worker.diary.note("drained")
                break
        self._spark.stop()
        self._worker.diary.note("done")

    def _batch(self) -> None:
        """One append of some rows."""
        diary = self._worker.diary
        rows = self._worker.rows(diary.next_name(), _PART, self._worker.dice.randint(1, 20))
        operation = diary.begin("append by Spark", {"events": [{"do": "append", "rows": rows}]})
        frame = self._spark.createDataFrame([tuple(row) for row in rows], _SCHEMA).coalesce(1)
        try:
            self._append(frame)
        except Exception as error:  # noqa: BLE001 - Spark raises what it likes; what it stands for is written down
            known = original(error)
            told = f"{type(known).__name__}: {known or error}"[:400]
            named = _TRANSACTION.search(told)
            diary.note("end", op=operation, answer=_answer(known), error=told, id=named[1] if named and known is not None else "")
        else:
            diary.note("end", op=operation, answer="committed")

    def _append(self, frame: DataFrame, **options: Any) -> None:
        frame.write.format("sluice").mode("append").options(commitTimeout=self._worker.to.patience_s, **options).save(self._location)

    def _feed(self) -> None:
        """Another file for the stream, which appears as a whole."""
        number = len(list((self._folder / "input").glob("*.json")))
        name = f"{self._worker.to.name}+{number}"
        rows = self._worker.rows(name, _PART, 3)
        self._worker.diary.note("input", name=name, rows=rows)
        text = "\n".join(json.dumps(dict(zip(("id", "part", "value"), row, strict=True))) for row in rows)
        fresh = self._folder / f"{number}.new"
        fresh.write_text(text + "\n")
        fresh.rename(self._folder / "input" / f"{number:05d}.json")

    def _stream(self, **trigger: Any) -> StreamingQuery:
        """See the query running; it ends when a batch fails, and goes on where it was."""
        if self._query is not None and self._query.isActive:
            return self._query
        if self._query is not None and (failed := self._query.exception()) is not None:
            self._worker.diary.note("stream failed", error=str(failed)[:300])
        chosen = trigger if trigger["availableNow"] else {"processingTime": "2 seconds"}
        frames = self._spark.readStream.schema(_SCHEMA).json(str(self._folder / "input"))
        writer = frames.writeStream.foreachBatch(self._take()).option("checkpointLocation", str(self._folder / "checkpoint"))
        self._query = writer.trigger(**chosen).start()
        return self._query

    def _take(self) -> Callable[[DataFrame, int], None]:
        def take(batch: DataFrame, number: int) -> None:
            try:
                self._append(batch.coalesce(1), txnAppId=self._worker.to.name, txnVersion=number)
            except Exception as error:  # noqa: BLE001 - whatever it is, the stream has to end with it
                self._worker.diary.note("batch failed", number=number, error=f"{original(error) or error}"[:300])
                # Spark looks through the text of an error by a regular expression that a long one takes down, with its thread
                raise RuntimeError(f"batch {number} failed") from None

        return take

    def _drain(self) -> bool:
        """Let the stream take what is there, and end; whether it did."""
        if self._query is not None:
            self._query.stop()
        query = self._stream(availableNow=True)
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - tried again, and told by the judge when it never works
            self._worker.diary.note("stream failed", error=str(error)[:300])
            return False
        return True


def _answer(error: Exception | None) -> str:
    """What is certain of an append that Spark says failed."""
    if error is None:
        return "unknown"
    names = {each.__name__ for each in type(error).__mro__}
    if names & {"NotCommitted"}:
        return "refused"
    return "unavailable" if "Unavailable" in names else "unknown" if "OutcomeUnknown" in names else "broken"


def main() -> None:
    """The program."""
    SparkWorker(Worker(Assignment(**json.loads(sys.argv[1])))).work()


if __name__ == "__main__":
    main()
