"""Examines a coordinator's nodes: those of a table, whether they are valid and agree with the log, and those that belong to no table.

Changes nothing, except `remove_stray` and `remove_half_made`, which remove what was found here, if it is still what it was found to be, and
`note_examination`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from ..storage.log.examination import ERROR, NOTE, WARNING, Finding, Seal
from ..storage.log.paths import commit_path
from ..storage.log.segment import latest_version
from .admission.waiting_room import Room
from .catalog.names import TableName, look_at
from .contention import CONTENTION, Batch
from .errors import UnknownFormat
from .formats import MalformedRecord, NodeData
from .leases.consumers import ConsumerRecord
from .leases.pins import PinNode
from .nodes import layout
from .nodes.context import TableContext
from .nodes.creation import check_tree, remove_new_tree
from .nodes.layout import NODES_OF_TABLES, Place, SlotName, TableTree, VerdictName
from .nodes.plans import OpenPlan
from .nodes.presence import Grave
from .nodes.quotas import Quotas
from .nodes.records import BatchRecord, DroppedRecord, Head, NameRecord, NamespaceRecord, Published, Tombstone, is_closed, whereabouts
from .service.store import BadVersion, CoordinationStore, Node, NoNode, NotEmpty, StoreError, nodes_below, parent_of, put, write_through

_HOUR_MS: Final = 3_600_000
_FIX: Final = "sluice doctor --fix removes it"
_LATER: Final = "a later release may have made it"
_SHARED: Final = frozenset(
    "arriving catalog clients contention dropped fence graves identity names open quotas recovering restored tables waits".split()  # noqa: SIM905
)
"""The nodes at the top of the tree (`layout`)."""
_PERSISTENT: Final[Mapping[str, type[NodeData]]] = {
    layout.CATALOG_DROPPED: DroppedRecord,
    CONTENTION: Batch,
    layout.DROPPED: Tombstone,
    layout.GRAVES: Grave,
    layout.NAMESPACES: NamespaceRecord,
    layout.OPEN: OpenPlan,
    layout.QUOTAS: Room,
}
"""What is in the nodes below these, which outlive the sessions of those who made them. One without data has all defaults."""


def examine_nodes(context: TableContext, seals: Mapping[int, Seal]) -> Iterator[Finding]:
    """Ratified versions that the log lacks, and nodes that nobody needs. `seals` are the digests of the log's versions."""
    moved = context.in_connection(lambda session: _moved_to(session, context.tree))
    if moved is not None:
        remedy = f"sluice doctor {context.tree.location} --coordinator {moved.partition(' on ')[0]}"
        yield Finding("moved-away", NOTE, context.tree.root, f"the table moved to {moved}", remedy)
        return
    tree, session = context.tree, context.coordination
    if not check_tree(context):
        remedy = "check that this is the coordinator of its writers; if its data were lost, sluice recover"
        yield Finding("nodes-missing", ERROR, tree.root, "the coordinator has no nodes of this table", remedy)
        return
    session.barrier()
    head_node, published_node = session.read_many([tree.head, tree.published])
    if head_node is None or published_node is None:
        yield Finding("nodes-missing", ERROR, tree.root, "the table's nodes are incomplete", "rebuild them: sluice recover")
        return
    try:
        head, published = Head.decode(head_node.data), Published.decode(published_node.data)
    except (MalformedRecord, UnknownFormat) as unknown:
        what = f"the table's nodes cannot be read: {unknown.message}"
        yield Finding("record-unreadable", ERROR, tree.root, what, "use the release that wrote them")
        return
    latest = max(seals, default=-1)
    if latest > head.version:
        what = f"the log has version {latest}, and the coordinator ratified {head.version}"
        remedy = f"stop the writers that bypass sluice, and move away the files from version {head.version + 1} on"
        yield Finding("foreign-commit", ERROR, commit_path(head.version + 1), what, remedy)
    # check: what-came-meanwhile-is-there (max(latest, latest_version(context.objects) or latest) -> latest)
    arrived = max(latest, latest_version(context.objects) or latest)  # writers go on while the log is read
    for version in range(arrived + 1, published.version + 1):
        what = f"version {version} was published, but is not in the log"
        yield Finding("version-missing", ERROR, commit_path(version), what, "restore it from a copy")
    if published.version < head.version:
        what = f"versions {published.version + 1} to {head.version} are ratified, but not published yet"
        yield Finding("publication-pending", NOTE, tree.published, what, "the next commit, read or outcome through sluice publishes them")
    yield from _compare_records(context, seals, head, published)
    yield from _stray(context, head, published)
    for parent in (Place.of_table(tree).leases, tree.pins):
        yield from _without_session(session, parent)
    yield from _unreadable(nodes_below(session, tree.consumers), ConsumerRecord)


def note_examination(session: CoordinationStore, location: str) -> None:
    """Note that the table was examined now, for all who examine tables by a schedule."""
    path = TableTree(location).examined
    with suppress(StoreError):  # another client has just noted it, or the table is gone; otherwise it is examined again
        session.apply([put(path, b"", session.read(path))])


def _moved_to(session: CoordinationStore, tree: TableTree) -> str | None:
    """The coordinator to which a table moved; None if it did not, or is here again."""
    session.barrier()
    _, tombstone = whereabouts(session, tree)
    left = None if tombstone is None else Tombstone.readable(tombstone.data)
    return None if left is None or left.moved is None else left.moved.to


def examine_without_log(context: TableContext, now_ms: int) -> Finding | None:
    """What is wrong with a table that has nodes and no log; None if it has no nodes. `now_ms` is by the coordinator's clock."""
    tree = context.tree
    root, head = context.in_connection(lambda session: session.read_many([tree.root, tree.head]))
    if root is None:
        return None
    if head is None or Head.decode(head.data).version >= 0:
        what = "the coordinator keeps a table here, and its log is gone: the folder was moved or deleted"
        return Finding("log-gone", ERROR, tree.root, what, f"restore the folder, or let go of the table: sluice forget {tree.location}")
    slots = context.in_connection(lambda session: session.children(tree.slots(0)))
    if slots or now_ms - root.created_ms < _HOUR_MS:
        what = "a client is creating this table, or died before its first version was decided"
        return Finding("table-begun", NOTE, tree.root, what, "the next client that creates or opens it decides its first version")
    what = "a client began to create this table more than an hour ago, and filed no version"
    return Finding("table-half-made", WARNING, tree.root, what, _FIX)


def remove_half_made(context: TableContext, now_ms: int) -> None:
    """Remove such nodes, unless they are younger now, or a client has filed something. Raises Unavailable then."""
    remove_new_tree(context, begun_before_ms=now_ms - _HOUR_MS)


def _compare_records(context: TableContext, seals: Mapping[int, Seal], head: Head, published: Published) -> Iterator[Finding]:
    """Records of the last batches that do not have the digests of their versions, and a head that does not have its version's."""
    # check: the-head-vouches-for-the-last-version (if head.digest -> if False)
    ratified = {head.version: head.digest} if head.digest else {}
    for node in sorted(nodes_below(context.coordination, context.tree.verdicts), key=lambda node: node.name):
        if VerdictName.parse(node.name) is None:
            yield Finding("strange-node", WARNING, node.path, "this is not a verdict: something else made it", "remove it")
            continue
        unreadable = list(_unreadable([node], BatchRecord))
        yield from unreadable
        if not unreadable:
            ratified |= {plan.version: plan.digest for plan in BatchRecord.decode(node.data).versions}
    for version, digest in sorted(ratified.items()):
        seal = seals.get(version)
        if version <= published.version and seal is not None and seal.digest != digest:
            what = f"version {version} differs from the ratified one: its file was changed or replaced after it was published"
            remedy = "stop the writers that bypass sluice, and restore the file from a copy"
            yield Finding("version-not-ratified", ERROR, commit_path(version), what, remedy)


def _stray(context: TableContext, head: Head, published: Published) -> Iterator[Finding]:
    """Nodes that no part of the protocol uses (any more)."""
    tree, session = context.tree, context.coordination
    for name in sorted(session.children(tree.root) or ()):
        if name not in NODES_OF_TABLES and not name.startswith("incarnation-"):
            what = "this release does not know this node"
            yield Finding("strange-node", NOTE, f"{tree.root}/{name}", what, _LATER)
    slots = tree.slots(head.generation)
    for name in sorted(session.children(slots) or ()):
        slot = SlotName.parse(name)
        if slot is None:
            yield Finding("strange-node", WARNING, f"{slots}/{name}", "this is not a slot: something else made it", "remove it")
        elif slot.sequence <= min(head.slot, published.slot) and published.generation == head.generation:
            yield Finding("slot-left", NOTE, f"{slots}/{name}", "this slot is decided and published, and was left behind", _FIX)


def _unreadable(nodes: Iterable[Node], kind: type[NodeData]) -> Iterator[Finding]:
    """Those of some nodes that are no records of this kind, or of a later release."""
    for node in nodes:
        try:
            kind.decode(node.data)
        except (MalformedRecord, UnknownFormat) as unknown:
            severity = WARNING if isinstance(unknown, UnknownFormat) else ERROR
            remedy = "use the release that wrote it; remove it if nothing of sluice did"
            yield Finding("record-unreadable", severity, node.path, f"this record cannot be read: {unknown.message}", remedy)


def _without_session(session: CoordinationStore, parent: str) -> Iterator[Finding]:
    """Nodes that go with their client's session, and have none: a tool copied the tree, or made them."""
    for node in nodes_below(session, parent):
        if _of_no_session(session, node):
            what = "this node belongs to no session, so it never goes: the tree was copied, or something else made it"
            blocks = parent.endswith("/leases")  # commits in its scope wait for ever
            yield Finding("node-without-session", ERROR if blocks else WARNING, node.path, what, _FIX)


# -- nodes that belong to no table -----------------------------------------------------------------------------------------


def is_dropped(root: Node | None) -> bool:
    """Whether a table's node says that it was dropped; without a node it does not."""
    return root is not None and is_closed(root)


def open_locations(session: CoordinationStore) -> list[str]:
    """The locations of the tables whose nodes are not being removed, in order."""
    return sorted(unquote(each.name) for each in nodes_below(session, layout.TABLES) if not is_closed(each))


def examine_tree(session: CoordinationStore, has_log: Callable[[str], bool]) -> Iterator[Finding]:
    """What is wrong with the nodes that belong to no single table."""
    session.barrier()
    leases = [f"{layout.NAMES}/{name}/leases" for name in sorted(session.children(layout.NAMES) or ())]
    for parent in (layout.CLIENTS, layout.WAITS, layout.RECOVERING, *leases):
        yield from _without_session(session, parent)
    day_ago_ms = write_through(session)[1] - 24 * _HOUR_MS
    for ticket in nodes_below(session, layout.ARRIVING):
        if ticket.created_ms < day_ago_ms:
            what = "more than a day ago a table was to move here, and it has not arrived under this number"
            remedy = "finish the moves that sluice doctor --all finds at the other coordinators; if they have none, remove this node"
            yield Finding("arrival-left", NOTE, ticket.path, what, remedy)
    for root in nodes_below(session, layout.TABLES):
        if is_closed(root) and any(name.startswith("closed-") for name in session.children(root.path) or ()):
            what = f"this table moved to {_moved_to(session, TableTree(unquote(root.name)))}, and the move was not finished"
            yield Finding("move-unfinished", WARNING, root.path, what, "sluice doctor --fix finishes it, as does whoever opens the table")
        # a table that was dropped by its name stays closed until its data are deleted
        if is_closed(root) and session.read(f"{root.path}/closed") is not None:
            what = "this table was dropped or forgotten, and its nodes were not removed to the end"
            yield Finding("removal-unfinished", WARNING, root.path, what, _FIX)
    for name in sorted(set(session.children("/") or ()) - _SHARED):
        if not name.startswith(("backup-", "status-")):  # of clients that look at the coordinator's time
            yield Finding("strange-node", NOTE, f"/{name}", "this release does not know this node", _LATER)
    for parent, kind in _PERSISTENT.items():
        yield from _unreadable((node for node in nodes_below(session, parent) if node.data), kind)
    quotas = session.read(layout.QUOTAS)
    yield from _unreadable([quotas] if quotas is not None and quotas.data else [], Quotas)
    yield from _names_of_nothing(session, has_log)
    for node in nodes_below(session, layout.DROPPED):
        tombstone = Tombstone.readable(node.data)
        if tombstone is not None and tombstone.deleting and session.read(f"{node.path}/deleter") is None:
            what = "a table was dropped here, and not all of its data are deleted"
            yield Finding("drop-unfinished", WARNING, node.path, what, "finish it with sluice drop, or sluice tables vacuum")


def _names_of_nothing(session: CoordinationStore, has_log: Callable[[str], bool]) -> Iterator[Finding]:
    for namespace in sorted(session.children(layout.NAMESPACES) or ()):
        nodes = nodes_below(session, f"{layout.NAMESPACES}/{namespace}")
        strange = {each.about: each for each in _unreadable(nodes, NameRecord)}
        yield from strange.values()
        names = sorted(each.name for each in nodes if each.path not in strange)
        for state in look_at(session, *[TableName(namespace, each) for each in names]):
            # a table whose head cannot be read has that finding itself
            if state.node is None or state.record is None or (state.head and any(_unreadable([state.head], Head))) or state.means_table:
                continue
            what = f"the name {state.name} is that of a table at {state.record.location} which the coordinator does not have any more"
            if has_log(state.record.location):
                if _moved_to(session, TableTree(state.record.location)) is not None:
                    continue  # the name leads there
                remedy = "sluice recover rebuilds the table if its nodes were lost"
                yield Finding("name-without-nodes", WARNING, state.node.path, what, remedy)
            else:
                yield Finding("name-of-nothing", WARNING, state.node.path, what, _FIX)


def remove_stray(session: CoordinationStore, finding: Finding) -> str | None:
    """Remove the node of a finding, unless it changed since; returns what was done, None if it stays."""
    session.barrier()
    node = session.read(finding.about)
    if node is not None and _IS_STRAY[finding.name](session, node):
        with suppress(NoNode, BadVersion, NotEmpty):
            session.delete(node.path, version=node.version)
    return "removed" if session.read(finding.about) is None else None


def _still_means_nothing(session: CoordinationStore, node: Node) -> bool:
    [state] = look_at(session, TableName(*node.path.split("/")[-2:]))
    # check: names-of-tables-stay (not state.means_table -> True)
    return not state.means_table


def _of_no_session(session: CoordinationStore, node: Node) -> bool:
    # check: only-nodes-of-no-session-are-removed (node.owner_session -> False)
    if node.owner_session:
        return False
    pin = PinNode.readable(node.data) if parent_of(node.path).endswith("/pins") else None
    # check: pins-that-came-along-stay (pin is None or pin.until_ms < write_through(session)[1] -> True)
    return pin is None or pin.until_ms < write_through(session)[1]


_IS_STRAY: Final[Mapping[str, Callable[[CoordinationStore, Node], bool]]] = {
    "node-without-session": _of_no_session,
    "slot-left": lambda _session, _node: True,  # numbers are never given again
    "name-of-nothing": _still_means_nothing,
}
STRAY: Final = frozenset(_IS_STRAY)
"""The names of findings whose node `remove_stray` removes."""
