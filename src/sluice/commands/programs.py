"""`sluice sql`, `console`, `daemon`, `exporter` and `dev`: a shell for SQL, which is also a program for scripts, and servers."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..coordinator.api import connect, release
from ..dev import S3DevServer
from ..metrics import start
from .parts import Checked, all_of, coordinator_option, json_option, pairs, print_facts, print_grid, storage_option

if TYPE_CHECKING:
    from ..operating.exporter import Page

_GRACE_S = 25.0
"""Kubernetes kills a program 30 seconds after it asked it to end."""
_LOOK_EVERY_S = 0.5
_ABANDONED = 128 + signal.SIGTERM
"""The exit status of a program that was to end, and abandoned what it did."""
_host_option = click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 is all of them.")


def _answering(
    serve: Callable[[str, int], tuple[int, Callable[[], None]]],
    host: str,
    port: int,
    path: str,
    as_json: bool,
    work: Callable[[threading.Event], object] = threading.Event.wait,
    grace_s: float = _GRACE_S,
    give_up: Callable[[], object] = lambda: None,
) -> None:
    """Serve, and work beside it, until the work ends, or the user or a signal ends both; says what to do if it cannot listen.

    Work that goes on `grace_s` seconds after a signal, or at a second one, is abandoned: `give_up` is called, and the process ends.
    """
    try:
        port, end = serve(host, port)
    except ImportError as missing:
        raise click.ClickException(str(missing)) from missing
    except OSError as taken:
        raise click.ClickException(f"cannot listen on {host}:{port}: {taken.strerror}; give another --host or --port") from taken
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    over, ended = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1, "sluice-work") as pool:
        working = pool.submit(work, over)
        working.add_done_callback(lambda _: ended.set())
        with suppress(KeyboardInterrupt):  # the second
            try:
                _until_interrupted(partial(print_facts, {"url": url}, as_json=as_json, text=url), ended)
            finally:
                over.set()
            ended.wait(grace_s)
        if not working.done():
            try:
                click.echo("sluice: ends, and abandons what it does", err=True)
                give_up()
            finally:
                os._exit(_ABANDONED)  # whatever threads do, and whoever interrupts this
        working.result()
    end()


@click.command("sql")
@click.option("-e", "--execute", "texts", multiple=True, metavar="TEXT", help="Carry out these statements; may be repeated.")
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="Carry out a file's statements; - is standard input.",
)
@click.option("--json", "form", flag_value="json", help="Print a line of JSON for each row.")
@click.option("--csv", "form", flag_value="csv", help="Print CSV.")
@click.option(
    "--engine",
    "choice",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="local: this process (DuckDB for queries); spark; auto: local, and Spark for what needs it.",
)
@click.option(
    "--arg", "args", multiple=True, metavar="NAME=VALUE", callback=pairs, help="The value, a text, of the parameter :NAME; may be repeated."
)
@click.option("--max-rows", type=Checked("max_rows"), default=1000, show_default=True, help="Rows of a table on the screen, at most.")
@click.option("--master", default="local[*]", show_default=True, help="Spark's master, if Spark is started.")
@click.option("--spark-log", is_flag=True, help="Show what Spark logs; otherwise only errors are shown.")
@all_of(coordinator_option, storage_option)
def sql_command(texts: tuple[str, ...], files: tuple[Path, ...], form: str | None, max_rows: int, **engines: Any) -> None:
    """Carry out SQL: typed in a shell, or from -e, -f or standard input.

    Statements end with a semicolon. One line on standard error says which engine carried each out. The first error ends a script:
    with exit status 2 if the statement must be changed, otherwise 1.
    """
    from ..shell.engines import Engines  # loads a parser of SQL
    from ..shell.running import Shell

    sys.exit(Shell(Engines(**engines), texts, files, form, max_rows).run())


@click.command("daemon")
@all_of(coordinator_option, storage_option)
@click.option("--interval", "interval_s", type=Checked("poll_s"), default=30.0, show_default=True, help="Seconds between two rounds.")
@click.option("--once", is_flag=True, help="Do all that is due, once; the exit status is 1 if something could not be done.")
@click.option("--grace", "grace_s", type=Checked("seconds"), default=_GRACE_S, show_default=True, help="Seconds for a task after SIGTERM.")
@click.option("--contention", metavar="LOCATION", help="The table in which all daemons keep refusals and waits from now on.")
@click.option("--contention-days", type=Checked("contention_days"), default=30.0, show_default=True, help="For how long.")
@click.option("--doctor-hours", type=Checked("doctor_hours"), default=24.0, show_default=True, help="From one doctor to the next; 0: none.")
@_host_option
@click.option("--port", type=Checked("port"), default=9465, show_default=True, help="For /healthz and /readyz; 0 is any free one.")
@json_option
def daemon_command(coordinator: str | None, once: bool, host: str, port: int, as_json: bool, grace_s: float, **terms: Any) -> None:
    """Do what is due to all tables, beside their writers, until interrupted.

    It publishes what is pending, decides what nobody decides, writes checkpoints, compacts, clusters, vacuums, examines, deletes tables
    that were dropped by name and cannot be brought back any more, and keeps what jobs lost to one another. Any number of daemons share the
    work. The exit status is 0 after a signal, 143 if it abandoned a task then, which may be done again.
    """
    from ..operating.daemon import Daemon, serve_probes

    daemon = Daemon(coordinator, **terms)
    if once:
        done = list(daemon.round())
        print_grid(("location", "task", "result", "error"), [asdict(each) for each in done], as_json=as_json)
        sys.exit(1 if any(each.error for each in done) else 0)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger(Daemon.__module__).setLevel(logging.INFO)  # what it did
    with ExitStack() as running:
        serve = partial(serve_probes, daemon, metrics=_own_metrics(running))
        _answering(serve, host, port, "/healthz", as_json, daemon.run, grace_s, partial(release, coordinator))


def _own_metrics(running: ExitStack) -> Page | None:
    """The page of what this process commits and asks for in the block; None without `prometheus_client`."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        return None
    registry = CollectorRegistry()
    running.callback(start(registry))
    return partial(generate_latest, registry)


@click.command("exporter")
@all_of(coordinator_option, storage_option)
@_host_option
@click.option("--port", type=Checked("port"), default=9464, show_default=True, help="The port; 0 is any free one.")
@click.option("--upkeep", is_flag=True, help="Read each table's log, too, for messages about maintenance.")
@json_option
def exporter_command(host: str, port: int, as_json: bool, **looked_at: Any) -> None:
    """Serve the status of all tables at /metrics to Prometheus until interrupted."""
    from ..operating.exporter import looks, serve

    _answering(partial(serve, looks(**looked_at)), host, port, "/metrics", as_json)


@click.command("console")
@all_of(coordinator_option, storage_option)
@_host_option
@click.option("--port", type=Checked("port"), default=9466, show_default=True, help="The port; 0 is any free one.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="Allow actions to those who have the token in this file (chmod 600 or 640); without it the console only shows.",
)
@json_option
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="Answer to this name, too, as a proxy's; may be repeated.")
def console_command(host: str, port: int, as_json: bool, **terms: Any) -> None:
    """Serve a page that shows all tables live: who is stuck, behind whom, who was refused and why; until interrupted."""
    try:
        from ..operating.console.application import Console, serve
    except ImportError as missing:
        raise click.ClickException(f"{missing.name} is missing: pip install 'sluice-delta[console]'") from missing

    _answering(partial(serve, Console.of(**terms)), host, port, "/", as_json)


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
        if not as_json:
            click.echo(f"# a place for tables: s3://{bucket}/...   Ctrl-C ends the servers and forgets what they hold", err=True)
        text = "\n".join(f"export {name}={value}" for name, value in settings.items())
        _until_interrupted(partial(print_facts, settings, as_json=as_json, text=text))
        release(coordinator)


def _until_interrupted(announce: Callable[[], object], over: threading.Event | None = None) -> None:
    """Announce the program, and wait until the user, a signal to end, or the event ends it: whoever reads the announcement may signal."""
    over = over or threading.Event()
    with suppress(KeyboardInterrupt):
        # a handler that set the event would wait for ever for its lock where this thread has it
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        announce()
        sys.stdout.flush()
        while not over.wait(_LOOK_EVERY_S):  # a signal just before a wait does not end it
            pass
