"""`sluice explain`: what would happen to a transaction."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import orjson

from ..coordinator.rules.explain.cases import read_case
from ..coordinator.rules.explain.decision import explain as explain_case
from ..storage.errors import InvalidRequest, SluiceError, one_line


@click.command("explain")
@click.argument("cases", nargs=-1, required=True, metavar="CASE.json...", type=click.Path(path_type=Path))
@click.option("--strict-delta", is_flag=True, help="Delta Lake's own verdict, without sluice's refinements.")
def explain_command(cases: tuple[Path, ...], strict_delta: bool) -> None:
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
    click.echo(f"sluice: {one_line(error)}", err=True)
    return False
