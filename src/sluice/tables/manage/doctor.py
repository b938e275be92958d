"""What is wrong with a table, if anything: its log, its files, and its nodes in the coordinator. Reads only, and repairs nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from ...coordinator.errors import UnknownFormat
from ...coordinator.fields import MalformedRecord
from ...coordinator.leases.listing import list_leases
from ...coordinator.nodes.context import TableContext
from ...coordinator.nodes.creation import check_tree
from ...coordinator.nodes.layout import SlotName, VerdictName
from ...coordinator.nodes.lease_records import Place
from ...coordinator.nodes.records import BatchRecord, Head, Published
from ...coordinator.service.clock import DEFAULT_TIMEOUT_S, SystemClock, Timeout, bounding
from ...storage.actions.features import is_managed
from ...storage.actions.records import DeletionVector
from ...storage.actions.uris import key_inside
from ...storage.data.vectors import vector_key
from ...storage.dataclass import dataclass
from ...storage.errors import SluiceError
from ...storage.log.examination import ERROR, NOTE, WARNING, Finding, Seal, examine_files, examine_log
from ...storage.log.paths import commit_path
from ...storage.log.segment import list_segment
from ...storage.log.snapshot import Snapshot
from ..client.address import TableAddress

__all__ = ["Diagnosis", "doctor"]

_HOUR_MS: Final = 3_600_000
_KNOWN_NODES: Final = {"head", "slots", "verdicts", "refused", "published", "leases", "pins", "checkpoint"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found at `location`, the gravest first. `ok` unless something is an error.

    `version` is the latest one that can be read, None for none; `coordinated` tells whether the coordinator was asked, too.
    """

    location: str
    version: int | None
    coordinated: bool
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(each.severity != ERROR for each in self.findings)


def doctor(
    location: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> Diagnosis:
    """Look at all of a table: every file of its log, its checkpoints, whether its data files are there and as long as they should be,
    and, with a `coordinator`, its nodes: whether the log holds what was ratified, leases, and nodes that nobody needs.

    Changes nothing. It reads the whole log, and lists the whole table, which takes what it takes; `timeout_s` bounds what the
    coordinator is asked. Raises TableNotFound, NotATable, Unavailable.
    """
    address = TableAddress.of(location, coordinator, storage_options)
    store = address.store()
    found: list[Finding] = []
    told = found.append
    version: int | None = None
    try:
        list_segment(store)
    except SluiceError as damage:
        if not damage.details.get("version"):
            raise  # there is no log
    seals = examine_log(store, told)
    managed = True
    try:
        snapshot = Snapshot.load(store)
        managed, version = is_managed(snapshot.protocol), snapshot.version
        vectors = _vectors(snapshot)
        examine_files(store, snapshot, partial(key_inside, snapshot.location), vectors, told)
    except SluiceError as damage:
        remedy = "follow what is said about the files above" if found else "restore the table from a copy"
        told(Finding(ERROR, address.location, f"the latest version cannot be read: {damage.message}", remedy))
    if coordinator is not None:
        if managed:
            with bounding(timeout_s, SystemClock()):
                _examine_nodes(address.context(), seals, told)
        else:
            told(Finding(NOTE, address.location, "sluice does not manage this table: the coordinator was not asked"))
    order = (ERROR, WARNING, NOTE)
    found.sort(key=lambda each: order.index(each.severity))
    return Diagnosis(address.location, version, coordinator is not None and managed, tuple(found))


def _vectors(snapshot: Snapshot) -> Iterator[str]:
    for fields in snapshot.files.column("deletion_vector").drop_null().to_pylist():
        key = vector_key(DeletionVector(**fields), snapshot.location)
        if key is not None:
            yield key


# -- the coordinator's nodes -----------------------------------------------------------------------------------------------


def _examine_nodes(context: TableContext, seals: Mapping[int, Seal], told: Callable[[Finding], object]) -> None:
    tree, session = context.tree, context.coordination
    if not check_tree(context):
        what = "the coordinator has no nodes of this table"
        told(Finding(ERROR, tree.root, what, "check that this is the coordinator of its writers; if its data were lost, sluice recover"))
        return
    session.barrier()
    head_node, published_node = session.read_many([tree.head, tree.published])
    if head_node is None or published_node is None:
        told(Finding(ERROR, tree.root, "the table's nodes are incomplete", "rebuild them: sluice recover"))
        return
    try:
        head, published = Head.decode(head_node.data), Published.decode(published_node.data)
    except (MalformedRecord, UnknownFormat) as unknown:
        told(Finding(ERROR, tree.root, f"the table's nodes cannot be read: {unknown.message}", "use the release that wrote them"))
        return
    latest = max(seals, default=-1)
    if latest > head.version:
        what = f"the log has version {latest}, and the coordinator ratified {head.version}"
        remedy = f"stop who writes past sluice, and move the files from version {head.version + 1} on away"
        told(Finding(ERROR, commit_path(head.version + 1), what, remedy))
    for version in range(latest + 1, published.version + 1):
        told(Finding(ERROR, commit_path(version), f"version {version} was published, and is not in the log", "restore it from a copy"))
    if published.version < head.version:
        what = f"versions {published.version + 1} to {head.version} are ratified, and wait to be published"
        told(Finding(NOTE, tree.published, what, "the next commit, read or outcome through sluice publishes them"))
    _compare_records(context, seals, published, told)
    _stray(context, head, published, told)
    now_ms = SystemClock().now_ms()
    for lease in list_leases(session, Place.of_table(tree)):
        hours = (now_ms - lease.since_ms) / _HOUR_MS
        if lease.held and hours >= 1:
            what = f"{lease.application} on {lease.host} (process {lease.pid}) has held a lease for {hours:.0f} hours"
            told(Finding(NOTE, lease.lease, what, "sluice leases break takes it away, if nobody needs it"))


def _compare_records(context: TableContext, seals: Mapping[int, Seal], published: Published, told: Callable[[Finding], object]) -> None:
    """The records of the last batches have the digests of their versions."""
    names = sorted(filter(None, map(VerdictName.parse, context.coordination.children(context.tree.verdicts) or ())))
    nodes = context.coordination.read_many([context.tree.verdict(name) for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        try:
            record = BatchRecord.decode(node.data)
        except (MalformedRecord, UnknownFormat) as unknown:
            told(Finding(WARNING, context.tree.verdict(name), f"this record cannot be read: {unknown.message}"))
            continue
        for plan in record.versions:
            seal = seals.get(plan.version)
            if plan.version <= published.version and seal is not None and seal.digest != plan.digest:
                what = f"version {plan.version} is not what was ratified: its file was changed or replaced after it was published"
                told(Finding(ERROR, commit_path(plan.version), what, "stop who writes past sluice, and restore the file from a copy"))


def _stray(context: TableContext, head: Head, published: Published, told: Callable[[Finding], object]) -> None:
    """Nodes that no part of the protocol uses (any more)."""
    tree, session = context.tree, context.coordination
    for name in sorted(session.children(tree.root) or ()):
        if name not in _KNOWN_NODES and not name.startswith("incarnation-"):
            told(Finding(NOTE, f"{tree.root}/{name}", "this node is nothing of this release's", "a later release may have made it"))
    for name in sorted(session.children(tree.slots(head.generation)) or ()):
        slot = SlotName.parse(name)
        if slot is None:
            told(Finding(WARNING, f"{tree.slots(head.generation)}/{name}", "this is no slot: somebody else made it", "remove it"))
        elif slot.sequence <= min(head.slot, published.slot) and published.generation == head.generation:
            told(
                Finding(
                    NOTE, tree.slot(head.generation, slot), "this slot is decided and published, and was left behind", "nobody reads it"
                )
            )
    for name in sorted(session.children(tree.verdicts) or ()):
        if VerdictName.parse(name) is None:
            told(Finding(WARNING, f"{tree.verdicts}/{name}", "this is no verdict: somebody else made it", "remove it"))
