"""Lossless and strict JSON: orjson, or the standard library where orjson would round.

orjson silently reads integers beyond 64 bits as floats and writes infinities as null. Here such integers stay exact, and
numbers that are not finite are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

from .errors import InvalidRequest

# Every integer too large for orjson has at least this many digits; false matches in strings or fractions only cost time.
# Runs of digits are found fastest if all of them are replaced by the same one.
_LONG_NUMBER = b"0" * 19
_DIGITS_ALIKE = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))


def loads(text: bytes) -> Any:
    """The value of a JSON text. Raises ValueError if it is not JSON or has numbers that are not finite."""
    if _LONG_NUMBER not in text.translate(_DIGITS_ALIKE):
        return orjson.loads(text)
    # As strict as above: orjson checks UTF-8, surrogates and overflowing floats.
    orjson.loads(text)
    return json.loads(text, parse_constant=_refuse)


def dumps(value: Any) -> bytes:
    """The JSON text of a value, compact, in UTF-8. Raises InvalidRequest for values that JSON cannot represent."""
    try:
        return orjson.dumps(value, default=_plain)
    except TypeError:
        # Beyond 64 bits, or not JSON at all: the check below decides.
        require_json(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()
    except ValueError as cause:
        raise InvalidRequest(f"{value!r} cannot be written as JSON: {cause}; give text that is valid Unicode and finite numbers") from cause


def require_json(value: Any) -> None:
    """Raise InvalidRequest unless `value` consists of JSON values: objects with text keys, arrays, text, finite numbers."""
    if value is None or isinstance(value, (str, bool, int)):
        return
    if isinstance(value, float):
        if math.isfinite(value):
            return
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise InvalidRequest(f"{name!r} cannot be the name of a JSON field: names are text", value=name)
            require_json(inner)
        return
    elif isinstance(value, (list, tuple)):
        for inner in value:
            require_json(inner)
        return
    raise InvalidRequest(f"{value!r} cannot be written as JSON: use text, a finite number, a boolean, a list or a mapping", value=value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
