"""Changes of a table's metadata and protocol, and whether writers that did not know of them may commit.

A description is plain JSON, so that it can travel with a commit and be judged later without the metadata themselves. The
judgement is Delta Lake's allow-list (ConflictChecker, "attemptToResolveMetadataConflicts"): a change that only switches on a
feature, and requires nothing of files written without it, stops nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from ..constants import (
    ADDRESS_KEY,
    COORDINATOR_KEY,
    ICT_ENABLED_KEY,
    ICT_ENABLEMENT_TIMESTAMP_KEY,
    ICT_ENABLEMENT_VERSION_KEY,
    MANAGED_KEY,
    NAME_KEY,
    NAMED_MS_KEY,
)
from ..errors import Corrupt
from ..schema.datatypes import parse_schema
from .features import reader_features, writer_features
from .records import Metadata, Protocol

_MODE: Final = "delta.columnMapping.mode"
_ROW_TRACKING: Final = "delta.enableRowTracking"
# What enabling column mapping adds to the metadata of fields.
_MAPPING_KEYS: Final = frozenset(
    {
        "delta.columnMapping.id",
        "delta.columnMapping.nested.ids",
        "delta.columnMapping.physicalName",
        "parquet.field.id",
        "parquet.field.nested.ids",
    }
)
_IDENTITY_KEYS: Final = frozenset({"delta.identity.highWaterMark"})
_LACKING: Final = object()

_Changes: TypeAlias = Mapping[str, tuple[str | None, str | None]]
_Judge: TypeAlias = Callable[[str | None, str, _Changes], bool]


def describe(old: Metadata, new: Metadata) -> dict[str, Any]:
    """The difference of two metadata actions, as JSON values.

    `configuration` holds the properties that differ, each with [its old, its new value] (None: not set). `schema` is "same",
    "mapping" (top-level columns differ only in what column mapping adds to them), "identity" (only in the high-water mark of
    identity columns) or "changed". `other` says whether anything else differs: partitioning, name, format, ...
    """
    keys = sorted({*old.configuration, *new.configuration})
    pairs = {key: [old.configuration.get(key), new.configuration.get(key)] for key in keys}
    alike = replace(old, configuration=new.configuration, schema_string=new.schema_string)
    return {
        "configuration": {key: pair for key, pair in pairs.items() if pair[0] != pair[1]},
        "schema": _schema_change(old.schema_string, new.schema_string),
        "other": alike != new,
    }


def is_harmless(description: Mapping[str, Any]) -> bool:
    """Whether writers that did not know of the described change may commit all the same.

    True if nothing changed, if only identity high-water marks moved, and if every changed property is on the allow-list with
    a value that switches something on. Anything not made by `describe` is harmful.
    """
    changes = _changes(description.get("configuration"))
    if changes is None or description.get("other") is not False or set(description) != {"configuration", "schema", "other"}:
        return False
    match description["schema"]:
        case "same":
            pass
        case "identity":
            return not changes
        case "mapping" if _MODE in changes:
            pass
        case _:
            return False
    return all(key in _ALLOWED and after is not None and _ALLOWED[key](before, after, changes) for key, (before, after) in changes.items())


def describe_protocol(old: Protocol, new: Protocol) -> dict[str, list[Any]]:
    """The features, named or implied, that a protocol change adds and removes; `reader` and `writer` are [old, new minimum version]."""
    before = (reader_features(old), writer_features(old))
    after = (reader_features(new), writer_features(new))
    return {
        "added": sorted((after[0] - before[0]) | (after[1] - before[1])),
        "removed": sorted((before[0] - after[0]) | (before[1] - after[1])),
        "reader": [old.min_reader_version, new.min_reader_version],
        "writer": [old.min_writer_version, new.min_writer_version],
    }


def _to(wanted: str) -> _Judge:
    return lambda _, after, __: after.lower() == wanted


def _when_new(before: str | None, _: str, __: _Changes) -> bool:
    return before is None


def _with_row_tracking(before: str | None, _: str, changes: _Changes) -> bool:
    return before is None and (changes.get(_ROW_TRACKING, (None, None))[1] or "").lower() == "true"


def _from_none_to_name(before: str | None, after: str, _: _Changes) -> bool:
    return (before or "none").lower() == "none" and after.lower() == "name"


# Any other property stops everybody, and so does removing one.
_ALLOWED: Final[Mapping[str, _Judge]] = {
    _ROW_TRACKING: _to("true"),
    "delta.rowTracking.materializedRowIdColumnName": _with_row_tracking,
    "delta.rowTracking.materializedRowCommitVersionColumnName": _with_row_tracking,
    _MODE: _from_none_to_name,
    "delta.columnMapping.maxColumnId": lambda _, after, __: after.isdecimal(),
    "delta.enableDeletionVectors": _to("true"),
    "delta.checkpointPolicy": _to("v2"),
    ICT_ENABLED_KEY: _to("true"),
    ICT_ENABLEMENT_VERSION_KEY: _when_new,
    ICT_ENABLEMENT_TIMESTAMP_KEY: _when_new,
    COORDINATOR_KEY: lambda *_: True,  # who coordinates does not affect the data
    ADDRESS_KEY: lambda *_: True,
    NAME_KEY: lambda *_: True,  # neither does the name
    NAMED_MS_KEY: lambda *_: True,
    MANAGED_KEY: lambda *_: True,
    "io.unitycatalog.tableId": _when_new,
    "ucTableId": _when_new,
}


def _changes(configuration: object) -> _Changes | None:
    """The changed properties, or None if this was not made by `describe`."""
    if not isinstance(configuration, Mapping):
        return None
    found: dict[str, tuple[str | None, str | None]] = {}
    for key, pair in configuration.items():
        match pair:
            case [str() | None as before, str() | None as after] if isinstance(key, str) and before != after:
                found[key] = (before, after)
            case _:
                return None
    return found


def _schema_change(old: str, new: str) -> str:
    if old == new:
        return "same"
    try:
        before, after = parse_schema(old), parse_schema(new)
    except Corrupt:  # what cannot be compared counts as changed
        return "changed"
    if before == after:
        return "same"
    if len(before.fields) != len(after.fields):
        return "changed"
    keys: set[str] = set()
    for mine, theirs in zip(before.fields, after.fields, strict=True):
        if (mine.name, mine.type, mine.nullable) != (theirs.name, theirs.type, theirs.nullable):
            return "changed"
        # of columns; nested fields are compared as parts of the type
        old_keys, new_keys = mine.metadata, theirs.metadata
        keys |= {key for key in {*old_keys, *new_keys} if old_keys.get(key, _LACKING) != new_keys.get(key, _LACKING)}
    if keys <= _MAPPING_KEYS:
        return "mapping"
    return "identity" if keys <= _IDENTITY_KEYS else "changed"
