"""A request to carry out a statement without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from datetime import datetime
from typing import Any, ClassVar

import pyarrow as pa

from ...storage.dataclass import dataclass
from ...storage.errors import UnsupportedFeature
from ...storage.expressions.render import literal_sql
from ...storage.schema.datatypes import StructType
from ..parse.cursor import Name, Span
from ..places import known_place
from ..request import Edit, Locks, Place
from .database import Connected, bound_name, needs_spark, run


@dataclass(frozen=True, slots=True)
class LocalRequest(Connected):
    """A statement that this process carries out."""

    text: str
    args: Mapping[str, Any] | Sequence[Any] | None = None
    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None
    max_bytes: int | None = None
    """Queries that would read more bytes of data files are left to Spark; None: no query is."""
    session_locks: Locks | None = field(default=None, repr=False)
    if_version: int | None = None
    connections: list[Any] = field(default_factory=list, repr=False, compare=False)
    has_only_sluice: ClassVar[bool] = True

    @property
    def options(self) -> dict[str, str]:
        """Of the object store."""
        return dict(self.storage_options or {})

    @property
    def locks(self) -> Locks:
        """The leases of the session."""
        if self.session_locks is None:
            raise self.unsupported(Span(0, len(self.text)), "a lock belongs to a session, and this call has none", "sessions")
        return self.session_locks

    def under_locks(self) -> AbstractContextManager[None]:
        """What this thread commits in the block depends on the leases of the session."""
        return nullcontext() if self.session_locks is None else self.session_locks.bound()

    def place_of(self, name: Name) -> Place | None:
        """Where the table is; None for an unknown name."""
        return known_place(self, name)

    def is_own(self, name: Name) -> bool:
        """Never: DuckDB has no tables of its own here."""
        return False

    def check_columns(self, schema: StructType) -> None:
        """Nothing: the tables' own checks are all there are."""

    def literal(self, value: Any) -> str:
        """The value of a parameter as sluice's own expressions take it."""
        return literal_sql(value, pa.scalar(value).type)

    def evaluate(self, span: Span, kind: str | None = None) -> Any:
        """What an expression without columns gives, as a type of Spark's if one is given; None for null."""
        text = self.sql((span,)) if kind is None else f"CAST({self.sql((span,))} AS {kind})"
        return run(self, span, f"SELECT ({text}) AS value").column(0)[0].as_py()

    def selected(self, columns: Span, rows: pa.Table) -> pa.Table:
        """What SELECT with these columns gives of rows."""
        return run(self, columns, f"SELECT {self.sql((columns,))} FROM __sluice_rows", {"__sluice_rows": rows})  # noqa: S608 - bound

    def milliseconds(self, span: Span, text: str | None = None) -> int:
        """Milliseconds since the epoch, of what DuckDB casts to a time, in the machine's time zone."""
        value = f"({self.sql((span,))})" if text is None else text
        try:
            at = run(self, span, f"SELECT TRY_CAST({value} AS TIMESTAMP) AS value").column(0)[0].as_py()
            if isinstance(at, datetime):
                return int(at.timestamp() * 1000)
        except (OverflowError, ValueError) as error:
            raise self.beyond_years(span) from error
        raise self.no_time(span)

    def sql(self, spans: Sequence[Span], edits: Sequence[Edit] = ()) -> str:
        """These parts of the text with edits, in which parameters have the names by which `run` binds their values."""
        names = [Edit(at.start, at.end, f":{bound_name(at)}") for span in spans for at, _ in self.parameters(span)]
        return self.edited(spans, [*edits, *names])[spans[0].start :].strip()

    def needs_spark(self, at: Span | Name, why: str) -> UnsupportedFeature:
        """The refusal of what only Spark can carry out."""
        return needs_spark(self, at, why)


@contextmanager
def filled_in(request: LocalRequest, at: Span | Name) -> Iterator[None]:
    """A default or a generated column that only Spark evaluates makes a statement Spark's."""
    try:
        yield
    except UnsupportedFeature as error:
        if not {*error.features} <= {"allowColumnDefaults", "generatedColumns"}:
            raise
        raise request.needs_spark(at, error.message) from error
