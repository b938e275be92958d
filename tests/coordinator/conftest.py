"""What the tests of the coordinator share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A table whose coordinator and store are in memory; what must hold at any time is compared when the test ends."""
    made = World()
    yield made
    made.check()
