"""Administration of a coordinator: connected clients, known tables, leases; a table's queue, and the transactions refused there."""

from __future__ import annotations

from urllib.parse import unquote

from ...storage.dataclass import dataclass
from ...storage.errors import TableNotFound
from ..commit.queue import undecided
from ..errors import UnknownFormat
from ..fields import MalformedRecord
from ..leases.listing import break_lease, list_broken, list_leases
from ..nodes.context import TableContext, TableState
from ..nodes.layout import TABLES, TableTree, newest_first
from ..nodes.lease_records import Broken, Place
from ..nodes.presence import Client
from ..nodes.presence import list_clients as clients_of
from ..nodes.records import BatchRecord, read_intent
from ..publication.pruning import all_put_away
from ..rules.intent import ClientName, Intent
from ..rules.refusal import Refusal
from ..service.address import Address
from ..service.connect import connect, release, start_embedded
from ..service.store import CoordinationStore
from .table import CoordinatedTable

__all__ = [
    "Address",
    "Broken",
    "CoordinationStore",
    "Place",
    "Queued",
    "RefusedTransaction",
    "TableTree",
    "break_lease",
    "check_address",
    "connect",
    "known_locations",
    "list_broken",
    "list_clients",
    "list_leases",
    "list_queue",
    "list_refused",
    "place_of_table",
    "release",
    "start_embedded",
]


def known_locations(coordinator: str | None) -> list[str]:
    """The locations of the tables that a coordinator knows, in order; may include a name that is not a table's."""
    return sorted(unquote(name) for name in connect(coordinator).children(TABLES) or ())


def list_clients(coordinator: str | None) -> list[Client]:
    """The connected clients, oldest first."""
    return clients_of(connect(coordinator))


@dataclass(frozen=True, slots=True)
class Queued:
    """An undecided transaction in its `slot` of the queue; `operation` is "" if this release cannot read its intent.

    `claimed_ms` is the time of its slot by its owner's clock, `tables` are the locations of a transaction over several.
    """

    slot: int
    transaction_id: str
    operation: str = ""
    client: ClientName = ClientName()
    claimed_ms: int | None = None
    read_version: int | None = None
    isolation: str = ""
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedTransaction:
    """A transaction that was refused when its turn came, at about the time `decided_ms`."""

    transaction_id: str
    refusal: Refusal
    decided_ms: int


def list_queue(table: CoordinatedTable) -> list[Queued]:
    """The undecided transactions, in the order in which they will be decided. Decides nothing."""
    context = table.context
    state = _state(context)
    names = undecided(state.slots, state.head)
    nodes = context.coordination.read_many([context.tree.slot(state.head.generation, name) for name in names])
    found: list[Queued] = []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue  # decided since the look
        try:
            found.append(_queued(name.sequence, read_intent(node.data, state.head)))
        except (MalformedRecord, UnknownFormat):
            found.append(Queued(name.sequence, name.transaction_id))
    return found


def _queued(slot: int, intent: Intent) -> Queued:
    tables = () if intent.joint is None else tuple(each.location for each in intent.joint.tables)
    return Queued(
        slot, intent.transaction_id, intent.operation, intent.client, intent.claimed_ms, intent.read_version, intent.isolation, tables
    )


def list_refused(table: CoordinatedTable) -> list[RefusedTransaction]:
    """The refusals on record, newest first: those of the last days that were decided in the queue."""
    context = table.context
    state = _state(context)
    nodes = context.coordination.read_many([context.tree.verdict(name) for name in newest_first(state.records) if name.refusals])
    records = [BatchRecord.decode(node.data) for node in nodes if node is not None]
    found = {
        verdict.transaction_id: RefusedTransaction(verdict.transaction_id, verdict.refusal, record.rendering.ratified_ms)
        for record in (*all_put_away(context), *records)
        for verdict in record.verdicts
        if verdict.refusal is not None
    }
    return sorted(found.values(), key=lambda each: each.decided_ms, reverse=True)


def _state(context: TableContext) -> TableState:
    context.barrier()
    state = context.look()
    if state is None:
        raise context.vanished()
    return state


def check_address(coordinator: str | None) -> None:
    """Raise InvalidRequest or UnknownScheme for what is no coordinator's address."""
    Address.parse(coordinator)


def place_of_table(session: CoordinationStore, location: str) -> Place:
    """The place of the leases on a table. Raises TableNotFound for a table that the coordinator does not keep."""
    tree = TableTree(location)
    if session.read(tree.root) is None:
        raise TableNotFound(
            f"the coordinator keeps no table at {location}: check the location and the coordinator's address", location=location
        )
    return Place.of_table(tree)
