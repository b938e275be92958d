"""DROP FEATURE: a table feature leaves the protocol, and all that uses it in the table goes before ("Table Features" in PROTOCOL.md).

`REMOVALS` has a row for each feature that can leave. What only writers must know leaves in one commit. What readers must know, too, leaves
in two steps: first the table stops using it, which may write files again; then the log is cut off before the first version from which on
nothing shows it, since a reader without the feature would misread older versions. These stay in the log for
`delta.dropFeatureTruncateHistory.retentionDuration`, as in Delta Lake: programs may be reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Change, Commit, Deadline, require_room, within_this_call
from ...coordinator.rules.intent import Terms
from ...storage.actions import Action, AddFile, Metadata, Protocol, RemoveFile, features
from ...storage.actions.file_removals import Actions, Removals
from ...storage.actions.filetable import rows_at
from ...storage.caches import at_once
from ...storage.constants import CHECKPOINT_POLICY_KEY, DELETION_VECTORS_KEY
from ...storage.data.constraints import INVARIANTS_KEY
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, UnsupportedFeature
from ...storage.log.paths import LogKind
from ...storage.log.segment import list_log, list_versions
from ...storage.log.sidecars import unnamed_sidecars
from ...storage.log.snapshot import Snapshot
from ...storage.schema.datatypes import features_of_columns, fields_inside
from ...storage.schema.mapping import HIGHEST_ID_KEY, MODE_KEY, mapping_mode, without_keys
from ...storage.schema.schema import check_new_schema
from ...storage.schema.widening import CHANGES_KEY, WIDENING_KEY
from ...storage.times import interval_ms, text_of
from ..client.open_table import OpenTable
from ..client.property_rules import CHANGE_DATA_FEED, CONSTRAINT_PREFIX, check_settings, layout_of
from ..maintain.bins import plan_bins
from ..maintain.compaction import StagedCompaction
from ..maintain.rewriting import Rewriter
from ..maintain.vacuum import log_until, now_of, protected_before, remove_log, remove_sidecars
from ..write.requirements import snapshot_for_change
from .restoring import alone

_RETENTION_KEY: Final = "delta.dropFeatureTruncateHistory.retentionDuration"
_RETENTION_DEFAULT: Final = "interval 24 hours"
_OPERATION: Final = "DROP FEATURE"
_PROTECTION: Final = "checkpointProtection"
_READER_VERSION: Final = 3
_WRITER_VERSION: Final = 7

_File: TypeAlias = AddFile | RemoveFile


@dataclass(frozen=True, slots=True)
class Removal:
    """How a feature leaves a table: what stands against it and must be taken away by its user, with the remedy; and what goes by itself.

    That are `properties`, `keys` of the fields' metadata, a metadata `domain`, and what the files that `rewritten` selects have of it.
    `metadata_shows` and `file_shows` tell whether a version that has such an action may be misread without the feature.
    """

    hindrance: Callable[[Snapshot], str | None] = lambda _: None
    properties: Collection[str] = ()
    keys: Collection[str] = ()
    domain: str = ""
    rewritten: Callable[[Snapshot], pa.ChunkedArray | pa.Array | None] = lambda _: None
    metadata_shows: Callable[[Metadata], bool] | None = None
    file_shows: Callable[[_File], bool] = lambda _: False


def _while_on(key: str) -> Removal:
    """A feature that stays as long as its user has not switched off this property."""
    return Removal(lambda at: f"{key} is true; unset_properties first" if features.is_on(at.configuration, key) else None)


def _while_columns_use(feature: str, what: str) -> Callable[[Snapshot], str | None]:
    def hindrance(at: Snapshot) -> str | None:
        schema = at.metadata.schema
        return what if feature in features_of_columns(schema) | features.features_of_types(schema) else None

    return hindrance


def _constraints(at: Snapshot) -> str | None:
    named = [key for key in at.configuration if key.lower().startswith(CONSTRAINT_PREFIX)]
    return f"the table has {', '.join(named)}; unset_properties first" if named else None


def _invariants(at: Snapshot) -> str | None:
    ruled = [path for path, each in fields_inside(at.metadata.schema) if not each.nullable or INVARIANTS_KEY in each.metadata]
    return f"the columns have rules ({', '.join(ruled)}); ALTER COLUMN ... DROP NOT NULL first" if ruled else None


def _all_files(shows: Callable[[Metadata], bool]) -> Callable[[Snapshot], pa.ChunkedArray | None]:
    return lambda at: pc.is_valid(at.files["path"]) if shows(at.metadata) else None


def _widened(metadata: Metadata) -> bool:
    return CHANGES_KEY in metadata.schema_string


def _mapped(metadata: Metadata) -> bool:
    return mapping_mode(metadata.configuration) != "none"


def _of_type(feature: str, name: str) -> Removal:
    return Removal(
        _while_columns_use(feature, f"a column is {name}; drop that column first"),
        metadata_shows=lambda metadata: feature in features.features_of_types(metadata.schema),
    )


_VARIANT: Final = _of_type("variantType", "VARIANT")
_WIDENING: Final = Removal(properties=(WIDENING_KEY,), keys=(CHANGES_KEY,), rewritten=_all_files(_widened), metadata_shows=_widened)

REMOVALS: Final[Mapping[str, Removal]] = {
    "allowColumnDefaults": Removal(_while_columns_use("allowColumnDefaults", "a column has a DEFAULT; drop it with alter_columns first")),
    "appendOnly": _while_on("delta.appendOnly"),
    "changeDataFeed": _while_on(CHANGE_DATA_FEED),
    "checkConstraints": Removal(_constraints),
    _PROTECTION: Removal(properties=(features.PROTECTED_BEFORE_KEY,)),
    "clustering": Removal(domain=features.CLUSTERING_DOMAIN),
    "columnMapping": Removal(properties=(MODE_KEY, HIGHEST_ID_KEY), rewritten=_all_files(_mapped), metadata_shows=_mapped),
    "deletionVectors": Removal(
        properties=(DELETION_VECTORS_KEY,),
        rewritten=lambda at: pc.is_valid(at.files["deletion_vector"]),
        metadata_shows=lambda metadata: features.is_on(metadata.configuration, DELETION_VECTORS_KEY),
        file_shows=lambda file: file.deletion_vector is not None,
    ),
    "domainMetadata": Removal(lambda at: f"the table has the domains {', '.join(at.domains)}; remove_domain first" if at.domains else None),
    "generatedColumns": Removal(_while_columns_use("generatedColumns", "a column is GENERATED; drop that column, or make the table anew")),
    "icebergCompatV1": Removal(properties=(features.ICEBERG_KEYS[0],)),
    "icebergCompatV2": Removal(properties=(features.ICEBERG_KEYS[1],)),
    "icebergCompatV3": Removal(properties=(features.ICEBERG_KEYS[2],)),
    "identityColumns": Removal(_while_columns_use("identityColumns", "a column is an identity column; drop that column first")),
    "invariants": Removal(_invariants),
    "materializePartitionColumns": Removal(properties=(features.MATERIALIZE_KEY,)),
    "timestampNtz": _of_type("timestampNtz", "TIMESTAMP_NTZ"),
    "typeWidening": _WIDENING,
    "typeWidening-preview": _WIDENING,
    "v2Checkpoint": Removal(
        properties=(CHECKPOINT_POLICY_KEY,),
        metadata_shows=lambda metadata: metadata.configuration.get(CHECKPOINT_POLICY_KEY, "").lower() == "v2",
    ),
    "vacuumProtocolCheck": Removal(),
    "variantType": _VARIANT,
    "variantType-preview": _VARIANT,
}
"""The features that can be dropped."""

_KEPT: Final = {
    "inCommitTimestamp": "the coordinator orders commits by it; after detach() the engine that takes the table can drop it",
    "rowTracking": "the coordinator counts its rows' ids; after detach() another engine can drop it, and attach() takes the table again",
    "sluice": "it keeps out writers that do not go through the coordinator; detach() takes it away",
}


def drop_feature(table: OpenTable, name: str, terms: Terms, *, truncate_history: bool, checkpoint: Callable[[], object]) -> Commit | None:
    """Take a feature out of the protocol; None if it has none of that name. Others' commits wait while it runs.

    `truncate_history` cuts off the versions that show it, once they are old enough; `checkpoint` writes one of the latest version. Raises
    UnsupportedFeature for one that cannot be dropped, or that sluice does not know; InvalidRequest for one in use, and for one that older
    versions show: then the table does not use it any more, and the error says until when (`ready_ms`) it stays.
    """
    with alone(table, Deadline.of(terms.timeout_s, table.clock), _OPERATION):
        table.fresh_head()
        snapshot_for_change(table, terms.if_version)  # refuses a version that is not there yet
        snapshot = table.latest()
        present = features.writer_features(snapshot.protocol) | features.reader_features(snapshot.protocol)
        name = next((each for each in present if each.lower() == name.lower()), name)
        if name not in present:
            features.supported_feature(name)  # refuses a misspelt name
            return None
        removal = _removal_of(name, snapshot)
        is_shown = removal.metadata_shows is not None
        if truncate_history and not (is_shown or name == _PROTECTION):
            raise InvalidRequest(
                f"{name} is a feature of writers: who reads older versions need not know it. Leave TRUNCATE HISTORY out", feature=name
            )
        if is_shown:
            staged = _staged(table, snapshot, name, removal)
            if staged is not None:
                snapshot, terms = table.at(_commit(staged, terms).version), replace(terms, if_version=None)
        if is_shown or name == _PROTECTION:
            _require_clean_log(table, snapshot, name, removal, checkpoint, truncate=truncate_history)
        staged = _staged(table, snapshot, name, removal, _without(snapshot.protocol, name))
        return None if staged is None else _commit(staged, terms)


def _removal_of(name: str, snapshot: Snapshot) -> Removal:
    """How a feature of the table can leave. Raises UnsupportedFeature and InvalidRequest if it cannot."""
    location = snapshot.location
    if name not in REMOVALS:
        why = _KEPT.get(name, f"those that can are {', '.join(REMOVALS)}")
        raise UnsupportedFeature(f"{name} cannot be dropped from {location}: {why}", features=[name], access="write")
    for other in sorted(features.needing(name) & features.writer_features(snapshot.protocol)):
        raise InvalidRequest(f"{name} cannot be dropped from {location}: the feature {other} needs it", feature=name)
    if (used := REMOVALS[name].hindrance(snapshot)) is not None:
        raise InvalidRequest(f"{name} cannot be dropped from {location}: {used}", feature=name)
    return REMOVALS[name]


def _without(protocol: Protocol, name: str) -> Protocol:
    """The protocol that does not name the feature."""
    readers = tuple(sorted(features.reader_features(protocol) - {name}))
    writers = tuple(sorted(features.writer_features(protocol) - {name}))
    return Protocol(_READER_VERSION if readers else 1, _WRITER_VERSION, readers or None, writers, protocol.extra)


def _staged(table: OpenTable, snapshot: Snapshot, name: str, removal: Removal, protocol: Protocol | None = None) -> StagedCompaction | None:
    """A commit after which nothing of the table uses the feature, with the `protocol` that lacks it; None if there is nothing to do."""
    configuration = {key: value for key, value in snapshot.configuration.items() if key not in removal.properties}
    schema = without_keys(snapshot.metadata.schema, frozenset(removal.keys))
    metadata = replace(snapshot.metadata, configuration=configuration).with_schema(schema)
    check_new_schema(metadata.schema, metadata.partition_columns)
    check_settings(configuration, metadata.schema)
    owner = table.new_transaction_id()
    layout = layout_of(metadata, row_ids=features.RowIdColumns.of(metadata, snapshot.protocol))
    rewriter = Rewriter(table.store, snapshot.version, snapshot.metadata.schema, layout, owner, (), lambda: None)
    parts: list[Collection[Action]] = []
    if metadata != snapshot.metadata:
        parts.append([metadata])
    if removal.domain in snapshot.domains:
        parts.append([replace(snapshot.domains[removal.domain], removed=True)])
    if (scope := removal.rewritten(snapshot)) is not None:
        parts += _rewritten(table, snapshot, rewriter, scope)
    if protocol is not None:
        parts.append([protocol])
    if not any(parts):
        return None
    terms, schema = Terms(if_version=snapshot.version), snapshot.metadata.schema
    change = Change(owner, _OPERATION, snapshot, Actions(*parts), terms=terms, parameters={"featureName": name}, schema=schema)
    return StagedCompaction(table, change, rewriter)


def _rewritten(table: OpenTable, snapshot: Snapshot, rewriter: Rewriter, scope: pa.ChunkedArray) -> Iterator[Collection[Action]]:
    """The removals and adds that replace the files in `scope` by new ones with the same rows."""
    rewritten = pc.fill_null(scope, False).combine_chunks()
    partitions, target_bytes = snapshot.metadata.physical_partitions, rewriter.layout.target_file_bytes
    bins = plan_bins(snapshot.files, rewritten, partitions, target_bytes=target_bytes, base=True, reorder=True)
    sources = [rows_at(snapshot.files, one.indices) for one in bins]
    require_room(table, sum(map(Removals.least_bytes, sources)))
    try:
        written = at_once(within_this_call(lambda piece: rewriter.rewrite(*piece)), list(zip(count(), bins, sources)), 2, "sluice-drop")
    except BaseException:
        rewriter.discard()
        raise
    for files, output in zip(sources, written, strict=True):
        yield Removals(files, table.clock.now_ms(), data_change=False)
        yield output.adds


def _commit(staged: StagedCompaction, terms: Terms) -> Commit:
    """Commit it as the next version, on the caller's terms."""
    commit = replace(staged, change=staged.change.on(terms)).commit(timeout_s=terms.timeout_s)
    staged.table.note(commit.version)
    return commit


# -- what older versions show ----------------------------------------------------------------------------------------------


def _require_clean_log(
    table: OpenTable, snapshot: Snapshot, name: str, removal: Removal, checkpoint: Callable[[], object], *, truncate: bool
) -> None:
    """Raise InvalidRequest if a version that is still in the log shows the feature; `truncate`: after cutting off what may go."""
    clean = _clean_from(table, snapshot, name, removal)
    if not any(each.version >= clean for each in list_versions(table.store).checkpoints) and clean:
        checkpoint()  # from which on the log can be cut off
    text = snapshot.configuration.get(_RETENTION_KEY, _RETENTION_DEFAULT)
    kept_ms, now_ms = interval_ms(text, name=_RETENTION_KEY), now_of(table.store)[0]
    if truncate:
        remove_log(table.store, log_until(table, now_ms - kept_ms), lambda: None, protected=protected_before(snapshot) > 0)
        if name == "v2Checkpoint":
            remove_sidecars(table.store, unnamed_sidecars(table.store, now_ms - kept_ms), lambda: None)
    listing = list_versions(table.store)
    # check: history-goes-before-its-feature (always)
    if listing.earliest is not None and listing.earliest >= clean:
        return
    cut = min((each.version for each in listing.checkpoints if each.version >= clean), default=snapshot.version)
    ready_ms = max(table.at(cut).timestamp_ms, listing.commits[cut].modified_ms if cut in listing.commits else 0) + kept_ms
    since = f"from version {clean} on nothing shows it, but the log has versions {listing.earliest} to {clean - 1}, too"
    if ready_ms > now_ms:
        when = f"after {text_of(ready_ms)}, when version {cut} is as old as {_RETENTION_KEY} says ({text})"
    else:
        when = "now; if that was said already: a reader has pinned one of them, or a transaction is compared with it"
    raise InvalidRequest(
        f"{name} stays in the protocol of {table.location} for now: {since}, and a reader without the feature would misread those. The "
        f"table does not use it any more. Say DROP FEATURE {name} TRUNCATE HISTORY (truncate_history=True) {when}; versions before {cut} "
        "are gone then",
        feature=name,
        version=cut,
        ready_ms=ready_ms,
    )


def _clean_from(table: OpenTable, snapshot: Snapshot, name: str, removal: Removal) -> int:
    """The first version from which on no version shows the feature."""
    if name == _PROTECTION:
        return int(snapshot.configuration.get(features.PROTECTED_BEFORE_KEY, 0))
    shows, first = removal.metadata_shows, list_versions(table.store).earliest or 0
    assert shows is not None
    oldest = table.at(first)
    metadata = oldest.metadata
    clean = first + 1 if shows(metadata) or any(map(removal.file_shows, oldest.add_files())) else 0
    if name == "v2Checkpoint":
        kinds = (each.version for each in list_log(table.store) if each.kind is LogKind.V2_CHECKPOINT)
        clean = max(clean, *(version + 1 for version in kinds), 0)
    for version, actions in table.log.commits(range(first + 1, snapshot.version + 1)):
        for action in actions:
            if isinstance(action, Metadata):
                was, metadata = metadata, action
                clean = version + 1 if shows(action) else version if shows(was) else clean
            elif isinstance(action, AddFile | RemoveFile) and removal.file_shows(action):
                clean = max(clean, version + isinstance(action, AddFile))
    return clean
