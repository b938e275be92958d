"""Statistics of files with deletion vectors: counts are physical, bounds may be wider than the remaining rows."""

from __future__ import annotations

import json
from typing import Any

import orjson

from .records import AddFile


def record_count(stats: str | None) -> int | None:
    """The physical number of rows in a file, including deleted ones; None if its statistics do not say."""
    try:
        fields = orjson.loads(stats or "null")
    except orjson.JSONDecodeError:
        return None
    counted = fields.get("numRecords") if isinstance(fields, dict) else None
    return counted if type(counted) is int and counted >= 0 else None


def live_count(add: AddFile) -> int | None:
    """The number of a file's remaining rows; None if its statistics do not say."""
    counted = record_count(add.stats)
    return counted if counted is None or add.deletion_vector is None else counted - add.deletion_vector.cardinality


def wide(stats: str | None) -> str | None:
    """Statistics for a file that got a deletion vector: marked as not tight, with all numbers unchanged.

    Text that is not statistics is returned unchanged.
    """
    text = (stats or "").strip()
    try:
        fields = orjson.loads(text or "null")
        if not isinstance(fields, dict) or fields.get("tightBounds") is False:
            return stats
        if fields and "tightBounds" not in fields:
            return text[:-1] + ',"tightBounds":false}'
        # Numbers stay text: a float would lose digits of a decimal bound.
        fields = json.loads(text, parse_float=_verbatim, parse_int=_verbatim)
    except ValueError:
        return stats
    return orjson.dumps({**fields, "tightBounds": False}).decode()


def merged(stats: str | None, more: str | None) -> str | None:
    """Statistics with what others of the same file say besides, and instead of the same; text that is not statistics is left out."""
    known, added = _fields(stats), _fields(more)
    return stats if added is None else more if known is None else orjson.dumps(_united(known, added)).decode()


def _fields(stats: str | None) -> dict[str, Any] | None:
    try:
        fields = json.loads((stats or "null").strip() or "null", parse_float=_verbatim, parse_int=_verbatim)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _united(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = {name: _united(known[name], each) for name, each in more.items() if isinstance(each, dict) and isinstance(known.get(name), dict)}
    return {**known, **more, **both}


def _verbatim(number: str) -> Any:
    return orjson.Fragment(number)
