"""What an engine does for statements: queries, and the rows that statements write. `run` does all the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from ..storage.dataclass import dataclass
from ..tables.table import Table
from ..tables.transaction import Transaction
from ..tables.write.merging import RowCounts
from .definitions import Definition
from .parse.maintenance import Optimize
from .parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from .parse.reading import Malformed, Statement
from .parse.rows import Delete, Insert, Merge, Update
from .parse.tables import Create, Like, ShowTables
from .places import Source
from .request import Answer, Place, Request

R = TypeVar("R", bound=Request)
T = TypeVar("T")

RowChange: TypeAlias = Update | Delete | Merge
AboutNames: TypeAlias = CreateNamespace | DropNamespace | ShowNamespaces | ShowTables | Comment | Like


class NewRows(NamedTuple):
    """The rows that an INSERT would write: conditions in SQL over the table's rows, of which "" is true for any row."""

    adds: str
    """A condition that the new rows satisfy."""
    replaces: str | None
    """The condition of the rows that they replace; None for none."""
    reads: str | None
    """The condition of the rows of the table itself that its query reads; None for none."""


@dataclass(frozen=True)
class Engine(Generic[R, T]):
    """The functions of an engine: `R` are its requests, `T` is its result, a DataFrame or an Arrow table."""

    result: Callable[[R, Answer], T]
    """The answer as the engine's result."""
    carry_out: Callable[[R, Statement], T]
    """The result of a query, or of a statement that is not about a table of sluice. It may read such tables."""
    about_names: Callable[[R, AboutNames], T]
    """The result of a statement about names, which may be the engine's own too."""
    creates: Callable[[R, Create | Malformed], bool]
    """Whether a CREATE TABLE makes a table of sluice. Raises UnsupportedFeature if it does not, and the engine makes no other."""
    create_with_rows: Callable[[R, Create, Definition, Place | None], None]
    """Create a table with the rows of its query, or replace the one at the place."""
    insert: Callable[[R, Insert, Transaction, Table, Sequence[Source]], None]
    """Add or replace rows in an open transaction; the sources are the tables that the query reads."""
    change: Callable[[R, RowChange, Transaction, Sequence[Source]], RowCounts]
    """Change rows in an open transaction; the sources are the tables that the statement reads."""
    sought: Callable[[R, RowChange | Optimize, Table], str]
    """What is known of the rows that a statement looks for, as a condition. Nothing is run; columns are checked."""
    new_rows: Callable[[R, Insert, Table], NewRows]
    """What is known of the rows that an INSERT would write. Nothing is written."""
