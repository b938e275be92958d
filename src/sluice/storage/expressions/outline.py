"""What an expression is made of, whether or not it can be evaluated here: columns, functions, constructs that are not of one row."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from ..dataclass import dataclass
from ..errors import PredicateError
from .functions import AGGREGATES, NOT_DETERMINISTIC
from .parse import trees

__all__ = ["Outline", "outline_of"]

_CLOCKS: Final = frozenset({"current_timestamp", "current_date", "now", "curdate", "localtimestamp"})


@dataclass(frozen=True, slots=True)
class Outline:
    """The first parts of the names of its columns; and the words of what has no value that is the same for everybody (`changing`), or is
    not made of one row (`several`).
    """

    columns: frozenset[str]
    changing: tuple[str, ...]
    several: tuple[str, ...]


def outline_of(text: str, *, clock: bool) -> Outline:
    """The outline of an expression in Spark SQL. Raises PredicateError if the text is no expression.

    `clock`: the functions that return the time are allowed.
    """
    found = trees(text, "expression")
    if len(found) != 1 or found[0] is None:
        raise PredicateError(f"{text!r} is not exactly one expression; write one", expression=text)
    columns: set[str] = set()
    changing: list[str] = []
    several: list[str] = []
    for node in found[0].walk():
        if isinstance(node, exp.Column):
            first = node.parts[0]
            name = str(getattr(first, "name", first))
            if not (len(node.parts) == 1 and not node.this.quoted and name.lower() in _CLOCKS):
                columns.add(name)
            elif not clock:
                changing.append(name)
        elif isinstance(node, (exp.Subquery, exp.Select, exp.Exists)):
            several.append("a subquery")
        elif isinstance(node, exp.Window):
            several.append("a window function")
        elif (name := _function(node)) in AGGREGATES:
            several.append(f"the aggregate {name}")
        elif name in NOT_DETERMINISTIC and not (clock and name in _CLOCKS):
            changing.append(name)
    return Outline(frozenset(columns), tuple(changing), tuple(several))


def _function(node: Any) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
