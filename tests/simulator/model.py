"""What must be true of a finished run: judged from the raw logs, and from what clients were told and saw.

Written against the invariants of the design, not against the code; it knows nothing of sluice but what is in the log. Every finding
is a sentence; no sentence, no violation. `tests/judge` has judged each single request and answer before, and its findings come first.
Here are the answers, and each table for itself; `rows.py`, `several.py` and `garbage.py` have the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ..raw_numbers import judge_numbers
from .evidence import Evidence, TableEvidence
from .garbage import judge_garbage
from .history import LOST, MOVED, NOT_OF_A_CALL, Answer, Call, History, Told, Verdict
from .log import commit_key
from .rows import judge_rows
from .several import judge_several

_LOOKS = 2
"""How often a recovery waits: once more when somebody who was on the way published."""
_PATIENCE_S = 60.0
"""Virtual seconds within which a call ends, and within which what it filed is decided, once nothing goes wrong any more."""
_PUT_S = 0.05
"""Virtual seconds that the store takes for a small object, at most."""
_LEFT_BEHIND_S = 1.0
"""Virtual seconds that a batch takes whose owners gave up: a patience (0.5 at most, where it begins anew each time), and its requests."""
NEWEST_RENDERING = 2
"""Clients of the release under test write no newer rendering; a test compares it with theirs, since the judge imports nothing of theirs."""
_EXPECTED = {
    "rebring": ("NotATable", "WrongCoordinator", "InvalidRequest", "UnsupportedFeature"),
    "vacuum": ("MissingObject", "VersionNotFound"),
    "recover": ("TreeReplaced", "NotATable", "WrongCoordinator", "InvalidRequest: another client is recovering"),
    "widen": ("SchemaMismatch",),
}
"""Errors that clients may meet because of what others do."""
_STAYS = ("compact", "vacuum", "checkpoint", "pinned", "leased", "joint", "together", "relocate")
"""What does not follow a table that moves, and hears of it once."""
_APART = "InvalidRequest: these tables are kept by different coordinators"


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
            for part in (judgement.renderings, judgement.belonging, judgement.outcomes, judgement.applications):
                problems += part()
            problems += judge_numbers(table.log.versions)
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
    def __init__(self, evidence: Evidence, table: TableEvidence) -> None:
        self._evidence, self._history = evidence, evidence.history
        self._table, self._told, self._log, self._places = table, table.told, table.log, table.places

    def renderings(self) -> Iterator[str]:
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

    def outcomes(self) -> Iterator[str]:
        """A client that asks in the end gets what the log says (I10)."""
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
        lost = () if self._history.lost_at is None else LOST  # also where nobody was left to rebuild them
        newer = any(each.rendering > NEWEST_RENDERING for table in self._history.tables for each in table.ratified)
        unknown = ("UnknownFormat",) if newer else ()
        self._expected = ("TableNotFound", *unknown, *lost, *(name for kind, names in _EXPECTED.items() if kind in kinds for name in names))

    def told(self) -> Iterator[str]:
        """What was acknowledged is about what the call filed, once; somebody recorded what was refused."""
        refused = {v.guid for table in self._evidence.tables for v in table.told.verdicts if v.refusal is not None}
        operations = {guid: str(intent["operation"]) for table in self._evidence.tables for guid, intent in table.told.intents.items()}
        for call in self._history.calls:
            yield from _names_what_it_filed(call, operations)
            answer = call.answer
            if answer is None:
                yield f"liveness: {call}"
            elif answer.kind == "error" and not answer.reason.startswith(self._expected) and not self._may_say(call, answer):
                yield f"unexpected: {call}"
            elif answer.kind == "committed":
                yield from self._whole(call, answer)
                for number, told in answer.commits.items():
                    yield from self._acknowledged(call, answer, self._evidence.tables[number], told)
            elif answer.kind == "refused":
                guid, ended = answer.transaction_id, call.ended or 0
                if self._evidence.era(ended):
                    continue  # what had been decided before all was lost may be unknown now
                if guid not in refused and any(t.told.may_commit(guid) for t in self._evidence.tables):
                    yield f"nobody refused {guid}: {call}"

    def _may_say(self, call: Call, answer: Answer) -> bool:
        """Whether this very call may hear that a table moved, or that its tables are apart; or that it was lost in some of them."""
        told = [self._evidence.tables[table].told for table in call.operation.tables]
        moved = (call.operation.kind in _STAYS or call.has_turn) and any(
            tick < (call.ended or 0) for each in told for tick in each.moves.values()
        )
        apart = len(told) > 1 and answer.reason.startswith(_APART)
        return (moved and (apart or answer.reason.startswith(MOVED))) or self._says_half(call, answer)

    def _says_half(self, call: Call, answer: Answer) -> bool:
        """Whether a transaction over several tables is repeated under its number, and told that it was lost in some: as it was."""
        number = call.operation.application
        if self._history.lost_at is None or call.operation.kind != "joint" or not answer.reason.startswith("HalfCommitted"):
            return False
        logs = [self._evidence.tables[table].log for table in call.operation.tables]
        wrote = [any(v.applications.get(_application(call)) == number for v in log.versions) for log in logs]
        return any(wrote) and not all(wrote)

    def _whole(self, call: Call, answer: Answer) -> Iterator[str]:
        """A call that gets an earlier commit in several tables gets it for all of its tables that were written together."""
        for number, told in answer.commits.items() if answer.repeated and call.operation.kind == "joint" else ():
            versions = self._evidence.tables[number].log.versions[told.version : told.version + 1]
            joint = {at for version in versions for each in version.transactions if each.ordinal == told.ordinal for at in each.joint}
            here = {self._evidence.at(at).told.number for at in joint}
            if not here & set(call.operation.tables) <= answer.commits.keys():
                yield f"half: {call}, and version {told.version} of table {number} was written together with tables {sorted(here)}"

    def _acknowledged(self, call: Call, answer: Answer, table: TableEvidence, told: Told) -> Iterator[str]:
        if not told.published and self._evidence.was_lost(table, told.version, call.began):
            return
        application = call.operation.application
        if answer.repeated and application is not None:
            wrote = {number for v in table.log.versions for app, number in v.applications.items() if app == _application(call)}
            if not wrote or max(wrote) < application:
                yield f"I12: {call} is said to be a repetition, and its number was never written"
            return
        if not answer.repeated and answer.transaction_id not in call.filed and not self._filed_beside(call, answer.transaction_id):
            yield f"{call} is answered with {answer.transaction_id}, which it did not file"
        elsewhere = [guid for guid in call.filed if guid in table.places and guid != answer.transaction_id]
        if elsewhere:
            yield f"I12: {call}, and it is in the log as {elsewhere} too"

    def _filed_beside(self, call: Call, guid: str) -> bool:
        """Whether it was filed for this call by somebody else: another call for the same plan, whose slot this one may find."""
        other = self._evidence.calls.get(guid)
        same_plan = call.operation.kind == "plan" and other is not None and (other.client, other.operation) == (call.client, call.operation)
        return same_plan or call.operation.kind == "rebring"

    def liveness(self) -> Iterator[str]:
        """Once the faults end, every call ends soon, with its outcome."""
        healed = self._history.healed_s
        for call in self._history.calls:
            took = call.ended_s - max(call.began_s, healed) - _LOOKS * call.operation.options.get("wait_s", 0.0)
            if took > _PATIENCE_S:
                yield f"liveness: {call} took {took:.1f} s after the last fault"
            untold = call.answer is not None and call.answer.kind in ("failed", "unknown") and call.timeout_s > 2.0
            if untold and call.began_s > healed and not (self._cleared_away(call) or self._stored_much(call) or self._is_held_back(call)):
                yield f"liveness: {call}, after the last fault"

    def _cleared_away(self, call: Call) -> bool:
        """Whether all its time went by with deciding what others had filed before it, and had given up: the order is kept all the same."""
        batches = {
            (table.told.number, verdict.tick)
            for table in self._evidence.tables
            for verdict in table.told.verdicts
            if call.began < verdict.tick <= (call.ended or 0) and self._was_given_up(verdict)
        }
        answer = call.answer
        filed = answer is not None and answer.kind == "unknown" and self._was_filed(answer.transaction_id)
        settled = answer is not None and answer.kind == "failed" and call.operation.options.get("level") == "serial"
        return (filed or settled) and len(batches) * _LEFT_BEHIND_S >= call.timeout_s

    def _stored_much(self, call: Call) -> bool:
        """Whether all its time went by with storing vectors before it was filed: a simulated pool stores one after the other."""
        guid = call.answer.transaction_id if call.answer is not None else ""
        tables = self._evidence.tables
        puts = [each for table in tables for each in table.told.stored if each.key.startswith(f"{guid}/") and each.content is not None]
        return not self._was_filed(guid) and len(puts) * _PUT_S > call.timeout_s

    def _is_held_back(self, call: Call) -> bool:
        """Whether it is a plan that its quota kept from being filed: another process may yet commit it, so nobody knows."""
        answer = call.answer
        held = answer is not None and answer.kind == "unknown" and "is over its quota" in answer.reason
        return held and call.operation.kind == "plan" and answer is not None and not self._was_filed(answer.transaction_id)

    def _was_filed(self, guid: str) -> bool:
        """Whether it was filed, by this call or one before that was about the same."""
        return any(guid in table.told.intents for table in self._evidence.tables)

    def _was_given_up(self, verdict: Verdict) -> bool:
        """Whether nobody waited for a verdict any more when it was recorded."""
        owner = self._evidence.calls.get(verdict.guid)
        return owner is not None and owner.ended is not None and owner.ended < verdict.tick


def _application(call: Call) -> str:
    return f"app-{call.client[1:]}"


def _names_what_it_filed(call: Call, filed_by_others: Mapping[str, str]) -> Iterator[str]:
    """An unknown outcome names the transaction of the rows, never a commit that the call made beside it."""
    answer = call.answer
    if call.operation.kind in ("relocate", "rebring"):
        return  # the one waits for what others filed, and the other's own commits are such
    if answer is not None and answer.kind == "unknown" and filed_by_others.get(answer.transaction_id) in NOT_OF_A_CALL:
        yield f"numbers: {call} names {answer.transaction_id}, which is {filed_by_others[answer.transaction_id]}"
