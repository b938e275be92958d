"""Which coordinator a table belongs to: a random id in the coordinator's tree, named in the properties of its tables.

Addresses are not enough: two programs may use one address for different coordinators, or two addresses for one. The first
client that brings in a table makes the id, and it is lost with the coordinator's data: a coordinator rebuilt without them is
another one.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...storage.constants import ADDRESS_KEY, COORDINATOR_KEY
from ..errors import WrongCoordinator
from ..service.address import Address
from ..service.embedded.lifecycle import default_directory
from ..service.store import CoordinationStore, NodeExists, NoNode, ReplyLost
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
    while True:
        known = identity_of(session)
        if known is not None:
            return known
        try:
            session.create(IDENTITY, uuid.uuid4().hex[:_ID_DIGITS].encode())
        except (NodeExists, ReplyLost):
            continue
        except NoNode:  # the first use of this coordinator
            session.ensure_path(TABLES)


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


def stamp(session: CoordinationStore, coordinator: str | None, configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties of a table that this coordinator takes on, naming it. Unchanged if they name it already."""
    identity = _make_identity(session)
    if configuration.get(COORDINATOR_KEY) == identity:
        return dict(configuration)
    return {**configuration, COORDINATOR_KEY: identity, ADDRESS_KEY: address_text(coordinator)}


def require_own(session: CoordinationStore, coordinator: str | None, configuration: Mapping[str, str], location: str) -> None:
    """Raise WrongCoordinator if the table's properties name another coordinator; they may name none."""
    owner = configuration.get(COORDINATOR_KEY)
    if owner is None:
        return
    found = identity_of(session)
    # check: a-table-has-one-coordinator (always)
    if found == owner:
        return
    here = "which has coordinated no table yet" if found is None else f"which is {found}"
    raise WrongCoordinator(
        f"{location} belongs to the coordinator {owner} (its address was {configuration.get(ADDRESS_KEY, 'not noted')}), and this client "
        f"uses {address_text(coordinator)}, {here}. Use the coordinator of the table's other writers. Only if its data were lost, "
        f"rebuild the table's nodes here: sluice.recover(..., former={owner!r}), or in a shell sluice recover --former {owner}",
        location=location,
        owner=owner,
        found=found,
    )
