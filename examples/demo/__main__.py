"""`python -m examples.demo --help`: the options of the demo."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console

from sluice.commands.parts import Checked, coordinator_option, storage_option
from sluice.errors import InvalidRequest, SluiceError
from sluice.shell.printing import PIPE_WIDTH
from sluice.storage.errors import one_line

from .run import run_demo
from .sql_day import run_sql_demo
from .workspace import DemoOptions


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
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
@click.option("--console", "watch", is_flag=True, help="Serve `sluice console` while the demo runs, and open it in a browser.")
@click.option("--keep", is_flag=True, help="Keep the table and the jobs' logs.")
@click.option("--time-limit", "time_limit_s", type=Checked("poll_s"), default=600.0, show_default=True, help="Seconds before giving up.")
def demo(*, sql: bool, **options: Any) -> None:
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
    run = run_sql_demo if sql else run_demo
    sys.exit(0 if run(DemoOptions(**options), console) else 1)


if __name__ == "__main__":
    try:
        demo(prog_name="python -m examples.demo")
    except SluiceError as error:
        click.echo(f"sluice: {one_line(error)}", err=True)
        sys.exit(2 if isinstance(error, InvalidRequest) else 1)
