"""Publication: ratified versions become `_delta_log/<version>.json`, in order, byte for byte (I5, I6).

Any client may publish: the content is fixed, so racing publishers write the same bytes. Usually the ratifier of a batch
publishes it; others step in when `published` has not moved for the time of their patience.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...storage.actions import Metadata, decode_text
from ...storage.actions.texts import Text, sha256, stored_text, stream_of
from ...storage.constants import COORDINATOR_KEY
from ...storage.errors import ForeignCommit, ObjectNotFound, Unavailable, invariant
from ...storage.log.paths import commit_path
from ..errors import SessionLost
from ..nodes.context import TableContext
from ..nodes.coordinator_id import identity_of
from ..nodes.layout import SlotName, VerdictName
from ..nodes.records import NO_SLOT, BatchRecord, Published
from ..service.store import ApplyRefused, BadVersion, Delete, Node, NodeExists, NoNode, Op, ReplyLost, Write
from .failure_points import point
from .log_checks import LogPresence, RecentFiles, refuse_old_data
from .pruning import FORGET_EVERY, fitting, forget, put_away, spare
from .ratified_log import RatifiedLog

_log = logging.getLogger(__name__)

_TRIES: Final = 8
"""How often one batch is tried in a row while `published` does not move."""
_COMMITS_TOLD_MAX: Final = 64
"""Commits of a batch that `published` repeats: 5 KB at most.

All their owners read that node; those of further commits read the record, too.
"""


class Publisher:
    """Publishes the versions of one table; `later` runs work in a thread."""

    def __init__(self, context: TableContext, log: RatifiedLog, later: Callable[[Callable[[], object]], None]) -> None:
        self._context = context
        self._log = log
        self._later = later
        self.log_presence = LogPresence(context)
        self.recent_files = RecentFiles(context, self.log_presence)

    def publish_pending(self) -> Published:
        """Publish everything ratified but not published yet; returns how far publication got.

        Raises Unavailable if it does not advance: replies are lost, or a slot of the next version is gone.
        """
        context = self._context
        looked_again_at: int | None = None
        tried: tuple[int, int] = (-1, 0)
        while True:
            published, node, records = self._reached()
            names = filter(None, map(VerdictName.parse, records))
            reached = (published.generation, published.slot, published.version)
            # check: first-pending-batch-first (min -> max)
            pending = min((n for n in names if (n.generation, n.slot, n.version) > reached), default=None)
            if pending is None:
                return published
            record_node = context.coordination.read(context.tree.verdict(pending))
            record = None if record_node is None else BatchRecord.decode(record_node.data)
            if record is None:
                continue
            # check: gaps-are-looked-at-again
            if record.versions and record.versions[0].version > published.version + 1 and looked_again_at != node.version:
                looked_again_at = node.version  # versions in between were published and pruned since the node was read
                context.barrier()
                continue
            if self.publish(pending, record, published, node, records):
                continue
            tried = (node.version, tried[1] + 1 if tried[0] == node.version else 1)
            if tried[1] >= _TRIES:
                raise Unavailable(
                    f"versions ratified after {published.version} of {context.tree.location} could not be published: replies of "
                    "the coordinator were lost, or nodes of it were removed by hand (sluice doctor); it is tried again",
                    location=context.tree.location,
                    version=published.version,
                )
            context.barrier()

    def _reached(self) -> tuple[Published, Node, Sequence[str]]:
        """How far publication got, and the names of the records listed afterwards."""
        context = self._context
        published = context.read_published()
        if published is None:
            raise context.missing_error()
        return *published, context.coordination.children(context.tree.verdicts) or ()

    def publish(self, name: VerdictName, record: BatchRecord, published: Published, node: Node, records: Sequence[str] = ()) -> bool:
        """Publish one batch, the next one after `published` (as read in `node`); False if another client was faster.

        `records` are the names of the verdict records listed afterwards: the oldest are removed when `published` is raised.
        Raises ForeignCommit if the log has a version that was not ratified, and the errors of the object store.
        """
        version = published.version
        for plan in record.versions:
            if plan.version <= version:
                continue
            # check: own-batch-in-its-turn
            # check: publication-order-is-checked
            # check: first-pending-batch-first
            invariant("I6", plan.version == version + 1, f"version {plan.version} would be published after {version}")
            # check: published-when-it-is-there
            if not self._put(record, plan.version):
                return False
            version = plan.version
        point("after-publish")
        own = str(name)
        reached = Published(version, name.generation, name.slot, own, record.commits(_COMMITS_TOLD_MAX))
        earlier = [each for each in records if each != own]  # the batch's own record is the newest of those kept
        oldest = spare(earlier, published, self._context.limits.verdicts_kept - 1)
        raised = self._raise(record, reached, node, oldest)
        if raised and record.versions and self.recent_files.due():
            self._later(partial(self.recent_files.look, record.versions[0].version, earlier))
        return raised

    def _put(self, record: BatchRecord, version: int) -> bool:
        context = self._context
        plan = next(p for p in record.versions if p.version == version)
        content = self._log.known(version) or self._log.render(record, plan)
        if content is None:
            return False  # its slots are gone: another client published it
        self._log.remember(version, content)
        # check: publisher-has-its-session
        if not context.coordination.connected:  # also checks that the tree is the one this was ratified in
            raise SessionLost("the session with the coordinator is not alive: this client stops publishing", version=version)
        # check: no-version-without-the-one-before
        self.log_presence.require(version - 1)
        point("before-publish")
        try:
            data = content if isinstance(content, bytes) else stream_of(content, plan.digest)
            written = self._context.objects.put_if_absent(commit_path(version), data)
        except ObjectNotFound:  # staged objects are removed after publication; otherwise rendering reports what is missing
            return False
        if not written:
            found = self._stored(version)
            # check: foreign-commits-are-noticed
            if sha256(found) != plan.digest:
                self._refuse_taken_over(found, version)
                refuse_old_data(context.objects, version)
                raise ForeignCommit(
                    f"{commit_path(version)} in {context.objects.location} was written by a program that does not commit through sluice "
                    f"(it differs from the ratified version {version}); stop that writer and move the file to another place: "
                    "then the ratified version is published, and the file's rows can be written again through sluice",
                    version=version,
                    location=context.objects.location,
                )
        self.log_presence.saw(version)
        return True

    def _stored(self, version: int) -> Text:
        """The log file whose name is taken."""
        try:
            return stored_text(self._context.objects, commit_path(version))
        except ObjectNotFound as missing:
            raise ForeignCommit(
                f"{commit_path(version)} in {self._context.objects.location} is no file, though its name is taken: move the folder of that "
                "name to another place; then the ratified version is published",
                version=version,
                location=self._context.objects.location,
            ) from missing

    def _refuse_taken_over(self, found: Text, version: int) -> None:
        """Raise if the existing version names another coordinator: then this client is the one that bypasses the table's coordinator."""
        metadata = next((each for each in decode_text(found, name=commit_path(version)) if isinstance(each, Metadata)), None)
        owner = None if metadata is None else metadata.configuration.get(COORDINATOR_KEY)
        if owner is not None and owner != self._context.in_session(identity_of):
            raise ForeignCommit(
                f"version {version} of {self._context.objects.location} was written by the coordinator {owner}, which has taken the table "
                "on (sluice recover, or attach): leave that file where it is. Versions that this coordinator ratified from that one on are "
                "not in the table; write their rows again through the other one",
                version=version,
                location=self._context.objects.location,
                owner=owner,
            )

    def _raise(self, record: BatchRecord, reached: Published, node: Node, spare: Sequence[VerdictName]) -> bool:
        """Raise `published`, remove the batch's slots and the `spare` records, and store the batch's refusals."""
        context = self._context
        # check: published-is-compared (node.version -> -1)
        raised = Write(context.tree.published, reached.encode(), node.version)
        gone = [
            Delete(context.tree.slot(record.generation, SlotName(v.slot, v.transaction_id))) for v in record.verdicts if v.slot != NO_SLOT
        ]
        rest: list[Op] = [*gone, *(Delete(context.tree.verdict(name)) for name in spare)]
        kept: list[Op] | None = None
        try:
            kept = put_away(context, record)
            with_it, later = fitting([raised, *kept], rest)
            # check: refusals-are-kept (without *kept,)
            # check: refusals-of-this-tree (without , *context.liveness_checks())
            context.coordination.apply([raised, *kept, *with_it, *context.liveness_checks()])
        except ReplyLost:
            return False  # the next look at `published` finds out
        except ApplyRefused as refused:
            context.was_restored(getattr(refused.cause, "path", ""))
            if kept is None or (refused.index == 0 and isinstance(refused.cause, BadVersion)):
                return False  # another client does it
            # check: published-though-a-slot-is-gone (always)
            if not self._one_by_one([*kept, raised], rest):
                return False
            later = ()
        while later:
            some, later = fitting((), later)
            self._clean_up(some)
        point("after-raise")
        if (node.version + 1) % FORGET_EVERY == 0:
            self._later(partial(forget, context))
        return True

    def _clean_up(self, ops: Sequence[Op]) -> None:
        """Remove the nodes that could only go after the raise."""
        try:
            self._context.coordination.apply([*ops, *self._context.liveness_checks()])
        except (ApplyRefused, ReplyLost):
            self._one_by_one((), ops)

    def _one_by_one(self, first: Sequence[Op], rest: Sequence[Op]) -> bool:
        """`_raise` in single steps, if something is already gone or stored.

        False if a reply was lost before `published` was certainly raised: refusals must be stored before that.
        """
        for op in (*first, *rest):
            try:
                self._context.coordination.apply([op, *self._context.liveness_checks()])
            except ApplyRefused as refused:
                if not isinstance(refused.cause, (NoNode, NodeExists, BadVersion)):
                    raise
            except ReplyLost as lost:
                _log.info("clean-up of %s is left to another client: %s", op.path, lost)
                if op in first:
                    return False
        return True
