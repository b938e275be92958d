"""What several tables promise together: the same in all logs, one order everywhere, one moment for who reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

from .evidence import Evidence, TableEvidence
from .history import Verdict


def judge_several(evidence: Evidence) -> Iterator[str]:
    """Every way in which tables do not fit each other."""
    judgement = _Several(evidence)
    yield from judgement.logs()
    yield from judgement.order()
    yield from judgement.moments()


class _Several:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._history, self._tables = evidence, evidence.history, evidence.tables
        self._joint: dict[str, tuple[str, ...]] = {}
        for table in self._tables:
            for guid, intent in table.told.intents.items():
                if intent.get("joint"):
                    self._joint[guid] = _locations(intent)

    @staticmethod
    def _granted(table: TableEvidence, guid: str) -> list[Verdict]:
        return [v for v in table.told.verdicts if v.guid == guid and v.refusal is None and not v.repeats]

    def logs(self) -> Iterator[str]:
        """The versions that were made together are in all logs, or are reported to be missing; each tells of the others."""
        lacking: dict[str, set[str]] = {}
        for table in self._tables:
            here = table.told.location
            for guid, place in table.places.items():
                if guid in self._joint and place.joint.get(here, place.version if len(place.joint) < 2 else -1) != place.version:
                    yield f"{guid} is version {place.version} of {here}, and says {dict(place.joint)}"
                for at, version in place.joint.items():
                    other = self._evidence.at(at)
                    theirs = other.places.get(guid)
                    if theirs is not None and theirs.version == version and theirs.joint == place.joint:
                        continue
                    tick = table.ratified.get(place.version, 0)
                    if theirs is None and self._evidence.was_lost(other, version, tick):
                        lacking.setdefault(guid, set()).add(at)
                    else:
                        yield f"I11: {guid} is version {place.version} of {here}, and {at} has {theirs}; it says {dict(place.joint)}"
                written = {t.told.location: v.version for t in self._tables for v in self._granted(t, guid) if v.ordinal >= 0}
                if guid in self._joint and len(written) > 1 and dict(place.joint) != written and guid not in lacking:
                    yield f"{guid} was ratified as {written}, and says {dict(place.joint)}"
        if self._history.incomplete is not None:
            told = {guid: set(missing) for guid, missing in self._history.incomplete.items()}
            if told != lacking:
                yield f"the transactions {told} are reported as incomplete, and {lacking} are"

    def order(self) -> Iterator[str]:
        """Any two that share two tables stand in one order in both."""
        for one, other in combinations(self._tables, 2):
            both = []
            for guid, locations in self._joint.items():
                if {one.told.location, other.told.location} <= set(locations):
                    for mine, theirs in zip(self._granted(one, guid), self._granted(other, guid), strict=False):
                        both.append((self._key(mine), self._key(theirs), guid))
            for (_, before, guid), (_, after, another) in pairwise(sorted(both)):
                if before >= after:
                    yield f"I11: {guid} stands before {another} in {one.told.location}, and after it in {other.told.location}"

    def _key(self, verdict: Verdict) -> tuple[int, int, int]:
        return self._evidence.era(verdict.tick), verdict.generation, verdict.slot

    def moments(self) -> Iterator[str]:
        """Versions that were read together existed together, at a moment of the call."""
        for call in self._history.calls:
            together = {read.table: read.version for read in call.reads if read.level == "together"}
            for versions, what in ((together, "read"), (call.read_versions, "began on")):
                ended = call.ended or len(self._history.times)
                if len(versions) > 1 and not self._stood(versions, call.began, ended):
                    yield f"{call} {what} the versions {versions}, which did not stand together at any moment of it"

    def _stood(self, versions: Mapping[int, int], began: int, ended: int) -> bool:
        moments = {began, *(tick for n in versions for tick, _ in self._tables[n].told.heads if began <= tick <= ended)}
        return any(all(self._tables[n].told.head_at(at) == version for n, version in versions.items()) for at in moments)


def _locations(intent: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(intent["joint"]["tables"]) if intent.get("joint") else ()
