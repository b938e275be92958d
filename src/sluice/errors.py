"""The errors of sluice: what a caller may catch. `SluiceError` is the root of all.

The trees in `storage.errors` and `coordinator.errors`, which define them, say what a caller does next.
"""

from __future__ import annotations

from .coordinator.errors import *
from .storage.errors import *
