"""Which function carries out each kind of statement that needs no engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..statements.altering import Alter, DropPartitions
from ..statements.foreign import Foreign
from ..statements.loading import Analyze, Attach, CopyInto, Detach, Reorganise, Repair
from ..statements.maintenance import Compact, Convert, Generate, Optimize, Restore, Vacuum
from ..statements.namespaces import CreateNamespace, DropNamespace, ShowNamespaces
from ..statements.rows import Truncate
from ..statements.tables import Describe, Drop, Show, Undrop
from . import loading, maintenance, partitions
from .definitions import namespaces, showing, tables
from .place import Place
from .reports import Answer
from .request import Request

ON_PLACES: Final[Mapping[type, Callable[[Request, Any, Place], Answer]]] = {
    Optimize: maintenance.optimize,
    Compact: maintenance.compact,
    Vacuum: maintenance.vacuum,
    Restore: maintenance.restore,
    Generate: maintenance.generate,
    Reorganise: maintenance.reorganise,
    Repair: maintenance.repair,
    Analyze: maintenance.analyze,
    Detach: maintenance.detach,
    CopyInto: loading.copy_into,
    Drop: tables.drop,
    Alter: tables.alter,
    DropPartitions: partitions.drop,
    Truncate: partitions.truncate,
    Show: showing.show,
    Describe: showing.describe,
    Foreign: tables.foreign,
}
"""Statements about an existing table."""

ON_NAMES: Final[Mapping[type, Callable[[Request, Any], Answer]]] = {
    Convert: maintenance.convert,
    Attach: maintenance.attach,
    Undrop: tables.undrop,
    CreateNamespace: namespaces.create,
    DropNamespace: namespaces.drop,
    ShowNamespaces: namespaces.show,
}
"""Statements about a folder, or about names."""
