"""These tests are about `format("sluice")` as any session has it: the session of the tests does not route here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.spark_integration.session.routing import ROUTING

from ..streams.conftest import feed

__all__ = ["feed"]


@pytest.fixture(autouse=True)
def by_the_data_source(request: pytest.FixtureRequest) -> Iterator[None]:
    """Routing is off while a test runs that uses the session."""
    if "spark" not in request.fixturenames:
        yield
        return
    session = request.getfixturevalue("spark")
    session.conf.set(ROUTING, "false")
    yield
    session.conf.set(ROUTING, "true")
