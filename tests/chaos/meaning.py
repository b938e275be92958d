"""What operations mean for rows, as data: written down before an operation is tried, and worked out again by the judge.

A row is an id with a partition and a value. Ids are unique for all time, and tell by which operation a row came: `<operation>/<n>`.
A step is one of::

    {"do": "append", "rows": [[id, part, value], ...]}
    {"do": "delete", "part": "p", "lo": 3, "hi": 7}                  the rows of p whose value is in [3, 7)
    {"do": "update", "part": "p", "lo": 3, "hi": 7, "add": 10}       their values grow by 10
    {"do": "update", "part": "p", "id": "account-3", "add": -5}
    {"do": "upsert", "rows": [...]}                                  by id; an id stays in its partition
    {"do": "overwrite", "part": "p", "rows": [...]}

A compaction has no steps: it changes no row.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Change", "Row", "Rows", "Step", "applied", "change_of", "digest", "note_of", "noted", "only_appends", "where"]

Row = tuple[str, int]
"""Partition and value."""

Rows = dict[str, Row]
"""By id."""

Step = Mapping[str, Any]


@dataclass
class Change:
    """What becomes of rows: those that go, or are replaced, as they were; and those that come, or replace others."""

    gone: Rows = field(default_factory=dict)
    come: Rows = field(default_factory=dict)


def applied(rows: Mapping[str, Row], steps: Sequence[Step]) -> Rows:
    """The rows after the steps, one after the other."""
    after = dict(rows)
    for step in steps:
        _apply(after, step)
    return after


def _apply(rows: Rows, step: Step) -> None:
    what = step["do"]
    if what == "overwrite":
        for name in [name for name, (part, _) in rows.items() if part == step["part"]]:
            del rows[name]
    elif what in ("delete", "update"):
        for name in _meant(rows, step):
            part, value = rows.pop(name)
            if what == "update":
                rows[name] = (part, value + step["add"])
    rows.update({name: (part, value) for name, part, value in step.get("rows", ())})


def _meant(rows: Rows, step: Step) -> list[str]:
    if "id" in step:
        return [step["id"]] if step["id"] in rows else []
    return [name for name, (part, value) in rows.items() if part == step["part"] and step["lo"] <= value < step["hi"]]


def where(step: Step) -> str:
    """The condition of a step in SQL."""
    condition = f"part = '{step['part']}'"
    if step["do"] == "overwrite":
        return condition
    return f"{condition} AND id = '{step['id']}'" if "id" in step else f"{condition} AND value >= {step['lo']} AND value < {step['hi']}"


def change_of(before: Mapping[str, Row], after: Mapping[str, Row]) -> Change:
    """What leads from one state to another."""
    return Change(
        {name: row for name, row in before.items() if after.get(name) != row},
        {name: row for name, row in after.items() if before.get(name) != row},
    )


_NOTE = re.compile(r"(\d+)([+-])(.*)", re.DOTALL)


def note_of(version: int, *, came: bool, name: str) -> str:
    """The id of the row by which a table that follows another one notes that a row came, or went, in a version."""
    return f"{version}{'+' if came else '-'}{name}"


def noted(notes: Mapping[str, Row]) -> dict[int, Change]:
    """What notes say of each version; a row that went and came as it was did neither. Raises ValueError for what is no note."""
    found: dict[int, Change] = {}
    for note, row in notes.items():
        parts = _NOTE.fullmatch(note)
        if parts is None:
            raise ValueError(note)
        change = found.setdefault(int(parts[1]), Change())
        (change.come if parts[2] == "+" else change.gone)[parts[3]] = row
    for change in found.values():
        for name in [name for name, row in change.come.items() if change.gone.get(name) == row]:
            del change.come[name], change.gone[name]
    return found


def only_appends(steps: Sequence[Step]) -> bool:
    """Whether steps read nothing."""
    return bool(steps) and all(step["do"] == "append" for step in steps)


def digest(rows: Iterable[tuple[str, str, int]]) -> str:
    """What tells one set of rows from another: (id, part, value), in any order, each as often as it is there."""
    text = "\n".join(sorted(f"{name}|{part}|{value}" for name, part, value in rows))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
