"""The parts that committing to one table needs, and those of other tables of the same coordinator."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from ...storage.caches import ForkSafeLock
from ...storage.errors import InvalidRequest, Unavailable
from ..errors import UnknownFormat
from ..fields import MalformedRecord
from ..leases.guard import LeaseGuard
from ..nodes.context import TableContext
from ..nodes.layout import TableTree
from ..nodes.records import Head, Published
from ..publication.background import Background
from ..publication.publisher import Publisher
from ..publication.ratified_log import RatifiedLog
from .outcomes import Verdicts

_log = logging.getLogger(__name__)
TROUBLE = (Unavailable, InvalidRequest)
"""Errors that a filed transaction waits out: services that are away, and refused access (other clients may have it)."""


class TableParts:
    """One table as one client commits to it: its log, leases, verdicts, and publication. Thread-safe."""

    def __init__(self, context: TableContext) -> None:
        self.context = context
        self.log = RatifiedLog(context)
        self.leases = LeaseGuard(context)
        self.background = Background(self._see_published)
        self.publisher = Publisher(context, self.log, self.background.submit)
        self.verdicts = Verdicts(context, self.log)
        self.last_committed = -1
        """The highest version that a caller of this client committed."""
        self.alone = True
        """Whether the last batch of this client had only one transaction: then the next one may do without a slot."""
        self._helping = Background(self._see_published)
        """Publishes for others, after a patience; this client's own publications do not wait for it."""

    @property
    def location(self) -> str:
        """The table's location."""
        return self.context.tree.location

    @property
    def tries_directly(self) -> bool:
        """Whether the next commit tries the fast path."""
        return self.alone and self.context.limits.fast_path

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
            self.context.clock.sleep(self.context.limits.patience_s)
            state = self.context.read_published()
        if state is not None and state[0].version < version:
            self.publisher.publish_pending()


class Neighbours:
    """One client's parts for all tables of a coordinator, by location. Thread-safe."""

    def __init__(self, lead: TableParts) -> None:
        self._lead = lead
        self._lock = ForkSafeLock()
        self._known: dict[str, TableParts] = {}

    def know(self, parts: Iterable[TableParts]) -> None:
        """Use these for their tables from now on."""
        with self._lock:
            self._known.update((each.location, each) for each in parts if each is not self._lead)

    def at(self, location: str) -> TableParts:
        """The parts for a table, whose objects are reached like the first table's. Raises InvalidRequest and its kinds."""
        lead = self._lead
        if location == lead.location:
            return lead
        with self._lock:
            known = self._known.get(location)
            if known is None:
                context = replace(lead.context, objects=lead.context.stores(location), tree=TableTree(location))
                known = self._known[location] = TableParts(context)
            return known
