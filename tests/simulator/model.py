"""What must be true of a finished run: judged from the raw log, and from what clients were told and saw.

Written against the invariants of the design, not against the code; it knows nothing of sluice but what stands in the log.
Every finding is a sentence; no sentence, no violation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from .history import Answer, Call, History
from .log import Log, Transaction, Version, commit_key, read_log
from .operations import Operation, State

__all__ = ["judge"]

_NOT_IN_THE_LOG = ("refused", "failed", "nothing", "error")
_PATIENCE_S = 60.0
"""Virtual seconds within which a call ends, and within which what it filed is decided, once nothing goes wrong any more."""
_CHANGES_ROWS = ("write", "plan", "leased")


def judge(history: History, objects: Mapping[str, bytes], level: str) -> list[str]:
    """Every way in which a run broke a promise; `level` is the table's isolation level."""
    log = read_log(objects)
    places = log.places()
    found = [*history.trouble, *log.problems]
    if log.versions:
        judgement = _Judgement(history, log, places, level)
        found += judgement.storage(objects)
        found += judgement.coordination()
        found += judgement.answers()
        found += judgement.order()
        found += judgement.belonging()
        found += judgement.effects()
        found += judgement.reads()
        found += judgement.outcomes()
        found += judgement.leases()
        found += judgement.liveness()
    return found


def _difference(before: State, after: State) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
    """The rows taken away and the rows added."""
    gone = {uid: row for uid, row in before.items() if after.get(uid) != row}
    new = {uid: row for uid, row in after.items() if before.get(uid) != row}
    return gone, new


class _Judgement:
    def __init__(self, history: History, log: Log, places: dict[str, Transaction], level: str) -> None:
        self._history, self._log, self._places, self._level = history, log, places, level
        self._calls = {guid: call for call in history.calls for guid in call.filed}
        self._last = log.versions[-1].number
        rebrings = any(call.operation.kind == "rebring" for call in history.calls)
        self._expected = ("NotATable", "InvalidRequest", "UnsupportedFeature") if rebrings else ("TableNotFound",)

    # -- the services ------------------------------------------------------------------------------------------------

    def storage(self, objects: Mapping[str, bytes]) -> Iterator[str]:
        """Published bytes never change (I5), versions are published in order (I6) once ratified, nothing referenced is deleted (I7)."""
        first: dict[str, bytes] = {}
        commits = {commit_key(version.number): version.number for version in self._log.versions}
        for stored in self._history.stored:
            if stored.content is None:
                if stored.key in commits or stored.key in self._log.referenced:
                    yield f"I7: {stored.by} deleted {stored.key}"
                continue
            if stored.key not in commits:
                continue
            number = commits[stored.key]
            if stored.key in first:
                if first[stored.key] != stored.content:
                    yield f"I5: {stored.by} changed the published version {number}"
                continue
            if number and commit_key(number - 1) not in first:
                yield f"I6: {stored.by} published version {number} before version {number - 1}"
            if self._version_at(self._history.heads, stored.tick) < number:
                yield f"I1: {stored.by} published version {number} before it was ratified"
            first[stored.key] = stored.content
        for key in sorted(self._log.referenced - objects.keys()):
            yield f"I7: {key} is named by the log and is not there"
        for one, other in pairwise(self._log.versions):
            if one.timestamp_ms >= other.timestamp_ms:
                yield f"version {other.number} has the time {other.timestamp_ms}, version {one.number} {one.timestamp_ms}"

    def coordination(self) -> Iterator[str]:
        """The head and `published` only move up; what is published is in the log; in the end everything is."""
        for name, values in (("head", self._history.heads), ("published", self._history.published)):
            for (_, one), (_, other) in pairwise(values):
                if other["version"] < one["version"] or _slot(other) < _slot(one):  # type: ignore[operator]
                    yield f"{name} went back from {one} to {other}"
        there = {stored.key: stored.tick for stored in reversed(self._history.stored) if stored.content is not None}
        for tick, value in self._history.published:
            number = int(str(value["version"]))
            if number >= 0 and there.get(commit_key(number), tick + 1) > tick:
                yield f"I6: `published` says {number} before that version is in the log"
            if number > self._version_at(self._history.heads, tick):
                yield f"`published` says {number}, beyond the head"
        for name, values in (("head", self._history.heads), ("published", self._history.published)):
            if values and values[-1][1]["version"] != self._last:
                yield f"in the end {name} says {values[-1][1]['version']}, and the log ends with version {self._last}"

    @staticmethod
    def _version_at(values: list[tuple[int, Mapping[str, object]]], tick: int) -> int:
        return max((int(str(value["version"])) for at, value in values if at <= tick), default=-1)

    # -- answers -----------------------------------------------------------------------------------------------------

    def answers(self) -> Iterator[str]:
        """What was acknowledged is in the log, once, where it was said to be; what was refused is not."""
        refused = {guid for _, _, _, guid, refusal in self._history.verdicts if refusal is not None}
        for call in self._history.calls:
            answer = call.answer
            if answer is None:
                yield f"liveness: {call}"
            elif answer.kind == "error" and not answer.reason.startswith(self._expected):
                yield f"unexpected: {call}"
            elif answer.kind == "committed":
                yield from self._acknowledged(call, answer)
            elif answer.kind in _NOT_IN_THE_LOG:
                again = call.operation.kind == "plan"  # an earlier or later attempt may have committed the same GUID
                for guid in () if again and answer.kind != "refused" else call.filed:
                    if guid in self._places:
                        yield f"{guid} is in the log as version {self._places[guid].version}, and was told: {call}"
                if answer.kind == "refused" and answer.transaction_id in self._history.slot_of.keys() - refused:
                    yield f"{answer.transaction_id} was refused by nobody, and was told: {call}"

    def liveness(self) -> Iterator[str]:
        """Once nothing goes wrong any more every call ends soon, and is told what became of it."""
        healed = self._history.healed_s
        for call in self._history.calls:
            took = call.ended_s - max(call.began_s, healed)
            if took > _PATIENCE_S:
                yield f"liveness: {call} took {took:.1f} s after the last fault"
            if call.began_s > healed and call.answer is not None and call.answer.kind in ("failed", "unknown") and call.timeout_s > 2.0:
                yield f"liveness: {call}, after the last fault"

    def _acknowledged(self, call: Call, answer: Answer) -> Iterator[str]:
        if answer.version > self._last:
            yield f"lost: {call}, and the log ends with version {self._last}"
            return
        application = call.operation.application
        if answer.repeated and application is not None:
            wrote = {number for v in self._log.versions for app, number in v.applications.items() if app == _application(call)}
            if not wrote or max(wrote) < application:
                yield f"lost: {call} was told to be repeated, and its number was never written"
            return
        place = self._places.get(answer.transaction_id)
        if place is None:
            yield f"lost: {answer.transaction_id} of {call} is not in the log"
        elif (place.version, place.ordinal) != (answer.version, answer.ordinal):
            yield f"{answer.transaction_id} is in the log as {place.version}, {place.ordinal}, and was told {call}"
        if not answer.repeated and answer.transaction_id not in call.filed and call.operation.kind != "rebring":
            yield f"{call} was told of {answer.transaction_id}, which it did not file"
        elsewhere = [guid for guid in call.filed if guid in self._places and guid != answer.transaction_id]
        if elsewhere:
            yield f"twice: {call}, and it is in the log as {elsewhere} too"

    def order(self) -> Iterator[str]:
        """Slots are decided in slot order, each once (I3)."""
        decided = [(generation, slot) for _, generation, slot, _, _ in self._history.verdicts if slot >= 0]
        for slot, following in pairwise(decided):
            if slot >= following:
                yield f"I3: slot {following} was decided after slot {slot}"
        placed = []
        for guid, slots in self._history.slot_of.items():
            if guid in self._places and len(slots) == 1 and guid not in self._history.direct:
                _, generation, sequence = self._history.slots[slots[0]]
                place = self._places[guid]
                placed.append(((generation, sequence), (place.version, place.ordinal), guid))
        for one, other in pairwise(sorted(placed)):
            if one[1] > other[1]:
                yield f"I3: slot {one[0]} of {one[2]} became {one[1]}, slot {other[0]} of {other[2]} became {other[1]}"

    def outcomes(self) -> Iterator[str]:
        """Whoever asks in the end is told what the log says (I10)."""
        for guid, answer in self._history.outcomes.items():
            place = self._places.get(guid)
            if answer.kind == "committed" and answer.repeated:
                call = self._calls[guid]
                wrote = self._log.versions[answer.version].applications.get(_application(call), -1)
                if place is None and wrote < (call.operation.application or 0):
                    yield f"I10: the outcome of {guid} is {answer}, which says nothing of {call}"
            elif answer.kind == "committed":
                if place is None or (place.version, place.ordinal) != (answer.version, answer.ordinal):
                    yield f"I10: the outcome of {guid} is {answer}, and the log says {place}"
            elif place is not None:
                yield f"I10: the outcome of {guid} is {answer}, and it is in the log as version {place.version}"
            elif answer.kind == "unknown":
                yield f"I10: nobody knows what became of {guid}, which had the slots {self._history.slot_of.get(guid)}"

    def leases(self) -> Iterator[str]:
        """What depends on a lease is ratified while that stands (I9), and nobody changes what others hold a lease on."""
        decided = {guid: tick for tick, _, _, guid, refusal in self._history.verdicts if refusal is None}
        for guid, place in self._places.items():
            tick = decided.get(guid, -1)
            standing = self._history.leases_at(tick)
            own = self._history.depends.get(guid, ())
            for path in own:
                if path not in standing:
                    yield f"I9: {place} depended on the lease {path}, which did not stand when it was ratified"
            others = [each for each in standing.values() if each.path not in own]
            stopped = [each.path for each in others if each.mode == "exclusive" or not own]
            if stopped and guid in self._calls and self._calls[guid].operation.kind in _CHANGES_ROWS:
                yield f"leases: {place} of {self._calls[guid]} was ratified while others held {stopped}"

    # -- rows --------------------------------------------------------------------------------------------------------

    def belonging(self) -> Iterator[str]:
        """Nothing is committed to a table that was given away, nor by who does not know that it was."""
        for version in self._log.versions:
            for each in version.transactions:
                if any(v.gives_away for v in self._log.versions[max(each.read_version, 0) + 1 : version.number]):
                    yield f"{each} did not know that the table was given away"
        for one, other in pairwise(self._log.versions):
            if one.gives_away and [t.operation for t in other.transactions] != ["ATTACH"]:
                yield f"version {other.number} was committed to a table that was given away"

    def effects(self) -> Iterator[str]:
        """Every version holds what its transactions did, one after the other, to the rows of the one before."""
        blind: list[set[int]] = []
        for version in self._log.versions:
            blind.append(set())
            rows = dict(self._log.versions[version.number - 1].rows) if version.number else {}
            for transaction in version.transactions:
                if transaction.id not in self._calls or self._calls[transaction.id].operation.kind not in _CHANGES_ROWS:
                    continue
                operation = self._calls[transaction.id].operation
                read = self._log.versions[transaction.read_version].rows if 0 <= transaction.read_version <= self._last else {}
                gone, new = ({}, dict(operation.after({}))) if operation.blind else _difference(read, operation.after(read))
                yield from self._serial(operation, transaction, rows, blind, (gone, new))
                lacking = {uid for uid, row in gone.items() if rows.get(uid) != row}
                doubled = new.keys() & rows.keys() - gone.keys()
                if lacking or doubled:
                    yield f"{operation} in version {version.number} takes rows {lacking} away, which are not there, or adds {doubled} twice"
                rows = {**{uid: row for uid, row in rows.items() if uid not in gone}, **new}
                blind[-1] |= new.keys() if operation.blind else set()
            if rows != version.rows:
                yield self._unlike(version, rows)

    def _unlike(self, version: Version, rows: State) -> str:
        lacks, has = _difference(rows, version.rows)
        did = [str(self._calls.get(each.id, each.operation)) for each in version.transactions]
        return f"version {version.number} ({did}) lacks the rows {lacks} and has {has} instead"

    def _serial(
        self,
        operation: Operation,
        transaction: Transaction,
        rows: State,
        blind: list[set[int]],
        effect: tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]],
    ) -> Iterator[str]:
        """It did what it would have done alone on the rows before it; unseen blind appends may count as later."""
        if operation.blind or self._level == "SnapshotIsolation":
            return
        unseen: set[int] = set()
        if self._level == "WriteSerializable":
            unseen = {uid for added in blind[transaction.read_version + 1 :] for uid in added}
        base = {uid: row for uid, row in rows.items() if uid not in unseen}
        alone = _difference(base, operation.after(base))
        if alone != effect:
            yield (
                f"not serial: {operation}, which read version {transaction.read_version} and became version {transaction.version}, "
                f"did {effect}; alone it would have done {alone}"
            )

    def reads(self) -> Iterator[str]:
        """Every read shows a version as it is, and none older than its level promises."""
        acknowledged = [(c.ended or 0, c.answer, c.table) for c in self._history.calls if c.answer and c.answer.kind == "committed"]
        for call in self._history.calls:
            read = call.read
            if read is None:
                continue
            if read.version > self._last or read.rows != self._log.versions[read.version].rows:
                yield f"{call} showed {read.rows} as version {read.version}"
                continue
            before = [(answer, table) for ended, answer, table in acknowledged if ended < call.began]
            if read.level == "session":
                before = [(answer, table) for answer, table in before if table == call.table]
            elif read.level == "published":
                before = [(answer, table) for answer, table in before if answer.published]
            oldest = max((answer.version for answer, _ in before), default=-1)
            if read.level == "serial":
                oldest = max([oldest, *self._filed_before(call.began)])
            if read.version < oldest:
                yield f"{call} showed version {read.version}, and its level promises {oldest}"

    def _filed_before(self, tick: int) -> Iterator[int]:
        """Versions of what stood in the queue at a time; a slot that came too late for its generation stands in none."""
        for guid, place in self._places.items():
            filed = [self._history.slots[slot][0] for slot in self._history.slot_of.get(guid, [])]
            if filed and max(filed) < tick:
                yield place.version


def _slot(value: Mapping[str, object]) -> tuple[int, int]:
    return int(str(value["generation"])), int(str(value["slot"]))


def _application(call: Call) -> str:
    return f"app-{call.client[1:]}"
