"""PySpark on top of the tables: the data source `format("sluice")`, reading with Spark's own scan, session settings."""

from __future__ import annotations

from .errors import original
from .scan import read
from .session import configure, use_session

__all__ = ["configure", "original", "read", "use_session"]
