"""Type widening ("Type Widening" in PROTOCOL.md): which types a column may change to while its files keep the narrower ones.

A field's metadata has the history of the changes. Readers convert what files have; a change writes no file again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from .datatypes import ArrayType, DataType, MapType, PrimitiveType, StructType, fields_inside, kind

CHANGES_KEY: Final = "delta.typeChanges"
WIDENING_KEY: Final = "delta.enableTypeWidening"
_WIDTHS: Final = ("byte", "short", "integer", "long")


def widens(old: PrimitiveType, new: PrimitiveType, *, by_itself: bool = False) -> bool:
    """Whether the protocol lets a column change its type so.

    `by_itself`: also without being told, because rows have the wider type. Delta Lake makes no other numbers of whole ones then.
    """
    match kind(old), kind(new):
        case "integer", "integer":
            return _WIDTHS.index(old.name) < _WIDTHS.index(new.name)
        case "float", "float":
            return (old.name, new.name) == ("float", "double")
        case "decimal", "decimal":
            return old != new and 0 <= new.scale - old.scale <= new.precision - old.precision
        case "date", "timestamp_ntz":
            return True
        case "integer", "float":
            return not by_itself and new.name == "double" and old.name != "long"
        case "integer", "decimal":
            return not by_itself and new.precision - new.scale >= (20 if old.name == "long" else 10)
    return False


def in_iceberg(old: PrimitiveType, new: PrimitiveType) -> bool:
    """Whether Iceberg's tables can widen a type so, too."""
    return widens(old, new, by_itself=True) and kind(old) == kind(new) and (kind(old) != "decimal" or old.scale == new.scale)


def widened(old: StructType, new: StructType, *, by_itself: bool = False) -> StructType:
    """`old` with the types of `new` where they are wider, and the history of that; everything else stays."""
    fields = list(old.fields)
    for place, each in enumerate(fields):
        other = new.get(each.name)
        changes: list[dict[str, str]] = []
        wider = each.type if other is None else _widened(each.type, other.type, by_itself, (), changes)
        metadata = {**each.metadata, CHANGES_KEY: [*each.metadata.get(CHANGES_KEY, ()), *changes]} if changes else each.metadata
        fields[place] = replace(each, type=wider, metadata=metadata)
    return StructType(fields)


def _widened(old: DataType, new: DataType, by_itself: bool, path: tuple[str, ...], changes: list[dict[str, str]]) -> DataType:
    """`old` as wide as `new`; notes the changes outside of structs, whose fields have their own history."""
    match old, new:
        case PrimitiveType(), PrimitiveType() if widens(old, new, by_itself=by_itself):
            inside = {"fieldPath": ".".join(path)} if path else {}
            changes.append({"fromType": old.name, "toType": new.name, **inside})
            return new
        case StructType(), StructType():
            return widened(old, new, by_itself=by_itself)
        case ArrayType(), ArrayType():
            return replace(old, element_type=_widened(old.element_type, new.element_type, by_itself, (*path, "element"), changes))
        case MapType(), MapType():
            key = _widened(old.key_type, new.key_type, by_itself, (*path, "key"), changes)
            return replace(old, key_type=key, value_type=_widened(old.value_type, new.value_type, by_itself, (*path, "value"), changes))
    return old


@lru_cache(maxsize=64)
def unreadable_changes(schema: StructType) -> tuple[str, ...]:
    """The changes in the histories of a schema that the protocol does not have, each with its column."""
    changes = [(path, each) for path, field in fields_inside(schema) for each in field.metadata.get(CHANGES_KEY, ())]
    ends = [(path, PrimitiveType(str(each.get("fromType"))), PrimitiveType(str(each.get("toType")))) for path, each in changes]
    return tuple(f"{path} from {old} to {new}" for path, old, new in ends if old != new and not widens(old, new))
