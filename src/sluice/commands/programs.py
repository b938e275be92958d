"""`sluice clients` and `sluice dev`: who uses a coordinator, and servers for development."""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict

import click

from ..coordinator.api import connect, list_clients, release
from ..coordinator.times import text_of as time_text
from ..dev.moto_server import S3DevServer
from .parts import Checked, all_of, coordinator_option, json_option, print_grid, print_json


@click.command("clients")
@all_of(coordinator_option, json_option)
def clients_command(coordinator: str | None, as_json: bool) -> None:
    """List the clients connected to a coordinator, oldest first."""
    rows = [{**asdict(client), "since": time_text(client.since_ms)} for client in list_clients(connect(coordinator))]
    columns = {"host": "host", "pid": "process", "application": "application", "since": "since", "version": "sluice"}
    print_grid(columns, rows, as_json=as_json)


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
