"""Publication: ratified versions become `_delta_log/<version>.json`, in order, byte for byte (I5, I6).

Any client may publish: the content is fixed, so racing publishers write the same bytes. Usually the ratifier of a batch
publishes it; others step in when `published` has not moved for the time of their patience.

Verdict records are removed after enough later ones, in the multi that raises `published`. Only raises remove records, and each compares
`published` with the value that its client read before it listed the records, so two clients never remove the same records. Verdicts that no
version shows are kept separately (I10): a refusal must be available for days. It is stored by its transaction's GUID under the day of that
GUID, where two requests find it among any number, and where whole days are removed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Final

from ...storage.actions import Metadata, decode_text
from ...storage.actions.texts import sha256, stored_text, stream_of
from ...storage.constants import COORDINATOR_KEY
from ...storage.errors import CorruptLogFile, ForeignCommit, LogGap, ObjectNotFound, SluiceError, Unavailable, invariant
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version, list_versions
from ...storage.log.timetravel import leading_commit_info
from ...storage.observing import observed
from ...storage.stores.objects import ObjectStore
from ..errors import SessionLost
from ..nodes.context import TableContext
from ..nodes.creation import identity_of
from ..nodes.layout import SlotName, VerdictName
from ..nodes.records import NO_SLOT, BatchRecord, Published, VersionPlan, gone_error, whereabouts
from ..service.store import ApplyRefused, BadVersion, Create, Delete, Node, NodeExists, NoNode, Op, ReplyLost, Write, put, request_bytes
from .failure_points import point
from .ratified_log import RatifiedLog

FORGET_EVERY: Final = 64
"""How many raises of `published` there are between two looks for expired refusals."""

_DAY_MS: Final = 24 * 3600 * 1000
_RECORDS_AT_ONCE: Final = 8
"""Records removed by one raise. It adds one record, so a backlog shrinks."""
_NODES_AT_ONCE: Final = 64
BYTES_AT_ONCE: Final = 600_000
"""Maximum size of one raise: ZooKeeper accepts 1 MB, including access lists. A few hundred long paths fill that."""
_FORGOTTEN_AT_ONCE: Final = 32_768
"""Refusals removed by one call: as many as the largest batches can add in the meantime."""
_TRIES: Final = 8
"""How often one batch is tried in a row while `published` does not move."""
_COMMITS_TOLD_MAX: Final = 64
"""Commits of a batch that `published` repeats: 5 KB at most. Their owners read that node only; those of further commits the record, too."""
_FILES_EVERY_S: Final = 3.0
_PLACE_EVERY_S: Final = 4.0
"""Longer than the pause between two comparisons of files, so that a busy publisher makes no look of its own."""
_NEARBY: Final = "file:"
_GOLDEN: Final = 0.6180339887
_log = logging.getLogger(__name__)


def spare(names: Sequence[str], published: Published, kept: int) -> list[VerdictName]:
    """The oldest of these records, a few at once, if they are published and not among the last `kept`.

    Any number may be unpublished: transactions that only read the table need no room to be ratified.
    """
    reached = (published.generation, published.slot, published.version)
    # check: records-go (max(0, len(names) - kept) -> 0)
    oldest = sorted(names)[: max(0, len(names) - kept)][:_RECORDS_AT_ONCE]  # numbers have leading zeros
    found = filter(None, map(VerdictName.parse, oldest))
    # check: records-are-kept (without if (name.generation, name.slot, name.version) <= reached)
    return [name for name in found if (name.generation, name.slot, name.version) <= reached]


def put_away(context: TableContext, record: BatchRecord) -> list[Op]:
    """The operations that store a batch's verdicts that no version shows; those too many for one multi run here. Repeating it changes
    nothing."""
    kept = {v.transaction_id: v for v in record.verdicts if v.refusal is not None or v.repeats}
    if not kept:
        return []
    tree, today = context.tree, context.clock.now_ms() // _DAY_MS
    alone = {
        tree.refusal(today, transaction_id): replace(record, verdicts=(verdict,), versions=(), direct="").encode()
        for transaction_id, verdict in kept.items()
    }
    parents = [tree.refused, tree.refused_on(today)]
    all_days, day, *there = context.coordination.read_many([*parents, *alone])
    # The old node may have been removed by hand, which must not stop publication for ever.
    # check: the-node-for-refusals-is-made-again (parents, (all_days, day) -> parents[-1:], (day,))
    ops: list[Op] = [Create(path) for path, known in zip(parents, (all_days, day), strict=True) if known is None]
    ops += [put(path, data, known) for (path, data), known in zip(alone.items(), there, strict=True)]
    *whole, last = _pieces(ops)
    for some in whole:
        context.coordination.apply([*some, *context.liveness_checks()])
    return list(last)


def fitting(first: Sequence[Op], rest: Sequence[Op]) -> tuple[Sequence[Op], Sequence[Op]]:
    """The operations of `rest` that fit into one multi with `first`, and the others."""
    sizes = accumulate([request_bytes([op]) for op in rest], initial=request_bytes(first))
    count = max(0, len([size for size in sizes if size <= BYTES_AT_ONCE]) - 1)
    return rest[:count], rest[count:]


def find_put_away(context: TableContext, transaction_id: str) -> BatchRecord | None:
    """The separately stored verdict on a transaction, as a record of its own; the latest of several, None without one."""
    paths = [context.tree.refusal(day, transaction_id) for day in sorted(_days(context), reverse=True)]
    node = next(filter(None, context.coordination.read_many(paths)), None)
    return None if node is None else BatchRecord.decode(node.data)


def all_put_away(context: TableContext) -> list[BatchRecord]:
    """The separately stored verdicts of the last days, each as a record of its own."""
    days = [context.tree.refused_on(day) for day in _days(context)]
    paths = [f"{day}/{name}" for day in days for name in context.coordination.children(day) or ()]
    return [BatchRecord.decode(node.data) for node in context.coordination.read_many(paths) if node is not None]


def forget(context: TableContext) -> None:
    """Remove expired refusals, off the commit path; failures are left to the next time."""
    first_kept = context.clock.now_ms() // _DAY_MS - math.ceil(context.limits.refusals_kept_s * 1000 / _DAY_MS)
    left = _FORGOTTEN_AT_ONCE
    try:
        for day in sorted(_days(context)):
            if day >= first_kept or left <= 0:
                continue
            folder = context.tree.refused_on(day)
            names = context.coordination.children(folder) or ()
            for some in _pieces([Delete(f"{folder}/{name}") for name in names[:left]]):
                context.coordination.apply([*some, *context.liveness_checks()])
            if len(names) <= left:  # with the last of its refusals the day goes
                context.coordination.delete(folder)
            left -= len(names)
    except SluiceError as trouble:
        _log.debug("old refusals of %s are left to another client: %s", context.tree.location, trouble)


def _days(context: TableContext) -> set[int]:
    return {int(name) for name in context.coordination.children(context.tree.refused) or () if name.isdecimal()}


def _pieces(ops: Sequence[Op]) -> Iterator[Sequence[Op]]:
    for start in range(0, len(ops), _NODES_AT_ONCE):
        yield ops[start : start + _NODES_AT_ONCE]


@observed("publications", _put="publish")
class Publisher:
    """Publishes the versions of one table; `later` runs work in a thread."""

    def __init__(self, context: TableContext, log: RatifiedLog, later: Callable[[Callable[[], object]], None]) -> None:
        self.context = context
        self._log = log
        self._later = later
        self.log_checks = LogChecks(context)

    def publish_pending(self) -> Published:
        """Publish everything ratified but not published yet; returns how far publication got. Raises Unavailable if it does not advance."""
        context = self.context
        looked_again_at: int | None = None
        tried: tuple[int, int] = (-1, 0)
        while True:
            read = context.read_published()
            if read is None:
                raise context.missing_error()
            published, node = read
            records = context.coordination.children(context.tree.verdicts) or ()
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
            if not self._put(record, plan):
                return False
            version = plan.version
        point("after-publish")
        own = str(name)
        reached = Published(version, name.generation, name.slot, own, record.commits(_COMMITS_TOLD_MAX))
        earlier = [each for each in records if each != own]  # the batch's own record is the newest of those kept
        oldest = spare(earlier, published, self.context.limits.verdicts_kept - 1)
        raised = self._raise(record, reached, node, oldest)
        if raised and record.versions and self.log_checks.due():
            self._later(partial(self.log_checks.look, record.versions[0].version, earlier))
        return raised

    def _put(self, record: BatchRecord, plan: VersionPlan) -> bool:
        context, version = self.context, plan.version
        content = self._log.known(version) or self._log.render(record, plan)
        if content is None:
            return False  # its slots are gone: another client published it
        self._log.remember(version, content)
        # check: publisher-has-its-session
        if not context.coordination.connected:  # also checks that the tree is the one this was ratified in
            raise SessionLost("the session with the coordinator is not alive: this client stops publishing", version=version)
        # check: no-version-without-the-one-before
        self.log_checks.require_place(version - 1)
        point("before-publish")
        try:
            data = content if isinstance(content, bytes) else stream_of(content, plan.digest)
            written = context.objects.put_if_absent(commit_path(version), data)
        except ObjectNotFound:  # staged objects are removed after publication; otherwise rendering reports what is missing
            return False
        if not written:
            self._require_ratified(plan)
        self.log_checks.saw(version)
        return True

    def _require_ratified(self, plan: VersionPlan) -> None:
        """Raise ForeignCommit unless the file whose name is taken is the ratified version."""
        version, objects = plan.version, self.context.objects
        path, facts = commit_path(version), {"version": version, "location": objects.location}
        try:
            content = stored_text(objects, path)
        except ObjectNotFound as missing:
            raise ForeignCommit(
                f"{path} in {objects.location} is no file, though its name is taken: move the folder of that "
                "name to another place; then the ratified version is published",
                **facts,
            ) from missing
        # check: foreign-commits-are-noticed
        if sha256(content) != plan.digest:
            metadata = next((each for each in decode_text(content, name=path) if isinstance(each, Metadata)), None)
            owner = None if metadata is None else metadata.configuration.get(COORDINATOR_KEY)
            if owner is not None and owner != self.context.in_session(identity_of):  # it is this client that bypasses the coordinator
                raise ForeignCommit(
                    f"version {version} of {objects.location} was written by the coordinator {owner}, which has taken the table "
                    "on (sluice recover, or attach): leave that file where it is. Versions that this coordinator ratified from that one "
                    "on are not in the table; write their rows again through the other one",
                    **facts,
                    owner=owner,
                )
            refuse_old_data(objects, version)
            raise ForeignCommit(
                f"{path} in {objects.location} was written by a program that does not commit through sluice "
                f"(it differs from the ratified version {version}); stop that writer and move the file to another place: "
                "then the ratified version is published, and the file's rows can be written again through sluice",
                **facts,
            )

    def _raise(self, record: BatchRecord, reached: Published, node: Node, spare: Sequence[VerdictName]) -> bool:
        """Raise `published`, remove the batch's slots and the `spare` records, and store the batch's refusals."""
        context = self.context
        # check: published-is-compared (node.version -> -1)
        raised = Write(context.tree.published, reached.encode(), node.version)
        gone = [
            Delete(context.tree.slot(record.generation, SlotName(v.slot, v.transaction_id))) for v in record.verdicts if v.slot != NO_SLOT
        ]
        rest: list[Op] = [*gone, *[Delete(context.tree.verdict(name)) for name in spare]]
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
            try:
                context.coordination.apply([*some, *context.liveness_checks()])
            except (ApplyRefused, ReplyLost):
                self._one_by_one((), some)
        point("after-raise")
        if (node.version + 1) % FORGET_EVERY == 0:
            self._later(partial(forget, context))
        return True

    def _one_by_one(self, first: Sequence[Op], rest: Sequence[Op]) -> bool:
        """`_raise` in single steps; False if a reply was lost before `published` was certainly raised: refusals must be stored before
        that."""
        for op in (*first, *rest):
            try:
                self.context.coordination.apply([op, *self.context.liveness_checks()])
            except ApplyRefused as refused:
                if not isinstance(refused.cause, (NoNode, NodeExists, BadVersion)):
                    raise
            except ReplyLost as lost:
                _log.info("clean-up of %s is left to another client: %s", op.path, lost)
                if op in first:
                    return False
        return True


class LogChecks:
    """One client's checks, beside the commits, that a table's log is in its place, and that its last files are the ratified versions.

    An object store makes a folder when something is written into it: a writer that continued after the folder was moved would make another
    one, whose log begins in the middle. A log file that is overwritten or damaged stops every new reader, while writers that know the table
    continue. So a publisher compares, at most every three seconds and in its background thread, the version before its own and one of those
    whose records are kept, a different one each time. If one does not match its record, this client commits nothing more until the file is
    restored. A missing file that a checkpoint replaces is not damage: clean-ups of the log remove such files. Thread-safe.
    """

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._seen = -1
        """The newest version known to be in the log."""
        self._place_seen_s = self._files_seen_s = float("-inf")
        """When a file of the log was looked for last, and when the last files were compared, by the monotonic clock."""
        self._looks = 0
        self._damaged: VersionPlan | None = None

    def saw(self, version: int) -> None:
        """Note that a version is in the log."""
        self._seen = max(self._seen, version)

    def require_place(self, version: int) -> None:
        """Raise LogGap if the log with this version is gone, or TableDropped if the table was dropped.

        On a disk it looks each time; elsewhere, where a look is a request, only if no file of the log was seen in the last seconds.
        """
        version = max(version, self._seen)
        now_s, store = self._context.clock.monotonic_s(), self._context.objects
        if version < 0 or (now_s - self._place_seen_s < _PLACE_EVERY_S and not store.location.startswith(_NEARBY)):
            return
        self._place_seen_s = now_s
        try:
            store.head(commit_path(version))
        except ObjectNotFound:
            if latest_version(store) is not None:
                return  # the version is not published yet, or was cleaned up
            tree = self._context.tree
            _, tombstone = self._context.in_connection(partial(whereabouts, tree=tree))
            if tombstone is not None:
                raise gone_error(tree.location, tombstone) from None
            raise LogGap(
                f"the log of {tree.location} is gone, which had version {version}: its folder was moved or deleted. Nothing is "
                f"written there any more; restore it, or let go of the table: sluice forget {tree.location}",
                location=tree.location,
                version=version,
            ) from None
        self.saw(version)

    def due(self) -> bool:
        """Whether a comparison is due; if so, the next one is due some time later."""
        now_s = self._context.clock.monotonic_s()
        if now_s - self._files_seen_s < _FILES_EVERY_S:
            return False
        self._files_seen_s = now_s
        return True

    def look(self, version: int, records: Sequence[str]) -> None:
        """Compare after `version` was published; `records` are the names of the verdict records that existed before."""
        names = sorted(name for name in filter(None, map(VerdictName.parse, records)) if name.version < version)
        if not names:
            return
        self._looks += 1
        among = int(len(names) * (self._looks * _GOLDEN % 1))  # spread evenly, however fast the records grow
        for name in sorted({names[-1], names[among]}):
            try:
                node = self._context.coordination.read(self._context.tree.verdict(name))
                for plan in () if node is None else BatchRecord.decode(node.data).versions[-1:]:
                    if not self._is_sound(plan):
                        self._damaged = plan
                        _log.error("%s", self._description(plan))
            except SluiceError as trouble:
                _log.info("the log of %s was not checked: %s", self._context.tree.location, trouble)

    def require_sound(self) -> None:
        """Raise CorruptLogFile while a file of the log differs from the ratified version, or as `require_place` does."""
        damaged = self._damaged
        if damaged is None:
            return
        if self._is_sound(damaged):
            self._damaged = None  # restored
            return
        self.require_place(damaged.version)  # a log that is gone has its own remedy
        raise CorruptLogFile(self._description(damaged), file=commit_path(damaged.version), location=self._context.tree.location)

    def _is_sound(self, plan: VersionPlan) -> bool:
        begun_s = self._context.clock.monotonic_s()
        try:
            sound = sha256(stored_text(self._context.objects, commit_path(plan.version))) == plan.digest
        except ObjectNotFound:  # removed by a clean-up of the log after a checkpoint, where readers begin
            # check: damage-is-no-clean-up (return -> return False and)
            return bool(list_versions(self._context.objects, plan.version).checkpoints)
        self._place_seen_s = max(self._place_seen_s, begun_s)
        return sound

    def _description(self, plan: VersionPlan) -> str:
        return (
            f"{commit_path(plan.version)} of {self._context.tree.location} differs from the commit of version {plan.version}: the "
            "file was overwritten, damaged or removed. Nothing more is committed by this client until it is restored from a copy; sluice "
            "doctor shows what else is wrong"
        )


def refuse_old_data(store: ObjectStore, version: int) -> None:
    """Raise ForeignCommit if the log's version, unknown to the coordinator, was committed through sluice.

    One that a former table's client put late does not count: it is older than the version before it.
    """
    before, info = (leading_commit_info(store, each) if each >= 0 else None for each in (version - 1, version))
    if before is None or info is None or "sluice" not in info.fields:
        return
    if (info.in_commit_timestamp or 0) <= (before.in_commit_timestamp or 0):
        return
    raise ForeignCommit(
        f"the coordinator's data of {store.location} are older than its log: they end before version {version}, which is there and was "
        "committed through sluice. Leave the log as it is, and stop the writers. Either the address names a server that was taken out of "
        "its ensemble with its old data: take it out of the address, and end it. Or the data were restored from an old copy: remove them, "
        "and rebuild them from the log (sluice recover)",
        version=version,
        location=store.location,
    )
