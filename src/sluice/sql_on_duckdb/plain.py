"""A request to carry out a statement without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pyarrow as pa

from ..sql_plain.request import Edit, Request
from ..statements.cursor import Name, Span
from ..storage.dataclass import dataclass
from ..storage.errors import UnsupportedFeature
from ..storage.expressions.render import literal_sql
from ..storage.schema.datatypes import StructType
from .engine import needs_spark, run


@dataclass(frozen=True, slots=True)
class Plain(Request):
    """A statement. Queries that would read more than `max_bytes` of data files are left to Spark (None: none is)."""

    text: str
    args: Mapping[str, Any] | Sequence[Any] | None = None
    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None
    max_bytes: int | None = None
    if_version: int | None = None

    @property
    def options(self) -> dict[str, str]:
        """Of the object store."""
        return dict(self.storage_options or {})

    def check_columns(self, schema: StructType) -> None:
        """Nothing: the tables' own checks are all there are."""

    def literal(self, value: Any) -> str:
        """The value of a parameter as sluice's own expressions take it."""
        return literal_sql(value, pa.scalar(value).type)

    def cast(self, span: Span, kind: str) -> Any:
        """What an expression without columns gives as a type of Spark's; None for null."""
        return self._evaluated(span, f"CAST({{}} AS {kind})")

    def selected(self, columns: Span, rows: pa.Table) -> pa.Table:
        """What SELECT with these columns gives of rows."""
        edits, values = self.placed((columns,))
        text = self.edited((columns,), edits)[columns.start :]
        return run(self, columns, f"SELECT {text} FROM __sluice_rows", values, {"__sluice_rows": rows})  # noqa: S608 - bound

    def milliseconds(self, span: Span) -> int:
        """Milliseconds since the epoch, from an expression that gives a time or a text of one, in the machine's time zone."""
        try:
            at = self._evaluated(span, "TRY_CAST({} AS TIMESTAMP)")
            if isinstance(at, datetime):
                return int(at.timestamp() * 1000)
        except (OverflowError, ValueError) as error:
            raise self.beyond_years(span) from error
        raise self.refused(span, "this is no time; write it as '2026-01-31' or '2026-01-31 13:00:00'")

    def _evaluated(self, span: Span, form: str) -> Any:
        edits, values = self.placed((span,))
        text = form.format(f"({self.edited((span,), edits)})")
        return run(self, span, f"SELECT {text} AS value", values, {}).column(0)[0].as_py()

    def placed(self, spans: Sequence[Span], besides: Sequence[Span] = ()) -> tuple[list[Edit], dict[str, Any]]:
        """Names for the parameters in these parts, by which the engine binds them, and their values; none for those in `besides`."""
        found = [(at, value) for span in spans for at, value in self.parameters(span)]
        found = [(at, value) for at, value in found if not any(each.start <= at.start < each.end for each in besides)]
        edits = [Edit(at.start, at.end, f":__sluice_{number}") for number, (at, _) in enumerate(found)]
        return edits, {f"__sluice_{number}": value for number, (_, value) in enumerate(found)}

    def needs_spark(self, at: Span | Name, why: str) -> UnsupportedFeature:
        """The refusal of what only Spark can carry out."""
        return needs_spark(self, at, why)


@contextmanager
def filled_in(asked: Plain, at: Span | Name) -> Iterator[None]:
    """A default or a generated column that only Spark evaluates makes a statement Spark's."""
    try:
        yield
    except UnsupportedFeature as error:
        if not {*error.features} <= {"allowColumnDefaults", "generatedColumns"}:
            raise
        raise asked.needs_spark(at, error.message) from error
