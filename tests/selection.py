"""Which tests a run tries: all of `make test`, and of the long ones none, all, or one part of several.

A test marked `many` has many cases of one rule. Every run tries the first of them and about a quarter of the others; the rest are `long`.
A test marked `costly` takes seconds of processor time: it is `long` unless the run has a `--long-share`, as continuous integration's have.
A run with `--long-share 3/16` also tries the third of sixteen parts of the long tests, so that sixteen such runs try them all.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable
from typing import Final

import pytest

__all__ = ["left_for_long", "share_of"]

ONE_IN: Final = 4


def left_for_long(items: Iterable[pytest.Item], *, costly: bool) -> list[pytest.Item]:
    """The cases of tests marked `many` that not every run tries; with `costly` also the tests marked so."""
    seen, left = set[str](), list[pytest.Item]()
    for item in items:
        if costly and item.get_closest_marker("costly") is not None:
            left.append(item)
            continue
        if item.get_closest_marker("many") is None or item.get_closest_marker("long") is not None:
            continue
        test = item.nodeid.partition("[")[0]
        if test in seen and _part(item, ONE_IN):
            left.append(item)
        seen.add(test)
    return left


def share_of(text: str) -> Callable[[pytest.Item], bool]:
    """Whether an item belongs to the part that a text like "3/16" names. Raises UsageError if it is none of "1/N" to "N/N"."""
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise pytest.UsageError(f"--long-share {text!r}: give a part and the number of parts, such as 3/16")
    return lambda item: _part(item, parts) == part - 1


def _part(item: pytest.Item, parts: int) -> int:
    """Names decide, so that all workers agree, and a test that comes or goes moves no other one."""
    return zlib.crc32(item.nodeid.encode()) % parts
