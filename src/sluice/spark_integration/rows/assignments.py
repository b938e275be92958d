"""New values of columns: paths resolved against the table, values cast as Delta Lake's UPDATE and MERGE do, whole frames stored as Spark's
ANSI store assignment does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType as SparkArray
from pyspark.sql.types import ByteType, DecimalType, IntegerType, LongType, ShortType
from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import MapType as SparkMap
from pyspark.sql.types import StructType as SparkStruct

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.schema.computed import generated_of, is_word_default
from ...storage.schema.datatypes import as_nullable
from ...storage.schema.schema import StructField, StructType
from ..active_session import session_for_changes
from ..files.filling import default_value
from ..jvm import class_in_jvm, in_session, items, quoted
from ..schemas import from_spark, to_spark
from .conditions import as_column, resolved_values

_CATALYST: Final = "org.apache.spark.sql.catalyst"

Path: TypeAlias = tuple[str, ...]
Tree: TypeAlias = "dict[str, Tree | Column]"


def path_of(spark: SparkSession, text: str, schema: StructType, alias: str | None, *, before: StructType | None = None) -> Path:
    """The parts of a target column's name, in the table's spelling where it has them. The target's alias may precede it, if it is one of
    the columns `before` (by default all).

    Raises AnalysisException for a name that does not parse, and InvalidRequest for one that is no column.
    """
    if not isinstance(text, str):
        raise InvalidRequest(f"the column to assign is {text!r}; give its name as text")
    parts, key = parts_of(spark, text), key_of_names(spark)
    if alias is not None and len(parts) > 1 and key(parts[0]) == key(alias) and (before or schema).get(parts[1]) is not None:
        parts = parts[1:]
    found: list[str] = []
    struct: StructType | None = schema
    for part in parts:
        field = None if struct is None else struct.get(part)
        if field is None or key(field.name) != key(part):
            raise no_such_column(text, part, schema.names if struct is None or struct is schema else struct.names)
        found.append(field.name)
        struct = field.type if isinstance(field.type, StructType) else None
    return tuple(found)


def parts_of(spark: SparkSession, text: str) -> list[str]:
    """The parts of a column's name in Spark's SQL. Raises AnalysisException for one that does not parse."""
    parsed = class_in_jvm(spark, f"{_CATALYST}.analysis.UnresolvedAttribute").parseAttributeName(text)
    return [str(each) for each in items(parsed)]


def key_of_names(spark: SparkSession) -> Callable[[str], str]:
    """Names of which this makes the same text are one column to the session: unless `spark.sql.caseSensitive`, case does not count."""
    return str if spark.conf.get("spark.sql.caseSensitive") == "true" else str.lower


def no_such_column(text: str, part: str, known: Sequence[str]) -> InvalidRequest:
    """The refusal of the column `text`, of whose parts `part` is none of the names that are `known` there."""
    names = {name.lower(): name for name in known}
    near = [text] if text in known else [names[each] for each in get_close_matches(part.lower(), names, n=2)]
    meant = f", do you mean {' or '.join(map(_as_written, near))}?" if near else ";"
    return InvalidRequest(
        f"column {text!r} is not in the table{meant} there are {', '.join(map(_as_written, known))}",
        column=text,
        condition="UNRESOLVED_COLUMN.WITH_SUGGESTION",
    )


def _as_written(name: str) -> str:
    """A name as expressions have it: with backticks if they would end it."""
    return name if re.fullmatch(r"\w+", name) else quoted(name)


def by_path(assigned: Mapping[Path, Column], what: str) -> Tree:
    """Assignments as a tree. Raises InvalidRequest if one column, or a column and a part of it, are both assigned."""
    tree: Tree = {}
    for path, value in assigned.items():
        at = tree
        for part in path[:-1]:
            below = at.setdefault(part, {})
            if isinstance(below, Column):
                raise InvalidRequest(f"{what} assigns {'.'.join(path)!r} and a column that contains it; assign one of them")
            at = below
        if path[-1] in at:
            raise InvalidRequest(f"{what} assigns {'.'.join(path)!r} twice; assign it once", column=".".join(path))
        at[path[-1]] = value
    return tree


@dataclass(frozen=True, slots=True)
class Assigned:
    """Values that an operation, `what` in messages, gives to columns, by their paths, and their types, both as Spark resolves them.

    `evolves`: structs may lack fields of the table's, which keep what they have; otherwise they must have all of them.
    """

    values: Mapping[Path, Column]
    types: Mapping[Path, SparkType]
    what: str
    evolves: bool = False

    def kept_in(self, schema: StructType) -> frozenset[str]:
        """The table's columns that keep their value, or a part of it."""
        return frozenset(schema.names) - {path[0] for path in self.values if len(path) == 1}

    def gives(self, name: str) -> bool:
        """Whether it assigns a column, or a part of it."""
        return any(path[0] == name for path in self.values)


def defaults_in(spark: SparkSession, values: Mapping[Path, Column | str], schema: StructType) -> dict[Path, Column | str]:
    """The values with a column's default in place of the word DEFAULT, null without one; generated columns are computed anyway."""
    found: dict[Path, Column | str] = {}
    for path, value in values.items():
        field = schema.get(path[0])
        if field is None or len(path) > 1 or not isinstance(value, str) or not is_word_default(value, schema):
            found[path] = value
        elif generated_of(field) is None:
            found[path] = default_value(spark, field)
    return found


def assigned_in(
    frame: DataFrame, values: Mapping[Path, Column | str], what: str, *, evolves: bool = False, subqueries: bool = False
) -> Assigned:
    """Values over the rows of `frame`, which may have `subqueries`.

    Raises AnalysisException for an expression that Spark cannot resolve, and InvalidRequest for one that is not of one row.
    """
    found = dict(zip(values, resolved_values(frame, [*map(as_column, values.values())], what, subqueries=subqueries), strict=True))
    return Assigned({path: value for path, (value, _) in found.items()}, {path: kind for path, (_, kind) in found.items()}, what, evolves)


def new_values(spark: SparkSession, assigned: Assigned, schema: StructType, old: Mapping[str, Column]) -> dict[str, Column]:
    """The new value of each assigned top-level column; `old` has the columns' present values.

    Values are cast (ANSI): texts, too, into any type. Raises SchemaMismatch for a value whose type cannot be cast, InvalidRequest if a
    column is assigned twice.
    """
    kinds = to_spark(schema)
    rule = Storing(casts=True, whole=not assigned.evolves)
    stored: dict[Path, Column] = {}
    for path, value in assigned.values.items():
        before = _at(old, path) if assigned.evolves else None
        stored[path] = as_stored(spark, value, assigned.types[path], _type_at(kinds, path), path, rule, old=before)
    tree = by_path(stored, assigned.what)
    return {name: _nested(new, old.get(name), kinds[name].dataType, name) for name, new in tree.items()}


def _at(old: Mapping[str, Column], path: Path) -> Column | None:
    column = old.get(path[0])
    for part in path[1:]:
        column = None if column is None else column.getField(part)
    return column


def _type_at(kind: SparkType, path: Path) -> SparkType:
    at: Any = kind
    for part in path:
        at = at[part].dataType
    found: SparkType = at
    return found


def _nested(new: Tree | Column, old: Column | None, kind: SparkType, path: str) -> Column:
    """A column's new value: as assigned, or its old struct with some fields assigned."""
    if isinstance(new, Column):
        return new
    assert isinstance(kind, SparkStruct)
    parts: list[Column] = []
    for field in kind.fields:
        before = F.lit(None).cast(field.dataType) if old is None else old.getField(field.name)
        below = new.get(field.name)
        parts.append((before if below is None else _nested(below, before, field.dataType, f"{path}.{field.name}")).alias(field.name))
    return F.struct(*parts)


@dataclass(frozen=True, slots=True)
class Storing:
    """How values get into columns. `casts`: by any ANSI cast, not by ANSI store assignment alone. `whole`: structs have all fields."""

    casts: bool = False
    whole: bool = False


def as_stored(
    spark: SparkSession,
    value: Column,
    given: SparkType,
    kind: SparkType,
    path: Path,
    rule: Storing = Storing(),  # noqa: B008 - it is frozen
    *,
    old: Column | None = None,
) -> Column:
    """A value cast to the column's type; fields of structs go by name. Fields that it lacks are those of `old`, the column's present value,
    on every level of structs; null without it, and in elements of arrays and maps, which replace the old ones.

    Raises SchemaMismatch if the rule's casts cannot make the type, and if it wants whole structs for one that lacks a field.

    A job that meets a number which does not fit fails with CAST_OVERFLOW_IN_TABLE_INSERT, which names the column, and one that meets
    another value that does not with CAST_INVALID_INPUT, which names the value.
    """
    if _same(given, kind):
        return value
    if isinstance(given, SparkStruct) and isinstance(kind, SparkStruct):
        return _struct_as_stored(spark, value, given, kind, path, rule, old)
    if isinstance(given, SparkArray) and isinstance(kind, SparkArray) and has_struct(kind):
        below = given.elementType, kind.elementType
        return F.transform(value, lambda each: as_stored(spark, each, *below, (*path, "element"), rule))
    if isinstance(given, SparkMap) and isinstance(kind, SparkMap) and has_struct(kind):
        keys, items = (given.keyType, kind.keyType), (given.valueType, kind.valueType)
        keyed = F.transform_keys(value, lambda key, _: as_stored(spark, key, *keys, (*path, "key"), rule))
        return F.transform_values(keyed, lambda _, item: as_stored(spark, item, *items, (*path, "value"), rule))
    of_json = class_in_jvm(spark, "org.apache.spark.sql.types.DataType").fromJson
    types = [of_json(json.dumps(each.jsonValue())) for each in (given, kind)]
    casts = class_in_jvm(spark, f"{_CATALYST}.expressions.Cast")
    if not (casts.canAnsiCast(*types) if rule.casts else casts.canANSIStoreAssign(*types)):
        raise SchemaMismatch(
            f"a value of type {given.simpleString()} cannot be {'cast to' if rule.casts else 'stored in'} column {'.'.join(path)!r} of "
            f"type {kind.simpleString()}; {'give another value' if rule.casts else 'cast it'}",
            column=".".join(path),
            condition="DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION" if rule.casts else "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST",
        )
    cast = value.cast(kind)
    if not _may_overflow(kind) or casts.canUpCast(*types):
        return cast
    between = class_in_jvm(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    checked = class_in_jvm(spark, f"{_CATALYST}.expressions.CheckOverflowInTableInsert")
    return Column(between.column(checked(between.expression(cast._jc), ".".join(path))))


def _struct_as_stored(
    spark: SparkSession, value: Column, given: SparkStruct, kind: SparkStruct, path: Path, rule: Storing, old: Column | None
) -> Column:
    known = {each.name.lower(): each for each in given.fields}
    unknown = known.keys() - {each.name.lower() for each in kind.fields}
    if unknown:
        raise SchemaMismatch(f"{'.'.join(path)!r} has no field {', '.join(sorted(unknown))}; leave it out, or evolve the schema")
    lacking = [each.name for each in kind.fields if each.name.lower() not in known]
    if rule.whole and lacking:
        raise SchemaMismatch(
            f"the value of {'.'.join(path)!r} lacks {', '.join(lacking)}, which the table has there: a struct is written as a whole. Give "
            f"all of its fields, or assign single ones ({path[0]}.field = ...); a MERGE with schema evolution keeps the others as they are",
            columns=[".".join((*path, name)) for name in lacking],
            condition="INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_FIND_DATA",
        )
    parts: list[Column] = []
    for each in kind.fields:
        field, before = known.get(each.name.lower()), None if old is None else old.getField(each.name)
        if field is not None:
            below = (*path, each.name)
            part = as_stored(spark, value.getField(field.name), field.dataType, each.dataType, below, rule, old=before)
        else:
            part = F.lit(None).cast(each.dataType) if before is None else before
        parts.append(part.alias(each.name))
    exists = value.isNotNull()
    return F.when(exists if old is None or not _lacks_fields(given, kind) else exists | old.isNotNull(), F.struct(*parts))


def _lacks_fields(given: SparkStruct, kind: SparkStruct) -> bool:
    """Whether a struct, or one in it, lacks a field."""
    known = {each.name.lower(): each.dataType for each in given.fields}
    for each in kind.fields:
        below = known.get(each.name.lower())
        if below is None:
            return True
        if isinstance(below, SparkStruct) and isinstance(each.dataType, SparkStruct) and _lacks_fields(below, each.dataType):
            return True
    return False


def _may_overflow(kind: SparkType) -> bool:
    """Whether a type has numbers of which there are larger ones; structs are cast field by field."""
    match kind:
        case SparkArray():
            return _may_overflow(kind.elementType)
        case SparkMap():
            return _may_overflow(kind.keyType) or _may_overflow(kind.valueType)
    return isinstance(kind, (ByteType, ShortType, IntegerType, LongType, DecimalType))


def _same(given: SparkType, kind: SparkType) -> bool:
    """Whether two types are equal but for nullability."""
    return given == kind or (given.simpleString() == kind.simpleString() and not has_struct(kind))


def has_struct(kind: SparkType) -> bool:
    """Whether a type is a struct or has one in it."""
    match kind:
        case SparkStruct():
            return True
        case SparkArray():
            return has_struct(kind.elementType)
        case SparkMap():
            return has_struct(kind.keyType) or has_struct(kind.valueType)
    return False


def old_values(frame: DataFrame) -> dict[str, Column]:
    """The columns of the target in its own frame, which stay what they are in a join."""
    return {name: frame[quoted(name)] for name in frame.columns}


@contextmanager
def as_the_table_stores(frame: DataFrame, schema: StructType, *, evolves: bool) -> Iterator[DataFrame]:
    """The frame, its columns cast where the table has other types: Spark's ANSI store assignment (whole numbers and floating ones into
    one another, anything into text, never text into something else), and an error for a value that does not fit.

    A column that the table lacks, or takes as it is, stays as it is; so do structs if the write `evolves` the schema, for their
    new fields. Raises SchemaMismatch for a type that cannot be stored. A frame with casts is of a copy of its session, which is
    the thread's own within the block.
    """
    unfit = {each.name for each in from_spark(frame.schema).fields if not _fits(each, schema)}
    kinds = {each.name: each.dataType for each in to_spark(schema).fields}
    wanted = {
        name: kind for name in unfit if (known := schema.get(name)) and not (has_struct(kind := kinds[known.name]) and evolves)
    }  # fmt: skip
    if not wanted or not hasattr(frame.sparkSession, "_jsparkSession"):  # over Spark Connect, Arrow's rules decide
        yield frame
        return
    with session_for_changes(frame.sparkSession) as session:
        given = in_session(session, frame)
        columns = [
            as_stored(session, column, each.dataType, wanted[each.name], (each.name,)).alias(each.name) if each.name in wanted else column
            for each in frame.schema.fields
            for column in (given[quoted(each.name)],)
        ]
        yield given.select(*columns)


def _fits(given: StructField, schema: StructType) -> bool:
    """Whether the table lacks the column, or has the same type, whatever may be null."""
    known = schema.get(given.name)
    return known is None or as_nullable(known).type == as_nullable(given).type
