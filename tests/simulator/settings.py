"""What a seed decides before a run begins: the tables, the limits, how often clients do what, and whether all is lost once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.quotas import Quota

from .dice import Dice
from .opening import Settings

_LEVELS = ("WriteSerializable", "WriteSerializable", "Serializable", "SnapshotIsolation")
_LOCATIONS = ("memory://simulated", "memory://simulated-beside", "memory://simulated-too")
_SECONDS_PER_HOUR = 3600.0
_MOVES = 0.2
RELEASES = ("one", "one", "names", "names", "renderings")
_LOST_MORE_S = 100.0
"""For how much longer things go wrong where everything is lost: as long as the recovery waits."""


@dataclass(frozen=True)
class Conditions:
    """All of it. `calendar_rate` is how fast the calendar goes; `loses_all` is whether the coordinator's data are lost.

    `releases` tells what the clients run: "one" release, releases of different "names", or older and newer "renderings". `quota` is set a
    moment after the beginning, and removed later.
    """

    tables: tuple[Settings, ...]
    limits: Limits
    weights: Mapping[str, float]
    calendar_rate: float
    loses_all: bool
    extra_s: float
    inline_vector_bytes: int
    forget_every: int
    term_s: float
    releases: str
    quota: Quota | None
    moves: bool = False
    """Whether an operator moves the tables to another coordinator and back, while the clients work."""

    @property
    def collects(self) -> bool:
        """Whether garbage is collected while clients work."""
        return self.weights["vacuum"] > 0

    @property
    def retention_s(self) -> float:
        """For how long the tables keep replaced files, in virtual seconds."""
        return (8.0 if self.calendar_rate > 1 else 7 * 24.0) * 3600 / self.calendar_rate


def conditions_of(dice: Dice) -> Conditions:
    count = dice.choice((1, 1, 2, 2, 2, 3), 4, 10)
    collects = dice.roll(4, 11) < 0.45
    calendar_rate = _SECONDS_PER_HOUR if collects and dice.roll(4, 12) < 0.5 else 1.0
    loses_all = dice.roll(4, 13) < 1 / 12
    weights = _weights(dice, count, collects=collects, loses_all=loses_all)
    return Conditions(
        tables=tuple(_settings(dice, number, calendar_rate) for number in range(count)),
        limits=_limits(dice),
        weights=weights,
        calendar_rate=calendar_rate,
        loses_all=loses_all,
        extra_s=_LOST_MORE_S if loses_all else 0.0,
        inline_vector_bytes=dice.choice((10, 512), 8, 12),
        forget_every=dice.choice((2, 32), 8, 13),
        term_s=dice.choice((3.0, 600.0), 8, 14),
        releases=dice.choice(RELEASES, 4, 20),
        quota=_quota(dice),
        moves=dice.roll(4, 70) < _MOVES and not loses_all and not weights["rebring"],
    )


def _quota(dice: Dice) -> Quota | None:
    """What the clients named `simulated` may use of each table: in one seed of four."""
    if dice.roll(4, 40) > 0.25:
        return None
    return Quota("simulated", slots=dice.choice((1, 1, 2, None), 4, 41), commits_per_s=dice.choice((None, None, 0.7, 20.0), 4, 42))


def _settings(dice: Dice, number: int, calendar_rate: float) -> Settings:
    properties = {
        "delta.isolationLevel": dice.choice(_LEVELS, 4, 2, number),
        "delta.enableDeletionVectors": str(dice.roll(4, 3, number) < 0.75).lower(),
        "delta.checkpointInterval": dice.choice(("4", "10", "100"), 4, 4, number),
    }
    if dice.roll(4, 6, number) < 0.15:
        properties["delta.enableRowTracking"] = "true"
    if calendar_rate > 1:
        properties |= {"delta.deletedFileRetentionDuration": "interval 8 hours", "delta.logRetentionDuration": "interval 1 day"}
    return Settings(_LOCATIONS[number], properties, ("k",) if dice.roll(4, 5, number) < 0.4 else (), _numbered(dice, number))


def _numbered(dice: Dice, number: int) -> tuple[int, int] | None:
    """The identity column of a table: in three seeds of ten, the first table has one, and most others have."""
    has_one = _counts(dice) and (number == 0 or dice.roll(4, 31, number) < 0.7)
    return dice.choice(((1, 1), (100, -3), (-7, 5)), 4, 32, number) if has_one else None


def _counts(dice: Dice) -> bool:
    return dice.roll(4, 30) < 0.3


def _limits(dice: Dice) -> Limits:
    inline = dice.choice((600, 1500, 4000, 64 * 1024), 8, 1)
    return Limits(
        inline_bytes_max=inline,
        batch_bytes_max=dice.choice((10_000, 140_000), 8, 2) if inline < 5000 else 512 * 1024,
        fast_path=dice.roll(8, 3) < 0.6,
        batch_slots_max=dice.choice((1, 2, 5, 512), 8, 4),
        backlog_versions_max=dice.choice((1, 2, 8), 8, 5),
        footprint_files_max=dice.choice((1, 3, 500), 8, 6),
        patience_s=dice.choice((0.02, 0.1, 0.4), 8, 7),
        patience_s_max=dice.choice((0.5, 10.0), 8, 8),
        generation_slots_max=dice.choice((2, 4, 9, 1_000_000), 8, 9),
        verdicts_kept=dice.choice((9, 12, 128), 8, 10),
        publication_wait_s=dice.choice((0.3, 5.0, 60.0), 8, 11),
    )


def _weights(dice: Dice, tables: int, *, collects: bool, loses_all: bool) -> dict[str, float]:
    several, often, eager = tables > 1, dice.roll(9, 3) < 0.3, dice.roll(9, 6) < 0.3
    base = {
        "append": 6.0,
        "delete": 3.0,
        "update": 2.0,
        "move": 0.7,
        "overwrite": 1.0,
        "upsert": 0.8,
        "widen": 0.3 if dice.roll(9, 4) < 0.25 else 0.0,
        "transaction": 1.0,
        "plan": 1.0,
        "compact": 1.0,
        "leased": 0.8 if dice.roll(9, 2, 0) < 0.5 else 0.0,
        "properties": 0.3,
        "read": 3.0,
        "checkpoint": 0.5,
        "reopen": 0.4,
        "rebring": 0.3 if dice.roll(9, 0) < 0.1 and not loses_all else 0.0,
        "joint": (9.0 if often else 3.0) if several else 0.0,
        "together": (12.0 if often else 2.0) if several else 0.0,
        "vacuum": (5.0 if eager else 1.2) if collects else 0.0,
        "pinned": (4.0 if eager else 1.0) if collects else 0.0,
        "rush": 2.0 if _counts(dice) else 0.0,
    }
    if any(dice.choice(_LEVELS, 4, 2, number) == "SnapshotIsolation" for number in range(tables)):
        base["upsert"] = 0.0  # two that add one key at once may both do so there
    if _counts(dice):
        base["upsert"] = 0.0  # refused beside identity columns
    return {kind: weight * (dice.roll(9, 1, n) * 2) for n, (kind, weight) in enumerate(base.items())}
