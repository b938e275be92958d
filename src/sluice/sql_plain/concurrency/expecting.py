"""IF VERSION: a statement that commits only as the version after the one that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ...statements.altering import Alter, DropPartitions
from ...statements.compound import Part
from ...statements.loading import Analyze, CopyInto, Reorganise, Repair
from ...statements.maintenance import Compact, Optimize, Restore
from ...statements.reading import IfVersion, Malformed, Other
from ...statements.rows import Delete, Insert, Merge, Truncate, Update
from ...statements.tables import Create
from ..request import Request

NOT_OURS: Final = "IF VERSION compares versions of a table of sluice, and this is none: leave it out"
_TAKE_IT: Final = (Insert, Update, Delete, Merge, Truncate, DropPartitions, Optimize, Compact, Reorganise, Restore, Repair, Analyze, Alter)
_INSTEAD: Final[Mapping[type, str]] = {
    Create: "one that makes a table has no version before it, and sluice.Table.replace(if_version=...) replaces one",
    CopyInto: "COPY INTO loads each file once, whatever the version: leave it out",
}
_OF_BLOCKS: Final = "write it before each statement of the block that is about such a table, after BEGIN ATOMIC"
_COMMIT_ONE: Final = (
    "this one commits no version of a table: leave it out, or write it before INSERT, UPDATE, DELETE, MERGE, TRUNCATE, ALTER TABLE, "
    "OPTIMIZE, COMPACT, REORG, RESTORE, FSCK REPAIR or ANALYZE"
)


def expected(asked: Request, clause: IfVersion) -> int:
    """The version after which the statement is to commit. Raises InvalidRequest, with the place, if it cannot take one."""
    statement = clause.statement
    if isinstance(statement, Malformed):
        raise asked.refused(statement.at, statement.message)
    if not isinstance(statement, _TAKE_IT) or (isinstance(statement, Alter) and statement.action == "rename"):
        is_block = isinstance(statement, Other) and statement.words[:2] == ("BEGIN", "ATOMIC")
        why = _OF_BLOCKS if is_block else _INSTEAD.get(type(statement), _COMMIT_ONE)
        raise asked.refused(clause.at, f"IF VERSION is for statements that commit to a table: {why}")
    version, _ = asked.moment(True, clause.version)
    assert version is not None
    return version


def expected_by(asked: Request, parts: Iterable[tuple[Part, Any]]) -> Iterator[tuple[Any, int]]:
    """The steps of a block that say a version, and that version. Raises InvalidRequest for two different ones of a table."""
    before: dict[str, int] = {}
    for part, step in parts:
        if isinstance(part.statement, IfVersion):
            version = expected(asked, part.statement)
            first = before.setdefault(step.table.location, version)
            if first != version:
                said = f"an earlier statement of the block says IF VERSION {first} of this table, and a block is one commit: give one"
                raise asked.refused(part.statement.at, said)
            yield step, version
