"""Types in Spark SQL's spelling (`bigint`, `decimal(10,2)`, `array<struct<a: int>>`): parsed into those of a Delta schema, and written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from ..constants import NESTING_MAX
from ..errors import SchemaMismatch
from .datatypes import TO_ARROW, ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, default_of, generated_of, too_nested
from .identity import identity_sql

LENGTH_KEY: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark keeps `varchar(n)` or `char(n)` in the metadata of a column of text."""
_PARTS: Final = re.compile(r"struct<|array<|map<|>|,|decimal\([^)]*\)|(?:var)?char\((\d+)\)|(?:[^`<>:,]+|`(?:[^`]|``)*`):")
ELEMENTS, KEYS, VALUES = range(3)
_INSIDE: Final = ("element", "key", "value")
_OTHER: Final = {
    "bigint": "long",
    "int": "integer",
    "real": "float",
    "smallint": "short",
    "timestamp_ltz": "timestamp",
    "tinyint": "byte",
}
_NAMES: Final = {**{name: name for name in TO_ARROW if name != "void"}, **_OTHER}
_DECIMAL: Final = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_TEXT: Final = re.compile(r"(?:varchar|char|character)\s*\(\s*[1-9]\d{0,8}\s*\)")
_LIMIT: Final = re.compile(r"(?:varchar|char)\((\d{1,9})\)")
_NESTED: Final = re.compile(r"(array|map|struct)\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_FIELD: Final = re.compile(
    r"(?:`((?:[^`]|``)+)`|(\w+))\s*(?::|\s)\s*(.+?)(\s+not\s+null)?(?:\s+comment\s+'((?:[^'\\]|\\.)*)')?", re.DOTALL | re.IGNORECASE
)
_PIECE: Final = re.compile(r"`[^`]*`|'(?:[^'\\]|\\.)*'|.", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_DIGITS: Final = 38
_SPELLED: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def parse_sql_type(text: str) -> DataType:
    """The type named by a text of Spark SQL, ignoring case. Raises SchemaMismatch if it is not a type."""
    deepest = max(accumulate([(char == "<") - (char == ">") for char in text]), default=0)
    if deepest > NESTING_MAX + 1:
        raise too_nested(deepest)
    return _parse(text, text)


def _parse(text: str, whole: str) -> DataType:
    lowered = text.strip().lower()
    if lowered in _NAMES:
        return PrimitiveType(_NAMES[lowered])
    if _TEXT.fullmatch(lowered):
        return PrimitiveType("string")
    if decimal := _DECIMAL.fullmatch(lowered):
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if 1 <= precision <= _DIGITS and scale <= precision:
            return PrimitiveType(f"decimal({precision},{scale})")
    if nested := _NESTED.fullmatch(text.strip()):
        parts = _parts(nested[2])
        match nested[1].lower(), len(parts):
            case "array", 1:
                return ArrayType(_parse(parts[0], whole))
            case "map", 2:
                return MapType(_parse(parts[0], whole), _parse(parts[1], whole))
            case "struct", _:
                return StructType([_field(part, whole) for part in parts if part.strip() or len(parts) > 1])
    raise SchemaMismatch(
        f"{whole!r} is not a type of Spark SQL; write one like int, decimal(10,2) of at most 38 digits, timestamp, array<string>, "
        "map<string, int>, struct<a: int, b: string>",
        type=whole,
    )


def _field(text: str, whole: str) -> StructField:
    found = _FIELD.fullmatch(text.strip())
    if found is None:
        raise SchemaMismatch(f"{text.strip()!r} in {whole!r} is not a field; write it like `name: int`", type=whole)
    name = found[2] if found[1] is None else found[1].replace("``", "`")
    comment = {} if found[5] is None else {"comment": _ESCAPE.sub(r"\1", found[5])}
    return StructField(name, _parse(found[3], whole), found[4] is None, comment)


def _parts(text: str) -> list[str]:
    """The text split at its commas, except those inside brackets, backquotes and strings."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def type_sql(dtype: DataType) -> str:
    """A type as `parse_sql_type` and Spark read it; names of fields are quoted where they must be."""
    match dtype:
        case ArrayType():
            return f"array<{type_sql(dtype.element_type)}>"
        case MapType():
            return f"map<{type_sql(dtype.key_type)},{type_sql(dtype.value_type)}>"
        case StructType():
            return f"struct<{','.join(field_sql(each, nested=True) for each in dtype.fields)}>"
    return _SPELLED.get(dtype.name, dtype.name)


def column_type_sql(field: StructField) -> str:
    """The type of a column, with the length that its texts may have."""
    return type_sql(field.type) if length_limit(field) is None else str(field.metadata[LENGTH_KEY])


def length_limit(field: StructField) -> int | None:
    """How many characters a text of the column may have; None if nothing limits them."""
    said = field.metadata.get(LENGTH_KEY)
    found = _LIMIT.fullmatch(said) if isinstance(said, str) and field.type == PrimitiveType("string") else None
    return None if found is None else int(found[1])


def nested_limits(field: StructField) -> Iterator[tuple[str, tuple[str | int, ...], int]]:
    """The texts inside a column that have a limit: a name for people, the steps to them, and how many characters they may have.

    A step is the name of a field, or ELEMENTS, KEYS or VALUES. Spark keeps the whole type of the column as a text:
    `struct<a:varchar(3),b:array<char(2)>>`.
    """
    steps = list[str | int]()
    for part in _PARTS.finditer(str(field.metadata.get(LENGTH_KEY, ""))) if not isinstance(field.type, PrimitiveType) else ():
        if part[0].endswith("<"):
            steps.append({"array<": ELEMENTS, "map<": KEYS}.get(part[0], ""))
        elif part[0] == ">":
            steps.pop()
        elif part[0] == ",":
            steps[-1] = VALUES if steps[-1] == KEYS else steps[-1]
        elif part[0].endswith(":"):
            steps[-1] = part[0][:-1].strip("`").replace("``", "`")
        elif part[1]:
            names = (quoted_name(each) if isinstance(each, str) else _INSIDE[each] for each in steps)
            yield ".".join([quoted_name(field.name), *names]), tuple(steps), int(part[1])


def field_sql(field: StructField, *, nested: bool = False) -> str:
    """A column, or a field of a struct, as it is defined: `name` type [NOT NULL] [DEFAULT a | GENERATED ...] [COMMENT '...']."""
    comment = field.metadata.get("comment")
    name = (field.name if nested and _PLAIN.fullmatch(field.name) else quoted_name(field.name)) + (":" if nested else " ")
    default, generated = default_of(field), generated_of(field)
    value = f" DEFAULT {default}" if default is not None else f" GENERATED ALWAYS AS ({generated})" if generated is not None else ""
    required = "" if field.nullable else " NOT NULL"
    return f"{name}{column_type_sql(field)}{required}{value}{identity_sql(field)}" + (f" COMMENT {quoted_text(comment)}" if comment else "")


def quoted_name(name: str) -> str:
    """A name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def quoted_text(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
