"""Talks to Delta Lake on Spark and to DuckDB, which run in processes and an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["PYTHON", "Delta", "DeltaError", "DuckDB", "running", "running_duckdb"]

PYTHON = "DELTA_PYTHON"
"""Names the interpreter of an environment with the PySpark that Delta Lake's jars were built for, and DuckDB's extension."""


class DeltaError(Exception):
    """Raised with what Delta Lake said when it refused."""


class Delta:
    """Delta Lake on Spark. Rows come back as dictionaries, as Spark's JSON has them: without the fields that are null."""

    def __init__(self, requests: Any, answers: Any) -> None:
        self._requests, self._answers = requests, answers

    def read(self, path: str, **options: object) -> list[dict[str, Any]]:
        """The rows of a table; `options` are those of the reader (`versionAsOf`, `readChangeFeed`, ...)."""
        return self._ask(read=path, options=_texts(options))

    def sql(self, text: str) -> list[dict[str, Any]]:
        """What a statement returns."""
        return self._ask(sql=text)

    def stream(self, path: str, folder: str, **options: object) -> list[dict[str, Any]]:
        """The rows that a stream of the table has read, ever, when it has read all there is. It goes on where it was in this folder."""
        return self._ask(stream=path, folder=folder, options=_texts(options))

    def sink(self, path: str, folder: str, schema: str) -> list[dict[str, Any]]:
        """Append the JSON files of the folder `inbox` in this folder to a table by a stream, one file a batch; the table's rows."""
        return self._ask(sink=path, folder=folder, schema=schema)

    def _ask(self, **request: object) -> list[dict[str, Any]]:
        print(json.dumps(request), file=self._requests, flush=True)
        line = self._answers.readline()
        if not line:
            raise DeltaError("it ended: its messages stand above")
        said = json.loads(line)
        if "error" in said:
            raise DeltaError(said["error"])
        return [json.loads(row) for row in said["rows"]]


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


@contextmanager
def running(python: str, folder: Path) -> Iterator[Delta]:
    """Start it; `folder` is for its own files."""
    pipe = folder / "answers"
    os.mkfifo(pipe)
    program = Path(__file__).with_name("program.py")
    environment = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": ""}
    command = [python, str(program), str(folder), str(pipe)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment, cwd=folder) as process:
        assert process.stdin is not None
        try:
            with pipe.open(encoding="utf-8") as answers:
                yield Delta(process.stdin, answers)
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


class DuckDB:
    """DuckDB, as a reader of Delta tables."""

    def __init__(self, requests: Any, answers: Any, folder: Path) -> None:
        self._requests, self._answers, self._folder = requests, answers, folder

    def read(self, path: str, version: int | None = None) -> pa.Table:
        """The rows of a table, or of one of its versions."""
        file = self._folder / "rows.parquet"
        place = path.removeprefix("file://")
        print(json.dumps({"read": place, "version": version, "into": str(file)}), file=self._requests, flush=True)
        line = self._answers.readline()
        said = json.loads(line) if line else "it ended: its messages stand above"
        if said:
            raise DeltaError(said)
        return pq.read_table(file)


@contextmanager
def running_duckdb(python: str, folder: Path) -> Iterator[DuckDB]:
    """Start it; `folder` is for its own files."""
    command = [python, str(Path(__file__).with_name("duckdb_program.py"))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ""}, cwd=folder
    ) as process:
        assert process.stdin is not None
        try:
            yield DuckDB(process.stdin, process.stdout, folder)
        finally:
            process.stdin.close()
            process.wait(60)
