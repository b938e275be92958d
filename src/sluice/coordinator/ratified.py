"""The ratified log: every version of a table, published or not yet.

Up to `published` a version is the object `_delta_log/<version>.json`. Beyond, its content is rendered from the verdict
record and the intents, which stay in the tree until the version is published.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..storage.actions import Action, CommitInfo, DeletionVector, decode_commit
from ..storage.errors import BadChecksum, LogGap, MissingObject, ObjectNotFound, invariant
from ..storage.paths import commit_path
from ..storage.vectors import Rows, read_vector
from .content import Member, Winner, render, version_digest, winner_of
from .context import TableContext
from .layout import SlotName, VerdictName
from .records import NO_SLOT, BatchRecord, Intent, Rebased, VersionPlan, digest
from .soundness import STAGED_BYTES_MAX

__all__ = ["RatifiedLog", "staged_actions", "store_objects"]

_CACHED_VERSIONS = 64
_CACHED_VECTORS = 256
_LOOKS_MAX = 100
_WINDOW = 256
_FETCHES_MAX = 8


def staged_actions(context: TableContext, intent: Intent) -> bytes:
    """The actions of an intent, inline or staged. Raises MissingObject and BadChecksum when they are not what it filed."""
    return _sealed(context, intent.actions, intent.staged, intent.actions_digest, f"transaction {intent.transaction_id}")


def store_objects(context: TableContext, objects: Mapping[str, bytes]) -> None:
    """Store what versions need before they are ratified; names tell the content, so that who does it twice changes nothing."""
    for key, data in objects.items():
        context.objects.put(key, data)


def _sealed(context: TableContext, inline: str, staged: str, seal: str, whose: str) -> bytes:
    actions = inline.encode()
    if staged:
        try:
            actions = context.objects.get_range(staged, 0, STAGED_BYTES_MAX)
        except ObjectNotFound as error:
            raise MissingObject(f"the staged actions {staged} are missing from {context.objects.location}") from error
    if digest(actions) != seal:
        raise BadChecksum(f"the actions of {whose} are not those it filed")
    return actions


def _member(context: TableContext, intent: Intent, adapted: Rebased | None) -> Member:
    """An intent with the actions it was committed with."""
    if adapted is None:
        return Member(intent, staged_actions(context, intent))
    whose = f"transaction {intent.transaction_id}, as they were rebased,"
    return Member(intent, _sealed(context, adapted.actions, adapted.staged, adapted.digest, whose), adapted.what)


class RatifiedLog:
    """Reads versions of one table; keeps the last ones it saw. Safe for several threads."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._contents: OrderedDict[int, bytes] = OrderedDict()
        self._winners: OrderedDict[int, Winner] = OrderedDict()
        self._vectors: OrderedDict[str, Rows] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, version: int, content: bytes) -> None:
        """Keep the content of a version that was just ratified."""
        with self._lock:
            self._contents[version] = content
            while len(self._contents) > _CACHED_VERSIONS:
                self._contents.popitem(last=False)

    def known(self, version: int) -> bytes | None:
        """The content of a version this client saw before, without asking anybody."""
        with self._lock:
            return self._contents.get(version)

    def content(self, version: int) -> bytes:
        """The bytes of a ratified version. Raises LogGap when the version is gone from the log."""
        known = self.known(version)
        if known is not None:
            return known
        content = self._look(version)
        self.remember(version, content)
        return content

    def actions(self, version: int) -> Sequence[Action]:
        """The actions of a ratified version."""
        return decode_commit(self.content(version), name=commit_path(version))

    def commits(self, versions: Sequence[int]) -> list[tuple[int, Sequence[Action]]]:
        """Many versions at once, with their actions; read side by side, and not kept."""
        state = self._context.read_published()
        published = -1 if state is None else state[0].version
        with ThreadPoolExecutor(_FETCHES_MAX) as pool:
            contents = list(pool.map(lambda v: self.known(v) or (self._object(v) if v <= published else self.content(v)), versions))
        return [(v, decode_commit(c, name=commit_path(v))) for v, c in zip(versions, contents, strict=True)]

    def winner(self, version: int) -> Winner:
        """What a ratified version did."""
        with self._lock:
            known = self._winners.get(version)
        if known is None:
            known = winner_of(version, self.actions(version))
            with self._lock:
                self._winners[version] = known
                while len(self._winners) > _CACHED_VERSIONS * 16:
                    self._winners.popitem(last=False)
        return known

    def winners(self, versions: Sequence[int]) -> Iterator[Winner]:
        """What ratified versions did, one after the other; those that have to be fetched are fetched side by side."""
        for start in range(0, len(versions), _WINDOW):
            window = versions[start : start + _WINDOW]
            with self._lock:
                missing = [v for v in window if v not in self._winners]
            if len(missing) <= 2:
                yield from map(self.winner, window)
                continue
            fetched = {version: winner_of(version, actions) for version, actions in self.commits(missing)}
            yield from (fetched[v] if v in fetched else self.winner(v) for v in window)

    def rows(self, vector: DeletionVector) -> Rows:
        """The rows that a deletion vector of this table lists. Raises MissingObject, Corrupt."""
        with self._lock:
            known = self._vectors.get(vector.unique_id)
        if known is None:
            known = read_vector(self._context.objects, vector)
            with self._lock:
                self._vectors[vector.unique_id] = known
                while len(self._vectors) > _CACHED_VECTORS:
                    self._vectors.popitem(last=False)
        return known

    def info(self, version: int) -> Mapping[str, Any]:
        """The commitInfo of a ratified version; empty when it has none."""
        return next((a.fields for a in self.actions(version) if isinstance(a, CommitInfo)), {})

    def _look(self, version: int) -> bytes:
        context = self._context
        for _ in range(_LOOKS_MAX):
            state = context.read_published()
            if state is None or version <= state[0].version:
                return self._object(version)
            content = self._unpublished(version)
            if content is not None:
                return content
            context.barrier()  # published meanwhile, or the session that showed the version is over, and this one's server behind
        raise LogGap(f"version {version} of {context.objects.location} is neither published nor in the coordinator's tree", version=version)

    def _object(self, version: int) -> bytes:
        """A published version, from its file."""
        objects = self._context.objects
        try:
            return objects.get(commit_path(version))
        except ObjectNotFound as error:
            raise LogGap(
                f"version {version} is missing from the log of {objects.location} although it was published; "
                "restore the file or read from a checkpoint above it",
                version=version,
            ) from error

    def _unpublished(self, version: int) -> bytes | None:
        """Rendered from the tree; None when it was published (and its slots removed) meanwhile."""
        coordination, tree = self._context.coordination, self._context.tree
        names = filter(None, map(VerdictName.parse, coordination.children(tree.verdicts) or ()))
        # the first in the order of decisions: what only refused, behind the one that made the version, bears its number, too
        holding = min((n for n in names if n.version >= version), default=None)
        node = None if holding is None else coordination.read(tree.verdict(holding))
        if node is None:
            return None
        record = BatchRecord.decode(node.data)
        plan = next((p for p in record.versions if p.version == version), None)
        return None if plan is None else self.render(record, plan)

    def render(self, record: BatchRecord, plan: VersionPlan) -> bytes | None:
        """The content of one version of a batch, checked against its digest (I5); None when a slot is gone.

        Staged actions are garbage once the version is published, so that one who is late may find the slots and not those.
        """
        try:
            return self._rendered(record, plan)
        except MissingObject:
            self._context.barrier()
            state = self._context.read_published()
            if state is not None and state[0].version >= plan.version:
                return None
            raise

    def _rendered(self, record: BatchRecord, plan: VersionPlan) -> bytes | None:
        context = self._context
        adapted = {each.slot: each for each in plan.rebased}
        if record.direct:
            intent = Intent.decode(record.direct.encode())
            return self._checked(plan, [_member(context, intent, adapted.get(NO_SLOT))], record)
        ids = {v.slot: v.transaction_id for v in record.verdicts}
        paths = [context.tree.slot(record.generation, SlotName(slot, ids[slot])) for slot in plan.slots]
        members: list[Member] = []
        for slot, node in zip(plan.slots, context.coordination.read_many(paths), strict=True):
            if node is None:
                return None
            members.append(_member(context, Intent.decode(node.data), adapted.get(slot)))
        return self._checked(plan, members, record)

    @staticmethod
    def _checked(plan: VersionPlan, members: Sequence[Member], record: BatchRecord) -> bytes:
        content = render(plan, members, record.ratified_ms)
        invariant("I5", version_digest(content) == plan.digest, f"version {plan.version} does not have its ratified content")
        return content
