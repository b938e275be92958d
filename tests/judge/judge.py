"""What must be true of a run at every step, and at its end: judged from the raw nodes and objects alone.

Shares no code with what it judges. It remembers as little of the past as the promises speak of (`Memory`): what was ratified,
what was filed, what callers were told. In a small world that memory is part of a state, so that two ways into one state are only
taken for one when the judge could not tell them apart either.

The coordinator may lose its data: its nodes are gone then, and nobody changed them. Who rebuilds the nodes of a table writes a
version of its own first. What was ratified under that number or a later one is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ..raw_chain import misfits
from .memory import Memory, NodeChange, Ratified, Stored, View, commit_key, digest, logged, named, parsed, version_of

__all__ = ["Judge"]

_COMMITTED = ("committed", "published")
_NOT_COMMITTED = ("refused", "failed", "nothing", "error")
_RECOVERY = ("RECOVER",)
_NOWHERE: Mapping[str, int] = {"version": -1, "generation": 0, "slot": -1}


@dataclass(frozen=True, slots=True)
class _Request:
    """What one request did to a table's nodes; `mine` has what each held before and after, by its path below the table's."""

    root: str
    table: str
    before: View
    after: View
    mine: Mapping[str, tuple[bytes | None, bytes | None]]

    def moved(self) -> Mapping[str, Any] | None:
        """The record of the move by which the table leaves for another coordinator in this request, if it does."""
        tombstone = f"/dropped/{self.root.rpartition('/')[2]}"
        before, after = (parsed(view.data(tombstone) or b"{}").get("moved") for view in (self.before, self.after))
        return after if after != before else None

    def both(self, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """A node's record before and after, {} where there is none."""
        old, new = self.mine[name]
        return parsed(old or b"{}"), parsed(new or b"{}")

    def slots(self, *, made: bool) -> Iterator[tuple[int, int, str, bytes]]:
        """Generation, slot, transaction and intent of every slot that was made, or removed."""
        for path, (old, new) in self.mine.items():
            data = new if made else old
            if path.startswith("slots/") and path.count("/") == 2 and data is not None and (old is None or new is None):
                _, generation, name = path.split("/")
                yield int(generation), *_slot_of(name), data


@dataclass(slots=True)
class _Together:
    """Where one request filed or committed each transaction, and where its intents say that it has to."""

    what: str
    done: dict[str, set[str]] = field(default_factory=dict)
    demanded: dict[str, set[frozenset[str]]] = field(default_factory=dict)

    def add(self, table: str, transaction: str, intent: Mapping[str, Any]) -> None:
        """In this table, by this intent."""
        joint = intent.get("joint") or {"tables": [table]}
        self.done.setdefault(transaction, set()).add(table)
        self.demanded.setdefault(transaction, set()).add(frozenset(joint["tables"]))

    def halves(self) -> Iterator[str]:
        """I11: a request does it in all of a transaction's tables, or in none; the intents name the same tables."""
        for transaction, done in self.done.items():
            if self.demanded[transaction] != {frozenset(done)}:
                wanted = " and ".join(str(sorted(each)) for each in self.demanded[transaction])
                yield f"I11: {transaction} was {self.what} in {sorted(done)}, and its intents name {wanted}"


@dataclass
class Judge:
    """The judge of one run. `files` says whether data files are real objects, and none of them is ever replaced."""

    tables: Sequence[str]
    files: bool = False
    pruned: bool = False
    """Whether refusals may be forgotten."""
    cleaned: bool = False
    """Whether what nobody needs any more is deleted, also from the log; this judge does not say what may be."""
    chained: bool = True
    """Whether the versions are a chain, as those are that sluice writes."""

    def __post_init__(self) -> None:
        self._roots = {f"/tables/{quote(table, safe='')}": table for table in self.tables}

    def beginning(self, view: View) -> Memory:
        """What is known of a run as it begins: everything that exists is published."""
        versions = []
        for root, table in self._roots.items():
            last = parsed(view.data(f"{root}/head") or b"{}").get("version", -1)
            contents = [view.content(table, commit_key(version)) or b"" for version in range(last + 1)]
            versions.append((table, tuple(Ratified(digest(content), logged(content).ids) for content in contents)))
        return Memory(tuple(versions)).sealed()

    # -- requests that change nodes ----------------------------------------------------------------------------------

    def changed(self, memory: Memory, before: View, after: View, changes: Sequence[NodeChange]) -> tuple[Memory, list[str]]:
        """One request changed nodes, all at once."""
        found: list[str] = []
        filed, committed = _Together("filed"), _Together("committed")
        known = memory
        for root, mine in self._by_table(changes).items():
            table = self._roots[root]
            request, wrong = _Request(root, table, before, after, mine), list[str]()
            memory = self._filed(memory, request, filed)
            memory = self._decided(memory, request, wrong, committed)
            wrong += self._published(request)
            wrong += self._slots_gone(request)
            found += [f"{each} (in {table})" for each in wrong]
        found += [*filed.halves(), *committed.halves()]
        return memory if memory is known else memory.sealed(), found

    def _by_table(self, changes: Sequence[NodeChange]) -> dict[str, dict[str, tuple[bytes | None, bytes | None]]]:
        """The changes below each table's node; several of one node are one."""
        found: dict[str, dict[str, tuple[bytes | None, bytes | None]]] = {}
        for path, old, new in changes:
            parts = path.split("/", 3)
            root = "/".join(parts[:3])
            if len(parts) == 4 and root in self._roots:
                mine = found.setdefault(root, {})
                mine[parts[3]] = mine[parts[3]][0] if parts[3] in mine else old, new
        return found

    @staticmethod
    def _filed(memory: Memory, request: _Request, filed: _Together) -> Memory:
        new = frozenset((request.table, transaction) for _, _, transaction, _ in request.slots(made=True))
        for _, _, transaction, data in request.slots(made=True):
            filed.add(request.table, transaction, parsed(data))
        return memory._replace(filed=memory.filed | new) if new else memory

    def _decided(self, memory: Memory, request: _Request, wrong: list[str], committed: _Together) -> Memory:
        made = [(old, new) for path, (old, new) in request.mine.items() if path.startswith("verdicts/")]
        records = [parsed(new) for old, new in made if old is None and new is not None]
        if "head" not in request.mine:
            if records:
                wrong.append("I1: a verdict was recorded and the head did not move")
            return memory
        old, new = request.both("head")
        known = memory.of(request.table)
        if old and not new and (move := request.moved()):
            wrong += self._left(request, old, move)
            return memory.with_versions(request.table, (*known, Ratified(move["head"]["digest"], (move["transaction_id"],))))
        if not old or not new:
            wrong += self._made_or_removed(old, new, len(known) - 1)
            return memory
        if new["version"] < old["version"] or _at(new) < _at(old):
            wrong.append(f"I1: the head went from {old} back to {new}")
        if not records and old["detached"] and (new["version"], *_at(new)) == (old["version"], *_at(old)):
            return memory  # the table is brought in again: the commit that follows says so
        if not records and new["generation"] == old["generation"] + 1:
            wrong += self._generation_opened(request, old, new)
            return memory
        if len(records) != 1:
            wrong.append(f"I1: the head moved from {_at(old)} to {_at(new)} with {len(records)} records")
            return memory
        record = records[0]
        numbers = [version["version"] for version in record["versions"]]
        if old["version"] != len(known) - 1 or numbers != list(range(len(known), new["version"] + 1)):
            wrong.append(f"I1, I2: versions {numbers} were ratified after {len(known) - 1}; the head went from {old} to {new}")
        wrong += self._in_order(request, old, new, record)
        memory, ids = self._verdicts(memory, request, record, wrong, committed)
        ratified = tuple(Ratified(version["digest"], tuple(ids[version["version"]])) for version in record["versions"])
        return memory.with_versions(request.table, known + ratified)

    @staticmethod
    def _generation_opened(request: _Request, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
        """I3: the next generation opens where all is decided and published, and no slot is left in the one before."""
        if (new["version"], new["slot"]) != (old["version"], -1):
            yield f"I3: a generation was opened, and the head went from {old} to {new}"
        yield from _unsettled(request, old, "a generation was opened")

    @staticmethod
    def _left(request: _Request, old: Mapping[str, Any], move: Mapping[str, Any]) -> Iterator[str]:
        """I3: a table leaves for another coordinator where all is decided and published, under a lease on all of it."""
        if move["head"]["version"] != old["version"] + 1 or _at(move["head"]) != (old["generation"] + 1, -1):
            yield f"I3: a table left with the head {old}, and is to go on with {move['head']}"
        yield from _unsettled(request, old, "a table left")
        leases = [parsed(request.before.data(path) or b"{}") for path in _granted(request.before, f"{request.root}/leases")]
        if not any(lease.get("mode") == "exclusive" and not lease["where"] for lease in leases):
            yield f"I9: a table left without a lease on all of it: {leases}"

    @staticmethod
    def _made_or_removed(old: Mapping[str, Any], new: Mapping[str, Any], last: int) -> Iterator[str]:
        """I1: nodes are made for a new table, or where a rebuilt one ends; only those in which nothing was ratified are removed."""
        if new and new["version"] not in (-1, last):
            yield f"I1: nodes were made with the head {new}, and the last version is {last}"
        if old and old["version"] >= 0:
            yield f"I1: nodes with the head {old} were removed"

    def _verdicts(
        self, memory: Memory, request: _Request, record: Mapping[str, Any], wrong: list[str], committed: _Together
    ) -> tuple[Memory, dict[int, list[str]]]:
        """The verdicts of a batch, one by one; returns the transactions of each version, too."""
        table, intents = request.table, self._intents(request, record)
        ids: dict[int, list[str]] = {version["version"]: [] for version in record["versions"]}
        reached = -1
        for verdict in record["verdicts"]:
            transaction, version = verdict["transaction_id"], verdict["version"]
            if verdict["refusal"] is not None or verdict["repeats"]:
                continue
            intent = intents.get(transaction, {})
            committed.add(table, transaction, intent)
            wrong += self._leases(request, intent)
            memory = self._names(memory, request, intent, wrong)
            if verdict["ordinal"] < 0:
                continue  # it only read this table
            if memory.place(table, transaction) is not None or any(transaction in each for each in ids.values()):
                wrong.append(f"I1: {transaction} was committed twice")
            if version not in ids:
                wrong.append(f"I1: {transaction} was committed as version {version}, which was not ratified with it")
                continue
            if version < reached or verdict["ordinal"] != len(ids[version]):
                wrong.append(f"I3: {transaction} of slot {verdict['slot']} became {version}, {verdict['ordinal']}, out of order")
            reached = version
            ids[version].append(transaction)
        if record.get("direct"):
            memory = memory._replace(filed=memory.filed | {(table, verdict["transaction_id"]) for verdict in record["verdicts"]})
        return memory, ids

    @staticmethod
    def _in_order(request: _Request, old: Mapping[str, Any], new: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
        """I3: every slot that exists is decided, once, before any that comes later."""
        slots = [verdict["slot"] for verdict in record["verdicts"]]
        if slots == [-1] and record.get("direct"):
            return
        if record["generation"] != old["generation"] or slots != sorted(set(slots)) or slots[0] <= old["slot"]:
            yield f"I3: slots {slots} of generation {record['generation']} were decided after {_at(old)}"
        there = [_slot_of(name)[0] for name in request.before.names(f"{request.root}/slots/{old['generation']}")]
        passed = [slot for slot in there if old["slot"] < slot <= slots[-1] and slot not in slots]
        if passed:
            yield f"I3: slots {passed} were passed over"
        if _at(new) != (old["generation"], slots[-1]):
            yield f"I3: the head says slot {new['slot']}, and {slots[-1]} was decided last"

    @staticmethod
    def _intents(request: _Request, record: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if record.get("direct"):
            intent = parsed(record["direct"].encode())
            return {intent["transaction_id"]: intent}
        for verdict in record["verdicts"]:
            name = f"i-{verdict['transaction_id']}-{verdict['slot']:010d}"
            data = request.before.data(f"{request.root}/slots/{record['generation']}/{name}")
            if data is not None:
                found[verdict["transaction_id"]] = parsed(data)
        return found

    @staticmethod
    def _leases(request: _Request, intent: Mapping[str, Any]) -> Iterator[str]:
        """I9: the leases that a commit depends on are granted when it is ratified; nobody else's lease is in its way.

        Of a lease with a condition it is not judged whether that covers the commit.
        """
        before, who, own = request.before, intent.get("transaction_id"), intent.get("leases", ())
        for path in own:
            if before.data(path) is None:
                yield f"I9: {who} was ratified and its lease {path} was gone"
            elif path not in _granted(before, path.rpartition("/")[0]):
                yield f"I9: {who} was ratified and its lease {path} had not been granted"
        shares = any(path.startswith(f"{request.root}/") for path in own)
        for path in _granted(before, f"{request.root}/leases"):
            data = before.data(path)
            if data is None or path in own:
                continue
            held = parsed(data)
            stops = {"exclusive": True, "shared": not shares, "turn": not _is_plain_append(intent)}
            if stops.get(held["mode"], False) and not held["where"]:
                yield f"I9: {who} was ratified while another client held {path} ({held['mode']})"

    def _names(self, memory: Memory, request: _Request, intent: Mapping[str, Any], wrong: list[str]) -> Memory:
        if not self.files:
            return memory
        table, keys = request.table, named(intent.get("actions", ""))
        gone = [key for key in keys if request.before.content(table, key) is None]
        wrong += [f"I7: {intent['transaction_id']} names {key}, which is gone" for key in gone]
        return memory._replace(named=memory.named | {(table, key) for key in keys})

    @staticmethod
    def _published(request: _Request) -> Iterator[str]:
        if "published" not in request.mine:
            return
        old, new = request.both("published")
        head = parsed(request.after.data(f"{request.root}/head") or b"{}")
        if not new or not head:
            if head or new:
                yield f"I6: `published` is {new}, and the head {head}"
            return
        old = old or _NOWHERE
        if new["version"] < old["version"] or _at(new) < _at(old):
            yield f"I6: `published` went from {old} back to {new}"
        if new["version"] > head["version"] or _at(new) > _at(head):
            yield f"I6: `published` says {new}, the head {head}"
        for version in range(old["version"] + 1, new["version"] + 1):
            if request.before.content(request.table, commit_key(version)) is None:
                yield f"I6: `published` says {new['version']}, and there is no file of version {version}"

    @staticmethod
    def _slots_gone(request: _Request) -> Iterator[str]:
        """I10: a slot is removed when it is decided and published."""
        removed = list(request.slots(made=False))
        if not removed or request.after.data(f"{request.root}/head") is None:
            return
        head, published = (
            parsed(view.data(f"{request.root}/{name}") or b"{}") for view, name in ((request.before, "head"), (request.after, "published"))
        )
        for generation, slot, transaction, _ in removed:
            at, name = (generation, slot), f"slot {slot} of generation {generation} ({transaction})"
            if at > _at(head):
                yield f"I10: {name} was removed and not decided"
            elif _at(published) < at:
                yield f"I10: {name} was removed before it was published"

    # -- objects -----------------------------------------------------------------------------------------------------

    def stored(self, memory: Memory, view: View, stored: Stored) -> tuple[Memory, list[str]]:
        """One request changed an object; `view` is what was before."""
        table, key, before, after = stored
        if after is None:
            needed = not self.cleaned and ((table, key) in memory.named or key.startswith("_delta_log/0"))
            return memory, [f"I7: {key} was deleted, and a version names it (in {table})"] if needed else []
        version = version_of(key)
        if version is None:
            return memory, []
        wrong: list[str] = []
        if before is None and logged(after).operations == _RECOVERY and self._is_lost(memory, view, table):
            memory = self._recovered(memory, table, version, after, wrong)
        wrong += self._put(memory.of(table), view, table, version, before, after)
        if self.chained:
            former = view.content(table, commit_key(version - 1))
            files = 0 if former is None else int(logged(former).info["sluice"].get("chain", {"files": "0"})["files"], 16)
            wrong += misfits(version, logged(after).info, former, files + logged(after).change)
        return memory, [f"{each} (in {table})" for each in wrong]

    @staticmethod
    def _put(known: Sequence[Ratified], view: View, table: str, version: int, before: bytes | None, after: bytes) -> Iterator[str]:
        """Whether a version's file holds what was ratified, and comes after the version before it."""
        if version >= len(known):
            yield f"I1: version {version} was published before it was ratified"
            return
        if before is not None and before != after:
            yield f"I5: the published version {version} was changed"
        content = logged(after)
        if digest(after) != known[version].digest or content.ids != known[version].ids:
            yield f"I5: version {version} was published with {content.ids} in it, which is not what was ratified: {known[version]}"
        if version == 0:
            return
        former = view.content(table, commit_key(version - 1))
        if former is None:
            yield f"I6: version {version} was published before version {version - 1}"
        elif logged(former).timestamp_ms >= content.timestamp_ms:
            yield f"order: version {version} has the time {content.timestamp_ms}, the one before it {logged(former).timestamp_ms}"

    def _is_lost(self, memory: Memory, view: View, table: str) -> bool:
        """Whether the nodes in which a table's versions were ratified are gone; a client may have begun to make new ones."""
        root = next(root for root, name in self._roots.items() if name == table)
        head = parsed(view.data(f"{root}/head") or b"{}")
        return not head or head["version"] < min(0, len(memory.of(table)) - 1)

    @staticmethod
    def _recovered(memory: Memory, table: str, version: int, content: bytes, wrong: list[str]) -> Memory:
        """The version that who rebuilds a table's nodes writes: from it on, what was ratified is lost, which nobody saw published."""
        known = memory.of(table)
        wrong += [
            f"I12: {what[2]} was reported as published at {what[3]}, {what[4]}, and is lost"
            for what in sorted(memory.told, key=repr)
            if what[0] == "published" and what[1] == table and what[3] >= version
        ]
        lost = {
            (table, number, ordinal, transaction)
            for number, each in enumerate(known[version:], version)
            for ordinal, transaction in enumerate(each.ids)
        }
        own = Ratified(digest(content), logged(content).ids)
        return memory.with_versions(table, (*known[:version], own))._replace(lost=memory.lost | lost).sealed()

    # -- answers -----------------------------------------------------------------------------------------------------

    def told(self, memory: Memory, what: tuple[Any, ...]) -> tuple[Memory, list[str]]:
        """A caller was told something: a word, and what belongs to it.

        "committed" (or "published"), table, transaction, version, ordinal, and whether it repeats a commit of another id; a word for
        "not committed", table, transaction, reason; "unknown"; "asked", table, transaction, outcome. Other words are remembered.
        """
        found: list[str] = []
        if what[0] in _COMMITTED:
            found += self._holds(memory, what)
        elif what[0] in _NOT_COMMITTED:
            found += self._is_not_there(memory, what)
        return memory._replace(told=memory.told | {what}).sealed(), found

    @staticmethod
    def _holds(memory: Memory, what: tuple[Any, ...]) -> Iterator[str]:
        """I12: a transaction that is reported as committed is where it is said to be, unless that was lost and not published."""
        kind, table, transaction, version, ordinal, repeats = what
        place = memory.place(table, transaction)
        if place == (version, ordinal) or (repeats and place is None and version < len(memory.of(table))):
            return
        if kind == "published" or not memory.was_lost(table, (version, ordinal), None if repeats else transaction):
            yield f"I12: {transaction} was reported as {kind} at {version}, {ordinal}, and is at {place} (in {table})"

    @staticmethod
    def _is_not_there(memory: Memory, what: tuple[Any, ...]) -> Iterator[str]:
        """I12: a transaction that is reported as not committed is nowhere."""
        kind, table, transaction, reason = what
        place = memory.place(table, transaction)
        if place is not None:
            yield f"I12: {transaction} was reported as {kind} ({reason}), and is at {place} (in {table})"

    # -- the end -----------------------------------------------------------------------------------------------------

    def ended(self, memory: Memory, view: View, tables: Sequence[str] | None = None) -> Iterator[str]:
        """All is over: what is ratified is in the log, what was reported is still true. `view` shows these tables (None: all)."""
        for root, table in self._roots.items():
            if tables is not None and table not in tables:
                continue
            head, published = (parsed(view.data(f"{root}/{name}") or b"{}") for name in ("head", "published"))
            if not head or not published or (head["version"], *_at(head)) != (published["version"], *_at(published)):
                yield f"liveness: in the end the head of {table} is {head}, and `published` {published}"
            elif left := view.names(f"{root}/slots/{head['generation']}"):
                yield f"liveness: in the end the slots {left} of generation {head['generation']} are left in {table}"
            yield from self._log(memory.of(table), view, table)
        for what in sorted(memory.told, key=repr):
            if what[0] in _NOT_COMMITTED:
                yield from self._is_not_there(memory, what)

    def answered(self, memory: Memory, view: View, *, faultless: bool) -> Iterator[str]:
        """I10: somebody asked in the end for the outcome of all that was filed, and everybody was told the same."""
        for root in self._roots:
            for generation in view.names(f"{root}/slots"):
                if left := view.names(f"{root}/slots/{generation}"):
                    yield f"liveness: in the end the slots {left} of generation {generation} are left"
        for what in sorted(memory.told, key=repr):
            if faultless and what[0] in ("failed", "unknown"):
                yield f"liveness: {what}, and nothing went wrong"
            if what[0] == "asked":
                yield from self._outcome(memory, *what[1:])
        asked = {(what[1], what[2]) for what in memory.told if what[0] in ("asked", "refused", *_COMMITTED)}
        yield from (f"I10: nobody knows what became of {missing}" for missing in sorted(memory.filed - asked))

    def _outcome(self, memory: Memory, table: str, transaction: str, state: str) -> Iterator[str]:
        place = memory.place(table, transaction)
        if state != "repeated" and (state == "committed") != (place is not None):
            yield f"I10: the outcome of {transaction} is {state}, and its place {place}"
        if state == "unknown" and not self.pruned and (table, transaction) in memory.filed:
            yield f"I10: nobody knows what became of {transaction}, which was filed"

    @staticmethod
    def _log(known: Sequence[Ratified], view: View, table: str) -> Iterator[str]:
        live: set[str] = set()
        if view.content(table, commit_key(len(known))) is not None:
            yield f"I1: the log of {table} goes beyond version {len(known) - 1}"
        for number, version in enumerate(known):
            content = view.content(table, commit_key(number))
            if content is None:
                yield f"I2: version {number} of {table} is missing from the log"
                continue
            if digest(content) != version.digest:
                yield f"I5: version {number} of {table} holds {logged(content).ids}, and {version} was ratified"
            for kind, path in logged(content).actions:
                if (path in live) == (kind == "add"):
                    yield f"serial: version {number} of {table} does {kind} {path}, and live are {sorted(live)}"
                live.symmetric_difference_update({path})


def _unsettled(request: _Request, old: Mapping[str, Any], what: str) -> Iterator[str]:
    """I3: what of a generation that ends is not decided, or not published."""
    published = parsed(request.before.data(f"{request.root}/published") or b"{}")
    if (published["version"], *_at(published)) != (old["version"], *_at(old)):
        yield f"I3: {what} with the head {old}, and `published` was {published}"
    if left := [name for name in request.before.names(f"{request.root}/slots/{old['generation']}") if _slot_of(name)[0] > old["slot"]]:
        yield f"I3: {what}, and {left} were undecided in the generation before"


def _granted(view: View, parent: str) -> list[str]:
    """The paths of the requests that are granted at a place."""
    return [f"{parent}/{name}" for name in parsed(view.data(parent) or b'{"granted":[]}')["granted"]]


def _is_plain_append(intent: Mapping[str, Any]) -> bool:
    """Whether it declares to have read nothing and its actions, if the intent has them, only add files and number applications."""
    kinds = {kind for line in str(intent.get("actions", "")).splitlines() for kind in parsed(line.encode())}
    return bool(intent.get("reads", {}).get("nothing")) and kinds <= {"add", "txn"}


def _slot_of(name: str) -> tuple[int, str]:
    guid, _, sequence = name.removeprefix("i-").rpartition("-")
    return int(sequence), guid


def _at(state: Mapping[str, Any]) -> tuple[int, int]:
    return state["generation"], state["slot"]
