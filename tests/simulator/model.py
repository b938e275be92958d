"""What must be true of a finished run: judged from the raw logs, and from what clients were told and saw.

Written against the invariants of the design, not against the code; it knows nothing of sluice but what stands in the log.
Every finding is a sentence; no sentence, no violation. Here is what concerns each table for itself; beside it stand `rows.py`,
`several.py` and `garbage.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from .evidence import CHANGES_ROWS, Evidence, TableEvidence
from .garbage import judge_garbage
from .history import Answer, Call, History, Told, Verdict
from .log import commit_key
from .rows import judge_rows
from .several import judge_several

__all__ = ["judge"]

_NOT_IN_THE_LOG = ("refused", "failed", "nothing", "error")
_LOOKS = 2
"""How often a recovery waits: once more when somebody who was on the way published."""
_LOST = ("NotATable", "WrongCoordinator", "TreeReplaced")
_PATIENCE_S = 60.0
"""Virtual seconds within which a call ends, and within which what it filed is decided, once nothing goes wrong any more."""
_LEFT_BEHIND_S = 1.0
"""Virtual seconds that a batch takes whose owners gave up: a patience (0.5 at most, where it begins anew each time), and its requests."""
_EXPECTED = {
    "rebring": ("NotATable", "WrongCoordinator", "InvalidRequest", "UnsupportedFeature"),
    "vacuum": ("MissingObject", "VersionNotFound"),
    "recover": ("TreeReplaced", "NotATable", "WrongCoordinator", "InvalidRequest: somebody else is recovering"),
    "widen": ("SchemaMismatch",),
}
"""Errors that clients may meet because of what others do."""


def judge(history: History, objects: Mapping[str, Mapping[str, bytes]], levels: Sequence[str], retention_s: float) -> list[str]:
    """Every way in which a run broke a promise.

    `objects` are what is left at each location, `levels` the tables' isolation levels; `retention_s` is for how long replaced files
    are kept, in virtual seconds.
    """
    evidence = Evidence(history, objects, levels)
    found = [*history.trouble]
    for table in evidence.tables:
        judgement = _Judgement(evidence, table)
        problems = [*table.log.problems]
        if table.log.versions:
            for part in (
                judgement.storage,
                judgement.coordination,
                judgement.order,
                judgement.belonging,
                judgement.outcomes,
                judgement.leases,
                judgement.applications,
            ):
                problems += part()
        found += [f"{sentence} (table {table.told.number})" for sentence in problems]
    if all(table.log.versions for table in evidence.tables):
        answers = _Answers(evidence)
        found += answers.told()
        found += answers.liveness()
        found += judge_rows(evidence)
        found += judge_several(evidence)
        found += judge_garbage(evidence, retention_s)
    return found


class _Judgement:
    """One table."""

    def __init__(self, evidence: Evidence, table: TableEvidence) -> None:
        self._evidence, self._history = evidence, evidence.history
        self._table, self._told, self._log, self._places = table, table.told, table.log, table.places

    # -- the services ------------------------------------------------------------------------------------------------

    def storage(self) -> Iterator[str]:
        """Published bytes never change (I5), versions are published in order (I6), once ratified (I1); each has a later time."""
        first: dict[str, bytes] = {}
        commits = {commit_key(version.number): version.number for version in self._log.versions}
        for stored in self._told.stored:
            if stored.content is None or stored.key not in commits:
                continue
            number = commits[stored.key]
            if stored.key in first:
                if first[stored.key] != stored.content:
                    yield f"I5: {stored.by} changed the published version {number}"
                continue
            if number and commit_key(number - 1) not in first:
                yield f"I6: {stored.by} published version {number} before version {number - 1}"
            reached = max((int(value["version"]) for at, value in self._told.heads if at <= stored.tick), default=-1)
            if reached < number and number not in self._table.recoveries:
                yield f"I1: {stored.by} published version {number} before it was ratified"
            first[stored.key] = stored.content
        yield from self._renderings()
        for one, other in pairwise(self._log.versions):
            if one.timestamp_ms >= other.timestamp_ms:
                yield f"version {other.number} has the time {other.timestamp_ms}, version {one.number} {one.timestamp_ms}"

    def _renderings(self) -> Iterator[str]:
        """A version is signed by who ratified it, and published by who knows how it is rendered (I5)."""
        for version in self._log.versions:
            if version.number in self._table.recoveries:  # written by who recovered the table; what was ratified under its number is lost
                continue
            ratified = [each for each in self._told.ratified if each.version == version.number]
            if ratified and version.engine not in {each.engine for each in ratified}:
                yield f"I5: version {version.number} is signed by {version.engine}, and was ratified by {ratified[-1].engine}"
            needed = min((each.rendering for each in ratified), default=1)
            for stored in self._told.stored:
                if stored.key == commit_key(version.number) and stored.content is not None and stored.knows < needed:
                    yield f"I5: {stored.by} published version {version.number}, and does not know its rendering {needed}"

    def coordination(self) -> Iterator[str]:
        """The head and `published` only move up; what is published is in the log; in the end everything is."""
        era = self._evidence.era
        for name, values in (("head", self._told.heads), ("published", self._told.published)):
            for (at, one), (then, other) in pairwise(values):
                if era(at) == era(then) and (other["version"] < one["version"] or _slot(other) < _slot(one)):
                    yield f"{name} went back from {one} to {other}"
        there = {stored.key: stored.tick for stored in reversed(self._told.stored) if stored.content is not None}
        for tick, value in self._told.published:
            number = int(value["version"])
            if number >= 0 and there.get(commit_key(number), tick + 1) > tick:
                yield f"I6: `published` says {number} before that version is in the log"
            if number > self._told.head_at(tick):
                yield f"`published` says {number}, beyond the head"
        for name, values in (("head", self._told.heads), ("published", self._told.published)):
            if values and values[-1][1]["version"] != self._table.last:
                yield f"in the end {name} says {values[-1][1]['version']}, and the log ends with version {self._table.last}"

    # -- decisions ---------------------------------------------------------------------------------------------------

    def order(self) -> Iterator[str]:
        """Slots are decided in slot order, each once (I3), each version is ratified once (I1), and the log holds what was ratified."""
        era = self._evidence.era
        decided = [(era(v.tick), v.generation, v.slot) for v in self._told.verdicts if v.slot >= 0]
        for slot, following in pairwise(decided):
            if slot >= following:
                yield f"I3: slot {following} was decided after slot {slot}"
        placed = []
        for guid, slots in self._told.slot_of.items():
            if guid in self._places and len(slots) == 1 and guid not in self._told.direct:
                slot_told, place = self._told.slots[slots[0]], self._places[guid]
                key = era(slot_told.tick), slot_told.generation, slot_told.sequence
                placed.append((key, (place.version, place.ordinal), guid))
        for one, other in pairwise(sorted(placed)):
            if one[1] > other[1]:
                yield f"I3: slot {one[0]} of {one[2]} became {one[1]}, slot {other[0]} of {other[2]} became {other[1]}"
        ratified: dict[tuple[int, int, int], str] = {}
        for verdict in self._told.verdicts:
            if verdict.refusal is None and not verdict.repeats and verdict.ordinal >= 0:
                key = era(verdict.tick), verdict.version, verdict.ordinal
                if ratified.setdefault(key, verdict.guid) != verdict.guid:
                    yield f"I1: {key[1:]} was ratified for {ratified[key]} and for {verdict.guid}"
        for place in self._places.values():
            if (
                place.id not in (ratified.get((n, place.version, place.ordinal)) for n in (0, 1))
                and place.version not in self._table.recoveries
            ):
                yield f"I1: {place} is in the log, and was not ratified as that"

    def outcomes(self) -> Iterator[str]:
        """Whoever asks in the end is told what the log says (I10)."""
        number = self._told.number
        read_only = {v.guid for v in self._told.verdicts if v.ordinal < 0 and v.refusal is None}
        gone = {stored.key for stored in self._told.stored if stored.content is None}
        for guid, answer in self._told.outcomes.items():
            place, told = self._places.get(guid), answer.commits.get(number)
            if guid in read_only and place is None:
                continue
            if answer.kind == "committed" and answer.repeated and told is not None:
                call = self._evidence.calls[guid]
                wrote = self._log.versions[told.version].applications.get(_application(call), -1)
                if place is None and wrote < (call.operation.application or 0):
                    yield f"I10: the outcome of {guid} is {answer}, which says nothing of {call}"
            elif answer.kind == "committed":
                if told is None or place is None or (place.version, place.ordinal) != (told.version, told.ordinal):
                    yield f"I10: the outcome of {guid} is {answer}, and the log says {place}"
            elif place is not None:
                if answer.kind != "unknown" or commit_key(place.version) not in gone:
                    yield f"I10: the outcome of {guid} is {answer}, and it is in the log as version {place.version}"
            elif answer.kind == "unknown" and not self._was_forgotten(guid):
                yield f"I10: nobody knows what became of {guid}, which had the slots {self._told.slot_of.get(guid)}"

    def _was_forgotten(self, guid: str) -> bool:
        """Whether all that was known of it was lost with the coordinator's data."""
        ticks = [self._told.slots[path].tick for path in self._told.slot_of.get(guid, ())]
        ticks += [self._told.direct[guid]] if guid in self._told.direct else []
        return self._history.lost_at is not None and max(ticks, default=0) <= self._history.lost_at

    def leases(self) -> Iterator[str]:
        """What depends on a lease is ratified while that stands (I9), and nobody changes what others hold a lease on."""
        # who files again what was committed is told so, whoever holds a lease since: that commits nothing
        decided: dict[str, int] = {v.guid: v.tick for v in self._told.verdicts if v.refusal is None and not v.repeats}
        calls = self._evidence.calls
        for guid, place in self._places.items():
            standing = self._told.leases_at(decided.get(guid, -1))
            own = self._told.depends.get(guid, ())
            for path in own:
                if path not in standing and path.startswith(f"{self._root()}/"):
                    yield f"I9: {place} depended on the lease {path}, which did not stand when it was ratified"
            others = [each for each in standing.values() if each.path not in own]
            stopped = [each.path for each in others if each.mode == "exclusive" or (each.mode == "shared" and not own)]
            if guid not in calls or calls[guid].operation.kind not in CHANGES_ROWS:
                continue
            if stopped:
                yield f"leases: {place} of {calls[guid]} was ratified while others held {stopped}"
            turns = [each.path for each in others if each.mode == "turn" and not each.where and each.path not in self._told.turns[guid]]
            if turns and not calls[guid].operation.blind_in(self._told.number):
                yield f"turns: {place} of {calls[guid]} was ratified in the turn of another: {turns}"

    def _root(self) -> str:
        return next(iter(self._told.leases)).path.rpartition("/")[0] if self._told.leases else "-"

    def belonging(self) -> Iterator[str]:
        """Nothing is committed to a table that was given away, nor by who does not know that it was."""
        for version in self._log.versions:
            for each in version.transactions:
                if any(v.gives_away for v in self._log.versions[max(each.read_version, 0) + 1 : version.number]):
                    yield f"{each} did not know that the table was given away"
        for one, other in pairwise(self._log.versions):
            if one.gives_away and [t.operation for t in other.transactions] != ["ATTACH"]:
                yield f"version {other.number} was committed to a table that was given away"

    def applications(self) -> Iterator[str]:
        """A transaction that writes an application's number is refused when another number of it came after the version it read."""
        for version in self._log.versions:
            for each in version.transactions:
                for other in self._log.versions[max(each.read_version, 0) + 1 : version.number] if each.apps else ():
                    for app, number in each.apps.items():
                        if other.applications.get(app, number) != number:
                            yield f"serial: {each} wrote {app}={number}, and version {other.number} {app}={other.applications[app]} before"


class _Answers:
    """What clients were told, of all tables."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._history = evidence, evidence.history
        kinds: set[str] = {name for call in self._history.calls for name in (call.operation.kind, *(s.kind for s in call.operation.steps))}
        lost = () if self._history.lost_at is None else _LOST  # also where nobody was left to rebuild them
        newer = any(each.rendering > 1 for table in self._history.tables for each in table.ratified)
        unknown = ("UnknownFormat",) if newer else ()
        self._expected = ("TableNotFound", *unknown, *lost, *(name for kind, names in _EXPECTED.items() if kind in kinds for name in names))

    def told(self) -> Iterator[str]:
        """What was acknowledged is in the log, once, where it was said to be; what was refused is not."""
        refused = {v.guid for table in self._evidence.tables for v in table.told.verdicts if v.refusal is not None}
        for call in self._history.calls:
            answer = call.answer
            if answer is None:
                yield f"liveness: {call}"
            elif answer.kind == "error" and not answer.reason.startswith(self._expected) and not self._says_half(call, answer):
                yield f"unexpected: {call}"
            elif answer.kind == "committed":
                yield from self._whole(call, answer)
                for number, told in answer.commits.items():
                    yield from self._acknowledged(call, answer, self._evidence.tables[number], told)
            elif answer.kind in _NOT_IN_THE_LOG:
                for guid in call.filed if self._says_no(call, answer) else ():
                    for table in self._evidence.tables:
                        if guid in table.places:
                            yield f"I12: {guid} is in the log as version {table.places[guid].version}, and was told: {call}"
                guid, ended = answer.transaction_id, call.ended or 0
                if self._evidence.era(ended):
                    continue  # what had been decided before all was lost may be unknown now
                if answer.kind == "refused" and guid not in refused and any(t.told.may_commit(guid, ended) for t in self._evidence.tables):
                    yield f"{answer.transaction_id} was refused by nobody, and was told: {call}"

    def _says_half(self, call: Call, answer: Answer) -> bool:
        """Whether a transaction over several tables is repeated under its number, and told that it was lost in some: as it was."""
        number = call.operation.application
        if self._history.lost_at is None or call.operation.kind != "joint" or not answer.reason.startswith("HalfCommitted"):
            return False
        logs = [self._evidence.tables[table].log for table in call.operation.tables]
        wrote = [any(v.applications.get(_application(call)) == number for v in log.versions) for log in logs]
        return any(wrote) and not all(wrote)

    def _whole(self, call: Call, answer: Answer) -> Iterator[str]:
        """Who is told that several tables have it already is told of all those, of this call's, that were written together."""
        for number, told in answer.commits.items() if answer.repeated and call.operation.kind == "joint" else ():
            versions = self._evidence.tables[number].log.versions[told.version : told.version + 1]
            joint = {at for version in versions for each in version.transactions if each.ordinal == told.ordinal for at in each.joint}
            here = {self._evidence.at(at).told.number for at in joint}
            if not here & set(call.operation.tables) <= answer.commits.keys():
                yield f"half: {call}, and version {told.version} of table {number} was written together with tables {sorted(here)}"

    def _says_no(self, call: Call, answer: Answer) -> bool:
        """Whether an answer says that it is certainly not in the log."""
        if answer.kind == "error" and self._history.lost_at is not None:
            return not answer.reason.startswith(_LOST)  # whoever hears that the table is lost hears nothing of what was filed
        # an earlier or later attempt may have committed the same plan
        return call.operation.kind != "plan" or (answer.kind == "refused" and not answer.reason.startswith("LeaseHeld"))

    def _acknowledged(self, call: Call, answer: Answer, table: TableEvidence, told: Told) -> Iterator[str]:
        if not told.published and self._evidence.was_lost(table, told.version, call.began):
            return
        if told.version > table.last:
            yield f"lost: {call}, and the log ends with version {table.last}"
            return
        application = call.operation.application
        if answer.repeated and application is not None:
            wrote = {number for v in table.log.versions for app, number in v.applications.items() if app == _application(call)}
            if not wrote or max(wrote) < application:
                yield f"lost: {call} was told to be repeated, and its number was never written"
            return
        place = table.places.get(answer.transaction_id)
        if place is None:
            yield f"I12: lost: {answer.transaction_id} of {call} is not in the log"
        elif (place.version, place.ordinal) != (told.version, told.ordinal):
            yield f"I12: {answer.transaction_id} is in the log as {place.version}, {place.ordinal}, and was told {call}"
        if not answer.repeated and answer.transaction_id not in call.filed and not self._filed_beside(call, answer.transaction_id):
            yield f"{call} was told of {answer.transaction_id}, which it did not file"
        elsewhere = [guid for guid in call.filed if guid in table.places and guid != answer.transaction_id]
        if elsewhere:
            yield f"twice: {call}, and it is in the log as {elsewhere} too"

    def _filed_beside(self, call: Call, guid: str) -> bool:
        """Whether it was filed for this call by somebody else: another call for the same plan, whose slot this one may find."""
        other = self._evidence.calls.get(guid)
        same_plan = call.operation.kind == "plan" and other is not None and (other.client, other.operation) == (call.client, call.operation)
        return same_plan or call.operation.kind == "rebring"

    def liveness(self) -> Iterator[str]:
        """Once nothing goes wrong any more every call ends soon, and is told what became of it."""
        healed = self._history.healed_s
        for call in self._history.calls:
            took = call.ended_s - max(call.began_s, healed) - _LOOKS * call.operation.options.get("wait_s", 0.0)
            if took > _PATIENCE_S:
                yield f"liveness: {call} took {took:.1f} s after the last fault"
            untold = call.answer is not None and call.answer.kind in ("failed", "unknown") and call.timeout_s > 2.0
            if untold and call.began_s > healed and not self._cleared_away(call):
                yield f"liveness: {call}, after the last fault"

    def _cleared_away(self, call: Call) -> bool:
        """Whether all its time went by with deciding what others had filed before it, and had given up: the order is kept all the same."""
        batches = {
            (table.told.number, verdict.tick)
            for table in self._evidence.tables
            for verdict in table.told.verdicts
            if call.began < verdict.tick <= (call.ended or 0) and self._was_given_up(verdict)
        }
        filed = call.answer is not None and call.answer.kind == "unknown" and self._was_filed(call.answer.transaction_id)
        return filed and len(batches) * _LEFT_BEHIND_S > call.timeout_s

    def _was_filed(self, guid: str) -> bool:
        """Whether it was filed, by this call or one before that was about the same."""
        return any(guid in table.told.intents for table in self._evidence.tables)

    def _was_given_up(self, verdict: Verdict) -> bool:
        """Whether nobody waited for a verdict any more when it was recorded."""
        owner = self._evidence.calls.get(verdict.guid)
        return owner is not None and owner.ended is not None and owner.ended < verdict.tick


def _slot(value: Mapping[str, object]) -> tuple[int, int]:
    return int(str(value["generation"])), int(str(value["slot"]))


def _application(call: Call) -> str:
    return f"app-{call.client[1:]}"
