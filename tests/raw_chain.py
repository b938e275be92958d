"""The chain of a log, checked for the judges of production code: nothing here is shared with that.

Written from docs/decisions/0048-a-chained-log.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["file_number", "misfits"]

_MODULUS = 2**256


def file_number(file: Mapping[str, Any]) -> int:
    """The number of the file that an add or remove names."""
    vector = file.get("deletionVector") or {}
    unique_id = vector.get("storageType", "") + vector.get("pathOrInlineDv", "")
    if vector.get("offset") is not None:
        unique_id += "@" + str(vector["offset"])
    return int.from_bytes(hashlib.sha256(file["path"].encode() + b"\0" + unique_id.encode()).digest(), "big")


def misfits(version: int, info: Mapping[str, Any], before: bytes | None, files: int) -> Iterator[str]:
    """What is wrong with the chain in a version's commitInfo, after the file `before`, for live files whose numbers have this sum."""
    chain = info.get("sluice", {}).get("chain")
    previous = "" if before is None else hashlib.sha256(before).hexdigest()
    expected = {"version": version, "previous": previous, "files": f"{files % _MODULUS:064x}"}
    if chain != expected:
        yield f"I5: version {version} has the chain {chain} instead of {expected}"
