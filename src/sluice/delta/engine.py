"""Changes of rows by Spark, which this release lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NoReturn

from pyspark.sql import Column

from ..storage.dataclass import dataclass
from .operations import missing

__all__ = ["Clause", "delete_rows", "merge_rows", "update_rows"]


def _nothing() -> dict[str, Column | str]:
    return {}


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a MERGE: rows that are "matched", "not_matched" or "not_matched_by_source", and what becomes of them."""

    matched: str
    action: str
    condition: Column | str | None = None
    assignments: Mapping[str, Column | str] = field(default_factory=_nothing)


def delete_rows(*_arguments: Any, **_more: Any) -> NoReturn:
    """Raises UnsupportedFeature."""
    raise missing("DeltaTable.delete")


def update_rows(*_arguments: Any, **_more: Any) -> NoReturn:
    """Raises UnsupportedFeature."""
    raise missing("DeltaTable.update")


def merge_rows(*_arguments: Any, **_more: Any) -> NoReturn:
    """Raises UnsupportedFeature."""
    raise missing("DeltaTable.merge")
