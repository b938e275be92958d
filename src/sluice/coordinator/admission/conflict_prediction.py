"""Whether two operations that have not run would conflict. What is unknown counts as possible: a refusal means that they may, ok that they
cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import Action, AddFile, CommitInfo, RemoveFile
from ...storage.actions.features import deletion_vectors
from ...storage.actions.filetable import adds_of, picked
from ...storage.caches import LazyProperty
from ...storage.data.vectors import Rows, plan_vector
from ...storage.dataclass import dataclass
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.mapping import is_mapped, physical
from ...storage.schema.schema import StructType
from ..leases.scopes import overlap
from ..rules.conflicts import RULES
from ..rules.explain.cases import Case, Read
from ..rules.explain.decision import Explanation, explain
from ..rules.intent import IsolationLevel, table_policy

_FILES_MAX: Final = 256
"""Files that are compared of those that both operations change, and of those that only one does."""
_PARTITIONS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The reads and writes of an operation that has not run. Conditions are SQL over the table's rows; "" is any row, None is none.

    `operation` is a name that `rules.explain` knows. It `reads` rows, `removes` or changes some (`whole_files`: whatever is in their
    files), and `adds` rows that satisfy a condition. A compaction does not change data.
    """

    operation: str
    reads: str | None = None
    removes: str | None = None
    adds: str | None = None
    whole_files: bool = False
    changes_data: bool = True


class ForeseenTable:
    """The table that the operations would find."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._schema: StructType = physical(snapshot.metadata.schema)
        self._by_rows = deletion_vectors(snapshot.protocol, snapshot.metadata)
        self._by_classes = table_policy(snapshot.configuration).by_classes

    def meets(self, mine: Foreseen, theirs: Foreseen, level: IsolationLevel) -> Explanation:
        """The verdict on `mine` if it were compared with `theirs`, committed after mine had read."""
        mine, theirs = self._in_files(mine), self._in_files(theirs)
        changed = [self._touched(each.removes) for each in (mine, theirs)]
        by_both, by_me, by_them = (
            [replace(add, deletion_vector=None) for add in adds_of(picked(self._snapshot.files, mask).slice(0, _FILES_MAX))]
            for mask in (pc.and_(*changed), pc.and_not(*changed), pc.and_not(*reversed(changed)))
        )
        reads = [] if mine.reads is None else [Read("filterFiles", predicates=(mine.reads,) if mine.reads else ())]
        new: list[dict[str, str | None]] = []
        if self._by_classes:
            new = self._places(theirs.adds)
        elif self._may_overlap(theirs.adds, mine.reads):
            # Rows that I read may go to partitions that do not exist yet.
            new = [place for place in self._places(theirs.adds) if self._may_overlap(mine.reads, self._inside(place))] or [{}]
            reads.append(Read("partitionsOf", partitions=tuple(new)))
        row = 0 if self._may_overlap(mine.removes, theirs.removes) else 1
        blind = theirs.reads is None and theirs.removes is None
        case = Case(
            name="",
            schema=self._schema,
            partition_columns=self._snapshot.metadata.physical_partitions,
            isolation=level,
            policy=None,
            setup=(self._snapshot.protocol, self._snapshot.metadata.physical, *by_both, *by_me, *by_them),
            reads=tuple(reads),
            winning_commits=(
                (CommitInfo({"operation": theirs.operation, "isBlindAppend": blind}), *self._actions(theirs, [*by_both, *by_them], 0, new)),
            ),
            winning_operation=theirs.operation,
            own_actions=self._actions(mine, [*by_both, *by_me], row, self._places(mine.adds)),
            own_operation=mine.operation,
        )
        explanation = explain(case)
        if explanation.verdict == "ok" and not case.own_actions:
            return replace(explanation, because="it changes nothing in the table as it is now")
        return explanation

    def _in_files(self, of: Foreseen) -> Foreseen:
        """The operation with its conditions over columns of files."""
        schema = self._snapshot.metadata.schema
        if not is_mapped(schema):
            return of
        reads, removes, adds = (sql and Predicate.parse(sql, schema).physical(schema).to_sql() for sql in (of.reads, of.removes, of.adds))
        return replace(of, reads=reads, removes=removes, adds=adds)

    def _actions(self, of: Foreseen, files: Sequence[AddFile], row: int, new: Sequence[Mapping[str, str | None]]) -> tuple[Action, ...]:
        """Its actions on these files, each of which loses the row of that number, and `new` files in these partitions."""
        actions: list[Action] = []
        for number, add in enumerate(files):
            actions.append(RemoveFile(add.path, of.changes_data, partition_values=add.partition_values, size=add.size, stats=add.stats))
            if not of.changes_data:
                actions.append(replace(add, path=f"compacted-{number}", data_change=False))
            elif self._by_rows and not of.whole_files:
                vector, _ = plan_vector(Rows([row]), owner="foreseen")
                actions.append(replace(add, deletion_vector=vector))
            elif not of.whole_files:
                stats = add.stats if of.adds is None else None
                actions.append(replace(add, path=f"{of.operation.lower()}-{number}", stats=stats))
        return (*actions, *(AddFile(f"new-{number}", place, 1, 0, True) for number, place in enumerate(new)))

    def _places(self, condition: str | None) -> list[dict[str, str | None]]:
        """The partitions that may have rows which satisfy the condition."""
        return [place for place in self._partitions if self._may_overlap(condition, self._inside(place))]

    @LazyProperty
    def _partitions(self) -> list[dict[str, str | None]]:
        if not self._snapshot.partition_columns:
            return [{}]
        found: dict[tuple[tuple[str, str | None], ...], None] = {}
        for add in adds_of(self._snapshot.files):
            found[tuple(sorted(add.partition_values.items()))] = None
            if len(found) == _PARTITIONS_MAX:
                break
        return [dict(each) for each in found]

    def _inside(self, place: dict[str, str | None]) -> str:
        return Predicate.in_partitions([place], self._schema).to_sql() if place else ""

    def _touched(self, condition: str | None) -> pa.BooleanArray:
        """For each file, whether it may have rows that satisfy the condition."""
        files = self._snapshot.files
        if not condition:
            return pa.repeat(condition is not None, files.num_rows)
        columns = self._snapshot.metadata.physical_partitions
        return Predicate.parse(condition, self._schema).may_match(files, schema=self._schema, partition_columns=columns)

    def _may_overlap(self, one: str | None, other: str | None) -> bool:
        """Whether a row may satisfy both."""
        if one is None or other is None:
            return False
        if not one or not other:
            return True
        return overlap(Predicate.parse(one, self._schema).root, Predicate.parse(other, self._schema).root, self._schema)


def advice_of(rule: str | None) -> str | None:
    """The advice that avoids a refusal by this rule."""
    return next((each.advice for each in RULES if each.name == rule), None)
