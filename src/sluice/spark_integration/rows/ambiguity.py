"""Rows of the target that several rows of the source change: which of them should win is not defined, so the merge is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame

from ...storage.data.vectors import Rows, decode_payload
from ...tables.write.merging import ambiguous, may_repeat
from .clauses import Clause
from .writer import NOTHING, Done

__all__ = ["require_unambiguous"]

_SHOWN: Final = 3


def require_unambiguous(done: Done, clauses: Sequence[Clause], pairs: Callable[[], DataFrame]) -> None:
    """Raise InvalidRequest, showing some of them, if rows were changed more than once: the tasks counted more changes than rows.

    A row that the only clause for matches, without a condition, deletes may be deleted several times. `pairs` makes a frame of the rows
    that are changed several times (`times`, `values`), which is read only to tell.
    """
    if may_repeat(clauses):
        return
    rows: dict[str, Rows] = {}
    for (what, file), payload in done.positions.items():
        if what == NOTHING:
            continue
        found = decode_payload(payload)
        rows[file] = rows[file] | found if file in rows else found
    changed = sum(map(len, rows.values()))
    if changed == done.changed:
        return
    raise ambiguous(done.changed, changed, [(row["values"].asDict(), row["times"]) for row in pairs().limit(_SHOWN).collect()])
