"""Rebuilds a table's nodes from its log after the coordinator's data were lost, one client at a time."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import orjson

from ...installation import ENGINE
from ...storage.actions import Metadata, encode_all
from ...storage.actions.metadata_change import describe
from ...storage.actions.texts import pieces, sha256
from ...storage.constants import ADDRESS_KEY, COORDINATOR_KEY
from ...storage.errors import InvalidRequest, Unavailable
from ...storage.log.snapshot import Snapshot
from ..errors import CoordinatorUnavailable, SessionLost
from ..nodes.context import TableContext
from ..nodes.creation import (
    Also,
    address_text,
    check_tree,
    identity_of,
    make_tree,
    only_begun,
    reachable_from,
    remove_new_tree,
    require_own_coordinator,
)
from ..nodes.layout import ARRIVING, RECOVERING
from ..nodes.records import Head, Rendering, VersionPlan
from ..rules.intent import Intent
from ..rules.winner import Member
from ..service.address import Address
from ..service.connect import visiting
from ..service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Create, Delete, Op, ReplyLost, nodes_below
from .rendering import render

_LETTING_GO_MAX: Final = 60
_CLAIMS_MAX: Final = 5
_PAUSE_S: Final = 1.0
_VISIT_S: Final = 5.0


# -- whether there is anything to rebuild --------------------------------------------------------------------------------


def require_nodes_lost(context: TableContext) -> None:
    """Raise InvalidRequest if the coordinator has the table's nodes, and not only those that a client made that began to create a table."""
    if check_tree(context) and not only_begun(context):
        raise InvalidRequest(
            f"the coordinator has the nodes of {context.tree.location}: there is nothing to recover. If they are those of a former table, "
            "use another location",
            location=context.tree.location,
        )


def require_coordinator_lost(context: TableContext, snapshot: Snapshot, former: str | None) -> None:
    """Raise unless the table is this coordinator's, or its own one is named in `former` and does not answer at its address."""
    owner = require_owner_named(context, snapshot, former)
    text = snapshot.configuration.get(ADDRESS_KEY)
    if owner is None or text is None or text == address_text(context.coordinator):  # a new coordinator is at this very address
        return
    where = reachable_from(text)
    if where is None:
        return
    here = Address.parse(context.coordinator)
    if where.scheme == here.scheme == "zk":  # with this one's credentials
        where = replace(here, place=where.place, chroot=where.chroot)
    where = replace(where, retry_s=_VISIT_S, connect_timeout_s=_VISIT_S)
    try:
        with visiting(where) as session:
            answering = identity_of(session)
    except CoordinatorUnavailable:
        return
    # check: a-living-coordinator-keeps-its-tables
    if answering == owner:
        raise InvalidRequest(
            f"the coordinator {owner} of {context.tree.location} is alive: it answers at {text}. Use it, or move the table to another one "
            "(sluice move)",
            location=context.tree.location,
            owner=owner,
        )


def require_owner_named(context: TableContext, snapshot: Snapshot, former: str | None) -> str | None:
    """The id of another coordinator that the table names; None for this one, or if it names none.

    Raises WrongCoordinator without `former` for another's table, InvalidRequest if `former` is a different one.
    """
    owner = snapshot.configuration.get(COORDINATOR_KEY)
    if owner is not None and context.in_session(identity_of) == owner:
        return None  # also after an interrupted recovery
    if former is not None and former != owner:
        named = "no coordinator: leave it out" if owner is None else f"the coordinator {owner}"
        location = context.tree.location
        raise InvalidRequest(f"former is {former!r}, but {location} names {named}", location=location, former=former)
    if former is None:
        require_own_coordinator(context, snapshot)
    return owner


# -- one at a time -------------------------------------------------------------------------------------------------------


class RebuildingClaim:
    """The claim to rebuild a table's nodes: an ephemeral node, and a unique mark, which the multi checks that makes the nodes."""

    def __init__(self, context: TableContext, mark: str) -> None:
        self._context = context
        self._mark = mark

    def require(self) -> None:
        """Raise Unavailable if the claim is gone: another client may have rebuilt the nodes."""
        session = self._context.coordination
        session.barrier()
        if session.read(self._mark) is None:
            raise self._lost()

    def make_nodes(self, head: Head, also: Also = lambda _: ()) -> None:
        """Make the nodes, replacing those of a client that saw no log and only begins to create the table; `also` as in `make_tree`."""
        context = self._context

        def made(root: Mapping[str, Any]) -> Sequence[Op]:
            # it is here now: nobody lets it arrive again from another coordinator
            tickets = nodes_below(context.coordination, ARRIVING)
            mine = [node.path for node in tickets if node.data == context.tree.location.encode()]
            # check: a-recovered-table-does-not-arrive-again (map(Delete, mine) -> ())
            return [*also(root), *map(Delete, mine)]

        while True:
            try:
                # check: one-rebuilds-at-a-time (without , while_standing=[Check(self._mark, ANY_VERSION)])
                make_tree(context, head, while_standing=[Check(self._mark, ANY_VERSION)], also=made)
            except ApplyRefused as refused:  # the session had expired
                raise self._lost() from refused
            if not only_begun(context):
                return
            remove_new_tree(context)

    def _lost(self) -> Unavailable:
        location = self._context.tree.location
        return Unavailable(f"the claim to recover {location} is gone; repeat the recovery", location=location)


@contextmanager
def rebuilding_claim(context: TableContext) -> Iterator[RebuildingClaim]:
    """Hold the claim to rebuild this table's nodes. Raises InvalidRequest if another client does, Unavailable."""
    session = context.coordination
    path = f"{RECOVERING}/{context.tree.root.rpartition('/')[2]}"
    session.ensure_path(RECOVERING)
    identity = uuid.uuid4().hex
    claim = {"host": socket.gethostname(), "pid": os.getpid(), "since_ms": context.clock.now_ms(), "id": identity}
    mark = f"{path}.{identity}"
    _claim(session, path, orjson.dumps(claim), mark, context.tree.location)
    try:
        yield RebuildingClaim(context, mark)
    finally:
        for _ in range(_LETTING_GO_MAX):  # despite lost replies: nobody else can claim it while this process lives
            try:
                with suppress(ApplyRefused, SessionLost):  # the claim is gone
                    session.apply([Delete(path), Delete(mark)])
                break
            except (ReplyLost, CoordinatorUnavailable):
                context.clock.sleep(_PAUSE_S)


def _claim(session: CoordinationStore, path: str, body: bytes, mark: str, location: str) -> None:
    """Make both nodes. Raises InvalidRequest if another client has the claim, Unavailable if it could not be obtained."""
    trouble: Exception | None = None
    for _ in range(_CLAIMS_MAX):
        try:
            session.apply([Create(path, body, ephemeral=True), Create(mark, ephemeral=True)])
            return
        except (ReplyLost, ApplyRefused) as refused:  # if nobody has it, it was released just now
            trouble = refused
        session.barrier()
        node = session.read(path)
        if node is not None and node.data == body:  # our own, whose reply was lost
            return
        if node is not None:
            message = f"another client is recovering {location}: {node.data.decode()}; wait for them"
            raise InvalidRequest(message, location=location) from trouble
    raise Unavailable(f"{location} could not be claimed for recovery ({trouble}); try again", location=location) from trouble


# -- the version that former clients cannot publish any more -------------------------------------------------------------


def sealing_version(snapshot: Snapshot, metadata: Metadata, chain: tuple[str, str], by: Intent, engine: str = ENGINE) -> bytes:
    """The content of the version after `snapshot`: a commit that changes nothing except as `metadata` says, and goes on with the chain.

    `by` has its operation, id, time and client; the same arguments give the same bytes.
    """
    actions = b"" if metadata == snapshot.metadata else encode_all([metadata])
    intent = replace(
        by,
        read_version=snapshot.version,
        validated_through=snapshot.version,
        actions_digest=sha256(actions),
        metadata_change=describe(snapshot.metadata, metadata) if actions else None,
    )
    plan = VersionPlan(snapshot.version + 1, by.claimed_ms, (0,), previous=chain[0], files=chain[1])
    return b"".join(pieces(render(plan, [Member(intent, actions)], Rendering(by.claimed_ms, engine))))
