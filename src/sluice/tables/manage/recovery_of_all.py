"""Recovers all tables below a location at once: they share the long wait for former clients."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from ...coordinator.facade.registry import only_begun
from ...storage.actions.features import is_managed
from ...storage.constants import COORDINATOR_KEY, LOG_FOLDER
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SluiceError, TableDropped
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import ObjectStore
from ..client.address import TableAddress
from .recovery import RecoveryReport, patience_of, rebuild

__all__ = ["Recovered", "recover_all", "tables_below"]

_AT_WORK_MAX: Final = 8
_WAITING_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result for one table: its `report` if it was recovered, the `error` if that failed, else why there was no need (`left`)."""

    location: str
    report: RecoveryReport | None = None
    error: SluiceError | None = None
    left: str | None = None


def recover_all(
    root: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    former: str | None = None,
    wait_s: float | None = None,
    told: Callable[[str], object] | None = None,
) -> Iterator[Recovered]:
    """Rebuild the nodes of all tables below a location that lost them. Yields each table when it is done, in no order.

    The arguments are those of `sluice.recover`. All tables wait for former clients at the same time, up to 1000 of them. A
    failure holds up no other table. If it was killed, repeating it continues with the remaining tables, which wait again.
    Skips tables that are not sluice's or have their nodes; does not find a table inside another table's folder. Raises
    InvalidRequest if there is no table.
    """
    patience_s = patience_of(wait_s)
    top = TableAddress.of(root, coordinator, storage_options, "recover")
    addresses = [
        TableAddress.of(f"{top.location}/{folder}" if folder else top.location, coordinator, storage_options, "recover")
        for folder in tables_below(top.store())
    ]
    if not addresses:
        raise InvalidRequest(f"there is no table at or below {top.location}; check the location", location=top.location)
    if told is not None:
        told(f"{len(addresses)} tables; those to recover wait {patience_s:g} s for clients of the lost coordinator that may still publish")
    return _each(addresses, former, patience_s)


def _each(addresses: list[TableAddress], former: str | None, patience_s: float) -> Iterator[Recovered]:
    at_work = threading.Semaphore(_AT_WORK_MAX)

    @contextmanager
    def resting() -> Iterator[None]:
        at_work.release()
        try:
            yield
        finally:
            at_work.acquire()

    def one(address: TableAddress) -> Recovered:
        with at_work:
            try:
                return _one(address, former, patience_s, resting)
            except SluiceError as error:
                return Recovered(address.location, error=error)

    with ThreadPoolExecutor(min(len(addresses), _WAITING_MAX), thread_name_prefix="sluice-recover") as pool:
        for done in as_completed([pool.submit(one, address) for address in addresses]):
            yield done.result()


def _one(address: TableAddress, former: str | None, patience_s: float, resting: Callable[[], AbstractContextManager[None]]) -> Recovered:
    snapshot = Snapshot.load(address.store())
    if not is_managed(snapshot.protocol):
        return Recovered(address.location, left="not managed by sluice")
    table = address.coordinated()
    try:
        if table.exists() and not only_begun(table):
            return Recovered(address.location, left="has its nodes")
    except TableDropped:
        return Recovered(address.location, left="was dropped")
    named = former if snapshot.configuration.get(COORDINATOR_KEY) == former else None
    return Recovered(address.location, report=rebuild(address, named, patience_s, _unheard, resting))


def _unheard(_: str) -> None:
    """Ignores a message; the wait is announced once for all tables."""


def tables_below(store: ObjectStore) -> Iterator[str]:
    """The folders below the store's root that have a log, in order; "" is the root itself.

    A folder with a log is skipped as soon as it is known, so that little of a table's contents is listed.
    """
    start = ""
    while True:
        for each in store.list_from("", start, recursive=True):
            folder, found, _ = f"/{each.key}".partition("/" + LOG_FOLDER)
            if found:
                break
        else:
            return
        yield folder.removeprefix("/")
        if not folder:
            return
        start = folder.removeprefix("/") + "0"  # the character after "/": beyond everything in that folder
