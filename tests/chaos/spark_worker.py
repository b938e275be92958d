"""A Spark application of the run: `python -m tests.chaos.spark_worker JSON`. Batch appends in a loop, and two streams beside them.

One stream takes files from a folder, as they come, and appends them with its batch's number; the other one takes the changes of a table,
and notes them in another one: each once, whatever kills it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import sluice
from sluice.spark_integration import original

from .followers import BATCH, SOURCE, STREAMED
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
_QUERIES = ("input", "changes")
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
        self._fed = 0
        (self._folder / "input").mkdir(parents=True, exist_ok=True)
        self._queries: dict[str, StreamingQuery] = {}
        self._batches: dict[str, int] = {}

    def work(self) -> None:
        """Until told to finish; then until the stream has taken everything."""
        while not self._worker.finish.is_set():
            self._batch()
            self._feed()
            for name in _QUERIES:
                self._see_running(name)
                self._note_batch(name)
            self._worker.finish.wait(self._worker.dice.uniform(0.3, 1.7) * self._worker.to.pause_s)
        if self._drain("input"):
            self._worker.diary.note("drained")
        version = self._worker.table(SOURCE).snapshot().version
        if self._drain("changes"):
            self._worker.diary.note("followed", table=STREAMED, version=version)
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
        number = self._fed
        self._fed += 1
        name = f"{self._worker.to.process}+{number}"
        rows = self._worker.rows(name, _PART, 3)
        self._worker.diary.note("input", name=name, rows=rows)
        text = "\n".join(json.dumps(dict(zip(("id", "part", "value"), row, strict=True))) for row in rows)
        fresh = self._folder / f"{name}.new"
        fresh.write_text(text + "\n")
        fresh.rename(self._folder / "input" / f"{name}.json")

    def _see_running(self, name: str) -> None:
        """A query that cannot start now starts later."""
        try:
            self._stream(name, {"processingTime": "2 seconds"})
        except Exception as error:  # noqa: BLE001 - tried again, and told by the judge when it never works
            self._worker.diary.note("stream failed", name=name, error=f"{original(error) or error}"[:600])

    def _note_batch(self, name: str) -> None:
        """Write down that a batch ended, and how far behind its table the stream of changes is: chaos breaks those that keep up."""
        query = self._queries.get(name)
        progress = None if query is None else query.lastProgress
        if progress is None or self._batches.get(name) == progress["batchId"]:
            return
        latest = progress["sources"][0]["latestOffset"]
        told = json.loads(latest) if isinstance(latest, str) else latest
        if name == "changes" and not told:
            return  # a batch that was planned before, and whose source was not asked again
        self._batches[name] = progress["batchId"]
        behind = told["versionsBehind"] if name == "changes" else 0
        self._worker.diary.note(BATCH, name=name, number=progress["batchId"], behind=behind)

    def _stream(self, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
        """See a query running; it ends when a batch fails, and goes on where it was."""
        known = self._queries.get(name)
        if known is not None and known.isActive:
            return known
        if known is not None and (failed := known.exception()) is not None:
            self._worker.diary.note("stream failed", name=name, error=f"{original(failed) or failed}"[:600])
        writer = self._inputs() if name == "input" else self._changes()
        writer = writer.option("checkpointLocation", str(self._folder / f"checkpoint-{name}")).trigger(**trigger)
        self._queries[name] = writer.start()
        return self._queries[name]

    def _inputs(self) -> DataStreamWriter:
        return self._spark.readStream.schema(_SCHEMA).json(str(self._folder / "input")).writeStream.foreachBatch(self._take())

    def _changes(self) -> DataStreamWriter:
        reader = self._spark.readStream.format("sluice").options(readChangeFeed="true", startingVersion=0)
        sign = "CASE WHEN _change_type = 'insert' THEN '+' ELSE '-' END"
        notes = reader.load(self._location).selectExpr(f"concat(_commit_version, {sign}, id) AS id", "part", "value")
        writer = notes.coalesce(1).writeStream.format("sluice").option("path", self._worker.to.tables[STREAMED])
        return writer.option("commitTimeout", self._worker.to.patience_s)

    def _take(self) -> Callable[[DataFrame, int], None]:
        def take(batch: DataFrame, number: int) -> None:
            try:
                self._append(batch.coalesce(1), txnAppId=self._worker.to.name, txnVersion=number)
            except Exception as error:  # noqa: BLE001 - whatever it is, the stream has to end with it
                self._worker.diary.note("batch failed", number=number, error=f"{original(error) or error}"[:300])
                # Spark looks through the text of an error by a regular expression that a long one takes down, with its thread
                raise RuntimeError(f"batch {number} failed") from None

        return take

    def _drain(self, name: str) -> bool:
        """Let a stream take what is there, and end; whether it did."""
        for _ in range(_DRAIN_ATTEMPTS):
            if name in self._queries:
                self._queries.pop(name).stop()
            try:
                self._stream(name, {"availableNow": True}).awaitTermination()
            except Exception as error:  # noqa: BLE001 - tried again, and told by the judge when it never works
                self._worker.diary.note("stream failed", name=name, error=f"{original(error) or error}"[:600])
            else:
                return True
        return False


def _answer(error: Exception | None) -> str:
    """What is certain of an append that Spark says failed."""
    if error is None:
        return "unknown"
    names = {each.__name__ for each in type(error).__mro__}
    if names & {"NotCommitted"}:
        return "refused"
    return "unavailable" if "Unavailable" in names else "unknown" if "OutcomeUnknown" in names else "broken"


def main() -> None:
    SparkWorker(Worker(Assignment(**json.loads(sys.argv[1])))).work()


if __name__ == "__main__":
    main()
