"""The statistics of many files at once: their JSON texts become Arrow columns of bounds and null counts.

A bound that is missing, or that cannot be trusted, is null. Timestamps are written in milliseconds, cut off by some writers: their bounds
are moved apart by one. Floats are written as the shortest decimal text of 32 or of 64 bits: they are read at their own width. Some
writers put decimals through a double: a bound of more than 15 digits is not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ..dataclass import dataclass

__all__ = ["Path", "Stats"]

Path: TypeAlias = tuple[str, ...]

_BLOCK_BYTES: Final = 16 << 20
_FEW: Final = 64
"""So many texts are parsed one by one sooner than Arrow's reader is set up."""
_DOUBLE_DIGITS: Final = 15
_MILLISECOND: Final = timedelta(milliseconds=1)
_RECORDS: Final[Path] = ("numRecords",)


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of files, one row per file; `parsed` holds the columns by their place in the JSON, such as ("minValues", "a")."""

    parsed: Mapping[Path, pa.Array]
    wanted: Mapping[Path, pa.DataType]

    @classmethod
    def parse(cls, texts: pa.ChunkedArray, wanted: Mapping[Path, pa.DataType]) -> Stats:
        """The statistics of the columns `wanted` (paths and their types) out of `add.stats`; what is no statistics is unknown."""
        leaves = _leaves(wanted)
        if len(texts) <= _FEW and not any(pa.types.is_decimal(kind) for kind in leaves.values()):
            return cls(_one_by_one(texts.to_pylist(), leaves), wanted)
        schema = _schema(leaves)
        table = _read(texts, schema)
        if table is None:
            cleaned = [_cleaned(text, schema) for text in texts.to_pylist()]
            table = _read(pa.chunked_array([cleaned], pa.string()), schema)
        if table is None:
            return cls({path: pa.nulls(len(texts), kind) for path, kind in leaves.items()}, wanted)
        return cls({path: _column(table, path) for path in leaves}, wanted)

    @property
    def records(self) -> pa.Array:
        """How many rows each file has."""
        return self.parsed[_RECORDS]

    def nulls(self, path: Path) -> pa.Array:
        """How many rows are null; where the bounds are wide, only 0 and the number of all rows mean what they say."""
        return self.parsed[("nullCount", *path)]

    def bounds(self, path: Path) -> tuple[pa.Array, pa.Array]:
        """A lower and an upper bound of the values that are neither null nor NaN."""
        kind = self.wanted[path]
        if _json_type(kind) is None:
            nothing = pa.nulls(len(self.records), kind)
            return nothing, nothing
        try:
            low, high = (_typed(self.parsed[(name, *path)], kind) for name in ("minValues", "maxValues"))
            return (
                (pc.subtract_checked(low, _MILLISECOND), pc.add_checked(high, _MILLISECOND)) if pa.types.is_timestamp(kind) else (low, high)
            )
        except pa.ArrowInvalid:
            nothing = pa.nulls(len(self.records), kind)
            return nothing, nothing


def _json_type(kind: pa.DataType) -> pa.DataType | None:
    """How a bound of that type is read from JSON; None for types without bounds."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.string()
    return None


def _typed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        return texts.cast(kind, safe=False)
    if pa.types.is_decimal(kind):
        limit = pa.scalar(Decimal(10**_DOUBLE_DIGITS - 1).scaleb(-kind.scale), pa.decimal128(38, kind.scale))
        trusted = pc.less_equal(pc.abs(texts), limit)
        return pc.if_else(trusted, texts, pa.scalar(None, texts.type)).cast(kind)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return pc.replace_substring_regex(texts, "Z$", "").cast(kind)
    return texts.cast(kind)


def _leaves(wanted: Mapping[Path, pa.DataType]) -> dict[Path, pa.DataType]:
    """What is read of the JSON: places, and the types they are read at."""
    leaves: dict[Path, pa.DataType] = {_RECORDS: pa.int64()}
    for name in ("minValues", "maxValues"):
        leaves.update({(name, *path): read for path, kind in wanted.items() if (read := _json_type(kind)) is not None})
    leaves.update({("nullCount", *path): pa.int64() for path in wanted})
    return leaves


def _schema(leaves: Mapping[Path, pa.DataType]) -> pa.Schema:
    return pa.schema(list(_struct(leaves)))


def _struct(leaves: Mapping[Path, pa.DataType]) -> pa.DataType:
    nested: dict[str, dict[Path, pa.DataType]] = {}
    for path, kind in leaves.items():
        nested.setdefault(path[0], {})[path[1:]] = kind
    return pa.struct([(name, inner[()] if () in inner else _struct(inner)) for name, inner in nested.items()])


def _column(table: pa.Table, path: Path) -> pa.Array:
    whole = table[path[0]].combine_chunks()
    return pc.struct_field(whole, list(path[1:])) if len(path) > 1 else whole


def _one_by_one(texts: Sequence[str | None], leaves: Mapping[Path, pa.DataType]) -> dict[Path, pa.Array]:
    bodies = [_body(text) for text in texts]
    return {path: pa.array([_leaf(body, path, kind) for body in bodies], kind) for path, kind in leaves.items()}


def _body(text: str | None) -> Any:
    """The JSON of one file; as for many at once, it has to begin with its brace and to stand on one line."""
    if text is None or not text.startswith("{") or "\n" in text:
        return {}
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}


def _leaf(value: Any, path: Path, kind: pa.DataType) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return _fitting(value, kind)


def _read(texts: pa.ChunkedArray, schema: pa.Schema) -> pa.Table | None:
    """The JSON objects as a table, one row per text, or None when one of them is not what the schema says."""
    lines = texts.cast(pa.large_string())
    fine = pc.and_(pc.starts_with(lines, "{"), pc.invert(pc.match_substring(lines, "\n")))
    lines = pc.if_else(pc.fill_null(fine, False), lines, pa.scalar("{}", pa.large_string()))
    joined = pc.binary_join_element_wise(lines, pa.scalar("", pa.large_string()), pa.scalar("\n", pa.large_string())).combine_chunks()
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(_bytes(joined)), pj.ReadOptions(block_size=_BLOCK_BYTES), options)
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(texts) else None


def _bytes(lines: pa.Array) -> pa.Buffer:
    """The text of all rows, one after the other, without a copy."""
    _, offsets, data = lines.buffers()
    bounds = pa.Array.from_buffers(pa.int64(), len(lines) + 1, [None, offsets], offset=lines.offset)
    return data.slice(bounds[0].as_py(), bounds[-1].as_py() - bounds[0].as_py())


def _cleaned(text: str | None, schema: pa.Schema) -> str:
    """The text with only those statistics that are what the schema says; decimals cannot be told exactly here, and are dropped."""
    try:
        body = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return "{}"
    kept = _fitting(body, pa.struct(list(schema)))
    return orjson.dumps(kept if kept is not None else {}).decode()


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return None
        return {f.name: fitting for f in kind if (fitting := _fitting(value.get(f.name), f.type)) is not None}
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else None
    if pa.types.is_int64(kind):
        return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None
    if pa.types.is_float64(kind):
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return None
