"""The names of `delta.exceptions`: sluice's own conflicts, which are PySparkExceptions when `sluice.delta` raises them."""

from __future__ import annotations

from ..coordinator.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentModification,
    ConcurrentTransactionException,
    MetadataChangedException,
    ProtocolChangedException,
)

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]

DeltaConcurrentModificationException = ConcurrentModification
"""The root of all conflicts."""

ConcurrentWriteException = ConcurrentModification
"""sluice raises none of this kind: two writers of one version are put in order."""
