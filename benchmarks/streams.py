"""How soon does a stream have what was committed, and how many batches do several streams write into one table?

``python -m benchmarks.streams --commits 40 --queries 1,4,16 --seconds 15`` runs each system in Spark programs of its own, in turn.
Latency: a stream reads table A, and the function of `foreachBatch` appends each batch to table B; a commit to A follows when the one
before is in B. It counts from the end of the commit to the function's call, and to the end of its append. Rate: so many queries, each
with an endless source, append batches of ten rows to one table for some seconds, and until each has written three. Every program checks
its tables row by row.

Delta Lake runs beside it if `--delta-python` is an interpreter with its package and the PySpark that its jars were built for (`make
bench-spark` makes one): so the two run on different releases of PySpark. One JSON object for each measurement goes to standard
output, everything else to standard error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from .report import warn_when_busy

__all__ = ["main"]

_console = Console(stderr=True)
_LIMIT_S: Final = 1800.0
_DELTA: Final = Path(".venv-bench-spark/bin/python")


def _run(python: str, system: str, *told: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-streams-") as folder:
        environment = {**os.environ, "SLUICE_HOME": f"{folder}/home", "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        for name in ("SLUICE_COORDINATOR", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        command = [python, "-m", "benchmarks.streams_program", system, folder, *told]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        if done.returncode:
            raise click.ClickException(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {"system": system, **found}


@click.command()
@click.option("--commits", type=click.IntRange(min=5), default=40, show_default=True, help="Commits whose latency counts.")
@click.option("--queries", default="1,4,16", show_default=True, help="Queries at once into one table.")
@click.option("--seconds", type=click.IntRange(min=1), default=15, show_default=True, help="How long they write.")
@click.option("--delta-python", default=str(_DELTA), show_default=True, help="The interpreter for Delta Lake; left out if it is not there.")
def main(commits: int, queries: str, seconds: int, delta_python: str) -> None:
    """Measure streams; see this module's text."""
    warn_when_busy()
    pythons = {"sluice": sys.executable}
    if Path(delta_python).exists():
        pythons["delta"] = str(Path(delta_python).absolute())
    else:
        _console.print(f"{delta_python} is not there: Delta Lake is left out; `make bench-spark` makes it")
    _console.print(f"{commits} commits, {queries} queries for {seconds} s, local[2], driver 2 GiB, local disk, {os.cpu_count()} cores")
    runs = [("latency", str(commits)), *(("rate", each, str(seconds)) for each in queries.split(","))]
    for told in runs:
        for system, python in pythons.items():
            found = _run(python, system, *told)
            click.echo(json.dumps(found))
            _console.print(found)


if __name__ == "__main__":
    main()
