"""How a simulated machine reaches tables: their addresses, and opening, creating and rebuilding them when services are away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import pyarrow as pa

import sluice
from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.formats import Release
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.nodes.presence import Presence
from sluice.coordinator.rules.intent import ClientName
from sluice.storage.constants import COORDINATOR_KEY
from sluice.storage.errors import InvalidRequest, NotATable, TableExists, Unavailable
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.objects import ObjectStore
from sluice.tables.client.address import TableAddress
from sluice.tables.client.open_table import OpenTable, open_coordinated
from sluice.tables.manage import creation

from .machine import Machine
from .model_operations import State

SCHEMA = pa.schema([pa.field("uid", pa.int64(), nullable=False), pa.field("k", pa.int64()), pa.field("v", pa.int64())])
WIDE_SCHEMA = pa.schema([*SCHEMA, pa.field("w", pa.int64())])
_RETRIES = 120
COORDINATORS = ("memory://simulated", "memory://simulated-elsewhere")
"""All tables begin at the first, and go to and fro if they move."""


@dataclass(frozen=True)
class Settings:
    """A table of the run: where it is, its properties, and what it is partitioned by."""

    location: str
    properties: dict[str, str]
    partition_by: Sequence[str]
    numbered: tuple[int, int] | None = None
    """Start and step of its identity column, if it has one."""

    @property
    def schema(self) -> pa.Schema:
        if self.numbered is None:
            return SCHEMA
        start, step = map(str, self.numbered)
        said = {"delta.identity.start": start, "delta.identity.step": step, "delta.identity.allowExplicitInsert": "false"}
        return SCHEMA.append(pa.field("n", pa.int64(), metadata=said))

    @property
    def level(self) -> str:
        return self.properties["delta.isolationLevel"]


class _Installed:
    """The release of a machine, which may be upgraded while a table is open."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @property
    def engine(self) -> str:
        return self._machine.release.engine

    @property
    def rendering(self) -> int:
        """The highest rendering it knows, and the one it writes."""
        return self._machine.release.rendering


class _Reach(dict[str, str]):
    """In the place of options of a store: who reaches a table, and its limits. Copies of an address keep them."""

    def __init__(self, machine: Machine, limits: Limits) -> None:
        super().__init__()
        self.machine, self.limits = machine, limits


class Address(TableAddress):
    __slots__ = ()

    @property
    def machine(self) -> Machine:
        return cast("_Reach", self.storage_options).machine

    @property
    def limits(self) -> Limits:
        return cast("_Reach", self.storage_options).limits

    def store(self) -> ObjectStore:
        return self.machine.store_at(self.location)

    def context(self, limits: Limits | None = None) -> TableContext:
        machine, coordinator = self.machine, self.coordinator or COORDINATORS[0]
        connect = partial(machine.connect, coordinator)
        if coordinator not in machine.presences:
            machine.presences[coordinator] = Presence(connect, application=machine.name, clock=machine.clock)
        return TableContext(
            self.store(),
            TableTree(self.location),
            connect,
            machine.clock,
            limits or self.limits,
            ClientName("simulated", 1000 + machine.number, machine.around.application_of(machine.name, machine.number)),
            presence=machine.presences[coordinator],
            coordinator=coordinator,
            stores=machine.store_at,
            release=cast("Release", _Installed(machine)),
        )

    @staticmethod
    def on(machine: Machine, limits: Limits, location: str, coordinator: str | None = None) -> Address:
        """The address of a table of the run."""
        return Address(location, coordinator or COORDINATORS[0], _Reach(machine, limits))


def rows_as_arrow(rows: State, *, wide: bool = False) -> pa.Table:
    """Rows as the client writes them: with the column that came later where `wide`, or where a row has a value there."""
    schema = WIDE_SCHEMA if wide or any(row[2] is not None for row in rows.values()) else SCHEMA
    columns = [pa.array([row[n] for row in rows.values()], pa.int64()) for n in range(len(schema) - 1)]
    return pa.table([pa.array(list(rows), pa.int64()), *columns], schema=schema)


def rows_of(shown: pa.Table) -> tuple[State, bool]:
    """What a client is shown, and whether a row is there twice."""
    uids = shown["uid"].to_pylist()
    ws = shown["w"].to_pylist() if "w" in shown.column_names else [None] * len(uids)
    values = zip(shown["k"].to_pylist(), shown["v"].to_pylist(), ws, strict=True)
    return dict(zip(uids, values, strict=True)), len(uids) != len(set(uids))


def create_table(address: Address, settings: Settings) -> None:
    """Create the table, unless somebody did; again when a service was away."""
    for _ in range(_RETRIES):
        try:
            creation.create(address, creation.new_table(settings.schema, settings.partition_by, settings.properties))
            return
        except (TableExists, sluice.errors.NotCommitted, sluice.errors.TreeReplaced, sluice.errors.TableMoved):
            return  # somebody else was first; it may have been given back since, or have moved
        except InvalidRequest:
            if address.machine.around.history.lost_at is None:
                raise
            return
        except (Unavailable, OutcomeUnknown):
            address.machine.clock.sleep(1.0)


def opened(address: Address) -> OpenTable:
    """The table, brought in again when somebody gave it back and died."""
    try:
        return open_coordinated(address, address.limits)
    except NotATable:
        if address.machine.around.history.lost_at is not None:
            raise
        creation.attach(address)
        return open_coordinated(address, address.limits)


def rebuilt(address: Address, wait_s: float) -> None:
    """Rebuild the nodes of a table after the coordinator's data were lost, unless somebody did or is at it. Raises Unavailable."""
    history = address.machine.around.history
    number = history.at(address.location).number
    try:
        former = Snapshot.load(address.store()).configuration.get(COORDINATOR_KEY)
        sluice.recover(address.location, wait_s=wait_s, former=former)
    except InvalidRequest as refused:
        if "nothing to recover" not in refused.message:
            raise
    history.recovered.add(number)
