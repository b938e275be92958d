"""Quotas: how much of a table each application may use at once.

::

    /quotas                       all quotas (Quotas), which only `sluice quotas` changes
        <room>                    an application's transactions on one table, if it has a quota there (admission/waiting_room.py)

Every client reads them before its first commit of a session, and again when a watch says that they changed. So a commit that no quota
concerns costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ..formats import NodeData, node_data
from ..service.store import BadVersion, CoordinationStore, NodeExists, ReplyLost
from .layout import QUOTAS

EACH: Final = "*"
"""Instead of an application or a table: each one, by itself."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What an application may use of a table; EACH is each application, or each table, with a quota of its own. None: as much as it likes.

    `slots` are transactions that are filed, and whose calls have not returned. `bytes_per_s` counts the data files that commits add.
    """

    application: str = EACH
    table: str = EACH
    slots: int | None = None
    commits_per_s: float | None = None
    bytes_per_s: int | None = None

    @property
    def allows_everything(self) -> bool:
        """Whether it limits nothing."""
        return self.slots is None and self.commits_per_s is None and self.bytes_per_s is None

    def cost_ms(self, size: int) -> float:
        """How long after a commit of so many bytes the next one is due, by the rates."""
        return 1000 * max(1 / self.commits_per_s if self.commits_per_s else 0.0, size / self.bytes_per_s if self.bytes_per_s else 0.0)

    def __str__(self) -> str:
        limits = {"slots": self.slots, "commits per second": self.commits_per_s, "bytes per second": self.bytes_per_s}
        return ", ".join(f"{name}: {value:,}" for name, value in limits.items() if value is not None) or "no limit"


@node_data("quotas")
class Quotas(NodeData):
    """All quotas of a coordinator, at most one for each pair of application and table."""

    quotas: tuple[Quota, ...] = ()

    def of(self, application: str, table: str) -> Quota | None:
        """The quota of an application on a table: one that names both goes before one that names the application, that before the table."""
        names = ((application, table), (application, EACH), (EACH, table), (EACH, EACH))
        by_names = {(each.application, each.table): each for each in self.quotas}
        return next((by_names[each] for each in names if each in by_names), None)


class KnownQuotas:
    """The quotas as this process read them last. Safe for several threads."""

    def __init__(self) -> None:
        self.quotas = Quotas()
        self.changes, self.changes_read = 1, 0
        """How often a watch has rung, and how often it had when what is known was read."""

    def current(self, session: CoordinationStore) -> Quotas:
        """The quotas; asks only if they may have changed."""
        if self.changes_read != self.changes:
            changes = self.changes
            # check: quotas-count-as-read-when-they-are (self.quotas, -> self.changes_read = changes; self.quotas,)
            self.quotas, _ = read_quotas(session, self.ring)
            self.changes_read = changes  # what changed meanwhile is read again
        return self.quotas

    def ring(self) -> None:
        """They changed, or the connection did."""
        self.changes += 1


def read_quotas(session: CoordinationStore, watch: Callable[[], None] | None = None) -> tuple[Quotas, int | None]:
    """The quotas, and the version of their node; None if there is none yet. Quotas that cannot be read count as none."""
    node = session.read(QUOTAS, watch)
    return (Quotas(), None) if node is None else (Quotas.readable(node.data) or Quotas(), node.version)


def set_quota(session: CoordinationStore, quota: Quota) -> Quota | None:
    """Set the quota of an application on a table, or remove it if it allows everything; returns the former one. Idempotent.

    Raises InvalidRequest for numbers that are not positive, and if it is to be removed and does not exist.
    """
    if any(value is not None and not value > 0 for value in (quota.slots, quota.commits_per_s, quota.bytes_per_s)):
        raise InvalidRequest(f"{quota} is no quota: its numbers are above 0; `sluice quotas remove` removes one", quota=str(quota))
    former: Quota | None = None
    while True:
        present, version = read_quotas(session)
        kept = [each for each in present.quotas if (each.application, each.table) != (quota.application, quota.table)]
        former = next((each for each in present.quotas if each not in kept), former)
        if quota.allows_everything and former is None:
            raise InvalidRequest(
                f"application {quota.application} has no quota on table {quota.table}: `sluice quotas` lists those that exist",
                application=quota.application,
                table=quota.table,
            )
        data = Quotas(tuple(kept if quota.allows_everything else [*kept, quota])).encode()
        try:
            if version is None:
                session.create(QUOTAS, data)
            else:
                session.write(QUOTAS, data, version=version)
        except (BadVersion, NodeExists):
            continue
        except ReplyLost:
            session.barrier()
        else:
            return former
