"""The types of a Delta schema, their JSON ("Schema Serialization Format" in PROTOCOL.md), and their Arrow types; and which columns a
writer fills in.

A Delta table has timestamps in microseconds and no unsigned numbers, so the way back from Arrow widens: uint8 becomes short, uint16
integer, uint32 long, uint64 decimal(20,0), half floats float. No value is lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ..constants import NESTING_MAX
from ..dataclass import dataclass
from ..errors import Corrupt, InvalidRequest, NotATable, SchemaMismatch, UnsupportedFeature
from ..jsontext import dumps, loads

_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_NAMES_OF_TYPES: Final = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte", "decimal": "decimal(10,0)"}


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts, by its Delta name: `long`, `decimal(10,2)`, `timestamp_ntz`, ... Any name is accepted, so that a table with a
    type of a later protocol can be inspected; a type that cannot be read or written is refused when it is converted to Arrow.
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


VARIANT: Final = PrimitiveType("variant")


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
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

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
        return tuple([each.name for each in self.fields])

    def get(self, name: str) -> StructField | None:
        """The field of that name: the exact one, else the one that differs only in case, else None."""
        lowered, similar = name.lower(), None
        for each in self.fields:
            if each.name == name:
                return each
            if similar is None and each.name.lower() == lowered:
                similar = each
        return similar

    def named(self, name: object, at: str = "") -> StructField:
        """The column of that name; `at` is the path of this struct, with a point. Raises InvalidRequest if there is none."""
        column = self.get(name) if isinstance(name, str) else None
        if column is None:
            path, which = (f"{at}{name}", f"the columns of {at[:-1]}") if at else (name, "its columns")
            raise InvalidRequest(f"column {path!r} is not in the table; {which} are {', '.join(self.names)}", column=path)
        return column

    def without(self, names: Iterable[str]) -> StructType:
        """This struct without the fields of those (exact) names."""
        gone = frozenset(names)
        return StructType(each for each in self.fields if each.name not in gone)

    def __str__(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"


DataType: TypeAlias = PrimitiveType | ArrayType | MapType | StructType


def parts_of(dtype: DataType) -> list[tuple[str, DataType]]:
    """The types directly inside a type, with their names: those of fields, `element`, `key` and `value`."""
    match dtype:
        case StructType(fields):
            return [(each.name, each.type) for each in fields]
        case ArrayType(element, _):
            return [("element", element)]
        case MapType(key, value, _):
            return [("key", key), ("value", value)]
    return []


VARIANT_PARTS: Final = StructType([StructField(name, PrimitiveType("binary"), nullable=False) for name in ("value", "metadata")])
"""What a variant is in files and in Arrow data ("Variant data in Parquet" in PROTOCOL.md)."""


def types_inside(dtype: DataType, path: str = "") -> Iterator[tuple[str, DataType]]:
    """A type and all types inside it, each with its path: `a`, `a.element`, `b.key`, `b.value.c`, ..."""
    yield path, dtype
    for name, part in parts_of(dtype):
        yield from types_inside(part, f"{path}.{name}" if path else name)


def require_nesting(dtype: DataType) -> None:
    """Raise SchemaMismatch for arrays, maps and structs that are nested more deeply than NESTING_MAX."""
    levels, level = 0, parts_of(dtype)
    while level:
        levels += 1
        level = [part for _, each in level for part in parts_of(each)]
    if levels > NESTING_MAX:
        raise too_nested(levels)


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


def types_of(columns: Iterable[StructField]) -> dict[str, str]:
    """The columns' types as in Delta's schema JSON, by name."""
    return {each.name: dumps(_plain(each.type)).decode() for each in columns}


def _parse(body: Any) -> DataType:
    if isinstance(body, str):
        return PrimitiveType(body)
    match body["type"]:
        case "struct":
            return StructType(
                StructField(str(each["name"]), _parse(each["type"]), bool(each["nullable"]), dict(each.get("metadata") or {}))
                for each in body["fields"]
            )
        case "array":
            return ArrayType(_parse(body["elementType"]), bool(body["containsNull"]))
        case "map":
            return MapType(_parse(body["keyType"]), _parse(body["valueType"]), bool(body["valueContainsNull"]))
        case other:
            raise ValueError(f"no nested type is called {other!r}")


def _plain(dtype: DataType) -> Any:
    match dtype:
        case PrimitiveType(name):
            return name
        case ArrayType(element, nulls):
            return {"type": "array", "elementType": _plain(element), "containsNull": nulls}
        case MapType(key, value, nulls):
            return {"type": "map", "keyType": _plain(key), "valueType": _plain(value), "valueContainsNull": nulls}
        case StructType(fields):
            parts = [
                {"name": each.name, "type": _plain(each.type), "nullable": each.nullable, "metadata": each.metadata} for each in fields
            ]
            return {"type": "struct", "fields": parts}


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


# -- Arrow -----------------------------------------------------------------------------------------------------------------

_BYTES: Final = pa.field("value", pa.binary(), nullable=False)
TO_ARROW: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    # marked as Spark marks its own, so that Arrow data tells a variant from a struct
    "variant": pa.struct([_BYTES, _BYTES.with_name("metadata").with_metadata({"variant": "true"})]),
}
_FROM_ARROW: Final = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
}
_PRECISION_MAX: Final = 38

# The kinds of values that a column of each kind takes, as long as each value survives unchanged.
ACCEPTS: Final = {
    "integer": frozenset({"integer", "decimal"}),
    "float": frozenset({"integer", "float"}),
    "decimal": frozenset({"integer", "decimal"}),
    **{kind: frozenset({kind}) for kind in ("string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")},
    "void": frozenset[str](),
    "variant": frozenset({"variant"}),
}


def kind(dtype: PrimitiveType) -> str:
    """The kind of a primitive type's values; see ACCEPTS."""
    if dtype.is_decimal:
        return "decimal"
    if dtype.name in {"byte", "short", "integer", "long"}:
        return "integer"
    return "float" if dtype.name in {"float", "double"} else dtype.name


_ARROW_KINDS: Final = {
    "integer": (pa.types.is_integer,),
    "float": (pa.types.is_floating,),
    "decimal": (pa.types.is_decimal,),
    "string": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "binary": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    "boolean": (pa.types.is_boolean,),
    "date": (pa.types.is_date,),
}


def arrow_kind(dtype: pa.DataType) -> str | None:
    """The kind of a plain Arrow type's values; None for types that Delta lacks."""
    if pa.types.is_timestamp(dtype):
        return "timestamp_ntz" if dtype.tz is None else "timestamp"
    return next((name for name, checks in _ARROW_KINDS.items() if any(check(dtype) for check in checks)), None)


@lru_cache(maxsize=256)
def to_arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema of a table's rows. Raises UnsupportedFeature for a type that sluice cannot represent."""
    return pa.schema(list(arrow_type(schema)))


def arrow_type(dtype: DataType, path: str = "") -> pa.DataType:
    """The Arrow type of the column at `path`. Raises UnsupportedFeature, naming the column, for a type that sluice cannot represent."""
    match dtype:
        case ArrayType(element, nulls):
            return pa.list_(pa.field("element", arrow_type(element, f"{path}.element"), nulls))
        case MapType(key, value, nulls):
            keys = pa.field("key", arrow_type(key, f"{path}.key"), False)
            return pa.map_(keys, pa.field("value", arrow_type(value, f"{path}.value"), nulls))
        case StructType(fields):
            return pa.struct(
                [pa.field(each.name, arrow_type(each.type, f"{path}.{each.name}" if path else each.name), each.nullable) for each in fields]
            )
    if dtype.name in TO_ARROW:
        return TO_ARROW[dtype.name]
    if dtype.is_decimal and 1 <= dtype.precision <= _PRECISION_MAX and dtype.scale <= dtype.precision:
        return pa.decimal128(dtype.precision, dtype.scale)
    what = f"column {path!r} has the type {dtype.name!r}" if path else f"the type is {dtype.name!r}"
    raise UnsupportedFeature(
        f"{what}, which sluice does not support; it knows {', '.join(TO_ARROW)}, decimal(p,s) with p <= 38, arrays, maps and structs. "
        "Use an engine that does, or give the column one of these types there",
        features=(dtype.name,),
        access="read",
        column=path or None,
    )


def from_arrow(schema: pa.Schema) -> StructType:
    """The Delta schema for such data, without loss; nulls without a type are void. Raises SchemaMismatch for a type that Delta lacks."""
    try:
        return StructType(StructField(each.name, _delta_type(each.type, each.name), each.nullable) for each in schema)
    except RecursionError:
        raise too_nested() from None


def _delta_type(dtype: pa.DataType, path: str) -> DataType:
    types = pa.types
    if is_variant(dtype):
        return VARIANT
    if isinstance(dtype, pa.BaseExtensionType):
        return _delta_type(dtype.storage_type, path)
    if types.is_dictionary(dtype) or types.is_run_end_encoded(dtype):
        return _delta_type(dtype.value_type, path)
    if types.is_map(dtype):
        return MapType(_delta_type(dtype.key_type, f"{path}.key"), _delta_type(dtype.item_type, f"{path}.value"), dtype.item_field.nullable)
    if is_list(dtype):
        return ArrayType(_delta_type(dtype.value_type, f"{path}.element"), dtype.value_field.nullable)
    if types.is_struct(dtype):
        return StructType(StructField(each.name, _delta_type(each.type, f"{path}.{each.name}"), each.nullable) for each in dtype.fields)
    if types.is_null(dtype):
        return PrimitiveType("void")
    if dtype in _FROM_ARROW:
        return PrimitiveType(_FROM_ARROW[dtype])
    found = arrow_kind(dtype)
    if found == "decimal" and 0 <= dtype.scale <= dtype.precision <= _PRECISION_MAX:
        return PrimitiveType(f"decimal({dtype.precision},{dtype.scale})")
    if found is None or found == "decimal":
        raise SchemaMismatch(
            f"column {path!r} has the Arrow type {dtype}, which no Delta type can represent; cast it, to int64 or string for instance",
            column=path,
        )
    return PrimitiveType(found)


def is_variant(dtype: pa.DataType) -> bool:
    """Whether Arrow data says that it is variants: as Spark marks the struct's field `metadata`, or as Parquet's extension type."""
    if isinstance(dtype, pa.BaseExtensionType):
        return bool(dtype.extension_name == "arrow.parquet.variant")
    return pa.types.is_struct(dtype) and any((each.metadata or {}).get(b"variant") == b"true" for each in dtype.fields)


def is_list(dtype: pa.DataType) -> bool:
    """Whether an Arrow type is one of the list types (a map is not)."""
    types = pa.types
    checks = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view)
    return any(check(dtype) for check in checks)


# -- columns whose values a writer fills in: defaults, and values generated from other columns --------------------------------

# The metadata of a field in which Delta Lake and Spark keep the SQL ("Default Columns", "Generated Columns" in PROTOCOL.md).
DEFAULT_KEY: Final = "CURRENT_DEFAULT"
GENERATED_KEY: Final = "delta.generationExpression"
IDENTITY_KEYS: Final = ("delta.identity.start", "delta.identity.step", "delta.identity.allowExplicitInsert")
"""What defines an identity column, whose rows their writer numbers (`schema.identity`): whole numbers, and a boolean."""
_FEATURES: Final = {DEFAULT_KEY: "allowColumnDefaults", GENERATED_KEY: "generatedColumns", IDENTITY_KEYS[0]: "identityColumns"}
_KEYWORD: Final = "DEFAULT"


def default_of(field: StructField) -> str | None:
    """The SQL of a column's default; None if it has none."""
    text = field.metadata.get(DEFAULT_KEY)
    return None if text is None else str(text)


def generated_of(field: StructField) -> str | None:
    """The SQL from which a generated column's values are made; None for any other column."""
    text = field.metadata.get(GENERATED_KEY)
    return None if text is None else str(text)


def is_identity(field: StructField) -> bool:
    """Whether the writer numbers the rows in this column."""
    return all(key in field.metadata for key in IDENTITY_KEYS)


def is_filled(field: StructField) -> bool:
    """Whether rows may lack the column because their writer fills it in."""
    return not field.metadata.keys().isdisjoint(_FEATURES)


@lru_cache(maxsize=64)
def features_of_columns(schema: StructType) -> frozenset[str]:
    """The table features that the columns need."""
    return frozenset(feature for key, feature in _FEATURES.items() if any(key in each.metadata for each in schema.fields))


def to_give(schema: StructType, names: Collection[str]) -> StructType:
    """The columns that rows with columns of these `names` give: without those that they lack and their writer fills in."""
    lowered = {each.lower() for each in names}
    kept = [each for each in schema.fields if each.name.lower() in lowered or not is_filled(each)]
    return schema if len(kept) == len(schema.fields) else StructType(kept)


def defined(schema: pa.Schema) -> StructType:
    """The columns that an Arrow schema defines, with defaults, generation expressions, identities and comments in metadata. Raises
    SchemaMismatch.
    """
    fields: list[StructField] = []
    for column, each in zip(from_arrow(schema).fields, schema, strict=True):
        texts = each.metadata or {}
        metadata = {key: texts[key.encode()].decode() for key in (DEFAULT_KEY, GENERATED_KEY, "comment") if key.encode() in texts}
        metadata |= {key: _value(texts[key.encode()].decode()) for key in IDENTITY_KEYS if key.encode() in texts}
        fields.append(replace(column, metadata=metadata) if metadata else column)
    return StructType(fields)


def _value(text: str) -> int | bool | str:
    """The value of the metadata of a field, which Arrow keeps as text."""
    return text == "true" if text in ("true", "false") else int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else text


def nested_with_value(schema: StructType) -> str | None:
    """The path of a field inside a column that has a default or is generated, which only columns of the table itself may; else None."""
    for column in schema.fields:
        for path, each in fields_inside(column.type, column.name):
            if is_filled(each):
                return path
    return None


def is_word_default(text: str, schema: StructType) -> bool:
    """Whether an assigned value is the word DEFAULT; in a table with a column of that name it is the column."""
    return text.strip().upper() == _KEYWORD and schema.get(_KEYWORD) is None


def with_values_of_defaults(assigned: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The assignments with a column's default in place of the word DEFAULT (NULL without one); what is computed or numbered is left out."""
    values: dict[str, str] = {}
    for name, text in assigned.items():
        column = schema.get(name.strip("`")) if isinstance(name, str) else None
        if column is None or not isinstance(text, str) or not is_word_default(text, schema):
            values[name] = text
        elif generated_of(column) is None and not is_identity(column):
            values[name] = default_of(column) or "NULL"
    return values
