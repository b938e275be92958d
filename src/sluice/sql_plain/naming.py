"""Tables in the text of a query: other names in the places of theirs, and the versions of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..statements.relations import Relation
from ..tables.joint_transaction import read_together
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from .request import Edit

__all__ = ["at_one_moment", "edits_of", "parts_of"]


def edits_of(relation: Relation, view: str) -> list[Edit]:
    """The view's name in place of the table's; a table without an alias keeps its name as one."""
    plain = Edit(relation.start, relation.end, f"`{view}`")
    if relation.has_alias or relation.changes is not None or relation.name.path is not None:
        return [plain]
    alias = " AS `" + relation.name.parts[-1].replace("`", "``") + "`"
    if relation.alias_at == relation.end:
        return [Edit(relation.start, relation.end, plain.new + alias)]
    return [plain, Edit(relation.alias_at, relation.alias_at, alias)]


def parts_of(text: str) -> tuple[str, ...]:
    """The parts of a table's name in a string, such as the first argument of `table_changes`."""
    parts = text.split(".") if "`" not in text else [part.strip("`") for part in text.split(".", 1)]
    return tuple(part.replace("``", "`") for part in parts)


def at_one_moment(tables: Sequence[Table]) -> Mapping[str, TableSnapshot]:
    """The latest versions of several tables, at one moment."""
    by_location = {each.location: each for each in tables}
    if len(by_location) == 1:
        return {location: table.snapshot() for location, table in by_location.items()}
    return dict(zip(by_location, read_together(list(by_location.values())), strict=True)) if by_location else {}
