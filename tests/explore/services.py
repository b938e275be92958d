"""The two services as one value: the tree of the coordination service's twin, the objects, and what sessions have of them.

A request makes another value and leaves this one as it is, so that the search can go on from any of them as often as it likes.
What a request does to nodes is the twin's own code (`sluice.coordinator.service.tree`). Sessions, watches and faults are told here,
as values, by the same contract that `memory.py` keeps for threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sluice.coordinator.errors import SessionLost
from sluice.coordinator.service import tree as twin
from sluice.coordinator.service.store import ApplyRefused, Op, ReplyLost, parent_of
from sluice.coordinator.service.tree import Tree
from sluice.storage.errors import ObjectNotFound, StorageUnavailable

from .requests import Answer, Barrier, Change, Close, Look, ObjectCall, told

FAULTS_OF_CHANGES: Final = ("request-lost", "reply-lost", "expired-before", "expired-after")
FAULTS_OF_PUTS: Final = ("put-lost", "put-unanswered", "put-late")
_MASK: Final = (1 << 64) - 1
_YES: Final = Answer(True)

Watching = tuple[int, bool, str, int]
"""A watch: whose, whether it is on the children, the path, the event it sets."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """A tree with the sum of the hashes of all its nodes: equal trees have equal sums, however they came to be."""

    tree: Tree
    sum: int

    @staticmethod
    def of(tree: Tree) -> Nodes:
        """With the sum taken over everything."""
        return Nodes(tree, sum(_hash(tree, path) for path in tree._entries) & _MASK)

    def executed(self, ops: Sequence[Op], session: int, moment: int) -> tuple[Nodes, list[str | int | None], list[twin.Change]]:
        """The tree after these operations; `moment` names the zxid. Raises ApplyRefused."""
        touched = {path for op in ops for path in (op.path, parent_of(op.path))}
        tree = _branch(self.tree, touched, moment)
        results, changes = tree.execute(ops, session=session)
        touched |= {change.path for change in changes}
        before = sum(_hash(self.tree, path) for path in touched)
        after = sum(_hash(tree, path) for path in touched)
        return Nodes(tree, (self.sum - before + after) & _MASK), results, changes

    def without(self, session: int, moment: int) -> tuple[Nodes, list[twin.Change]]:
        """The tree after the end of a session."""
        paths = self.tree._ephemerals.get(session)
        if not paths:
            return self, []
        touched = {path for each in paths for path in (each, parent_of(each))}
        tree = _branch(self.tree, touched, moment)
        changes = tree.end_session(session)
        before = sum(_hash(self.tree, path) for path in touched)
        after = sum(_hash(tree, path) for path in touched)
        return Nodes(tree, (self.sum - before + after) & _MASK), changes

    def owned(self, session: int) -> bool:
        return bool(self.tree._ephemerals.get(session))

    def shown(self, look: Look) -> Any:
        tree = self.tree
        if look.verb == "read":
            return tree.node(look.paths[0], tree.zxid)
        if look.verb == "read_many":
            return tuple(tree.node(path, tree.zxid) for path in look.paths)
        names = tree.children(look.paths[0], tree.zxid)
        return None if names is None else tuple(names)


def _hash(tree: Tree, path: str) -> int:
    entry = tree._entries.get(path)
    if entry is None:
        return 0
    node = entry.node
    return hash((path, node.data, node.version + 1, node.created_zxid, node.owner_session, entry.counter))


def _branch(tree: Tree, touched: Iterable[str], moment: int) -> Tree:
    """A tree that goes its own way from here; only what is about to be touched is copied."""
    made = Tree()
    made.zxid = moment
    made._entries = dict(tree._entries)
    for path in touched:
        entry = tree._entries.get(path)
        if entry is not None:
            made._entries[path] = twin._Entry(entry.node, entry.counter, set(entry.children))
    made._ephemerals = {session: set(paths) for session, paths in tree._ephemerals.items() if paths}
    made._past = deque(maxlen=1)
    return made


@dataclass(slots=True)
class Done:
    """What a request came to: the services after it, the answer, and what was changed, for the judge."""

    services: Services
    answer: Answer
    changes: list[twin.Change] = field(default_factory=list)
    stored: tuple[str, str, bytes | None, bytes | None] | None = None
    """Table, key, content before and content after, None where there is none."""


class Services(NamedTuple):
    nodes: Nodes
    objects: dict[tuple[str, str], bytes]
    objects_sum: int
    watches: frozenset[Watching] = frozenset()
    set_events: frozenset[tuple[int, int]] = frozenset()
    over: frozenset[int] = frozenset()
    """Sessions that are over."""
    late: tuple[ObjectCall, ...] = ()
    """Writes that nobody waits for any more, and that will still take effect."""
    seen: tuple[tuple[int, Nodes], ...] | None = None
    """What each session saw last; None where no server is ever behind."""

    @staticmethod
    def of(tree: Tree, objects: dict[tuple[str, str], bytes], *, behind: bool) -> Services:
        """The services as some setup left them."""
        return Services(Nodes.of(tree), objects, sum(map(hash, objects.items())) & _MASK, seen=() if behind else None)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells this value from others."""
        seen = None if self.seen is None else tuple((session, nodes.sum) for session, nodes in self.seen)
        return (self.nodes.sum, self.objects_sum, self.watches, self.set_events, self.over, self.late, seen)

    # -- requests ----------------------------------------------------------------------------------------------------

    def look(self, client: int, look: Look, *, behind: bool = False) -> Done:
        """A read; `behind`: from a server that shows nothing newer than what the session saw last."""
        if look.session in self.over:
            return Done(self, told(_over(look.session)))
        nodes = self.nodes
        if behind:
            nodes = dict(self.seen or ())[look.session]
        after = self if behind else self._saw(look.session)
        if look.event is not None:
            fires = behind and nodes.shown(look) != self.nodes.shown(look)
            if fires:
                after = after._replace(set_events=after.set_events | {(client, look.event)})
            else:
                after = after._replace(watches=after.watches | {(client, look.verb == "children", look.paths[0], look.event)})
        return Done(after, Answer(nodes.shown(look)))

    def may_be_behind(self, look: Look) -> bool:
        """Whether there is something older that this read may show."""
        if self.seen is None or look.session in self.over:
            return False
        seen = dict(self.seen).get(look.session)
        return seen is not None and seen.sum != self.nodes.sum and seen.shown(look) != self.nodes.shown(look)

    def barrier(self, barrier: Barrier) -> Done:
        """A quorum operation."""
        if barrier.session in self.over:
            return Done(self, told(_over(barrier.session)))
        return Done(self._saw(barrier.session), _YES)

    def change(self, client: int, change: Change, moment: int, fault: str = "") -> Done:
        """A request that may change nodes, with what goes wrong with it."""
        if change.session in self.over:
            return Done(self, told(_over(change.session)))
        done = Done(self, _YES)
        if fault not in ("request-lost", "expired-before"):
            done = self._executed(change, moment)
        if not fault:
            return done
        path = change.ops[0].path
        lost = ReplyLost(f"the reply to {change.verb} {path} was lost: it may have taken effect", path=path)
        services = done.services
        if fault.startswith("expired"):
            lost = ReplyLost(f"{lost}; the session expired", path=path, expired=True)
            ended = services.ended(change.session, moment + 1)
            services, done.changes = ended.services, [*done.changes, *ended.changes]
        return Done(services.with_all_events_set(client), told(lost), done.changes)

    def _executed(self, change: Change, moment: int) -> Done:
        try:
            nodes, results, changes = self.nodes.executed(change.ops, change.session, moment)
        except ApplyRefused as refused:
            return Done(self._saw(change.session), told(refused))
        return Done(self._with(nodes, changes)._saw(change.session), Answer(tuple(results)), changes)

    def close(self, client: int, close: Close, moment: int) -> Done:
        done = self.ended(close.session, moment)
        return Done(done.services.with_all_events_set(client), _YES, done.changes)

    def ended(self, session: int, moment: int) -> Done:
        """The end of a session: its ephemeral nodes go."""
        if session in self.over:
            return Done(self, _YES)
        nodes, changes = self.nodes.without(session, moment)
        return Done(self._with(nodes, changes)._replace(over=self.over | {session}), _YES, changes)

    def call(self, call: ObjectCall, fault: str = "") -> Done:
        """A call of the object store, with what goes wrong with it."""
        if fault == "put-late":
            after = self._replace(late=tuple(sorted((*self.late, call), key=repr)))
            return Done(after, told(StorageUnavailable(f"no answer to {call.verb} {call.key}, which is still on its way")))
        if fault == "put-lost":
            return Done(self, told(StorageUnavailable(f"{call.verb} {call.key} was not done")))
        done = self._stored(call) if call.writes else Done(self, self._found(call))
        if fault == "put-unanswered":
            done.answer = told(StorageUnavailable(f"the reply to {call.verb} {call.key} was lost"))
        return done

    def landed(self, number: int) -> Done:
        rest = self.late[:number] + self.late[number + 1 :]
        return self._replace(late=rest)._stored(self.late[number])

    def _found(self, call: ObjectCall) -> Answer:
        if call.verb == "list":
            return Answer(tuple(self._listed(call)))
        content = self.objects.get((call.table, call.key))
        if content is None:
            return Answer(None) if call.recursive else told(ObjectNotFound(f"there is no object {call.key}", key=call.key))
        return Answer(content if call.verb == "get" else len(content))

    def _listed(self, call: ObjectCall) -> list[tuple[str, int]]:
        inside = [(key, len(content)) for (table, key), content in self.objects.items() if table == call.table and key.startswith(call.key)]
        return sorted(each for each in inside if each[0] >= call.start and (call.recursive or "/" not in each[0][len(call.key) :]))

    def _stored(self, call: ObjectCall) -> Done:
        place = (call.table, call.key)
        before = self.objects.get(place)
        if call.verb == "put_if_absent" and before is not None:
            return Done(self, Answer(False))
        after = None if call.verb == "delete" else call.data
        objects = dict(self.objects)
        total = self.objects_sum - (0 if before is None else hash((place, before)))
        objects.pop(place, None)
        if after is not None:
            objects[place] = after
            total += hash((place, after))
        changed = self._replace(objects=objects, objects_sum=total & _MASK)
        return Done(changed, _YES, stored=(*place, before, after))

    # -- watches and events ------------------------------------------------------------------------------------------

    def marked(self, client: int, marks: Sequence[tuple[int, bool]]) -> Services:
        """With the events that a client set and reset by itself."""
        events = set(self.set_events)
        for event, is_set in marks:
            events.add((client, event)) if is_set else events.discard((client, event))
        return self._replace(set_events=frozenset(events))

    def without_client(self, client: int) -> Services:
        """Without what only a client that waits would notice."""
        watches = frozenset(each for each in self.watches if each[0] != client)
        return self._replace(watches=watches, set_events=frozenset(each for each in self.set_events if each[0] != client))

    def with_all_events_set(self, client: int) -> Services:
        """The connection changed its state: every watch of the client fires."""
        fired = {(client, event) for who, _, _, event in self.watches if who == client}
        watches = frozenset(each for each in self.watches if each[0] != client)
        return self._replace(watches=watches, set_events=self.set_events | fired)

    def _with(self, nodes: Nodes, changes: Sequence[twin.Change]) -> Services:
        if not self.watches:
            return self._replace(nodes=nodes)
        triggered = {each for change in changes for each in change.triggered}
        fired = {each for each in self.watches if ("children" if each[1] else "read", each[2]) in triggered}
        events = self.set_events | {(client, event) for client, _, _, event in fired}
        return self._replace(nodes=nodes, watches=self.watches - fired, set_events=events)

    def _saw(self, session: int) -> Services:
        if self.seen is None:
            return self
        seen = dict(self.seen)
        if seen.get(session) is self.nodes:
            return self
        seen[session] = self.nodes
        return self._replace(seen=tuple(sorted(seen.items(), key=lambda each: each[0])))


def _over(session: int) -> SessionLost:
    return SessionLost(f"session {session} has expired", session_id=session)
