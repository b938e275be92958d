"""The types of a Delta schema, and their JSON ("Schema Serialization Format" in PROTOCOL.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from ..constants import NESTING_MAX
from ..dataclass import dataclass
from ..errors import Corrupt, InvalidRequest, NotATable, SchemaMismatch
from ..jsontext import dumps, loads

_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_NAMES_OF_TYPES: Final = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte", "decimal": "decimal(10,0)"}


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts, by its Delta name: `long`, `decimal(10,2)`, `timestamp_ntz`, ...

    Any name is accepted, so that a table with a type of a later protocol can be inspected; a type that cannot be read or
    written is refused when it is converted to Arrow.
    """

    name: str

    def __post_init__(self) -> None:
        name = _NAMES_OF_TYPES.get(self.name, self.name)
        if match := _DECIMAL.fullmatch(name):
            name = f"decimal({int(match[1])},{int(match[2])})"
        object.__setattr__(self, "name", name)

    @property
    def is_decimal(self) -> bool:
        """Whether this is a `decimal(precision,scale)`."""
        return self.name.startswith("decimal(")

    @property
    def precision(self) -> int:
        """The number of digits of a decimal."""
        return self._decimal[0]

    @property
    def scale(self) -> int:
        """The number of digits of a decimal after the point."""
        return self._decimal[1]

    @property
    def _decimal(self) -> tuple[int, int]:
        match = _DECIMAL.fullmatch(self.name)
        if match is None:
            raise TypeError(f"{self.name} is not a decimal")
        return int(match[1]), int(match[2])

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of values of one type."""

    element_type: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element_type}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """Keys (never null) with values."""

    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key_type}, {self.value_type}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field of a nested struct; `metadata` holds `delta.invariants`, comments and the like, as JSON values."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=_nothing, hash=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True, slots=True)
class StructType:
    """The fields of a table or of a nested struct, in order."""

    fields: tuple[StructField, ...]
    # Computed once: results derived from a schema are cached by its hash, and every small write looks them up.
    _hash: int = field(repr=False, compare=False)

    def __init__(self, fields: Iterable[StructField]) -> None:
        object.__setattr__(self, "fields", tuple(fields))
        object.__setattr__(self, "_hash", hash(self.fields))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # The hash of text differs between processes.
        return StructType, (self.fields,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(each.name for each in self.fields)

    def get(self, name: str) -> StructField | None:
        """The field of that name: the exact one, else the one that differs only in case, else None."""
        lowered = name.lower()
        found = None
        for each in self.fields:
            if each.name == name:
                return each
            if found is None and each.name.lower() == lowered:
                found = each
        return found

    def named(self, name: object) -> StructField:
        """The column of that name. Raises InvalidRequest if there is none."""
        found = self.get(name) if isinstance(name, str) else None
        if found is None:
            raise InvalidRequest(f"column {name!r} is not in the table; its columns are {', '.join(self.names)}", column=name)
        return found

    def without(self, names: Iterable[str]) -> StructType:
        """This struct without the fields of those (exact) names."""
        gone = frozenset(names)
        return StructType(each for each in self.fields if each.name not in gone)

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"


DataType: TypeAlias = PrimitiveType | ArrayType | MapType | StructType


def types_inside(dtype: DataType, path: str = "") -> Iterator[tuple[str, DataType]]:
    """A type and all types inside it, each with its path: `a`, `a.element`, `b.key`, `b.value.c`, ..."""
    yield path, dtype
    match dtype:
        case PrimitiveType():
            return
        case StructType(fields):
            parts = [(each.name, each.type) for each in fields]
        case ArrayType(element, _):
            parts = [("element", element)]
        case MapType(key, value, _):
            parts = [("key", key), ("value", value)]
    for name, part in parts:
        yield from types_inside(part, f"{path}.{name}" if path else name)


def nesting_of(dtype: DataType) -> int:
    """How many levels of arrays, maps and structs are in one another."""
    deepest, left = 0, [(dtype, 0)]
    while left:
        each, level = left.pop()
        deepest = max(deepest, level)
        match each:
            case ArrayType(element, _):
                left.append((element, level + 1))
            case MapType(key, value, _):
                left += [(key, level + 1), (value, level + 1)]
            case StructType(fields):
                left += [(field.type, level + 1) for field in fields]
    return deepest


def require_nesting(dtype: DataType) -> None:
    """Raise SchemaMismatch for types nested more deeply than NESTING_MAX."""
    deepest = nesting_of(dtype)
    if deepest > NESTING_MAX:
        raise too_nested(deepest)


def too_nested(deepest: int | None = None) -> SchemaMismatch:
    """The refusal of such types."""
    said = "far more" if deepest is None else f"{deepest} levels of them in one another, more"
    return SchemaMismatch(
        f"arrays, maps and structs are nested too deeply, {said} than the {NESTING_MAX} that files can hold: flatten them"
    )


def fields_inside(dtype: DataType, path: str = "") -> Iterator[tuple[str, StructField]]:
    """The fields of a type and of all types inside it, each with its path."""
    for where, each in types_inside(dtype, path):
        if isinstance(each, StructType):
            yield from ((f"{where}.{field.name}" if where else field.name, field) for field in each.fields)


@lru_cache(maxsize=256)
def parse_schema(schema_string: str) -> StructType:
    """The schema in a metadata action. Raises Corrupt if the text is not a schema, and NotATable if there is none ("")."""
    if not schema_string:
        raise NotATable(
            "the table has no columns yet: its newest metaData action has no schema. Write to it with the engine that created it, or "
            "create the table anew"
        )
    try:
        parsed = _parse(loads(schema_string.encode()))
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise _no_schema(schema_string, repr(cause)) from cause
    except RecursionError as cause:
        raise _no_schema(schema_string, "its types are nested too deeply to be read") from cause
    if not isinstance(parsed, StructType):
        raise _no_schema(schema_string, f"its top is {parsed}, not a struct")
    return parsed


def _no_schema(text: str, why: str) -> Corrupt:
    return Corrupt(f"{text[:200]!r} is not a Delta schema: {why}; ask the engine that wrote the newest metaData action", schema=text)


def schema_to_json(schema: StructType) -> str:
    """The text of a schema for a metadata action; `parse_schema` reads it back unchanged."""
    return dumps(_plain(schema)).decode()


def _parse(body: Any) -> DataType:
    if isinstance(body, str):
        return PrimitiveType(body)
    match body["type"]:
        case "struct":
            return StructType(_parse_field(each) for each in body["fields"])
        case "array":
            return ArrayType(_parse(body["elementType"]), bool(body["containsNull"]))
        case "map":
            return MapType(_parse(body["keyType"]), _parse(body["valueType"]), bool(body["valueContainsNull"]))
        case other:
            raise ValueError(f"no nested type is called {other!r}")


def _parse_field(body: Any) -> StructField:
    metadata = body.get("metadata") or {}
    return StructField(str(body["name"]), _parse(body["type"]), bool(body["nullable"]), dict(metadata))


def _plain(dtype: DataType) -> Any:
    match dtype:
        case PrimitiveType(name):
            return name
        case ArrayType(element, nulls):
            return {"type": "array", "elementType": _plain(element), "containsNull": nulls}
        case MapType(key, value, nulls):
            return {"type": "map", "keyType": _plain(key), "valueType": _plain(value), "valueContainsNull": nulls}
        case StructType(fields):
            return {"type": "struct", "fields": [_plain_field(each) for each in fields]}


def _plain_field(each: StructField) -> dict[str, Any]:
    return {"name": each.name, "type": _plain(each.type), "nullable": each.nullable, "metadata": each.metadata}


def as_nullable(each: StructField) -> StructField:
    """The field with everything in it nullable, as needed for a column that older rows lack."""
    return replace(each, type=_nullable(each.type), nullable=True)


def _nullable(dtype: DataType) -> DataType:
    match dtype:
        case PrimitiveType():
            return dtype
        case ArrayType(element, _):
            return ArrayType(_nullable(element), True)
        case MapType(key, value, _):
            return MapType(key, _nullable(value), True)
        case StructType(fields):
            return StructType(as_nullable(each) for each in fields)
