"""The transactions of a table as bars on a time line: from what the coordinator's records and the log say of them. Pure.

A bar begins when the transaction was queued, changes where it was decided, and ends when its version was in the log. The times are the
coordinator's, as far as its nodes have them: when it was queued is that time less what its client says it waited; when a version was in
the log is what the object store says. A refused transaction begins with the second in which its id was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from ...coordinator.api import BatchRecord, MalformedRecord, advice_of, made_ms, owner_of
from ...coordinator.rules.intent import ClientName, Intent
from ...tables.read.history import HistoryEntry

Bar: TypeAlias = dict[str, Any]
"""A transaction as those fields of a `HistoryEntry` that the page shows, with `queued_ms`, `decided_ms` and `published_ms` (None: not in
the log yet). Its parameters may be secret.

One that was refused has no version, and a `refusal` with its `remedy`.
"""
_SHOWN: Final = ("transaction_id", "version", "ordinal", "operation", "application", "host", "pid", "rebased")


def bars_of(
    records: Iterable[tuple[int, BatchRecord]],
    entries: Sequence[HistoryEntry],
    written_ms: Mapping[int, int],
    intents: Mapping[str, Intent],
    clients: Mapping[str, ClientName],
) -> list[Bar]:
    """All bars, in the order in which they were queued.

    `records` are verdict records with their times, `entries` the log's last transactions, `written_ms` says when the file of a version was
    written, `intents` are those of undecided and unpublished transactions by their ids, `clients` the connected ones by theirs.
    """
    names = {**clients}
    for entry in entries:
        owner = owner_of(entry.transaction_id)
        if owner is not None and owner.is_client:
            names.setdefault(owner.name, ClientName(entry.host, entry.pid, entry.application))
    decided: dict[int, int] = {}
    unpublished: dict[str, Bar] = {}
    published = max(written_ms, default=-1)
    for at_ms, record in records:
        decided |= {plan.version: at_ms for plan in record.versions}
        filed = {**intents, **_intent_without_slot(record)}
        for each in record.verdicts:
            if each.refusal is not None or each.version > published:
                intent, owner = filed.get(each.transaction_id), owner_of(each.transaction_id)
                client = names.get("" if owner is None else owner.name, ClientName()) if intent is None else intent.client
                queued_ms = made_ms(each.transaction_id) if intent is None else intent.claimed_ms
                bar = {"transaction_id": each.transaction_id, "operation": "" if intent is None else intent.operation, **asdict(client)}
                bar |= {"queued_ms": min(at_ms, queued_ms or at_ms), "decided_ms": at_ms, "published_ms": None, "rebased": ()}
                bar |= {"version": each.version if each.refusal is None else None, "ordinal": max(0, each.ordinal)}
                if each.refusal is not None:
                    bar["refusal"] = {**asdict(each.refusal), "remedy": advice_of(each.refusal.rule)}
                unpublished.setdefault(each.transaction_id, bar)  # a refusal is put away before its record goes
    bars = [*unpublished.values()]
    for entry in entries:
        waited_ms = entry.waited_ms or 0
        at_ms = decided.get(entry.version, entry.timestamp + waited_ms)
        times = {"queued_ms": at_ms - waited_ms, "decided_ms": at_ms, "published_ms": max(at_ms, written_ms.get(entry.version, at_ms))}
        bars.append({name: getattr(entry, name) for name in _SHOWN} | times)
    return sorted(bars, key=lambda bar: (bar["queued_ms"], bar["decided_ms"], bar["ordinal"]))


def _intent_without_slot(record: BatchRecord) -> dict[str, Intent]:
    """The intent of a transaction that had no slot, by its id; nothing if this release cannot read it."""
    try:
        intent = Intent.decode(record.direct.encode()) if record.direct else None
    except MalformedRecord:
        return {}
    return {} if intent is None else {intent.transaction_id: intent}
