"""A request to carry out a statement: its text, its parameters, how to reach the coordinator and the store, and the session's leases.
The answer: rows with Delta's column names and types.

The thread that locks tables commits under the lease, by whatever way it writes; so do the session's statements in other threads.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import field
from datetime import datetime, timezone
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa

from ..coordinator.api import Lease, LeaseOn, leases
from ..storage.caches import ForkSafeLock
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, SluiceError, UnsupportedFeature
from ..storage.expressions.parse import beyond_limits
from ..storage.schema.datatypes import StructType
from ..storage.schema.sqltypes import parse_sql_type
from ..tables.write.merging import RowCounts
from ..tables.write.terms import ChangeArgs
from .parse.cursor import Name, Span, position
from .parse.reading import parameters_in, pointed


@dataclass(frozen=True, slots=True)
class LockedTable:
    """A table that a lock covers."""

    location: str
    name: str
    """Its name in the statement."""
    mode: str
    condition: str | None
    """What of it is locked; None for all."""


@dataclass(frozen=True, slots=True)
class SessionLock:
    """What one LOCK TABLE took."""

    lease: Lease
    tables: tuple[LockedTable, ...]
    thread: int
    """The thread that ran it, which commits under the lease by itself."""

    @property
    def rows(self) -> list[tuple[str, str, str | None, int]]:
        """One row for each table: name, mode, condition, token."""
        return [(each.name, each.mode, each.condition, self.lease.token) for each in self.tables]


class Locks:
    """The leases of one session."""

    def __init__(self) -> None:
        self._locks: list[SessionLock] = []
        self._guard = ForkSafeLock()

    def take(self, requests: Sequence[tuple[LeaseOn, LockedTable]], wait_s: float | None) -> SessionLock:
        """Wait for leases, all in one request, and keep them."""
        lease = leases([request for request, _ in requests], wait_s=wait_s)
        lock = SessionLock(lease, tuple(table for _, table in requests), threading.get_ident())
        with self._guard:
            self._locks.append(lock)
        return lock

    def covering(self, locations: Collection[str]) -> list[SessionLock]:
        """Those that cover one of the tables at these locations; all, if there are none."""
        with self._guard:
            return [lock for lock in self._locks if not locations or any(each.location in locations for each in lock.tables)]

    def release(self, locks: Collection[SessionLock] | None = None) -> None:
        """End these, or all because the session ends. Raises LeaseLost, after it ended them, if one of these was lost before."""
        with self._guard:
            ending = [each for each in self._locks if locks is None or each in locks]
            self._locks = [each for each in self._locks if each not in ending]
        with ExitStack() as stack:
            for each in ending:
                if locks is None:
                    each.lease.release()
                else:
                    stack.enter_context(each.lease)

    @contextmanager
    def bound(self) -> Iterator[None]:
        """What this thread commits in the block depends on all of the session's locks, also those that another thread took."""
        with self._guard:
            others = [lock.lease for lock in self._locks if lock.thread != threading.get_ident()]
        with ExitStack() as stack:
            for lease in others:
                stack.enter_context(lease.bind())
            yield


Refusal = TypeVar("Refusal", bound=SluiceError)
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
_NO_LINE_END: Final = re.compile(r"[^\n]")


@dataclass(frozen=True, slots=True)
class Edit:
    """Text to put in the place of `text[start:end]`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Place:
    """A table's location, and how to reach it."""

    location: str
    coordinator: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    name: str | None = None
    """The name by which a statement means the table; None if it means it by its location."""


class Request(ABC):
    """A statement; each engine adds whose a name is, and how it evaluates expressions."""

    __slots__ = ()

    text: str
    args: Mapping[str, Any] | Sequence[Any] | None
    coordinator: str | None
    if_version: int | None
    """The version after which the statement is to commit; None: any."""
    has_only_sluice: ClassVar[bool] = False
    """Whether there are no tables but sluice's."""

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """Of the object store."""

    @property
    @abstractmethod
    def locks(self) -> Locks:
        """The leases of the session, to take and to release some. Raises UnsupportedFeature outside of a session."""

    @abstractmethod
    def under_locks(self) -> AbstractContextManager[None]:
        """What this thread commits in the block depends on the leases of the session."""

    @property
    def terms(self) -> ChangeArgs:
        """The terms of a statement's commit."""
        return {"if_version": self.if_version}

    @property
    def has_delta_lake(self) -> bool:
        """Whether the engine has Delta Lake's own statements."""
        return False

    def setting(self, name: str, default: str) -> str:
        """A setting of the session, in lower case."""
        return default

    @abstractmethod
    def place_of(self, name: Name) -> Place | None:
        """Where the table of a name is, if it is one of sluice's; None if the name is the engine's own, or unknown."""

    def is_own(self, name: Name) -> bool:
        """Whether the engine has a table or a view of its own of this name."""
        return False

    def check_columns(self, schema: StructType) -> None:  # noqa: B027 - tables have their own checks
        """Raise what the engine has against the defaults and generated columns of a schema."""

    @abstractmethod
    def literal(self, value: Any) -> str:
        """The value of a parameter as text in Spark's SQL, which nothing in the value can end."""

    @abstractmethod
    def evaluate(self, span: Span, kind: str | None = None) -> Any:
        """What an expression without columns gives, as a type of Spark's if one is given; None for null."""

    @abstractmethod
    def selected(self, columns: Span, rows: pa.Table) -> pa.Table:
        """What SELECT with these columns gives of rows."""

    @abstractmethod
    def instant(self, span: Span, text: str | None) -> float | None:
        """What `milliseconds` gives, which may be beyond all years; None for what is no time."""

    def milliseconds(self, span: Span, text: str | None = None) -> int:
        """Milliseconds since the epoch, from an expression that gives a time or a text of one, in the session's time zone.

        `text` is a literal to take instead of the expression. Raises InvalidRequest, with the place, for what is no time.
        """
        at = self.instant(span, text)
        if at is None:
            raise self.refused(span, "this is no time; write it as '2026-01-31' or '2026-01-31 13:00:00'")
        if not _YEAR_1_MS <= at < _YEAR_10000_MS:
            raise self.refused(span, "this time is not within the years 1 to 9999; write one like '2026-01-31 13:00:00'")
        return int(at)

    def expression(self, span: Span, edits: Sequence[Edit] = ()) -> str:
        """The text of a part with edits, in which parameters are literals. Raises InvalidRequest for one that is too large to be read."""
        text = self.edited((span,), [*edits, *self.bound(span)])[span.start :].strip()
        if (why := beyond_limits(text)) is not None:
            raise self.refused(span, f"this expression cannot be read: {why}")
        return text

    def condition(self, span: Span, schema: StructType, what: str) -> str:
        """A condition over a table's columns as sluice evaluates it; `what` it is of a statement."""
        return self.expression(span)

    def value(self, span: Span, kind: str) -> Any:
        """What an expression without columns gives as a type of Spark's. Raises InvalidRequest if it is null."""
        value = self.evaluate(span, kind)
        if value is None:
            raise self.refused(span, f"this is null; give a value of type {kind.lower()}")
        return value

    def moment(self, is_version: bool, value: Span) -> tuple[int | None, int | None]:
        """A version, or a time in milliseconds."""
        return (self.version(value, int(self.value(value, "BIGINT"))), None) if is_version else (None, self.milliseconds(value))

    def version(self, span: Span, version: int) -> int:
        """The version that an expression gave. Raises InvalidRequest for one that no table has."""
        if version < 0:
            raise self.refused(span, f"there is no version {version}; versions begin with 0, DESCRIBE HISTORY lists them")
        return version

    def error(self, kind: type[Refusal], at: Span | Name, message: str, /, **details: Any) -> Refusal:
        """A refusal of that kind whose message shows the place; its attribute `place` has line and column."""
        span = Span(at.start, at.end)
        return kind(pointed(self.text, span, message), **{**details, "place": position(self.text, span)})

    def refused(self, at: Span | Name, message: str) -> InvalidRequest:
        """A refusal that shows the place."""
        return self.error(InvalidRequest, at, message)

    def unsupported(self, at: Span | Name, message: str, feature: str) -> UnsupportedFeature:
        """A refusal of what sluice does not have, which shows the place."""
        return self.error(UnsupportedFeature, at, message, features=[feature])

    def edited(self, spans: Sequence[Span], edits: Sequence[Edit]) -> str:
        """The text with edits, in which everything outside of `spans` is blank."""
        parts: list[str] = []
        at = 0
        for span in spans:
            parts.append(_NO_LINE_END.sub(" ", self.text[at : span.start]))
            at = span.start
            for edit in sorted([each for each in edits if span.start <= each.start and each.end <= span.end], key=attrgetter("start")):
                if edit.start >= at:  # a parameter in what another edit replaced is gone
                    parts += [self.text[at : edit.start], edit.new]
                    at = edit.end
            parts.append(self.text[at : span.end])
            at = span.end
        return "".join(parts)

    def bound(self, span: Span) -> list[Edit]:
        """The parameters in a part, as literals."""
        return [Edit(at.start, at.end, self.literal(value)) for at, value in self.parameters(span)]

    def parameters(self, span: Span) -> list[tuple[Span, Any]]:
        """The places of the parameters in a part, with their values. Raises InvalidRequest for one without."""
        values: list[tuple[Span, Any]] = []
        for each in parameters_in(self.text):
            if not (span.start <= each.at.start and each.at.end <= span.end):
                continue
            args = self.args
            if each.name is not None and isinstance(args, Mapping) and each.name in args:
                values.append((each.at, args[each.name]))
            elif each.name is None and args is not None and not isinstance(args, Mapping) and each.number < len(args):
                values.append((each.at, args[each.number]))
            else:
                raise self.refused(each.at, "this parameter has no value: give one in args (sluice sql: --arg name=value)")
        return values


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows, and their columns as SQL writes them: "path string, size bigint"; "" for none."""

    columns: str
    rows: tuple[tuple[Any, ...], ...] = ()

    @property
    def struct(self) -> StructType:
        """The columns as a schema."""
        struct = parse_sql_type(f"struct<{self.columns}>")
        assert isinstance(struct, StructType)
        return struct


NOTHING: Final = Answer("")
"""No row and no column, as VACUUM returns."""

_MERGED: Final = "num_affected_rows bigint, num_updated_rows bigint, num_deleted_rows bigint, num_inserted_rows bigint"


def counted(counts: RowCounts | None, *, merges: bool) -> Answer:
    """How many rows a DELETE or UPDATE changed; of a MERGE, also how. 0 if its key was committed before."""
    counts = counts or RowCounts()
    if not merges:
        return Answer("num_affected_rows bigint", ((counts.affected,),))
    return Answer(_MERGED, ((counts.affected, counts.updated, counts.deleted, counts.inserted),))


def moment(milliseconds: int | None) -> datetime | None:
    """A point in time from milliseconds since the epoch."""
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
