"""Numbers of identity columns in rows: who takes them, and which ones files have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ..actions import AddFile
from ..dataclass import dataclass
from ..errors import InvalidRequest
from ..schema.datatypes import StructType
from ..schema.identity import check_given, identities
from ..schema.mapping import physical_name

TASKS_MAX: Final = 1 << 12
ROWS_OF_TASK: Final = 1 << 24

Take: TypeAlias = Callable[[int], int]
"""Takes so many consecutive numbers, and returns the first."""


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """Numbers that were taken for the tasks of one write: `rows` for each task, from `first` on."""

    first: int
    rows: int

    @property
    def end(self) -> int:
        """The first number after them."""
        return self.first + TASKS_MAX * self.rows

    def of(self, task: int) -> Take:
        """What takes those of one task. Its attempts take the same ones: only the files of one attempt are committed."""
        if not 0 <= task < TASKS_MAX:
            raise InvalidRequest(f"the rows of an identity column are numbered by tasks 0 to {TASKS_MAX - 1}, and this is task {task}")
        begin = self.first + task * self.rows
        taken = 0

        def take(count: int) -> int:
            nonlocal taken
            taken += count
            # check: tasks-keep-to-their-numbers (taken > self.rows -> False)
            if taken > self.rows:
                said = f"task {task} has more than {self.rows:,} rows, for which it has numbers of an identity column"
                raise InvalidRequest(f"{said}: write with more tasks, in Spark by df.repartition(n)")
            return begin + taken - count

        return take


def numbered(rows: pa.Table | pa.RecordBatch, schema: StructType, take: Take | None) -> pa.Table | pa.RecordBatch:
    """The rows with the identity columns that they lack. Raises InvalidRequest for those that they may not give, or without numbers."""
    check_given(schema, rows.schema.names)
    present = {name.lower() for name in rows.schema.names}
    lacking = [each for each in identities(schema) if each.name.lower() not in present]
    if not lacking:
        return rows
    if take is None:
        said = f"column {lacking[0].name!r} is an identity column, and each call of write() needs numbers of its own"
        raise InvalidRequest(f"{said}: give it another task, from 0 to {TASKS_MAX - 1}", column=lacking[0].name)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    first = take(table.num_rows) if table.num_rows else 0
    numbers = pa.array(range(first, first + table.num_rows), pa.int64())
    for each in lacking:
        table = table.append_column(each.name, pc.add(pc.multiply(numbers, each.step), each.start))
    return table


def after_files(files: Iterable[AddFile], schema: StructType) -> int | None:
    """The first number after those of all rows in files; None if their statistics do not tell."""
    after = 0
    names = {each: physical_name(schema.named(each.name)) for each in identities(schema)}
    for file in files:
        stats = orjson.loads(file.stats or "{}")
        for each, name in names.items():
            bound = stats.get("maxValues" if each.step > 0 else "minValues", {}).get(name)
            if not isinstance(bound, int):
                return None
            after = max(after, each.number(bound) + 1)
    return after
