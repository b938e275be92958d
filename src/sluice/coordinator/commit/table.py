"""A table as one client commits to it: one object, which keeps everything that the client knows of the table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from ...storage.caches import ForkSafeLock
from ...storage.errors import InvalidRequest, Unavailable
from ...storage.stores.location import open_store
from ...storage.stores.objects import ObjectStore
from ..errors import TableMoved, UnknownFormat
from ..formats import MalformedRecord
from ..leases.guard import LeaseGuard
from ..leases.lease import TableLeases
from ..limits import Limits
from ..nodes.context import TableContext, require_head, require_history
from ..nodes.layout import TableTree
from ..nodes.presence import presence_of, this_client
from ..nodes.records import Head, Published
from ..publication.background import Background
from ..publication.publisher import Publisher
from ..publication.ratified_log import RatifiedLog
from ..service.address import Address
from ..service.connect import connect
from .outcomes import Verdicts

_log = logging.getLogger(__name__)
TROUBLE = (Unavailable, InvalidRequest)
"""Errors that a filed transaction waits out: services that are away, and refused access (other clients may have it)."""


class CoordinatedTable:
    """A table whose commits a coordinator orders. Thread-safe.

    What can be done with it are functions of the rooms that decide it: `submit` and `validate` (admission), `outcome_of` and `settle_queue`
    (commit). They raise CoordinatorUnavailable while the coordinator is away, TableDropped, TreeReplaced and ProtocolMismatch.
    """

    def __init__(self, context: TableContext) -> None:
        self.context = context
        """The table's nodes and objects, as this client reaches them."""
        self.location = context.tree.location
        self.store = context.objects
        """The object store below that location."""
        self.clock = context.clock
        self.application = context.client.application
        """The program's name in the history."""
        self.log = RatifiedLog(context)
        """The changes of each version."""
        self.leases = TableLeases.of(context)
        """The table's leases, to be requested."""
        self.guard = LeaseGuard(context)
        """The leases that are granted on the table, and stop commits."""
        self.background = Background(self._see_published)
        """Work for the table after its caller went on."""
        self._helping = Background(self._see_published)
        """What may wait: versions of others, after a patience, and looks at the log. This client's own versions do not wait for it."""
        self.publisher = Publisher(context, self.log, self._helping.submit)
        self.verdicts = Verdicts(context, self.log)
        self.last_committed = -1
        """The highest version that a caller has seen committed; -1 for none."""
        self.alone = True
        """Whether the last batch of this client had only one transaction: then the next one may do without a slot."""
        self._head: Head | None = None
        self._lock = ForkSafeLock()
        self._others: dict[str, CoordinatedTable] = {}

    def head(self, *, ahead: bool = False) -> Head:
        """The decided state, as of now. Raises ProtocolMismatch if writers of another node protocol took over.

        With `ahead` the same look serves the commit that follows, unless that one will queue in any case.
        """
        self._head = require_head(self.context, ahead=ahead and self.tries_directly, published=not ahead)
        return self._head

    def known_head(self) -> Head:
        """The head as this client saw it last; enough to ask whether anything changed since."""
        return self._head or self.head()

    def fresh_head(self) -> Head:
        """The decided state, not older than anything acknowledged to any client before this call: one round trip more than `head`.

        Only reads need it: a write made on an old state is compared with later commits.
        """
        # check: latest-asks-for-what-is-known-to-anybody (self.context.up_to_date(self.head) -> self.head())
        return self.context.up_to_date(self.head)

    def head_beside_log(self) -> Head:
        """The decided state of a table whose log was seen. Raises NotATable if the coordinator knows no version of it."""
        self._head = require_history(self.context)
        return self._head

    def require_same_tree(self) -> None:
        """Raise TreeReplaced or TableDropped if the tree is not the one seen last; sends nothing in the session that saw it."""
        if not self.context.same_session:
            self.head()

    @property
    def tries_directly(self) -> bool:
        """Whether the next commit tries the fast path."""
        return self.alone and self.context.limits.fast_path

    def note(self, version: int) -> None:
        """Note that a caller has seen this version committed, so that reads of the session show it."""
        self.last_committed = max(self.last_committed, version)

    def published_version(self) -> int:
        """The last published version, as far as the coordinator knows; -1 before the first version."""
        state = self.context.read_published()
        return -1 if state is None else state[0].version

    def publish(self, *, up_to_date: bool = False) -> int:
        """Publish what is ratified, with `up_to_date` everything acknowledged before this call; returns the last version in the log."""
        publish = self.publisher.publish_pending
        return (self.context.up_to_date(publish) if up_to_date else publish()).version

    def help_to_publish(self, head: Head) -> None:
        """Publish the versions up to `head` in a thread, after a patience: their writer may be dead.

        One thread does so at a time. Its trouble is logged, and the next reader that finds such a version tries again.
        """
        node = self.context.published_then
        try:
            published = None if node is None else Published.decode(node.data)
        except (MalformedRecord, UnknownFormat):  # left to clients of a newer release
            return
        if published is not None and published.version < head.version:
            self._helping.submit(partial(self._see_published, head.version), unless_busy=True)

    def _see_published(self, version: int) -> None:
        """Wait until a ratified version is published; after a patience this client publishes it."""
        state = self.context.read_published()
        if state is not None and state[0].version < version:
            self.clock.sleep(self.context.limits.patience_s)
            state = self.context.read_published()
        if state is not None and state[0].version < version:
            self.publisher.publish_pending()

    def follow(self, moved: TableMoved) -> CoordinatedTable:
        """The table at the coordinator to which it moved. Raises `moved` where tables are not found by their addresses."""
        raise moved

    def know(self, tables: Iterable[CoordinatedTable]) -> None:
        """Use these objects for their tables from now on."""
        with self._lock:
            self._others |= {each.location: each for each in tables}

    def beside(self, location: str) -> CoordinatedTable:
        """The table at a location, whose objects are reached like this one's. Raises InvalidRequest and its kinds."""
        if location == self.location:
            return self
        with self._lock:
            other = self._others.get(location)
            if other is None:
                context = replace(self.context, objects=self.context.stores(location), tree=TableTree(location))
                other = self._others[location] = CoordinatedTable(context)
            return other


def open_context(
    location: str,
    store: ObjectStore,
    coordinator: str | None,
    *,
    application: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> TableContext:
    """Connect to the coordinator and announce this client, without asking whether a table exists. Raises CoordinatorUnavailable."""
    client, address = this_client(application), Address.parse(coordinator)
    return TableContext(
        objects=store,
        tree=TableTree(location),
        connect=partial(connect, address),
        limits=limits or Limits(),
        client=client,
        presence=presence_of(address, client.application),
        stores=partial(open_store, options=storage_options or {}),
        coordinator=coordinator,
    )
