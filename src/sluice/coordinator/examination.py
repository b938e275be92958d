"""Examines all nodes of a table: whether they are valid, and agree with the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from .service.store import nodes_below

_HOUR_MS: Final = 3_600_000


def examine_nodes(context: TableContext, seals: Mapping[int, Seal]) -> Iterator[Finding]:
    """Ratified versions that the log lacks, leases held for long, and unneeded nodes.

    `seals` are the digests of the log's versions. Changes nothing.
    """
    tree, session = context.tree, context.coordination
    if not check_tree(context):
        what = "the coordinator has no nodes of this table"
        yield Finding(ERROR, tree.root, what, "check that this is the coordinator of its writers; if its data were lost, sluice recover")
        return
    session.barrier()
    head_node, published_node = session.read_many([tree.head, tree.published])
    if head_node is None or published_node is None:
        yield Finding(ERROR, tree.root, "the table's nodes are incomplete", "rebuild them: sluice recover")
        return
    try:
        head, published = Head.decode(head_node.data), Published.decode(published_node.data)
    except (MalformedRecord, UnknownFormat) as unknown:
        yield Finding(ERROR, tree.root, f"the table's nodes cannot be read: {unknown.message}", "use the release that wrote them")
        return
    latest = max(seals, default=-1)
    if latest > head.version:
        what = f"the log has version {latest}, and the coordinator ratified {head.version}"
        remedy = f"stop the writers that bypass sluice, and move away the files from version {head.version + 1} on"
        yield Finding(ERROR, commit_path(head.version + 1), what, remedy)
    for version in range(latest + 1, published.version + 1):
        yield Finding(ERROR, commit_path(version), f"version {version} was published, but is not in the log", "restore it from a copy")
    if published.version < head.version:
        what = f"versions {published.version + 1} to {head.version} are ratified, but not published yet"
        yield Finding(NOTE, tree.published, what, "the next commit, read or outcome through sluice publishes them")
    yield from _compare_records(context, seals, head, published)
    yield from _stray(context, head, published)
    now_ms = context.clock.now_ms()
    for lease in list_leases(session, Place.of_table(tree)):
        hours = (now_ms - lease.since_ms) / _HOUR_MS
        if lease.held and hours >= 1:
            what = f"{lease.application} on {lease.host} (process {lease.pid}) has held a lease for {hours:.0f} hours"
            yield Finding(NOTE, lease.lease, what, "sluice leases break takes it away, if nobody needs it")


def _compare_records(context: TableContext, seals: Mapping[int, Seal], head: Head, published: Published) -> Iterator[Finding]:
    """Records of the last batches that do not have the digests of their versions, and a head that does not have its version's."""
    # check: the-head-vouches-for-the-last-version (if head.digest -> if False)
    ratified = {head.version: head.digest} if head.digest else {}
    for node in sorted(nodes_below(context.coordination, context.tree.verdicts), key=lambda node: node.name):
        if VerdictName.parse(node.name) is None:
            continue
        try:
            record = BatchRecord.decode(node.data)
        except (MalformedRecord, UnknownFormat) as unknown:
            yield Finding(WARNING, node.path, f"this record cannot be read: {unknown.message}")
            continue
        ratified |= {plan.version: plan.digest for plan in record.versions}
    for version, digest in sorted(ratified.items()):
        seal = seals.get(version)
        if version <= published.version and seal is not None and seal.digest != digest:
            what = f"version {version} differs from the ratified one: its file was changed or replaced after it was published"
            remedy = "stop the writers that bypass sluice, and restore the file from a copy"
            yield Finding(ERROR, commit_path(version), what, remedy)


def _stray(context: TableContext, head: Head, published: Published) -> Iterator[Finding]:
    """Nodes that no part of the protocol uses (any more)."""
    tree, session = context.tree, context.coordination
    for name in sorted(session.children(tree.root) or ()):
        if name not in NODES_OF_TABLES and not name.startswith("incarnation-"):
            yield Finding(NOTE, f"{tree.root}/{name}", "this release does not know this node", "a later release may have made it")
    slots = tree.slots(head.generation)
    for name in sorted(session.children(slots) or ()):
        slot = SlotName.parse(name)
        if slot is None:
            yield Finding(WARNING, f"{slots}/{name}", "this is not a slot: something else made it", "remove it")
        elif slot.sequence <= min(head.slot, published.slot) and published.generation == head.generation:
            yield Finding(NOTE, f"{slots}/{name}", "this slot is decided and published, and was left behind", "nobody reads it")
    for name in sorted(session.children(tree.verdicts) or ()):
        if VerdictName.parse(name) is None:
            yield Finding(WARNING, f"{tree.verdicts}/{name}", "this is not a verdict: something else made it", "remove it")
