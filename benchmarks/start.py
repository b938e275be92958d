"""What does the first use cost? Importing, and the first append and read of a Spark program, beside what else does the same.

``python -m benchmarks.start --runs 3`` starts every program anew, the systems in turn, and compares medians. Spark's systems are sluice
(with an embedded coordinator in a folder of its own, which the program starts), a data source in Python that does nothing (the least
that a Python data source can cost; Spark finds it as it finds sluice's), and Spark's own Parquet files. A program's rows are counted
before its times are. One JSON object for each system goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

import click
from rich.console import Console

from .report import warn_when_busy

__all__ = ["main"]

_console = Console(stderr=True)
_LIMIT_S: Final = 300.0
IMPORTS: Final = {
    "python": "pass",
    "sluice": "import sluice",
    "sluice.Table": "import sluice; sluice.Table",
    "deltalake": "import deltalake",
    "pyarrow": "import pyarrow.parquet",
}
_TIMED: Final = "import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
_NOTHING: Final = """
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition, WriterCommitMessage

class Writer(DataSourceArrowWriter):
    def write(self, iterator):
        for batch in iterator:
            batch.num_rows
        return WriterCommitMessage()
    def commit(self, messages):
        return None

class Reader(DataSourceReader):
    def partitions(self):
        return [InputPartition(number) for number in range(2)]
    def read(self, partition):
        import pyarrow as pa
        yield pa.record_batch({"id": pa.array([1] * 20), "name": pa.array(["a"] * 20)})

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "nothing"
    def schema(self):
        return "id long, name string"
    def writer(self, schema, overwrite):
        return Writer()
    def reader(self, schema):
        return Reader()
"""
_SPARK: Final = """
import json, os, sys, time
from pyspark.sql import SparkSession

system, place = sys.argv[1:]
begun = time.perf_counter()
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
if system == "sluice":
    import sluice
    builder = sluice.configure(builder)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
told = {"session_s": time.perf_counter() - begun}
frame = spark.createDataFrame([(number, str(number)) for number in range(10)], "id long, name string")
for name in ("first_append_s", "second_append_s", "third_append_s", "append_s"):
    begun = time.perf_counter()
    frame.write.format(system).mode("append").save(place)
    told[name] = time.perf_counter() - begun
for name in ("first_read_s", "second_read_s", "read_s"):
    begun = time.perf_counter()
    rows = spark.read.format(system).load(place).count()
    told[name] = time.perf_counter() - begun
    assert rows == 40, rows
spark.stop()
print(json.dumps(told))
"""
SYSTEMS: Final = ("sluice", "nothing", "parquet")


def _last_line(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise click.ClickException(f"{command[:2]} failed: {done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


def _environment() -> dict[str, str]:
    """The environment of a program: as it is, but byte code is kept, as it is of what is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _import_s(code: str) -> float:
    return float(_last_line([sys.executable, "-c", _TIMED.format(code=code)], _environment()))


def _spark_s(system: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="sluice-start-") as folder:
        Path(folder, "pyspark_nothing.py").write_text(_NOTHING)
        environment = _environment()
        path = os.pathsep.join(each for each in (environment.get("PYTHONPATH"), folder) if each)
        environment |= {
            "SLUICE_HOME": f"{folder}/home",
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop("SLUICE_COORDINATOR", None)
        told: dict[str, float] = json.loads(_last_line([sys.executable, "-c", _SPARK, system, f"{folder}/t"], environment))
        return told


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(median(run[name] for run in runs), 3) for name in runs[0]}


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Programs of each kind that are counted.")
@click.option("--spark/--no-spark", default=True, help="Whether Spark programs are started, too.")
def main(runs: int, spark: bool) -> None:
    """Measure first uses; see this module's text."""
    warn_when_busy()
    imported: dict[str, list[dict[str, float]]] = {name: [] for name in IMPORTS}
    for number in range(runs + 1):  # the first round fills the disk's cache and writes byte code
        for name, code in IMPORTS.items():
            seconds = _import_s(code)
            if number:
                imported[name].append({"import_s": seconds})
    for name, times in imported.items():
        click.echo(json.dumps({"system": name, "runs": runs, **_medians(times)}))
    if spark:
        used: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
        for number in range(runs + 1):
            for name in SYSTEMS:
                _console.print(f"round {number}: {name}")
                seconds_of = _spark_s(name)
                if number:
                    used[name].append(seconds_of)
        for name, times in used.items():
            click.echo(json.dumps({"system": f"spark: {name}", "runs": runs, **_medians(times)}))


if __name__ == "__main__":
    main()
