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


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _Malformed(f"must be text, not {value!r}")
    return value


def _long(value: Any) -> int:
    if type(value) is not int or not LONG_MIN <= value <= LONG_MAX:
        raise _Malformed(f"must be a 64-bit integer, not {value!r}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise _Malformed(f"must be true or false, not {value!r}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if type(value) is not list:
        raise _Malformed(f"must be a list of text, not {value!r}")
    return tuple(_text(item) for item in value)


def _text_map(value: Any) -> dict[str, str]:
    return {name: _text(item) for name, item in _object(value).items()}


def _nullable_text_map(value: Any) -> dict[str, str | None]:
    return {name: None if item is None else _text(item) for name, item in _object(value).items()}


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _Malformed(f"must be an object, not {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class _Field:
    attribute: str
    wire: str
    read: Callable[[Any], Any]
    required: bool


@dataclass(frozen=True, slots=True)
class _Record:
    """How one record class is written: `defaults` replace fields that old writers omitted."""

    cls: type[Any]
    name: str
    by_wire: Mapping[str, _Field]
    required: frozenset[str]
    defaults: Mapping[str, Any]
    plain: Mapping[str, _Field]
    """The fields that need no conversion: commits have millions of lines."""
    needed: frozenset[str]
    """The attributes of the required fields."""


def _camel(attribute: str) -> str:
    head, *rest = attribute.split("_")
    return head + "".join(word.capitalize() for word in rest)


# Fields that are objects, and attributes that are inside one.
_NOT_PLAIN = frozenset({"deletionVector", "format", "formatProvider", "formatOptions"})


# How a field is read, by its type; those that may be None are absent, or null.
_READS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "int": _long,
    "bool": _flag,
    "tuple[str, ...]": _texts,
    "Mapping[str, str]": _text_map,
    "Mapping[str, str | None]": _nullable_text_map,
    "DeletionVector": _object,
}


def _record(cls: type[Any], name: str, defaults: Mapping[str, Any] | None = None) -> _Record:
    columns = [
        _Field(
            each.name, _camel(each.name), _READS[str(each.type).removesuffix(" | None")], each.default is each.default_factory is MISSING
        )
        for each in fields(cls)
        if each.name != "extra"
    ]
    required = frozenset(each.wire for each in columns if each.required) - (defaults or {}).keys()
    by_wire = {each.wire: each for each in columns}
    plain = {wire: each for wire, each in by_wire.items() if wire not in _NOT_PLAIN}
    return _Record(cls, name, by_wire, required, defaults or {}, plain, frozenset(by_wire[wire].attribute for wire in required))


_VECTOR = _record(DeletionVector, "deletionVector")
_RECORDS = (
    _record(AddFile, "add"),
    _record(RemoveFile, "remove"),
    _record(AddCDCFile, "cdc"),
    _record(Metadata, "metaData", {"configuration": {}, "partitionColumns": [], "schemaString": ""}),
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
        raise CorruptLogFile(f"{_shown(line)} is not an action of the Delta protocol: {cause}", reason=str(cause)) from cause


def decode_commit(data: Text, *, name: str) -> tuple[Action, ...]:
    """The actions of a whole commit file; errors call it `name`.

    Raises CorruptLogFile, naming file and line, for a truncated or malformed line, and for an empty file.
    """
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
    return decode_commit(text, name=name) if isinstance(text, bytes) else _Actions(text, name)


def without_files(actions: Iterable[Action]) -> Iterator[Action]:
    """The actions other than those of files; of a long text, file actions are not decoded."""
    found = actions.without_files() if isinstance(actions, _Actions) else actions
    return (each for each in found if not isinstance(each, (AddFile, RemoveFile, AddCDCFile)))


def decode_text(text: Text, *, name: str, files: bool = True) -> Iterator[Action]:
    """Decode actions one after the other, from a text that may be long. Without `files`, omits file actions in the usual spelling."""
    empty = True
    broken: tuple[int, ValueError] | None = None
    for number, line in enumerate(lines(text), start=1):
        if broken is not None:  # not the last line
            raise _no_json(name, *broken, "damaged") from broken[1]
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
        raise _no_json(name, *broken, "truncated") from broken[1]
    if empty:
        raise CorruptLogFile(f"{name} is empty: restore it from a copy, do not delete it", file=name, line=1, reason="empty")


def _no_json(name: str, number: int, cause: ValueError, what: str) -> CorruptLogFile:
    return _corrupt_line(name, number, f"is not JSON: {cause}; the file is {what}: restore it from a copy, do not delete it", cause)


def _corrupt_line(name: str, number: int, problem: str, cause: ValueError) -> CorruptLogFile:
    return CorruptLogFile(f"line {number} of {name} {problem}", file=name, line=number, reason=str(cause))


def action_of(value: Any) -> Action:
    """The action in a parsed JSON object `{name: body}`. Raises ValueError if there is none.

    If a known action has unknown keys beside it, returns the known one.
    """
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
        column = record.plain.get(wire)
        if column is not None:
            if value is not None:
                values[column.attribute] = _checked(column, value)
        elif wire in _NESTED and record.cls in _NESTED[wire].owners:
            rest = _NESTED[wire].read(value, values) if value is not None else {}
            if rest:
                extra[wire] = rest
        else:
            extra[wire] = value
    for wire, default in record.defaults.items():
        values.setdefault(record.by_wire[wire].attribute, record.by_wire[wire].read(default))
    if not record.needed <= values.keys():
        missing = sorted(wire for wire in record.required if record.by_wire[wire].attribute not in values)
        raise _Malformed(f"lacks {', '.join(missing)}")
    return record.cls(**values, extra=extra) if extra else record.cls(**values)


def _checked(column: _Field, value: Any) -> Any:
    try:
        return column.read(value)
    except _Malformed as cause:
        raise _Malformed(f"{column.wire} {cause}") from None


def _body(record: _Record, action: Any) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for wire, column in record.by_wire.items():
        value = getattr(action, column.attribute)
        if value is not None and wire not in _INNER:
            body[wire] = _vector_body(value) if isinstance(value, DeletionVector) else value
    if isinstance(action, Metadata):
        body["format"] = {"provider": action.format_provider, "options": action.format_options}
        if not action.schema_string:
            del body["schemaString"]
    if action.extra:
        require_json(action.extra)
        for wire, value in action.extra.items():
            body[wire] = {**body[wire], **value} if wire in _NESTED and wire in body else value
    return body


@dataclass(frozen=True, slots=True)
class _Nested:
    """A field that is an object: `read` fills the record's values and returns the unknown fields."""

    owners: frozenset[type[Any]]
    read: Callable[[Any, dict[str, Any]], dict[str, Any]]


def _read_vector(value: Any, values: dict[str, Any]) -> dict[str, Any]:
    known = {wire: inner for wire, inner in _object(value).items() if wire in _VECTOR.by_wire}
    values["deletion_vector"] = _read(_VECTOR, known)
    return {wire: inner for wire, inner in value.items() if wire not in known}


def _read_format(value: Any, values: dict[str, Any]) -> dict[str, Any]:
    rest = dict(_object(value))
    provider, options = rest.pop("provider", None), rest.pop("options", None)
    if provider is not None:
        values["format_provider"] = _text(provider)
    if options is not None:
        values["format_options"] = _text_map(options)
    return rest


def _vector_body(vector: DeletionVector) -> dict[str, Any]:
    return {wire: value for wire, column in _VECTOR.by_wire.items() if (value := getattr(vector, column.attribute)) is not None}


_NESTED = {
    "deletionVector": _Nested(frozenset({AddFile, RemoveFile}), _read_vector),
    "format": _Nested(frozenset({Metadata}), _read_format),
}
# Attributes of Metadata that are inside `format`, and so have no field of their own on the wire.
_INNER = frozenset({"formatProvider", "formatOptions"})


def _shown(line: bytes) -> str:
    text = line[:200].decode(errors="replace")
    return repr(text if len(line) <= 200 else text + "...")
