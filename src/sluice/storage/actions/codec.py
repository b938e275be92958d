"""Encodes and decodes actions as lines of a commit file.

Each record has a table of its fields: attribute, name on the wire, and the check that a value of its type must pass. Unknown fields go
into `extra`, unknown actions become an UnknownAction. As the protocol says, an explicit null of a known field means that the
field is absent, and it is not written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

from ..constants import LONG_MAX, LONG_MIN
from ..dataclass import dataclass
from ..errors import CorruptLogFile
from ..jsontext import dumps, loads, require_json
from .records import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    Txn,
    UnknownAction,
)
from .texts import LongText, Text, lines


class _Malformed(ValueError):
    """Raised when a JSON value violates the protocol."""


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _Malformed(f"must be an object, not {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class _Field:
    """A field: its attribute, its name on the wire, what JSON its values are, and whether texts inside of them may be null."""

    attribute: str
    wire: str
    json: type[Any]
    what: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class _Record:
    """How one record class is written. `required` has the wire names of the attributes that must be there."""

    cls: type[Any]
    name: str
    by_wire: Mapping[str, _Field]
    required: Mapping[str, str]
    defaults: Mapping[str, Callable[[], Any]]
    """Makes the attributes that old writers omitted."""
    nested: str | None
    """The field that is an object with fields of its own."""


def camel(attribute: str) -> str:
    """The protocol's name of an attribute."""
    head, *rest = attribute.split("_")
    return head + "".join(word.capitalize() for word in rest)


# What JSON a field is, by its type; those that may be None are absent, or null.
_JSON: Mapping[str, tuple[type[Any], str]] = {
    "str": (str, "text"),
    "int": (int, "a 64-bit integer"),
    "bool": (bool, "true or false"),
    "tuple[str, ...]": (list, "a list of text"),
    "Mapping[str, str]": (dict, "an object"),
    "Mapping[str, str | None]": (dict, "an object"),
    "DeletionVector": (dict, "an object"),
}
# No fields of their own on the wire: `format` holds two of them.
_INSIDE = frozenset({"extra", "format_provider", "format_options"})


def _record(cls: type[Any], name: str, nested: str | None = None, defaults: Mapping[str, Callable[[], Any]] | None = None) -> _Record:
    by_wire: dict[str, _Field] = {}
    required: dict[str, str] = {}
    for each in fields(cls):
        if each.name not in _INSIDE:
            kind, wire = str(each.type).removesuffix(" | None"), camel(each.name)
            by_wire[wire] = _Field(each.name, wire, *_JSON[kind], nullable=kind.endswith("| None]"))
            if each.default is each.default_factory is MISSING and each.name not in (defaults or {}):
                required[each.name] = wire
    return _Record(cls, name, by_wire, required, defaults or {}, nested)


_VECTOR = _record(DeletionVector, "deletionVector")
_RECORDS = (
    _record(AddFile, "add", nested="deletionVector"),
    _record(RemoveFile, "remove", nested="deletionVector"),
    _record(AddCDCFile, "cdc"),
    _record(Metadata, "metaData", nested="format", defaults={"configuration": dict, "partition_columns": tuple, "schema_string": str}),
    _record(Protocol, "protocol"),
    _record(Txn, "txn"),
    _record(DomainMetadata, "domainMetadata"),
    _record(CheckpointMetadata, "checkpointMetadata"),
    _record(Sidecar, "sidecar"),
)
_BY_NAME = {each.name: each for each in _RECORDS}
_BY_CLASS = {each.cls: each for each in _RECORDS}
_COMMIT_INFO = "commitInfo"
_OF_FILES = (b'{"add":{', b'{"remove":{', b'{"cdc":{')
_KNOWN = _BY_NAME.keys() | {_COMMIT_INFO}


def encode(action: Action) -> bytes:
    """One line of a commit file, without its newline. Raises InvalidRequest for values that JSON cannot represent."""
    if isinstance(action, CommitInfo):
        require_json(action.fields)
        return dumps({_COMMIT_INFO: action.fields})
    if isinstance(action, UnknownAction):
        require_json(action.body)
        return dumps({action.name: action.body})
    record = _BY_CLASS[type(action)]
    return dumps({record.name: _body(record, action)})


def encode_all(actions: Iterable[Action]) -> bytes:
    """The content of a commit file: one line per action, each with a newline."""
    return b"".join(encode(action) + b"\n" for action in actions)


def decode(line: bytes) -> Action:
    """The action of one line. Raises CorruptLogFile unless the line is a JSON object with one action."""
    try:
        return action_of(loads(line))
    except ValueError as cause:
        shown = repr(line[:200].decode(errors="replace") + ("" if len(line) <= 200 else "..."))
        raise CorruptLogFile(f"{shown} is not an action of the Delta protocol: {cause}", reason=str(cause)) from cause


def decode_commit(data: Text, *, name: str) -> tuple[Action, ...]:
    """The actions of a commit file, which errors call `name`. Raises CorruptLogFile for a line that is malformed, and for an empty file."""
    return tuple(decode_text(data, name=name))


class _Actions(Iterable[Action]):
    """The actions of a long text, decoded on each iteration."""

    def __init__(self, text: LongText, name: str) -> None:
        self._text, self._name = text, name

    def __iter__(self) -> Iterator[Action]:
        return decode_text(self._text, name=self._name)

    def without_files(self) -> Iterator[Action]:
        """The actions other than those of files."""
        return decode_text(self._text, name=self._name, files=False)


def actions_of(text: Text, *, name: str) -> Iterable[Action]:
    """The actions of a commit, for repeated iteration: a tuple, or decoded one by one from a long text."""
    return tuple(decode_text(text, name=name)) if isinstance(text, bytes) else _Actions(text, name)


def without_files(actions: Iterable[Action]) -> Iterator[Action]:
    """The actions other than those of files; of a long text, file actions are not decoded."""
    found = actions.without_files() if isinstance(actions, _Actions) else actions
    return (each for each in found if not isinstance(each, (AddFile, RemoveFile, AddCDCFile)))


def decode_text(text: Text, *, name: str, files: bool = True) -> Iterator[Action]:
    """Decode actions one after the other, from a text that may be long. Without `files`, omits file actions in the usual spelling."""
    empty, state = True, "truncated"
    broken: tuple[int, ValueError] | None = None
    for number, line in enumerate(lines(text), start=1):
        if broken is not None:
            state = "damaged"  # it is not the last line
            break
        if not line.strip():
            continue
        empty = False
        if not files and line.startswith(_OF_FILES) and line.endswith(b"}}"):
            continue
        try:
            yield from _actions_of(loads(line))
        except _Malformed as cause:
            problem = (
                f"breaks the Delta protocol: {cause}; ask the engine that wrote it, which its commitInfo names, and do not delete the file"
            )
            raise _corrupt_line(name, number, problem, cause) from cause
        except ValueError as cause:
            broken = number, cause
    if broken is not None:
        number, no_json = broken
        problem = f"is not JSON: {no_json}; the file is {state}: restore it from a copy, do not delete it"
        raise _corrupt_line(name, number, problem, no_json) from no_json
    if empty:
        raise CorruptLogFile(f"{name} is empty: restore it from a copy, do not delete it", file=name, line=1, reason="empty")


def _corrupt_line(name: str, number: int, problem: str, cause: ValueError) -> CorruptLogFile:
    return CorruptLogFile(f"line {number} of {name} {problem}", file=name, line=number, reason=str(cause))


def action_of(value: Any) -> Action:
    """The action in a parsed JSON object `{name: body}`; of several, the known one. Raises ValueError if there is none."""
    return _actions_of(value)[0]


def _actions_of(value: Any) -> list[Action]:
    """The known action of an object, if it has one, then the unknown ones, which are kept but ignored."""
    found = _object(value)
    if len(found) == 1:
        [(name, body)] = found.items()
        if body is not None and name in _KNOWN:
            return [_known_action(name, body)]
    present = {name: body for name, body in found.items() if body is not None}
    known = present.keys() & _KNOWN
    if len(known) > 1 or (not present and (len(found) != 1 or found.keys() & _KNOWN)):
        raise _Malformed(f"must have exactly one action, not {sorted(known) or 'none'}")
    # `{"name": null}` alone is an unknown action without a body; known actions must have one.
    unknown: list[Action] = [UnknownAction(name, body) for name, body in (present or found).items() if name not in _KNOWN]
    return [*(_known_action(name, present[name]) for name in known), *unknown]


def _known_action(name: str, body: Any) -> Action:
    if name == _COMMIT_INFO:
        return CommitInfo(_object(body))
    try:
        action: Action = _read(_BY_NAME[name], _object(body))
    except _Malformed as cause:
        raise _Malformed(f"{name}: {cause}") from None
    return action


def _read(record: _Record, body: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for wire, value in body.items():
        if wire == record.nested:
            if value is not None and (rest := _NESTED[wire](value, values)):
                extra[wire] = rest
        elif (column := record.by_wire.get(wire)) is None:
            extra[wire] = value
        elif value is not None:
            values[column.attribute] = _value(column, value)
    for attribute, make in record.defaults.items():
        values.setdefault(attribute, make())
    if not record.required.keys() <= values.keys():
        missing = sorted(wire for attribute, wire in record.required.items() if attribute not in values)
        raise _Malformed(f"lacks {', '.join(missing)}")
    return record.cls(**values, extra=extra) if extra else record.cls(**values)


def _value(column: _Field, value: Any) -> Any:
    """A field's value, as the record has it: one function for all, since commits have millions of lines."""
    if type(value) is not column.json or (column.json is int and not LONG_MIN <= value <= LONG_MAX):
        raise _Malformed(f"{column.wire} must be {column.what}, not {value!r}")
    if column.json is not list and column.json is not dict:
        return value
    for item in value if column.json is list else value.values():
        if type(item) is not str and not (item is None and column.nullable):
            raise _Malformed(f"{column.wire} must be text, not {item!r}")
    return tuple(value) if column.json is list else value


def _body(record: _Record, action: Any) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for wire, column in record.by_wire.items():
        value = getattr(action, column.attribute)
        if value is not None:
            body[wire] = _body(_VECTOR, value) if isinstance(value, DeletionVector) else value
    if isinstance(action, Metadata):
        body["format"] = {"provider": action.format_provider, "options": action.format_options}
        if not action.schema_string:
            del body["schemaString"]
    if record is not _VECTOR and action.extra:
        require_json(action.extra)
        for wire, value in action.extra.items():
            body[wire] = {**body[wire], **value} if wire in _NESTED and wire in body else value
    return body


def _read_vector(value: Any, values: dict[str, Any]) -> dict[str, Any]:
    known = {wire: inner for wire, inner in _object(value).items() if wire in _VECTOR.by_wire}
    values["deletion_vector"] = _read(_VECTOR, known)
    return {wire: inner for wire, inner in value.items() if wire not in known}


_PROVIDER = _Field("format_provider", "format", *_JSON["str"], nullable=False)
_OPTIONS = _Field("format_options", "format", *_JSON["Mapping[str, str]"], nullable=False)


def _read_format(value: Any, values: dict[str, Any]) -> dict[str, Any]:
    rest = dict(_object(value))
    for name, column in (("provider", _PROVIDER), ("options", _OPTIONS)):
        if (inner := rest.pop(name, None)) is not None:
            values[column.attribute] = _value(column, inner)
    return rest


# Fields that are objects: each fills the record's values, and returns the unknown fields.
_NESTED: Mapping[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {"deletionVector": _read_vector, "format": _read_format}
