"""Examines all nodes of a table: whether they are valid, and agree with the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..storage.log.examination import ERROR, NOTE, WARNING, Finding, Seal
from ..storage.log.paths import commit_path
from .errors import UnknownFormat
from .formats import MalformedRecord
from .leases.blocking import list_leases
from .nodes.context import TableContext
from .nodes.creation import check_tree
from .nodes.layout import NODES_OF_TABLES, Place, SlotName, VerdictName
from .nodes.records import BatchRecord, Head, Published

_HOUR_MS: Final = 3_600_000


def examine_nodes(context: TableContext, seals: Mapping[int, Seal], report: Callable[[Finding], object]) -> None:
    """Report ratified versions that the log lacks, leases held for long, and unneeded nodes.

    `seals` are the digests of the log's versions. Changes nothing.
    """
    tree, session = context.tree, context.coordination
    if not check_tree(context):
        what = "the coordinator has no nodes of this table"
        report(Finding(ERROR, tree.root, what, "check that this is the coordinator of its writers; if its data were lost, sluice recover"))
        return
    session.barrier()
    head_node, published_node = session.read_many([tree.head, tree.published])
    if head_node is None or published_node is None:
        report(Finding(ERROR, tree.root, "the table's nodes are incomplete", "rebuild them: sluice recover"))
        return
    try:
        head, published = Head.decode(head_node.data), Published.decode(published_node.data)
    except (MalformedRecord, UnknownFormat) as unknown:
        report(Finding(ERROR, tree.root, f"the table's nodes cannot be read: {unknown.message}", "use the release that wrote them"))
        return
    latest = max(seals, default=-1)
    if latest > head.version:
        what = f"the log has version {latest}, and the coordinator ratified {head.version}"
        remedy = f"stop the writers that bypass sluice, and move away the files from version {head.version + 1} on"
        report(Finding(ERROR, commit_path(head.version + 1), what, remedy))
    for version in range(latest + 1, published.version + 1):
        report(Finding(ERROR, commit_path(version), f"version {version} was published, but is not in the log", "restore it from a copy"))
    if published.version < head.version:
        what = f"versions {published.version + 1} to {head.version} are ratified, but not published yet"
        report(Finding(NOTE, tree.published, what, "the next commit, read or outcome through sluice publishes them"))
    _compare_records(context, seals, published, report)
    _stray(context, head, published, report)
    now_ms = context.clock.now_ms()
    for lease in list_leases(session, Place.of_table(tree)):
        hours = (now_ms - lease.since_ms) / _HOUR_MS
        if lease.held and hours >= 1:
            what = f"{lease.application} on {lease.host} (process {lease.pid}) has held a lease for {hours:.0f} hours"
            report(Finding(NOTE, lease.lease, what, "sluice leases break takes it away, if nobody needs it"))


def _compare_records(context: TableContext, seals: Mapping[int, Seal], published: Published, report: Callable[[Finding], object]) -> None:
    """Check that the records of the last batches have the digests of their versions."""
    names = sorted(filter(None, map(VerdictName.parse, context.coordination.children(context.tree.verdicts) or ())))
    nodes = context.coordination.read_many([context.tree.verdict(name) for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue
        try:
            record = BatchRecord.decode(node.data)
        except (MalformedRecord, UnknownFormat) as unknown:
            report(Finding(WARNING, context.tree.verdict(name), f"this record cannot be read: {unknown.message}"))
            continue
        for plan in record.versions:
            seal = seals.get(plan.version)
            if plan.version <= published.version and seal is not None and seal.digest != plan.digest:
                what = f"version {plan.version} differs from the ratified one: its file was changed or replaced after it was published"
                report(
                    Finding(ERROR, commit_path(plan.version), what, "stop the writers that bypass sluice, and restore the file from a copy")
                )


def _stray(context: TableContext, head: Head, published: Published, report: Callable[[Finding], object]) -> None:
    """Nodes that no part of the protocol uses (any more)."""
    tree, session = context.tree, context.coordination
    for name in sorted(session.children(tree.root) or ()):
        if name not in NODES_OF_TABLES and not name.startswith("incarnation-"):
            report(Finding(NOTE, f"{tree.root}/{name}", "this release does not know this node", "a later release may have made it"))
    for name in sorted(session.children(tree.slots(head.generation)) or ()):
        slot = SlotName.parse(name)
        if slot is None:
            report(Finding(WARNING, f"{tree.slots(head.generation)}/{name}", "this is not a slot: something else made it", "remove it"))
        elif slot.sequence <= min(head.slot, published.slot) and published.generation == head.generation:
            report(
                Finding(
                    NOTE, tree.slot(head.generation, slot), "this slot is decided and published, and was left behind", "nobody reads it"
                )
            )
    for name in sorted(session.children(tree.verdicts) or ()):
        if VerdictName.parse(name) is None:
            report(Finding(WARNING, f"{tree.verdicts}/{name}", "this is not a verdict: something else made it", "remove it"))
