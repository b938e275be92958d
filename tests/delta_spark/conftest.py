"""One Delta Lake on Spark and one DuckDB for all of these tests.

Without an environment for them the tests cannot run: `make test-delta` makes one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .engine import PYTHON, Delta, DuckDB, running, running_duckdb


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter of the environment that they run in."""
    found = os.environ.get(PYTHON)
    if not found:
        pytest.fail(f"{PYTHON} does not name the interpreter of an environment with PySpark: run `make test-delta`")
    return found


@pytest.fixture(scope="session")
def delta(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delta]:
    """Delta Lake on Spark."""
    with running(python, tmp_path_factory.mktemp("delta")) as engine:
        yield engine


@pytest.fixture(scope="session")
def duckdb(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDB]:
    """DuckDB with its extension for Delta tables."""
    with running_duckdb(python, tmp_path_factory.mktemp("duckdb")) as engine:
        yield engine
