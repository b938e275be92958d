"""Rows of the target that several rows of the source change: which of them should win is not defined, so the merge is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame

from ...storage.data.vectors import Rows, decode_payload
from ...storage.errors import InvalidRequest
from .clauses import MATCHED, Clause
from .writer import NOTHING, Done

__all__ = ["require_unambiguous"]

_SHOWN: Final = 3
_SHOWN_CHARACTERS: Final = 200


def require_unambiguous(done: Done, clauses: Sequence[Clause], pairs: Callable[[], DataFrame]) -> None:
    """Raise InvalidRequest, showing some of them, if rows were changed more than once: the tasks counted more changes than rows.

    A row that the only clause for matches, without a condition, deletes may be deleted several times. `pairs` makes a frame of the rows
    that are changed several times (`times`, `values`), which is read only to tell.
    """
    matched = [clause for clause in clauses if clause.matched == MATCHED]
    if len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None:
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
    shown = [_shown(row["values"].asDict(), row["times"]) for row in pairs().limit(_SHOWN).collect()]
    raise InvalidRequest(
        f"several rows of the source change the same row of the table ({done.changed} changes of {changed} rows), so it is unclear "
        f"which of them counts: {'; '.join(shown)}. Give each key once, or add conditions that choose one row",
        rule="ambiguous-merge",
        rows=shown,
    )


def _shown(values: dict[str, object], times: int) -> str:
    text = ", ".join(f"{name} = {value!r}" for name, value in values.items())
    return f"{text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + '...'} ({times} times)"
