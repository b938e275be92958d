"""The numbers that may only fall, and what to say about a count that is not within them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

FILE: Final = Path(__file__).with_name("budget.yaml")
HEADER: Final = "# These numbers may only fall, by `make budget ARGS=--lower`. CONTRIBUTING.md says how to use them.\n"

Sizes = Mapping[str, Mapping[str, int]]


def budget() -> dict[str, dict[str, int]]:
    loaded: dict[str, dict[str, int]] = yaml.safe_load(FILE.read_text()) or {}
    return loaded


def differences(counted: Sizes, allowed: Sizes) -> list[str]:
    """What is above its number, or more than 2 % below it, with what to do."""
    told = []
    for name, sizes in counted.items():
        for what, count in sizes.items():
            number = allowed.get(name, {}).get(what, 0)
            if count > number:
                told.append(f"{name}: {count} {what}, {count - number} above the budget of {number}: take out as many")
            elif count < number - number // 50:
                told.append(f"{name}: {count} {what}, {number - count} below the budget of {number}: `make budget ARGS=--lower`")
    return told


def lowered(counted: Sizes, allowed: Sizes) -> dict[str, dict[str, int]]:
    """The numbers of both, of each the lower one; what has no number yet gets what was counted."""
    return {
        name: {what: min(count, allowed.get(name, {}).get(what, count)) for what, count in sizes.items()} for name, sizes in counted.items()
    }


def write(sizes: Sizes) -> None:
    FILE.write_text(HEADER + yaml.safe_dump({name: dict(each) for name, each in sizes.items()}, sort_keys=False))
