"""`sluice consumers`: the named consumers of a table, how far each is behind, and setting or removing their positions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click

from ..coordinator.times import text_of as time_text
from ..storage.arguments import RULES
from ..storage.errors import InvalidRequest
from .parts import At, ListsByItself, on_table, print_facts, print_grid, print_json, yes_option

_COLUMNS: Final = {
    "name": "consumer",
    "position": "position",
    "behind": "versions behind",
    "bytes": "bytes behind",
    "moved": "moved",
    "holder": "run by",
    "host": "host",
    "pid": "process",
    "into": "into",
}


@click.group(cls=ListsByItself)
def consumers() -> None:
    """List the named consumers of a table, or set or remove the position of one.

    `sluice consumers LOCATION` lists; `sluice consumers reset LOCATION NAME --to VERSION` and `sluice consumers remove LOCATION
    NAME` change one that is not running.
    """


@consumers.command("list")
@on_table
def list_them(at: At, as_json: bool) -> None:
    """List the consumers of a table: their positions, how far they lag behind, and who runs them."""
    with at.open() as table:
        found = table.consumers()
    if as_json:
        print_json([{**asdict(each), "moved": time_text(each.moved_ms)} for each in found])
        return
    told = "unknown: history is gone"
    print_grid(
        _COLUMNS,
        [
            {
                **asdict(each),
                "position": f"{each.position} and {each.files} files" if each.files else each.position,
                "bytes": told if each.bytes_behind is None else each.bytes_behind,
                "moved": time_text(each.moved_ms),
                "holder": each.holder or "nobody",
                "into": ", ".join(each.into),
            }
            for each in found
        ],
    )


def _version(_context: click.Context, _parameter: click.Parameter, given: str) -> int | None:
    """The version to go on after."""
    if given in ("earliest", "latest"):
        return -1 if given == "earliest" else None
    try:
        return int(RULES["if_version"].of_text("--to", given))
    except InvalidRequest as error:
        raise click.BadParameter(f"{error.message}, earliest or latest") from None


@consumers.command("reset")
@on_table
@click.argument("name")
@click.option(
    "--to", "after", required=True, metavar="VERSION", callback=_version, help="The last version to pass over; earliest, or latest."
)
@yes_option
def reset_command(at: At, as_json: bool, name: str, after: int | None, yes: bool) -> None:
    """Let the consumer NAME, which must not be running, go on after another version.

    To an earlier version it consumes again what it consumed since; to a later one it passes over what lies between.
    """
    if not yes:
        to = "the latest version" if after is None else "the beginning" if after < 0 else f"version {after}"
        click.confirm(f"let the consumer {name} of {at.location} go on after {to}?", abort=True, err=True)
    with at.open() as table:
        version = table.reset_consumer(name, after)
    print_facts({"reset": name, "version": version}, as_json=as_json, text=f"reset: {name} goes on after version {version}")


@consumers.command("remove")
@on_table
@click.argument("name")
@yes_option
def remove_command(at: At, as_json: bool, name: str, yes: bool) -> None:
    """Remove the position of the consumer NAME, which must not be running."""
    if not yes:
        click.confirm(f"remove the consumer {name} of {at.location}?", abort=True, err=True)
    with at.open() as table:
        table.remove_consumer(name)
    print_facts({"removed": name}, as_json=as_json, text=f"removed: {name}")
