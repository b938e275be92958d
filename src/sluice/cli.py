"""The command line: `sluice --help`.

Exit status 0: done; 1: an error that may pass or is not the caller's (see the class named in the message); 2: the call must
be changed. Errors are one line on standard error, and an unexpected one a second line, which names the file with its report.

The module of a command is imported when it is called: the help of all imports none.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import traceback
from importlib import import_module
from typing import Any, Final

import click

from .installation import __version__
from .storage.errors import InvalidRequest, SluiceError, one_line

_MESSAGE_MAX: Final = 500
_GROUPS: Final = {
    "Tables": {
        "create": "create an empty table",
        "show": "version, files, rows, columns, properties",
        "history": "the latest transactions: who did what, how long each waited",
        "properties": "show and change properties",
        "attach": "bring a Delta table under sluice",
        "detach": "give a table back to all Delta engines",
        "drop": "remove a table and delete its files",
        "forget": "remove the coordinator's nodes of a table whose folder is gone",
    },
    "Names": {
        "tables": "list, name, rename, drop and bring back tables by name",
        "namespaces": "list, create and drop namespaces of tables",
    },
    "Care": {
        "compact": "rewrite files as fewer, larger ones",
        "vacuum": "delete files that nothing needs any more",
        "doctor": "examine a table completely, and say what to do",
        "recover": "rebuild a table's nodes in ZooKeeper from its log",
        "tree": "back up what only the coordinator has, and restore all its tables",
    },
    "Coordination": {
        "status": "who waits, what limits, and what to do, for all tables",
        "top": "the status of all tables, live in the terminal",
        "health": "whether all is well, and a ZooKeeper server may go",
        "conflicts": "which job lost how much time to which other one, and the remedy",
        "clients": "who is connected to a coordinator",
        "quotas": "how much of a table each application may use; change it",
        "leases": "who holds a table or a name and who waits; break a lease",
        "with-lease": "run a command while it holds a table, a part of it, or a name",
        "consumers": "list, reset and remove named consumers",
        "outcome": "what became of a transaction",
        "explain": "what would happen to a transaction",
        "move": "take tables to another coordinator while their jobs run",
    },
    "Programs": {
        "sql": "carry out SQL: typed, from -e, -f or standard input",
        "console": "a page that shows all tables live, until interrupted",
        "daemon": "do what is due to all tables, until interrupted",
        "exporter": "serve the status of all tables to Prometheus, until interrupted",
        "dev": "an S3 server and a coordinator, until interrupted",
    },
}
"""In the order of the help, by the modules of `commands`: what the help of all commands says of each."""


class _Sluice(click.Group):
    """Prints sluice's errors as one line; the exit status says whether the call must be changed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return [name for commands in _GROUPS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        module = next((group.lower() for group, commands in _GROUPS.items() if cmd_name in commands), None)
        if module is None:
            return None
        command: click.Command = getattr(import_module(f".commands.{module}", __package__), f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups."""
        width = max(map(len, self.list_commands(ctx)))
        for group, commands in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with import_module(".commands.parts", __package__).progress_shown(quiet=ctx.params["quiet"]):
                return super().invoke(ctx)
        except SluiceError as error:
            click.echo(f"sluice: {one_line(error)}", err=True)
            sys.exit(2 if isinstance(error, InvalidRequest) else 1)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params["debug"]:
                raise
            with tempfile.NamedTemporaryFile("w", prefix="sluice-report-", suffix=".txt", delete=False) as report:
                report.write(f"sluice {__version__}\n")
                traceback.print_exception(error, file=report)
            said = " ".join(str(error).split())[:_MESSAGE_MAX]
            click.echo(
                f"sluice: unexpected {type(error).__name__}: {said}\nthis is a bug of sluice; the report is in {report.name}", err=True
            )
            sys.exit(1)


@click.group(cls=_Sluice, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, package_name="sluice-delta")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
@click.option("--verbose", is_flag=True, help="Log what sluice does to standard error.")
@click.option("--quiet", is_flag=True, help="Show no progress of commands that take long.")
def main(*, debug: bool, verbose: bool, quiet: bool) -> None:  # noqa: ARG001 - what an error looks like
    """Many writers, one Delta table, nothing lost."""
    if verbose:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger(__package__).setLevel(logging.DEBUG)
