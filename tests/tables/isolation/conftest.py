"""Where pairs of transactions meet."""

from __future__ import annotations

import pytest

from tests.tables.conftest import Place


@pytest.fixture
def real_if_long(request: pytest.FixtureRequest, in_memory: Place) -> Place:
    """A table of its own in memory, with a coordinator in memory; in the long tests with a tree of the real one, which they share."""
    if request.node.get_closest_marker("long") is None:
        return in_memory
    return Place(in_memory.location, f"zk://{request.getfixturevalue('zookeeper_hosts')}/matrices")
