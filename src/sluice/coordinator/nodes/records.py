"""Records: the contents of a table's nodes, with a JSON codec.

Every record has what a later client needs to decide or to publish on its own, and the number of its format. A record of a
known format has known fields only; a client leaves a record with a higher number to a newer release (formats.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

import orjson

from ...storage.actions.texts import Text, sha256
from ...storage.dataclass import dataclass
from ...version import ENGINE
from ..errors import UnknownFormat
from ..fields import MalformedRecord, load, maybe_int, require_known, typed
from ..formats import BATCH_FORMAT, HEAD_FORMAT, INTENT_FORMAT, PUBLISHED_FORMAT, RENDERING, require_format
from ..rules.intent import Intent
from ..rules.refusal import Refusal

__all__ = [
    "NO_SLOT",
    "BatchRecord",
    "Head",
    "Published",
    "Rebased",
    "Rendering",
    "Verdict",
    "VersionPlan",
    "digest",
    "is_batch",
    "read_intent",
]


NO_SLOT: Final = -1
"""The slot of a transaction that has none."""


def digest(data: Text) -> str:
    """The SHA-256 of `data`, in hex: identifies ratified content (I5)."""
    return sha256(data)


@dataclass(frozen=True, slots=True)
class Head:
    """The decided state of a table: everything a decision needs to know without reading the log.

    `version` is the last ratified one (-1 before the first); `slot` the last decided slot of `generation`; `timestamp_ms`
    that version's in-commit timestamp; `metadata_version` the last version that changed metadata or protocol; `table_id`
    Delta's id of the table; `row_ids` the highest row id given so far (-1: none), None if the table does not track rows.
    `intents` is the highest format of intents that the table's writers file: an intent of a higher format is refused.
    """

    version: int = -1
    generation: int = 0
    slot: int = -1
    timestamp_ms: int = 0
    metadata_version: int = -1
    table_id: str = ""
    detached: bool = False
    row_ids: int | None = None
    intents: int = INTENT_FORMAT
    format: int = HEAD_FORMAT

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Head:
        """From JSON; raises MalformedRecord, UnknownFormat."""
        f = load(data, "head")
        require_format(f, HEAD_FORMAT, "head")
        require_known(f, Head, "head")
        numbers = {n: typed(f.get(n), int, f"head.{n}") for n in ("version", "generation", "slot", "timestamp_ms", "metadata_version")}
        return Head(
            **numbers,
            table_id=typed(f.get("table_id"), str, "head.table_id"),
            detached=bool(f.get("detached")),
            row_ids=maybe_int(f.get("row_ids"), "head.row_ids"),
            intents=typed(f.get("intents"), int, "head.intents"),
        )


@dataclass(frozen=True, slots=True)
class Published:
    """How far publication got: `version` is in the log, and every slot up to (`generation`, `slot`) is finished.

    Finished slots are removed together with raising this; a slot of a closed generation that still exists was created too
    late. `record` names the verdict record of the batch published last. `commits` repeats what that record says of the
    batch's committed slots, so that their owners need not read it: by transaction id the slot, the version, the ordinal and
    the version's timestamp. It may omit any of them; the record has them all.
    """

    version: int = -1
    generation: int = 0
    slot: int = -1
    record: str = ""
    commits: Mapping[str, list[int]] = field(default_factory=dict)
    format: int = PUBLISHED_FORMAT

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> Published:
        """From JSON; raises MalformedRecord, UnknownFormat."""
        f = load(data, "published")
        require_format(f, PUBLISHED_FORMAT, "published")
        require_known(f, Published, "published")
        numbers = {n: typed(f.get(n), int, f"published.{n}") for n in ("version", "generation", "slot")}
        return Published(**numbers, record=str(f.get("record", "")), commits=typed(f.get("commits", {}), dict, "published.commits"))

    def covers(self, generation: int, slot: int) -> bool:
        """Whether a decided slot is published, too (or was refused, and the refusal is recorded)."""
        return (self.generation, self.slot) >= (generation, slot)

    def commit_of(self, transaction_id: str) -> tuple[int, int, int, int] | None:
        """Slot, version, ordinal and timestamp of a transaction of the last published batch; None if `commits` omits it."""
        place = self.commits.get(transaction_id)
        if place is None:
            return None
        what = f"published.commits[{transaction_id!r}]"
        numbers = [typed(number, int, what) for number in typed(place, list, what)]
        if len(numbers) != 4:
            raise MalformedRecord(f"{what} has {len(numbers)} numbers, not 4", kind="published")
        slot, version, ordinal, timestamp_ms = numbers
        return slot, version, ordinal, timestamp_ms


def read_intent(data: bytes, head: Head) -> Intent:
    """The intent in an undecided slot.

    Raises MalformedRecord, also for a format that no writer of the table files according to its head; UnknownFormat for one
    that only newer releases file.
    """
    try:
        intent = Intent.decode(data)
    except UnknownFormat as unknown:
        # check: formats-are-admitted (always)
        if unknown.found <= head.intents:
            raise
        raise _not_admitted(unknown.found, head) from unknown
    if intent.format > head.intents:
        raise _not_admitted(intent.format, head)
    return intent


def _not_admitted(number: int, head: Head) -> MalformedRecord:
    text = f"intent.format is {number}, and no writer of this table files a higher one than {head.intents}"
    return MalformedRecord(text, kind="intent")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one slot: committed as (`version`, `ordinal`), or refused; `repeats` if it was committed before."""

    slot: int
    transaction_id: str
    version: int = -1
    ordinal: int = -1
    refusal: Refusal | None = None
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Rebased:
    """A slot's actions after they were adapted to commits that came first; `what` describes the change.

    The actions are in `actions`, or in the object `staged`; `digest` is their SHA-256.
    """

    slot: int
    what: tuple[str, ...]
    actions: str = ""
    staged: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """One ratified version: its slots in the order of their actions, its in-commit timestamp and its digest.

    `rebased` replaces the actions of a slot's intent; `first_row_id` is where the row ids of its new files begin, None in a
    table that does not track rows. `joint` has, by location, the versions that were ratified together in several tables, its
    own included.
    """

    version: int
    timestamp_ms: int
    slots: tuple[int, ...]
    digest: str = ""
    rebased: tuple[Rebased, ...] = ()
    first_row_id: int | None = None
    joint: Mapping[str, int] | None = None

    @staticmethod
    def of(fields: Mapping[str, Any]) -> VersionPlan:
        """From the JSON object; raises KeyError or TypeError if it is malformed."""
        rebased = tuple(Rebased(**{**r, "what": tuple(r["what"])}) for r in fields.get("rebased", ()))
        return VersionPlan(**{**fields, "slots": tuple(fields["slots"]), "rebased": rebased})


@dataclass(frozen=True, slots=True)
class Rendering:
    """What a version's bytes depend on besides its plan and its transactions, as recorded by its ratifier.

    `ratified_ms` is the ratifier's wall clock (shown, never decided on), `engine` the name it signs versions with, `number`
    the number of the rendering. A client that helps to publish takes all of it from here, and nothing from its own process.
    """

    ratified_ms: int
    engine: str = ENGINE
    number: int = RENDERING

    @staticmethod
    def of(value: object) -> Rendering:
        """From the JSON object; raises MalformedRecord. This release may not know the number."""
        f = typed(value, dict, "verdict.rendering")
        require_known(f, Rendering, "verdict.rendering")
        return Rendering(
            typed(f.get("ratified_ms"), int, "verdict.rendering.ratified_ms"),
            typed(f.get("engine"), str, "verdict.rendering.engine"),
            typed(f.get("number"), int, "verdict.rendering.number"),
        )


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What one ratifying multi decided, and how its versions are rendered.

    `closes_generation`: it was the generation's last batch; slots that arrive there later are not decided there. `direct` is
    the intent of a transaction that was ratified without a slot; its verdict and version name slot NO_SLOT.
    """

    batch_id: str
    generation: int
    rendering: Rendering
    verdicts: tuple[Verdict, ...]
    versions: tuple[VersionPlan, ...]
    closes_generation: bool = False
    direct: str = ""
    format: int = BATCH_FORMAT

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps(self)

    @staticmethod
    def decode(data: bytes) -> BatchRecord:
        """From JSON; raises MalformedRecord, UnknownFormat."""
        f = load(data, "verdict")
        require_format(f, BATCH_FORMAT, "verdict")
        require_known(f, BatchRecord, "verdict")
        try:
            return BatchRecord(
                batch_id=f["batch_id"],
                generation=f["generation"],
                rendering=Rendering.of(f["rendering"]),
                verdicts=tuple(
                    Verdict(**{**v, "refusal": None if v.get("refusal") is None else Refusal(**v["refusal"])}) for v in f["verdicts"]
                ),
                versions=tuple(VersionPlan.of(v) for v in f["versions"]),
                closes_generation=bool(f.get("closes_generation", False)),
                direct=typed(f.get("direct", ""), str, "verdict.direct"),
                format=f["format"],
            )
        except (KeyError, TypeError) as error:
            raise MalformedRecord(f"a verdict record lacks or misnames a field: {error}", kind="verdict") from error

    @property
    def last_version(self) -> int | None:
        """The highest version this batch ratified, or None if it only refused."""
        return self.versions[-1].version if self.versions else None

    def commits(self, most: int) -> dict[str, list[int]]:
        """Up to `most` of its committed slots, in the form of `Published.commits`."""
        timestamps = {plan.version: plan.timestamp_ms for plan in self.versions}
        # check: published-tells-of-commits-only (without and not v.repeats)
        committed = [v for v in self.verdicts if v.slot != NO_SLOT and v.refusal is None and not v.repeats and v.version in timestamps]
        return {v.transaction_id: [v.slot, v.version, v.ordinal, timestamps[v.version]] for v in committed[:most]}

    def verdict_of(self, slot: int) -> Verdict | None:
        """The verdict of one slot, or None if this batch did not decide it."""
        return next((v for v in self.verdicts if v.slot == slot), None)


def is_batch(data: bytes, batch_id: str) -> bool:
    """Whether a verdict record is this batch's, whatever its format."""
    return bool(load(data, "verdict").get("batch_id") == batch_id)
