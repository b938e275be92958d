"""The version of sluice, and its name in commits."""

from __future__ import annotations

__version__ = "0.1.0"
ENGINE = f"sluice/{__version__}"
