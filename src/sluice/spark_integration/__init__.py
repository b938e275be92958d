"""PySpark integration: the data source `format("sluice")`, reading with Spark's own scan, sessions.

Spark runs each phase of a job in its own Python process, and each imports this package: so names are imported on first use.
Imports `tables` and below. Begin with `data_source/source.py`, the format, or `rows/change.py`, changes of rows by Spark's tasks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .active_session import use_session
    from .errors import original
    from .scan.read import read
    from .session.routing import unroute

__all__ = ["original", "read", "unroute", "use_session"]

_HOMES: Final = {
    "original": "errors",
    "read": "scan.read",
    "unroute": "session.routing",
    "use_session": "active_session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
