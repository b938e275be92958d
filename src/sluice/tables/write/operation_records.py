"""How the history describes operations: names, parameters, metrics, and what they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import orjson

from ...coordinator.api import Reads
from ...coordinator.rules.intent import OWN_PARTITIONS, Kind
from ...storage.actions import AddFile
from ...storage.actions.records import live_count
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from .data_writing import WritePlan
from .draft import Draft, Finished

_COMPACTIONS = (Kind.MAJOR, Kind.MINOR)
_STRICTEST = (Kind.CHANGE, Kind.OVERWRITE, Kind.APPEND, Kind.OTHER, *_COMPACTIONS)


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a transaction. `operation`, `parameters` and `metrics` have Delta's names."""

    operation: str
    kind: Kind
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    reads: Reads | None = None
    """What it read of the table; None if nothing: a plain append."""
    scope: str | None = None
    """What an overwrite replaces ("" is the whole table)."""
    changes: bool = True
    """Whether it changed something: the history shows no others."""

    @staticmethod
    def reading(operation: str, reads: Reads | None) -> Step:
        """One that only reads."""
        return Step(operation, Kind.OTHER, reads=reads, changes=False)


@dataclass(frozen=False)
class RowOperation:
    """An operation of an open transaction in which another engine changes rows."""

    draft: Draft
    """The table as the transaction sees it, in which the changes are made."""
    plan: WritePlan
    """How new rows are written; it adds no columns."""
    label: str
    """Distinguishes the operation's files from those of others of its transaction."""
    step: Step
    """What the operation did and read, which is set at last; the transaction takes it when the block ends."""


def row_count(adds: Iterable[AddFile]) -> int:
    """The number of remaining rows in files, by their statistics; a file without statistics counts none."""
    return sum(live_count(add) or 0 for add in adds)


def written(files: Sequence[AddFile]) -> dict[str, int]:
    """The metrics of written rows."""
    return {"numFiles": len(files), "numOutputRows": row_count(files), "numOutputBytes": sum(f.size for f in files)}


def operation_of(steps: Sequence[Step]) -> tuple[Kind, str, dict[str, str]]:
    """The kind of the steps together (the strictest among them), its name and its parameters."""
    kind = min((step.kind for step in steps), key=_STRICTEST.index, default=Kind.OTHER)
    if len(steps) == 1:
        return kind, steps[0].operation, dict(steps[0].parameters)
    listed = [{"operation": step.operation, **step.parameters} for step in steps]
    return kind, "TRANSACTION", {"operations": orjson.dumps(listed).decode()}


def scope_of(steps: Sequence[Step]) -> str:
    """The scope that the steps replace together, of which an overwrite is the strictest."""
    if all(step.parameters.get("partitionOverwriteMode") == "dynamic" for step in steps):
        return OWN_PARTITIONS
    scopes = list(dict.fromkeys(step.scope for step in steps if step.scope is not None))
    return "" if "" in scopes or not scopes else scopes[0] if len(scopes) == 1 else " OR ".join(f"({scope})" for scope in scopes)


def reads_of(parts: Iterable[Reads | None]) -> Reads | None:
    """Everything that was read; None if nothing was."""
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


def told(steps: Sequence[Step], finished: Finished, change_files: int, worked_ms: int) -> dict[str, str]:
    """The metrics of a commit: the steps' counts and, unless they only append or compact, its files and how long the steps took."""
    total: dict[str, int] = {}
    merges = len(steps) == 1 and steps[0].operation == "MERGE"
    counts = [step.metrics for step in steps]
    if merges or any(step.reads is not None and step.kind not in _COMPACTIONS for step in steps):
        counts += [_of_files(finished, change_files, merges=merges), {"executionTimeMs": max(worked_ms, 0)}]
    for each in counts:
        for name, value in each.items():
            total[name] = total.get(name, 0) + value
    return {name: str(value) for name, value in total.items()}


def _of_files(finished: Finished, change_files: int, *, merges: bool) -> dict[str, int]:
    """MERGE says `numTargetFilesAdded` where others say `numAddedFiles`."""
    added = len(finished.added), sum(add.size for add in finished.added)
    removed = finished.removed, finished.removed_bytes
    if merges:
        files = {
            "numTargetFilesAdded": added[0],
            "numTargetBytesAdded": added[1],
            "numTargetFilesRemoved": removed[0],
            "numTargetBytesRemoved": removed[1],
            "numTargetChangeFilesAdded": change_files,
            "numTargetRowsCopied": finished.copied_rows,
        }
    else:
        files = {
            "numAddedFiles": added[0],
            "numAddedBytes": added[1],
            "numRemovedFiles": removed[0],
            "numRemovedBytes": removed[1],
            "numAddedChangeFiles": change_files,
            "numCopiedRows": finished.copied_rows,
        }
    prefix = "numTarget" if merges else "num"
    return files | {
        f"{prefix}DeletionVectorsAdded": finished.vectors_added,
        f"{prefix}DeletionVectorsUpdated": finished.vectors_updated,
        f"{prefix}DeletionVectorsRemoved": finished.vectors_removed,
    }
