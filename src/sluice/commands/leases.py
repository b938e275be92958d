"""`sluice leases`: who holds a table or a name, who waits for whom, and breaking a lease."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

import click

from ..coordinator.api import Broken, CoordinationStore, Place, SystemClock, break_lease, connect, list_broken, list_leases, place_of_table
from ..coordinator.times import text_of as time_text
from ..storage.stores.location import normalise
from .parts import ListsByItself, all_of, coordinator_option, json_option, print_facts, print_grid, print_json, yes_option

_COLUMNS: Final = {
    "lease": "lease",
    "state": "state",
    "mode": "mode",
    "where": "where",
    "name": "name",
    "application": "application",
    "host": "host",
    "pid": "process",
    "age": "age",
}
_MS: Final = 1000


@click.group(cls=ListsByItself)
def leases() -> None:
    """List who holds a table or a name and who waits, or break a lease.

    `sluice leases LOCATION` lists; `sluice leases break LOCATION LEASE` breaks one.
    """


_named = click.option("--name", "is_name", is_flag=True, help="LOCATION is a name that is not a table, as in sluice.lease.")


def _place(session: CoordinationStore, location: str, *, is_name: bool) -> Place:
    return Place.of_name(location) if is_name else place_of_table(session, normalise(location))


def _age(now_ms: int, since_ms: int) -> str:
    seconds = max(0, now_ms - since_ms) // _MS
    minutes, hours = seconds // 60, seconds // 3600
    return f"{seconds} s" if seconds < 60 else f"{minutes} min {seconds % 60} s" if not hours else f"{hours} h {minutes % 60} min"


@leases.command("list")
@click.argument("location")
@all_of(coordinator_option, _named, json_option)
def list_them(location: str, coordinator: str | None, is_name: bool, as_json: bool) -> None:
    """List the leases on a table, in the order of the requests: holder, scope, who waits for whom, and for how long.

    Ages are by the clocks of the requesting clients.
    """
    session = connect(coordinator)
    place = _place(session, location, is_name=is_name)
    entries, broken = list_leases(session, place), list_broken(session, place)
    now_ms = SystemClock().now_ms()
    if as_json:
        print_json(
            {
                "leases": [{**asdict(each), "since": time_text(each.since_ms), "age_ms": now_ms - each.since_ms} for each in entries],
                "broken": [asdict(each) for each in broken],
            }
        )
        return
    states = {each.lease: "held" if each.held else f"waits for {each.waits_for or 'nobody'}" for each in entries}
    print_grid(_COLUMNS, [{**asdict(each), "state": states[each.lease], "age": _age(now_ms, each.since_ms)} for each in entries])
    for line in _told(broken):
        click.echo(line)


def _told(broken: Iterable[Broken]) -> Iterable[str]:
    for each in broken:
        yield f"broken at {time_text(each.at_ms)} by {each.by}: {each.node} of {each.holder}{f' ({each.reason})' if each.reason else ''}"


@leases.command("break")
@click.argument("location")
@click.argument("lease")
@all_of(coordinator_option, _named, json_option)
@click.option("--reason", default="", help="Why; it is recorded, and shown to the holder.")
@yes_option
def break_it(location: str, lease: str, coordinator: str | None, is_name: bool, as_json: bool, reason: str, yes: bool) -> None:
    """Take the lease named LEASE (as the list shows it) from its holder.

    Its holder's commits are refused from then on. Work outside sluice goes on: make sure that it has stopped.
    """
    session = connect(coordinator)
    place = _place(session, location, is_name=is_name)
    found = next((each for each in list_leases(session, place) if each.lease == lease), None)
    if found is not None and not yes:
        who = f"{found.application} on {found.host} (process {found.pid})"
        question = f"take the {found.mode} lease on {place} from {who}, who asked for it at {time_text(found.since_ms)}?"
        click.confirm(question, abort=True, err=True)
    by = f"{_user()}@{socket.gethostname()}"
    broken = break_lease(session, place, lease, by=by, reason=reason, at_ms=SystemClock().now_ms())
    text = f"broken: {broken.node} of {broken.holder}; its commits are refused from now on"
    print_facts(asdict(broken), as_json=as_json, text=text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
