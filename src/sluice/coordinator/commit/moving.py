"""A table moves to another coordinator while its jobs run.

::

            leave: one multi here                          arrive: one multi there
    here -------------------------> on its way (neither) ----------------------------> there

It leaves when nothing is undecided and everything is published: like the end of a generation of slots, but the next one is opened
elsewhere. The same multi closes the table's nodes to every client, and writes the tombstone that says where the table goes (`Move`). What
follows is computed from the tombstone, from nodes that do not change any more, and from the log: so any client that meets it can finish the
move, several at once, and all do the same. A node at the other coordinator, made before the table leaves, is removed in the multi by which
it arrives: a table arrives once, and a client that was paused meanwhile changes nothing.

The log has everything that is committed. These go along in nodes: refusals, consumers' positions, counters of identity columns, the horizon
of garbage collection, and what protects files from it (pins, plans; the graves of clients whose files it was given).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

import orjson

from ...installation import ENGINE
from ...storage.actions.texts import sha256, stored_text
from ...storage.constants import ADDRESS_KEY, COORDINATOR_KEY
from ...storage.errors import ForeignCommit, InvalidRequest, Unavailable
from ...storage.log.paths import commit_path
from ...storage.log.snapshot import Snapshot
from ..errors import SessionLost, TableMoved, WrongCoordinator, table_moved
from ..leases.lease import Lease
from ..leases.pins import PinNode
from ..nodes.context import TableContext
from ..nodes.creation import address_text, check_tree, identity_of, make_identity, raise_tokens, reachable_from, remove_new_tree, tree_ops
from ..nodes.layout import ARRIVING, CLIENTS, DROPPED, GRAVES, OPEN, TABLES
from ..nodes.plans import OpenPlan
from ..nodes.records import Move, NameRecord, Tombstone, gone_error, incarnation_of, is_closed, root_field, whereabouts
from ..nodes.removal import read_tombstone, remove_closed_tree
from ..publication.failure_points import point
from ..publication.publisher import BYTES_AT_ONCE, fitting
from ..publication.rebuilding import sealing_version
from ..rules.intent import Intent
from ..service.clock import Deadline
from ..service.store import (
    ANY_VERSION,
    ApplyRefused,
    Check,
    CoordinationStore,
    Create,
    Delete,
    Node,
    NodeExists,
    Op,
    ReplyLost,
    Write,
    make_node,
    nodes_below,
    put,
    request_bytes,
)
from .retention import FOLLOWING_MS
from .table import CoordinatedTable
from .transactions import settle_queue

_ATTEMPTS: Final = 20


# -- leaving -------------------------------------------------------------------------------------------------------------


def leave(table: CoordinatedTable, there: TableContext, lease: Lease, snapshot_at: Callable[[int], Snapshot], limit: Deadline) -> Move:
    """Let the table leave for another coordinator, under an exclusive lease on all of it, after everything that was filed before.

    Raises InvalidRequest if the other coordinator has a table there, Unavailable if others keep committing, LeaseLost.
    """
    location, former = table.location, read_tombstone(there)
    _remove_rest(there, former)
    remove_new_tree(there)
    if check_tree(there) or (former is not None and former.deleting):
        text = f"{address_text(there.coordinator)} has a table at {location} already: the property sluice.coordinator says whose it is"
        raise InvalidRequest(text, location=location)
    # one that loses its data from now on is another one
    mark, identity = uuid.uuid4().hex, there.in_session(make_identity)
    there.connect().ensure_path(ARRIVING)
    make_node(there.connect(), f"{ARRIVING}/{mark}", location.encode(), lambda session: session.ensure_path(ARRIVING))
    point("move-leased")
    with suppress(ApplyRefused, ReplyLost, SessionLost):  # what is new, or was not brought now, is brought when it has left
        _bring_owners(table.context, there.connect(), f"{ARRIVING}/{mark}")
    for _ in range(_ATTEMPTS):
        lease.check()
        settle_queue(table, limit)
        table.publish(up_to_date=True)
        point("move-settled")
        move = _left(table, there, lease, snapshot_at, mark, identity)
        if move is not None:
            point("move-left")
            return move
    raise Unavailable(f"other clients keep committing to {location}: repeat the move", location=location)


def _left(
    table: CoordinatedTable, there: TableContext, lease: Lease, snapshot_at: Callable[[int], Snapshot], mark: str, identity: str
) -> Move | None:
    """The move, if the table has left; None if something came between."""
    here, tree, session = table.context, table.context.tree, table.context.coordination
    session.ensure_path(DROPPED)
    state, (root, former) = here.look(), session.read_many([tree.root, tree.tombstone])
    if root is None or state is None:
        raise here.missing_error()
    # check: a-table-leaves-when-all-is-decided
    if not state.next_generation(tree):
        return None
    # check: what-other-engines-have-stays
    if state.head.detached:
        raise InvalidRequest(f"{tree.location} was detached, or is being dropped: attach it, or finish the drop", location=tree.location)
    head, incarnation = state.head, incarnation_of(root)
    previous, files = (head.digest, head.files) if head.files else table.log.chain_after(head.version)
    after = replace(head, version=head.version + 1, metadata_version=head.version + 1, generation=head.generation + 1, slot=-1, files=files)
    move = Move(
        id=mark,
        to=address_text(there.coordinator),
        identity=identity,
        head=replace(after, timestamp_ms=max(here.clock.now_ms(), head.timestamp_ms + 1)),
        previous=previous,
        transaction_id=here.new_transaction_id(),
        client=here.client,
        engine=ENGINE,
        former=(*(root_field(root, "former") or ()), incarnation)[-20:],
        tokens=lease.token,
    )
    move = replace(move, head=replace(move.head, digest=sha256(_sealing(move, snapshot_at(head.version)))))
    there.in_connection(lambda session: _require_fit(list(_arriving(here, session, f"{ARRIVING}/{mark}", move)), tree.location))
    # check: a-table-leaves-where-it-is-awaited
    if there.in_connection(lambda session: session.read(f"{ARRIVING}/{mark}")) is None:
        raise Unavailable(f"{move.to} lost its data during the move of {tree.location}: repeat it", location=tree.location)
    gone = Tombstone(head.version, here.clock.now_ms(), moved=move).encode()
    ops: list[Op] = [
        # check: a-table-leaves-under-its-lease (lease.nodes -> ())
        *[Check(path, ANY_VERSION) for path in lease.nodes],
        Delete(tree.head, state.head_node.version),
        Delete(tree.published, state.published_node.version),
        *[Delete(f"{tree.slots(head.generation)}/{name}") for name in state.slots],  # what a publisher left behind
        Delete(tree.slots(head.generation)),  # refused by a slot that was filed since
        # check: a-table-that-left-is-closed
        Delete(tree.incarnation(incarnation)),
        Create(f"{tree.closed}-{mark}"),
        # check: a-table-that-left-is-closed
        Write(tree.root, orjson.dumps({**orjson.loads(root.data), "closed": True}), root.version),
        put(tree.tombstone, gone, former),  # a deletion may have left a node below it, so it stays
    ]
    try:
        session.apply(ops)
    except ApplyRefused:
        return None
    except (ReplyLost, SessionLost):
        here.connect().barrier()
        now = read_tombstone(here)
        # check: a-lost-leave-is-looked-for (now.moved == move -> False)
        return move if now is not None and now.moved == move else None
    return move


def _require_fit(ops: list[Op], location: str) -> None:
    """Raise InvalidRequest if a table could leave, but not arrive."""
    # check: a-table-that-leaves-can-arrive
    if request_bytes(ops) > BYTES_AT_ONCE:
        pins, consumers = (sum(f"/{parent}/" in op.path for op in ops) for parent in ("pins", "consumers"))
        text = f"{location} has {pins:,} pins and {consumers:,} consumers, more than one request can take to the other coordinator"
        raise InvalidRequest(f"{text}: wait for readers to end, or delete consumers", location=location, pins=pins, consumers=consumers)


def _sealing(move: Move, snapshot: Snapshot) -> bytes:
    """The version after which the table is elsewhere: the same bytes, whoever computes them."""
    metadata = replace(snapshot.metadata, configuration={**snapshot.configuration, COORDINATOR_KEY: move.identity, ADDRESS_KEY: move.to})
    by = Intent(move.transaction_id, "MOVE", -1, -1, move.head.timestamp_ms, parameters={"coordinator": move.to}, client=move.client)
    return sealing_version(snapshot, metadata, (move.previous, move.head.files), by, move.engine)


# -- arriving ------------------------------------------------------------------------------------------------------------


def way_of(context: TableContext) -> Move | None:
    """How a table left this coordinator; None if it is here again. Raises the error for a table that did not move."""

    def now(session: CoordinationStore) -> tuple[Node | None, Node | None]:
        session.barrier()
        return whereabouts(session, context.tree)

    root, node = context.in_connection(now)
    if root is not None and not is_closed(root):
        return None
    move = None if node is None else Tombstone.decode(node.data).moved
    if move is None:
        raise gone_error(context.tree.location, node)
    return move


def address_after(context: TableContext, move: Move) -> str:
    """The address of the coordinator that a table moved to, with the options of this one's. Raises TableMoved if it means nothing here."""
    where, here = reachable_from(move.to), context.coordinator or os.environ.get("SLUICE_COORDINATOR", "")
    if where is None:
        raise table_moved(context.tree.location, move.to)
    # credentials and certificates are not in the tombstone: those for this coordinator are tried
    options = "".join(here.partition("?")[1:]) if here.startswith("zk://") and where.scheme == "zk" else ""
    return move.to.partition(" on ")[0] + options


def are_together(table: CoordinatedTable, there: CoordinatedTable) -> bool:
    """Whether two tables are kept by one coordinator, whatever the addresses."""
    return table.context.in_connection(make_identity) == there.context.in_connection(make_identity)


def arrive(here: CoordinatedTable, there: CoordinatedTable, move: Move) -> None:
    """Let a table that left go on at the other coordinator, unless it does, and remove what is left of it here. Any number of clients may.

    What this process began here is its own there, too.

    Raises WrongCoordinator if another coordinator answers there, ForeignCommit, Unavailable.
    """
    answering, ticket = there.context.in_connection(identity_of), f"{ARRIVING}/{move.id}"
    # check: a-table-arrives-where-it-went
    if answering != move.identity:
        text = f"{here.location} moved to the coordinator {move.identity} at {move.to}, and {answering} answers there"
        raise WrongCoordinator(text, location=here.location, owner=move.identity, found=answering)
    for _ in range(_ATTEMPTS):
        try:
            session = there.context.connect()
            session.barrier()
            # check: a-table-arrives-once
            if session.read(ticket) is None:
                break
            # check: tokens-go-on-elsewhere
            raise_tokens(session, move.tokens)
            _seal(here, move)
            point("move-sealed")
            _remove_rest(there.context, read_tombstone(there.context))
            remove_new_tree(there.context)  # somebody who had seen no log began to make the table
            _bring_owners(here.context, session, ticket)
            session.apply(list(_arriving(here.context, session, ticket, move)))
        except (ApplyRefused, ReplyLost, SessionLost, TableMoved):
            continue  # another client was faster, or this one was without knowing
        break
    else:
        raise Unavailable(f"{here.location} did not get to {move.to}: repeat the move", location=here.location)
    if here.context.presence is not None and there.context.presence is not None:
        there.context.presence.stand_in_for(here.context.presence)
    point("move-arrived")
    mark = f"{here.context.tree.closed}-{move.id}"
    with suppress(ApplyRefused, ReplyLost, SessionLost):  # then they go when the table comes back
        session = here.context.connect()
        session.apply([Check(mark, ANY_VERSION), *[Delete(plan.path) for plan in _plans(session, here.location)]])
    remove_closed_tree(here.context, mark)
    point("move-removed")


def _remove_rest(context: TableContext, tombstone: Tombstone | None) -> None:
    """Remove the closed nodes of a table that comes back, if nobody removed them when it had left."""
    if tombstone is not None and tombstone.moved is not None:
        remove_closed_tree(context, f"{context.tree.closed}-{tombstone.moved.id}")


def _seal(table: CoordinatedTable, move: Move) -> None:
    """Put the version that names the other coordinator into the log, where nobody puts any other."""
    store, path = table.store, commit_path(move.head.version)
    content = _sealing(move, Snapshot.load(store, version=move.head.version - 1))
    if sha256(content) != move.head.digest:
        raise Unavailable(f"{move.engine} must finish the move of {table.location}, which it began: sluice move", location=table.location)
    # check: the-sealing-version-is-ratified
    if not store.put_if_absent(path, content) and sha256(stored_text(store, path)) != move.head.digest:
        text = f"{path} in {table.location} was not written by sluice, whose move to {move.to} puts another version there: move it away"
        raise ForeignCommit(text, version=move.head.version, location=table.location)


def _bring_owners(here: TableContext, session: CoordinationStore, ticket: str) -> None:
    """Let the table's plans be open there, and no others of it; and let clients that garbage collection buried here file nothing there."""
    source = here.connect()
    plans = _plans(source, here.tree.location)
    for parent in (TABLES, CLIENTS, GRAVES, OPEN):
        session.ensure_path(parent)
    kept = {node.path for node in plans}
    # check: plans-that-were-given-up-stay-closed
    session.apply([Check(ticket, ANY_VERSION), *[Delete(n.path) for n in _plans(session, here.tree.location) if n.path not in kept]])
    for node in (*plans, *nodes_below(source, GRAVES)):
        there, client = session.read_many([node.path, node.path.replace(GRAVES, CLIENTS, 1)])
        if there is None:
            # check: the-buried-stay-away-elsewhere ([Delete(client.path)] -> [])
            buried = [] if client is None else [Delete(client.path)]
            try:
                session.apply([Check(ticket, ANY_VERSION), *buried, Create(node.path, node.data)])
            except ApplyRefused as refused:
                if not isinstance(refused.cause, NodeExists):  # another client brought it
                    raise


def _plans(session: CoordinationStore, location: str) -> list[Node]:
    plans = ((node, OpenPlan.readable(node.data)) for node in nodes_below(session, OPEN))
    return [node for node, plan in plans if plan is not None and plan.location == location]


def _arriving(here: TableContext, session: CoordinationStore, ticket: str, move: Move) -> Iterator[Op]:
    """The operations by which the table is there: its nodes, with what the log does not have. Refusals come last, as many as fit."""
    tree, source = here.tree, here.connect()
    former, (back, *others) = session.read(tree.tombstone), source.read_many([tree.name, tree.counters, tree.horizon])
    ops: list[Op] = [Delete(ticket), *tree_ops(tree, move.head, former=move.former, arrived_ms=here.clock.now_ms())]
    if former is not None and (tombstone := Tombstone.decode(former.data)).moved is not None:
        stays = Write(former.path, replace(tombstone, moved=None).encode(), former.version)
        ops.append(stays if session.children(former.path) else Delete(former.path, former.version))
    ops += [Create(node.path, node.data) for node in others if node is not None]
    ops += _with_parent(tree.consumers, nodes_below(source, tree.consumers))
    until_ms = here.clock.now_ms() + FOLLOWING_MS
    pins = [(node, PinNode.readable(node.data)) for node in nodes_below(source, tree.pins)]
    ops += _with_parent(tree.pins, [replace(node, data=replace(pin, until_ms=until_ms).encode()) for node, pin in pins if pin is not None])
    name = None if back is None else session.read(back.data.decode())
    if back is not None and name is not None and NameRecord.decode(name.data).location == tree.location:
        ops += [Check(name.path, name.version), Create(tree.name, back.data)]
    days = [f"{tree.refused}/{day}" for day in sorted(source.children(tree.refused) or (), reverse=True)]
    refusals = [op for day in days for op in _with_parent(day, nodes_below(source, day))]
    yield from ops
    yield from fitting(ops, refusals)[0]


def _with_parent(parent: str, nodes: list[Node]) -> list[Op]:
    return [Create(parent), *[Create(node.path, node.data) for node in nodes]] if nodes else []
