"""Diagnoses a table: its log, its files, and its nodes in the coordinator. Reads only, and repairs nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from ...coordinator.api import DEFAULT_TIMEOUT_S, Timeout, bounding, examine_nodes
from ...storage.actions.features import is_managed
from ...storage.actions.records import DeletionVector
from ...storage.actions.uris import key_inside
from ...storage.arguments import checked
from ...storage.data.vectors import vector_key
from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError
from ...storage.log.examination import ERROR, NOTE, WARNING, Finding, examine_files, examine_log
from ...storage.log.segment import list_segment
from ...storage.log.snapshot import Snapshot
from ..client.address import TableAddress
from ..client.open_table import OpenTable


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings at `location`, most severe first. `ok` unless one is an error.

    `version` is the latest readable one, or None; `coordinated` says whether the coordinator was asked, too.
    """

    location: str
    version: int | None
    coordinated: bool
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(each.severity != ERROR for each in self.findings)


@checked
def doctor(
    location: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> Diagnosis:
    """Examine a table completely: its log, the chain of its commits, its checkpoints, and whether its data files exist in full size.

    With a `coordinator` it also examines the nodes: whether the log has what was ratified, leases, and unneeded nodes.

    Changes nothing. It reads the whole log and lists the whole table, without a time limit; `timeout_s` limits the requests
    to the coordinator. Raises TableNotFound, NotATable, Unavailable.

    Examples:
        ```python
        diagnosis = sluice.doctor(table.location, coordinator=coordinator)
        print(diagnosis.ok, [finding.what for finding in diagnosis.findings])
        ```
    """
    address = TableAddress.of(location, coordinator, storage_options)
    store = address.store()
    found: list[Finding] = []
    report = found.append
    version: int | None = None
    try:
        list_segment(store)
    except SluiceError as damage:
        if not damage.details.get("version"):
            raise  # no log
    seals = examine_log(store, report)
    managed = True
    try:
        snapshot = Snapshot.load(store)
        managed, version = is_managed(snapshot.protocol), snapshot.version
        vectors = [DeletionVector(**fields) for fields in snapshot.files.column("deletion_vector").drop_null().to_pylist()]
        keys = (key for vector in vectors if (key := vector_key(vector, snapshot.location)) is not None)
        examine_files(store, snapshot, partial(key_inside, snapshot.location), keys, report)
    except SluiceError as damage:
        remedy = "follow the advice about the files above" if found else "restore the table from a copy"
        report(Finding(ERROR, address.location, f"the latest version cannot be read: {damage.message}", remedy))
    if coordinator is not None:
        if managed:
            with bounding(timeout_s):
                found += examine_nodes(OpenTable.of(address).context, seals)
        else:
            report(Finding(NOTE, address.location, "sluice does not manage this table: the coordinator was not asked"))
    order = (ERROR, WARNING, NOTE)
    found.sort(key=lambda each: order.index(each.severity))
    return Diagnosis(address.location, version, coordinator is not None and managed, tuple(found))
