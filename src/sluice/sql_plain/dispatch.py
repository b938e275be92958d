"""Which function carries out each kind of statement about an existing table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..statements.altering import Alter
from ..statements.foreign import Foreign
from ..statements.loading import Analyze, CopyInto, Detach, Reorganise, Repair
from ..statements.maintenance import Compact, Optimize, Restore, Vacuum
from ..statements.rows import Truncate
from ..statements.tables import Describe, Drop, Show
from . import loading, maintenance, partitions, refusals
from .definitions import showing, tables
from .place import Place
from .reports import Answer
from .request import Request

ON_PLACES: Final[Mapping[type, Callable[[Request, Any, Place], Answer]]] = {
    Optimize: maintenance.optimize,
    Compact: maintenance.compact,
    Vacuum: maintenance.vacuum,
    Restore: maintenance.restore,
    Reorganise: maintenance.reorganise,
    Repair: maintenance.repair,
    Analyze: maintenance.analyze,
    Detach: maintenance.detach,
    CopyInto: loading.copy_into,
    Drop: tables.drop,
    Alter: tables.alter,
    Truncate: partitions.truncate,
    Show: showing.show,
    Describe: showing.describe,
    Foreign: refusals.foreign,
}
"""The statements, other than those that need an engine, with the functions that carry them out."""
