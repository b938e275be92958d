"""Many writers, one table: how many tiny appends a second, and how long does one take?

``python -m benchmarks.commits --writers 8 --seconds 10 --latency-ms 30`` starts one S3 server that adds the latency to
every request, and lets each system in turn write one table on it with that many processes. Afterwards the table is read
and compared with what the writers were told. One JSON object per system goes to standard output; everything else to
standard error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table as Grid

from sluice.dev import S3DevServer

from .load import Writers
from .report import Report, measure, verdict, warn_when_busy
from .systems import PEERS, SYSTEMS, load
from .systems.base import Target

__all__ = ["main"]

_BUCKET = "bench"
_GRACE_S = 60.0
"""How long after the measured time a writer may take to finish the transaction it has begun."""

_console = Console(stderr=True)


def _names(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if unknown := [name for name in names if name not in SYSTEMS]:
        raise click.BadParameter(f"{', '.join(unknown)}: known are {', '.join(SYSTEMS)}")
    return names


@click.command(help="Measure how sluice and its peers commit many tiny appends to one table.")
@click.option("--writers", type=click.IntRange(1, 512), default=8, show_default=True, help="Writer processes.")
@click.option("--seconds", type=click.FloatRange(0.1), default=10.0, show_default=True, help="How long they write.")
@click.option("--latency-ms", type=click.FloatRange(0.0), default=30.0, show_default=True, help="Added to every request of the S3 server.")
@click.option("--ack", type=click.Choice(["published", "ratified"]), default="published", show_default=True, help="When sluice answers.")
@click.option("--systems", default=",".join(SYSTEMS), show_default=True, callback=_names, help="What to measure, in this order.")
@click.option("--json-only", is_flag=True, help="Say no more on standard error than the verdict and warnings.")
def main(writers: int, seconds: float, latency_ms: float, ack: str, systems: list[str], json_only: bool) -> None:
    """Run each system, print its numbers, end with 1 when one lost or duplicated a transaction."""
    _console.quiet = json_only
    warn_when_busy()
    reports: dict[str, Report] = {}
    # The coordinator may still be writing its last lines when its folder is removed.
    scratch = tempfile.TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True)
    with scratch as folder, S3DevServer(latency_ms=latency_ms, bucket=_BUCKET) as server:
        os.environ["SLUICE_HOME"] = str(Path(folder) / "home")
        for name in systems:
            target = Target(
                location=f"s3://{_BUCKET}/{name}",
                folder=str(Path(folder) / name),
                endpoint_url=server.endpoint_url,
                region=server.options["region"],
                access_key_id=server.options["access_key_id"],
                secret_access_key=server.options["secret_access_key"],
                ack="published" if name in PEERS else ack,
            )
            Path(target.folder).mkdir()
            reports[name] = _run(name, target, writers, seconds, latency_ms)
            print(json.dumps(reports[name].to_dict()), flush=True)
    _show(reports)
    print(verdict(reports), file=sys.stderr)
    sys.exit(0 if all(each.sound for each in reports.values()) else 1)


def _run(name: str, target: Target, writers: int, seconds: float, latency_ms: float) -> Report:
    system = load(name, target)
    try:
        _console.print(f"[bold]{name}[/]: making the table, starting {writers} writers")
        system.create()
        with Writers(name, target, writers) as processes:
            processes.warm_up()
            _console.print(f"[bold]{name}[/]: writing for {seconds:g} s, {latency_ms:g} ms per request")
            done = processes.run(seconds, _GRACE_S, system.await_published)
        late_s = done.ended - done.deadline
        _console.print(f"[bold]{name}[/]: everything answered and published {late_s:.1f} s after the deadline; reading the table")
        begun = time.monotonic()
        ids = system.row_ids().to_pylist()
        _console.print(f"[bold]{name}[/]: {len(ids)} rows read in {time.monotonic() - begun:.1f} s")
        return measure(name, writers, target.ack, latency_ms, done, ids)
    finally:
        system.close()


def _show(reports: dict[str, Report]) -> None:
    grid = Grid("system", "transactions/s", "versions/s", "p50 ms", "p99 ms", "max ms", "slowest/mean", "cpu ms", "lost", "duplicated")
    for name, each in reports.items():
        numbers = (each.transactions_per_s, each.versions_per_s, each.p50_ms, each.p99_ms, each.max_ms, each.slowest_over_mean, each.cpu_ms)
        grid.add_row(name, *(f"{number:,}" for number in (*numbers, each.lost, each.duplicated)))
    _console.print(grid)


if __name__ == "__main__":
    main()
