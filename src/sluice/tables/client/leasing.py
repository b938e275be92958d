"""Leases on tables and on names: what people ask for, and what commits do about them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from ...coordinator.errors import DeadlockDetected, LeaseHeld
from ...coordinator.leases.lease import Lease, acquire, held_by_this_thread, paths_of
from ...coordinator.leases.pins import Pin, pin
from ...coordinator.leases.queue import LeaseHome, Wanted
from ...coordinator.leases.queueing_commits import Turn
from ...coordinator.leases.reserved_turns import ReservedTurn, release_nodes
from ...coordinator.nodes.lease_records import EXCLUSIVE, MODES, PASSING, TURN, Place
from ...coordinator.service.address import Address
from ...coordinator.service.clock import Deadline, Timeout
from ...coordinator.service.connect import connect
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.log.segment import latest_version
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import PrimitiveType, parse_schema
from .access import Access
from .horizon import require_above_horizon
from .processes import this_client

__all__ = [
    "Leasable",
    "LeaseOn",
    "await_turn",
    "key_of",
    "lease",
    "lease_on",
    "lease_paths",
    "leases",
    "pin_version",
    "reserve",
    "table_lease",
]

_NAME_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class LeaseOn:
    """A lease to ask for together with others: made by `Table.lease_on`, or by `sluice.lease_on` for a name."""

    home: LeaseHome
    wanted: Wanted


class Leasable(Protocol):
    """What has leases of its own, such as `sluice.Table`."""

    def lease_on(self, mode: str = EXCLUSIVE, where: str | None = None, *, name: str | None = None) -> LeaseOn:
        """The lease to ask for."""
        ...


Target: TypeAlias = "LeaseOn | Leasable | str"


def _home(access: Access) -> LeaseHome:
    context = access.ours.context
    return LeaseHome(context.connect, _key(access.address.coordinator), context.clock, context.client)


def _key(coordinator: str | None) -> str:
    """What tells one coordinator from another."""
    return repr(Address.parse(coordinator))


def table_lease(access: Access, mode: str, where: str | None, name: str | None) -> LeaseOn:
    """A lease on a table, or on those of its partitions that satisfy `where`. Raises InvalidRequest and PredicateError."""
    _check_mode(mode)
    _check_name(name)
    snapshot = access.current()
    condition = None if where is None else _scope(snapshot, where)
    types = _partition_types(snapshot) if condition is not None else ()
    sql = "" if condition is None else condition.to_sql()
    return LeaseOn(_home(access), Wanted(Place.of_table(access.ours.context.tree), mode, sql, types, name or ""))


def lease_on(name: str, mode: str = EXCLUSIVE, *, coordinator: str | None = None, application: str | None = None) -> LeaseOn:
    """A lease on a name that is no table, to ask for together with others. Raises InvalidRequest."""
    _check_mode(mode)
    if not name:
        raise InvalidRequest("a lease needs a name, such as 'nightly-load'")
    _check_name(name)
    home = LeaseHome(partial(connect, coordinator), _key(coordinator), client=this_client(application))
    return LeaseOn(home, Wanted(Place.of_name(name), mode, name=name))


def lease(
    name: str,
    mode: str = EXCLUSIVE,
    *,
    wait_s: Timeout | None = None,
    coordinator: str | None = None,
    application: str | None = None,
) -> Lease:
    """Take a lease on a name that is no table, so that jobs which agree on the name keep out of each other's way.

    Waits its turn for `wait_s` seconds (None: as long as it takes). This thread's commits to tables of the same coordinator are
    ratified only while it is held. Raises LeaseHeld, DeadlockDetected, CoordinatorUnavailable.
    """
    return leases([lease_on(name, mode, coordinator=coordinator, application=application)], wait_s=wait_s)


def leases(targets: Sequence[Target], *, wait_s: Timeout | None = None) -> Lease:
    """Take several leases at once, all or none: tables (the whole of each, exclusively), names, or what `lease_on` made.

    They are asked for in one request, so that two who ask for the same ones in another order do not wait for each other.
    """
    if isinstance(targets, str) or not targets:
        raise InvalidRequest(f"leases={targets!r}: give a list of at least one table, name, or what lease_on made")
    asked = [each if isinstance(each, LeaseOn) else lease_on(each) if isinstance(each, str) else each.lease_on() for each in targets]
    home = asked[0].home
    if any(each.home.coordinator != home.coordinator for each in asked):
        raise InvalidRequest("leases of several coordinators cannot be taken in one request: take them one after the other")
    _check_wait(wait_s)
    return acquire(home, list(dict.fromkeys(each.wanted for each in asked)), wait_s)


def lease_paths(access: Access) -> tuple[str, ...]:
    """The leases that a commit of this thread depends on."""
    held = held_by_this_thread()
    return () if not held else paths_of([each for each in held if each.home.coordinator == _key(access.address.coordinator)])


def await_turn(turn: Turn, access: Access, scope: str | None, held: LeaseHeld, deadline: Deadline, turns: Sequence[str] = ()) -> None:
    """Wait outside the queue of commits for the turn of one that a lease stopped; `scope` covers what it touches.

    `turns` are those that are reserved for it; they are given up where they would close a circle of waits, for nothing depends on them.

    Raises `held` when the deadline passes first, DeadlockDetected for a circle that the leases of this thread close.
    """
    types = _partition_types(access.current()) if scope is not None else ()
    wanted = Wanted(Place.of_table(access.ours.context.tree), PASSING, scope or "", types)
    try:
        turn.wait(_home(access), wanted, held, deadline, turns=turns)
    except DeadlockDetected:
        if not turns:
            raise
        release_nodes(access.ours.context.coordination, turns)
        turn.wait(_home(access), wanted, held, deadline)


def key_of(access: Access) -> str:
    """What tells a table of one coordinator from all other tables."""
    return f"{_key(access.address.coordinator)} {access.address.location}"


def reserve(
    parts: Sequence[tuple[Access, str | None]], name: str, turns: Sequence[str], *, lasts_s: float, wait: Deadline
) -> ReservedTurn | None:
    """A turn on parts of tables (None: the whole of one), asked for in one request; None where leases of this thread cover them.

    `turns` are those that the transaction has already. Raises LeaseHeld, DeadlockDetected, LeaseLost, CoordinatorUnavailable.
    """
    home = _home(parts[0][0])
    held = paths_of(held_by_this_thread(home.coordinator))
    wanted: list[Wanted] = []
    for access, where in parts:
        place = Place.of_table(access.ours.context.tree)
        if not any(Place.of_node(path) == place for path in held):
            types = _partition_types(access.current()) if where is not None else ()
            wanted.append(Wanted(place, TURN, where or "", types, name))
    return ReservedTurn.take(home, wanted, (*held, *turns), lasts_s=lasts_s, wait=wait) if wanted else None


def pin_version(access: Access, version: int) -> Pin:
    """Keep a version readable: garbage collection leaves its files alone while the pin stands. Raises VersionNotFound."""

    def look() -> None:
        require_above_horizon(access, version)
        latest = latest_version(access.store)
        if latest is not None and version <= latest:  # one that is ratified and not published yet has lost nothing
            Snapshot.load(access.store, version=version)

    return pin(access.ours.context, _home(access), version, still_there=look)


def _check_mode(mode: object) -> None:
    if mode not in MODES:
        raise InvalidRequest(f"mode is {mode!r}; use one of {', '.join(MODES)}", mode=mode)


def _check_wait(wait_s: Timeout | None) -> None:
    if wait_s is not None and not isinstance(wait_s, Deadline) and not wait_s >= 0:
        raise InvalidRequest(f"wait_s is {wait_s!r}; give seconds, 0 for not at all, or None for as long as it takes", wait_s=wait_s)


def _check_name(name: str | None) -> None:
    if name is not None and (len(name) > _NAME_CHARACTERS_MAX or not name.isprintable()):
        raise InvalidRequest(f"name={name!r}: give at most {_NAME_CHARACTERS_MAX} printable characters", name=name)


def _scope(snapshot: Snapshot, where: str) -> Predicate:
    predicate = Predicate.parse(where, parse_schema(snapshot.metadata.schema_string))
    _, rest = predicate.split(snapshot.partition_columns)
    if rest is not None:
        columns = ", ".join(snapshot.partition_columns)
        remedy = f"name its partition columns ({columns}) only" if columns else "leave it out, the table has no partitions"
        raise InvalidRequest(f"where={where!r}: a lease covers whole partitions, and {rest.to_sql()} asks for rows; {remedy}", where=where)
    return predicate


def _partition_types(snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
    types = {field.name: field.type for field in parse_schema(snapshot.metadata.schema_string).fields}
    return tuple((name, kind.name) for name in snapshot.partition_columns if isinstance(kind := types.get(name), PrimitiveType))
