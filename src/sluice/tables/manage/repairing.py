"""FSCK: data files that the log names and the store lacks."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.facade.values import Change, Reads
from ...coordinator.rules.isolation import IsolationLevel
from ...coordinator.rules.operation_kinds import Kind
from ...storage.actions.features import check_writable
from ...storage.actions.file_removals import Actions, Removals
from ...storage.actions.filetable import adds_of, picked
from ...storage.log.snapshot import Snapshot
from ...storage.schema.schema import parse_schema
from ..client.access import Access
from ..write.requirements import require_replaceable
from .restoring import missing_files

__all__ = ["lacking", "repair"]


def lacking(access: Access, snapshot: Snapshot) -> dict[str, str]:
    """Why files of a version cannot be read, by their path in the log; asks the store for each file."""
    return missing_files(access.store, list(adds_of(snapshot.files)), None)


def repair(access: Access) -> Change | None:
    """Take the files that are gone out of the table; None if there are none. Their rows stay lost."""
    _ = access.ours  # fails before anything is read if the table was opened for reading only
    snapshot = access.latest()
    check_writable(snapshot.protocol, snapshot.metadata)
    missing = lacking(access, snapshot)
    if not missing:
        return None
    require_replaceable(access.address.location, snapshot)
    paths = snapshot.files["path"].combine_chunks().cast(pa.string())
    gone = picked(snapshot.files, pc.is_in(paths, value_set=pa.array(list(missing), pa.string())))
    return Change(
        access.new_transaction_id(),
        "FSCK REPAIR",
        snapshot,
        Actions((), Removals(gone, access.ours.now_ms())),
        reads=Reads(files=tuple(missing)),
        metrics={"numRemovedFiles": str(gone.num_rows)},
        schema=parse_schema(snapshot.metadata.schema_string),
        kind=Kind.CHANGE,
        isolation=IsolationLevel.SERIALIZABLE,
    )
