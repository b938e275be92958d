"""What do writing, reading and changing rows cost on Spark, beside Delta Lake and Spark's own Parquet files?

``python -m benchmarks.spark --rows 10000000 --runs 3`` compares medians. Each system has one Spark program. The programs work in turn, each
on a new table every time; the first turn warms up and does not count. Rows have ten columns (long, ints, doubles, texts, a timestamp, a
date); ids are in the order of the files, or shuffled over them. Delta Lake is its Python package with the jars that belong to it, from
Maven. Every step's result is checked by the program. One JSON object for each system and layout goes to standard output, everything else
to standard error.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from .report import warn_when_busy
from .spark_program import LAYOUTS, SYSTEMS

__all__ = ["Program", "main"]

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


def _make_input(rows: int, layout: str, place: str, folder: str) -> None:
    command = [sys.executable, "-c", _MAKE_INPUT, str(rows), layout, place]
    done = subprocess.run(command, env=_environment(folder), capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise click.ClickException(f"the rows cannot be made:\n{done.stderr[-4000:]}")


class Program:
    """The Spark program of one system, which takes its turn when it is asked to."""

    def __init__(self, system: str, arguments: list[str], folder: str) -> None:
        """`arguments` are the program's module and what it takes; its errors go to a file in the folder."""
        self._system = system
        self._errors = Path(folder, "errors")
        with self._errors.open("w") as errors:
            command, pipe = [sys.executable, "-m", *arguments], subprocess.PIPE
            self._process = subprocess.Popen(command, env=_environment(folder), stdin=pipe, stdout=pipe, stderr=errors, text=True)

    def turn(self) -> dict[str, Any]:
        """What the program measures. Raises ClickException if a step fails, or its result is wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # of a program that has ended; its errors say why
            print("go", file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("{"):
                told: dict[str, Any] = json.loads(line)
                return told
        raise click.ClickException(f"the program of {self._system} failed:\n{self._errors.read_text()[-4000:]}")

    def end(self) -> None:
        """Wait until it has stopped."""
        self._process.communicate(timeout=_LIMIT_S)


def _measured(systems: list[str], layout: str, rows: int, runs: int, source: str) -> dict[str, dict[str, float]]:
    """By system the medians of its turns."""
    times: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    with ExitStack() as stack:
        programs: dict[str, Program] = {}
        for name in systems:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-spark-"))
            programs[name] = Program(name, ["benchmarks.spark_program", name, layout, str(rows), source, folder], folder)
            stack.callback(programs[name].end)
        for number in range(runs + 1):
            for name, program in programs.items():
                _console.print(f"{layout}, {f'run {number}' if number else 'warm-up'}: {name}")
                told = program.turn()
                if number:
                    times[name].append(told)
    return {name: {step: round(median(turn[step] for turn in told), 3) for step in told[0]} for name, told in times.items()}


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
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Turns of each program that are counted.")
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
    _console.print(
        f"{rows} rows x 10 columns, {runs} runs after a warm-up, 2 threads, drivers with 4 GiB, {os.cpu_count()} cores; {versions}"
    )
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-input-") as folder:
        for layout in layouts.split(","):
            source = str(Path(folder, layout))
            _make_input(rows, layout, source, folder)
            medians = _measured(chosen, layout, rows, runs, source)
            for name, each in medians.items():
                click.echo(json.dumps({"system": name, "layout": layout, "rows": rows, "runs": runs, **each}))
            _shown(layout, medians)


if __name__ == "__main__":
    main()
