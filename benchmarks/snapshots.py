"""How long does it take, and how much memory, to open a table of very many files?

``python -m benchmarks.snapshots --files 100000,1000000 --wide 300000`` writes tables of these sizes (a checkpoint and a few commits,
no data files), and one of so many files with 100 partition columns. Every measurement is made in a process of its own, sluice and
delta-rs in turn, several times; the fastest counts. What both find is compared with what was written.

One JSON object per measurement goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table as Grid

from .report import warn_when_busy
from .snapshot_tables import APP_VERSION, Shape, make

__all__ = ["Measured", "main", "verdict"]

WIDE: Final = 100
"""The partition columns of the wide table."""
_OPEN_S: Final = 0.15
_OPEN_MB: Final = 150.0
_LIST_TIME: Final = 0.4
_LIST_MEMORY: Final = 0.6
_REFRESH_S: Final = 0.02
_LARGE: Final = 1_000_000
# What delta-rs 1.6 needs, rounded up.
_BYTES_PER_FILE: Final = 1_500
_BYTES_PER_PARTITION_VALUE: Final = 100

_console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement. Peaks are of the whole process; `baseline_mb` is what it had after its imports."""

    table: str
    files: int
    partition_columns: int
    row_group: int
    system: str
    measure: str
    seconds: float
    cpu_s: float
    baseline_mb: float
    peak_mb: float
    sound: bool
    found: dict[str, Any]


def _measures(shape: Shape, rounds: int) -> Iterator[tuple[str, str]]:
    yield from [("sluice", "open")] * rounds
    yield from [("sluice", "list"), ("delta-rs", "list")] * rounds
    yield from [("sluice", "refresh")] * rounds
    if shape.partition_columns > 1:
        yield "sluice", "missing"


def _expected(shape: Shape, measure: str) -> dict[str, Any]:
    match measure:
        case "open":
            return {"app_version": APP_VERSION}
        case "list":
            return {"files": shape.live_files, "bytes": shape.live_bytes}
        case "refresh":
            return {"files": shape.live_files}
    return {}


def _run(shape: Shape, system: str, measure: str, folder: Path) -> Measured:
    command = [sys.executable, "-m", "benchmarks.snapshot_program", system, measure, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{system} {measure} on {shape.name} ended with {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    told = {name: found.pop(name) for name in ("seconds", "cpu_s", "baseline_mb", "peak_mb")}
    expected = _expected(shape, measure)
    sound = all(found.get(name) == value for name, value in expected.items()) and (measure != "missing" or bool(found.get("named")))
    return Measured(shape.name, shape.files, shape.partition_columns, shape.row_group, system, measure, sound=sound, found=found, **told)


def _best(found: Sequence[Measured]) -> list[Measured]:
    """Of each measurement the fastest run, and one that was wrong before any that was right."""
    best: dict[tuple[str, str, str], Measured] = {}
    for each in sorted(found, key=lambda one: (one.sound, one.seconds)):
        best.setdefault((each.table, each.system, each.measure), each)
    return [each for each in best.values() if each]


def _goals(found: Sequence[Measured]) -> Iterator[tuple[str, bool]]:
    """What is meant to be reached, in words, and whether it was."""
    by = {(each.table, each.system, each.measure): each for each in found}
    for (table, system, measure), each in by.items():
        peer = by.get((table, "delta-rs", "list"))
        if system != "sluice":
            continue
        if measure == "open":
            reached = each.seconds <= _OPEN_S and each.peak_mb <= _OPEN_MB
            yield f"open {table}: {each.seconds:.3f} s, {each.peak_mb:.0f} MB (goals: {_OPEN_S} s, {_OPEN_MB:.0f} MB)", reached
        elif measure == "refresh":
            yield f"refresh {table}: {each.seconds * 1000:.1f} ms (goal: {_REFRESH_S * 1000:.0f} ms)", each.seconds <= _REFRESH_S
        elif measure == "list" and peer is not None:
            time, memory = each.seconds / peer.seconds, each.peak_mb / peer.peak_mb
            above = (each.peak_mb - each.baseline_mb) / (peer.peak_mb - peer.baseline_mb)
            processor = each.cpu_s / peer.cpu_s
            text = (
                f"list {table}: {time:.2f} x delta-rs's time ({processor:.2f} x its processor time), "
                f"{memory:.2f} x its memory ({above:.2f} x above the imports)"
            )
            goals_apply = each.files >= _LARGE
            yield (
                text + (f" (goals: {_LIST_TIME}, {_LIST_MEMORY})" if goals_apply else ""),
                (not goals_apply or (time <= _LIST_TIME and memory <= _LIST_MEMORY)),
            )


def verdict(found: Sequence[Measured]) -> str:
    """Whether everything that was found was right, and which goals were reached, line by line."""
    wrong = [f"{each.system} {each.measure} on {each.table} found {each.found}" for each in found if not each.sound]
    if wrong:
        return "verdict: FAILED: " + "; ".join(wrong)
    lines = [f"  {'reached' if reached else 'MISSED '} {text}" for text, reached in _goals(found)]
    return "\n".join(["verdict: ok, every list has the files that were written", *lines])


def _sizes(_context: click.Context, _option: click.Parameter, value: str) -> list[int]:
    try:
        return [int(text.replace("_", "")) for text in value.split(",") if text.strip()]
    except ValueError as cause:
        raise click.BadParameter(f"{value!r} is no list of numbers, such as 100000,1000000") from cause


def _fits(shape: Shape) -> bool:
    """Whether the machine has the memory for what the most demanding process needs."""
    meminfo = Path("/proc/meminfo").read_text()
    available_kb = int(meminfo.partition("MemAvailable:")[2].split()[0])
    return available_kb * 1024 > shape.files * (_BYTES_PER_FILE + shape.partition_columns * _BYTES_PER_PARTITION_VALUE)


@click.command(help="Measure what it takes to open tables of very many files, beside delta-rs.")
@click.option(
    "--files", default="100000,1000000,5000000", show_default=True, callback=_sizes, help="Sizes of tables with one partition column."
)
@click.option(
    "--wide", type=click.IntRange(0), default=300_000, show_default=True, help=f"Files of the table with {WIDE} partition columns; 0: none."
)
@click.option("--row-group", type=click.IntRange(1), default=131_072, show_default=True, help="Rows of a row group of the checkpoints.")
@click.option(
    "--repeat", type=click.IntRange(1), default=3, show_default=True, help="How often each measurement is made; the fastest counts."
)
@click.option("--json-only", is_flag=True, help="Say no more on standard error than the verdict and warnings.")
def main(files: list[int], wide: int, row_group: int, repeat: int, json_only: bool) -> None:
    """Make the tables one after the other, measure, end with 1 when a system found something else than was written."""
    _console.quiet = json_only
    warn_when_busy()
    releases = ", ".join(f"{name} {version(name)}" for name in ("deltalake", "pyarrow"))
    _console.print(f"[bold]snapshots[/]: {os.cpu_count()} cores, Python {platform.python_version()}, {releases}")
    shapes = [Shape(count, 1, row_group) for count in files] + ([Shape(wide, WIDE, row_group)] if wide else [])
    found: list[Measured] = []
    for shape in shapes:
        if not _fits(shape):
            _console.print(f"[bold]snapshots[/]: {shape.name} left out, for want of memory")
            continue
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
            size = make(shape, Path(folder))
            _console.print(f"[bold]snapshots[/]: {shape.name}: a checkpoint of {size / 2**20:.0f} MiB, {row_group} rows a row group")
            # delta-rs takes a minute for the wide table
            rounds = repeat if shape.partition_columns == 1 else 1
            found += _best([_run(shape, system, measure, Path(folder)) for system, measure in _measures(shape, rounds)])
    for each in found:
        print(json.dumps(asdict(each)), flush=True)
    _show(found)
    print(verdict(found), file=sys.stderr)
    sys.exit(0 if all(each.sound for each in found) else 1)


def _show(found: Sequence[Measured]) -> None:
    grid = Grid("table", "system", "measure", "s", "cpu s", "peak MB", "above imports MB")
    for each in found:
        above = f"{each.peak_mb - each.baseline_mb:.0f}"
        grid.add_row(each.table, each.system, each.measure, f"{each.seconds:.3f}", f"{each.cpu_s:.2f}", f"{each.peak_mb:.0f}", above)
    _console.print(grid)


if __name__ == "__main__":
    main()
