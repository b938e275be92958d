"""All mutations, and the table of them in docs/mutations.md."""

from __future__ import annotations

from typing import Final

from . import commits, decisions, foreign, garbage, joints, leases, releases
from .mutation import Mutation

__all__ = ["MUTATIONS", "table"]

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *commits.MUTATIONS,
    *decisions.MUTATIONS,
    *leases.MUTATIONS,
    *joints.MUTATIONS,
    *garbage.MUTATIONS,
    *releases.MUTATIONS,
    *foreign.MUTATIONS,
)


def table() -> str:
    """The table of docs/mutations.md, one line for each mutation."""
    head = "| mutation | breaks | what happens then | caught by |\n|---|---|---|---|"
    return "\n".join([head, *map(_line, MUTATIONS)])


def _line(mutation: Mutation) -> str:
    noticed = [f"`{name.rpartition('::')[2].partition('[')[0]}`" for name in mutation.tests]
    noticed += [f"small world {name}" for name in mutation.worlds]
    noticed += ["simulator"] if mutation.seeds else []
    by = ", ".join(dict.fromkeys(noticed)) or f"nobody: {mutation.accepted}"
    return f"| {mutation.name} | {mutation.breaks} | {mutation.what} | {by} |"
