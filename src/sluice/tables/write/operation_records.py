"""What operations come to, as the history tells it: names, parameters, metrics, and what they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import orjson

from ...coordinator.rules.footprint import OWN_PARTITIONS
from ...coordinator.rules.operation_kinds import Kind
from ...storage.actions import AddFile
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from .change import Reads
from .draft import Finished
from .row_counts import row_count

__all__ = ["Step", "operation_of", "reads_of", "scope_of", "told", "written"]

_STRICTEST = (Kind.CHANGE, Kind.OVERWRITE, Kind.APPEND, Kind.OTHER, Kind.MAJOR, Kind.MINOR)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a transaction. `operation`, `parameters` and `metrics` are named as Delta names them.

    `reads` is None for what read nothing: a plain append. `scope` is what an overwrite replaces ("" is the whole table).
    """

    operation: str
    kind: Kind
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    reads: Reads | None = None
    scope: str | None = None


def written(files: Sequence[AddFile]) -> dict[str, int]:
    """The metrics of rows that were written."""
    return {"numFiles": len(files), "numOutputRows": row_count(files), "numOutputBytes": sum(f.size for f in files)}


def operation_of(steps: Sequence[Step]) -> tuple[Kind, str, dict[str, str]]:
    """What sort of operation the steps are together (the strictest among them), its name and its parameters."""
    kind = min((step.kind for step in steps), key=_STRICTEST.index, default=Kind.OTHER)
    if len(steps) == 1:
        return kind, steps[0].operation, dict(steps[0].parameters)
    listed = [{"operation": step.operation, **step.parameters} for step in steps]
    return kind, "TRANSACTION", {"operations": orjson.dumps(listed).decode()}


def scope_of(steps: Sequence[Step]) -> str | None:
    """What the overwrites among the steps replace together; None unless an overwrite is the strictest of them."""
    if operation_of(steps)[0] is not Kind.OVERWRITE:
        return None
    if all(step.parameters.get("partitionOverwriteMode") == "dynamic" for step in steps):
        return OWN_PARTITIONS
    scopes = list(dict.fromkeys(step.scope for step in steps if step.scope is not None))
    return "" if "" in scopes or not scopes else scopes[0] if len(scopes) == 1 else " OR ".join(f"({scope})" for scope in scopes)


def reads_of(parts: Iterable[Reads | None]) -> Reads | None:
    """All that was read; None when nothing was."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    rows: dict[str, Rows] = {}
    for part in found:
        for path, read in part.rows.items():
            rows[path] = rows[path] | read if path in rows else read
    return Reads(
        predicates=tuple(dict.fromkeys(p for part in found for p in part.predicates)),
        files=None if any(part.files is None for part in found) else tuple(dict.fromkeys(f for part in found for f in part.files or ())),
        rows=rows,
        locks=tuple(dict.fromkeys(p for part in found for p in part.locks)),
        whole_table=any(part.whole_table for part in found),
        apps=tuple(dict.fromkeys(a for part in found for a in part.apps)),
    )


def told(steps: Sequence[Step], finished: Finished) -> dict[str, str]:
    """The metrics of a commit: what the steps counted, and what became of the files."""
    total: dict[str, int] = {}
    for step in steps:
        for name, value in step.metrics.items():
            total[name] = total.get(name, 0) + value
    merges = len(steps) == 1 and steps[0].operation == "MERGE"
    if merges or any(step.reads is not None for step in steps):
        total.update(_of_files(finished, "numTarget" if merges else "num"))
    return {name: str(value) for name, value in total.items()}


def _of_files(finished: Finished, prefix: str) -> dict[str, int]:
    """MERGE says `numTargetFilesAdded` where the others say `numAddedFiles`."""
    merges = prefix != "num"
    return {
        f"{prefix}FilesRemoved" if merges else "numRemovedFiles": finished.removed,
        f"{prefix}FilesAdded" if merges else "numAddedFiles": len(finished.added),
        f"{prefix}RowsCopied" if merges else "numCopiedRows": finished.copied_rows,
        f"{prefix}DeletionVectorsAdded": finished.vectors_added,
        f"{prefix}DeletionVectorsUpdated": finished.vectors_updated,
        f"{prefix}DeletionVectorsRemoved": finished.vectors_removed,
    }
