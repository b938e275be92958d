"""Cases for `sluice explain`: a transaction, its table and the winners, as one JSON object. Fields that decide nothing may be omitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, NoReturn, TypeVar

from ....storage.actions import Action, CommitInfo
from ....storage.actions.codec import action_of
from ....storage.dataclass import dataclass
from ....storage.errors import Corrupt, InvalidRequest, SchemaMismatch
from ....storage.jsontext import loads
from ....storage.schema.datatypes import types_of
from ....storage.schema.schema import PrimitiveType, StructField, StructType, parse_schema, schema_to_json
from ....storage.schema.sqltypes import parse_sql_type
from ..intent import POLICY_PROPERTY, ConflictPolicy, IsolationLevel, stricter, table_policy

READ_OPS: Final[Mapping[str, str | None]] = {
    "metadata": None,
    "filterFiles": "predicates",
    "readWholeTable": None,
    "txnVersion": "appId",
    "partitionsOf": "partitionValues",
    "readFiles": "paths",
}
"""What a transaction may have read, each with the field that details it."""

FIELDS: Final = (
    "partition_columns",
    "table_isolation",
    "policy",
    "schema",
    "setup",
    "txn_reads",
    "winning_commits",
    "winning_operation",
    "own_actions",
    "own_operation",
)
"""The fields of a case."""

# Required by the protocol, but without effect on any rule, or with a natural default.
_LEFT_OUT: Final[Mapping[str, Mapping[str, Any]]] = {
    "add": {"partitionValues": {}, "size": 0, "modificationTime": 0, "dataChange": True},
    "remove": {"dataChange": True},
    "cdc": {"partitionValues": {}, "size": 0, "dataChange": False},
    "txn": {"version": 0},
    "domainMetadata": {"configuration": "", "removed": False},
}
_SHOWN: Final = 120

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Read:
    """One thing a transaction read; see READ_OPS."""

    op: str
    predicates: tuple[str, ...] = ()
    app_id: str = ""
    partitions: tuple[Mapping[str, str | None], ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A validated case. `isolation` is None if it has none; `winning_operation` names commits that do not name theirs."""

    name: str
    schema: StructType
    partition_columns: tuple[str, ...]
    isolation: IsolationLevel | None
    policy: ConflictPolicy | None
    setup: tuple[Action, ...]
    reads: tuple[Read, ...]
    winning_commits: tuple[tuple[Action, ...], ...]
    winning_operation: str
    own_actions: tuple[Action, ...]
    own_operation: str
    notes: tuple[str, ...] = ()

    def partition_types(self) -> dict[str, str]:
        """The partition columns with the names of their types."""
        types = {field.name: field.type for field in self.schema.fields}
        return {name: kind.name for name in self.partition_columns if isinstance(kind := types[name], PrimitiveType)}

    def column_types(self) -> dict[str, str]:
        """The data columns with their types as in a schema's JSON."""
        return types_of(field for field in self.schema.fields if field.name not in self.partition_columns)


def read_case(text: bytes, name: str) -> Case:
    """The case in a JSON text; errors call it `name`. Raises InvalidRequest, naming the field and the remedy."""
    return _Reader(name).case(text)


class _Reader:
    """Reads one case; every problem is reported with the case's name and the field."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._notes: list[str] = []
        self._columns: tuple[str, ...] = ()
        self._table: Mapping[str, Any] = {}

    def case(self, text: bytes) -> Case:
        try:
            found = loads(text)
        except ValueError as cause:
            raise InvalidRequest(f"{self._name} is not JSON: {cause}; write one JSON object in it", case=self._name) from cause
        if not isinstance(found, dict):
            raise InvalidRequest(f"{self._name} contains {_shown(found)}; write one JSON object with the fields of a case", case=self._name)
        fields = {key: value for key, value in found.items() if value is not None}
        for key in fields:  # refuse likely misspellings; other unknown names (a title, a remark) are ignored
            close = get_close_matches(key.lower().replace("-", "_"), FIELDS, 1, 0.8) if key not in FIELDS else []
            if close:
                self._fail(key, "is not a field of a case", f"did you mean {close[0]}?")
        setup = self._typed(fields.get("setup", []), list, "setup", "a list of Delta actions")
        bodies = [each.get("metaData") for each in setup if isinstance(each, dict)]
        written = {key: value for body in bodies if isinstance(body, dict) for key, value in body.items() if value is not None}
        self._columns = self._texts(fields.get("partition_columns", written.get("partitionColumns") or []), "partition_columns")
        schema = self._schema(fields, written.get("schemaString"))
        # what a metaData action omits is the table's own
        made: Mapping[str, Any] = {"id": "", "schemaString": schema_to_json(schema), "partitionColumns": list(self._columns)}
        self._table = {name: written.get(name, default) for name, default in made.items()}
        commits = self._typed(fields.get("winning_commits", []), list, "winning_commits", "a list of commits, each a list of Delta actions")
        return Case(
            name=self._name,
            schema=schema,
            partition_columns=self._columns,
            isolation=self._setting(fields, "table_isolation", lambda named: stricter(IsolationLevel.SNAPSHOT, named)),
            policy=self._setting(fields, "policy", lambda named: table_policy({POLICY_PROPERTY: named})),
            setup=self._actions(setup, "setup"),
            reads=tuple(
                self._read(each, f"txn_reads[{number}]")
                for number, each in enumerate(self._typed(fields.get("txn_reads", []), list, "txn_reads", "a list of reads"))
            ),
            winning_commits=tuple(self._actions(commit, f"winning_commits[{number}]") for number, commit in enumerate(commits)),
            winning_operation=self._text(fields.get("winning_operation", ""), "winning_operation"),
            own_actions=tuple(
                action for action in self._actions(fields.get("own_actions", []), "own_actions") if not isinstance(action, CommitInfo)
            ),
            own_operation=self._text(fields.get("own_operation", ""), "own_operation"),
            notes=tuple(self._notes),
        )

    def _setting(self, fields: Mapping[str, Any], name: str, choose: Callable[[str], _T]) -> _T | None:
        if name not in fields:
            return None
        try:
            return choose(self._text(fields[name], name))
        except InvalidRequest as refused:
            self._fail(name, f"cannot be used: {refused.message}", "leave it out for the table's own")

    def _schema(self, fields: Mapping[str, Any], written: Any) -> StructType:
        columns: dict[str, StructField] = {}
        if written is not None:
            try:
                columns = {field.name: field for field in parse_schema(self._text(written, "setup: metaData.schemaString")).fields}
            except Corrupt as cause:
                self._fail("setup: metaData.schemaString", f"is not a schema: {cause.message}", "copy it from the table's log")
        for column, kind in self._typed(fields.get("schema", {}), dict, "schema", 'an object like {"x": "int"}').items():
            try:
                columns[column] = StructField(column, parse_sql_type(self._text(kind, f"schema.{column}")))
            except SchemaMismatch as cause:
                self._fail(f"schema.{column}", f"cannot be used: {cause.message}", "an unused column may be left out")
        for column in self._columns:
            if column not in columns:
                self._notes.append(f"partition column {column!r} has no type in schema and is taken for a string")
                columns[column] = StructField(column, PrimitiveType("string"))
            elif not isinstance(columns[column].type, PrimitiveType):
                self._fail(f"schema.{column}", f"is {columns[column].type}", "a partition column has a primitive type")
        return StructType(columns.values())

    def _actions(self, found: Any, field: str) -> tuple[Action, ...]:
        actions = self._typed(found, list, field, "a list of Delta actions")
        return tuple(self._action(each, f"{field}[{number}]") for number, each in enumerate(actions))

    def _action(self, found: Any, field: str) -> Action:
        body = self._typed(found, dict, field, 'a Delta action like {"add": {"path": "a"}}')
        completed = dict(body)
        for name, inner in body.items():
            if isinstance(inner, dict):
                defaults = self._table if name == "metaData" else _LEFT_OUT.get(name, {})
                if name == "metaData" and not inner:
                    defaults = {**defaults, "id": f"not said in {field}"}  # an omitted id is not the same as the former one
                completed[name] = {**defaults, **{key: value for key, value in inner.items() if value is not None}}
        try:
            return action_of(completed)
        except ValueError as cause:
            self._fail(field, f"is not a Delta action: {cause}", "write it as in a file of _delta_log")

    def _read(self, found: Any, field: str) -> Read:
        body = self._typed(found, dict, field, 'an object like {"op": "readWholeTable"}')
        op = body.get("op")
        if not isinstance(op, str) or op not in READ_OPS:
            self._fail(f"{field}.op", f"is {_shown(op)}", f"use one of {', '.join(READ_OPS)}")
        said = READ_OPS[op]
        if said is None:
            return Read(op)
        value, place = body.get(said), f"{field}.{said}"
        if value is None and op != "filterFiles":
            self._fail(place, "is missing", f"{op} needs it")
        match op:
            case "filterFiles":
                return Read(op, predicates=self._texts(value or [], place))
            case "txnVersion":
                return Read(op, app_id=self._text(value, place))
            case "readFiles":
                return Read(op, paths=self._texts(value, place))
        return Read(op, partitions=tuple(self._partition(each, place) for each in self._typed(value, list, place, "a list of objects")))

    def _partition(self, found: Any, field: str) -> dict[str, str | None]:
        values: dict[str, str | None] = self._typed(found, dict, field, 'a list of objects like {"x": "1"}')
        for name, value in values.items():
            if name not in self._columns:
                self._fail(field, f"names {name!r}", f"the partition columns are {', '.join(self._columns) or 'none'}")
            if not (value is None or isinstance(value, str)):
                self._fail(field, f"has {_shown(value)} for {name}", "write partition values as text, as the log does")
        return values

    def _typed(self, value: Any, kind: type[_T], field: str, wanted: str) -> _T:
        if not isinstance(value, kind):
            self._fail(field, f"is {_shown(value)}", f"write {wanted}")
        return value

    def _text(self, value: Any, field: str) -> str:
        return self._typed(value, str, field, "text")

    def _texts(self, value: Any, field: str) -> tuple[str, ...]:
        return tuple(self._text(each, field) for each in self._typed(value, list, field, "a list of text"))

    def _fail(self, field: str, problem: str, remedy: str) -> NoReturn:
        raise InvalidRequest(f"{self._name}: {field} {problem}; {remedy}", case=self._name, field=field)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
