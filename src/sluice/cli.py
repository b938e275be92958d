"""The command line: `sluice --help`.

Exit status 0: done; 1: an error that may pass or is not the caller's (see the class named in the message); 2: the call must
be changed. Errors are one line on standard error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click
import orjson
from rich.console import Console

from .cli_parts import PIPE_WIDTH as _PIPE_WIDTH
from .cli_parts import all_of as _all
from .cli_parts import coordinator_option as _coordinator
from .cli_parts import json_option as _json
from .cli_parts import on_table as _on_table
from .cli_parts import print_grid as _print_grid
from .cli_parts import print_json as _print_json
from .cli_parts import storage_option as _storage
from .cli_parts import time_text as _time
from .coordinator.facade.administration import connect, list_clients, release
from .coordinator.rules.explain.cases import read_case
from .coordinator.rules.explain.decision import explain as explain_case
from .demo.run import run_demo
from .demo.workspace import DemoOptions
from .dev.moto_server import S3DevServer
from .doctor_command import doctor_command
from .drop_commands import drop_command, forget_command
from .garbage_commands import recover_command, vacuum_command
from .health_command import health_command
from .lease_commands import leases
from .storage.errors import InvalidRequest, SluiceError
from .table_commands import compact_command, create_command, properties_command
from .tables.table import Table
from .tables.write.operation_records import row_count
from .version import __version__

__all__ = ["main"]


class _Sluice(click.Group):
    """Prints sluice's errors as one line; the exit status says whether the call must be changed."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SluiceError as error:
            _fail(error)


def _line(error: SluiceError) -> str:
    return f"sluice: {type(error).__name__}: {' '.join(str(error).split())}"


def _fail(error: SluiceError) -> NoReturn:
    click.echo(_line(error), err=True)
    sys.exit(2 if isinstance(error, InvalidRequest) else 1)


@click.group(cls=_Sluice, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, package_name="sluice-delta")
def main() -> None:
    """Many writers, one Delta table, nothing lost."""


main.add_command(leases)
main.add_command(health_command)
main.add_command(doctor_command)
main.add_command(vacuum_command)
main.add_command(recover_command)
main.add_command(drop_command)
main.add_command(forget_command)
main.add_command(create_command)
main.add_command(properties_command)
main.add_command(compact_command)


def _print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        _print_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, Mapping):
            for key, text in value.items():
                click.echo(f"{name}: {key} = {text}")
        else:
            click.echo(f"{name}: {'unknown' if value is None else value}")


def _open(location: str, coordinator: str | None, storage_options: Mapping[str, str]) -> Table:
    """Open a table for reading. Without a coordinator, shows what is published, of any Delta table."""
    consistency = "published" if coordinator is None else "latest"
    return Table.open(location, coordinator=coordinator, storage_options=storage_options, consistency=consistency)


@main.command()
@_on_table
def show(location: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Show a table: version, files, rows, properties.

    Works on any Delta table. With a coordinator it shows the latest ratified version, else the latest published one.
    """
    with _open(location, coordinator, storage_options) as table:
        snapshot = table.snapshot()
        counted = snapshot.raw.files["stats"].null_count == 0 and snapshot.raw.files["deletion_vector"].null_count == snapshot.num_files
        facts = {
            "location": table.location,
            "version": snapshot.version,
            "time": _time(snapshot.timestamp),
            "files": snapshot.num_files,
            "bytes": snapshot.raw.size_bytes,
            "rows": row_count(snapshot.raw.add_files()) if counted else None,
            "partitioned by": list(snapshot.partition_columns) if as_json else ", ".join(snapshot.partition_columns) or "nothing",
            "column": {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in snapshot.schema},
            "property": dict(table.properties),
        }
        _print_facts(facts, as_json=as_json)


@main.command()
@_on_table
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many transactions to show.")
def history(location: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool, limit: int) -> None:
    """Show the latest transactions of a table, newest first: who did what, and how long each waited."""
    with _open(location, coordinator, storage_options) as table:
        rows = [{**asdict(entry), "time": _time(entry.timestamp)} for entry in table.history(limit)]
    if as_json:
        _print_json(rows)
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
    _print_grid(columns, rows)


@main.command()
@click.argument("location")
@click.argument("transaction_id")
@_all(_coordinator, _storage, _json)
def outcome(location: str, transaction_id: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Show the outcome of a transaction, whoever ran it; an undecided one is decided now."""
    with Table.open(location, coordinator=coordinator, storage_options=storage_options) as table:
        told = table.outcome(transaction_id)
    facts: dict[str, object] = {"transaction": transaction_id, "state": told.state}
    if told.commit is not None:
        facts |= {"version": told.commit.version, "ordinal": told.commit.ordinal, "time": _time(told.commit.timestamp)}
    if told.error is not None:
        facts |= {"error": type(told.error).__name__, "reason": str(told.error)}
    _print_facts(facts, as_json=as_json)


@main.command()
@_on_table
def attach(location: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Bring an existing Delta table under sluice: from then on only sluice writes it, and everybody can read it."""
    with Table.attach(location, coordinator=coordinator, storage_options=storage_options) as table:
        _print_facts({"attached": table.location, "version": table.refresh().version}, as_json=as_json)


@main.command()
@_on_table
def detach(location: str, coordinator: str | None, storage_options: dict[str, str], as_json: bool) -> None:
    """Give a table back to all Delta engines; sluice commits nothing to it from then on."""
    with Table.open(location, coordinator=coordinator, storage_options=storage_options) as table:
        _print_facts({"detached": table.location, "version": table.detach().version}, as_json=as_json)


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
@_all(_coordinator, _json)
def clients(coordinator: str | None, as_json: bool) -> None:
    """List the clients connected to a coordinator, oldest first."""
    rows = [{**asdict(client), "since": _time(client.since_ms)} for client in list_clients(coordinator)]
    if as_json:
        _print_json(rows)
    else:
        _print_grid({"host": "host", "pid": "process", "application": "application", "since": "since", "version": "sluice"}, rows)


@main.command()
@_coordinator
@click.option("--latency-ms", type=click.FloatRange(min=0), default=0.0, help="Delay added to every request to the S3 server.")
@click.option("--bucket", default="sluice", show_default=True, help="The bucket to make.")
@_json
def dev(coordinator: str | None, latency_ms: float, bucket: str, as_json: bool) -> None:
    """Run an S3 server (moto's) and a coordinator until interrupted, and print the settings for using them."""
    with S3DevServer(latency_ms, bucket) as server:
        connect(coordinator)
        settings = {**server.env, "SLUICE_COORDINATOR": coordinator or "embedded://"}
        if as_json:
            _print_json(settings)
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
@_coordinator
@_storage
@click.option("--rows", type=click.IntRange(min=1), help="Take a sample of this many flights instead of all 336,776.")
@click.option("--seed", type=int, default=0, show_default=True, help="Determines the sample, and the order of the corrections.")
@click.option("--spark/--no-spark", default=True, help="Load the airports by Spark applications (default), or by Python programs instead.")
@click.option("--keep", is_flag=True, help="Keep the table and the jobs' logs.")
@click.option(
    "--time-limit", "time_limit_s", type=click.FloatRange(min=1), default=600.0, show_default=True, help="Seconds before giving up."
)
def demo(**options: Any) -> None:
    """Five writers and a deleting process on one table, all at once, and the proof that nothing was lost.

    The flights of 2013 from New York's three airports go into one table, partitioned by origin and month: three Spark
    applications (one for each airport), a stream of small appends, a corrections job that overwrites partitions, and a
    sixth process that deletes cancelled flights. At the end every surviving flight is there exactly once, or the last
    line begins with "demo: FAILED" and the exit status is 1.

    Without a coordinator it uses an embedded one of its own; the table is removed afterwards, unless it is kept.
    """
    console = Console(markup=True)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    sys.exit(0 if run_demo(DemoOptions(**options), console) else 1)
