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
from ..errors import Corrupt, NotATable
from ..schema.datatypes import ArrayType, DataType, MapType, PrimitiveType, StructType
from ..schema.mapping import MAPPING_KEYS, MODE_KEY, mapping_mode, physical_name
from ..schema.widening import CHANGES_KEY, widens
from .features import reader_features, writer_features
from .records import Metadata, Protocol

_ROW_TRACKING: Final = "delta.enableRowTracking"
_IDENTITY_KEYS: Final = frozenset({"delta.identity.highWaterMark"})
_WORDS: Final = frozenset({"comment", CHANGES_KEY})
"""What means nothing for files of the metadata of fields."""
_LACKING: Final = object()

_Changes: TypeAlias = Mapping[str, tuple[str | None, str | None]]
_Judge: TypeAlias = Callable[[str | None, str, _Changes], bool]


def describe(old: Metadata, new: Metadata) -> dict[str, Any]:
    """The difference of two metadata actions, as JSON values.

    `configuration` holds the properties that differ, each with [its old, its new value] (None: not set). `schema` is "same",
    "mapping" (columns differ only in what column mapping adds to them), "identity" (only in the high-water mark of identity columns),
    "columns" (files that were written under the old one are right under the new one: columns were added, may be null, have a wider type,
    another place or comment; with column mapping, they have another name, or are gone) or "changed". `other` says whether anything else
    differs: partitioning, name, format, ... `renamed` has the new names of columns by their old ones, None for those that are gone.
    """
    pairs = {key: [old.configuration.get(key), new.configuration.get(key)] for key in sorted({*old.configuration, *new.configuration})}
    schema, renamed = _schema_change(old, new)
    is_alike = replace(old, configuration={}, schema_string="", partition_columns=()) == replace(
        new, configuration={}, schema_string="", partition_columns=()
    )
    return {
        "configuration": {key: pair for key, pair in pairs.items() if pair[0] != pair[1]},
        "schema": schema,
        "other": not (is_alike and _partitions(old) == _partitions(new)),
        **({"renamed": renamed} if renamed else {}),
    }


def is_harmless(description: Mapping[str, Any], *, appends: bool = False) -> bool:
    """Whether writers that did not know of the described change may commit all the same; `appends`: those that only append.

    True if nothing changed, if only identity high-water marks moved, and if every changed property is on the allow-list with
    a value that switches something on; under appends also if their files are right in the changed table. Anything not made by `describe`
    is harmful.
    """
    changes = _changes(description.get("configuration"))
    if changes is None or description.get("other") is not False or {*description} - {"renamed"} != {"configuration", "schema", "other"}:
        return False
    match description["schema"]:
        case "same":
            pass
        case "identity":
            return not changes
        case "mapping" if MODE_KEY in changes:
            pass
        case "columns" if appends:
            pass
        case _:
            return False
    return all(key in _ALLOWED and after is not None and _ALLOWED[key](before, after, changes) for key, (before, after) in changes.items())


def only_marks(description: Mapping[str, Any]) -> bool:
    """Whether nothing but high-water marks of identity columns changed, which concerns no writer under any policy."""
    return description.get("schema") == "identity" and is_harmless(description)


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


# Any other property stops everybody, and so does removing one.
_ALLOWED: Final[Mapping[str, _Judge]] = {
    _ROW_TRACKING: _to("true"),
    "delta.rowTracking.materializedRowIdColumnName": _with_row_tracking,
    "delta.rowTracking.materializedRowCommitVersionColumnName": _with_row_tracking,
    MODE_KEY: lambda before, after, _: (before or "none").lower() == "none" and after.lower() == "name",
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


def _partitions(metadata: Metadata) -> tuple[str, ...]:
    """The partition columns, as files know them."""
    try:
        return metadata.physical_partitions
    except (Corrupt, NotATable):
        return metadata.partition_columns


def _schema_change(old: Metadata, new: Metadata) -> tuple[str, dict[str, str | None]]:
    """How the schema differs, as `describe` says it, and the new names of columns that were renamed or dropped (None)."""
    if old.schema_string == new.schema_string and mapping_mode(old.configuration) == mapping_mode(new.configuration):
        return "same", {}
    try:
        before, after = old.schema, new.schema
    except (Corrupt, NotATable):  # what cannot be compared counts as changed
        return "changed", {}
    differs = _Difference(may_drop=mapping_mode(old.configuration) != "none")
    if not differs.is_compatible(before, after):
        return "changed", {}
    if not differs.columns and not differs.keys:
        return "same", {}
    if not differs.columns and differs.keys <= MAPPING_KEYS:
        return "mapping", {}
    if not differs.columns and differs.keys <= _IDENTITY_KEYS:
        return "identity", {}
    return ("columns", differs.renamed) if differs.keys <= _WORDS else ("changed", {})


class _Difference:
    """What a change of the schema did to columns, which keep their names in files."""

    def __init__(self, *, may_drop: bool) -> None:
        self.keys: set[str] = set()
        """The metadata of fields that differ."""
        self.columns = False
        """Whether fields themselves differ."""
        self.renamed: dict[str, str | None] = {}
        self._may_drop = may_drop

    def is_compatible(self, old: DataType, new: DataType, path: str = "") -> bool:
        """Whether files with the old type are right under the new one."""
        match old, new:
            case StructType(), StructType():
                return self._have_compatible_fields(old, new, path)
            case ArrayType(), ArrayType():
                return self._may_be_null(old.contains_null, new.contains_null) and self.is_compatible(
                    old.element_type, new.element_type, f"{path}element."
                )
            case MapType(), MapType():
                return (
                    self._may_be_null(old.value_contains_null, new.value_contains_null)
                    and self.is_compatible(old.key_type, new.key_type, f"{path}key.")
                    and self.is_compatible(old.value_type, new.value_type, f"{path}value.")
                )
            case PrimitiveType(), PrimitiveType():
                self.columns = self.columns or old != new
                return old == new or widens(old, new)
        return False

    def _have_compatible_fields(self, old: StructType, new: StructType, path: str) -> bool:
        before, after = ({physical_name(each): each for each in struct.fields} for struct in (old, new))
        for name, field in after.items():
            was = before.get(name)
            if was is None:
                self.columns = True
                if not field.nullable or not {*field.metadata} <= MAPPING_KEYS | _WORDS:
                    return False
                continue
            if field.name != was.name:
                self.columns, self.renamed[path + was.name] = True, field.name
            self.keys |= {
                key for key in {*was.metadata, *field.metadata} if was.metadata.get(key, _LACKING) != field.metadata.get(key, _LACKING)
            }
            # check: files-of-narrower-types-need-the-history
            if CHANGES_KEY in was.metadata and CHANGES_KEY not in field.metadata:
                return False
            if not self._may_be_null(was.nullable, field.nullable) or not self.is_compatible(was.type, field.type, f"{path}{was.name}."):
                return False
        gone = [each for name, each in before.items() if name not in after]
        if gone:
            self.columns, self.renamed = True, {**self.renamed, **{path + each.name: None for each in gone}}
        elif [name for name in after if name in before] != list(before):
            self.columns = True
        return self._may_drop or not gone

    def _may_be_null(self, old: bool, new: bool) -> bool:
        self.columns = self.columns or old != new
        return new or not old
