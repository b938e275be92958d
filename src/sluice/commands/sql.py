"""`sluice sql`: a shell for SQL, and a program for scripts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .parts import Checked, all_of, coordinator_option, pairs, storage_option


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
def sql_command(**options: Any) -> None:
    """Carry out SQL: typed in a shell, or from -e, -f or standard input.

    Statements end with a semicolon. One line on standard error says which engine carried each out. The first error ends a script:
    with exit status 2 if the statement must be changed, otherwise 1.
    """
    from ..shell.running import Shell, ShellOptions  # loads a parser of SQL

    sys.exit(Shell(ShellOptions(**options)).run())
