"""What the values of identity columns have to be: for the judges of production code, from the metadata and the data files of all versions.

Written against "Identity Columns" in PROTOCOL.md; shares no code with what it judges. A row keeps its value for all time, since nothing
that clients do changes it, and a key is never used for two rows. So a value that two keys have was given out twice.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

__all__ = ["COLUMN", "Counted", "Marked", "judge_numbers", "marked"]

COLUMN = "n"
"""The identity column of a table that has one."""


@dataclass(frozen=True)
class Marked:
    """The definition of the column in one version, and its high-water mark."""

    start: int
    step: int
    mark: int | None

    @property
    def covered(self) -> int:
        """How many values may have been given out, as the mark says."""
        return 0 if self.mark is None else (self.mark - self.start) // self.step + 1


def marked(metadata: Mapping[str, Any]) -> Marked | None:
    """The column as the metadata of a version have it; None in a table without."""
    for field in json.loads(metadata["schemaString"])["fields"]:
        told = field["metadata"]
        if field["name"] == COLUMN:
            return Marked(told["delta.identity.start"], told["delta.identity.step"], told.get("delta.identity.highWaterMark"))
    return None


class Counted(Protocol):
    """What is judged of a version."""

    @property
    def number(self) -> int: ...
    @property
    def marked(self) -> Marked | None:
        """The identity column, in a table that has one."""
        ...

    @property
    def numbers(self) -> Sequence[tuple[Hashable, int | None]]:
        """The rows of the files that it adds, with their values in that column."""
        ...

    @property
    def gives_away(self) -> bool:
        """Whether the table belongs to other engines from it on."""
        ...


def judge_numbers(versions: Sequence[Counted]) -> Iterator[str]:
    """No value is there twice or changes, each is `start + n * step`, and at every version the mark covers all that came so far."""
    value_of: dict[Hashable, int] = {}
    row_of: dict[int, Hashable] = {}
    highest = -1
    for version in versions:
        column = version.marked
        for uid, value in version.numbers:
            if column is None or value is None:
                yield f"numbers: row {uid} of version {version.number} has the value {value}, and the column is {column}"
                continue
            if value_of.setdefault(uid, value) != value:
                yield f"numbers: row {uid} has the value {value} from version {version.number} on, and had {value_of[uid]}"
            if row_of.setdefault(value, uid) != uid:
                yield f"numbers: the value {value} of row {uid} in version {version.number} is that of row {row_of[value]}, too"
            number, rest = divmod(value - column.start, column.step)
            if rest or number < 0:
                yield f"numbers: the value {value} in version {version.number} is none of {column}"
            highest = max(highest, number)
        if column is not None and column.covered <= highest:
            yield f"numbers: the mark {column.mark} of version {version.number} does not cover the number {highest}"
    for before, after in pairwise(versions):
        if before.marked is None or after.marked is None:
            if before.marked != after.marked:
                yield f"numbers: version {after.number} has another column than the one before it"
            continue
        same = (before.marked.start, before.marked.step) == (after.marked.start, after.marked.step)
        if not same or (after.marked.covered < before.marked.covered and not after.gives_away):
            yield f"numbers: {before.marked} became {after.marked} in version {after.number}"
