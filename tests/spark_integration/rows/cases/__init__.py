"""What MERGE, UPDATE and DELETE answer, as facts: tables, a statement about them, and the resulting rows or the condition of the error.

The answers are Delta Lake's: `tests/delta_spark/test_cases.py` asks it. Each case of the YAML files has `t`, the columns of the table, its
`rows`, the statement to `do`, and the rows that it `gives` or the condition with which it `fails`. `s` and `source` are the columns and
rows of the table `s`, if there is one. It may take its tables from a set that its file names (`with`). A struct is a list of its fields.
Optional:

`columns`: those of the result, if they are not those before. `partitioned`: by what. `settings`: of the session. `only`: the ways that can
say it. `needs_spark`: the engine without Spark leaves the statement to Spark. `ours`: the answer of sluice where it is another one, and
`because`: why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import yaml

from sluice.storage.schema.datatypes import ArrayType, DataType, MapType, PrimitiveType, StructType
from sluice.storage.schema.sqltypes import parse_sql_type

__all__ = ["CASES", "Case", "by_position", "columns_of", "named"]

Value = Any
"""A value of a column as in YAML; a struct is a list of its fields, a map a mapping, a date and a time are texts."""


@dataclass(frozen=True)
class Case:
    """One statement with its answer."""

    name: str
    t: str
    do: str
    rows: Sequence[Sequence[Value]] = ()
    s: str | None = None
    source: Sequence[Sequence[Value]] = ()
    gives: Sequence[Sequence[Value]] | None = None
    fails: str | None = None
    columns: str | None = None
    partitioned: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    only: Sequence[str] = ("api", "spark", "duckdb")
    needs_spark: bool = False
    ours: Mapping[str, Any] = field(default_factory=dict)
    because: str | None = None

    @property
    def made(self) -> str:
        """The columns of the resulting table."""
        return self.columns or self.t

    @property
    def held(self) -> str:
        """The columns of the table before, without defaults."""
        return self.made if " DEFAULT " in self.t else self.t


def columns_of(text: str) -> StructType:
    """The columns in a text like `id INT, v STRING`."""
    kind = parse_sql_type(f"STRUCT<{text}>")
    assert isinstance(kind, StructType)
    return kind


def named(value: Value, kind: DataType, leaf: Callable[[Value, DataType], Any] = lambda value, _: value) -> Any:
    """A value with its structs as mappings, as Arrow and JSON have them; `leaf` makes what has no parts."""
    if value is None:
        return None
    match kind:
        case StructType():
            return {each.name: named(part, each.type, leaf) for each, part in zip(kind.fields, value, strict=True)}
        case ArrayType():
            return [named(part, kind.element_type, leaf) for part in value]
        case MapType():
            return {key: named(part, kind.value_type, leaf) for key, part in value.items()}
    return leaf(value, kind)


def by_position(value: Value, kind: DataType) -> Value:
    """A value of Arrow or JSON, where a struct may lack fields that are null, as cases have it."""
    if value is None:
        return None
    match kind:
        case StructType():
            return [by_position(value.get(each.name), each.type) for each in kind.fields]
        case ArrayType():
            return [by_position(part, kind.element_type) for part in value]
        case MapType():
            items = value.items() if isinstance(value, Mapping) else value
            return {key: by_position(part, kind.value_type) for key, part in items}
        case PrimitiveType(name="timestamp" | "timestamp_ntz"):
            return str(value)[:19].replace("T", " ")
    return value if isinstance(value, (bool, int, float, str)) else float(value) if isinstance(value, Decimal) else str(value)


def _cases() -> list[Case]:
    found: list[Case] = []
    for file in sorted(Path(__file__).parent.glob("*.yaml")):
        content = yaml.load(file.read_bytes(), yaml.CSafeLoader)
        for each in content["cases"]:
            tables = content["tables"][each.pop("with")] if "with" in each else {}
            found.append(Case(**{**tables, **each}))
    return found


CASES: Final = _cases()
