"""One table from near: its last transactions, its queue, leases, consumers, history, schema and files. Reads only.

It reads the coordinator's nodes, and what is published: opening the table like a writer would publish what is stuck, and so hide it.

A transaction is a bar on a time line. It begins when the transaction was queued, changes where it was decided, and ends when its version
was in the log. The times are the coordinator's, as far as its nodes have them: when it was queued is that time less what its client says
it waited; when a version was in the log is what the object store says. A refused transaction begins with the second in which its id was
made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias

from cachetools import LRUCache, cachedmethod
from msgspec import json

from ...coordinator import api
from ...coordinator.errors import UnknownFormat
from ...coordinator.rules.intent import ClientName, Intent
from ...storage.caches import ForkSafeLock, at_once
from ...storage.constants import LOG_FOLDER
from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError, TableNotFound
from ...storage.log.paths import LogFile, LogKind, commit_path
from ...storage.log.snapshot import Snapshot
from ...storage.log.timetravel import leading_commit_info
from ...storage.stores.location import open_store
from ...storage.stores.objects import ObjectStore
from ...tables.read.history import HistoryEntry, entries_in
from .guard import masked

_VERSIONS: Final = 300
"""So many of the log's last versions are shown."""
_BARS_MAX: Final = 2000
"""So many of their transactions are."""
_QUEUE_MAX: Final = 200
_REFUSED_MAX: Final = 60
_SQUARES_MAX: Final = 150
_PAGES_MAX: Final = 16
_FRESH_S: Final = 0.8
_AT_ONCE: Final = 8
BOUND_S: Final = 5.0
"""So long a request waits for the coordinator."""
_UNREADABLE: Final = (api.MalformedRecord, UnknownFormat)
Bar: TypeAlias = dict[str, Any]
"""A transaction as those fields of a `HistoryEntry` that the page shows, with `queued_ms`, `decided_ms` and `published_ms` (None: not in
the log yet). Its parameters may be secret.

One that was refused has no version, and a `refusal` with its `remedy`.
"""
_SHOWN: Final = ("transaction_id", "version", "ordinal", "operation", "application", "host", "pid", "rebased")


@dataclass(slots=True)
class _Page:
    """What is remembered of the table of an id: nothing of it ever changes, but for the snapshot, which moves on."""

    tree: api.TableTree
    store: ObjectStore
    table_id: str = ""
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)
    records: dict[str, tuple[int, api.BatchRecord]] = field(default_factory=dict[str, tuple[int, api.BatchRecord]])
    entries: dict[int, list[HistoryEntry]] = field(default_factory=dict[int, list[HistoryEntry]])
    snapshot: Snapshot | None = None
    read_s: float = float("-inf")
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])


class TablePages:
    """The pages of the tables that somebody looks at. Several who look at once see one read. Thread-safe."""

    def __init__(self, coordinator: str | None, storage_options: Mapping[str, str] | None, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the coordinator's time."""
        self._coordinator = coordinator
        self._options = storage_options or {}
        self._now_ms = now_ms
        self._pages: LRUCache[Any, _Page] = LRUCache(_PAGES_MAX)
        self._lock = ForkSafeLock()

    def page(self, location: str) -> Mapping[str, Any]:
        """The document of a table. Raises TableNotFound for one that the coordinator does not keep, and its errors."""
        page = self._of(location)
        with page.lock, api.bounding(BOUND_S):
            if time.monotonic() - page.read_s > _FRESH_S:
                page.document = _read(api.connect(self._coordinator), page, self._now_ms())
                page.read_s = time.monotonic()
            return page.document

    def files(self, location: str) -> Mapping[str, Any]:
        """The files of a table's published version: by partition, or each by itself in a table without partitions."""
        page = self._of(location)
        with page.lock:
            snapshot = _snapshot(page)
            parts = sorted(_sizes(snapshot), key=lambda part: -part["bytes"])
            whole = {"version": snapshot.version, "files": snapshot.num_files, "bytes": snapshot.size_bytes}
            return {**whole, "by": snapshot.partition_columns, "parts": parts[:_SQUARES_MAX], "left_out": max(0, len(parts) - _SQUARES_MAX)}

    @cachedmethod(attrgetter("_pages"), lock=attrgetter("_lock"))
    def _of(self, location: str) -> _Page:
        require_kept(self._coordinator, location)
        return _Page(api.TableTree(location), open_store(location, self._options))


def require_kept(coordinator: str | None, location: str) -> None:
    """Raises TableNotFound for a table that the coordinator does not keep: nobody lets the console read or write elsewhere."""
    with api.bounding(BOUND_S):
        if location not in api.known_locations(api.connect(coordinator)):
            raise TableNotFound(f"the coordinator keeps no table at {location}", location=location)


def _read(session: api.CoordinationStore, page: _Page, now_ms: int) -> Mapping[str, Any]:
    tree = page.tree
    (head_node, published_node), (records, days) = session.look([tree.head, tree.published], [tree.verdicts, tree.refused])
    if head_node is None or published_node is None:
        raise TableNotFound(f"the table at {tree.location} was dropped, or is being created", location=tree.location)
    head, published = api.Head.decode(head_node.data), api.Published.decode(published_node.data)
    if page.table_id != head.table_id:  # it was dropped and made again
        page.table_id, page.records, page.entries, page.snapshot = head.table_id, {}, {}, None
    paths = [tree.verdict(each) for each in api.newest_first(records or ())]
    for day in sorted(map(int, days or ()))[-1:]:
        parent = tree.refused_on(day)
        paths += [f"{parent}/{each}" for each in sorted(session.children(parent) or ())[-_REFUSED_MAX:]]
    _remember_records(session, page, paths)
    in_publication = [
        f"{tree.slot_prefix(record.generation, verdict.transaction_id)}{verdict.slot:010d}"
        for _, record in page.records.values()
        for verdict in record.verdicts
        if verdict.refusal is None and (record.generation, verdict.slot) > (published.generation, published.slot)
    ]
    names = api.undecided(session.children(tree.slots(head.generation)) or (), head)
    waiting = list(api.read_waiting(session, tree, head, names[:_QUEUE_MAX]))
    intents = {name.transaction_id: intent for name, _, intent in waiting if intent is not None}
    for node in filter(None, session.read_many(in_publication)):
        with suppress(*_UNREADABLE):
            intent = api.read_intent(node.data, head)
            intents[intent.transaction_id] = intent
    # nothing but the id and the time of one that this release cannot read
    said = {each: {"operation": of.operation, "read_version": of.read_version, **asdict(of.client)} for each, of in intents.items()}
    clients = {each.id: ClientName(each.host, each.pid, each.application) for each in api.list_clients(session)}
    log, trouble = _log(page)
    place = api.Place.of_table(tree)
    entries = [each for version in sorted(page.entries) for each in page.entries[version]]
    return {
        "location": tree.location,
        "now_ms": now_ms,
        "version": head.version,
        "published": published.version,
        "bars": _bars(page.records.values(), entries[-_BARS_MAX:], log.pop("written_ms", {}), intents, clients),
        "bars_left_out": max(0, len(entries) - _BARS_MAX),
        "queue": [
            {"transaction_id": name.transaction_id, "queued_ms": node.created_ms, **said.get(name.transaction_id, {})}
            for name, node, _ in waiting
        ],
        "queue_left_out": max(0, len(names) - _QUEUE_MAX),
        "leases": _leases(session, place, now_ms),
        "broken": [asdict(each) for each in api.list_broken(session, place)],
        "consumers": _consumers(session, tree, now_ms),
        "log_trouble": trouble,
        **log,
    }


def _remember_records(session: api.CoordinationStore, page: _Page, paths: Sequence[str]) -> None:
    """Bring the remembered records up to these; one of a newer release is passed over. Refusals are put away later than they were made."""
    for gone in page.records.keys() - set(paths):
        del page.records[gone]
    missing = [each for each in paths if each not in page.records]
    for path, node in zip(missing, session.read_many(missing), strict=True):
        with suppress(*_UNREADABLE):
            if node is not None:
                record = api.BatchRecord.decode(node.data)
                page.records[path] = (node.created_ms if path.startswith(page.tree.verdicts) else record.rendering.ratified_ms), record


def _leases(session: api.CoordinationStore, place: api.Place, now_ms: int) -> list[dict[str, Any]]:
    # a text: tokens have more digits than JavaScript's numbers
    return [
        {**asdict(each), "token": str(each.token), "age_s": max(0.0, (now_ms - each.made_ms) / 1000)}
        for each in api.list_leases(session, place)
    ]


def _consumers(session: api.CoordinationStore, tree: api.TableTree, now_ms: int) -> list[dict[str, Any]]:
    records = [(api.ConsumerRecord.understood(node), now_ms - node.changed_ms) for node in api.nodes_below(session, tree.consumers)]
    return [{**asdict(each), "idle_s": max(0.0, idle_ms / 1000)} for each, idle_ms in sorted(records, key=lambda one: one[0].name)]


def _bars(
    records: Iterable[tuple[int, api.BatchRecord]],
    entries: Sequence[HistoryEntry],
    written_ms: Mapping[int, int],
    intents: Mapping[str, Intent],
    clients: Mapping[str, ClientName],
) -> list[Bar]:
    """All bars, in the order in which they were queued. Pure.

    `records` are verdict records with their times, `entries` the log's last transactions, `written_ms` says when the file of a version was
    written, `intents` are those of undecided and unpublished transactions by their ids, `clients` the connected ones by theirs.
    """
    names = {**clients}
    for entry in entries:
        owner = api.owner_of(entry.transaction_id)
        if owner is not None and owner.is_client:
            names.setdefault(owner.name, ClientName(entry.host, entry.pid, entry.application))
    decided: dict[int, int] = {}
    unpublished: dict[str, Bar] = {}
    published = max(written_ms, default=-1)
    for at_ms, record in records:
        decided |= {plan.version: at_ms for plan in record.versions}
        without_slot = Intent.readable(record.direct.encode()) if record.direct else None
        filed = intents if without_slot is None else {**intents, without_slot.transaction_id: without_slot}
        for each in record.verdicts:
            if each.refusal is not None or each.version > published:
                intent, owner = filed.get(each.transaction_id), api.owner_of(each.transaction_id)
                client = names.get("" if owner is None else owner.name, ClientName()) if intent is None else intent.client
                queued_ms = api.made_ms(each.transaction_id) if intent is None else intent.claimed_ms
                bar = {"transaction_id": each.transaction_id, "operation": "" if intent is None else intent.operation, **asdict(client)}
                bar |= {"queued_ms": min(at_ms, queued_ms or at_ms), "decided_ms": at_ms, "published_ms": None, "rebased": ()}
                bar |= {"version": each.version if each.refusal is None else None, "ordinal": max(0, each.ordinal)}
                if each.refusal is not None:
                    bar["refusal"] = {**asdict(each.refusal), "remedy": api.advice_of(each.refusal.rule)}
                unpublished.setdefault(each.transaction_id, bar)  # a refusal is put away before its record goes
    bars = [*unpublished.values()]
    for entry in entries:
        waited_ms = entry.waited_ms or 0
        at_ms = decided.get(entry.version, entry.timestamp + waited_ms)
        times = {"queued_ms": at_ms - waited_ms, "decided_ms": at_ms, "published_ms": max(at_ms, written_ms.get(entry.version, at_ms))}
        bars.append({name: getattr(entry, name) for name in _SHOWN} | times)
    return sorted(bars, key=lambda bar: (bar["queued_ms"], bar["decided_ms"], bar["ordinal"]))


# -- the log ---------------------------------------------------------------------------------------------------------------


def _log(page: _Page) -> tuple[dict[str, Any], str | None]:
    """What the log says, and why it cannot be read."""
    try:
        snapshot = _snapshot(page)
        written_ms = _read_entries(page, snapshot.version)
    except SluiceError as trouble:
        return {}, trouble.message
    metadata, streams = snapshot.metadata, snapshot.app_transactions.values()
    return {
        "written_ms": written_ms,
        "streams": [{"name": each.app_id, "number": each.version, "at_ms": each.last_updated} for each in streams],
        "columns": json.decode(metadata.schema_string)["fields"] if metadata.schema_string else [],
        "partitioned_by": metadata.partition_columns,
        "description": metadata.description,
        "properties": masked(dict(sorted(snapshot.configuration.items()))),
        "protocol": asdict(snapshot.protocol),
    }, None


def _snapshot(page: _Page) -> Snapshot:
    page.snapshot = Snapshot.load(page.store) if page.snapshot is None else page.snapshot.refresh(page.store)
    return page.snapshot


def _read_entries(page: _Page, newest: int) -> dict[int, int]:
    """Bring the remembered transactions up to a version; returns when each version's file was written."""
    first = max(0, newest - _VERSIONS + 1)
    for version in [each for each in page.entries if each < first]:
        del page.entries[version]
    written: dict[int, int] = {}
    for each in page.store.list_from(LOG_FOLDER, commit_path(first)):
        file = LogFile.parse(each.key, each.size, each.modified_ms)
        if file is not None and file.kind is LogKind.COMMIT:
            written[file.version] = file.modified_ms
    missing = [version for version in range(first, newest + 1) if version not in page.entries]
    for version, info in zip(missing, at_once(partial(leading_commit_info, page.store), missing, _AT_ONCE, "sluice-console"), strict=True):
        # without an in-commit timestamp a version has the time of its file, as in the history
        page.entries[version] = [] if info is None else entries_in(version, {**info.fields, "timestamp": written.get(version)})
    return written


def _sizes(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Name, number of files and bytes of each partition; of each file in a table without partitions."""
    paths, sizes = snapshot.files["path"].to_pylist(), snapshot.files["size"].to_pylist()
    columns = dict(zip(snapshot.metadata.physical_partitions, snapshot.partition_columns, strict=True))
    if not columns:
        return [{"name": path, "files": 1, "bytes": size} for path, size in zip(paths, sizes, strict=True)]
    parts: dict[str, dict[str, Any]] = {}
    for values, size in zip(map(dict, snapshot.files["partition_values"].to_pylist()), sizes, strict=True):
        texts = ("null" if values.get(stored) is None else values[stored] for stored in columns)
        name = ", ".join(f"{column}={text}" for column, text in zip(columns.values(), texts, strict=True))
        part = parts.setdefault(name, {"name": name, "files": 0, "bytes": 0})
        part["files"] += 1
        part["bytes"] += size
    return list(parts.values())
