"""The table properties that sluice knows: their values, effects and combinations; and by which columns a table can be clustered.

Names that begin with `delta.` or `sluice.` are the protocol's and sluice's: unknown ones are refused, since a misspelled
property would have no effect. All other names are free. docs/configuration.md shows `PROPERTIES`.

A table is clustered as in Delta Lake: by up to four columns, whose files have the lowest and highest value of each, and it has no
partitions beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...coordinator.rules.intent import ISOLATION_PROPERTY, POLICY_PROPERTY, ConflictPolicy, IsolationLevel, table_isolation, table_policy
from ...storage.actions import DomainMetadata, Metadata, features
from ...storage.arguments import RULES
from ...storage.constants import (
    ADDRESS_KEY,
    CHANGE_COLUMN_NAMES,
    CHECKPOINT_POLICY_KEY,
    COORDINATOR_KEY,
    DELETED_FILE_RETENTION_KEY,
    DELETION_VECTORS_KEY,
    ICT_ENABLED_KEY,
    ICT_ENABLEMENT_TIMESTAMP_KEY,
    ICT_ENABLEMENT_VERSION_KEY,
    MANAGED_KEY,
    NAME_KEY,
    NAMED_MS_KEY,
)
from ...storage.data.datafiles import TARGET_FILE_BYTES, FileFormat
from ...storage.data.statistics import INDEXED_COLUMNS_DEFAULT, leaves
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.schema.identity import identities
from ...storage.schema.mapping import HIGHEST_ID_KEY, MAPPING_MODES, MODE_KEY
from ...storage.schema.schema import PrimitiveType, StructType, field_at
from ...storage.schema.widening import WIDENING_KEY
from ...storage.times import interval_ms

if TYPE_CHECKING:
    from ...storage.log.snapshot import Snapshot

CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
AUTO_COMPACT: Final = "delta.autoOptimize.autoCompact"
OPTIMIZE_WRITE: Final = "delta.autoOptimize.optimizeWrite"
_TARGET_FILE_SIZE_KEY = "delta.targetFileSize"
_INDEXED_COLUMNS_KEY = "delta.dataSkippingNumIndexedCols"

_BYTES_MAX: Final = 64 * 1024
CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"
CONSTRAINT_PREFIX: Final = "delta.constraints."
PRIMARY_KEY: Final = "sluice.primaryKey"
DAEMON_PROPERTY: Final = "sluice.daemon"
VACUUM_PROPERTY: Final = "sluice.daemon.vacuumHours"
VACUUM_HOURS: Final = 168

_OWN_PREFIXES: Final = ("delta.", "sluice.")
_NAME: Final = "<name>"
# Types of key columns, which are compared, sorted and looked up: NaN and -0.0 make floating-point numbers unfit.
_KEY_TYPES: Final = frozenset({"byte", "short", "integer", "long", "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz"})

CLUSTER_COLUMNS_MAX: Final = 4
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


@dataclass(frozen=True, slots=True)
class Property:
    """A property: its name (ending in `<name>` if the user completes it), and its documentation.

    `check` gets the name and a value, and raises InvalidRequest for an invalid one.
    """

    name: str
    values: str
    default: str
    meaning: str
    check: Callable[[str, str], object]

    def covers(self, key: str) -> bool:
        """Whether this is the property called `key`."""
        stem = self.name.removesuffix(_NAME)
        return key.startswith(stem) and len(key) > len(stem) if stem != self.name else key == self.name


def _switch(name: str, value: str) -> None:
    if value.lower() not in ("true", "false"):
        raise InvalidRequest(f"{name} is {value!r}; use true or false", property=name, value=value)


def _by_rule(name: str, value: str) -> None:
    RULES[name].of_text(name, value, property=name, value=value)


def _mode(name: str, value: str) -> None:
    if value.lower() not in MAPPING_MODES:
        raise InvalidRequest(f"{name} is {value!r}; use {' or '.join(MAPPING_MODES)}", property=name, value=value)


def _duration(name: str, value: str) -> None:
    interval_ms(value, name=name)


def _only(wanted: str, name: str, value: str) -> None:
    if value != wanted:
        raise InvalidRequest(f"{name} is {value!r}; sluice supports {wanted!r} only", property=name, value=value)


def _checkpoint_policy(name: str, value: str) -> None:
    if value not in ("classic", "v2"):
        raise InvalidRequest(f"{name} is {value!r}; use classic or v2", property=name, value=value)


def _not_empty(name: str, value: str) -> None:
    if not value.strip():
        raise InvalidRequest(f"{name} is empty; give it a value, or leave it out", property=name, value=value)


_YES_OR_NO: Final = "`true`, `false`"
_LEVELS: Final = ", ".join(f"`{level.value}`" for level in IsolationLevel)
_POLICIES: Final = ", ".join(f"`{policy.value}`" for policy in ConflictPolicy)

PROPERTIES: Final[tuple[Property, ...]] = (
    Property(
        ISOLATION_PROPERTY,
        _LEVELS,
        "`WriteSerializable`",
        "how strict commits are, see [isolation](isolation.md)",
        lambda name, value: table_isolation({name: value}),
    ),
    Property(
        POLICY_PROPERTY,
        _POLICIES,
        "`delta`",
        "whose rules say what conflicts, see [isolation](isolation.md)",
        lambda name, value: table_policy({name: value}),
    ),
    Property(
        PRIMARY_KEY,
        "names of columns, `a, b`",
        "",
        "with `maxcompute-delta`: the columns that tell rows apart, NOT NULL and not floating-point; only while the table is empty",
        _not_empty,
    ),
    Property(DAEMON_PROPERTY, _YES_OR_NO, "`true`", "`false`: [`sluice daemon`](operations/daemon.md) leaves the table alone", _switch),
    Property(VACUUM_PROPERTY, "hours", f"`{VACUUM_HOURS}`", "how often `sluice daemon` vacuums the table; `0` is never", _by_rule),
    Property("delta.appendOnly", _YES_OR_NO, "`false`", "`true` refuses to replace, change and delete rows", _switch),
    Property(
        CONSTRAINT_PREFIX + _NAME,
        "a condition in SQL",
        "",
        "every row must satisfy it; rows that are there are checked when it is added",
        _not_empty,
    ),
    Property(
        DELETION_VECTORS_KEY,
        _YES_OR_NO,
        "`false`; `true` with `maxcompute-delta`",
        "`true` marks deleted rows instead of copying the others; writers of different rows of one file do not conflict",
        _switch,
    ),
    Property(
        WIDENING_KEY,
        _YES_OR_NO,
        "`false`",
        "`true` lets columns get wider types, see [managing tables](managing-tables.md#wider-types)",
        _switch,
    ),
    Property(CHANGE_DATA_FEED, _YES_OR_NO, "`false`", "`true` writes files that say which rows changed, for every Delta reader", _switch),
    Property(
        features.ROW_TRACKING_KEY,
        _YES_OR_NO,
        "`false`",
        "`true` gives rows ids that they [keep](managing-tables.md#rows-with-ids); only when the table is created",
        _switch,
    ),
    Property(
        MODE_KEY,
        ", ".join(f"`{each}`" for each in MAPPING_MODES),
        "`none`",
        "`name` or `id`: columns [can be renamed and dropped](managing-tables.md#renamed-and-dropped-columns), since files have names of "
        "their own for them; a table that exists can change from `none` to `name`",
        _mode,
    ),
    Property(
        features.FEATURE_PREFIX + _NAME,
        "`supported`",
        "",
        "adds a table feature to the protocol (and is not kept as a property)",
        partial(_only, "supported"),
    ),
    *(
        Property(key, _YES_OR_NO, "`false`", "`true` keeps to what [Iceberg can have](features.md); only while the table is empty", _switch)
        for key in features.ICEBERG_KEYS[:2]
    ),
    Property(
        features.MATERIALIZE_KEY, _YES_OR_NO, "`false`", "`true`: every writer puts the partition columns into new data files, too", _switch
    ),
    Property("delta.writePartitionColumnsToParquet", _YES_OR_NO, "`false`", "`true`: writers that know this property do so", _switch),
    Property("delta.targetFileSize", "bytes, or with `kb`, `mb`, `gb`", "`128mb`", "the size of data files", _by_rule),
    Property(
        AUTO_COMPACT, _YES_OR_NO, "`false`", "`true`: streams [merge small files](streaming.md#small-files) beside their batches", _switch
    ),
    Property(
        OPTIMIZE_WRITE,
        _YES_OR_NO,
        "`false`",
        "`true`: Spark shuffles rows [by partition](streaming.md#small-files) before it writes them, into few files",
        _switch,
    ),
    Property("delta.dataSkippingNumIndexedCols", "a number, -1 for all", "32", "how many leading columns have statistics", _by_rule),
    Property(
        CHECKPOINT_INTERVAL,
        "a number, 1 or more",
        "100",
        "versions between checkpoints (Delta's own default is 10; versions come faster here)",
        _by_rule,
    ),
    Property(
        CHECKPOINT_POLICY_KEY,
        "`classic`, `v2`",
        "`classic`",
        "the form of checkpoints: classic ones are for every reader, `v2` ones [cost what changed](operations.md#v2-checkpoints)",
        _checkpoint_policy,
    ),
    Property(
        DELETED_FILE_RETENTION_KEY, "`interval 7 days`", "`interval 7 days`", "how long removed files stay listed in checkpoints", _duration
    ),
    Property("delta.logRetentionDuration", "`interval 30 days`", "", "kept for engines that clean up the log", _duration),
    Property(
        "delta.dropFeatureTruncateHistory.retentionDuration",
        "`interval 24 hours`",
        "`interval 24 hours`",
        "how old versions must be before [DROP FEATURE](managing-tables.md#features-that-go) cuts them off",
        _duration,
    ),
    Property("delta.setTransactionRetentionDuration", "`interval 30 days`", "", "kept for engines that forget old transactions", _duration),
)
"""Every property that has an effect, or at least is checked."""

HANDED_ON: Final = (
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointRetentionDuration",
    "delta.dataSkippingStatsColumns",
    "delta.enableExpiredLogCleanup",
    "delta.enableFullRetentionRollback",
    "delta.randomPrefixLength",
    "delta.randomizeFilePrefixes",
    "delta.sampleRetentionDuration",
    "delta.tuneFileSizesForRewrites",
)
"""Delta's properties that sluice keeps unchanged for other engines."""

_COLUMN_MAPPING: Final = "sluice counts the columns of tables with column mapping; leave it out"
_ROW_TRACKING: Final = f"sluice sets it where {features.ROW_TRACKING_KEY} is asked for; leave it out"
_TIMESTAMPS: Final = "sluice sets it, for commits carry their time as long as sluice manages the table; leave it out"
_COORDINATOR: Final = "it says which coordinator the table belongs to: create, attach and recover set it; leave it out"
_NAMED: Final = "it repeats the name that the coordinator keeps: sluice.Catalog gives and changes names; leave it out"
_PROTOCOL: Final = "sluice sets the protocol by the features in use; ask for one by delta.feature.<name>"
# Names, or their beginnings, that only sluice sets; and why.
_PROTECTED: Final[Mapping[str, str]] = {
    ICT_ENABLED_KEY: _TIMESTAMPS,
    ICT_ENABLEMENT_VERSION_KEY: _TIMESTAMPS,
    ICT_ENABLEMENT_TIMESTAMP_KEY: _TIMESTAMPS,
    "delta.rowTracking.": _ROW_TRACKING,
    "delta.rowTrackingSuspended": _ROW_TRACKING,
    HIGHEST_ID_KEY: _COLUMN_MAPPING,
    COORDINATOR_KEY: _COORDINATOR,
    ADDRESS_KEY: _COORDINATOR,
    NAME_KEY: _NAMED,
    NAMED_MS_KEY: _NAMED,
    MANAGED_KEY: _NAMED,
    features.PROTECTED_BEFORE_KEY: "it protects the log until the feature checkpointProtection is dropped; leave it out",
    "delta.enableVariantShredding": "sluice writes variants in one piece (value and metadata); leave it out",
    "delta.minReaderVersion": _PROTOCOL,
    "delta.minWriterVersion": _PROTOCOL,
}


def check_asked(properties: Mapping[str, str], *, creating: bool) -> None:
    """Raise InvalidRequest unless every property may be given, with a valid value; `creating` ones may repeat what sluice sets anyway."""
    if (size := sum(len(text.encode()) for pair in properties.items() for text in pair)) > _BYTES_MAX:
        longest = max(properties, key=lambda key: len(properties[key]))
        raise InvalidRequest(
            f"these properties have {size:,} bytes, most of them {longest[:100]!r}, and one change has at most {_BYTES_MAX:,}: keep long "
            "texts in a file, and its path in the property",
            property=longest,
        )
    for key, value in properties.items():
        if not key.strip():
            raise InvalidRequest(f"the value {value!r} was given for a property without a name; give it one", property=key)
        if creating and (key, value.lower()) == (ICT_ENABLED_KEY, "true"):
            continue
        _refuse_protected(key)
        if (rule := _known(key)) is not None:
            rule.check(key, value)


def spelled(key: str) -> str:
    """The name of a property whose case was lost; as it is if none has that name."""
    stems = (name.removesuffix(_NAME) for name in (*(known.name for known in PROPERTIES), *HANDED_ON))
    lower = key.lower()
    found = (stem for stem in stems if lower == stem.lower() or (stem[-1] == "." and lower.startswith(stem.lower())))
    return next((stem + key[len(stem) :] for stem in found), key)


def check_names_to_unset(names: Iterable[str], configuration: Mapping[str, str]) -> None:
    """Raise InvalidRequest unless each of these is the name of a property that may be removed."""
    for key in names:
        if key.startswith(features.FEATURE_PREFIX):
            raise InvalidRequest(f"{key}: a feature stays in the protocol; switch off the property that uses it", property=key)
        _refuse_protected(key)
        if key not in configuration:  # any existing property may be removed
            _known(key)


def is_kept_by_sluice(key: str) -> bool:
    """Whether a property belongs to the table as such, so that restoring or replacing what the table holds keeps its value."""
    return key == features.ROW_TRACKING_KEY or _protection(key) is not None


def _protection(key: str) -> str | None:
    """Why only sluice sets a property; None if users may."""
    return next((why for name, why in _PROTECTED.items() if key == name or (name.endswith(".") and key.startswith(name))), None)


def _refuse_protected(key: str) -> None:
    if (why := _protection(key)) is not None:
        raise InvalidRequest(f"{key} is not for users to change: {why}", property=key)


def _known(key: str) -> Property | None:
    """The property of that name; None for a free name. Raises InvalidRequest for an unknown one of Delta's or sluice's."""
    for known in PROPERTIES:
        if known.covers(key):
            return known
    if key in HANDED_ON or not key.lower().startswith(_OWN_PREFIXES):
        return None
    names = [known.name for known in PROPERTIES] + list(HANDED_ON)
    lowered = {name.lower(): name for name in names}
    near = [lowered[name] for name in get_close_matches(key.lower(), lowered, n=3, cutoff=0.6)]
    meant = f"did you mean {' or '.join(near)}" if near else f"those it knows are {', '.join(names)}"
    raise InvalidRequest(
        f"sluice knows no property {key!r}: {meant}? Names that do not begin with {' or '.join(_OWN_PREFIXES)} are free",
        property=key,
        near=near,
    )


def with_defaults(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties with defaults that others need: the policy maxcompute-delta needs deletion vectors."""
    needed = table_policy(configuration) is ConflictPolicy.MAXCOMPUTE_DELTA
    return {DELETION_VECTORS_KEY: "true", **configuration} if needed else dict(configuration)


def check_settings(configuration: Mapping[str, str], schema: StructType) -> None:
    """Raise InvalidRequest for what would break every later write: invalid values and combinations."""
    table_isolation(configuration)
    policy = table_policy(configuration)
    for name in (_TARGET_FILE_SIZE_KEY, _INDEXED_COLUMNS_KEY, CHECKPOINT_INTERVAL):
        if name in configuration:
            _by_rule(name, configuration[name])
    if policy is ConflictPolicy.MAXCOMPUTE_DELTA and not features.is_on(configuration, DELETION_VECTORS_KEY):
        raise InvalidRequest(
            f"{POLICY_PROPERTY} is {policy.value}, which marks deleted rows in deletion vectors, and {DELETION_VECTORS_KEY} is "
            f"{configuration.get(DELETION_VECTORS_KEY, 'not set')}; set it to true, or choose another policy",
            property=DELETION_VECTORS_KEY,
            policy=policy.value,
        )
    if PRIMARY_KEY in configuration and policy is not ConflictPolicy.MAXCOMPUTE_DELTA:
        raise InvalidRequest(
            f"{PRIMARY_KEY} is {configuration[PRIMARY_KEY]!r}, to which only the policy "
            f"{ConflictPolicy.MAXCOMPUTE_DELTA.value} gives a meaning; leave it out (unset it), or set {POLICY_PROPERTY}",
            property=PRIMARY_KEY,
            policy=policy.value,
        )
    if primary_key_of(configuration, schema) and identities(schema):
        said = "rows with a primary key are replaced as a whole, and would get other numbers in an identity column; leave one out"
        raise InvalidRequest(f"{PRIMARY_KEY} is set: {said}", property=PRIMARY_KEY)
    features.refuse_reserved(configuration, schema)
    if features.is_on(configuration, CHANGE_DATA_FEED) and (taken := [name for name in CHANGE_COLUMN_NAMES if schema.get(name)]):
        raise InvalidRequest(
            f"{CHANGE_DATA_FEED} reserves the column names {', '.join(CHANGE_COLUMN_NAMES)}, but the table has {', '.join(taken)}; "
            "leave the property out, or rename the columns in a new table",
            property=CHANGE_DATA_FEED,
            columns=taken,
        )


def primary_key_of(configuration: Mapping[str, str], schema: StructType) -> tuple[str, ...]:
    """The columns of the primary key (`sluice.primaryKey`), as the schema spells them; () without one. Raises InvalidRequest."""
    text = configuration.get(PRIMARY_KEY)
    if text is None:
        return ()
    found: list[str] = []
    for name in (each.strip().strip("`") for each in text.split(",")):
        column = schema.get(name) if name else None
        if column is None:
            raise _no_key(text, f"there is no column {name!r}; the columns are {', '.join(schema.names)}")
        if column.nullable:
            raise _no_key(text, f"column {column.name!r} is nullable; a key is made of NOT NULL columns")
        if not isinstance(column.type, PrimitiveType) or not (column.type.name in _KEY_TYPES or column.type.is_decimal):
            raise _no_key(text, f"column {column.name!r} is {column.type}; use whole numbers, decimals, texts, dates, times")
        if column.name in found:
            raise _no_key(text, f"column {column.name!r} is named twice")
        found.append(column.name)
    return tuple(found)


def newest_key(metadata: Metadata, schema: StructType) -> tuple[str, ...]:
    """The columns in which a table with a primary key keeps only one row, within a partition as in MaxCompute; () without a key."""
    key = primary_key_of(metadata.configuration, schema)
    return (*key, *(name for name in metadata.partition_columns if name not in key)) if key else ()


def _no_key(text: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{PRIMARY_KEY} is {text!r}: {why}", property=PRIMARY_KEY, value=text)


def file_size_of(configuration: Mapping[str, str]) -> int:
    """The target size of data files in bytes (`delta.targetFileSize`, plain or with kb, mb, gb); 128 MiB by default."""
    size = configuration.get(_TARGET_FILE_SIZE_KEY)
    return TARGET_FILE_BYTES if size is None else int(RULES[_TARGET_FILE_SIZE_KEY].of_text(_TARGET_FILE_SIZE_KEY, size))


def indexed_columns_of(configuration: Mapping[str, str]) -> int:
    """How many columns get statistics (`delta.dataSkippingNumIndexedCols`); -1: all, 32 by default."""
    columns = configuration.get(_INDEXED_COLUMNS_KEY)
    return INDEXED_COLUMNS_DEFAULT if columns is None else int(RULES[_INDEXED_COLUMNS_KEY].of_text(_INDEXED_COLUMNS_KEY, columns))


def layout_of(metadata: Metadata, **more: Any) -> FileFormat:
    """How a table's new data files are written, as its properties say; `more` are other settings."""
    configuration = metadata.configuration
    settings = {"indexed_columns": indexed_columns_of(configuration), "target_file_bytes": file_size_of(configuration), **more}
    return FileFormat(metadata.schema, metadata.partition_columns, materialized=features.in_data_files(configuration), **settings)


# -- clustering ------------------------------------------------------------------------------------------------------------


def clustered_by(
    names: str | Iterable[str], schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> tuple[features.Path, ...]:
    """The columns of these names (`a`, or `a.b` in a struct), as the schema spells them; () for none.

    Raises InvalidRequest for columns by which a table cannot be clustered.
    """
    paths = tuple(path_of(name, schema) for name in ([names] if isinstance(names, str) else list(names)))
    check_clustering(paths, schema, partition_columns, configuration)
    return paths


def check_clustering(
    paths: Sequence[features.Path], schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> None:
    """Raise InvalidRequest unless a table of this schema can be clustered by these columns; by none every table can."""
    if not paths:
        return
    names = [features.dotted(path) for path in paths]
    if partition_columns:
        raise InvalidRequest(
            f"the table would be clustered by {', '.join(names)} and partitioned by {', '.join(partition_columns)}: choose one of them, "
            "and give the columns of both to it",
            columns=names,
        )
    if len(paths) > CLUSTER_COLUMNS_MAX:
        raise InvalidRequest(
            f"{', '.join(names)} are {len(paths)} columns to cluster by, and {CLUSTER_COLUMNS_MAX} are possible: leave out those that "
            "queries filter least by",
            columns=names,
        )
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise InvalidRequest(f"the table would be clustered by {twice} twice: name it once", column=twice)
    indexed = indexed_columns_of(configuration)
    every = {leaf.path: leaf for leaf in leaves(schema, (), -1)}
    known = {leaf.path for leaf in leaves(schema, (), indexed)}
    for path, name in zip(paths, names, strict=True):
        leaf = every.get(path)
        if leaf is None or leaf.kind is None:
            raise InvalidRequest(
                f"the table cannot be clustered by {name} of type {field_at(schema, path).type}, which has no lowest and highest value in "
                "the statistics of files: cluster by columns of numbers, dates, times or text",
                column=name,
            )
        if path not in known:
            raise InvalidRequest(
                f"the table cannot be clustered by {name}: files have statistics of the first {indexed} columns only "
                "(delta.dataSkippingNumIndexedCols); move the column forward, or raise the property",
                column=name,
            )


def clustering_names(snapshot: Snapshot) -> tuple[str, ...]:
    """The columns by which a version is clustered, as SQL writes them; () if it is not."""
    return tuple(features.dotted(path) for path in features.clustering_columns(snapshot.domains, snapshot.metadata.schema))


def first_clustering(names: str | Iterable[str], metadata: Metadata) -> tuple[DomainMetadata, ...]:
    """The domain of a new table that is clustered by these columns; none if there are no columns. Raises InvalidRequest."""
    paths = clustered_by(names, metadata.schema, metadata.partition_columns, metadata.configuration)
    return (features.clustering_domain(paths, metadata.schema),) if paths else ()


def path_of(name: object, schema: StructType) -> features.Path:
    """The path of the column `a`, or `a.b` in a struct, as the schema spells it. Raises InvalidRequest."""
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{name!r} is not the name of a column; give a text", column=name)
    if (whole := schema.get(name)) is not None:
        return (whole.name,)
    parts = [quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(name)]
    found: list[str] = []
    for depth in range(1, len(parts) + 1):
        found.append(field_at(schema, [*found, parts[depth - 1]]).name)
    return tuple(found)
