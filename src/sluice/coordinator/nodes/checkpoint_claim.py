"""Which client writes a checkpoint that is due.

A checkpoint of a large table costs seconds of work, and every client that commits sees that one is due. The first client to
record its attempt in the table's node `checkpoint` writes it::

    /tables/<key>/checkpoint     persistent: {"after": 100, "version": 203, "at_ms": ..}

An attempt counts until it succeeds, which `_last_checkpoint` shows, or until both half an interval of versions and a minute
have passed: then its client died or could not write, and the next one tries. Nothing else depends on this node. If two
clients write a checkpoint at once because their clocks differ, they do twice the work and no harm.
"""

from __future__ import annotations

from typing import Final

from ..formats import NodeData, node_data
from ..service.store import ApplyRefused, Create, ReplyLost, Write
from .context import TableContext

_ATTEMPT_MS: Final = 60_000


@node_data("checkpoint attempt")
class _Attempt(NodeData):
    """`after`: the checkpoint it follows (0: none); `version`: the version its client had committed; `at_ms`: that client's time."""

    after: int
    version: int
    at_ms: int

    def counts(self, version: int, last: int, interval: int, now_ms: int) -> bool:
        """Whether a client that committed `version` leaves the checkpoint after `last` to this attempt."""
        return self.after == last and (abs(version - self.version) < max(1, interval // 2) or abs(now_ms - self.at_ms) < _ATTEMPT_MS)


def claim_checkpoint(context: TableContext, version: int, *, last: int, interval: int, now_ms: int) -> bool:
    """Record that this client, which committed `version`, writes the checkpoint after `last`; False if another client does.

    `last` is the version of the newest checkpoint, 0 if there is none. Raises CoordinatorUnavailable.
    """
    path = context.tree.checkpoint
    node = context.coordination.read(path)
    attempt = None if node is None else _Attempt.readable(node.data)
    # check: one-writes-a-checkpoint
    if attempt is not None and attempt.counts(version, last, interval, now_ms):
        return False
    data = _Attempt(last, version, now_ms).encode()
    try:
        # check: the-claim-of-a-checkpoint-is-compared (node.version -> -1)
        context.coordination.apply([Create(path, data) if node is None else Write(path, data, node.version), *context.liveness_checks()])
    except (ApplyRefused, ReplyLost):
        return False  # another client was faster; or this attempt was recorded but the reply lost, and a later client tries again
    return True
