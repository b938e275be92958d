"""Moves tables to other coordinators while their jobs run; `coordinator/commit/moving.py` has the steps.

Writers wait meanwhile for an exclusive lease on the whole table, as for any lease, so that everything filed is published before it leaves.
They wait until it has arrived; if the mover dies, until its session ends, and then the first one to come finishes the move.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace

from ...coordinator import api
from ...coordinator.api import Timeout
from ...coordinator.errors import NamespaceNotFound, TableMoved
from ...storage.arguments import checked
from ...storage.constants import NAME_KEY
from ...storage.dataclass import dataclass
from ..client.address import TableAddress
from ..client.open_table import OpenTable, open_coordinated
from .recovery import named_again


@dataclass(frozen=True, slots=True)
class MoveReport:
    """Where a table is now: the coordinator, the version from which it goes on there, and how long its writers waited.

    `paused_s` is 0 if another client had moved it. `name` is the one that it has there; `lost_name` one that it could not have.
    """

    location: str
    coordinator: str
    version: int
    paused_s: float
    name: str | None = None
    lost_name: str | None = None


@checked
def move(
    location: str | os.PathLike[str],
    to: str,
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    wait_s: Timeout = 30.0,
    timeout_s: Timeout = api.DEFAULT_TIMEOUT_S,
) -> MoveReport:
    """Move a table to the coordinator at the address `to`, or finish such a move that was interrupted.

    Reads, appends and other commits of one table find the new place by themselves; what cannot raises TableMoved once, and may be repeated.
    Waits `wait_s` seconds for others' leases on the table. It takes its name along if that is free there.
    Raises LeaseHeld, which names the holder; NamespaceNotFound if the namespace of its name is not there, InvalidRequest if that
    coordinator has a table there; CoordinatorUnavailable, TableNotFound, NotATable; Unavailable if others keep committing.
    """
    address = TableAddress.of(location, coordinator, storage_options, "move")
    with api.bounding(timeout_s) as limit:
        table = open_coordinated(address)
        there = OpenTable.of(replace(address, coordinator=to))
        paused_s = 0.0
        if not api.are_together(table, there):
            _require_namespace(table, to)
            try:
                lease = api.leases([api.lease_on_table(table.leases, table.current(), "exclusive", None, "move")], wait_s=wait_s)
                begun_s = time.monotonic()
                try:
                    api.arrive(table, there, api.leave(table, there.context, lease, table.at, limit))
                finally:
                    lease.release()
                paused_s = time.monotonic() - begun_s
            except TableMoved:
                if not api.are_together(open_coordinated(address), there):
                    raise
            table = open_coordinated(replace(address, coordinator=to))
        name, lost_name = named_again(table.address, table.latest(), claims=False)
        return MoveReport(table.location, str(table.address.coordinator), table.latest().version, round(paused_s, 3), name, lost_name)


def _require_namespace(table: OpenTable, to: str) -> None:
    """Raise NamespaceNotFound if the table has a name that it could not have at the coordinator to which it is to go."""
    if named := table.current().configuration.get(NAME_KEY):
        namespace = api.TableName.parse(named).namespace
        try:
            api.read_namespace(api.CatalogClient.at(to), namespace)
        except NamespaceNotFound as missing:
            missing.tell(f" (sluice namespaces create {namespace} --coordinator {to.partition('?')[0]}), then move {table.location}")
            raise
