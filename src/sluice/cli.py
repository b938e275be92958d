"""The command line: `sluice --help`.

Exit status 0: done; 1: an error that may pass or is not the caller's (see the class named in the message); 2: the call must
be changed. Errors are one line on standard error, and an unexpected one a second line, which names the file with its report.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import orjson
from rich.console import Console

from .commands.consumers import consumers
from .commands.garbage import recover_command, vacuum_command
from .commands.health import doctor_command, health_command
from .commands.leases import leases
from .commands.names import namespaces, tables
from .commands.parts import (
    PIPE_WIDTH,
    At,
    Checked,
    all_of,
    coordinator_option,
    json_option,
    on_table,
    print_facts,
    print_grid,
    print_json,
    storage_option,
)
from .commands.removal import drop_command, forget_command
from .commands.sql import sql_command
from .commands.tables import compact_command, create_command, properties_command
from .coordinator.facade.administration import connect, list_clients, release
from .coordinator.rules.explain.cases import read_case
from .coordinator.rules.explain.decision import explain as explain_case
from .coordinator.times import text_of as time_text
from .demo.run import run_demo
from .demo.workspace import DemoOptions
from .dev.moto_server import S3DevServer
from .storage.errors import InvalidRequest, SluiceError
from .tables.table import Table
from .tables.write.operation_records import row_count
from .version import __version__

_TOLD_MAX: Final = 500


class _Sluice(click.Group):
    """Prints sluice's errors as one line; the exit status says whether the call must be changed."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SluiceError as error:
            _fail(error)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params["debug"]:
                raise
            _fail_unexpectedly(error)


def _line(error: SluiceError) -> str:
    return f"sluice: {type(error).__name__}: {' '.join(str(error).split())}"


def _fail(error: SluiceError) -> NoReturn:
    click.echo(_line(error), err=True)
    sys.exit(2 if isinstance(error, InvalidRequest) else 1)


def _fail_unexpectedly(error: Exception) -> NoReturn:
    """Say so in two lines, the second of which names the file with the traceback."""
    with tempfile.NamedTemporaryFile("w", prefix="sluice-report-", suffix=".txt", delete=False) as report:
        report.write(f"sluice {__version__}\n")
        traceback.print_exception(error, file=report)
    told = " ".join(str(error).split())[:_TOLD_MAX]
    click.echo(f"sluice: unexpected {type(error).__name__}: {told}\nthis is a bug of sluice; the report is in {report.name}", err=True)
    sys.exit(1)


@click.group(cls=_Sluice, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, package_name="sluice-delta")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
def main(debug: bool) -> None:
    """Many writers, one Delta table, nothing lost."""


for _command in (
    leases,
    consumers,
    health_command,
    doctor_command,
    vacuum_command,
    recover_command,
    drop_command,
    forget_command,
    create_command,
    properties_command,
    compact_command,
    namespaces,
    sql_command,
    tables,
):
    main.add_command(_command)


@main.command()
@on_table
def show(at: At, as_json: bool) -> None:
    """Show a table: version, files, rows, properties.

    Works on any Delta table. With a coordinator it shows the latest ratified version, else the latest published one.
    """
    with at.open_to_read() as table:
        snapshot = table.snapshot()
        counted = snapshot.raw.files["stats"].null_count == 0 and snapshot.raw.files["deletion_vector"].null_count == snapshot.num_files
        facts = {
            "location": table.location,
            "version": snapshot.version,
            "time": time_text(snapshot.timestamp),
            "files": snapshot.num_files,
            "bytes": snapshot.raw.size_bytes,
            "rows": row_count(snapshot.raw.add_files()) if counted else None,
            "partitioned by": list(snapshot.partition_columns) if as_json else ", ".join(snapshot.partition_columns) or "nothing",
            "column": {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in snapshot.schema},
            "property": dict(table.properties),
        }
        print_facts(facts, as_json=as_json)


@main.command()
@on_table
@click.option("--limit", type=Checked("history.limit"), default=20, show_default=True, help="How many transactions to show.")
def history(at: At, as_json: bool, limit: int) -> None:
    """Show the latest transactions of a table, newest first: who did what, and how long each waited."""
    with at.open_to_read() as table:
        rows = [{**asdict(entry), "time": time_text(entry.timestamp)} for entry in table.history(limit)]
    if as_json:
        print_json(rows)
        return
    columns = {
        "version": "version",
        "ordinal": "ordinal",
        "time": "time",
        "operation": "operation",
        "application": "application",
        "host": "host",
        "pid": "process",
        "waited_ms": "waited ms",
        "rebased_over": "rebased over",
        "transaction_id": "transaction",
    }
    print_grid(columns, rows)


@main.command()
@on_table
@click.argument("transaction_id")
def outcome(at: At, as_json: bool, transaction_id: str) -> None:
    """Show the outcome of any client's transaction; an undecided one is decided now."""
    with at.open() as table:
        told = table.outcome(transaction_id)
    facts: dict[str, object] = {"transaction": transaction_id, "state": told.state}
    if told.commit is not None:
        facts |= {"version": told.commit.version, "ordinal": told.commit.ordinal, "time": time_text(told.commit.timestamp)}
    if told.error is not None:
        facts |= {"error": type(told.error).__name__, "reason": str(told.error)}
    print_facts(facts, as_json=as_json)


@main.command()
@on_table
def attach(at: At, as_json: bool) -> None:
    """Bring an existing Delta table under sluice: from then on only sluice writes it, and everybody can read it."""
    with Table.attach(at.location, **at.reached) as table:
        print_facts({"attached": table.location, "version": table.refresh().version}, as_json=as_json)


@main.command()
@on_table
def detach(at: At, as_json: bool) -> None:
    """Give a table back to all Delta engines; sluice commits nothing to it from then on."""
    with at.open() as table:
        print_facts({"detached": table.location, "version": table.detach().version}, as_json=as_json)


@main.command()
@click.argument("cases", nargs=-1, required=True, metavar="CASE.json...", type=click.Path(path_type=Path))
@click.option("--strict-delta", is_flag=True, help="Delta Lake's own verdict, without sluice's refinements.")
def explain(cases: tuple[Path, ...], strict_delta: bool) -> None:
    """Explain what would happen to a transaction, from a description of it and of the commits that came first.

    Prints one line of JSON for each case: the verdict ("ok" or the name of the error), the rule, and why. Reads nothing but
    the files, and needs no table and no coordinator. A refusal is an answer: the exit status is 2 only if a case cannot be
    used, and the other cases are still decided.
    """
    usable = True
    for path in cases:
        try:
            told = explain_case(read_case(path.read_bytes(), str(path)), strict=strict_delta)
        except OSError as error:
            usable = _tell_unusable(InvalidRequest(f"{path}: {error.strerror}; name a file that holds a case", case=str(path)))
        except SluiceError as error:
            usable = _tell_unusable(error)
        else:
            click.echo(orjson.dumps(told))
    sys.exit(0 if usable else 2)


def _tell_unusable(error: SluiceError) -> bool:
    click.echo(_line(error), err=True)
    return False


@main.command()
@all_of(coordinator_option, json_option)
def clients(coordinator: str | None, as_json: bool) -> None:
    """List the clients connected to a coordinator, oldest first."""
    rows = [{**asdict(client), "since": time_text(client.since_ms)} for client in list_clients(coordinator)]
    if as_json:
        print_json(rows)
    else:
        print_grid({"host": "host", "pid": "process", "application": "application", "since": "since", "version": "sluice"}, rows)


@main.command()
@coordinator_option
@click.option("--latency-ms", type=Checked("seconds"), default=0.0, help="Delay added to every request to the S3 server.")
@click.option("--bucket", default="sluice", show_default=True, help="The bucket to make.")
@json_option
def dev(coordinator: str | None, latency_ms: float, bucket: str, as_json: bool) -> None:
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


@main.command()
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
    run = run_demo
    if sql:
        from .demo.sql_day import run_sql_demo as run  # loads a parser of SQL
    sys.exit(0 if run(DemoOptions(**options), console) else 1)
