"""What do writing, reading and changing rows cost on Spark, beside Delta Lake and Spark's own Parquet files?

``python -m benchmarks.spark --rows 10000000 --runs 3`` runs the systems in turn, each run in a Spark program of its own that first warms
up with a small table, and compares medians. Rows have ten columns (long, ints, doubles, texts, a timestamp, a date); ids are in the order
of the files, or shuffled over them. Delta Lake is its Python package with the jars that belong to it, from Maven. Every step's result is
checked by the program. One JSON object for each system and layout goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import importlib.metadata
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
from rich.table import Table

from .report import warn_when_busy
from .spark_program import LAYOUTS, SYSTEMS

__all__ = ["main"]

_console = Console(stderr=True)
_LIMIT_S: Final = 3600.0
_MAKE_INPUT: Final = """
import sys
from pyspark.sql import SparkSession
from benchmarks.spark_program import data
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "4g").getOrCreate()
rows, layout, place = int(sys.argv[1]), sys.argv[2], sys.argv[3]
data(spark, 0, rows, rows, layout).write.parquet(place)
spark.stop()
"""


def _environment(folder: str) -> dict[str, str]:
    environment = {**os.environ, "SLUICE_HOME": f"{folder}/home", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    for name in ("SLUICE_COORDINATOR", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    return environment


def _run(command: list[str], folder: str) -> str:
    done = subprocess.run(command, env=_environment(folder), capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command[2:5])} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def _one(system: str, layout: str, rows: int, source: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-") as folder:
        command = [sys.executable, "-m", "benchmarks.spark_program", system, layout, str(rows), source, folder]
        told: dict[str, float] = json.loads(_run(command, folder).splitlines()[-1])
        return told


def _shown(layout: str, medians: dict[str, dict[str, float]]) -> None:
    table = Table(title=f"ids {layout}: seconds (medians), and sluice's share of the others'")
    for name in ("step", *medians, *(f"sluice / {name}" for name in medians if name != "sluice")):
        table.add_column(name, justify="left" if name == "step" else "right")
    for step in next(iter(medians.values()), {}):
        values = [each.get(step) for each in medians.values()]
        ours = medians.get("sluice", {}).get(step)
        ratios = [f"{ours / each[step]:.2f}" if ours and each.get(step) else "" for name, each in medians.items() if name != "sluice"]
        table.add_row(step, *("" if value is None else f"{value:g}" for value in values), *ratios)
    _console.print(table)


@click.command()
@click.option("--rows", type=click.IntRange(min=100_000), default=10_000_000, show_default=True, help="Rows of the table.")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Programs of each kind that are counted.")
@click.option("--systems", default=",".join(SYSTEMS), show_default=True, help="What to compare.")
@click.option("--layouts", default=",".join(LAYOUTS), show_default=True, help="Whether ids follow the files or are spread over them.")
def main(rows: int, runs: int, systems: str, layouts: str) -> None:
    """Measure Spark's work on rows; see this module's text."""
    warn_when_busy()
    chosen = systems.split(",")
    unknown = sorted({*chosen} - {*SYSTEMS} | {*layouts.split(",")} - {*LAYOUTS})
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: choose systems from {', '.join(SYSTEMS)} and layouts from {', '.join(LAYOUTS)}")
    versions = {name: importlib.metadata.version(name) for name in ("pyspark", "pyarrow", *(["delta-spark"] if "delta" in chosen else []))}
    _console.print(f"{rows} rows x 10 columns, {runs} runs, 2 threads, driver 4 GiB, {os.cpu_count()} cores; {versions}")
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-input-") as folder:
        for layout in layouts.split(","):
            source = str(Path(folder, layout))
            _run([sys.executable, "-c", _MAKE_INPUT, str(rows), layout, source], folder)
            times: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
            for number in range(runs):
                for name in chosen:
                    _console.print(f"{layout}, run {number + 1}: {name}")
                    times[name].append(_one(name, layout, rows, source))
            medians = {name: {step: round(median(run[step] for run in told), 3) for step in told[0]} for name, told in times.items()}
            for name, each in medians.items():
                click.echo(json.dumps({"system": name, "layout": layout, "rows": rows, "runs": runs, **each}))
            _shown(layout, medians)


if __name__ == "__main__":
    main()
