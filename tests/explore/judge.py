"""What must be true of a small world at every step, and in the end: judged from the raw nodes and objects alone.

Shares no code with what it judges. It remembers as little of the past as the promises speak of (`Memory`): what was ratified,
what was refused, what callers were told. That memory is part of a state, so that two ways into one state are only taken for
one when the judge could not tell them apart either.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

__all__ = ["Judge", "Memory", "NodeChange", "View"]

NodeChange = tuple[str, "bytes | None", "bytes | None"]
"""A path with what it held before and after; all changes of one request come together."""

Stored = tuple[str, str, "bytes | None", "bytes | None"]


class View(Protocol):
    """The services as they stand."""

    def data(self, path: str) -> bytes | None:
        """What a node holds, or None."""
        ...

    def names(self, path: str) -> Sequence[str]:
        """The names of a node's children."""
        ...

    def content(self, table: str, key: str) -> bytes | None:
        """What an object holds, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Ratified:
    """One version: its digest, and the transactions in it in their order."""

    digest: str
    ids: tuple[str, ...]


class Memory(NamedTuple):
    """What the judge knows of the past. `versions` are those ratified, by table."""

    versions: tuple[tuple[str, tuple[Ratified, ...]], ...]
    filed: frozenset[tuple[str, str]] = frozenset()
    refused: frozenset[tuple[str, str]] = frozenset()
    told: frozenset[tuple[Any, ...]] = frozenset()
    named: frozenset[tuple[str, str]] = frozenset()
    """Table and key of each data file that a ratified version names."""
    mark: int = 0
    """The hash of all this."""

    def of(self, table: str) -> tuple[Ratified, ...]:
        """The versions of a table."""
        return dict(self.versions)[table]

    def place(self, table: str, transaction_id: str) -> tuple[int, int] | None:
        """Where a transaction is, as (version, ordinal)."""
        for number, version in enumerate(self.of(table)):
            if transaction_id in version.ids:
                return number, version.ids.index(transaction_id)
        return None

    def sealed(self) -> Memory:
        """With its own hash, which is asked for often."""
        return self._replace(mark=hash((self.versions, self.filed, self.refused, self.told, self.named)))


@lru_cache(maxsize=100_000)
def _parsed(data: bytes) -> Any:
    return json.loads(data)


@lru_cache(maxsize=20_000)
def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@lru_cache(maxsize=20_000)
def _named(actions: str) -> tuple[str, ...]:
    return tuple(each["add"]["path"] for each in map(json.loads, actions.splitlines()) if "add" in each)


def _commit_key(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _slot_of(name: str) -> tuple[int, str]:
    guid, _, sequence = name.removeprefix("i-").rpartition("-")
    return int(sequence), guid


@dataclass
class Judge:
    """The judge of one world. `files` says whether data files are real objects, whose loss is a violation."""

    tables: Sequence[str]
    files: bool = False
    pruned: bool = False
    """Whether refusals may be forgotten."""

    def __post_init__(self) -> None:
        self._roots = {f"/tables/{quote(table, safe='')}": table for table in self.tables}

    def beginning(self, view: View) -> Memory:
        """What is known of a world as it begins: everything that stands is published."""
        versions = []
        for root, table in self._roots.items():
            head = _parsed(view.data(f"{root}/head") or b"{}")
            log = [_parsed_log(view.content(table, _commit_key(v)) or b"") for v in range(head["version"] + 1)]
            known = tuple(
                Ratified(_digest(view.content(table, _commit_key(v)) or b""), tuple(t["id"] for t in info))
                for v, (info, _) in enumerate(log)
            )
            versions.append((table, known))
        return Memory(tuple(versions)).sealed()

    # -- every step --------------------------------------------------------------------------------------------------

    def changed(self, memory: Memory, before: View, after: View, changes: Sequence[NodeChange]) -> tuple[Memory, list[str]]:
        """One request changed nodes, all at once."""
        found: list[str] = []
        committed: dict[str, set[str]] = {}
        demanded: dict[str, set[str]] = {}
        known = memory
        for root, table in self._roots.items():
            mine = {path[len(root) + 1 :]: (old, new) for path, old, new in changes if path.startswith(root + "/")}
            if not mine:
                continue
            memory = self._filed(memory, table, mine)
            memory = self._decided(memory, root, table, before, mine, found, committed, demanded)
            found += self._published(root, table, before, after, mine)
            found += self._slots_gone(root, before, after, mine)
        for transaction, wanted in demanded.items():
            if not wanted <= committed.get(transaction, set()):
                found.append(f"I11: {transaction} was committed in {sorted(committed[transaction])}, and not in all of {sorted(wanted)}")
        return memory if memory is known else memory.sealed(), found

    def _filed(self, memory: Memory, table: str, mine: Mapping[str, tuple[bytes | None, bytes | None]]) -> Memory:
        ids = {(table, _slot_of(p.rpartition("/")[2])[1]) for p, (old, new) in mine.items() if _is_slot(p) and new is not None}
        return memory._replace(filed=memory.filed | ids) if ids else memory

    def _decided(
        self,
        memory: Memory,
        root: str,
        table: str,
        before: View,
        mine: Mapping[str, tuple[bytes | None, bytes | None]],
        found: list[str],
        committed: dict[str, set[str]],
        demanded: dict[str, set[str]],
    ) -> Memory:
        records = [_parsed(new) for path, (old, new) in mine.items() if path.startswith("verdicts/") and old is None and new is not None]
        if "head" not in mine:
            if records:
                found.append("I1: a verdict was recorded and the head stayed where it was")
            return memory
        old, new = (_parsed(data) if data is not None else {} for data in mine["head"])
        if not old or not new:
            return memory
        if new["version"] < old["version"] or _at(new) < _at(old):
            found.append(f"I1: the head went from {old} back to {new}")
        if len(records) != 1:
            found.append(f"I1: the head moved from {_at(old)} to {_at(new)} with {len(records)} records")
            return memory
        record = records[0]
        numbers = [version["version"] for version in record["versions"]]
        if numbers != list(range(old["version"] + 1, new["version"] + 1)):
            found.append(f"I1, I2: versions {numbers} were ratified between {old['version']} and {new['version']}")
        found += self._in_order(root, before, old, new, record)
        intents = self._intents(root, before, record)
        ids: dict[int, list[str]] = {number: [] for number in numbers}
        for verdict in sorted(record["verdicts"], key=lambda each: each["ordinal"]):
            transaction = verdict["transaction_id"]
            if verdict["refusal"] is not None:
                memory = memory._replace(refused=memory.refused | {(table, transaction)})
                continue
            if verdict["repeats"]:
                continue
            joint = intents.get(transaction, {}).get("joint")
            if joint is not None:
                demanded.setdefault(transaction, {each["location"] for each in joint["tables"]})
            committed.setdefault(transaction, set()).add(table)
            if verdict["version"] in ids:
                if memory.place(table, transaction) is not None or any(transaction in each for each in ids.values()):
                    found.append(f"I1: {transaction} was committed twice in {table}")
                ids[verdict["version"]].append(transaction)
            found += self._leases(root, before, intents.get(transaction, {}))
            memory = self._names(memory, table, intents.get(transaction, {}), before, found)
        made = tuple(Ratified(version["digest"], tuple(ids[version["version"]])) for version in record["versions"])
        versions = tuple((name, known + made if name == table else known) for name, known in memory.versions)
        direct = {(table, v["transaction_id"]) for v in record["verdicts"]} if record.get("direct") else set()
        return memory._replace(versions=versions, filed=memory.filed | direct)

    @staticmethod
    def _in_order(root: str, before: View, old: Mapping[str, Any], new: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
        """I3: every slot that stands is decided, once, before any that comes later."""
        slots = [verdict["slot"] for verdict in record["verdicts"]]
        if slots == [-1] and record.get("direct"):
            return
        if record["generation"] != old["generation"] or slots != sorted(set(slots)) or slots[0] <= old["slot"]:
            yield f"I3: slots {slots} of generation {record['generation']} were decided after {_at(old)}"
        standing = [_slot_of(name)[0] for name in before.names(f"{root}/slots/{old['generation']}")]
        passed = [slot for slot in standing if old["slot"] < slot <= slots[-1] and slot not in slots]
        if passed:
            yield f"I3: slots {passed} were passed over"
        if new["generation"] == old["generation"] and new["slot"] != slots[-1]:
            yield f"I3: the head says slot {new['slot']}, and {slots[-1]} was decided last"

    @staticmethod
    def _intents(root: str, before: View, record: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if record.get("direct"):
            intent = _parsed(record["direct"].encode())
            return {intent["transaction_id"]: intent}
        for verdict in record["verdicts"]:
            name = f"i-{verdict['transaction_id']}-{verdict['slot']:010d}"
            data = before.data(f"{root}/slots/{record['generation']}/{name}")
            if data is not None:
                found[verdict["transaction_id"]] = _parsed(data)
        return found

    @staticmethod
    def _leases(root: str, before: View, intent: Mapping[str, Any]) -> Iterator[str]:
        """I9: what a commit depends on stands when it is ratified, and nobody else holds the table for himself."""
        own = intent.get("leases", ())
        for path in own:
            parent, _, name = path.rpartition("/")
            if before.data(path) is None:
                yield f"I9: {intent['transaction_id']} was ratified and its lease {name} was gone"
            elif name not in _parsed(before.data(parent) or b'{"granted":[]}')["granted"]:
                yield f"I9: {intent['transaction_id']} was ratified and its lease {name} had not been granted"
        granted = _parsed(before.data(f"{root}/leases") or b'{"granted":[]}')["granted"]
        for name in before.names(f"{root}/leases"):
            held = _parsed(before.data(f"{root}/leases/{name}") or b"{}")
            if name in granted and f"{root}/leases/{name}" not in own and (held["mode"] == "exclusive" or not own):
                yield f"I9: {intent.get('transaction_id')} was ratified while somebody else held {name} ({held['mode']})"

    def _names(self, memory: Memory, table: str, intent: Mapping[str, Any], before: View, found: list[str]) -> Memory:
        if not self.files:
            return memory
        keys = _named(intent.get("actions", ""))
        found += [f"I7: {intent['transaction_id']} names {key}, which is gone" for key in keys if before.content(table, key) is None]
        return memory._replace(named=memory.named | {(table, key) for key in keys})

    @staticmethod
    def _published(
        root: str, table: str, before: View, after: View, mine: Mapping[str, tuple[bytes | None, bytes | None]]
    ) -> Iterator[str]:
        if "published" not in mine:
            return
        old, new = (_parsed(data) if data is not None else {} for data in mine["published"])
        head = _parsed(after.data(f"{root}/head") or b"{}")
        if new["version"] < old["version"] or _at(new) < _at(old):
            yield f"I6: `published` went from {old} back to {new}"
        if new["version"] > head["version"] or _at(new) > _at(head):
            yield f"I6: `published` says {new}, the head {head}"
        for version in range(old["version"] + 1, new["version"] + 1):
            if before.content(table, _commit_key(version)) is None:
                yield f"I6: `published` says {new['version']}, and there is no file of version {version}"

    @staticmethod
    def _slots_gone(root: str, before: View, after: View, mine: Mapping[str, tuple[bytes | None, bytes | None]]) -> Iterator[str]:
        head = _parsed(before.data(f"{root}/head") or b"{}")
        published = _parsed(after.data(f"{root}/published") or b"{}")
        arrived = {_slot_of(p.rpartition("/")[2])[1] for p, (old, new) in mine.items() if _is_slot(p) and new is not None}
        for path, (_, new) in mine.items():
            if not _is_slot(path) or new is not None:
                continue
            generation, (slot, transaction) = int(path.split("/")[1]), _slot_of(path.rpartition("/")[2])
            if (generation, slot) > _at(head):
                yield f"I10: the undecided slot {path} was removed"
            elif generation == head["generation"] and _at(published) < (generation, slot):
                yield f"I10: slot {path} was removed before it was published"
            elif generation < head["generation"] and _at(published) < (generation, slot) and transaction not in arrived:
                yield f"I10: slot {path} of a closed generation was removed and not filed again"

    def stored(self, memory: Memory, view: View, stored: Stored) -> list[str]:
        """One request changed an object; `view` is what was before."""
        table, key, before, after = stored
        if after is None:
            return (
                [f"I7: {key} was deleted, and a version names it"] if (table, key) in memory.named or key.startswith("_delta_log/0") else []
            )
        if not (key.startswith("_delta_log/0") and key.endswith(".json")):
            return []
        version, known = int(key[11:31]), memory.of(table)
        found = []
        if version >= len(known):
            return [f"I1: version {version} was published before it was ratified"]
        if before is not None and before != after:
            found.append(f"I5: the published version {version} was changed")
        if _digest(after) != known[version].digest:
            found.append(f"I5: version {version} was published with another content than was ratified")
        if version and view.content(table, _commit_key(version - 1)) is None:
            found.append(f"I6: version {version} was published before version {version - 1}")
        return found

    def told(self, memory: Memory, what: tuple[Any, ...]) -> tuple[Memory, list[str]]:
        """A caller was told something."""
        found: list[str] = []
        if what[0] == "committed":
            _, table, transaction, version, ordinal, repeated = what
            known = memory.of(table)
            if version >= len(known):
                found.append(f"I12: {transaction} was told to be version {version}, which there is not")
            elif not repeated and (ordinal >= len(known[version].ids) or known[version].ids[ordinal] != transaction):
                found.append(f"I12: {transaction} was told to be at {version}, {ordinal}; it is at {memory.place(table, transaction)}")
        elif what[0] in ("refused", "failed") and memory.place(what[1], what[2]) is not None:
            found.append(f"I12: {what[2]} was told to be {what[0]} ({what[3]}), and is at {memory.place(what[1], what[2])}")
        return memory._replace(told=memory.told | {what}).sealed(), found

    # -- the end -----------------------------------------------------------------------------------------------------

    def ended(self, memory: Memory, view: View, *, faultless: bool) -> list[str]:
        """Everything is over, and somebody asked for the outcome of all that was filed."""
        found: list[str] = []
        for root, table in self._roots.items():
            head, published = (_parsed(view.data(f"{root}/{name}") or b"{}") for name in ("head", "published"))
            if (head["version"], *_at(head)) != (published["version"], *_at(published)):
                found.append(f"liveness: in the end the head of {table} is {head}, and `published` {published}")
            for generation in view.names(f"{root}/slots"):
                left = view.names(f"{root}/slots/{generation}")
                if left:
                    found.append(f"liveness: in the end the slots {left} of generation {generation} still stand")
            found += self._log(memory, view, table, head["version"])
        for what in sorted(memory.told, key=repr):
            found += self._holds(memory, what, faultless=faultless)
        asked = {(what[1], what[2]) for what in memory.told if what[0] in ("asked", "committed", "refused")}
        found += [f"I10: nobody knows what became of {missing}" for missing in sorted(memory.filed - asked)]
        return found

    def _holds(self, memory: Memory, what: tuple[Any, ...], *, faultless: bool) -> Iterator[str]:
        """Whether what a caller was told is still true in the end."""
        kind = what[0]
        if kind in ("refused", "failed") and memory.place(what[1], what[2]) is not None:
            yield f"I12: {what[2]} was told to be {kind} ({what[3]}), and is at {memory.place(what[1], what[2])}"
        if faultless and kind in ("failed", "unknown"):
            yield f"liveness: {what}, and nothing went wrong"
        if kind == "asked":
            _, table, transaction, state = what
            place = memory.place(table, transaction)
            if state != "repeated" and (state == "committed") != (place is not None):
                yield f"I10: the outcome of {transaction} is {state}, and its place {place}"
            if state == "unknown" and not self.pruned and (table, transaction) in memory.filed:
                yield f"I10: nobody knows what became of {transaction}, which was filed"

    def _log(self, memory: Memory, view: View, table: str, last: int) -> Iterator[str]:
        live: set[str] = set()
        if view.content(table, _commit_key(last + 1)) is not None:
            yield f"I1: the log of {table} goes beyond version {last}"
        for number, version in enumerate(memory.of(table)):
            content = view.content(table, _commit_key(number))
            if content is None:
                yield f"I2: version {number} of {table} is missing from the log"
                continue
            transactions, actions = _parsed_log(content)
            if version.ids and tuple(each["id"] for each in transactions) != version.ids:
                yield f"I5: version {number} of {table} holds {transactions}, and {version.ids} was ratified"
            for kind, path in actions:
                if (path in live) == (kind == "add"):
                    yield f"serial: version {number} of {table} does {kind} {path}, and live are {sorted(live)}"
                live.symmetric_difference_update({path})


@lru_cache(maxsize=20_000)
def _parsed_log(content: bytes) -> tuple[list[Any], list[tuple[str, str]]]:
    lines = [json.loads(line) for line in content.splitlines()]
    info: Any = next((each["commitInfo"] for each in lines if "commitInfo" in each), {})
    actions = [(kind, each[kind]["path"]) for each in lines for kind in ("remove", "add") if kind in each]
    return info.get("sluice", {}).get("transactions", []), actions


def _is_slot(path: str) -> bool:
    return path.startswith("slots/") and path.count("/") == 2


def _at(state: Mapping[str, Any]) -> tuple[int, int]:
    return state["generation"], state["slot"]
