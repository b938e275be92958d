"""The systems that are compared, each behind the same four verbs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .base import System, Target

__all__ = ["PEERS", "SYSTEMS", "load"]

SYSTEMS: Final = {"sluice": ".sluice_system:Sluice", "delta-rs": ".delta_rs:DeltaRs", "pyiceberg": ".py_iceberg:PyIceberg"}
PEERS: Final = frozenset(SYSTEMS) - {"sluice"}


def load(name: str, target: Target) -> System:
    """The system called `name`, working on `target`; only its own libraries are imported."""
    module, _, cls = SYSTEMS[name].partition(":")
    system: System = getattr(importlib.import_module(module, __package__), cls)(target)
    return system
