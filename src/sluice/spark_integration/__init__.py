"""PySpark integration: the data source `format("sluice")`, reading with Spark's own scan, sessions.

Spark runs each phase of a job in its own Python process, and each imports this package: so names are imported on first use.
Imports `tables` and below. Begin with `data_source/source.py`, the format, or `rows/merge.py`, changes of rows by Spark's tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

if TYPE_CHECKING:
    from .active_session import use_session as use_session
    from .errors import original as original
    from .scan.read import read as read
    from .session.routing import unroute as unroute
else:
    __getattr__, __dir__, __all__ = attach(__name__)
