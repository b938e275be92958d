"""Publication: ratified versions become `_delta_log/<version>.json`, in order, byte for byte (I5, I6).

Any client may publish: the content is fixed, so racing publishers write the same bytes. By custom the ratifier of a
batch publishes it; others step in when `published` stands still for their patience.
"""

from __future__ import annotations

import logging

from ..storage.errors import ForeignCommit, invariant
from ..storage.paths import commit_path
from .context import TableContext
from .errors import SessionLost
from .faults import point
from .layout import SlotName, VerdictName
from .pruning import prune
from .ratified import RatifiedLog
from .records import NO_SLOT, BatchRecord, Published
from .store import ApplyRefused, BadVersion, Delete, Node, NoNode, Op, ReplyLost, Write

__all__ = ["Publisher"]

_log = logging.getLogger(__name__)
_PRUNE_EVERY = 32


class Publisher:
    """Publishes the versions of one table."""

    def __init__(self, context: TableContext, log: RatifiedLog) -> None:
        self._context = context
        self._log = log

    def publish_pending(self) -> Published:
        """Publish everything that is ratified now and not published yet; returns how far publication got."""
        context = self._context
        looked_again_at: int | None = None
        while True:
            state = context.read_published()
            if state is None:
                raise context.vanished()
            published, node = state
            names = filter(None, map(VerdictName.parse, context.coordination.children(context.tree.verdicts) or ()))
            reached = (published.generation, published.slot, published.version)
            pending = min((n for n in names if (n.generation, n.slot, n.version) > reached), default=None)
            if pending is None:
                return published
            record_node = context.coordination.read(context.tree.verdict(pending))
            record = None if record_node is None else BatchRecord.decode(record_node.data)
            if record is None:
                continue
            if record.versions and record.versions[0].version > published.version + 1 and looked_again_at != node.version:
                looked_again_at = node.version  # what came between was published and pruned since that was read
                context.barrier()
                continue
            self.publish(pending, record, published, node)

    def publish(self, name: VerdictName, record: BatchRecord, published: Published, node: Node) -> bool:
        """Publish one batch, the next one after `published` (as read in `node`); False when another client was faster.

        Raises ForeignCommit when the log holds a version that was not ratified, and what the object store raises.
        """
        version = published.version
        for plan in record.versions:
            if plan.version <= version:
                continue
            invariant("I6", plan.version == version + 1, f"version {plan.version} would be published after {version}")
            if not self._put(record, plan.version):
                return False
            version = plan.version
        point("after-publish")
        reached = Published(version, name.generation, name.slot, str(name))
        if record.closes_generation:
            reached = Published(version, name.generation + 1, -1, str(name))
        return self._raise(record, reached, node)

    def _put(self, record: BatchRecord, version: int) -> bool:
        context = self._context
        plan = next(p for p in record.versions if p.version == version)
        content = self._log.known(version) or self._log.render(record, plan)
        if content is None:
            return False  # its slots are gone: somebody published it
        self._log.remember(version, content)
        if not context.coordination.connected:  # which also sees to it that it is the tree that this was ratified in
            raise SessionLost("the session with the coordinator is not alive: this client stops publishing", version=version)
        point("before-publish")
        if not context.objects.put_if_absent(commit_path(version), content):
            found = context.objects.get(commit_path(version))
            if found != content:
                raise ForeignCommit(
                    f"{commit_path(version)} in {context.objects.location} was written by somebody who does not commit through sluice "
                    f"(its content is not what was ratified as version {version}); stop that writer and move the file to another place: "
                    "what is ratified is published then, and the file's rows can be written again through sluice",
                    version=version,
                    location=context.objects.location,
                )
        return True

    def _raise(self, record: BatchRecord, published: Published, node: Node) -> bool:
        """Raise `published` and remove the slots that nobody needs any more."""
        context = self._context
        write = Write(context.tree.published, published.encode(), node.version)
        gone = [
            Delete(context.tree.slot(record.generation, SlotName(v.slot, v.transaction_id))) for v in record.verdicts if v.slot != NO_SLOT
        ]
        try:
            context.coordination.apply([write, *gone, *context.standing()])
        except ReplyLost:
            return False  # the next look at `published` tells
        except ApplyRefused as refused:
            context.recognise_again(getattr(refused.cause, "path", ""))
            if isinstance(refused.cause, BadVersion):
                return False
            self._raise_one_by_one(write, gone)
        point("after-raise")
        if (record.verdicts[-1].slot if record.last_version is None else record.last_version) % _PRUNE_EVERY == 0:
            prune(self._context)
        return True

    def _raise_one_by_one(self, write: Write, gone: list[Delete]) -> None:
        """The same when one of the slots is gone already (its owner withdrew it from a closed generation)."""
        ops: list[Op] = [write, *gone]
        for op in ops:
            try:
                self._context.coordination.apply([op, *self._context.standing()])
            except ApplyRefused as refused:
                if not isinstance(refused.cause, (NoNode, BadVersion)):
                    raise
            except ReplyLost as lost:
                _log.info("clean-up of %s is left to another client: %s", op.path, lost)
