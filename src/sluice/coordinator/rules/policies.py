"""MaxCompute's conflict policies: which pairs of operations on one partition can both commit.

MaxCompute decides by classes of operations, not by files or rows: of two transactions that touch a common partition (a table
without partitions is one), the matrix of the table's family says whether the one that ends later succeeds. The matrices
below are those of MaxCompute's documentation, cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

import orjson

from ...storage.actions import AddFile, RemoveFile
from .intent import ConflictPolicy, Kind
from .winner import Footprint, Winner, partition_key

OK: Final = "ok"
"""Both commit."""
REPLACES: Final = "later replaces"
"""Both commit, and the later one removes what the earlier one left in its partitions."""
REFUSED: Final = "refused"
"""The later one gets a PolicyConflictException."""

_Matrix = Mapping[tuple[str, str], str]

_ORDINARY: Final = """
| earlier \\ later  | OVERWRITE      | INSERT  | UPDATE_DELETE | SMALL_FILE_MERGE |
| OVERWRITE        | later replaces | ok      | refused       | refused          |
| INSERT           | later replaces | ok      | refused       | refused          |
| UPDATE_DELETE    | later replaces | ok      | refused       | refused          |
| SMALL_FILE_MERGE | later replaces | ok      | refused       | refused          |
"""

_DELTA: Final = """
| earlier \\ later  | OVERWRITE      | INSERT  | UPDATE_DELETE | MINOR_COMPACT | MAJOR_COMPACT |
| OVERWRITE        | later replaces | refused | refused       | refused       | refused       |
| INSERT           | later replaces | refused | refused       | ok            | refused       |
| UPDATE_DELETE    | later replaces | refused | refused       | ok            | refused       |
| MINOR_COMPACT    | later replaces | ok      | ok            | refused       | ok            |
| MAJOR_COMPACT    | later replaces | ok      | ok            | refused       | refused       |
"""


def _matrix(table: str) -> _Matrix:
    head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines())
    return MappingProxyType({(row[0], later): cell for row in rows for later, cell in zip(head[1:], row[1:], strict=True)})


MATRICES: Final[Mapping[ConflictPolicy, _Matrix]] = MappingProxyType(
    {
        ConflictPolicy.MAXCOMPUTE_TABLE: _matrix(_ORDINARY),
        ConflictPolicy.MAXCOMPUTE_TRANSACTIONAL: _matrix(_ORDINARY),
        ConflictPolicy.MAXCOMPUTE_DELTA: _matrix(_DELTA),
    }
)
"""For each policy: (word of the earlier operation, word of the later one) -> OK, REPLACES or REFUSED."""

_WORDS: Final = {Kind.APPEND: "INSERT", Kind.OVERWRITE: "OVERWRITE", Kind.CHANGE: "UPDATE_DELETE"}
_COMPACTIONS: Final[Mapping[ConflictPolicy, Mapping[Kind, str]]] = {
    ConflictPolicy.MAXCOMPUTE_TABLE: dict.fromkeys((Kind.MINOR, Kind.MAJOR), "SMALL_FILE_MERGE"),
    ConflictPolicy.MAXCOMPUTE_TRANSACTIONAL: dict.fromkeys((Kind.MINOR, Kind.MAJOR), "SMALL_FILE_MERGE"),
    ConflictPolicy.MAXCOMPUTE_DELTA: {Kind.MINOR: "MINOR_COMPACT", Kind.MAJOR: "MAJOR_COMPACT"},
}


def word_of(policy: ConflictPolicy, kind: Kind) -> str | None:
    """The policy's word for a kind of operation; None if its matrix does not have it."""
    return _WORDS.get(kind) or _COMPACTIONS.get(policy, {}).get(kind)


def outcome(policy: ConflictPolicy, earlier: Kind, later: Kind) -> str:
    """The matrix's cell for two operations on one partition; OK under Delta's policy and for kinds outside the matrix."""
    pair = word_of(policy, earlier), word_of(policy, later)
    return OK if policy not in MATRICES or pair[0] is None or pair[1] is None else MATRICES[policy][pair[0], pair[1]]


def common_partition(mine: Footprint, winner: Winner) -> str | None:
    """A partition that I touch and in which the winner added or removed files, or None; a removed file without values may be of any."""
    if mine.partitions is not None and not mine.partitions:
        return None
    own = None if mine.partitions is None else frozenset(mine.partitions)
    files: Iterable[AddFile | RemoveFile] = chain(winner.adds, winner.removed.values())
    for values in (file.partition_values for file in files):
        if values is None:
            return min(own) if own else "{}"
        key = partition_key(values)
        if own is None or key in own:
            return key
    return None


def conflicting_class(mine: Footprint, winner: Winner) -> str | None:
    """The winner's operation and partition ("INSERT, which came first in partition p=1"), or None if my policy lets both commit."""
    policy = ConflictPolicy(mine.policy)
    if outcome(policy, winner.kind, Kind(mine.kind)) != REFUSED:
        return None
    key = common_partition(mine, winner)
    if key is None:
        return None
    values = orjson.loads(key)
    where = f"partition {'/'.join(f'{name}={value}' for name, value in values.items())}" if values else "the table"
    return f"{word_of(policy, winner.kind)}, which came first in {where}"
