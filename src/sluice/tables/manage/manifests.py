"""GENERATE: manifests that list a table's files, for engines that read files by lists (Presto, Athena, Redshift: "symlink format").

`_symlink_format_manifest/<partition folders>/manifest` has the absolute URI of each file, one a line. A manifest is of the version it
was made of; nothing of it is part of the log.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ...storage.actions.uris import absolute
from ...storage.errors import InvalidRequest, UnsupportedFeature
from ...storage.log.snapshot import Snapshot
from ...storage.schema.partitions import folder, uri_to_path
from ...storage.stores.objects import ObjectStore

MODE: Final = "symlink_format_manifest"
_FOLDER: Final = "_symlink_format_manifest/"
_NAME: Final = "manifest"


def generate(store: ObjectStore, snapshot: Snapshot, mode: str) -> int:
    """Write the manifests of a version, and remove those of partitions without files; returns how many there are.

    Raises InvalidRequest for an unknown mode, UnsupportedFeature for a table with deletion vectors: a list of files cannot say
    which rows are deleted.
    """
    if mode != MODE:
        raise InvalidRequest(f"the mode is {mode!r}; use {MODE!r}", mode=mode)
    if snapshot.files["deletion_vector"].null_count < snapshot.num_files:
        raise UnsupportedFeature(
            f"files of {snapshot.location} have deletion vectors, and who reads files by a list would read deleted rows: compact('major') "
            "first, with delta.enableDeletionVectors off",
            features=("deletionVectors",),
            access="read",
        )
    listed: dict[str, list[str]] = defaultdict(list)
    for add in snapshot.add_files():
        below = folder(snapshot.partition_columns, add.partition_values)
        listed[f"{_FOLDER}{below}/{_NAME}" if below else f"{_FOLDER}{_NAME}"].append(
            absolute(snapshot.location, add.path) or f"{snapshot.location}/{uri_to_path(add.path)}"
        )
    if not snapshot.partition_columns and not listed:
        listed[f"{_FOLDER}{_NAME}"] = []
    for key, files in listed.items():
        store.put(key, "".join(f"{file}\n" for file in sorted(files)).encode())
    for each in list(store.list_from(_FOLDER, recursive=True)):
        if each.key not in listed:
            store.delete(each.key)
    return len(listed)
