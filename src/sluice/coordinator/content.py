"""From ratified intents to the bytes of `_delta_log/<version>.json`, and back to what a winner did.

Rendering is a pure function of the verdict record and the intents, so that every publisher writes the same bytes (I5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..storage.actions import Action, AddFile, CommitInfo, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from ..version import ENGINE
from .records import Intent, VersionPlan, digest

__all__ = ["Member", "Winner", "render", "version_digest", "winner_of"]


@dataclass(frozen=True, slots=True)
class Member:
    """An intent together with its actions (newline-delimited JSON), wherever those were kept."""

    intent: Intent
    actions: bytes


def _transaction(member: Member, ordinal: int, ratified_ms: int) -> dict[str, Any]:
    intent = member.intent
    entry: dict[str, Any] = {
        "id": intent.transaction_id,
        "ordinal": ordinal,
        "operation": intent.operation,
        "operationMetrics": dict(intent.metrics),
        "readVersion": intent.read_version,
        "claimedAt": intent.claimed_ms,
        "ratifiedAt": ratified_ms,
        "host": intent.client.host,
        "pid": intent.client.pid,
        "application": intent.client.application,
    }
    if intent.footprint.app_versions:
        entry["apps"] = dict(intent.footprint.app_versions)
    return entry


def _sum_metrics(members: Sequence[Member]) -> dict[str, str]:
    total: dict[str, int] = {}
    for member in members:
        for name, value in member.intent.metrics.items():
            if value.lstrip("-").isdigit():
                total[name] = total.get(name, 0) + int(value)
    return {name: str(value) for name, value in total.items()}


def _commit_info(plan: VersionPlan, members: Sequence[Member], ratified_ms: int) -> bytes:
    first = members[0].intent
    info = {
        "inCommitTimestamp": plan.timestamp_ms,
        "timestamp": plan.timestamp_ms,
        "operation": first.operation,
        "operationParameters": dict(first.parameters),
        "readVersion": min(m.intent.read_version for m in members),
        "isolationLevel": first.isolation,
        "isBlindAppend": all(m.intent.footprint.blind_append for m in members),
        "operationMetrics": _sum_metrics(members) if len(members) > 1 else dict(first.metrics),
        "engineInfo": ENGINE,
        "txnId": first.transaction_id,
        "sluice": {"transactions": [_transaction(m, n, ratified_ms) for n, m in enumerate(members)]},
    }
    return orjson.dumps({"commitInfo": info}) + b"\n"


def render(plan: VersionPlan, members: Sequence[Member], ratified_ms: int) -> bytes:
    """The bytes of a version's log file: commitInfo first (in-commit timestamps ask for that), then all actions in order."""
    return _commit_info(plan, members, ratified_ms) + b"".join(m.actions for m in members)


def version_digest(content: bytes) -> str:
    """What the verdict record remembers of a version's content."""
    return digest(content)


@dataclass(frozen=True, slots=True)
class Winner:
    """What a commit that came first did, as the conflict rules ask for it; derived from its actions only."""

    version: int
    operation: str = ""
    blind_append: bool = False
    adds: tuple[AddFile, ...] = ()
    removes: frozenset[str] = frozenset()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    app_versions: Mapping[str, int] = field(default_factory=dict)
    domains: frozenset[str] = frozenset()
    transactions: tuple[Mapping[str, Any], ...] = ()

    def ordinal_of(self, transaction_id: str) -> int | None:
        """The place of a transaction in this version, or None when it is not part of it."""
        return next((int(t["ordinal"]) for t in self.transactions if t.get("id") == transaction_id), None)

    def ordinal_of_app(self, app_id: str) -> int:
        """The place of the transaction that wrote this application id (0 when the commit does not tell)."""
        return next((int(t["ordinal"]) for t in self.transactions if app_id in t.get("apps", {})), 0)


def transactions_of(info: CommitInfo | None) -> tuple[Mapping[str, Any], ...]:
    """The transactions that a commit's commitInfo lists; none for a commit that sluice did not make."""
    ours = info.fields.get("sluice") if info is not None else None
    listed = ours.get("transactions") if isinstance(ours, Mapping) else None
    return tuple(t for t in listed if isinstance(t, Mapping)) if isinstance(listed, list) else ()


def winner_of(version: int, actions: Sequence[Action]) -> Winner:
    """Sum up one commit. A commit without `isBlindAppend` counts as not blind, as in Delta."""
    adds: list[AddFile] = []
    removes: list[str] = []
    domains: list[str] = []
    apps: dict[str, int] = {}
    info: CommitInfo | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    for action in actions:
        match action:
            case AddFile():
                adds.append(action)
            case RemoveFile():
                removes.append(action.path)
            case Txn():
                apps[action.app_id] = action.version
            case DomainMetadata():
                domains.append(action.domain)
            case Metadata():
                metadata = action
            case Protocol():
                protocol = action
            case CommitInfo():
                info = action
            case _:
                continue
    return Winner(
        version=version,
        operation=str(info.fields.get("operation", "")) if info else "",
        blind_append=info is not None and info.fields.get("isBlindAppend") is True,
        adds=tuple(adds),
        removes=frozenset(removes),
        metadata=metadata,
        protocol=protocol,
        app_versions=apps,
        domains=frozenset(domains),
        transactions=transactions_of(info),
    )
