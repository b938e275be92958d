"""Delta Lake's Python API on sluice tables: `from sluice.delta import DeltaTable` instead of `from delta.tables import DeltaTable`.

Names, arguments, builders, argument checks and returned DataFrames are those of Delta Lake 4; docs/coming-from-delta.md lists
what differs. `configure_spark_with_delta_pip` makes the session. Operations that commit also take `isolation=`, `attempts=`, `key=`,
`transaction=` and `if_version=`. Imports `spark_integration`, whose `rows` does the work, and below; this package has the surface,
the arguments and the answers. Begin with `tables.py`.
"""

from __future__ import annotations

from .pip_utils import configure_spark_with_delta_pip
from .tables import DeltaTable

__all__ = ["DeltaTable", "configure_spark_with_delta_pip"]
