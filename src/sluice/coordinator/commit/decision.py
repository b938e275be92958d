"""Decide a queue: a pure function of (decided history, intents), the same for every client that computes it (I4).

Slots are decided in slot order, each once (I3); versions are dense (I2); consecutive blind appends become one version. In each table of
several the same function decides as for a transaction of that table alone; a refusal in one is a refusal in all, with that table's reason
and name (I11).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from ...storage.actions import DeletionVector, decode_text
from ...storage.actions.texts import Text, pieces, sha256
from ...storage.data.row_moves import VectorLookup
from ...storage.data.vectors import Rows
from ...storage.dataclass import dataclass
from ...storage.errors import AccessDenied, CorruptLogFile, NoSuchBucket, invariant
from ...storage.log.paths import staged_path
from ..leases.guard import NO_LEASES, LeaseView
from ..limits import Limits
from ..nodes.records import NO_SLOT, Head, Rebased, Rendering, Verdict, VersionPlan
from ..publication.rendering import RowCountMissing, render, rows_to_number
from ..rules.conflicts import Conflict, refusal, version_taken
from ..rules.intent import ConflictPolicy, Intent, Joint
from ..rules.intent_checks import brief
from ..rules.rebase import Candidate, check_against_all
from ..rules.refusal import UNJUDGEABLE, Refusal
from ..rules.winner import Footprint, Member, Winner, winner_of

_log = logging.getLogger(__name__)


DETACHED: Final = Refusal("detached", "Refused", "the table was detached from sluice; attach it again, or write it with another engine")
"""The refusal for a table that was detached."""


@dataclass(frozen=True, slots=True)
class Queued:
    """One undecided slot, or NO_SLOT on the fast path: its intent with its actions, or the `problem` that makes it invalid.

    `against` is a reason to refuse it whatever it contains, such as its owner's withdrawal, unless it is committed already.
    """

    slot: int
    transaction_id: str
    member: Member | None
    problem: str = ""
    against: Refusal | None = None

    @property
    def joint(self) -> Joint | None:
        """The tables of the transaction, if it is one over several."""
        return None if self.member is None else self.member.intent.joint


@dataclass(frozen=True, slots=True)
class DecisionInput:
    """Undecided slots of one table, and everything that their decision depends on."""

    head: Head
    """The state that they are decided on."""
    queue: Sequence[Queued]
    """The slots, in order."""
    winners: Mapping[int, Winner]
    """The versions after the lowest of `windows_of(head, queue)`, by version."""
    limits: Limits
    """This client's limits: they say where a version and a decision end."""
    lookup: VectorLookup
    """Returns the rows of a stored deletion vector."""
    leases: LeaseView = NO_LEASES
    """The leases that are held. Whoever ratifies the decision compares them again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdicts on a prefix of the queue, the versions they make, and the head after them."""

    head: Head
    verdicts: tuple[Verdict, ...]
    versions: tuple[VersionPlan, ...]
    members: Mapping[int, tuple[Member, ...]]
    """The members of each new version, by version."""
    objects: Mapping[str, Text] = field(default_factory=dict)
    """Objects to store before the versions are ratified: united deletion vectors."""


def groupable(intent: Intent, mine: Footprint) -> bool:
    """Whether an intent may share a version: a blind append that changes only data, and that no matrix applies to."""
    special = intent.expected_version is not None or intent.staged or intent.detach
    # check: only-blind-appends-share-a-version (mine.plain_append -> mine.blind_append)
    # check: special-commits-stand-alone (without and not special)
    return mine.plain_append and not special and not ConflictPolicy(mine.policy).by_classes


def windows_of(head: Head, queue: Sequence[Queued]) -> list[int]:
    """For each slot the version after which versions must be known to decide it.

    A blind append needs only the head, which says whether metadata changed. A slot after a change of metadata counts that as decided.
    """
    windows: list[int] = []
    metadata_stays = True
    for queued in queue:
        if queued.member is None:
            windows.append(head.version)
            continue
        intent, mine = queued.member.intent, queued.member.footprint
        plain = groupable(intent, mine) and not mine.app_versions and not intent.filed_again
        needless = plain and metadata_stays and head.metadata_version <= intent.validated_through
        # check: window-reaches-back (-1 -> head.version - 1)
        windows.append(head.version if needless else max(min(head.version, intent.validated_through), -1))
        metadata_stays = metadata_stays and not (mine.metadata or mine.protocol)
    return windows


@dataclass(slots=True)
class _Group:
    version: int
    timestamp_ms: int
    open: bool
    members: list[Member] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    size: int = 0
    first_row_id: int | None = None

    def plan(self) -> VersionPlan:
        """The version as it is recorded, without its digest and rebased actions."""
        return VersionPlan(self.version, self.timestamp_ms, tuple(self.slots), first_row_id=self.first_row_id)

    def rebased(self, inline_bytes_max: int, room: int, objects: dict[str, Text]) -> tuple[Rebased, ...]:
        """Members' actions that differ from those filed; large ones, and those beyond `room` bytes, are staged in `objects`."""
        adapted: list[Rebased] = []
        for slot, member in zip(self.slots, self.members, strict=True):
            if not member.rebased:
                continue
            seal = sha256(member.actions)
            staged = (
                "" if len(member.actions) <= min(inline_bytes_max, room) else staged_path(f"{member.intent.transaction_id}-{seal[:16]}")
            )
            if staged:
                objects[staged] = member.actions
            else:
                room -= len(member.actions)
            adapted.append(Rebased(slot, member.rebased, "" if staged else b"".join(pieces(member.actions)).decode(), staged, seal))
        return tuple(adapted)


@dataclass(slots=True)
class _Resolution:
    """The state of one run over a queue."""

    input: DecisionInput
    room: int
    head: Head
    groups: list[_Group] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    placed: dict[str, tuple[int, int]] = field(default_factory=dict)
    objects: dict[str, Text] = field(default_factory=dict)
    planned: dict[str, Rows] = field(default_factory=dict)
    refusal_bytes: int = 0
    """Characters of refusals so far."""
    _made: dict[tuple[int, int], Winner] = field(default_factory=dict)

    def winner(self, version: int) -> Winner | None:
        """A version as a winner; one of this run from its members so far. None for one that nobody knows, or that is not there yet."""
        if version > self.head.version:
            return None
        first_new = self.groups[0].version if self.groups else self.head.version + 1
        if version < first_new:
            return self.input.winners.get(version)
        # check: winners-of-the-same-batch-count (group = self.groups[version - first_new] -> return Winner(version))
        group = self.groups[version - first_new]
        key = version, len(group.members)
        if key not in self._made:
            content = render(group.plan(), group.members, Rendering(0))
            self._made[key] = winner_of(version, decode_text(content, name=f"version {version}"))
        return self._made[key]

    def repetition(self, member: Member) -> tuple[int, int] | None:
        """(version, ordinal) of an earlier commit of this transaction, or of its application's number."""
        intent = member.intent
        # check: committed-once-in-a-batch
        if intent.transaction_id in self.placed:
            return self.placed[intent.transaction_id]
        apps = member.footprint.app_versions
        if not apps and not intent.filed_again:
            return None
        for version in range(intent.validated_through + 1, self.head.version + 1):
            winner = self.winner(version)
            if winner is None:
                continue
            ordinal = winner.ordinal_of(intent.transaction_id)
            # check: committed-once-by-id
            if ordinal is not None:
                return version, ordinal
            # check: repetition-has-every-number (<= -> &)
            has_every_number = apps.items() <= winner.app_versions.items()
            # check: application-number-once
            if apps and has_every_number:
                return version, winner.ordinal_of_app(next(iter(apps)))
        return None

    def objection(self, member: Member) -> Refusal | None:
        """Why the intent cannot be committed on top of the head, or None."""
        intent = member.intent
        attaches = intent.expected_version is not None and intent.table_id != ""
        # check: detached-tables-refuse
        if self.head.detached and not attaches:
            return DETACHED
        # check: expected-version-is-compared
        if intent.expected_version is not None and intent.expected_version != self.head.version + 1:
            taken = None if attaches else self.winner(intent.expected_version)
            if taken is not None:
                return version_taken(taken)
            first = "another client created the table first" if intent.expected_version == 0 else "another commit came first"
            return Refusal(
                "expected-version",
                "ProtocolChangedException",
                f"{first}: version {intent.expected_version} was expected, the next one is {self.head.version + 1}; open the table again "
                "and look",
                winning_version=intent.expected_version,
            )
        # check: known-beyond-the-head-is-refused
        if intent.validated_through > self.head.version:
            return Refusal("validated-through", "Refused", f"the intent claims to know version {intent.validated_through}, beyond the head")
        # check: others-leases-object
        return self.input.leases.objection(member)

    def judge(self, member: Member) -> Member | Refusal:
        """The member as it may be committed on top of the head, with adapted actions if necessary; or its refusal."""
        intent = member.intent
        against = self.objection(member)
        if against is not None:
            return against
        try:
            if self.head.row_ids is not None or intent.row_ids is not None:
                rows_to_number(member.actions)
            # check: numbered-appends-are-compared (without and not member.footprint.app_versions)
            plain = groupable(intent, member.footprint) and not member.footprint.app_versions
            # check: appends-look-at-the-metadata (without and self.head.metadata_version <= intent.validated_through)
            if plain and self.head.metadata_version <= intent.validated_through:
                return member
            return self.checked(member)
        except (CorruptLogFile, RowCountMissing) as problem:
            return Refusal("malformed", "Refused", f"the actions are not acceptable: {problem}")
        # check: no-rights-are-no-verdict
        except (AccessDenied, NoSuchBucket):  # a problem of this client; others may see more
            raise
        # check: unjudgeable-is-refused
        except UNJUDGEABLE as problem:  # caused by its contents or a winner's: the queue goes on
            _log.exception("transaction %s could not be judged", intent.transaction_id)
            return Refusal("malformed", "Refused", f"its conflicts could not be determined: {type(problem).__name__}: {problem}")

    def checked(self, member: Member) -> Member | Refusal:
        """The member after all versions that it was not validated against."""
        candidate = check_against_all(Candidate.of(member), self.unseen(member.intent), self.rows)
        if isinstance(candidate, Conflict):
            return refusal(candidate)
        self.objects.update(candidate.objects)
        self.planned.update(candidate.planned)
        # check: what-was-adapted-is-committed (Member(member.intent, candidate.lines(), candidate.rebased, candidate.footprint) -> member)
        return Member(member.intent, candidate.lines(), candidate.rebased, candidate.footprint)

    def unseen(self, intent: Intent) -> Iterator[Winner]:
        """The winners that an intent was not validated against."""
        # check: first-unseen-winner-counts (validated_through + 1 -> validated_through + 2)
        for version in range(intent.validated_through + 1, self.head.version + 1):
            winner = self.winner(version)
            # check: history-is-complete
            # check: window-reaches-back
            invariant("I4", winner is not None, f"version {version} is needed to decide and was not given")
            if winner is not None:
                yield winner

    def rows(self, vector: DeletionVector) -> Rows:
        """The rows of a vector, including those of this run, which are not stored yet."""
        planned = self.planned.get(vector.unique_id)
        return self.input.lookup(vector) if planned is None else planned

    def place(self, queued: Queued, member: Member) -> bool:
        """Give a valid intent its version and ordinal; False if this run may make no more versions."""
        intent, mine = member.intent, member.footprint
        if intent.only_reads:
            self.verdicts.append(Verdict(queued.slot, intent.transaction_id, self.head.version))
            return True
        group, may_share = self.groups[-1] if self.groups else None, groupable(intent, mine)
        joins = group is not None and group.open and may_share and group.size + len(member.actions) <= self.input.limits.batch_bytes_max
        if not joins or group is None:
            # check: backlog-is-bounded
            if len(self.groups) >= self.room:
                return False
            first_row_id = None if self.head.row_ids is None and intent.row_ids is None else self._row_ids(intent) + 1
            # check: times-increase (self.head.timestamp_ms + 1 -> 0)
            group = _Group(self.head.version + 1, self.head.timestamp_ms + 1, open=may_share, first_row_id=first_row_id)
            self.groups.append(group)
            self.head = replace(
                self.head,
                version=group.version,
                # check: head-knows-the-metadata
                metadata_version=group.version if mine.metadata or mine.protocol else self.head.metadata_version,
                table_id=intent.table_id or self.head.table_id,
                detached=intent.detach,
            )
        group.members.append(member)
        group.slots.append(queued.slot)
        group.size += len(member.actions)
        group.timestamp_ms = max(group.timestamp_ms, intent.claimed_ms)
        self.head = replace(self.head, timestamp_ms=group.timestamp_ms)
        if group.first_row_id is not None:
            # check: row-ids-go-on (without + rows_to_number(member.actions))
            self.head = replace(self.head, row_ids=self._row_ids(intent) + rows_to_number(member.actions))
        place = (group.version, len(group.members) - 1)
        self.placed[intent.transaction_id] = place
        self.verdicts.append(Verdict(queued.slot, intent.transaction_id, *place))
        return True

    def _row_ids(self, intent: Intent) -> int:
        """The highest row id given before an intent."""
        known = self.head.row_ids if self.head.row_ids is not None else intent.row_ids
        return -1 if known is None else known

    def decide(self, queued: Queued) -> bool:
        """Decide one slot; False if the run must end before it."""
        if self.refusal_bytes > self.input.limits.batch_bytes_max // 4:  # one node records all verdicts
            return False
        member = queued.member
        # check: taken-back-though-committed (member is None -> member is None or queued.against)
        before = None if member is None else self.repetition(member)
        if before is not None:  # committed already, whatever else is against it
            self.verdicts.append(Verdict(queued.slot, queued.transaction_id, *before, repeats=True))
            return True
        if queued.against is not None:
            return self.refuse(queued, queued.against)
        if member is None:
            malformed = Refusal("malformed", "Refused", f"the intent is not acceptable: {queued.problem}")
            return self.refuse(queued, malformed)
        judged = self.judge(member)
        if isinstance(judged, Refusal):
            return self.refuse(queued, judged)
        return self.place(queued, judged)

    def refuse(self, queued: Queued, why: Refusal) -> bool:
        """Refuse one slot, with short texts: the refused transaction may have chosen them."""
        refusal = brief(why)
        self.refusal_bytes += len(refusal.message)
        self.verdicts.append(Verdict(queued.slot, queued.transaction_id, refusal=refusal))
        return True


def resolve(decision_input: DecisionInput, *, room: int, jointly: bool = False) -> Decision:
    """Decide the first of the slots, up to the one that would need more than `room` new versions; `jointly` in all tables at once."""
    head, limits = decision_input.head, decision_input.limits
    run = _Resolution(decision_input, room, head)
    last = head.slot
    for queued in decision_input.queue:
        # check: slot-order-is-checked
        # check: slots-are-sorted
        invariant("I3", queued.slot > last or queued.slot == NO_SLOT, f"slot {queued.slot} is not after slot {last}")
        # check: never-with-one-table-alone
        invariant("I11", jointly or queued.joint is None, f"slot {queued.slot} would be decided without the other tables it is about")
        if not run.decide(queued):
            break
        last = max(last, queued.slot)
    after = replace(run.head, slot=last)
    # One node records all of them, beside their verdicts.
    room, plans = limits.batch_bytes_max // 2, []
    for group in run.groups:
        adapted = group.rebased(limits.inline_bytes_max, room, run.objects)
        for each in adapted:
            room -= len(each.actions)
        plans.append(replace(group.plan(), rebased=adapted))
    versions = [p.version for p in plans]
    # check: versions-are-dense
    invariant("I2", versions == list(range(head.version + 1, after.version + 1)), f"versions {versions} after {head.version}")
    return Decision(after, tuple(run.verdicts), tuple(plans), {g.version: tuple(g.members) for g in run.groups}, run.objects)


# -- several tables ----------------------------------------------------------------------------------------------------------

SIBLINGS: Final = "joint-slots"
"""The rule that refuses a transaction that names tables in which it has no slot, or a different one."""


def resolve_joint(parts: Mapping[str, DecisionInput]) -> Mapping[str, Decision]:
    """The decision in each table, by location, for a transaction that is the first undecided one in all; each part is its slot in one."""
    decisions: dict[str, Decision] = {}
    for location, part in parts.items():
        room = part.limits.batch_bytes_max // len(parts)  # all records share one request
        limits = replace(part.limits, batch_bytes_max=room, inline_bytes_max=max(1, min(part.limits.inline_bytes_max, room // 2)))
        decisions[location] = resolve(replace(part, limits=limits), room=1, jointly=True)
    # tables that it only reads have no version of it
    writes = [at for at, part in parts.items() if part.queue[0].member is None or not part.queue[0].member.intent.only_reads]
    # check: joint-committed-before
    if {decisions[at].verdicts[0].repeats for at in writes} == {True}:
        for at, decision in decisions.items():
            [verdict] = decision.verdicts
            if not verdict.repeats:  # what it only read stays valid, whatever was committed there since
                read = Verdict(verdict.slot, verdict.transaction_id, parts[at].head.version, repeats=True)
                decisions[at] = replace(decision, verdicts=(read,))
        return decisions
    against = _objection(decisions)
    if against is not None:
        return {location: refused(part.head, part.queue[0], against) for location, part in parts.items()}
    versions = {location: plan.version for location, decision in decisions.items() for plan in decision.versions}
    return {
        location: replace(decision, versions=tuple([replace(plan, joint=versions) for plan in decision.versions]))
        for location, decision in decisions.items()
    }


def _objection(decisions: Mapping[str, Decision]) -> Refusal | None:
    """Why the transaction cannot be committed in all tables, or None."""
    repeated = {location for location, decision in decisions.items() if decision.verdicts[0].repeats}
    for location, decision in decisions.items():
        refusal = decision.verdicts[0].refusal
        # check: refused-in-one-refused-in-all
        if refusal is not None:
            return replace(refusal, message=f"{location}: {refusal.message}", facts={**refusal.facts, "table": location})
    # check: repeated-in-one-is-said
    if repeated and len(repeated) < len(decisions):
        return Refusal(
            "joint-repeated",
            "ConcurrentTransactionException",
            f"{', '.join(sorted(repeated))}: what this transaction does there was committed before, but not in its other tables",
            facts={"table": min(repeated)},
        )
    return None


def refused(head: Head, queued: Queued, refusal: Refusal) -> Decision:
    """The decision that refuses the first undecided slot, with the full text, in which its tables are named."""
    invariant("I3", queued.slot > head.slot, f"slot {queued.slot} is not after slot {head.slot}")
    return Decision(replace(head, slot=queued.slot), (Verdict(queued.slot, queued.transaction_id, refusal=refusal),), (), {})


def lacks_siblings(location: str, problem: str) -> Refusal:
    """The refusal of a transaction that names one of its tables wrongly."""
    return Refusal(SIBLINGS, "Refused", f"{location}: {problem}; the transaction is not what its slots say", facts={"table": location})
