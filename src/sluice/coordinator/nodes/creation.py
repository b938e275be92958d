"""Making and checking the tree of a table, and to which coordinator a table belongs."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import orjson

from ...storage.actions import Metadata
from ...storage.actions.features import is_managed
from ...storage.constants import ADDRESS_KEY, COORDINATOR_KEY
from ...storage.errors import InvalidRequest, Unavailable
from ...storage.log.paths import commit_path
from ...storage.log.segment import list_versions
from ...storage.log.snapshot import Snapshot
from ..errors import WrongCoordinator, table_moved
from ..formats import NODE_PROTOCOL
from ..limits import LONGEST_PUT_S, LONGEST_SESSION_S
from ..service.address import Address
from ..service.embedded.lifecycle import default_directory
from ..service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Create, Delete, NodeExists, Op, ReplyLost, Write, make_node
from .context import TableContext
from .counters import counted_from_log
from .layout import CLIENTS, DROPPED, FENCE, GRAVES, IDENTITY, OPEN, TABLES, Place, SlotName, TableTree
from .records import Head, Published, Tombstone, incarnation_of, require_protocol, tokens_from
from .removal import below, deletion, read_tombstone, remove_closed_tree, require_no_deleter

_REMOVALS_MAX = 20
_TOKENS: Final = 1 << 48
"""How far the tokens of a restored tree begin after those in the backup: 65,536 elections of a leader."""


Also: TypeAlias = Callable[[Mapping[str, Any]], Sequence[Op]]
"""Operations that belong to the making of a table's nodes; they are given the fields of its own node."""


def make_tree(context: TableContext, head: Head, *, while_standing: Sequence[Op] = (), also: Also = lambda _: ()) -> None:
    """Make the table's nodes in one multi, with these checks; nothing happens if the nodes exist. `also` makes more of them.

    `head` is where the table's history starts for sluice: Head() for a new table, or the last version (with its timestamp)
    of an existing log that is attached. Raises ProtocolMismatch if a tree of another node protocol exists.
    """
    coordination, ops = context.coordination, [*while_standing, *tree_ops(context.tree, head, also)]
    for parent in (TABLES, CLIENTS, GRAVES, OPEN):
        coordination.ensure_path(parent)
    while True:
        try:
            coordination.apply(ops)
        except ApplyRefused as refused:
            if not isinstance(refused.cause, NodeExists) or getattr(refused.cause, "path", "") == context.tree.tombstone:
                raise
        except ReplyLost:
            coordination.barrier()  # afterwards the lost request has taken effect, or never will
            # check: trees-are-made-once
            continue
        break
    check_tree(context)


def make_new_tree(context: TableContext) -> None:
    """Make the nodes of a table that is to be created, if this place is as `require_settled` found it.

    A table may have been made here since, and moved away: its clients would find the new nodes and take them for those of another table.
    Raises TableMoved then.
    """
    path = context.tree.tombstone
    for _ in range(_REMOVALS_MAX):
        context.coordination.ensure_path(DROPPED)
        former = context.read(path)
        if former is not None and (moved := Tombstone.decode(former.data).moved) is not None:
            raise table_moved(context.tree.location, moved.to)
        same: list[Op] = [Create(path), Delete(path)] if former is None else [Check(path, former.version)]
        try:
            # check: no-nodes-where-a-table-left (without , while_standing=same)
            return make_tree(context, Head(), while_standing=same)
        except ApplyRefused:  # a table left meanwhile, or the server lags
            context.barrier()
    raise Unavailable(f"tables are made and removed at {context.tree.location} all the time: try again", location=context.tree.location)


def tree_ops(tree: TableTree, head: Head, also: Also = lambda _: (), **beside: object) -> list[Op]:
    """The operations that make a table's nodes; `beside` are further fields of its own node."""
    incarnation = uuid.uuid4().hex
    root = {"protocol": NODE_PROTOCOL, "location": tree.location, "incarnation": incarnation, **beside}
    return [
        Create(tree.root, orjson.dumps(root)),
        Create(tree.incarnation(incarnation)),
        Create(tree.head, head.encode()),
        Create(tree.generations),
        Create(tree.slots(head.generation)),
        Create(tree.verdicts),
        Create(tree.refused),
        Create(Place.of_table(tree).leases),
        Create(tree.published, Published(head.version, head.generation, head.slot).encode()),
        *also(root),
    ]


def known_locations(session: CoordinationStore) -> list[str]:
    """The locations of the tables that a coordinator knows, in order; may include a name that is not a table's."""
    return sorted(unquote(name) for name in session.children(TABLES) or ())


def check_tree(context: TableContext) -> bool:
    """Whether the table has a tree. Raises ProtocolMismatch if the tree is of another node protocol."""
    node = context.coordination.read(context.tree.root)
    if node is None:  # or the server of a new session lags
        node = context.up_to_date(partial(context.read, context.tree.root))
    if node is not None:
        require_protocol(node, context.tree.location)
    return node is not None


def only_begun(context: TableContext) -> bool:
    """Whether the table has a tree, as of now, in which nothing was ratified yet.

    Versions are published after they are ratified, so a log seen before this call is not that tree's. The log's own tree was
    lost while another client, which had seen no log, was creating the table.
    """
    _, node = context.up_to_date(context.read_root_and_head)
    return node is not None and Head.decode(node.data).version < 0


def has_name(context: TableContext) -> bool:
    """Whether the table's nodes lead to a name."""
    return context.read(context.tree.name) is not None


def remove_new_tree(context: TableContext, begun_before_ms: int | None = None) -> None:
    """Remove a tree in which nothing was ratified yet, with its slots; nothing happens to any other tree.

    Only for a caller that saw a log before (see `only_begun`), or with `begun_before_ms`: then the tree stays if it is younger or has
    slots. The head is compared, so a client that ratifies at the same moment is either first, and the tree stays, or is refused. Raises
    Unavailable if others keep filing.
    """
    tree = context.tree
    for _ in range(_REMOVALS_MAX):
        context.forget_tree()
        root, head = context.up_to_date(partial(context.read_root_and_head, published=False))
        if root is None or head is None or Head.decode(head.data).version >= 0:
            return
        # a rebuilt tree starts with equal data versions
        same = Check(tree.incarnation(incarnation_of(root)), ANY_VERSION)
        paths = context.in_session(partial(below, path=tree.root))
        # check: what-is-being-created-stays
        if begun_before_ms is not None and (root.created_ms > begun_before_ms or any(SlotName.parse(Path(path).name) for path in paths)):
            raise Unavailable(f"a client is creating the table at {tree.location}: it stays", location=tree.location)
        gone = [Delete(path, head.version if path == tree.head else ANY_VERSION) for path in paths]
        try:
            context.coordination.apply([same, *gone, Delete(tree.root)])
        except (ApplyRefused, ReplyLost):
            context.coordination.barrier()  # another client removed it, too, or filed or ratified something: look again
    message = f"the nodes of {tree.location}, in which nothing was ratified, could not be removed: try again"
    raise Unavailable(message, location=tree.location)


def reopen_tree(context: TableContext, start: Head) -> None:
    """Let the tree of a detached table continue from `start`, the last version that other engines wrote meanwhile.

    Nothing happens if the table is not detached.
    """
    state = context.look()
    if state is None or not state.head.detached:
        return
    head = state.head
    # only the commit that attaches the table opens it for other writers
    # check: brought-in-again-when-attached (detached=True -> detached=False)
    after = replace(start, generation=head.generation, slot=head.slot, detached=True, intents=max(start.intents, head.intents))
    ops: list[Op] = [
        Write(context.tree.head, after.encode(), state.head_node.version),
        Write(context.tree.published, replace(state.published, version=start.version).encode(), state.published_node.version),
        # check: other-engines-count-too
        counted_from_log(context.tree, context.read(context.tree.counters)),
    ]
    try:
        context.coordination.apply(ops)
    except (ApplyRefused, ReplyLost):
        context.coordination.barrier()  # attached by another client or the lost request: the commit that follows finds out


# -- where a log is, or a former table was -----------------------------------------------------------------------------------


def register_beside_log(context: TableContext, start: Head) -> None:
    """Make the nodes of a table that has a log, or continue those of a detached one from `start`.

    First removes the nodes of a client that saw no log and began to create a table here.
    """
    remove_new_tree(context)
    make_tree(context, start)
    reopen_tree(context, start)


def require_settled(context: TableContext) -> None:
    """Finish the removal of a former table at this location; raise if a new one has to wait.

    That is the case while data of the former table are being deleted, or one of its clients may still interfere with the new
    one.

    A paused client of the former table may still put a version that was published long ago. With a store's conditional put
    this harms no existing version. If it puts one into the empty folder, the version is removed here, by one client at a
    time: a new table may have a version of that name before a paused client removes it.
    """
    location = context.tree.location
    remove_closed_tree(context)
    tombstone = read_tombstone(context)
    if tombstone is None:
        return
    # check: no-table-in-the-place-of-one-that-moved
    if tombstone.moved is not None:
        raise table_moved(location, tombstone.moved.to)
    if tombstone.deleting:
        message = f"the table at {location} is being dropped, and not all its data are deleted yet: wait, or finish it with sluice drop"
        raise InvalidRequest(message, location=location)
    # check: the-place-rests-after-a-deleter-that-vanished
    require_no_deleter(context)
    store = context.objects
    left_ms = tombstone.at_ms + round((LONGEST_SESSION_S + LONGEST_PUT_S) * 1000) - context.clock.now_ms()
    if not store.atomic_put_if_absent and left_ms > 0:
        raise Unavailable(
            f"the table at {location} was dropped a moment ago, and its store has no conditional put: a client of it may overwrite "
            f"files of a new one. Try again in {left_ms / 1000:.0f} s, or use another location",
            location=location,
            wait_s=left_ms / 1000,
        )
    if _stray(context, tombstone) is None:
        return
    # check: a-stray-version-is-removed-under-a-claim
    with deletion(context, tombstone) as held:
        stray = _stray(context, tombstone)
        if stray is not None:
            with store.prepared_deletion(stray) as delete:
                # check: a-stray-version-is-removed-under-a-claim
                held.require()
                delete()


def _stray(context: TableContext, tombstone: Tombstone) -> str | None:
    """A single version of a former table where no table is: nothing can be read from it.

    More files than that are another table, made or moved there since, or the rest of one; so are all files while the
    coordinator knows a table there.
    """
    has_nodes, listing = check_tree(context), list_versions(context.objects)
    alone = not has_nodes and len(listing.commits) == 1 and not listing.checkpoints and 0 not in listing.commits
    return commit_path(max(listing.commits)) if alone and max(listing.commits) <= tombstone.last else None


# -- which coordinator a table belongs to ------------------------------------------------------------------------------------

# A random id in the coordinator's tree is named in the properties of its tables. Addresses are not enough: two programs may use
# one address for different coordinators, or two addresses for one. The first client that brings in a table makes the id, and it
# is lost with the coordinator's data: a coordinator rebuilt without them is another one.


def identity_of(session: CoordinationStore) -> str | None:
    """The coordinator's id; None if it has coordinated no table yet."""
    node = session.read(IDENTITY)
    if node is None:  # or this session's server lags
        session.barrier()
        node = session.read(IDENTITY)
    return None if node is None else node.data.decode()


def make_identity(session: CoordinationStore) -> str:
    """The coordinator's id, which is made if it does not exist."""
    while (identity := identity_of(session)) is None:
        # its parent does not exist at the first use of this coordinator
        make_node(session, IDENTITY, uuid.uuid4().hex[:16].encode(), lambda store: store.ensure_path(TABLES))
    return identity


def begin_tokens(session: CoordinationStore, now_ms: int, beyond: int = 0) -> None:
    """Let fencing tokens of this coordinator begin after all those of one whose data were lost, and after `beyond`, one of them.

    The high half of a token counts elections of a leader. A coordinator that takes over tables begins at the number of times that four
    seconds passed since 1970: no ensemble elects more often.
    """
    # check: tokens-begin-after-the-lost-ones ((now_ms >> 12) << 32 -> 0)
    raise_tokens(session, max((now_ms >> 12) << 32, beyond and beyond + _TOKENS))


def raise_tokens(session: CoordinationStore, least: int) -> None:
    """Let all fencing tokens from now on be greater than `least`. Nothing happens if they are."""
    while True:
        node = session.read(FENCE)
        if node is not None and tokens_from(node) >= least:
            return
        session.ensure_path(TABLES)
        data = str(least).encode()
        with suppress(ApplyRefused, ReplyLost):
            session.apply([Create(FENCE, data) if node is None else Write(FENCE, data, node.version)])
        session.barrier()


def address_text(coordinator: str | None) -> str:
    """An address for people, without options; with this host's name if it means something on this host only."""
    address = Address.parse(coordinator)
    if address.scheme == "embedded":
        return f"embedded://{address.place or default_directory()} on {socket.gethostname()}"
    return f"zk://{address.place}{address.chroot}" if address.scheme == "zk" else f"{address.scheme}://{address.place}"


def reachable_from(text: str) -> Address | None:
    """The coordinator at such an address; None if it cannot be reached from this host."""
    place, _, host = text.partition(" on ")
    if host and (host != socket.gethostname() or not Path(place.removeprefix("embedded://")).is_dir()):
        return None
    return Address.parse(place)


def named_after_coordinator(context: TableContext, metadata: Metadata) -> Metadata:
    """The metadata of a table that its coordinator takes on, with the properties that name it. Unchanged if they name it already."""
    identity = context.in_session(make_identity)
    if metadata.configuration.get(COORDINATOR_KEY) == identity:
        return metadata
    named = {COORDINATOR_KEY: identity, ADDRESS_KEY: address_text(context.coordinator)}
    return replace(metadata, configuration={**metadata.configuration, **named})


def require_own_coordinator(context: TableContext, snapshot: Snapshot) -> None:
    """Raise WrongCoordinator if the table's properties name another coordinator; they may name none."""
    configuration = snapshot.configuration if is_managed(snapshot.protocol) else {}
    owner, location = configuration.get(COORDINATOR_KEY), context.tree.location
    if owner is None:
        return
    identity = context.in_session(identity_of)
    # check: a-table-has-one-coordinator (always)
    if identity == owner:
        return
    # check: moved-tables-are-found-before-their-log
    context.require_here()
    here = "which has coordinated no table yet" if identity is None else f"which is {identity}"
    raise WrongCoordinator(
        f"{location} belongs to the coordinator {owner} (its address was {configuration.get(ADDRESS_KEY, 'not noted')}), and this client "
        f"uses {address_text(context.coordinator)}, {here}. Use the coordinator of the table's other writers. Only if its data were lost, "
        f"rebuild the table's nodes here: sluice.recover(..., former={owner!r}), or in a shell sluice recover --former {owner}",
        location=location,
        owner=owner,
        found=identity,
    )
