"""What the coordinator's nodes say of its tables: who waits, what is not published yet, who was refused, who holds leases.

Reads only. Ages are by the coordinator's clock, which stamps its nodes, so that a client with a wrong clock makes no wait longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final, TypeAlias

from ..coordinator import api
from ..coordinator.errors import UnknownFormat
from ..coordinator.limits import Limits
from ..coordinator.rules.intent import ClientName
from ..coordinator.rules.refusal import Refusal
from ..storage.dataclass import dataclass
from ..storage.errors import SluiceError
from ..storage.times import text_of
from .document import Consumer, HeldLease, Leases, LeaseWaiter, Publication, Queue, Refusals, Table, Transaction
from .memory import Decided, Memory, decided_in

_TABLES_AT_ONCE: Final = 100
_RECORDS_AT_ONCE: Final = 16
_HOLDING: Final = ("shared", "exclusive")
_UNREADABLE: Final = (api.MalformedRecord, UnknownFormat)
_Read: TypeAlias = Callable[[Sequence[api.VerdictName]], Iterator[Decided]]
"""Reads what a table's records say, in their order."""


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a coordinator at `now_ms` of its clock, back over `window_s` seconds; `clients` are connected, by their ids.

    `memory` is what earlier looks left to it.
    """

    session: api.CoordinationStore
    now_ms: int
    window_s: float
    clients: Mapping[str, api.Client]
    memory: Memory

    def since_s(self, then_ms: float) -> float:
        """How long ago a time of the coordinator's clock is."""
        return max(0.0, (self.now_ms - then_ms) / 1000)

    def records(self, tree: api.TableTree, head: api.Head) -> dict[api.VerdictName, Decided]:
        """What is remembered of a table's records."""
        return self.memory.records.setdefault((tree.location, head.table_id), {})


def begin_look(session: api.CoordinationStore, now_ms: int, window_s: float, memory: Memory) -> Look:
    """A look at the present clients. Raises the errors of the coordinator."""
    return Look(session, now_ms, window_s, {each.id: each for each in api.list_clients(session)}, memory)


def read_tables(look: Look, only: str | None = None) -> tuple[Table, ...]:
    """All tables of the coordinator that were not dropped, in the order of their locations; one that cannot be read says why.

    With the location `only` that table alone.
    """
    locations = api.known_locations(look.session) if only is None else [only]
    quiet = look.memory.begin(look.session, look.now_ms, locations)
    trees = [api.TableTree(location) for location in locations if location not in quiet]
    starts = range(0, len(trees), _TABLES_AT_ONCE)
    read = [table for start in starts for table in _read(look, trees[start : start + _TABLES_AT_ONCE])]
    look.memory.end(look.now_ms, read)
    return tuple(sorted((*quiet.values(), *read), key=lambda table: table.location))


def _read(look: Look, trees: Sequence[api.TableTree]) -> Iterator[Table]:
    """Some tables, read together: a quiet one takes no round trip of its own."""
    paths = [path for each in trees for path in (each.head, each.published, each.name, each.horizon, each.examined, each.root)]
    parents = [path for each in trees for path in (each.verdicts, api.Place.of_table(each).leases, each.consumers)]
    read, children = look.session.look(paths, parents)
    nodes, names = dict(zip(paths, read, strict=True)), {parent: each or () for parent, each in zip(parents, children, strict=True)}
    heads: dict[api.TableTree, api.Head] = {}
    for tree in trees:
        node = nodes[tree.head]
        if api.is_dropped(nodes[tree.root]):  # until Catalog.undrop brings it back
            continue
        if node is None or nodes[tree.published] is None:
            yield Table(location=tree.location, trouble="its nodes are incomplete: it is being created, or was dropped a moment ago")
            continue
        try:
            heads[tree] = api.Head.decode(node.data)
        except _UNREADABLE as unknown:
            yield _unreadable(tree, unknown)
    newest = [
        tree.verdict(name)
        for tree, head in heads.items()
        for name in api.newest_first(names[tree.verdicts])[:1]
        if name not in look.records(tree, head)
    ]
    parents = [tree.slots(head.generation) for tree, head in heads.items()]
    read, children = look.session.look(newest, parents)
    nodes |= zip(newest, read, strict=True)
    for (tree, head), slots in zip(heads.items(), children, strict=True):
        try:
            yield _judged(look, tree, head, nodes, names, slots or ())
        except _UNREADABLE as unknown:
            yield _unreadable(tree, unknown)


def _unreadable(tree: api.TableTree, unknown: SluiceError) -> Table:
    return Table(location=tree.location, trouble=f"this release of sluice cannot read its nodes: {unknown.message}")


def _judged(
    look: Look,
    tree: api.TableTree,
    head: api.Head,
    nodes: Mapping[str, api.Node | None],
    names: Mapping[str, Sequence[str]],
    slots: Sequence[str],
) -> Table:
    """A table, by its nodes and the names of their children. Raises MalformedRecord, UnknownFormat."""
    published, name, horizon, examined = nodes[tree.published], nodes[tree.name], nodes[tree.horizon], nodes[tree.examined]
    assert published is not None
    records, remembered, place = api.newest_first(names[tree.verdicts]), look.records(tree, head), api.Place.of_table(tree)
    if records and (newest := nodes.get(tree.verdict(records[0]))) is not None:
        remembered[records[0]] = decided_in(newest)
    for gone in remembered.keys() - set(records):
        del remembered[gone]
    read = partial(_newest, look, tree, remembered)
    committed, refused, covered_s = _recent(look, records, read)
    return Table(
        location=tree.location,
        name=None if name is None else ".".join(name.data.decode().split("/")[-2:]),
        version=head.version,
        detached=head.detached,
        ahead_s=max(0.0, (head.timestamp_ms - look.now_ms) / 1000),
        window_s=covered_s,
        committed=committed,
        refused=sum(each.count for each in refused),
        commits_per_s=round(committed / covered_s, 3) if covered_s else 0.0,
        refusals=refused,
        queue=_queue(look, tree, head, slots),
        publication=_publication(look, head, api.Published.decode(published.data), records, read),
        leases=_leases(look, place) if names[place.leases] else Leases(),
        consumers=_consumers(look, tree, head) if names[tree.consumers] else (),
        since_vacuum_s=None if horizon is None else look.since_s(horizon.changed_ms),
        since_examined_s=None if examined is None else look.since_s(examined.changed_ms),
        since_made_s=look.since_s(published.created_ms),
    )


def _queue(look: Look, tree: api.TableTree, head: api.Head, slots: Sequence[str]) -> Queue:
    waiting = api.undecided(slots, head)
    for name, node, intent in api.read_waiting(look.session, tree, head, waiting[:1]):
        oldest = Transaction(
            id=name.transaction_id,
            operation="" if intent is None else intent.operation,
            **asdict(ClientName() if intent is None else intent.client),
            waits_s=look.since_s(node.created_ms),
            clock_ahead_s=None if intent is None else (intent.claimed_ms - node.created_ms) / 1000,
        )
        return Queue(len(waiting), oldest)
    return Queue(len(waiting))


def _publication(look: Look, head: api.Head, published: api.Published, names: Sequence[api.VerdictName], read: _Read) -> Publication:
    reached = (published.generation, published.slot, published.version)
    pending = min((each for each in names if (each.generation, each.slot, each.version) > reached), default=None)
    for record in () if pending is None else read([pending]):
        owners = [api.owner_of(each) for each in record.transactions]
        clients = [each.name for each in owners if each is not None and each.is_client]
        connected = any(each in look.clients for each in clients) if clients else None
        return Publication(head.version - published.version, look.since_s(record.at_ms), connected)
    return Publication()


def _recent(look: Look, names: Sequence[api.VerdictName], read: _Read) -> tuple[int, tuple[Refusals, ...], float]:
    """How many transactions committed in the window, who was refused, and how many seconds of the window the records cover."""
    committed, covered_s = 0, look.window_s
    lost: list[tuple[int, str, Refusal]] = []
    oldest_ms = None
    for record in read(names):
        if look.since_s(record.at_ms) > look.window_s:
            break
        oldest_ms = record.at_ms
        committed += record.committed
        lost += [(record.at_ms, transaction_id, refusal) for transaction_id, refusal in record.lost]
    else:
        if oldest_ms is not None and len(names) >= Limits().verdicts_kept:  # earlier ones may be gone
            covered_s = look.since_s(oldest_ms)
    return committed, _counted(look, lost), covered_s


def _newest(
    look: Look, tree: api.TableTree, remembered: dict[api.VerdictName, Decided], names: Sequence[api.VerdictName]
) -> Iterator[Decided]:
    """What the verdict records say, the newest first; a few are read at a time, because most looks need few."""
    for n, name in enumerate(names):
        if name not in remembered:
            some = [each for each in names[n : n + _RECORDS_AT_ONCE] if each not in remembered]
            for each, node in zip(some, look.session.read_many([tree.verdict(each) for each in some]), strict=True):
                if node is not None:  # else it was pruned since
                    remembered[each] = decided_in(node)
        if name in remembered:
            yield remembered[name]


def _counted(look: Look, lost: Sequence[tuple[int, str, Refusal]]) -> tuple[Refusals, ...]:
    """Refusals that are alike as one, the most frequent first."""
    times: dict[tuple[str, str, str, str], list[int]] = {}
    for at_ms, transaction_id, refusal in lost:
        owner, winner = api.owner_of(transaction_id), refusal.facts.get("winner")
        client = None if owner is None else look.clients.get(owner.name)
        by = str(winner.get("application") or "") if isinstance(winner, Mapping) else ""
        key = (refusal.rule, "" if client is None else client.application, by, refusal.winning_operation)
        times.setdefault(key, []).append(at_ms)
    return tuple(
        Refusals(
            rule=rule,
            application=application,
            winner=winner,
            operation=operation,
            count=len(at),
            first=text_of(min(at)),
            last=text_of(max(at)),
        )
        for (rule, application, winner, operation), at in sorted(times.items(), key=lambda each: -len(each[1]))
    )


def _leases(look: Look, place: api.Place) -> Leases:
    entries = api.list_leases(look.session, place)
    held = [each for each in entries if each.held and each.mode in _HOLDING]
    waits = [(look.since_s(each.made_ms), each) for each in entries if not each.held and each.waits_for]
    longest_s, first = max(waits, default=(0.0, None), key=lambda each: each[0])
    waiter = None if first is None else LeaseWaiter(first.application, first.host, first.pid)
    oldest = None
    if held:
        each = held[0]
        oldest = HeldLease(
            lease=each.lease,
            mode=each.mode,
            where=each.where,
            application=each.application,
            host=each.host,
            pid=each.pid,
            held_s=look.since_s(each.made_ms),
        )
    return Leases(len(held), len(waits), longest_s, oldest, waiter)


def _consumers(look: Look, tree: api.TableTree, head: api.Head) -> tuple[Consumer, ...]:
    nodes = api.nodes_below(look.session, tree.consumers)
    records = [(api.ConsumerRecord.understood(node), look.since_s(node.changed_ms)) for node in nodes]
    records.sort(key=lambda each: each[0].name)
    return tuple(Consumer(each.name, max(0, head.version - each.version), idle_s) for each, idle_s in records)
