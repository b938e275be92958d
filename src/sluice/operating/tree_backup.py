"""Backups of a coordinator's tree, and a new tree made of one and of the tables' logs; `coordinator.preserving` says what is in one."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from ..coordinator import api
from ..coordinator.api import DEFAULT_TIMEOUT_S, Timeout
from ..storage.arguments import checked
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, ObjectNotFound, SluiceError
from ..storage.stores.location import normalise, open_store
from ..storage.stores.objects import ObjectStore
from ..tables.client.address import TableAddress
from ..tables.client.open_table import OpenTable
from ..tables.manage.recovery import Recovered, recover_each
from .memory import Memory
from .tables import begin_look, read_tables

_PENDING_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A backup that was written to `location`: of how many tables, at what time by the coordinator's clock, and its size.

    `unsaved` names what is in the ensemble alone: tables of which something ratified could not be published, and nodes that are no text.
    """

    location: str
    at: str
    tables: int
    size_bytes: int
    unsaved: tuple[str, ...] = ()


@checked
def backup_tree(
    location: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> BackupReport:
    """Write what the coordinator has and no log has into one small object: a file, or a location such as s3://bucket/backups/monday.

    First it publishes what is ratified, as any client may. Clients go on meanwhile. Restore it with `restore_tree`. Never writes over an
    object. Raises InvalidRequest if there is one, and for a coordinator that has coordinated no table; Unavailable.
    """
    unsaved: list[str] = []
    with api.bounding(timeout_s):
        session = api.connect(coordinator)
        tables = read_tables(begin_look(session, api.write_through(session)[1], 0.0, Memory()))
        for stuck in [each.location for each in tables if each.publication.versions]:
            try:
                with api.bounding(_PENDING_S):
                    OpenTable.of(TableAddress.of(stuck, coordinator, storage_options)).publish()
            except SluiceError as trouble:
                unsaved.append(f"{stuck}: {trouble.message}")
        content = msgspec.json.encode(api.read_tree(session, unsaved.append))
    packed, (store, key) = gzip.compress(content, mtime=0), _place(location, storage_options)
    place = f"{store.location}/{key}"
    backup, kept = api.decode_backup(content)  # what is written can be read
    if not store.put_if_absent(key, packed):
        raise InvalidRequest(f"{place} exists: give each backup a name of its own", location=place)
    return BackupReport(place, backup.at, len(kept), len(packed), tuple(unsaved))


def read_backup(
    location: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> tuple[api.TreeBackup, list[api.KeptTable]]:
    """A backup and its tables, checked as a whole. Raises InvalidRequest."""
    store, key = _place(location, storage_options)
    try:
        return api.decode_backup(gzip.decompress(store.get(key)))
    except (ObjectNotFound, OSError, EOFError, zlib.error) as wrong:
        what = f"there is no whole backup of a tree at {store.location}/{key}"
        raise InvalidRequest(f"{what}: it is missing, cut off, or something else", location=key) from wrong


@checked
def restore_tree(
    location: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    wait_s: float | None = None,
    told: Callable[[str], object] | None = None,
) -> Iterator[Recovered]:
    """Make the tree of a coordinator whose data were lost: each table from its log, and the rest from a backup.

    Yields each table when it is done, in no order. `wait_s` and `told` are those of `sluice.recover_all`, which recovers tables that were
    made after the backup. Killed, it goes on when it is repeated. Raises InvalidRequest for something else than a whole backup, and for a
    coordinator that has tables already; Unavailable.
    """
    backup, tables = read_backup(location, storage_options)
    session = api.connect(coordinator)
    api.begin_restoration(session, backup, api.write_through(session)[1])
    if told is not None:
        told(f"{len(tables)} tables, as of {backup.at}; clients of the lost coordinator are waited for")
    addresses = [TableAddress.of(each.tree.location, coordinator, storage_options, "restore") for each in tables]
    return recover_each(addresses, backup.identity, wait_s, {each.tree.location: each for each in tables})


def _place(location: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> tuple[ObjectStore, str]:
    parent, _, key = normalise(location).rpartition("/")
    return open_store(parent, storage_options or {}), key
