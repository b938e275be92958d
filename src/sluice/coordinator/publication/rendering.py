"""Renders ratified intents to the bytes of `_delta_log/<version>.json`.

Rendering is a pure function of the verdict record and the intents, so that every publisher writes the same bytes (I5),
whatever its release: a change of the output is another rendering, with another number (formats.RENDERING).

A table with row tracking gives numbers to the rows of every new file ("Row Tracking" in PROTOCOL.md), from its base row id
on, in order, when it is rendered: so a rebased commit need not rewrite anything. In the same way removed files get the version's time: the
writers' clocks may be wrong by days, and engines forget removals, and delete files, by that time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from ...storage.actions import Action, AddFile, DomainMetadata, RemoveFile, decode, decode_text, encode
from ...storage.actions.features import ROW_TRACKING_DOMAIN
from ...storage.actions.records import record_count
from ...storage.actions.texts import Text, concatenated, lines, spooled
from ..nodes.records import Rendering, VersionPlan
from ..rules.winner import Member

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_STAMPS_REMOVALS = 2
"""The first rendering in which removed files have their version's time."""
_REMOVAL = b'{"remove":{'
_REMOVED_AT = re.compile(rb'(\{"remove":\{"path":"(?:[^"\\]|\\.)*","dataChange":(?:true|false))(?:,"deletionTimestamp":-?[0-9]+)?')
"""The begin of the line of a removal, as sluice writes it."""


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
        "kind": intent.reads.kind,
    }
    if intent.user_metadata:
        entry["userMetadata"] = intent.user_metadata
    if apps := member.footprint.app_versions:
        entry["apps"] = dict(apps)
    if intent.rebased or member.rebased:
        entry["rebased"] = [*intent.rebased, *member.rebased]
    if intent.metadata_change is not None:
        entry["metadataChange"] = dict(intent.metadata_change)
    if intent.protocol_change is not None:
        entry["protocolChange"] = dict(intent.protocol_change)
    if joint is not None:
        entry["joint"] = dict(joint)
    return entry


def _commit_info(plan: VersionPlan, members: Sequence[Member], by: Rendering) -> bytes:
    first = members[0].intent
    metrics = dict(first.metrics)
    if len(members) > 1:
        total: Counter[str] = Counter()
        for member in members:
            total.update({name: int(value) for name, value in member.intent.metrics.items() if _NUMBER.fullmatch(value)})
        metrics = {name: str(value) for name, value in total.items()}
    ours: dict[str, Any] = {"transactions": [_transaction(m, n, by.ratified_ms, plan.joint) for n, m in enumerate(members)]}
    if plan.files:
        ours["chain"] = {"version": plan.version, "previous": plan.previous, "files": plan.files}
    # check: engine-is-recorded (by.engine -> Rendering(0).engine)
    info: dict[str, Any] = {
        "inCommitTimestamp": plan.timestamp_ms,
        "timestamp": plan.timestamp_ms,
        "operation": first.operation,
        "operationParameters": dict(first.parameters),
        "isolationLevel": first.isolation,
        "isBlindAppend": False not in [m.footprint.blind_append for m in members],
        "operationMetrics": metrics,
        "engineInfo": by.engine,
        "txnId": first.transaction_id,
        "sluice": ours,
    }
    if texts := [m.intent.user_metadata for m in members if m.intent.user_metadata]:
        info["userMetadata"] = texts[0]
    read_version = min([m.intent.read_version for m in members])
    if read_version >= 0:  # a commit that makes the table read no version; delta-rs considers a negative number damaged
        info["readVersion"] = read_version
    if plan.first_row_id is not None:
        info["tags"] = {"delta.rowTracking.preserved": str(all(m.intent.reads.keeps_row_ids for m in members)).lower()}
    return orjson.dumps({"commitInfo": info}) + b"\n"


def render(plan: VersionPlan, members: Sequence[Member], by: Rendering) -> Text:
    """The bytes of a version's log file: commitInfo first (required by in-commit timestamps), then all actions in order."""
    actions = concatenated([m.actions for m in members])
    if plan.first_row_id is not None:
        actions = numbered(actions, first=plan.first_row_id, version=plan.version)
    if by.number >= _STAMPS_REMOVALS:
        actions = stamped(actions, plan.timestamp_ms)
    return concatenated((_commit_info(plan, members, by), actions))


def stamped(actions: Text, timestamp_ms: int) -> Text:
    """The actions, with this time in every removal."""
    if isinstance(actions, bytes) and _REMOVAL not in actions:
        return actions
    return spooled(_stamped_line(line, timestamp_ms) + b"\n" for line in lines(actions) if line)


def _stamped_line(line: bytes, timestamp_ms: int) -> bytes:
    if not line.startswith(_REMOVAL):
        return line
    begin = _REMOVED_AT.match(line)
    if begin is not None:
        return b'%b,"deletionTimestamp":%d%b' % (begin[1], timestamp_ms, line[begin.end() :])
    action = decode(line)  # with its fields in another order
    return encode(replace(action, deletion_timestamp=timestamp_ms)) if isinstance(action, RemoveFile) else line


class RowCountMissing(ValueError):
    """Raised when a new file does not say how many rows it has."""


def _new_rows(action: Action) -> int | None:
    """How many row ids an action needs; None if it adds no new file."""
    if not isinstance(action, AddFile) or action.base_row_id is not None:
        return None
    counted = record_count(action.stats)
    if counted is None:
        raise RowCountMissing(f"the new file {action.path!r} has no numRecords in its statistics, which row tracking needs")
    return counted


def rows_to_number(actions: Text) -> int:
    """How many row ids the new files among the actions need. Raises RowCountMissing."""
    return sum(_new_rows(each) or 0 for each in decode_text(actions, name="actions")) if actions else 0


def numbered(actions: Text, *, first: int, version: int) -> Text:
    """The actions of one version with row ids from `first` on for its new files, and the new high-water mark."""
    following = first
    result = bytearray()
    for action in decode_text(actions, name="actions") if actions else ():
        count = _new_rows(action)
        if isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING_DOMAIN:
            continue
        if isinstance(action, AddFile) and count is not None:
            action = replace(action, base_row_id=following, default_row_commit_version=version)
            following += count
        result += encode(action) + b"\n"
    mark = orjson.dumps({"rowIdHighWaterMark": following - 1}).decode()
    result += encode(DomainMetadata(ROW_TRACKING_DOMAIN, mark, removed=False)) + b"\n"
    return bytes(result)
