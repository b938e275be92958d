"""The twin of the coordination service, which notes what takes effect: from the raw nodes, into a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from sluice.coordinator.service.memory import MemoryCoordination
from sluice.coordinator.service.tree import Change, Tree

from ..judge.memory import parsed
from .history import NOT_OF_A_CALL, History, PinTold, PresenceTold, Ratified, SlotTold, TableHistory, Verdict
from .machine import Machine
from .scheduler import current
from .witness import Witness


class NotedCoordination(MemoryCoordination):
    """The service; `after_heads` is called when a head has moved."""

    def __init__(self, history: History, witness: Witness, clock_ns: Callable[[], int]) -> None:
        super().__init__()
        self._history, self._witness, self.tree.clock_ns = history, witness, clock_ns
        witness.coordinations.append(self)
        self.after_heads: Callable[[], None] | None = None

    def publish(self, changes: Sequence[Change]) -> None:
        """Note the changes of one request, and show them to every session."""
        tick = self._history.next_tick() if changes else 0
        task = current()
        self._witness.changed(self, changes, "a session's end" if task is None else task.name)
        moved = False
        for change in changes:
            data = None if change.after is None else change.after.data
            top, _, rest = change.path.lstrip("/").partition("/")
            if top == "tables" and "/" in rest:
                name, _, inside = rest.partition("/")
                self._note(self._history.at(unquote(name)), tick, change.path, inside, data)
                moved = moved or inside == "head"
            elif top == "dropped" and rest and "/" not in rest and data:
                self._history.at(unquote(rest)).leave(tick, parsed(data).get("moved"))
            elif rest and top in ("clients", "open"):
                self._present(tick, rest, data, new=change.before is None)
            elif rest and top == "graves" and data is not None:
                self._history.graves.setdefault(rest, tick)
        super().publish(changes)
        if moved and self.after_heads is not None:
            self.after_heads()

    def lose_everything(self) -> None:
        """Every server comes back with an empty disk."""
        with self.lock:
            for session in list(self._sessions.values()):
                session.expire()
            clock_ns, self.tree = self.tree.clock_ns, Tree()
            self.tree.clock_ns = clock_ns
        self._history.lost_at = tick = self._history.next_tick()
        for each in self._history.present.values():
            if each.stood(tick):
                each.gone.append(tick)
        for slot in (slot for table in self._history.tables for slot in table.slots.values()):
            slot.gone = tick if slot.gone is None else slot.gone

    def _present(self, tick: int, name: str, data: bytes | None, *, new: bool) -> None:
        told = self._history.present.setdefault(name, PresenceTold())
        if data is None:
            told.gone.append(tick)
        elif new:
            told.made.append(tick)

    def _note(self, table: TableHistory, tick: int, path: str, inside: str, data: bytes | None) -> None:
        parts = inside.split("/")
        match parts, data:
            case ["pins", _], None:
                table.pins[path].leave(tick)
            case ["slots", _, _], None:
                table.slots[path].gone = tick
            case _, None:
                return
            case ["head"], _:
                if not table.moves or parsed(data)["version"] >= 0:  # others begin to make a table that is there
                    table.heads.append((tick, parsed(data)))
            case ["published"], _:
                table.published.append((tick, parsed(data)))
            case ["slots", _, name], _:
                guid, _, sequence = name.removeprefix("i-").rpartition("-")
                table.slots[path] = SlotTold(tick, int(sequence), guid)
                table.slot_of.setdefault(guid, []).append(path)
                self._file(table, parsed(data))
            case ["pins", _], _:
                table.pins.setdefault(path, PinTold(parsed(data)["version"], tick)).nodes += 1
            case ["verdicts", _], _:
                self._decide(table, tick, parsed(data))

    def _decide(self, table: TableHistory, tick: int, record: Mapping[str, Any]) -> None:
        generation = record["generation"]
        table.verdicts += [
            Verdict(tick, generation, v["slot"], v["transaction_id"], v["refusal"], v["version"], v["ordinal"], v["repeats"])
            for v in record["verdicts"]
        ]
        task = current()
        if task is not None and isinstance(task.owner, Machine):
            engine, number = task.owner.release.engine, record["rendering"]["number"]
            table.ratified += [Ratified(tick, plan["version"], engine, number) for plan in record["versions"]]
        if record.get("direct"):
            intent = parsed(record["direct"].encode())
            table.direct[intent["transaction_id"]] = tick
            self._file(table, intent)

    def _file(self, table: TableHistory, intent: Mapping[str, Any]) -> None:
        """Note whose call filed it; what brings a table in or tells of garbage is not what a call is about."""
        guid = intent["transaction_id"]
        table.intents[guid] = intent
        if intent["operation"] in NOT_OF_A_CALL:
            return
        task = current()
        owner = task.owner if task is not None else None
        if isinstance(owner, Machine) and owner.doing is not None:
            call = owner.doing
            # others may file it again for a dead owner
            of = self._history.owners.setdefault(guid, (call.client, call.operation.number))
            if of == (call.client, call.operation.number) and guid not in call.filed:
                call.filed.append(guid)
