"""One table in this process: the commit protocol, the leases, and the head seen last."""

from __future__ import annotations

from ..commit.committer import Committer
from ..leases.table_leases import TableLeases
from ..nodes.context import TableContext
from ..nodes.creation import require_head, require_history
from ..nodes.records import Head


class TableClient:
    """The state shared by everything that concerns one table. Thread-safe."""

    def __init__(self, context: TableContext, coordinator: str | None = None) -> None:
        """`coordinator` is the address by which `context` reaches it."""
        self.context = context
        self.coordinator = coordinator
        self.clock = context.clock
        self.committer = Committer(context)
        self.log = self.committer.log
        """The changes of each version."""
        self.leases = TableLeases.of(context, coordinator)
        """The table's leases."""
        self._head: Head | None = None

    @property
    def location(self) -> str:
        """The table's location."""
        return self.context.tree.location

    def head(self, *, ahead: bool = False) -> Head:
        """The decided state, as of now. Raises ProtocolMismatch if writers of another node protocol took over.

        With `ahead` the same look serves the commit that follows, unless that one will queue in any case.
        """
        self._head = require_head(self.context, ahead=ahead and self.committer.tries_directly, published=not ahead)
        return self._head

    def known_head(self) -> Head:
        """The head as this client saw it last; enough to ask whether anything changed since."""
        return self._head or self.head()

    def fresh_head(self) -> Head:
        """The decided state, not older than anything acknowledged to any client before this call.

        It takes one round trip more than `head`, which a lagging server may answer. Only reads need it: a write made on an
        old state is compared with later commits.
        """
        # check: latest-asks-for-what-is-known-to-anybody (self.context.up_to_date(self.head) -> self.head())
        return self.context.up_to_date(self.head)

    def head_beside_log(self) -> Head:
        """The decided state of a table whose log was seen. Raises NotATable if the coordinator knows no version of it."""
        self._head = require_history(self.context)
        return self._head
