"""A statement as it was asked for: the session, the text, the parameters, and how to reach the coordinator and the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ..spark_integration.options import default_storage_options
from ..statements.cursor import Name, Span
from ..statements.reading import parameters_in, pointed
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, UnsupportedFeature
from .parameters import literal_of

__all__ = ["Asked", "Edit"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Text to put in the place of `text[start:end]`."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement, and where it is asked."""

    spark: SparkSession
    text: str
    args: Mapping[str, Any] | Sequence[Any] | None
    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None

    @property
    def options(self) -> dict[str, str]:
        """Of the object store."""
        return default_storage_options() if self.storage_options is None else dict(self.storage_options)

    def by_spark(self, edits: Sequence[Edit] = ()) -> DataFrame:
        """Have Spark run the whole text with these edits, and with the parameters that are left in it."""
        return self.spark_sql(self.edited((Span(0, len(self.text)),), edits), self._left(edits))

    def spark_sql(self, text: str, args: Any = None) -> DataFrame:
        """PySpark's own `spark.sql`."""
        return SparkSession.sql(self.spark, text, args)

    def expression(self, span: Span, edits: Sequence[Edit] = ()) -> str:
        """The text of a part with edits, in which parameters are literals."""
        return self.edited((span,), [*edits, *self._bound(span)])[span.start :].strip()

    def query(self, spans: Sequence[Span], edits: Sequence[Edit]) -> DataFrame:
        """The rows of the query in these parts of the text; the other parts are blank, so that Spark's messages have the right lines."""
        bound = [each for span in spans for each in self._bound(span)]
        return self.spark_sql(self.edited(spans, [*edits, *bound]))

    def value(self, span: Span, kind: str) -> Any:
        """What an expression without columns gives as a type of Spark's. Raises InvalidRequest if it is null."""
        [[value]] = self.spark_sql(f"SELECT CAST(({self.expression(span)}) AS {kind})").collect()
        if value is None:
            raise self.refused(span, f"this is null; give a value of type {kind.lower()}")
        return value

    def shown(self, at: Span | Name, message: str) -> str:
        """A message that shows the place."""
        return pointed(self.text, Span(at.start, at.end), message)

    def refused(self, at: Span | Name, message: str) -> InvalidRequest:
        """A refusal that shows the place."""
        return InvalidRequest(self.shown(at, message))

    def unsupported(self, at: Span | Name, message: str, feature: str) -> UnsupportedFeature:
        """A refusal of what sluice does not have, which shows the place."""
        return UnsupportedFeature(self.shown(at, message), features=[feature])

    def edited(self, spans: Sequence[Span], edits: Sequence[Edit]) -> str:
        """The text with edits, in which everything outside of `spans` is blank."""
        parts: list[str] = []
        at = 0
        for span in spans:
            parts.append(_blank(self.text[at : span.start]))
            at = span.start
            for edit in sorted((each for each in edits if span.start <= each.start and each.end <= span.end), key=lambda each: each.start):
                parts += [self.text[at : edit.start], edit.new]
                at = edit.end
            parts.append(self.text[at : span.end])
            at = span.end
        return "".join(parts)

    def _bound(self, span: Span) -> list[Edit]:
        """The parameters in a part, as literals."""
        edits: list[Edit] = []
        for each in parameters_in(self.text):
            if not (span.start <= each.at.start and each.at.end <= span.end):
                continue
            args = self.args
            if each.name is not None and isinstance(args, Mapping) and each.name in args:
                value = args[each.name]
            elif each.name is None and args is not None and not isinstance(args, Mapping) and each.number < len(args):
                value = args[each.number]
            else:
                raise self.refused(each.at, "this parameter has no value: give one in args")
            edits.append(Edit(each.at.start, each.at.end, literal_of(self.spark, value)))
        return edits

    def _left(self, edits: Sequence[Edit]) -> Any:
        """The parameters that Spark still finds in the text; those by name may be more."""
        if self.args is None or isinstance(self.args, Mapping):
            return self.args
        gone = {
            each.number
            for each in parameters_in(self.text)
            if each.name is None and any(edit.start <= each.at.start and each.at.end <= edit.end for edit in edits)
        }
        return [value for number, value in enumerate(self.args) if number not in gone] or None


def _blank(text: str) -> str:
    return "".join(character if character == "\n" else " " for character in text)
