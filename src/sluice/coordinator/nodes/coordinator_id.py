"""Which coordinator a table belongs to: a random id in the coordinator's tree, named in the properties of its tables.

Addresses are not enough: two programs may use one address for different coordinators, or two addresses for one. The first
client that brings in a table makes the id, and it is lost with the coordinator's data: a coordinator rebuilt without them is
another one.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...storage.actions import Metadata
from ...storage.actions.features import is_managed
from ...storage.constants import ADDRESS_KEY, COORDINATOR_KEY
from ...storage.errors import InvalidRequest
from ...storage.log.snapshot import Snapshot
from ..errors import WrongCoordinator
from ..service.address import Address
from ..service.embedded.lifecycle import default_directory
from ..service.store import CoordinationStore, make_node
from .context import TableContext
from .layout import IDENTITY, TABLES

_ID_DIGITS: Final = 16


def identity_of(session: CoordinationStore) -> str | None:
    """The coordinator's id; None if it has coordinated no table yet."""
    node = session.read(IDENTITY)
    if node is None:  # or this session's server lags
        session.barrier()
        node = session.read(IDENTITY)
    return None if node is None else node.data.decode()


def _make_identity(session: CoordinationStore) -> str:
    """The coordinator's id, which is made if it does not exist."""
    while (identity := identity_of(session)) is None:
        # its parent does not exist at the first use of this coordinator
        make_node(lambda: session, IDENTITY, uuid.uuid4().hex[:_ID_DIGITS].encode(), lambda: session.ensure_path(TABLES))
    return identity


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
    identity = context.in_session(_make_identity)
    if metadata.configuration.get(COORDINATOR_KEY) == identity:
        return metadata
    named = {COORDINATOR_KEY: identity, ADDRESS_KEY: address_text(context.coordinator)}
    return replace(metadata, configuration={**metadata.configuration, **named})


def require_one_coordinator(tables: Sequence[TableContext]) -> None:
    """Raise InvalidRequest unless the tables are kept by one coordinator, below one chroot."""
    places = {each.tree.location: _place(each.coordinator) for each in tables}
    if len(set(places.values())) > 1:
        listed = ", ".join(f"{location} by {scheme}://{place}{chroot}" for location, (scheme, place, chroot) in sorted(places.items()))
        raise InvalidRequest(
            f"these tables are kept by different coordinators ({listed}): one commit needs one order, so put them under one coordinator "
            "and chroot, or commit to them one after the other",
            places=sorted(set(places.values())),
        )


def require_coordinator(table: TableContext, coordinator: str) -> None:
    """Raise InvalidRequest unless the table is kept by this coordinator, below this chroot."""
    if _place(table.coordinator) != _place(coordinator):
        location = table.tree.location
        raise InvalidRequest(
            f"{location} is kept by {Address.parse(table.coordinator)}, and the transaction was given "
            f"coordinator={coordinator!r}: leave it out, or give tables of that coordinator",
            location=location,
            coordinator=coordinator,
        )


def _place(coordinator: str | None) -> tuple[str, str, str]:
    """Identifies a tree of tables, ignoring options of the session."""
    address = Address.parse(coordinator)
    chroot = address.chroot if address.scheme == "zk" else ""
    return address.scheme, ",".join(sorted(address.place.split(","))), chroot


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
    here = "which has coordinated no table yet" if identity is None else f"which is {identity}"
    raise WrongCoordinator(
        f"{location} belongs to the coordinator {owner} (its address was {configuration.get(ADDRESS_KEY, 'not noted')}), and this client "
        f"uses {address_text(context.coordinator)}, {here}. Use the coordinator of the table's other writers. Only if its data were lost, "
        f"rebuild the table's nodes here: sluice.recover(..., former={owner!r}), or in a shell sluice recover --former {owner}",
        location=location,
        owner=owner,
        found=identity,
    )
