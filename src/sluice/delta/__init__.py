"""Delta Lake's Python API on sluice tables: `from sluice.delta import DeltaTable` instead of `from delta.tables import DeltaTable`.

Names, arguments, builders, argument checks and returned DataFrames are those of Delta Lake 4; docs/coming-from-delta.md lists
what differs. Operations that commit also take `isolation=`, `attempts=`, `key=` and `transaction=`. The package lies above
`spark_integration`, whose `rows` does the work; here are the surface, the arguments and the answers. Begin with `tables`.
"""

from __future__ import annotations

from .tables import DeltaTable

__all__ = ["DeltaTable"]
