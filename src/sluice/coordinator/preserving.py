"""What a coordinator's tree has and no log has: read while clients go on, and put into a tree whose data were lost.

A backup is older than the logs, always. So no table is restored from it: each is rebuilt from its log (`publication/rebuilding.py`), and
the backup adds what the log does not say. Of all that it has, an older state must be right beside a newer log:

- namespaces and the catalog's root (names are in the logs);
- tables that were dropped and can be brought back: they stay closed;
- positions of consumers: an older one repeats batches, which the consumer's outputs know;
- the horizon of garbage collection, which only grows;
- the quotas of applications;
- the highest fencing token. Tokens are numbers of requests to the servers, which begin anew: so the new tree gets a number that is added.

What an older state would make wrong is left out: counters of identity columns (the log has a mark above every number), open plans (garbage
collection may have taken their files), graves, leases, pins.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec
import orjson
from msgspec import Struct

from ..installation import __version__
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..storage.times import text_of
from .errors import UnknownFormat
from .formats import MalformedRecord, Record
from .leases.consumers import ConsumerRecord
from .nodes.creation import begin_tokens, identity_of, known_locations
from .nodes.layout import CATALOG, CATALOG_DROPPED, FENCE, NAMESPACES, QUOTAS, RESTORED, TableTree
from .nodes.records import CatalogRecord, DroppedRecord, Head, NamespaceRecord, ensure_catalog, tokens_from
from .service.store import CoordinationStore, Create, Delete, Op, Write, make_node, nodes_below, parent_of

FORMAT: Final = 1
_KIND: Final = "sluice tree backup"
_RECORDS: Final[Mapping[str, type[Record]]] = {NAMESPACES: NamespaceRecord, CATALOG_DROPPED: DroppedRecord}


class TreeBackup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A backup of the coordinator with this `identity`, at a time by its clock, by a release of sluice; `token` is the highest one.

    `nodes` are data by paths.
    """

    kind: Literal["sluice tree backup"] = _KIND
    format: int = FORMAT
    sluice: str = __version__
    at: str
    identity: str
    token: int
    nodes: Mapping[str, str]


def read_tree(session: CoordinationStore, left_out: Callable[[str], object] = lambda _: None) -> TreeBackup:
    """Everything worth keeping, not older than this call; `left_out` receives the nodes that are no text.

    Raises InvalidRequest if the coordinator has coordinated no table yet.
    """
    session.barrier()
    identity = identity_of(session)
    if identity is None:
        raise InvalidRequest("this coordinator has coordinated no table yet: there is nothing to back up; check its address")
    mark = session.create(f"/backup-{uuid.uuid4().hex}", ephemeral=True)
    now, fence, catalog, quotas = session.read_many([mark, FENCE, CATALOG, QUOTAS])
    session.delete(mark)
    assert now is not None
    trees = [TableTree(location) for location in known_locations(session)]
    nodes, consumers = session.look([path for t in trees for path in (t.root, t.head, t.horizon)], [t.consumers for t in trees])
    positions = session.read_many([f"{tree.consumers}/{n}" for tree, names in zip(trees, consumers, strict=True) for n in names or ()])
    kept = (catalog, quotas, *nodes_below(session, NAMESPACES), *nodes_below(session, CATALOG_DROPPED), *nodes, *positions)
    read: dict[str, str] = {}
    for node in filter(None, kept):
        try:
            read[node.path] = node.data.decode()
        except UnicodeDecodeError:
            left_out(f"{node.path}: this node is no text, and is not in the backup")
    return TreeBackup(at=text_of(now.created_ms), identity=identity, token=tokens_from(fence) + now.created_zxid, nodes=read)


@dataclass(frozen=True, slots=True)
class KeptTable:
    """What a backup has of a table with this Delta id: the id and the record of its drop, if it is dropped, and nodes below its own."""

    tree: TableTree
    table_id: str
    version: int
    """The last one that was decided."""
    dropped: tuple[str, str] | None
    nodes: Mapping[str, str]

    def ops(self, root: Mapping[str, Any]) -> Sequence[Op]:
        """The operations that add this to the rebuilt nodes, in the same multi. `root` are the fields of the table's own node."""
        made: list[Op] = [Create(path, data.encode()) for path, data in sorted(self.nodes.items())]
        if self.dropped is not None:
            identity, record = self.dropped
            closed = orjson.dumps({**root, "closed": True, "dropped": identity})
            made += [Delete(self.tree.incarnation(root["incarnation"])), Write(self.tree.root, closed, 0)]
            dropped = replace(DroppedRecord.decode(record.encode()), purging=False)  # a deletion under way is begun again
            made.append(Create(f"{CATALOG_DROPPED}/{identity}", dropped.encode()))
        return made


def decode_backup(data: bytes) -> tuple[TreeBackup, list[KeptTable]]:
    """The backup in a JSON text, and its tables; checked as a whole. Raises InvalidRequest."""
    try:
        content = msgspec.json.decode(data)
        if isinstance(content, dict) and content.get("kind") == _KIND and content.get("format") != FORMAT:
            raise InvalidRequest(f"this backup has format {content['format']!r}, and this release reads {FORMAT}: use a newer one")
        backup = msgspec.convert(content, TreeBackup, strict=False)
        return backup, _tables_of(backup)
    except (msgspec.MsgspecError, orjson.JSONDecodeError, MalformedRecord, UnknownFormat) as wrong:
        raise InvalidRequest(f"this is no whole backup of a tree: {wrong}") from wrong


def _tables_of(backup: TreeBackup) -> list[KeptTable]:
    tables, positions = [], {path: text for path, text in backup.nodes.items() if "/consumers/" in path}
    for path, text in backup.nodes.items():
        kind = CatalogRecord if path == CATALOG else _RECORDS.get(parent_of(path), ConsumerRecord if path in positions else None)
        if kind is not None and text:
            kind.decode(text.encode())
        tree, head = TableTree(unquote(path.rpartition("/")[2])), backup.nodes.get(f"{path}/head")
        if path != tree.root or head is None or (decoded := Head.decode(head.encode())).version < 0:
            continue
        root = orjson.loads(text)
        drop = backup.nodes.get(f"{CATALOG_DROPPED}/{root.get('dropped')}")
        if root.get("closed") and drop is None:
            continue  # it is being removed
        nodes = {each: backup.nodes[each] for each in (tree.horizon,) if each in backup.nodes}
        mine = {each: data for each, data in positions.items() if parent_of(each) == tree.consumers}
        nodes |= {tree.consumers: "", **mine} if mine else {}
        tables.append(KeptTable(tree, decoded.table_id, decoded.version, None if drop is None else (root["dropped"], drop), nodes))
    return tables


def begin_restoration(session: CoordinationStore, backup: TreeBackup, now_ms: int) -> None:
    """Put what belongs to no table into a tree without tables; what is there stays, so it may be repeated.

    Raises InvalidRequest if the coordinator is the one of the backup, or has tables that its restoration did not make.
    """
    session.barrier()
    if identity_of(session) == backup.identity:
        raise InvalidRequest("this coordinator is the one that was backed up, and has its data: nothing is to be restored")
    mark = session.read(RESTORED)
    heads = session.read_many([TableTree(location).head for location in known_locations(session)])
    living = sum(head is not None and Head.decode(head.data).version >= 0 for head in heads)
    # check: living-trees-are-not-restored-over
    if living if mark is None else mark.data.decode() != backup.identity:
        what = f"this coordinator has {living} tables of its own, and a backup is restored where there are none"
        raise InvalidRequest(f"{what}: use another chroot, or recover what is missing by sluice recover", tables=living)
    begin_tokens(session, now_ms, backup.token)
    ensure_catalog(session)
    make_node(session, RESTORED, backup.identity.encode(), ensure_catalog)
    catalog = session.read(CATALOG)
    if catalog is not None and not catalog.data:
        session.write(CATALOG, backup.nodes.get(CATALOG, "").encode(), version=catalog.version)
    for path, text in backup.nodes.items():
        if parent_of(path) == NAMESPACES or path == QUOTAS:
            make_node(session, path, text.encode(), ensure_catalog)
