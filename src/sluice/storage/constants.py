"""Names and widths of the Delta protocol, and defaults, needed in several files (PROTOCOL.md; section names in the comments)."""

from __future__ import annotations

from typing import Final

# The codec of data files, unless the writer names one.
COMPRESSION: Final = "zstd"

# "File Types": a table's whole history is below one folder.
LOG_FOLDER: Final = "_delta_log/"
SIDECAR_FOLDER: Final = LOG_FOLDER + "_sidecars/"
# Throw-away objects that probe a store's abilities; every Delta reader skips the name.
PROBE_PREFIX: Final = LOG_FOLDER + "_sluice_probe-"
STAGED_FOLDER: Final = LOG_FOLDER + "_staged_commits/"
LAST_CHECKPOINT: Final = LOG_FOLDER + "_last_checkpoint"

# "Change Data Files"
CHANGE_DATA_FOLDER: Final = "_change_data/"
# Columns that readers of changes get beside the table's own.
CHANGE_COLUMN_NAMES: Final = ("_change_type", "_commit_version", "_commit_timestamp")

# Versions are zero-padded, so that names sort like versions.
VERSION_DIGITS: Final = 20
CHECKPOINT_PART_DIGITS: Final = 10

# Every number of an action is a signed 64-bit long.
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
VERSION_MAX: Final = LONG_MAX
assert len(str(VERSION_MAX)) <= VERSION_DIGITS

# Types inside of types: beyond it Arrow hands no schema over, or reads no file of what it wrote.
NESTING_MAX: Final = 40

# "In-Commit Timestamps"
ICT_ENABLED_KEY: Final = "delta.enableInCommitTimestamps"
ICT_ENABLEMENT_VERSION_KEY: Final = "delta.inCommitTimestampEnablementVersion"
ICT_ENABLEMENT_TIMESTAMP_KEY: Final = "delta.inCommitTimestampEnablementTimestamp"

# How long a tombstone outlives the removal of its file; one week by default.
DELETED_FILE_RETENTION_KEY: Final = "delta.deletedFileRetentionDuration"
DELETED_FILE_RETENTION_DEFAULT_MS: Final = 7 * 24 * 3600 * 1000

# "V2 Checkpoint Table Feature": "v2" lets checkpoints share files.
CHECKPOINT_POLICY_KEY: Final = "delta.checkpointPolicy"

# "Deletion Vectors": whether new ones may be written.
DELETION_VECTORS_KEY: Final = "delta.enableDeletionVectors"

# The table's coordinator, and its address when it took the table on.
COORDINATOR_KEY: Final = "sluice.coordinator"
ADDRESS_KEY: Final = "sluice.coordinatorAddress"

# The table's name at its coordinator, "" if it was taken away; when it got it; whether the catalog chose its location.
NAME_KEY: Final = "sluice.name"
NAMED_MS_KEY: Final = "sluice.namedMs"
MANAGED_KEY: Final = "sluice.managed"
