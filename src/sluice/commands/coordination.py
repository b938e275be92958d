"""`sluice status`, `top`, `health`, `clients`, `leases`, `quotas`, `consumers`, `outcome`, `explain`, `move`: who waits for what."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import orjson
from msgspec import to_builtins

from ..coordinator import api
from ..coordinator.rules.explain.cases import read_case
from ..coordinator.rules.explain.decision import explain
from ..operating import top
from ..operating.document import Status
from ..operating.judging import BOUND_S
from ..operating.status import WINDOW_S, Health, health, status, watching
from ..shell.printing import console_on
from ..storage.arguments import RULES
from ..storage.errors import InvalidRequest, SluiceError, one_line
from ..storage.stores.location import normalise
from ..storage.times import text_of as time_text
from ..tables.manage.moving import move
from ..tables.table import Table
from . import parts
from .parts import At, Checked, on_table

_PAUSE_S: Final = 0.5
_WORDS: Final = {True: "well", False: "NOT WELL", None: "not known"}
_STATUS: Final = {True: 0, False: 1, None: 3}
_Judged = TypeVar("_Judged", Health, Status)


wait_option = click.option(
    "--wait", "wait_s", type=Checked("seconds"), default=0.0, metavar="SECONDS", help="Ask again until all is well, for at most this time."
)
bound_option = click.option(
    "--bound",
    "bound_s",
    type=Checked("bound_s"),
    default=BOUND_S,
    show_default=True,
    metavar="SECONDS",
    help="The longest acceptable wait of a commit or a publication.",
)


def _until_well(look: Callable[[], _Judged], wait_s: float) -> _Judged:
    """What a look shows: the first one that is well, or the last one in this time."""
    end = time.monotonic() + wait_s
    while (seen := look()).ok is not True and time.monotonic() < end:
        time.sleep(_PAUSE_S)
    return seen


@click.command("health")
@parts.all_of(parts.coordinator_option, wait_option, bound_option, parts.json_option)
def health_command(coordinator: str | None, wait_s: float, bound_s: float, as_json: bool) -> None:
    """Show whether all is well, and so whether a ZooKeeper server may be taken out.

    Exit status 0: yes; 1: something is not well; 3: nothing is wrong, but something, which is named, cannot be known from
    here.
    """
    answers = _until_well(partial(health, coordinator, bound_s=bound_s), wait_s)
    lines = [f"{each.name}: {_WORDS[each.ok]}: {each.told}" for each in answers.checks]
    lines += [f"server {each.host}: {each.state}" for each in answers.servers]
    parts.print_facts({"ok": answers.ok, **to_builtins(answers)}, as_json=as_json, text="\n".join(lines))
    sys.exit(_STATUS[answers.ok])


# -- status ----------------------------------------------------------------------------------------------------------------


@click.command("status")
@parts.all_of(parts.coordinator_option, parts.storage_option, wait_option, bound_option)
@click.option(
    "--window", "window_s", type=Checked("window_s"), default=WINDOW_S, show_default=True, metavar="SECONDS", help="How far back."
)
@click.option("--upkeep", is_flag=True, help="Read each table's log, too, for what maintenance it needs.")
@click.option("--watch", is_flag=True, help="Show it again and again, as `sluice top` does.")
@parts.json_option
def status_command(wait_s: float, watch: bool, as_json: bool, **looked_at: Any) -> None:
    """Show who waits, behind whom, what limits each table, what is wrong, and what to do.

    Exit status 0: all is well; 1: something is wrong; 3: nothing is wrong, but something cannot be known from here.
    """
    if watch:
        _watch(partial(status, **looked_at), as_json=as_json)
        return
    seen = _until_well(partial(status, **looked_at), wait_s)
    if as_json:
        parts.print_json(to_builtins(seen))
    else:
        click.echo("\n".join([top.head_of(seen), *(text for _, text in top.messages_of(seen))]))
        if seen.coordinator.trouble is None:
            parts.print_grid(top.COLUMNS, top.rows_of(seen.tables))
    sys.exit(_STATUS[seen.ok])


@click.command("top")
@parts.all_of(parts.coordinator_option, bound_option)
@click.option("--json", "as_json", is_flag=True, help="Print the document of `sluice status` in one line every two seconds.")
def top_command(coordinator: str | None, bound_s: float, as_json: bool) -> None:
    """Show all tables in the terminal, what is wrong first, until interrupted; once, if the output is no terminal."""
    _watch(watching(coordinator, bound_s), as_json=as_json)


def _watch(look: Callable[[], Status], *, as_json: bool) -> None:
    while as_json:
        click.echo(orjson.dumps(to_builtins(look())))
        time.sleep(top.EVERY_S)
    top.show(look, console_on(sys.stdout))


@click.command("conflicts")
@parts.all_of(parts.coordinator_option, parts.storage_option)
@click.option("--since", "since_s", type=Checked("since_s"), default="1d", show_default=True, metavar="TIME", help="How far back: 2h, 7d.")
@click.option("--table", "location", metavar="LOCATION", help="Of this table only.")
@parts.json_option
def conflicts_command(as_json: bool, **selection: Any) -> None:
    """Show which job lost how much time to which other one, the most first, and what would have kept them apart.

    Reads what processes filed in the coordinator, and the table in which daemons keep it (`sluice daemon --contention`).
    """
    from ..operating.contention import conflicts

    rows = [to_builtins(each) for each in conflicts(**selection)]
    keys = ("seconds", "count", "application", "winner", "rule", "location", "last", "remedy")
    parts.print_grid(keys, rows, as_json=as_json, seconds="seconds lost", winner="lost to")


@click.command("clients")
@parts.all_of(parts.coordinator_option, parts.json_option)
def clients_command(coordinator: str | None, as_json: bool) -> None:
    """List the clients connected to a coordinator, oldest first."""
    rows = [{**asdict(client), "since": time_text(client.since_ms)} for client in api.list_clients(api.connect(coordinator))]
    parts.print_grid(("host", "pid", "application", "since", "version"), rows, as_json=as_json, pid="process", version="sluice")


# -- leases ----------------------------------------------------------------------------------------------------------------


@click.group(cls=parts.ListsByItself)
def leases_command() -> None:
    """List who holds a table or a name and who waits, or break a lease.

    `sluice leases LOCATION` lists; `sluice leases break LOCATION LEASE` breaks one.
    """


_named = click.option("--name", "is_name", is_flag=True, help="LOCATION is a name that is not a table, as in sluice.lease.")


def _place(session: api.CoordinationStore, location: str, *, is_name: bool) -> api.Place:
    return api.Place.of_name(location) if is_name else api.place_of_table(session, normalise(location))


def _age(milliseconds: int) -> str:
    seconds = max(0, milliseconds) // 1000
    minutes, hours = seconds // 60, seconds // 3600
    return f"{seconds} s" if seconds < 60 else f"{minutes} min {seconds % 60} s" if not hours else f"{hours} h {minutes % 60} min"


@leases_command.command("list")
@click.argument("location")
@parts.all_of(parts.coordinator_option, _named, parts.json_option)
def list_leases_of(location: str, coordinator: str | None, is_name: bool, as_json: bool) -> None:
    """List the leases on a table, in the order of the requests: holder, scope, who waits for whom, and for how long.

    Ages are by the clocks of the requesting clients.
    """
    session = api.connect(coordinator)
    place = _place(session, location, is_name=is_name)
    entries, broken = api.list_leases(session, place), api.list_broken(session, place)
    now_ms = time.time_ns() // 1_000_000
    rows = [{**asdict(each), "since": time_text(each.since_ms), "age_ms": now_ms - each.since_ms} for each in entries]
    if as_json:
        parts.print_json({"leases": rows, "broken": [asdict(each) for each in broken]})
        return
    for row, each in zip(rows, entries, strict=True):
        row |= {"state": "held" if each.held else f"waits for {each.waits_for or 'nobody'}", "age": _age(now_ms - each.since_ms)}
    parts.print_grid(("lease", "state", "mode", "where", "name", "application", "host", "pid", "age"), rows, pid="process")
    for past in broken:
        why = f" ({past.reason})" if past.reason else ""
        click.echo(f"broken at {time_text(past.at_ms)} by {past.by}: {past.node} of {past.holder}{why}")


@leases_command.command("break")
@click.argument("location")
@click.argument("lease")
@parts.all_of(parts.coordinator_option, _named, parts.json_option)
@click.option("--reason", default="", help="Why; it is recorded, and shown to the holder.")
@parts.yes_option
def break_it(location: str, lease: str, coordinator: str | None, is_name: bool, as_json: bool, reason: str, yes: bool) -> None:
    """Take the lease named LEASE (as the list shows it) from its holder.

    Its holder's commits are refused from then on. Work outside sluice goes on: make sure that it has stopped.
    """
    session = api.connect(coordinator)
    place = _place(session, location, is_name=is_name)
    for each in api.list_leases(session, place):
        if each.lease == lease:
            who = f"{each.application} on {each.host} (process {each.pid})"
            parts.confirm(f"take the {each.mode} lease on {place} from {who}, who asked for it at {time_text(each.since_ms)}?", yes=yes)
    broken = api.break_lease(session, place, lease, by=api.this_user(), reason=reason, at_ms=time.time_ns() // 1_000_000)
    text = f"broken: {broken.node} of {broken.holder}; its commits are refused from now on"
    parts.print_facts(asdict(broken), as_json=as_json, text=text)


# -- quotas ----------------------------------------------------------------------------------------------------------------

_whose = (
    click.option("--application", default=api.EACH, show_default=True, metavar="NAME", help="Whose; * is each application by itself."),
    click.option("--table", default=api.EACH, show_default=True, metavar="LOCATION", help="Of which; * is each table by itself."),
)


@click.group(cls=parts.ListsByItself, no_args_is_help=False)
def quotas_command() -> None:
    """List how much of a table each application may use at once, or change it.

    An application over its quota waits before its transactions are filed. A quota that names application and table goes before one that
    names the application, and that before one that names the table.
    """


@quotas_command.command("list")
@parts.all_of(parts.coordinator_option, parts.json_option)
def list_quotas(coordinator: str | None, as_json: bool) -> None:
    """List the quotas, and under each how many transactions are in flight and wait, and since when the first one does."""
    rows = [
        {**asdict(each.quota), "in_flight": each.in_flight, "waiting": each.waiting, "waiting_since": each.since and time_text(each.since)}
        for each in api.quotas_in_use(api.connect(coordinator))
    ]
    keys = ("application", "table", "slots", "commits_per_s", "bytes_per_s", "in_flight", "waiting", "waiting_since")
    parts.print_grid(keys, rows, as_json=as_json, commits_per_s="commits/s", bytes_per_s="bytes/s")


@quotas_command.command("set")
@parts.all_of(*_whose, parts.coordinator_option, parts.json_option)
@click.option("--slots", type=Checked("slots"), help="Transactions that may be filed at the same time.")
@click.option("--commits-per-second", "commits_per_s", type=Checked("commits_per_s"), metavar="NUMBER", help="Commits per second.")
@click.option(
    "--bytes-per-second", "bytes_per_s", type=Checked("bytes_per_s"), metavar="SIZE", help="Added data files: bytes, or a size like 128mb."
)
def set_quota_of(coordinator: str | None, as_json: bool, **limits: Any) -> None:
    """Set a quota, in place of the one for this application and table. Clients keep it from their next commit on, within seconds."""
    if not any(limits[name] for name in ("slots", "commits_per_s", "bytes_per_s")):
        raise click.UsageError("give at least one of --slots, --commits-per-second and --bytes-per-second")
    _change_quota(coordinator, limits, as_json, "set")


@quotas_command.command("remove")
@parts.all_of(*_whose, parts.coordinator_option, parts.json_option)
def remove_quota(coordinator: str | None, as_json: bool, **whose: Any) -> None:
    """Remove the quota for this application and table: who waits because of it goes on within seconds."""
    _change_quota(coordinator, whose, as_json, "removed")


def _change_quota(coordinator: str | None, fields: dict[str, Any], as_json: bool, done: str) -> None:
    session = api.connect(coordinator)
    quota = api.Quota(**{**fields, "table": fields["table"] if fields["table"] == api.EACH else normalise(fields["table"])})
    if quota.table not in (api.EACH, *api.known_locations(session)):
        click.echo(f"sluice: this coordinator keeps no table at {quota.table} yet; give the location of a table, not its name", err=True)
    former = api.set_quota(session, quota)
    api.clear_rooms(session, api.write_through(session)[1], quota)
    facts = {**asdict(quota), "former": None if former is None else asdict(former)}
    parts.print_facts(facts, as_json=as_json, text=f"{done}: application {quota.application} on table {quota.table}: {quota}")


@click.command("with-lease")
@click.argument("location")
@click.argument("command", nargs=-1, required=True)
@parts.all_of(parts.coordinator_option, parts.storage_option, _named)
@click.option(
    "--mode", type=click.Choice(["exclusive", "shared"]), default="exclusive", show_default=True, help="shared: beside other shared leases."
)
@click.option("--where", help="The partitions to hold: a condition over partition columns; default: the whole table.")
@click.option(
    "--wait", "wait_s", type=Checked("seconds"), metavar="SECONDS", help="How long to wait for the lease; default: without limit."
)
@click.option("--grace", "grace_s", type=Checked("seconds"), default=30.0, show_default=True, help="Seconds from SIGTERM to SIGKILL.")
def with_lease_command(location: str, command: tuple[str, ...], is_name: bool, wait_s: float | None, grace_s: float, **named: Any) -> None:
    """Run COMMAND while it holds a lease: `sluice with-lease LOCATION -- COMMAND ...`.

    The exit status is the command's, 128 and the number of a signal that ended it, 76 if the lease was lost: then the command is ended. 75:
    the lease was not granted in time, or the coordinator is away; try again later. 126 and 127: the command cannot be started. COMMAND
    finds the fencing token in SLUICE_LEASE_TOKEN.
    """
    from ..operating.guarded_command import NOT_GRANTED, run_guarded

    mode, where = named.pop("mode"), named.pop("where")
    shown = command[0].rpartition("/")[2]
    try:
        if is_name:
            if where is not None:
                raise InvalidRequest("--where names partitions of a table, and a name has none: leave out --where, or --name")
            held = api.lease(location, mode, wait_s=wait_s, coordinator=named["coordinator"], application=shown)
        else:
            held = Table.open(location, application=shown, **named).lease(mode, where, wait_s, name=shown)
    except SluiceError as error:
        if not error.retryable:
            raise
        click.echo(f"sluice: {one_line(error)}", err=True)
        sys.exit(NOT_GRANTED)
    sys.exit(run_guarded(held, command, grace_s=grace_s, say=lambda text: click.echo(f"sluice: {text}", err=True)))


# -- consumers -------------------------------------------------------------------------------------------------------------


@click.group(cls=parts.ListsByItself)
def consumers_command() -> None:
    """List the named consumers of a table, or set or remove the position of one.

    `sluice consumers LOCATION` lists; `sluice consumers reset LOCATION NAME --to VERSION` and `sluice consumers remove LOCATION
    NAME` change one that is not running.
    """


@consumers_command.command("list")
@on_table
def list_consumers(at: At, as_json: bool) -> None:
    """List the consumers of a table: their positions, how far they lag behind, and who runs them."""
    with at.open() as table:
        states = table.consumers()
    rows = [{**asdict(each), "moved": time_text(each.moved_ms)} for each in states]
    if as_json:
        parts.print_json(rows)
        return
    for row, each in zip(rows, states, strict=True):
        row["consumer"], row["run_by"], row["into"] = each.name, each.holder or "nobody", ", ".join(each.into)
        row["versions_behind"] = each.behind
        row["bytes_behind"] = "unknown: history is gone" if each.bytes_behind is None else each.bytes_behind
        row["position"] = f"{each.position} and {each.files} files" if each.files else each.position
    keys = ("consumer", "position", "versions_behind", "bytes_behind", "moved", "run_by", "host", "pid", "into")
    parts.print_grid(keys, rows, pid="process")


def _version(_context: click.Context, _parameter: click.Parameter, given: str) -> int | None:
    if given in ("earliest", "latest"):
        return -1 if given == "earliest" else None
    try:
        return int(RULES["if_version"].of_text("--to", given))
    except InvalidRequest as error:
        raise click.BadParameter(f"{error.message}, earliest or latest") from None


@consumers_command.command("reset")
@on_table
@click.argument("name")
@click.option(
    "--to", "after", required=True, metavar="VERSION", callback=_version, help="The last version to pass over; earliest, or latest."
)
@parts.yes_option
def reset_consumer(at: At, as_json: bool, name: str, after: int | None, yes: bool) -> None:
    """Let the consumer NAME, which must not be running, go on after another version.

    To an earlier version it consumes again what it consumed since; to a later one it passes over what lies between.
    """
    to = "the latest version" if after is None else "the beginning" if after < 0 else f"version {after}"
    parts.confirm(f"let the consumer {name} of {at.location} go on after {to}?", yes=yes)
    with at.open() as table:
        version = table.reset_consumer(name, after)
    parts.print_facts({"reset": name, "version": version}, as_json=as_json, text=f"reset: {name} goes on after version {version}")


@consumers_command.command("remove")
@on_table
@click.argument("name")
@parts.yes_option
def remove_consumer(at: At, as_json: bool, name: str, yes: bool) -> None:
    """Remove the position of the consumer NAME, which must not be running."""
    parts.confirm(f"remove the consumer {name} of {at.location}?", yes=yes)
    with at.open() as table:
        table.remove_consumer(name)
    parts.print_facts({"removed": name}, as_json=as_json, text=f"removed: {name}")


# -- transactions ----------------------------------------------------------------------------------------------------------


@click.command("outcome")
@on_table
@click.argument("transaction_id")
def outcome_command(at: At, as_json: bool, transaction_id: str) -> None:
    """Show the outcome of any client's transaction; an undecided one is decided now."""
    with at.open() as table:
        answer = table.outcome(transaction_id)
    facts: dict[str, object] = {"transaction": transaction_id, "state": answer.state}
    if answer.commit is not None:
        facts |= {"version": answer.commit.version, "ordinal": answer.commit.ordinal, "time": time_text(answer.commit.timestamp)}
    if answer.error is not None:
        facts |= {"error": type(answer.error).__name__, "reason": str(answer.error)}
    parts.print_facts(facts, as_json=as_json)


@click.command("explain")
@click.argument("cases", nargs=-1, required=True, metavar="CASE.json...", type=click.Path(path_type=Path))
@click.option("--strict-delta", is_flag=True, help="Delta Lake's own verdict, without sluice's refinements.")
def explain_command(cases: tuple[Path, ...], strict_delta: bool) -> None:
    """Explain what would happen to a transaction, from a description of it and of the commits that came first.

    Prints one line of JSON for each case: the verdict ("ok" or the name of the error), the rule, and why. Reads nothing but
    the files, and needs no table and no coordinator. A refusal is an answer: the exit status is 2 only if a case cannot be
    used, and the other cases are still decided.
    """
    status = 0
    for path in cases:
        try:
            try:
                case = path.read_bytes()
            except OSError as error:
                raise InvalidRequest(f"{path}: {error.strerror}; name a file that holds a case", case=str(path)) from error
            click.echo(orjson.dumps(explain(read_case(case, str(path)), strict=strict_delta)))
        except SluiceError as error:
            click.echo(f"sluice: {one_line(error)}", err=True)
            status = 2
    sys.exit(status)


# -- move ------------------------------------------------------------------------------------------------------------------


@click.command("move")
@click.argument("locations", nargs=-1, required=True, metavar="LOCATION...")
@click.option(
    "--to", required=True, type=Checked("to"), callback=parts.address, metavar="ADDRESS", help="The coordinator to which they go."
)
@click.option(
    "--wait", "wait_s", type=Checked("seconds"), default=30.0, show_default=True, metavar="SECONDS", help="How long to wait for leases."
)
@parts.all_of(parts.coordinator_option, parts.storage_option, parts.json_option)
def move_command(locations: tuple[str, ...], to: str, as_json: bool, **at: Any) -> None:
    """Move tables to another coordinator, one after the other, while their jobs run; finish moves that were interrupted.

    Writers wait for about a second, and go on there by themselves. See docs/operations/move.md.
    Exit status 1 if a table could not be moved.
    """
    answers: list[dict[str, object]] = []
    for location in locations:
        try:
            report = move(location, to, **at)
        except SluiceError as error:
            answers.append({"location": location, "error": one_line(error)})
            click.echo(f"failed: {location}: {one_line(error)}", err=True)
            continue
        answers.append(asdict(report))
        named = f" as {report.name}" if report.name else f", without its name {report.lost_name}" if report.lost_name else ""
        text = f"{report.location} is at {report.coordinator}{named} from version {report.version} on; writers waited {report.paused_s:g} s"
        click.echo(text, err=as_json)
    if as_json:
        parts.print_json(answers)
    sys.exit(1 if any("error" in each for each in answers) else 0)
