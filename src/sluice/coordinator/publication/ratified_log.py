"""The ratified log: every version of a table, published or not yet.

Up to `published`, a version is the object `_delta_log/<version>.json`. A later one is rendered from the verdict record and
the intents, which stay in the tree until the version is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ...storage.actions import Action, CommitInfo, DeletionVector, actions_of, decode_text
from ...storage.actions.chain import NO_FILES, Link, files_of
from ...storage.actions.texts import Text, put_text, sha256, stored_text
from ...storage.caches import BytesBounded, at_once
from ...storage.data.vectors import Rows, read_vector
from ...storage.errors import BadChecksum, LogGap, MissingObject, ObjectNotFound, invariant
from ...storage.log.paths import commit_path
from ...storage.log.snapshot import Snapshot
from ..errors import UnknownFormat
from ..formats import MalformedRecord, require_number
from ..limits import STAGED_BYTES_MAX
from ..nodes.context import TableContext
from ..nodes.layout import SlotName, VerdictName
from ..nodes.records import NO_SLOT, BatchRecord, Rebased, VersionPlan
from ..rules.intent import Intent
from ..rules.winner import Member, RemovedFiles, Winner, winner_of
from ..service.clock import Deadline, bounded_s, within_this_call
from .rendering import render

_CONTENTS_BYTES_MAX: Final = 64 * 1024 * 1024
_WINNERS_BYTES_MAX: Final = 128 * 1024 * 1024
_VECTORS_BYTES_MAX: Final = 64 * 1024 * 1024
_ACTION_BYTES: Final = 1500
"""Approximate memory of a decoded action, besides its text."""
_LOOKS_MAX = 100
_PAUSE_S = 0.2
_WINDOW = 256
_REQUESTS_MAX: Final = 8


def staged_actions(context: TableContext, intent: Intent, adapted: Rebased | None = None) -> Text:
    """The actions that an intent filed, or those to which they were `adapted`. Raises MissingObject; BadChecksum if they are others."""
    whose = f"transaction {intent.transaction_id}"
    inline, staged, digest = intent.actions, intent.staged, intent.actions_digest
    if adapted is not None:
        whose = f"{whose}, as they were rebased,"
        inline, staged, digest = adapted.actions, adapted.staged, adapted.digest
    try:
        actions = stored_text(context.objects, staged) if staged else inline.encode()
        if len(actions) > STAGED_BYTES_MAX:
            raise MalformedRecord(f"its staged actions have {len(actions):,} bytes, more than {STAGED_BYTES_MAX:,}")
        # check: actions-have-their-digest
        if sha256(actions) != digest:  # a long text is read only now
            raise BadChecksum(f"the actions of {whose} are not those it filed")
    except ObjectNotFound as error:
        raise MissingObject(f"the staged actions {staged} are missing from {context.objects.location}") from error
    return actions


def store_objects(context: TableContext, objects: Mapping[str, Text]) -> None:
    """Store the objects that versions need, before they are ratified; names depend on the content, so repeating it changes nothing."""
    if objects:  # a change of many files, adapted to one that moved their rows, has a vector for each
        put: Callable[[str], None] = within_this_call(lambda key: put_text(context.objects, key, objects[key]))
        at_once(put, tuple(objects), _REQUESTS_MAX, "sluice-objects")


class RatifiedLog:
    """Reads versions of one table and caches the last ones. Thread-safe."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._contents: BytesBounded[int, bytes] = BytesBounded(_CONTENTS_BYTES_MAX)
        self._winners: BytesBounded[int, Winner] = BytesBounded(_WINNERS_BYTES_MAX)
        self._vectors: BytesBounded[str, Rows] = BytesBounded(_VECTORS_BYTES_MAX)

    def remember(self, version: int, content: Text) -> None:
        """Keep the content of a version that was just ratified; not a long one, whose staged parts are removed after publication."""
        if isinstance(content, bytes):
            self._contents.keep(version, content, len(content))

    def known(self, version: int) -> bytes | None:
        """The content of a version that this client saw before, without asking anybody."""
        return self._contents.get(version)

    def content(self, version: int) -> Text:
        """The bytes of a ratified version.

        If only a newer release can render it, waits until that release publishes it, or the call's time is over. Raises LogGap if the
        version is gone from the log, UnknownFormat.
        """
        known = self.known(version)
        if known is not None:
            return known
        content = self._look(version)
        self.remember(version, content)
        return content

    def actions(self, version: int) -> Iterable[Action]:
        """The actions of a ratified version."""
        return actions_of(self.content(version), name=commit_path(version))

    def commits(self, versions: Sequence[int]) -> list[tuple[int, Iterable[Action]]]:
        """Many versions at once, with their actions; read in parallel, and not cached."""
        state = self._context.read_published()
        published = -1 if state is None else state[0].version

        def read(version: int) -> Text:
            return self.known(version) or (self._object(version) if version <= published else self.content(version))

        contents = at_once(within_this_call(read), versions, _REQUESTS_MAX, "sluice-log")
        return [(version, actions_of(content, name=commit_path(version))) for version, content in zip(versions, contents, strict=True)]

    def winner(self, version: int) -> Winner:
        """A ratified version, as a winner."""
        known = self._winners.get(version)
        if known is None:
            content = self.content(version)
            known = winner_of(version, decode_text(content, name=commit_path(version)))
            adds, removed, size = len(known.adds), known.removed, len(content)
            if isinstance(removed, RemovedFiles):  # packed
                nbytes = removed.nbytes + adds * (_ACTION_BYTES + size // (len(removed) + adds))
            else:
                nbytes = size + (adds + len(removed)) * _ACTION_BYTES
            self._winners.keep(version, known, nbytes)
        return known

    def winners(self, versions: Sequence[int]) -> Iterator[Winner]:
        """Ratified versions as winners, one after the other; fetched in parallel."""
        for start in range(0, len(versions), _WINDOW):
            window = versions[start : start + _WINDOW]
            missing = [v for v in window if v not in self._winners]
            if len(missing) <= 2:
                yield from map(self.winner, window)
                continue
            fetched = {version: winner_of(version, actions) for version, actions in self.commits(missing)}
            yield from (fetched[v] if v in fetched else self.winner(v) for v in window)

    def rows(self, vector: DeletionVector) -> Rows:
        """The rows in a deletion vector of this table. Raises MissingObject, Corrupt."""
        known = self._vectors.get(vector.unique_id)
        if known is None:
            known = read_vector(self._context.objects, vector)
            self._vectors.keep(vector.unique_id, known, vector.size_in_bytes)
        return known

    def info(self, version: int) -> Mapping[str, Any]:
        """The commitInfo of a ratified version; empty if it has none."""
        return next((a.fields for a in self.actions(version) if isinstance(a, CommitInfo)), {})

    def chain_after(self, version: int) -> tuple[str, str]:
        """The SHA-256 of a ratified version and the hash of the files live after it, for a head that does not know them.

        They are taken from the log: the version may say what its files are, else all live files are read.
        """
        if version < 0:
            return "", NO_FILES
        previous, link = "", None
        with suppress(LogGap):  # a checkpoint took its place
            previous, link = sha256(self.content(version)), Link.of(CommitInfo(self.info(version)))
        if link is not None:
            return previous, link.files
        published = self._context.read_published()
        base = Snapshot.load(self._context.objects, version=version if published is None else min(version, published[0].version))
        return previous, files_of(base.advance(self.commits(range(base.version + 1, version + 1))).files)

    def _look(self, version: int) -> Text:
        context = self._context
        limit = Deadline.after(bounded_s(context.limits.publication_wait_s), context.clock)
        looks = 0
        while looks < _LOOKS_MAX:
            state = context.read_published()
            if state is None or version <= state[0].version:
                return self._object(version)
            try:
                content = self._unpublished(version)
            except UnknownFormat:
                if limit.over:
                    raise
                context.clock.sleep(min(_PAUSE_S, limit.left_s))
                continue
            if content is not None:
                return content
            looks += 1
            context.barrier()  # published meanwhile; or the session that showed the version is over, and this one's server lags
        raise LogGap(f"version {version} of {context.objects.location} is neither published nor in the coordinator's tree", version=version)

    def _object(self, version: int) -> Text:
        """A published version, from its file."""
        objects = self._context.objects
        try:
            return stored_text(objects, commit_path(version))
        except ObjectNotFound as error:
            raise LogGap(
                f"version {version} is missing from the log of {objects.location} although it was published; "
                "restore the file or read from a checkpoint above it",
                version=version,
            ) from error

    def _unpublished(self, version: int) -> Text | None:
        """Rendered from the tree; None if it was published (and its slots removed) meanwhile."""
        coordination, tree = self._context.coordination, self._context.tree
        names = filter(None, map(VerdictName.parse, coordination.children(tree.verdicts) or ()))
        # the first in the order of decisions: a later batch that only refused has the same version in its name
        # check: the-first-batch-of-a-number-made-it (min -> max)
        holding = min((n for n in names if n.version >= version), default=None)
        node = None if holding is None else coordination.read(tree.verdict(holding))
        if node is None:
            return None
        record = BatchRecord.decode(node.data)
        plan = next((p for p in record.versions if p.version == version), None)
        return None if plan is None else self.render(record, plan)

    def render(self, record: BatchRecord, plan: VersionPlan) -> Text | None:
        """The content of one version of a batch, checked against its digest (I5); None if a slot, or what is staged, was removed since."""
        try:
            return self._rendered(record, plan)
        except MissingObject:
            self._context.barrier()
            state = self._context.read_published()
            # check: late-publishers-find-it-published
            if state is not None and state[0].version >= plan.version:
                return None
            raise

    def _rendered(self, record: BatchRecord, plan: VersionPlan) -> Text | None:
        context = self._context
        by = record.rendering
        # check: unknown-renderings-wait
        require_number(by.number, context.release.rendering, f"the rendering of version {plan.version} by {by.engine}")
        filed: dict[int, bytes] = {NO_SLOT: record.direct.encode()} if record.direct else {}
        if not record.direct:
            ids = {v.slot: v.transaction_id for v in record.verdicts}
            paths = [context.tree.slot(record.generation, SlotName(slot, ids[slot])) for slot in plan.slots]
            for slot, node in zip(plan.slots, context.coordination.read_many(paths), strict=True):
                if node is None:
                    return None
                filed[slot] = node.data
        adapted = {each.slot: each for each in plan.rebased}
        members: list[Member] = []
        for slot, data in filed.items():
            intent, each = Intent.decode(data), adapted.get(slot)
            members.append(Member(intent, staged_actions(context, intent, each), () if each is None else each.what))
        content = render(plan, members, record.rendering)
        # check: content-has-its-digest
        invariant("I5", sha256(content) == plan.digest, f"version {plan.version} does not have its ratified content")
        return content
