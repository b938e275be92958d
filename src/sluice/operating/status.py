"""`sluice.status`: one look at a coordinator and all its tables; and `sluice.health`, a view of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ..coordinator.api import Address, CoordinationStore, QuotaUse, SystemClock, bounding, connect, quotas_in_use, write_through
from ..storage.arguments import checked
from ..storage.errors import SluiceError
from ..storage.times import text_of
from .contention import JobConflict, recent
from .document import Coordinator, Message, Server, Status, Table
from .judging import BOUND_S, Seen, limit_of, messages_of, strongest
from .memory import Memory
from .servers import ask_servers, margins
from .tables import begin_look, read_tables
from .upkeep import with_upkeep

WINDOW_S: Final = 60.0
"""How far back commits and refusals are counted, in seconds."""
_NAMED_MAX: Final = 5


@checked
def status(
    coordinator: str | None = None,
    *,
    window_s: float = WINDOW_S,
    bound_s: float = BOUND_S,
    upkeep: bool = False,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: float = 5.0,
) -> Status:
    """Look at a coordinator and at all its tables, with or without names; leaves no changes.

    The result says who waits, what is not published, who was refused by whom in the last `window_s` seconds, what limits each table, and as
    `messages` what a person should know. A wait longer than `bound_s` seconds is an error. With `upkeep` it also reads each table's log in
    the object store, which `storage_options` reach, and says what maintenance it needs. `timeout_s` limits the requests to the servers, a
    write through the coordinator, and what is read from it, each. A bad state is not an exception: raises InvalidRequest and UnknownScheme
    for an invalid address or time.

    Examples:
        ```python
        seen = sluice.status(coordinator)
        print(seen.limited_by, [message.name for message in seen.messages])
        ```
    """
    reading = partial(with_upkeep, storage_options=storage_options, former={}) if upkeep else None
    return look(coordinator, window_s, bound_s, timeout_s, upkeep=reading)


def look(
    coordinator: str | None,
    window_s: float = WINDOW_S,
    bound_s: float = BOUND_S,
    timeout_s: float = 5.0,
    *,
    upkeep: Callable[[tuple[Table, ...], CoordinationStore], tuple[Table, ...]] | None = None,
    memory: Memory | None = None,
) -> Status:
    """A status, for who looks again and again; `upkeep` reads the logs.

    With the `memory` of the last look at this coordinator, over the same window, it reads what may have changed.
    """
    address, clock = Address.parse(coordinator), SystemClock()
    now_ms, write_s, trouble, session, clients = clock.now_ms(), None, None, None, None
    tables, conflicts, quotas = tuple[Table, ...](), tuple[JobConflict, ...](), list[QuotaUse]()
    try:
        with bounding(timeout_s, clock):
            connected = connect(coordinator)
            write_s, now_ms = write_through(connected)
        with bounding(timeout_s, clock):  # a slow write, and the deletion of its node, leave time for reading
            at = begin_look(connected, now_ms, window_s, Memory() if memory is None else memory)
            tables, conflicts, quotas = read_tables(at), recent(connected, now_ms), quotas_in_use(connected)
        releases = Counter(each.version for each in at.clients.values() if each.version)  # "" cannot be read
        session, clients = connected, dict(sorted(releases.items()))
    except SluiceError as failure:
        trouble = failure.message
    servers = ask_servers(address, timeout_s)
    may_stop, may_be_lost = margins(servers or ())
    seen = Coordinator(
        address=str(address),
        write_s=write_s,
        trouble=trouble,
        servers=servers or (),
        may_stop_before_commits_do=may_stop,
        may_be_lost_before_data_are=may_be_lost,
        clients=clients,
    )
    if session is not None and upkeep is not None:
        tables = upkeep(tables, session)
    tables = tuple(replace(each, limited_by=limit_of(each, seen, bound_s)) for each in tables)
    messages = messages_of(Seen(seen, tables, now_ms, bound_s, conflicts, quotas))
    return Status(
        at=text_of(now_ms),
        ok=_ok(messages, servers, tables),
        coordinator=seen,
        tables=tables,
        limited_by=strongest([limit_of(Table(location=""), seen, bound_s), *(each.limited_by for each in tables)]),
        messages=messages,
    )


def watching(coordinator: str | None, bound_s: float = BOUND_S, timeout_s: float = 5.0) -> Callable[[], Status]:
    """A status of now, each time it is called: for who looks every few seconds. It remembers the last look."""
    return partial(look, coordinator, bound_s=bound_s, timeout_s=timeout_s, memory=Memory())


def _ok(messages: Sequence[Message], servers: tuple[Server, ...] | None, tables: Sequence[Table]) -> bool | None:
    if any(each.severity == "error" for each in messages):
        return False
    unknown = servers is None or any(each.in_sync is None for each in servers) or any(each.trouble is not None for each in tables)
    return None if unknown else True


# -- health, a view ----------------------------------------------------------------------------------------------------------


class Check(Struct, frozen=True):
    """The answer to one question: `ok` is None if it cannot be known from here; `told` describes the observation."""

    name: str
    ok: bool | None
    told: str


class Health(Struct, frozen=True):
    """All answers. `servers` are those in the address, with their states; () without an ensemble."""

    checks: tuple[Check, ...]
    servers: tuple[Server, ...] = ()

    @property
    def ok(self) -> bool | None:
        """True if every answer is yes, False if one is no, else None: nothing is wrong, but something is unknown."""
        answers = {check.ok for check in self.checks}
        return False if False in answers else None if None in answers else True


@checked
def health(coordinator: str | None = None, *, bound_s: float = BOUND_S, timeout_s: float = 5.0) -> Health:
    """Whether all is well, and so whether a server may be taken out: five answers from a `status`.

    "servers": every server in the address serves. "in sync": all have what the leader had when it was asked. "commits": a
    write of this client goes through the quorum. "publication": no ratified version has waited longer than `bound_s` seconds
    for its log. "waiting": no commit has waited longer to be decided. `timeout_s` and the exceptions are those of `status`.
    """
    return health_of(status(coordinator, bound_s=bound_s, timeout_s=timeout_s))


def health_of(seen: Status) -> Health:
    """The answers that a status gives."""
    coordinator = seen.coordinator
    if coordinator.write_s is None:
        commits = Check("commits", False, f"a write of this client does not go through: {coordinator.trouble}")
    else:
        commits = Check("commits", True, f"a write of this client went through the quorum in {1000 * coordinator.write_s:.0f} ms")
    count = len(seen.tables)
    tables = (
        _table_check(seen, "publication", "publication-stuck", f"of {count} tables none has a ratified version that waits for its log"),
        _table_check(seen, "waiting", "commit-waits", f"of {count} tables none has a commit that waits to be decided"),
    )
    return Health((*_server_checks(coordinator), commits, *tables), coordinator.servers)


def _server_checks(coordinator: Coordinator) -> tuple[Check, Check]:
    servers, away = coordinator.servers, [each for each in coordinator.servers if each.serves is False]
    if coordinator.address.startswith("memory://"):
        seen = "the coordinator is in this process's memory and has no servers"
        return Check("servers", True, seen), Check("in sync", True, seen)
    if not servers:
        seen = "where the embedded server is cannot be known: it does not run"
        return Check("servers", None, seen), Check("in sync", None, seen)
    states = {each.serves for each in servers}
    well: bool | None = False if away else None if None in states else True
    single = well and len(servers) == 1
    seen = {
        True: "the only server serves; when it is taken out, all commits wait until it is back" if single else f"all {len(servers)} serve",
        None: f"{_hosts([s for s in servers if s.serves is None])} do not show their state: allow srvr in 4lw.commands.whitelist",
        False: f"{len(away)} of {len(servers)} servers do not serve: {_hosts(away)}; take no other out before they do",
    }[well]
    synced = {each.in_sync for each in servers}
    in_sync: bool | None = False if False in synced else None if None in synced else True
    behind = [each for each in servers if each.serves and each.in_sync is False]
    how_far = {
        True: f"all {len(servers)} have what the leader had when it was asked",
        None: "how far the servers got cannot be known: name all of the ensemble in the address, and allow srvr",
        False: f"{_hosts(behind)} did not catch up with the leader" if behind else f"{_hosts(away)} cannot have what the leader has",
    }[in_sync]
    return Check("servers", well, seen), Check("in sync", in_sync, how_far)


def _hosts(servers: Sequence[Server]) -> str:
    return ", ".join(f"{each.host} ({each.state})" for each in servers)


def _table_check(seen: Status, name: str, message: str, well: str) -> Check:
    bad = [f"{each.where}: {each.what}" for each in seen.messages if each.name == message]
    unread = [f"{each.location} ({each.trouble})" for each in seen.tables if each.trouble is not None]
    if bad:
        more = f", and {len(bad) - _NAMED_MAX} more" if len(bad) > _NAMED_MAX else ""
        return Check(name, False, "; ".join(bad[:_NAMED_MAX]) + more)
    if seen.coordinator.trouble is not None:
        return Check(name, None, f"the tables cannot be read: {seen.coordinator.trouble}")
    if unread:
        return Check(name, None, f"what cannot be read: {'; '.join(unread[:_NAMED_MAX])}")
    return Check(name, True, well)
