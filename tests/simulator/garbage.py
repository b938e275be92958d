"""What was deleted, and what was left: nothing is deleted that somebody needs (I7), and no garbage stays for ever.

Each deletion is judged by the raw state at its moment: the versions there were and when they were replaced, the slots that were
undecided, the calls that were under way, the nodes of clients, plans and pins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .evidence import Evidence, TableEvidence
from .history import Call, Stored
from .log import commit_key, version_of

_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_STAGED = "_delta_log/_staged_commits/"
_CHECKPOINT = re.compile(r"_delta_log/([0-9]{20})\.checkpoint\..*parquet")
_LOG_DAYS = {True: 1, False: 30}


def judge_garbage(evidence: Evidence, retention_s: float) -> Iterator[str]:
    """Every object that was deleted and needed, or left and not needed; `retention_s` is for how long replaced files are kept."""
    for table in evidence.tables:
        judgement = _Garbage(evidence, table, retention_s)
        yield from judgement.deletions()
        yield from judgement.missing()
        yield from judgement.left()


@dataclass
class _Garbage:
    evidence: Evidence
    table: TableEvidence
    retention_s: float
    shown_by: dict[str, list[int]] = field(default_factory=dict)
    first_stored: dict[str, Stored] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.told, self.log, self.history = self.table.told, self.table.log, self.evidence.history
        for version in self.log.versions:
            for key in version.live:
                self.shown_by.setdefault(key, []).append(version.number)
        for stored in self.told.stored:
            if stored.content is not None:
                self.first_stored.setdefault(stored.key, stored)

    @property
    def _skew_s(self) -> float:
        """How much the clocks of two machines may differ, and the pauses in between: an hour of the calendar, and a little."""
        return self.retention_s / 8 + 2.0

    # -- what was deleted --------------------------------------------------------------------------------------------

    def deletions(self) -> Iterator[str]:
        present: set[str] = set()
        for stored in self.told.stored:
            if stored.content is not None:
                present.add(stored.key)
                continue
            present.discard(stored.key)
            where = f"{stored.by} deleted {stored.key} of table {self.told.number}"
            if version_of(stored.key) is not None:
                reasons = self._of_the_log(stored, present)
            elif stored.key.startswith("_delta_log/") and not stored.key.startswith(_STAGED):
                continue  # somebody's probe
            else:
                reasons = self._needed(stored)
            for reason in reasons:
                yield f"I7: {where}: {reason}"

    def _needed(self, stored: Stored) -> Iterator[str]:
        yield from self._by_versions(stored)
        found = _GUID.search(stored.key)
        if found is not None and stored.key not in self.shown_by:
            yield from self._by_its_transaction(stored, found[0])

    def _by_versions(self, stored: Stored) -> Iterator[str]:
        versions = self.shown_by.get(stored.key)
        if not versions:
            return
        head = self.told.head_at(stored.tick)
        if versions[-1] >= head or versions[0] > head:
            yield f"version {versions[-1]} shows it, and the head was {head}"
        forced = stored.during is not None and stored.during.operation.options.get("forced", False)
        if not forced and versions[-1] < self.table.last:
            since_s = self.history.seconds_at(stored.tick) - self._removed_s(versions[-1] + 1)
            if since_s < self.retention_s - self._skew_s:
                yield f"it was replaced {since_s:.1f} s before, and is retained for {self.retention_s:.1f} s"
        for path, pin in self.told.pins.items():
            if pin.version in versions and pin.stood(stored.tick):
                yield f"version {pin.version} needs it, which was pinned by {path}"

    def _removed_s(self, version: int) -> float:
        """When what a version removes was removed: the time tells it that the transaction was made, not that it was ratified."""
        calls = [self.evidence.calls.get(each.id) for each in self.log.versions[version].transactions]
        made = [call.began_s for call in calls if call is not None]
        ratified = self.table.ratified.get(version)
        times = [*made, *([] if ratified is None else [self.history.seconds_at(ratified)])]
        return min(times) if times else 0.0

    def _by_its_transaction(self, stored: Stored, guid: str) -> Iterator[str]:
        """Whether the transaction that wrote it may still come, or has come and is not published yet."""
        tick = stored.tick
        verdicts = [v for v in self.told.verdicts if v.guid == guid and v.tick < tick]
        for path in self.told.slot_of.get(guid, ()):
            slot = self.told.slots[path]
            if slot.stood(tick) and not verdicts:
                yield f"the slot {path} was undecided"
        published = max((int(value["version"]) for at, value in self.told.published if at < tick), default=-1)
        if stored.key.startswith(_STAGED) and any(
            v.version > published for v in verdicts if v.refusal is None and not self._is_lost(v.version)
        ):
            yield f"{guid} is ratified, and not published beyond version {published}"
        first = self.first_stored.get(stored.key)
        writing = None if first is None else first.during
        if writing is not None and writing is stored.during:
            return  # it was given up by who wrote it
        plan, client = _owners_in(guid)
        node = self.history.present.get(plan)
        if node is not None and node.stood(tick) and not client:
            yield f"its plan {plan} is open"
        living = client and self.history.graves.get(client, tick) >= tick and not self._is_lost_to_all(tick)
        if living and writing is not None and _is_open(writing, tick):
            yield f"{writing} was writing it, and its client was not declared gone"

    def _is_lost(self, version: int) -> bool:
        return self.table.sealed is not None and version >= self.table.sealed

    def _is_lost_to_all(self, tick: int) -> bool:
        """After the coordinator's data were lost nothing that was begun before can be filed any more."""
        return self.history.lost_at is not None and tick > self.history.lost_at

    # -- the log -----------------------------------------------------------------------------------------------------

    def _of_the_log(self, stored: Stored, present: set[str]) -> Iterator[str]:
        """Every version that somebody needs can be rebuilt from what is left of the log."""
        deleted = version_of(stored.key)
        assert deleted is not None
        following = min((int(m[1]) for key in present if (m := _CHECKPOINT.fullmatch(key)) and int(m[1]) > deleted), default=None)
        if following is None:
            yield "there is no checkpoint after it"
            return
        published = max((int(value["version"]) for at, value in self.told.published if at < stored.tick), default=-1)
        lacking = [version for version in range(following, published + 1) if commit_key(version) not in present]
        if lacking:
            yield f"the versions {lacking} after the checkpoint {following} are not there"
        ratified = self.table.ratified.get(following - 1)
        if ratified is not None:
            since_s = self.history.seconds_at(stored.tick) - self.history.seconds_at(ratified)
            kept_s = self.retention_s * (24 * _LOG_DAYS[self.retention_s < 3600] / (8 if self.retention_s < 3600 else 7 * 24))
            if since_s < kept_s - self._skew_s:
                yield f"version {following - 1} was {since_s:.1f} s old, and its log is kept for {kept_s:.1f} s"
        for path, pin in self.told.pins.items():
            if deleted <= pin.version < following and pin.stood(stored.tick):
                yield f"version {pin.version} was pinned by {path}"
        decided = {v.guid for v in self.told.verdicts if v.tick < stored.tick}
        for slot in self.told.slots.values():
            through = int(self.told.intents[slot.guid]["validated_through"])
            is_open = slot.stood(stored.tick)
            if is_open and slot.guid not in decided and through < deleted:
                yield f"the undecided {slot.guid} was compared up to version {through} only"

    # -- what is left ------------------------------------------------------------------------------------------------

    def missing(self) -> Iterator[str]:
        """What the log names and nobody deleted is there."""
        deleted = {stored.key for stored in self.told.stored if stored.content is None}
        shown = self.log.versions[-1].live
        for key in sorted((self.log.referenced - deleted | shown) - self.table.left.keys()):
            yield f"I7: {key} of table {self.told.number} is named by the log and is not there"

    def left(self) -> Iterator[str]:
        """When all clients are gone and all retention is over, there is nothing but the last version and the log."""
        if self.told.left is None:
            return
        needed = self.log.versions[-1].live
        for key in sorted(self.told.left - needed):
            if not key.startswith("_delta_log/") or key.startswith(_STAGED):
                yield f"garbage: {key} of table {self.told.number} is left, and nobody needs it"


def _owners_in(guid: str) -> tuple[str, str]:
    """The owners that a transaction's id names: the plan, and the client (or "")."""
    digits = guid.replace("-", "")
    client = digits[-12:]
    return digits[:12] + digits[13:16], client if int(client, 16) else ""


def _is_open(call: Call, tick: int) -> bool:
    return call.began < tick and (call.ended is None or call.ended > tick)
