"""What the tests of the shell share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.service.connect import release


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[str]:
    """A coordinator in memory, with one namespace."""
    address = f"memory://{uuid.uuid4().hex}"
    sluice.Catalog(address, root=tmp_path / "tables").create_namespace("sales")
    yield address
    release(address)
