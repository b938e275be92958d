"""`sluice clients`, and the programs that run for a while: `sluice dev` and `sluice demo`."""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console

from ..coordinator.api import connect, list_clients, release
from ..coordinator.times import text_of as time_text
from ..demo.run import run_demo
from ..demo.workspace import DemoOptions
from ..dev.moto_server import S3DevServer
from ..shell.printing import PIPE_WIDTH
from .parts import Checked, all_of, coordinator_option, json_option, print_grid, print_json, storage_option


@click.command("clients")
@all_of(coordinator_option, json_option)
def clients_command(coordinator: str | None, as_json: bool) -> None:
    """List the clients connected to a coordinator, oldest first."""
    rows = [{**asdict(client), "since": time_text(client.since_ms)} for client in list_clients(connect(coordinator))]
    if as_json:
        print_json(rows)
    else:
        print_grid({"host": "host", "pid": "process", "application": "application", "since": "since", "version": "sluice"}, rows)


@click.command("dev")
@coordinator_option
@click.option("--latency-ms", type=Checked("seconds"), default=0.0, help="Delay added to every request to the S3 server.")
@click.option("--bucket", default="sluice", show_default=True, help="The bucket to make.")
@json_option
def dev_command(coordinator: str | None, latency_ms: float, bucket: str, as_json: bool) -> None:
    """Run an S3 server (moto's) and a coordinator until interrupted, and print the settings for using them."""
    with S3DevServer(latency_ms, bucket) as server:
        connect(coordinator)
        settings = {**server.env, "SLUICE_COORDINATOR": coordinator or "embedded://"}
        if as_json:
            print_json(settings)
        else:
            for name, value in settings.items():
                click.echo(f"export {name}={value}")
            click.echo(f"# a place for tables: s3://{bucket}/...   Ctrl-C ends the servers and forgets what they hold", err=True)
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            release(coordinator)


@click.command("demo")
@click.option("--store", type=click.Choice(["local", "s3"]), default="local", show_default=True, help="Where to make the table.")
@click.option(
    "--location",
    metavar="FOLDER",
    help="The parent folder of the table: a path or s3://bucket/path. Default: a temporary folder, or for s3 a server "
    "started for this run (bucket 'sluice' of the endpoint, when one is set).",
)
@coordinator_option
@storage_option
@click.option("--rows", type=Checked("max_rows"), help="Take a sample of this many flights instead of all 336,776.")
@click.option("--seed", type=int, default=0, show_default=True, help="Determines the sample, and the order of the corrections.")
@click.option("--spark/--no-spark", default=True, help="Load the airports by Spark applications (default), or by Python programs instead.")
@click.option("--sql", is_flag=True, help="Instead: a day of a warehouse in SQL alone, without Spark.")
@click.option("--keep", is_flag=True, help="Keep the table and the jobs' logs.")
@click.option("--time-limit", "time_limit_s", type=Checked("poll_s"), default=600.0, show_default=True, help="Seconds before giving up.")
def demo_command(*, sql: bool, **options: Any) -> None:
    """Five writers and a deleting process on one table, all at once, and the proof that nothing was lost.

    The flights of 2013 from New York's three airports go into one table, partitioned by origin and month: three Spark
    applications (one for each airport), a stream of small appends, a corrections job that overwrites partitions, and a
    sixth process that deletes cancelled flights. At the end every surviving flight is there exactly once, or the last
    line begins with "demo: FAILED" and the exit status is 1.

    Without a coordinator it uses its own embedded one; the table is removed afterwards, unless it is kept.
    """
    console = Console(markup=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    run = run_demo
    if sql:
        from ..demo.sql_day import run_sql_demo as run  # loads a parser of SQL
    sys.exit(0 if run(DemoOptions(**options), console) else 1)
