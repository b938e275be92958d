"""What is done to a table: one SQL text, which every engine carries out, and its effect on the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from .model import KEY, Model

__all__ = [
    "ANSWERS",
    "Add",
    "Delete",
    "Drop",
    "Insert",
    "Merge",
    "Operation",
    "Optimize",
    "Rename",
    "Restore",
    "Statement",
    "Update",
    "Widen",
]

ANSWERS: Final = {"STRING": "'u, 2'", "BIGINT": "77", "INT": "77", "DOUBLE": "0.5"}
"""The literal that UPDATE and MERGE set, by the column's type."""
_VALUES: Final[dict[str, Any]] = {"STRING": "u, 2", "BIGINT": 77, "INT": 77, "DOUBLE": 0.5}


class Statement(ABC):
    """An operation that is one SQL text on every engine."""

    @abstractmethod
    def sql(self, name: str, model: Model) -> str:
        """The statement on the table `name`, as the model is before it."""

    @abstractmethod
    def apply(self, model: Model) -> None:
        """What it does."""


@dataclass(frozen=True)
class Insert:
    """Rows with these keys; engines have their own ways to bring values in."""

    keys: Sequence[int]

    def rows(self, model: Model) -> list[dict[str, Any]]:
        """The rows, without what engines compute or number."""
        return [model.row(k) for k in self.keys]

    def apply(self, model: Model) -> None:
        model.insert(self.rows(model))


@dataclass(frozen=True)
class Delete(Statement):
    keys: Sequence[int]

    def sql(self, name: str, model: Model) -> str:
        return f"DELETE FROM {name} WHERE {KEY} IN ({_listed(self.keys)})"

    def apply(self, model: Model) -> None:
        model.delete(self.keys)


@dataclass(frozen=True)
class Update(Statement):
    keys: Sequence[int]
    column: str

    def sql(self, name: str, model: Model) -> str:
        return f"UPDATE {name} SET `{self.column}` = {ANSWERS[model.columns[self.column]]} WHERE {KEY} IN ({_listed(self.keys)})"

    def apply(self, model: Model) -> None:
        model.update(self.keys, self.column, _VALUES[model.columns[self.column]])


@dataclass(frozen=True)
class Merge(Statement):
    """Rows with these keys get a value in a column; those that are not there are inserted with their key, it and their partition."""

    keys: Sequence[int]
    column: str

    def sql(self, name: str, model: Model) -> str:
        value, partition = ANSWERS[model.columns[self.column]], "p" in model.columns
        source = " UNION ALL ".join(f"SELECT CAST({k} AS BIGINT) AS {KEY}, 'p{k % 2}' AS part" for k in self.keys)
        columns, values = (f", {each}" if partition else "" for each in ("p", "s.part"))
        return (
            f"MERGE INTO {name} t USING ({source}) s ON t.{KEY} = s.{KEY} WHEN MATCHED THEN UPDATE SET t.`{self.column}` = {value} "
            f"WHEN NOT MATCHED THEN INSERT ({KEY}, `{self.column}`{columns}) VALUES (s.{KEY}, {value}{values})"
        )

    def apply(self, model: Model) -> None:
        new = [k for k in self.keys if k not in model.rows]
        model.update(self.keys, self.column, _VALUES[model.columns[self.column]])
        value = _VALUES[model.columns[self.column]]
        model.insert({KEY: k, self.column: value, "p": f"p{k % 2}"} for k in new)


@dataclass(frozen=True)
class Add(Statement):
    column: str
    kind: str

    def sql(self, name: str, model: Model) -> str:
        return f"ALTER TABLE {name} ADD COLUMNS (`{self.column}` {self.kind})"

    def apply(self, model: Model) -> None:
        model.add(self.column, self.kind)


@dataclass(frozen=True)
class Rename(Statement):
    column: str
    new: str

    def sql(self, name: str, model: Model) -> str:
        return f"ALTER TABLE {name} RENAME COLUMN `{self.column}` TO `{self.new}`"

    def apply(self, model: Model) -> None:
        model.rename(self.column, self.new)


@dataclass(frozen=True)
class Drop(Statement):
    column: str

    def sql(self, name: str, model: Model) -> str:
        return f"ALTER TABLE {name} DROP COLUMN `{self.column}`"

    def apply(self, model: Model) -> None:
        model.drop(self.column)


@dataclass(frozen=True)
class Widen(Statement):
    column: str
    kind: str

    def sql(self, name: str, model: Model) -> str:
        return f"ALTER TABLE {name} ALTER COLUMN `{self.column}` TYPE {self.kind}"

    def apply(self, model: Model) -> None:
        model.widen(self.column, self.kind)


@dataclass(frozen=True)
class Optimize(Statement):
    def sql(self, name: str, model: Model) -> str:
        return f"OPTIMIZE {name}"

    def apply(self, model: Model) -> None:
        return


@dataclass(frozen=True)
class Restore(Statement):
    version: int

    def sql(self, name: str, model: Model) -> str:
        return f"RESTORE TABLE {name} TO VERSION AS OF {self.version}"

    def apply(self, model: Model) -> None:
        model.restore(self.version)


Operation: TypeAlias = Insert | Statement


def _listed(keys: Sequence[int]) -> str:
    return ", ".join(map(str, keys))
