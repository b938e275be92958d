"""Statistics of files with deletion vectors: counts are physical, bounds may be wider than the rows that are left."""

from __future__ import annotations

import json
from typing import Any

import orjson

from .records import AddFile

__all__ = ["live_count", "record_count", "wide"]


def record_count(stats: str | None) -> int | None:
    """How many rows a file holds physically, deleted ones included; None when its statistics do not say."""
    try:
        fields = orjson.loads(stats or "null")
    except orjson.JSONDecodeError:
        return None
    counted = fields.get("numRecords") if isinstance(fields, dict) else None
    return counted if type(counted) is int and counted >= 0 else None


def live_count(add: AddFile) -> int | None:
    """How many rows of a file are left; None when its statistics do not say."""
    counted = record_count(add.stats)
    return counted if counted is None or add.deletion_vector is None else counted - add.deletion_vector.cardinality


def wide(stats: str | None) -> str | None:
    """The statistics of a file that got a deletion vector: marked as not tight, else as they were, number by number.

    What is no statistics is returned as it is.
    """
    text = (stats or "").strip()
    try:
        fields = orjson.loads(text or "null")
        if not isinstance(fields, dict) or fields.get("tightBounds") is False:
            return stats
        if fields and "tightBounds" not in fields:
            return text[:-1] + ',"tightBounds":false}'
        # Numbers stay the text they are: a float would not hold the digits of a decimal bound.
        fields = json.loads(text, parse_float=_verbatim, parse_int=_verbatim)
    except ValueError:
        return stats
    return orjson.dumps({**fields, "tightBounds": False}).decode()


def _verbatim(number: str) -> Any:
    return orjson.Fragment(number)
