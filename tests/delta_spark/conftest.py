"""One Delta Lake on Spark for all of these tests. Without an environment for it they cannot run: `make test-delta` makes one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .engine import PYTHON, Delta, running


@pytest.fixture(scope="session")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delta]:
    """Delta Lake on Spark."""
    python = os.environ.get(PYTHON)
    if not python:
        pytest.fail(f"{PYTHON} does not name the interpreter of an environment with PySpark: run `make test-delta`")
    with running(python, tmp_path_factory.mktemp("delta")) as engine:
        yield engine
