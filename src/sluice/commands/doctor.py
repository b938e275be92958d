"""`sluice doctor`: what is wrong with a table, and what to do about it."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from ..tables.manage.doctor import doctor
from .parts import At, on_table, print_json


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
