from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sluice.storage.stores.memory import MemoryStore


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """An empty store that no other test sees."""
    memory = MemoryStore.open(uuid.uuid4().hex)
    yield memory
    memory.forget()
