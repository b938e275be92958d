"""From a load and the table's rows to the numbers, and from the numbers to a verdict."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from .load import Load
from .systems.base import ROWS, transaction_of

__all__ = ["Report", "measure", "percentile", "verdict", "warn_when_busy"]

_GOALS: Final = {8: (15.0, 20.0), 32: (60.0, 100.0)}
"""Writers -> how many times the better peer's rate, and what fraction of its p99 (as a divisor), sluice is meant to reach."""


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of one system.

    Rates count what was published in `measured_s`, which is the time the writers were given. With ack=ratified a writer
    does not know when its transaction is published, so everything counts, over the time until the last of them is.
    Latencies are of every transaction that was begun, however late it ended; one that never ended counts with the time it
    was given.
    """

    system: str
    writers: int
    ack: str
    latency_ms: float
    measured_s: float
    transactions: int
    transactions_per_s: float
    versions_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    lost: int
    """Acknowledged, and not in the table with all its rows."""
    duplicated: int
    """In the table with a row more than once."""
    unacknowledged: int
    """In the table, though its writer was never told so (it was killed while waiting)."""
    finished_late: int
    """Acknowledged after the measured time: checked, not counted in the rates."""
    unfinished: int
    """Not acknowledged when the writer was killed."""
    slowest_over_mean: float
    """Transactions of the slowest writer over the mean of all."""
    cpu_ms: float
    """Processor time of the writers for each transaction, in milliseconds; without the coordinator and the store."""

    @property
    def sound(self) -> bool:
        """Whether the table holds exactly what was acknowledged."""
        return self.lost == 0 and self.duplicated == 0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(system: str, writers: int, ack: str, latency_ms: float, load: Load, row_ids: Iterable[int]) -> Report:
    """Compare what was acknowledged with what the table holds, and count."""
    rows = Counter(row_ids)
    rows_found = Counter(transaction_of(row) for row in rows)
    present = {key for key, count in rows_found.items() if count == ROWS}
    repeated = {transaction_of(row) for row, count in rows.items() if count > 1}
    acknowledged = {(each.writer, each.sequence) for each in load.transactions if each.acknowledged is not None}

    timed = [each for each in load.transactions if each.sequence > 0]  # the first one warmed up
    answered = [each for each in timed if each.acknowledged is not None]
    if ack == "published":
        counted, measured_s = [each for each in answered if (each.acknowledged or 0.0) <= load.deadline], load.deadline - load.start
    else:
        counted, measured_s = answered, load.ended - load.start
    latencies = sorted(((each.acknowledged or load.ended) - each.begun) * 1000 for each in timed)
    per_writer = Counter(each.writer for each in counted)
    versions = {each.version for each in counted if each.version is not None}
    return Report(
        system=system,
        writers=writers,
        ack=ack,
        latency_ms=latency_ms,
        measured_s=round(measured_s, 3),
        transactions=len(counted),
        transactions_per_s=round(len(counted) / measured_s, 2),
        versions_per_s=round((len(versions) or len(counted)) / measured_s, 2),
        p50_ms=percentile(latencies, 0.50),
        p99_ms=percentile(latencies, 0.99),
        max_ms=percentile(latencies, 1.0),
        lost=len(acknowledged - present),
        duplicated=len(repeated),
        unacknowledged=len(rows_found.keys() - acknowledged),
        finished_late=len(answered) - len(counted),
        unfinished=len(timed) - len(answered),
        cpu_ms=round(load.cpu_ms_per_transaction, 2),
        slowest_over_mean=round(min(per_writer[n] for n in range(writers)) * writers / max(1, len(counted)), 3),
    )


def percentile(ascending: Sequence[float], share: float) -> float:
    """Nearest rank: a value that occurred, never one in between."""
    return round(ascending[max(0, math.ceil(share * len(ascending)) - 1)], 1) if ascending else 0.0


def verdict(reports: Mapping[str, Report]) -> str:
    """One line: whether the tables hold what was promised, and how sluice compares with the better peer."""
    unsound = [f"{name} lost {each.lost} and duplicated {each.duplicated}" for name, each in reports.items() if not each.sound]
    if unsound:
        return "verdict: FAILED, " + "; ".join(unsound)
    ours, peers = reports.get("sluice"), [each for name, each in reports.items() if name != "sluice"]
    if ours is None or not peers:
        return "verdict: ok, nothing lost and nothing duplicated"
    peer = max(peers, key=lambda each: each.transactions_per_s)
    rate = ours.transactions_per_s / peer.transactions_per_s if peer.transactions_per_s else math.inf
    tail = peer.p99_ms / ours.p99_ms if ours.p99_ms else math.inf
    text = f"sluice commits {rate:.1f} times as often as {peer.system}, with a p99 {tail:.1f} times shorter"
    if ours.writers in _GOALS:
        rate_goal, tail_goal = _GOALS[ours.writers]
        text += f" (goals: {rate_goal:.0f} and {tail_goal:.0f}, {'reached' if rate >= rate_goal and tail >= tail_goal else 'MISSED'})"
    return f"verdict: ok, nothing lost and nothing duplicated; {text}"


def warn_when_busy() -> None:
    """A system that is bound by the processor suffers from a busy machine, one that waits for the store does not: even ratios shift."""
    load_average, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load_average > cores:
        print(
            f"warning: the machine is busy (load {load_average:.1f} on {cores} cores), the numbers will not be comparable", file=sys.stderr
        )
