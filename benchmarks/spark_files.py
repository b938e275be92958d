"""How fast does Spark find the few files of many that a query needs, beside Delta Lake (by its statistics) and plain Parquet?

``python -m benchmarks.spark_files --files 10000 --runs 5`` makes one table, whose files have the ids in order. All systems read these very
files: the log is in Delta's format. Each is asked for one id and for one percent of the ids, in every way of asking, and each in turn; the
first turn warms up. "known" is plain Parquet, given only the files that hold the rows: the floor for each system that lets Spark scan them.
One JSON object for each system and query goes to standard output, a table to standard error.
"""

from __future__ import annotations

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import sluice

from .report import warn_when_busy
from .spark import Program
from .spark_program import SYSTEMS

__all__ = ["main"]

_console = Console(stderr=True)
ROWS_PER_FILE: Final = 100
_SYSTEMS: Final = (*SYSTEMS, "known")


def _make_table(place: Path, files: int) -> None:
    place.mkdir()

    def write(number: int) -> None:
        ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        rows = {"id": pa.array(ids, pa.int64()), "k": [f"key {each:012}" for each in ids], "v": [each / 7 for each in ids]}
        pq.write_table(pa.table(rows), place / f"part-{number:06}.parquet")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(files)))
    table = sluice.Table.convert(str(place), coordinator="memory://spark-files")
    table.checkpoint()
    table.close()


def _measured(systems: list[str], place: Path, files: int, runs: int) -> dict[str, dict[str, tuple[float, int]]]:
    """By query and system the median of its seconds, and the number of files that it read."""
    turns: dict[str, list[dict[str, list[float]]]] = {name: [] for name in systems}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-files-") as folder:
        programs = {}
        try:
            for name in systems:
                Path(folder, name).mkdir()
                arguments = ["benchmarks.spark_files_program", name, str(place), str(files), f"{folder}/{name}"]
                programs[name] = Program(name, arguments, f"{folder}/{name}")
            for number in range(runs + 1):
                for name, program in programs.items():
                    _console.print(f"{f'run {number}' if number else 'warm-up'}: {name}")
                    told = program.turn()
                    if number:
                        turns[name].append(told)
        finally:
            for program in programs.values():
                program.end()
    return {
        query: {name: (median(turn[query][0] for turn in told), int(told[0][query][1])) for name, told in turns.items()}
        for query in next(iter(turns.values()))[0]
    }


def _shown(found: dict[str, dict[str, tuple[float, int]]], systems: list[str]) -> None:
    others = [name for name in systems if name != "sluice"]
    table = Table(title="seconds (medians) and files read, and sluice's share of the others' time")
    for column in ("query", *systems, *(f"sluice / {name}" for name in others)):
        table.add_column(column, justify="left" if column == "query" else "right")
    for query, by_system in found.items():
        ratios = [f"{by_system['sluice'][0] / by_system[name][0]:.2f}" for name in others] if "sluice" in systems else []
        table.add_row(query, *(f"{by_system[name][0]:.3f} ({by_system[name][1]})" for name in systems), *ratios)
    _console.print(table)


@click.command()
@click.option("--files", type=click.IntRange(min=100), default=10_000, show_default=True, help="Files of the table.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Turns of each program that are counted.")
@click.option("--systems", default=",".join(_SYSTEMS), show_default=True, help="What to compare.")
def main(files: int, runs: int, systems: str) -> None:
    """Measure how Spark finds files; see this module's text."""
    warn_when_busy()
    chosen = systems.split(",")
    if unknown := sorted({*chosen} - {*_SYSTEMS}):
        raise click.BadParameter(f"{', '.join(unknown)}: choose systems from {', '.join(_SYSTEMS)}")
    with tempfile.TemporaryDirectory(prefix="sluice-bench-spark-table-") as folder:
        place = Path(folder, "table")
        _make_table(place, files)
        found = _measured(chosen, place, files, runs)
    for query, by_system in found.items():
        for name, (seconds, read) in by_system.items():
            click.echo(json.dumps({"system": name, "query": query, "files": files, "runs": runs, "seconds": seconds, "files_read": read}))
    _shown(found, chosen)


if __name__ == "__main__":
    main()
