"""Quotas: how much of a table each application may use at once.

::

    /quotas                       all quotas (Quotas), which only `sluice quotas` changes
        <room>                    an application's transactions on one table, if it has a quota there (admission/waiting_room.py)

Every client reads them before its first commit of a session, and again when a watch says that they changed. So a commit that no quota
concerns costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ..errors import UnknownFormat
from ..formats import QUOTAS_FORMAT, Record, node_data
from ..service.store import ApplyRefused, CoordinationStore, ReplyLost, put
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
        return self.slots is None and not self.has_rate

    @property
    def has_rate(self) -> bool:
        """Whether it limits commits or bytes per second."""
        return self.commits_per_s is not None or self.bytes_per_s is not None

    def cost_ms(self, size: int) -> float:
        """How long after a commit of so many bytes the next one is due, by the rates."""
        return 1000 * max(1 / self.commits_per_s if self.commits_per_s else 0.0, size / self.bytes_per_s if self.bytes_per_s else 0.0)

    def __str__(self) -> str:
        limits = {"slots": self.slots, "commits per second": self.commits_per_s, "bytes per second": self.bytes_per_s}
        return ", ".join(f"{name}: {value:,}" for name, value in limits.items() if value is not None) or "no limit"


@node_data("quotas")
class Quotas(Record):
    """All quotas of a coordinator, at most one for each pair of application and table."""

    quotas: tuple[Quota, ...] = ()
    format: int = QUOTAS_FORMAT

    def of(self, application: str, table: str) -> Quota | None:
        """The quota of an application on a table: one that names both goes before one that names the application, that before the table."""
        names = ((application, table), (application, EACH), (EACH, table), (EACH, EACH))
        by_names = {(each.application, each.table): each for each in self.quotas}
        return next((by_names[each] for each in names if each in by_names), None)


class KnownQuotas:
    """The quotas as this process read them last. Safe for several threads."""

    def __init__(self) -> None:
        self.changes = 1
        """How often a watch has rung."""
        self.read: tuple[int, Quotas] = (0, Quotas())
        """How often it had when they were read, and the quotas: at once, so that they belong to each other."""

    def current(self, session: CoordinationStore) -> Quotas:
        """The quotas; asks only if they may have changed."""
        if self.read[0] != self.changes:
            changes = self.changes
            # check: quotas-count-as-read-when-they-are (quotas = -> self.read = changes, Quotas(); quotas =)
            quotas = read_quotas(session, self.ring)
            if changes >= self.read[0]:
                self.read = changes, quotas  # what changed meanwhile is read again
        return self.read[1]

    def ring(self) -> None:
        """They changed, or the connection did."""
        self.changes += 1


def read_quotas(session: CoordinationStore, watch: Callable[[], None] | None = None) -> Quotas:
    """The quotas. Those that this release cannot read stop no commit: they count as none."""
    node = session.read(QUOTAS, watch)
    with suppress(UnknownFormat):
        return (node and Quotas.readable(node.data)) or Quotas()
    return Quotas()


def set_quota(session: CoordinationStore, quota: Quota) -> Quota | None:
    """Set the quota of an application on a table, or remove it if it allows everything; returns the former one. Idempotent.

    Raises InvalidRequest for numbers that are not positive, if it is to be removed and does not exist, and if the quotas cannot be read by
    this release.
    """
    if any(value is not None and not value > 0 for value in (quota.slots, quota.commits_per_s, quota.bytes_per_s)):
        raise InvalidRequest(f"{quota} is no quota: its numbers are above 0; `sluice quotas remove` removes one", quota=str(quota))
    former: Quota | None = None
    while True:
        node = session.read(QUOTAS)
        present = Quotas() if node is None else Quotas.decode(node.data)
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
            session.apply([put(QUOTAS, data, node)])
        except ApplyRefused:
            continue  # somebody else changed them
        except ReplyLost:
            session.barrier()
        else:
            return former
