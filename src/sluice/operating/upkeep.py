"""What maintenance the tables need: read from their logs, which takes longer than reading the coordinator's nodes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import pyarrow.compute as pc
from msgspec.structs import replace

from ..coordinator.api import CoordinationStore, Head, TableTree
from ..storage.actions.features import clustering_columns, is_on
from ..storage.arguments import RULES
from ..storage.caches import at_once
from ..storage.constants import DELETION_VECTORS_KEY
from ..storage.errors import Corrupt, NoSuchBucket, NotATable, SluiceError, TableNotFound
from ..storage.log.segment import list_segment
from ..storage.log.snapshot import Snapshot
from ..storage.schema.mapping import physical_path
from ..storage.stores.location import open_store
from ..tables.client.property_rules import DAEMON_PROPERTY, VACUUM_HOURS, VACUUM_PROPERTY, file_size_of
from ..tables.maintain.bins import clustered, plan_bins
from ..tables.maintain.vacuum import log_kept_ms
from .document import Table, Upkeep

_AT_ONCE: Final = 8
_FOREIGN_MAX: Final = 20
_WAIT_S: Final = 1.0
_OF_LOGS: Final = ("upkeep", "trouble", "log_trouble", "log_damaged")
_DAMAGE: Final = (Corrupt, NoSuchBucket, NotATable, TableNotFound)
"""What is no matter of rights, options or time."""


def with_upkeep(
    tables: tuple[Table, ...], session: CoordinationStore, storage_options: Mapping[str, str] | None, former: Mapping[str, Upkeep]
) -> tuple[Table, ...]:
    """The tables with what maintenance they need, or with why that cannot be read.

    `former` is what an earlier look saw, by location: a log that has the same version of the same table is listed, and
    not read again. It is what a table keeps whose log cannot be read.
    """

    def one(table: Table) -> Table:
        if table.trouble is not None or table.version < 0:
            return table
        try:
            return replace(table, upkeep=_upkeep_of(table, session, storage_options, former.get(table.location)))
        except SluiceError as trouble:
            why, last, damaged = trouble.message, former.get(table.location), isinstance(trouble, _DAMAGE)
            return replace(table, upkeep=last, trouble=f"its log cannot be read: {why}", log_trouble=why, log_damaged=damaged)

    return tuple(at_once(one, tables, _AT_ONCE, "sluice-upkeep"))


class InBackground:
    """`with_upkeep` for who cannot wait for the object store: what a thread read last, which reads again at each call."""

    def __init__(self, storage_options: Mapping[str, str] | None) -> None:
        self._options = storage_options
        self._last: Mapping[str, dict[str, Any]] = {}
        self._reading = threading.Thread()

    def __call__(self, tables: tuple[Table, ...], session: CoordinationStore) -> tuple[Table, ...]:
        """The tables with what is known of their logs after a moment."""
        if not self._reading.is_alive():
            self._reading = threading.Thread(target=self._read, args=(tables, session), name="sluice-logs", daemon=True)
            self._reading.start()
        self._reading.join(_WAIT_S)
        return tuple(each if each.trouble else replace(each, **self._last.get(each.location, {})) for each in tables)

    def _read(self, tables: tuple[Table, ...], session: CoordinationStore) -> None:
        former = {location: last["upkeep"] for location, last in self._last.items() if last["upkeep"] is not None}
        read = [each for each in with_upkeep(tables, session, self._options, former) if each.upkeep or each.log_trouble is not None]
        self._last = {each.location: {name: getattr(each, name) for name in _OF_LOGS} for each in read}


def _upkeep_of(table: Table, session: CoordinationStore, storage_options: Mapping[str, str] | None, former: Upkeep | None) -> Upkeep:
    store = open_store(table.location, storage_options or {})
    segment = list_segment(store)
    node = session.read(TableTree(table.location).head)  # after the log, which has no version that was not ratified before
    ratified = None if node is None else Head.decode(node.data)
    ours = segment.version if ratified is None or ratified.detached else min(segment.version, ratified.version)
    is_same = former is not None and former.version == ours and ratified is not None and former.table_id == ratified.table_id
    log = former if former is not None and is_same else _read(Snapshot.load(store, version=ours))
    return replace(
        log,
        versions_since_checkpoint=None if segment.checkpoint is None else segment.version - segment.checkpoint.version,
        foreign=tuple(range(ours + 1, segment.version + 1))[:_FOREIGN_MAX],
    )


def _read(snapshot: Snapshot) -> Upkeep:
    """What a version says itself."""
    files, metadata, configuration = snapshot.files, snapshot.metadata, snapshot.configuration
    target_bytes, vectors = file_size_of(configuration), files["deletion_vector"]
    columns = [physical_path(path, metadata.schema) for path in clustering_columns(snapshot.domains, metadata.schema)]
    loose = clustered(files, columns, full=False, base=False)["loose"].combine_chunks() if columns else None
    bins = plan_bins(files, loose, metadata.partition_columns, target_bytes=target_bytes, base=False, reorder=False)
    return Upkeep(
        version=snapshot.version,
        table_id=metadata.id,
        files=files.num_rows,
        bytes=pc.sum(files["size"]).as_py() or 0,
        small_files=sum(len(each.indices) for each in bins),
        small_bytes=sum(each.nbytes for each in bins),
        files_with_vectors=len(vectors) - vectors.null_count,
        deleted_rows=0 if vectors.null_count == len(vectors) else pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0,
        versions_since_checkpoint=None,
        daemon=is_on({DAEMON_PROPERTY: "true", **configuration}, DAEMON_PROPERTY),
        vacuum_hours=int(RULES[VACUUM_PROPERTY].of_text(VACUUM_PROPERTY, configuration.get(VACUUM_PROPERTY, str(VACUUM_HOURS)))),
        moves_rows=is_on(configuration, DELETION_VECTORS_KEY),
        file_bytes=target_bytes,
        unclustered_files=0 if loose is None else loose.true_count,
        unclustered_bytes=0 if loose is None else pc.sum(files["size"].filter(loose)).as_py() or 0,
        log_kept_s=log_kept_ms(configuration) / 1000,
    )
