"""A coordinator's names in memory, and SQL about them without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.coordinator.service.connect import release
from sluice.statements.duckdb.engine import run

__all__ = ["Warehouse", "warehouse"]


@dataclass(frozen=True)
class Warehouse:
    """Tables by name, and SQL about them."""

    coordinator: str
    catalog: sluice.Catalog
    folder: Path

    def rows(self, text: str, args: Any = None, max_bytes: int | None = None) -> list[tuple[Any, ...]]:
        found = run(text, args, coordinator=self.coordinator, max_bytes=max_bytes)
        return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=repr)  # names may occur twice

    def sql(self, *texts: str) -> None:
        for text in texts:
            run(text, coordinator=self.coordinator)


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    address = f"memory://{uuid.uuid4().hex}"
    catalog = sluice.Catalog(address, root=tmp_path / "tables")
    catalog.create_namespace("sales")
    yield Warehouse(address, catalog, tmp_path)
    release(address)
