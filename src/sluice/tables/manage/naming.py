"""Names of tables and their logs: a new table gets its name, a table's log repeats it, a table is dropped by its name.

The coordinator's nodes say what a table's name is; the properties `sluice.name`, `sluice.namedMs` and `sluice.managed` in its log repeat
it, for `sluice.recover`. A table that is created gets them in its first version, and the name after it. Any other change of a name is one
multi over the nodes, and a commit to the log follows. If the client dies between the two the log lags, which matters only if the
coordinator's data are lost before the next change of that name; recovery prefers the name given last.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ...coordinator import api
from ...coordinator.api import Timeout
from ...coordinator.errors import ConcurrentModification, NamespaceNotFound
from ...storage.constants import NAMED_MS_KEY
from ...storage.errors import SluiceError, TableExists, Unavailable
from ..client.address import TableAddress
from ..client.open_table import OpenTable, open_coordinated
from .creation import NewName, properties_of_name
from .dropping import drop

_log = logging.getLogger(__name__)
_ATTEMPTS: Final = 20


def give_name(table: OpenTable, new: NewName, *, timeout_s: Timeout) -> None:
    """Give a new table its name. Raises TableExists if another client was faster, NamespaceNotFound.

    Then a table at a location of its own is left without a name, and one in a folder that the catalog chose, of which nobody else knows, is
    dropped.
    """
    try:
        api.register_name(api.CatalogClient.of(table.context), new.name, table.location, managed=new.managed, named_ms=new.named_ms)
    except (TableExists, NamespaceNotFound):
        try:
            if new.managed:
                drop(table.address, timeout_s=timeout_s)
            else:
                note_name(table.address, "", new.named_ms + 1, managed=False, timeout_s=timeout_s)
        except SluiceError as trouble:
            _log.warning("%s, a table that did not get the name %s, was not dropped: %s", table.location, new.name, trouble)
        raise


def note_name(
    address: TableAddress, name: str, named_ms: int, *, managed: bool, timeout_s: Timeout, operation: str = "RENAME TABLE"
) -> None:
    """Repeat a name in the table's log; "" for one taken away. A failure is logged, for the name holds."""
    try:
        table = open_coordinated(address)
        for _ in range(_ATTEMPTS):
            snapshot = table.latest()
            named = {**snapshot.configuration, **properties_of_name(name, named_ms, managed=managed)}
            newer = snapshot.configuration.get(NAMED_MS_KEY, "0")
            if named == dict(snapshot.configuration) or (newer.isdecimal() and int(newer) > named_ms):
                return
            metadata = replace(snapshot.metadata, configuration=named)
            change = api.Change(table.new_transaction_id(), operation, snapshot, (metadata,), parameters={"name": name})
            with suppress(ConcurrentModification):
                api.submit(table, change, timeout_s=timeout_s)
                return
    except SluiceError as trouble:
        _log.warning("the log of %s does not repeat the name %r yet: %s", address.location, name, trouble)


def describe_in_log(table: OpenTable, comment: str | None, limit: api.Deadline) -> None:
    """Make a comment the description of a table; nothing happens if it is. Raises what a commit does."""
    snapshot = table.latest()
    if snapshot.metadata.description == comment:
        return
    metadata = replace(snapshot.metadata, description=comment)
    change = api.Change(table.new_transaction_id(), "COMMENT ON TABLE", snapshot, (metadata,), parameters={"comment": comment or ""})
    api.submit(table, change, timeout_s=limit)


def close_by_name(table: OpenTable, name: api.TableName, limit: api.Deadline) -> tuple[str, api.DroppedRecord]:
    """Drop the table by its name, so that it can be brought back, after everything that was filed before.

    Writers wait meanwhile for a lease on the whole table, so that the last commit is published before the table is closed. That commit
    takes the name out of the log, so that a recovery leaves the table without one. A client that dies on the way has changed nothing else.
    Raises LeaseHeld, TableNotFound, Unavailable.
    """
    lease = api.leases([api.lease_on_table(table.leases, table.current(), "exclusive", None, "drop")], wait_s=limit)
    try:
        note_name(table.address, "", table.clock.now_ms(), managed=False, timeout_s=limit, operation="DROP TABLE")
        for _ in range(_ATTEMPTS):
            api.settle_queue(table, limit)
            table.publish(up_to_date=True)
            if (closed := api.close_named(table.context, name)) is not None:
                return closed
    finally:  # not by `with`: a lease that was lost is no harm, since the head is compared
        lease.release()
    raise Unavailable(f"other clients keep committing to {table.location}: repeat the drop", location=table.location)
