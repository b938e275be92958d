"""New values of columns: paths resolved against the table, values cast as Delta Lake's UPDATE and MERGE do, whole frames stored as Spark's
ANSI store assignment does; the expressions that columns of a new table have.
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

from ...storage.data.assignments import check_definitions
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.log.snapshot import Snapshot
from ...storage.schema.datatypes import as_nullable, default_of, features_of_columns, generated_of, is_identity, is_word_default
from ...storage.schema.schema import StructType
from ...tables.write.evolution import types_for
from ..active_session import session_for_changes
from ..jvm import class_in_jvm, column_of, in_session, items, quoted, tree_of
from ..schemas import from_spark, to_spark
from ..writing import default_value, in_utc
from .conditions import as_column, resolved_values

_CATALYST: Final = "org.apache.spark.sql.catalyst"
_NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType, DecimalType)
"""Types of numbers of which there are larger ones; structs are cast field by field."""

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
    return [str(each) for each in items(class_in_jvm(spark, f"{_CATALYST}.analysis.UnresolvedAttribute").parseAttributeName(text))]


def key_of_names(spark: SparkSession) -> Callable[[str], str]:
    """Names of which this makes the same text are one column to the session: unless `spark.sql.caseSensitive`, case does not count."""
    return str if spark.conf.get("spark.sql.caseSensitive") == "true" else str.lower


def no_such_column(text: str, part: str, known: Sequence[str]) -> InvalidRequest:
    """The refusal of the column `text`, of whose parts `part` is none of the names that are `known` there."""
    names = {name.lower(): name for name in known}
    near = [text] if text in known else [names[each] for each in get_close_matches(part.lower(), names, n=2)]
    meant = f", do you mean {' or '.join(map(_as_written, near))}?" if near else ";"
    message = f"column {text!r} is not in the table{meant} there are {', '.join(map(_as_written, known))}"
    return InvalidRequest(message, column=text, condition="UNRESOLVED_COLUMN.WITH_SUGGESTION")


def _as_written(name: str) -> str:
    """A name as expressions have it: with backticks if they would end it."""
    return name if re.fullmatch(r"\w+", name) else quoted(name)


@dataclass(frozen=True, slots=True)
class Assigned:
    """Values that an operation, `what` in messages, gives to columns, by their paths, and their types, both as Spark resolves them.
    `evolves`: structs may lack fields of the table's, which keep what they have; otherwise they must have all of them.
    """

    values: Mapping[Path, Column]
    types: Mapping[Path, SparkType]
    what: str
    evolves: bool = False

    def gives(self, name: str) -> bool:
        """Whether it assigns a column, or a part of it."""
        return any(path[0] == name for path in self.values)


def assigned_in(
    frame: DataFrame, values: Mapping[Path, Column | str], schema: StructType, what: str, *, evolves: bool, subqueries: bool
) -> Assigned:
    """Values over the rows of `frame`, which may have `subqueries`, for columns of a table with this schema. The word DEFAULT is a column's
    default, null without one; generated columns are computed anyway, identity columns numbered.

    Raises AnalysisException for an expression that Spark cannot resolve, and InvalidRequest for one that is not of one row.
    """
    columns: dict[Path, Column] = {}
    for path, value in values.items():
        field = schema.get(path[0])
        if field is None or len(path) > 1 or not isinstance(value, str) or not is_word_default(value, schema):
            columns[path] = as_column(value)
        elif generated_of(field) is None and not is_identity(field):
            columns[path] = default_value(frame.sparkSession, field)
    resolved = dict(zip(columns, resolved_values(frame, [*columns.values()], what, subqueries=subqueries), strict=True))
    types = {path: kind for path, (_, kind) in resolved.items()}
    return Assigned({path: value for path, (value, _) in resolved.items()}, types, what, evolves)


def new_values(spark: SparkSession, assigned: Assigned, kinds: SparkStruct, old: Mapping[str, Column]) -> dict[str, Column]:
    """The new value of each assigned top-level column of a table whose columns have these `kinds`; `old` has their present values.

    Values are cast (ANSI): texts, too, into any type. Raises SchemaMismatch for a value whose type cannot be cast, InvalidRequest if a
    column is assigned twice.
    """
    rule = Storing(casts=True, whole=not assigned.evolves)
    tree: Tree = {}
    for path, value in assigned.values.items():
        before = old.get(path[0]) if assigned.evolves else None
        kind: Any = kinds[path[0]].dataType
        for part in path[1:]:
            before = None if before is None else before.getField(part)
            kind = kind[part].dataType
        at = tree
        for part in path[:-1]:
            below = at.setdefault(part, {})
            if isinstance(below, Column):
                raise InvalidRequest(f"{assigned.what} assigns {'.'.join(path)!r} and a column that contains it; assign one of them")
            at = below
        if path[-1] in at:
            raise InvalidRequest(f"{assigned.what} assigns {'.'.join(path)!r} twice; assign it once", column=".".join(path))
        at[path[-1]] = as_stored(spark, value, assigned.types[path], kind, path, rule, old=before)
    return {name: _nested(new, old.get(name), kinds[name].dataType, name) for name, new in tree.items()}


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
    if given == kind or (given.simpleString() == kind.simpleString() and not _has_type(kind, SparkStruct)):
        return value  # they are equal but for nullability
    if isinstance(given, SparkStruct) and isinstance(kind, SparkStruct):
        return _struct_as_stored(spark, value, given, kind, path, rule, old)
    if isinstance(given, SparkArray) and isinstance(kind, SparkArray) and _has_type(kind, SparkStruct):
        below = given.elementType, kind.elementType
        return F.transform(value, lambda each: as_stored(spark, each, *below, (*path, "element"), rule))
    if isinstance(given, SparkMap) and isinstance(kind, SparkMap) and _has_type(kind, SparkStruct):
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
    if not _has_type(kind, *_NUMBERS) or casts.canUpCast(*types):
        return cast
    checked = class_in_jvm(spark, f"{_CATALYST}.expressions.CheckOverflowInTableInsert")
    return column_of(spark, checked(tree_of(spark, cast), ".".join(path)))


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


def _lacks_fields(given: SparkType, kind: SparkType) -> bool:
    """Whether a struct, or one in it, lacks a field."""
    if not isinstance(given, SparkStruct) or not isinstance(kind, SparkStruct):
        return False
    known = {each.name.lower(): each.dataType for each in given.fields}
    return any(each.name.lower() not in known or _lacks_fields(known[each.name.lower()], each.dataType) for each in kind.fields)


def _has_type(kind: SparkType, *types: type[SparkType]) -> bool:
    """Whether a type is one of these, or has one among its elements, keys and values; the fields of structs are not looked at."""
    match kind:
        case SparkArray():
            return _has_type(kind.elementType, *types)
        case SparkMap():
            return _has_type(kind.keyType, *types) or _has_type(kind.valueType, *types)
    return isinstance(kind, types)


@contextmanager
def as_the_table_stores(frame: DataFrame, schema: StructType, *, evolves: Snapshot | None) -> Iterator[DataFrame]:
    """The frame, its columns cast where the table has other types: Spark's ANSI store assignment (whole numbers and floating ones into
    one another, anything into text, never text into something else), and an error for a value that does not fit.

    A column that the table lacks, or takes as it is, stays as it is; if the write `evolves` the schema of a version, so do structs, for
    their new fields, and columns that get wider types. Raises SchemaMismatch for a type that cannot be stored. A frame with casts is of
    a copy of its session, which is the thread's own within the block.
    """
    schema = schema if evolves is None else types_for(evolves, schema, from_spark(frame.schema))
    kinds = {each.name: each.dataType for each in to_spark(schema).fields}
    targets: dict[str, SparkType] = {}
    for each in from_spark(frame.schema).fields:
        column = schema.get(each.name)
        if column is not None and as_nullable(column).type != as_nullable(each).type:
            kind = kinds[column.name]
            if evolves is None or not _has_type(kind, SparkStruct):
                targets[each.name] = kind
    if not targets or not hasattr(frame.sparkSession, "_jsparkSession"):  # over Spark Connect, Arrow's rules decide
        yield frame
        return
    with session_for_changes(frame.sparkSession) as session:
        given = in_session(session, frame)
        columns = [
            as_stored(session, column, each.dataType, targets[each.name], (each.name,)).alias(each.name) if each.name in targets else column
            for each in frame.schema.fields
            for column in (given[quoted(each.name)],)
        ]
        yield given.select(*columns)


# -- columns with defaults, and generated ones, checked before a table has them --------------------------------------------


def defined_in(spark: SparkSession, schema: SparkStruct) -> StructType:
    """The columns that a schema of Spark defines for a new table. Raises what `check_by_spark` does."""
    defined = from_spark(schema, defines=True)
    check_by_spark(spark, defined)
    return defined


def check_by_spark(spark: SparkSession, schema: StructType) -> None:
    """Raise InvalidRequest, SchemaMismatch or AnalysisException unless columns may have these defaults and expressions, as Spark sees them.

    An expression has one value for everybody: it calls no function of this session, and none that changes. Spark Connect has no session
    here to ask.
    """
    if not features_of_columns(schema) or not hasattr(spark, "_jsparkSession"):
        return
    check_definitions(schema)
    kinds = to_spark(schema)
    base = StructType([each for each in schema.fields if generated_of(each) is None and not is_identity(each)])
    with in_utc(spark) as session:
        nothing = session.createDataFrame([], SparkStruct([]))
        rows = session.createDataFrame([], to_spark(base))
        for each in schema.fields:
            name, text = each.name, generated_of(each) or default_of(each)
            if text is None:
                continue
            frame = nothing if generated_of(each) is None else rows
            [(value, kind)] = resolved_values(frame, [F.expr(text)], f"column {name!r}, whose expression is {text},")
            tree = tree_of(session, value)
            own = _functions_of_users(tree)
            if own:
                raise InvalidRequest(
                    f"column {name!r}, whose expression is {text}, calls {own[0]}, a function of this session, which other writers do not "
                    "have: use built-in functions",
                    column=name,
                    expression=text,
                )
            if not tree.deterministic():
                what = f"column {name!r} has an expression whose value changes from call to call: {text}"
                raise InvalidRequest(f"{what}; it must be the same for everybody", column=name, expression=text)
            declared, made = kinds[name].dataType.simpleString(), kind.simpleString()
            if frame is nothing:
                as_stored(session, value, kind, kinds[name].dataType, (name,))
            elif made != declared:
                what = f"column {name!r} is {declared}, and {text}, from which it is generated, is {made}"
                raise SchemaMismatch(f"{what}: write CAST({text} AS {declared})", column=name, expression=text)


def _functions_of_users(tree: Any) -> list[str]:
    name = str(tree.getClass().getSimpleName())
    own = [str(tree.sql())] if name.endswith(("UDF", "UDAF", "Aggregator")) else []
    return [*own, *(each for child in items(tree.children()) for each in _functions_of_users(child))]
