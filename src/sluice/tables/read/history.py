"""The history of a table: its transactions in the log, with how long each waited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields
from datetime import datetime
from typing import Any

from ...storage.actions import CommitInfo, actions_of
from ...storage.dataclass import dataclass
from ...storage.errors import LogGap, VersionNotFound
from ...storage.log.paths import commit_path
from ...storage.log.segment import list_versions
from ...storage.log.timetravel import file_times, read_commit
from ...storage.notebook import html_of_fields, html_of_rows
from ...storage.times import time_of
from ..client.open_table import OpenTable, ReadTable
from ..client.published_table import PublishedTable


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One transaction: `version` and `ordinal` are its place, `timestamp` the version's time in ms since the epoch.

    `waited_ms` is the time between its claim of a slot and its ratification (None for a commit sluice did not make). `kind`
    is the class it had in conflict detection ("" if the commit does not say). `rebased_over` is how many versions came
    between the one it read and its own, and `rebased` what was adapted because of them, without reading or writing data
    again. `joint` has the versions of all tables of a transaction over several, by location. `user_metadata` is the text that
    its writer gave with it; `isolation` and `is_blind_append` are the version's, `user_id`, `user_name` and `cluster_id` those
    that another engine's commit may name. None is what the commit does not say.
    """

    version: int
    ordinal: int
    timestamp: int
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    transaction_id: str = ""
    application: str = ""
    host: str = ""
    pid: int = 0
    waited_ms: int | None = None
    engine: str = ""
    kind: str = ""
    rebased: tuple[str, ...] = ()
    rebased_over: int = 0
    joint: Mapping[str, int] = field(default_factory=dict)
    read_version: int | None = None
    isolation: str = ""
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    user_id: str | None = None
    user_name: str | None = None
    cluster_id: str | None = None

    @property
    def time(self) -> datetime:
        """The version's time, in UTC."""
        return time_of(self.timestamp)

    def _repr_html_(self) -> str:
        return html_of_fields(f"Version {self.version}", _shown(self))


class History(list[HistoryEntry]):
    """Entries of a history, newest first, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return html_of_rows(map(_shown, self))


def _shown(entry: HistoryEntry) -> Mapping[str, object]:
    return {each.name: getattr(entry, each.name) for each in fields(entry)} | {"timestamp": entry.time}


def history(table: ReadTable, limit: int | None) -> History:
    """The latest transactions, newest first; `limit` counts transactions. Ends where the log was cleaned up."""
    entries: list[HistoryEntry] = []
    for version, info in commit_infos(table, limit):
        entries.extend(reversed(entries_in(version, info)))
        if limit is not None and len(entries) >= limit:
            break
    return History(entries[:limit])


def entries_of(table: ReadTable, version: int) -> list[HistoryEntry]:
    """The transactions of one version, in their order; none if the log was cleaned up."""
    return [entry for each in _infos(table, [version]) for entry in entries_in(*each)]


def commit_infos(table: ReadTable, limit: int | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The latest `limit` versions (None: all) with their commitInfo, newest first. Ends where the log was cleaned up."""
    newest = table.latest().version if isinstance(table, PublishedTable) else table.fresh_head().version
    return _infos(table, range(newest, -1 if limit is None else max(-1, newest - limit), -1))


def _infos(table: ReadTable, versions: Iterable[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Versions with their commitInfo, until one is gone. Without an in-commit timestamp, `timestamp` is the file's time (`version_at`)."""
    times: Mapping[int, int] = {}
    for version in versions:
        try:
            content = table.log.content(version) if isinstance(table, OpenTable) else read_commit(table.store, version)
        except (LogGap, VersionNotFound):
            return
        actions = actions_of(content, name=commit_path(version))
        info: Mapping[str, Any] = next((each.fields for each in actions if isinstance(each, CommitInfo)), {})
        if "inCommitTimestamp" not in info:
            times = times or file_times(list_versions(table.store))
            info = {**info, "timestamp": times.get(version)}
        yield version, info


def entries_in(version: int, info: Mapping[str, Any]) -> list[HistoryEntry]:
    """The transactions that a version's commitInfo names, in their order."""
    listed = (info.get("sluice") or {}).get("transactions")
    alone = {"ordinal": 0, "operation": info.get("operation", ""), "id": info.get("txnId", "")}
    alone |= {key: info.get(key) for key in ("operationMetrics", "readVersion", "userMetadata")}
    blind = info.get("isBlindAppend")
    entries: list[HistoryEntry] = []
    for each in listed or [alone]:  # a commit that sluice did not make is one transaction
        read = each.get("readVersion")
        entry = HistoryEntry(
            version=version,
            ordinal=int(each["ordinal"]),
            timestamp=int(info.get("inCommitTimestamp") or info.get("timestamp") or 0),
            operation=str(each["operation"]),
            parameters=info.get("operationParameters") or {},
            metrics=each.get("operationMetrics") or {},
            transaction_id=str(each["id"]),
            application=str(each.get("application", "")),
            host=str(each.get("host", "")),
            pid=int(each.get("pid", 0)),
            waited_ms=max(0, int(each["ratifiedAt"]) - int(each["claimedAt"])) if listed else None,
            engine=str(info.get("engineInfo", "")),
            kind=str(each.get("kind") or ""),
            rebased=tuple(map(str, each.get("rebased") or ())),
            # versions after the one that it read and before its own, without its own group
            rebased_over=max(0, version - 1 - read) if listed and isinstance(read, int) else 0,
            joint=dict(each.get("joint") or {}),
            read_version=read if type(read) is int and read >= 0 else None,
            isolation=str(info.get("isolationLevel") or ""),
            is_blind_append=blind if isinstance(blind, bool) else None,
            user_metadata=_text(each.get("userMetadata")),
            user_id=_text(info.get("userId")),
            user_name=_text(info.get("userName")),
            cluster_id=_text(info.get("clusterId")),
        )
        entries.append(entry)
    return entries


def _text(value: object) -> str | None:
    return None if value is None else str(value)
