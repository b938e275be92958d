"""docs/reference/command-line.md, made from the commands themselves: ``python -m tests.command_line`` writes it.

A page in the repository is read on any host and needs no tool to build the site; tests/test_command_line.py compares it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from sluice import cli

__all__ = ["PAGE", "text_of_page"]

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "command-line.md"
_HEAD: Final = """\
# Command line

<!-- `python -m tests.command_line` writes this page -->

`sluice --help` lists the commands, `sluice COMMAND --help` says what is here. [Operations](../operations.md#from-a-shell) has the keys of
their JSON.

| exit status | |
|---|---|
| 0 | done |
| 1 | an error that may pass, or something is wrong |
| 2 | the call must be changed |
| 3 | `status`, `health`: nothing is wrong, but something cannot be known from here |

Errors are one line on standard error. Options of all commands stand before the command: `--debug` shows the traceback of an unexpected
error, `--verbose` logs what sluice does to standard error, `--quiet` draws no progress, `--version`.
"""


def text_of_page() -> str:
    """What the page has to say."""
    lines = [_HEAD]
    context = click.Context(cli.main, info_name="sluice")
    for group, commands in cli._GROUPS.items():
        lines.append(f"## {group}\n")
        for name in commands:
            command = cli.main.get_command(context, name)
            assert command is not None
            lines += _section(command, click.Context(command, context, info_name=name), 3)
    return "\n".join(lines).rstrip() + "\n"


def _section(command: click.Command, context: click.Context, rank: int) -> Iterator[str]:
    yield f"{'#' * rank} {context.command_path}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "").replace("\b\n", "")):
        yield f"{_escaped(' '.join(paragraph.split()))}\n"
    options = [
        each for each in command.get_params(context) if isinstance(each, click.Option) and not each.hidden and "--help" not in each.opts
    ]
    if options:
        yield "| option | |\n|---|---|"
        yield from (_row(each, context) for each in options)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _section(below, click.Context(below, context, info_name=name), rank + 1)


def _row(option: click.Option, context: click.Context) -> str:
    """An option as its own help shows it."""
    record = option.get_help_record(context)
    assert record is not None
    names, said = record
    return f"| `{names}` | {_escaped(' '.join(said.split()))} |".replace(" |  |", " | |")


def _escaped(text: str) -> str:
    """Text for a cell: what Markdown would take for its own is code."""
    return re.sub(r"[|<>*_]", lambda found: f"\\{found[0]}", text)


if __name__ == "__main__":
    PAGE.write_text(text_of_page())
