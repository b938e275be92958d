"""`sluice health` and `sluice doctor`: whether all is well with the coordinator and with a table; the exit status tells scripts."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Final

import click

from ..coordinator.health import DEFAULT_BOUND_S, Health, health
from ..tables.manage.doctor import doctor
from .parts import At, Checked, coordinator_option, json_option, on_table, print_json

_PAUSE_S: Final = 0.5
_WORDS: Final = {True: "well", False: "NOT WELL", None: "not known"}
_STATUS: Final = {True: 0, False: 1, None: 3}


@click.command("health")
@coordinator_option
@click.option(
    "--wait",
    "wait_s",
    type=Checked("seconds"),
    default=0.0,
    metavar="SECONDS",
    help="Ask again until all is well, for at most this time.",
)
@click.option(
    "--bound",
    "bound_s",
    type=Checked("bound_s"),
    default=DEFAULT_BOUND_S,
    show_default=True,
    metavar="SECONDS",
    help="The longest acceptable wait of a commit or a publication.",
)
@json_option
def health_command(coordinator: str | None, wait_s: float, bound_s: float, as_json: bool) -> None:
    """Show whether all is well, and so whether a ZooKeeper server may be taken out.

    Exit status 0: yes; 1: something is not well; 3: nothing is wrong, but something, which is named, cannot be known from
    here.
    """
    end = time.monotonic() + wait_s
    found = health(coordinator, bound_s=bound_s)
    while found.ok is not True and time.monotonic() < end:
        time.sleep(_PAUSE_S)
        found = health(coordinator, bound_s=bound_s)
    if as_json:
        print_json({"ok": found.ok, **asdict(found)})
    else:
        _print(found)
    sys.exit(_STATUS[found.ok])


def _print(found: Health) -> None:
    for check in found.checks:
        click.echo(f"{check.name}: {_WORDS[check.ok]}: {check.told}")
    for server in found.servers:
        click.echo(f"server {server.host}: {server.state}")


@click.command("doctor")
@on_table
def doctor_command(at: At, as_json: bool) -> None:
    """Examine a table completely and say what is wrong and what to do: log, checkpoints, data files, the coordinator's nodes.

    Reads the whole log, lists the whole table, changes nothing. Exit status 0: no error; 1: an error was found.
    """
    found = doctor(at.location, **at.reached)
    if as_json:
        print_json({"ok": found.ok, **asdict(found)})
    else:
        for each in found.findings:
            click.echo(f"{each.severity}: {each.about}: {each.what}{f'. Remedy: {each.remedy}' if each.remedy else ''}")
        where = "the log, the files and the coordinator's nodes" if found.coordinated else "the log and the files"
        version = "no version can be read" if found.version is None else f"version {found.version} can be read"
        click.echo(f"{found.location}: {'in order' if found.ok else 'NOT IN ORDER'}; {version}; examined {where}")
    sys.exit(0 if found.ok else 1)
