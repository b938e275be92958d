"""Names in statements: replaces names of tables, finds the tables' versions at one moment, refuses unknown columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from ..statements.cursor import Name, Span
from ..statements.relations import Relation
from ..storage.errors import InvalidRequest
from ..storage.schema.datatypes import StructType
from ..tables.joint_transaction import read_together
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from .request import Edit, Request


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


def unknown_column(asked: Request, at: Span | Name, name: str, schema: StructType) -> InvalidRequest:
    """The refusal of a column that a table lacks."""
    known = {each.lower(): each for each in schema.names}
    near = [known[each] for each in get_close_matches(name.lower(), known, 3, 0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"its columns are {', '.join(schema.names)}"
    return asked.refused(at, f"column {name!r} is not in the table; {hint}")
