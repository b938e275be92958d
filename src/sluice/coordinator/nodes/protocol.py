"""The number of the node protocol by which a table's tree was made; clients of another number refuse to work with it."""

from __future__ import annotations

import orjson

from ..errors import ProtocolMismatch
from ..formats import NODE_PROTOCOL
from ..service.store import Node

__all__ = ["require_protocol"]


def require_protocol(root: Node, location: str) -> None:
    """Raise ProtocolMismatch if a table's node names another node protocol than this sluice's, or none."""
    try:
        found = orjson.loads(root.data).get("protocol")
    except (orjson.JSONDecodeError, AttributeError):
        found = root.data[:40]
    if found != NODE_PROTOCOL:
        raise ProtocolMismatch(
            f"the coordinator keeps {location} by node protocol {found!r}, but this sluice uses {NODE_PROTOCOL}; "
            "use the version of sluice that the other writers use",
            found=found,
            expected=NODE_PROTOCOL,
        )
