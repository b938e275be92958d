"""Renders ratified intents to the bytes of `_delta_log/<version>.json`.

Rendering is a pure function of the verdict record and the intents, so that every publisher writes the same bytes (I5),
whatever its release: a change of the output is another rendering, with another number (formats.RENDERING).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ...storage.actions.texts import Text, concatenated
from ..nodes.records import Rendering, VersionPlan, digest
from ..rules.winner import Member
from .row_ids import numbered

__all__ = ["render", "version_digest"]

_NUMBER = re.compile(r"-?[0-9]{1,18}")


def _transaction(member: Member, ordinal: int, ratified_ms: int, joint: Mapping[str, int] | None) -> dict[str, Any]:
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
        "kind": intent.footprint.kind,
    }
    if intent.user_metadata:
        entry["userMetadata"] = intent.user_metadata
    if intent.footprint.app_versions:
        entry["apps"] = dict(intent.footprint.app_versions)
    if intent.rebased or member.rebased:
        entry["rebased"] = [*intent.rebased, *member.rebased]
    if intent.metadata_change is not None:
        entry["metadataChange"] = dict(intent.metadata_change)
    if intent.protocol_change is not None:
        entry["protocolChange"] = dict(intent.protocol_change)
    if joint is not None:
        entry["joint"] = dict(joint)
    return entry


def _sum_metrics(members: Sequence[Member]) -> dict[str, str]:
    total: dict[str, int] = {}
    for member in members:
        for name, value in member.intent.metrics.items():
            if _NUMBER.fullmatch(value):
                total[name] = total.get(name, 0) + int(value)
    return {name: str(value) for name, value in total.items()}


def _commit_info(plan: VersionPlan, members: Sequence[Member], by: Rendering) -> bytes:
    first = members[0].intent
    # check: engine-is-recorded (by.engine -> Rendering(0).engine)
    info: dict[str, Any] = {
        "inCommitTimestamp": plan.timestamp_ms,
        "timestamp": plan.timestamp_ms,
        "operation": first.operation,
        "operationParameters": dict(first.parameters),
        "isolationLevel": first.isolation,
        "isBlindAppend": all(m.intent.footprint.blind_append for m in members),
        "operationMetrics": _sum_metrics(members) if len(members) > 1 else dict(first.metrics),
        "engineInfo": by.engine,
        "txnId": first.transaction_id,
        "sluice": {"transactions": [_transaction(m, n, by.ratified_ms, plan.joint) for n, m in enumerate(members)]},
    }
    if text := next((m.intent.user_metadata for m in members if m.intent.user_metadata), ""):
        info["userMetadata"] = text
    read_version = min(m.intent.read_version for m in members)
    if read_version >= 0:  # a commit that makes the table read no version; delta-rs considers a negative number damaged
        info["readVersion"] = read_version
    if plan.first_row_id is not None:
        info["tags"] = {"delta.rowTracking.preserved": str(all(m.intent.footprint.keeps_row_ids for m in members)).lower()}
    return orjson.dumps({"commitInfo": info}) + b"\n"


def render(plan: VersionPlan, members: Sequence[Member], by: Rendering) -> Text:
    """The bytes of a version's log file: commitInfo first (required by in-commit timestamps), then all actions in order.

    In a table that tracks rows, the new files get their row ids here, since only now their version is known.
    """
    actions = concatenated(m.actions for m in members)
    if plan.first_row_id is not None:
        actions = numbered(actions, first=plan.first_row_id, version=plan.version)
    return concatenated((_commit_info(plan, members, by), actions))


def version_digest(content: Text) -> str:
    """The SHA-256 of a version's content, as kept in the verdict record."""
    return digest(content)
