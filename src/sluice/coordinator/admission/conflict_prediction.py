"""Whether two operations that have not run would conflict: their footprints, as far as their conditions tell, before the rules.

What is unknown counts as possible, so "ok" means that they cannot conflict, and a refusal that they may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from ...storage.actions import Action, AddFile, CommitInfo, RemoveFile
from ...storage.actions.features import deletion_vectors
from ...storage.actions.filetable import adds_of, picked
from ...storage.data.vectors import Rows, plan_vector
from ...storage.dataclass import dataclass
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import StructType, parse_schema
from ..leases.scopes import overlap
from ..rules.conflicts import RULES
from ..rules.explain.cases import Case, Read
from ..rules.explain.decision import Explanation, explain
from ..rules.isolation import IsolationLevel, table_policy

_FILES_MAX: Final = 256
"""Files of one operation that are compared; those that both concern come first."""
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
        self._schema: StructType = parse_schema(snapshot.metadata.schema_string)
        self._by_rows = deletion_vectors(snapshot.protocol, snapshot.metadata)
        self._by_classes = table_policy(snapshot.configuration).by_classes

    def meets(self, mine: Foreseen, theirs: Foreseen, level: IsolationLevel) -> Explanation:
        """The verdict on `mine` if it were compared with `theirs`, committed after mine had read."""
        unknown = not self._by_classes and self._adds_elsewhere(mine, theirs)
        shown = () if unknown else self._snapshot.partition_columns
        first = {add.path for add in self._files(mine.removes)}
        files = {add.path: add for add in (*self._files(theirs.removes), *self._files(mine.removes))}
        kept = sorted(files.values(), key=lambda add: (add.path not in first, add.path))[: 2 * _FILES_MAX]
        setup = [replace(add, deletion_vector=None) for add in kept]
        setup = [replace(add, partition_values={}, stats=None) for add in setup] if unknown else setup
        same = self._may_overlap(mine.removes, theirs.removes)
        winner = self._actions(theirs, setup, 0, mine, unknown=unknown)
        blind = theirs.reads is None and theirs.removes is None
        case = Case(
            name="",
            schema=self._schema,
            partition_columns=shown,
            isolation=level,
            policy=None,
            setup=(self._snapshot.protocol, replace(self._snapshot.metadata, partition_columns=shown), *setup),
            reads=() if mine.reads is None else (Read("filterFiles", predicates=(mine.reads,) if mine.reads else ()),),
            winning_commits=((CommitInfo({"operation": theirs.operation, "isBlindAppend": blind}), *winner),),
            winning_operation=theirs.operation,
            own_actions=self._actions(mine, setup, 0 if same else 1, None, unknown=unknown),
            own_operation=mine.operation,
        )
        told = explain(case)
        if told.verdict == "ok" and not case.own_actions:
            return replace(told, because="it changes nothing in the table as it is now")
        return told

    def _actions(self, of: Foreseen, setup: Sequence[AddFile], row: int, reader: Foreseen | None, *, unknown: bool) -> tuple[Action, ...]:
        """Its actions on these files; each changed file loses the row of that number. New rows that a `reader` cannot see are left out."""
        mine = {add.path for add in self._files(of.removes)}
        found: list[Action] = []
        for number, add in enumerate(each for each in setup if each.path in mine):
            found.append(RemoveFile(add.path, of.changes_data, partition_values=add.partition_values, size=add.size, stats=add.stats))
            if not of.changes_data:
                found.append(replace(add, path=f"compacted-{number}", data_change=False))
            elif of.whole_files:
                continue
            elif self._by_rows:
                vector, _ = plan_vector(Rows([row]), owner="foreseen")
                found.append(replace(add, deletion_vector=vector))
            else:
                stats = add.stats if of.adds is None else None
                found.append(replace(add, path=f"{of.operation.lower()}-{number}", stats=stats))
        if of.adds is None or (reader is not None and not self._by_classes and not self._may_overlap(of.adds, reader.reads)):
            return tuple(found)
        places = [{}] if unknown else self._places(of.adds)
        found += [AddFile(f"new-{number}", place, 1, 0, True) for number, place in enumerate(places)]
        return tuple(found)

    def _adds_elsewhere(self, mine: Foreseen, theirs: Foreseen) -> bool:
        """Whether the winner may add rows that are read to partitions that do not exist yet."""
        if not self._snapshot.partition_columns or theirs.adds is None or not self._may_overlap(theirs.adds, mine.reads):
            return False
        return not any(self._may_overlap(mine.reads, self._inside(place)) for place in self._places(theirs.adds))

    def _places(self, condition: str) -> list[dict[str, str | None]]:
        """The partitions that may have rows which satisfy the condition."""
        return [place for place in self._partitions if self._may_overlap(condition, self._inside(place))]

    @cached_property
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

    def _files(self, condition: str | None) -> list[AddFile]:
        if condition is None:
            return []
        files = self._snapshot.files
        if condition:
            predicate = Predicate.parse(condition, self._schema)
            files = picked(files, predicate.may_match(files, schema=self._schema, partition_columns=self._snapshot.partition_columns))
        return list(adds_of(files.slice(0, _FILES_MAX)))

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
