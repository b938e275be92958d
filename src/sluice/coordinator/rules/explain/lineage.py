"""Where the rows of compacted files went, for a case that does not say it.

A compaction of sluice keeps the order of rows and records where they went; cases written by hand do not. So a compaction in
a case is treated as one of sluice's, unless it says that it orders rows anew (z-order).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ....storage.actions import Action, AddFile, CommitInfo, RemoveFile
from ....storage.actions.lineage import Moved, moved_rows, with_moves
from ....storage.actions.wide_statistics import record_count

__all__ = ["is_z_order", "with_lineage"]

# The assumed number of rows of a file that does not say it.
_ROWS: Final = 1 << 20


def is_z_order(operation: str, actions: Sequence[Action] = ()) -> bool:
    """Whether an operation's name, or a commit's own parameters, say that rows were ordered anew."""
    info = next((each for each in actions if isinstance(each, CommitInfo)), None)
    parameters = info.fields.get("operationParameters") if info is not None else None
    columns = [parameters.get(name) for name in ("zOrderBy", "clusterBy")] if isinstance(parameters, Mapping) else []
    named = (operation, "" if info is None or info.operation is None else info.operation)
    return any(each not in (None, "", "[]", []) for each in columns) or any("ORDER" in name.upper() for name in named)


def with_lineage(actions: Sequence[Action], files: Mapping[str, AddFile]) -> tuple[tuple[Action, ...], frozenset[str]]:
    """The actions, with the new place of its rows in each removed source of a compaction; and the sources that did not say it.

    `files` are those of the table, for the number of their rows.
    """
    outputs = [each for each in actions if isinstance(each, AddFile) and not each.data_change]
    added = {each.path for each in actions if isinstance(each, AddFile)}
    filled: dict[str, int] = {}
    completed: list[Action] = []
    assumed: set[str] = set()
    for each in actions:
        if isinstance(each, RemoveFile) and not each.data_change and each.path not in added and moved_rows(each) is None and outputs:
            source = files.get(each.path)
            values = each.partition_values if source is None else source.partition_values
            output = next((add for add in outputs if add.partition_values == values), outputs[0])
            count = _live_rows(each, source)
            completed.append(with_moves(each, [Moved(output.path, 0, count, filled.get(output.path, 0))]))
            filled[output.path] = filled.get(output.path, 0) + count
            assumed.add(each.path)
        else:
            completed.append(each)
    return tuple(completed), frozenset(assumed)


def _live_rows(remove: RemoveFile, source: AddFile | None) -> int:
    count = record_count(remove.stats) or (None if source is None else record_count(source.stats))
    dead = 0 if remove.deletion_vector is None else remove.deletion_vector.cardinality
    return _ROWS if count is None else max(count - dead, 0)
