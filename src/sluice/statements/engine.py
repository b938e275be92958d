"""What an engine does for statements: queries, and the rows that statements write. `run` does all the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ..tables.table import Table
from ..tables.transaction import Transaction
from ..tables.write.merging import RowCounts
from .definitions import Definition
from .parse.maintenance import Optimize
from .parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from .parse.reading import Malformed, Statement
from .parse.rows import Delete, Insert, Merge, Update
from .parse.tables import Create, Like, ShowTables
from .reports import Answer
from .request import Place, Request
from .sources import Source

R = TypeVar("R", bound=Request)
T = TypeVar("T")
R_contra = TypeVar("R_contra", bound=Request, contravariant=True)
T_co = TypeVar("T_co", covariant=True)

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


class Engine(Protocol[R_contra, T_co]):
    """An engine: `R_contra` are its requests, `T_co` is its result, a DataFrame or an Arrow table."""

    def result(self, request: R_contra, answer: Answer, /) -> T_co:
        """The answer as the engine's result."""
        ...

    def carry_out(self, request: R_contra, statement: Statement, /) -> T_co:
        """The result of a query, or of a statement that is not about a table of sluice. It may read such tables."""
        ...

    def about_names(self, request: R_contra, statement: AboutNames, /) -> T_co:
        """The result of a statement about names, which may be the engine's own too."""
        ...

    def creates(self, request: R_contra, statement: Create | Malformed, /) -> bool:
        """Whether a CREATE TABLE makes a table of sluice. Raises UnsupportedFeature if it does not, and the engine makes no other."""
        ...

    def create_with_rows(self, request: R_contra, statement: Create, definition: Definition, place: Place | None, /) -> None:
        """Create a table with the rows of its query, or replace the one at the place."""
        ...

    def insert(self, request: R_contra, statement: Insert, part: Transaction, table: Table, sources: Sequence[Source], /) -> None:
        """Add or replace rows in an open transaction; `sources` are the tables that the query reads."""
        ...

    def change(self, request: R_contra, statement: RowChange, part: Transaction, sources: Sequence[Source], /) -> RowCounts:
        """Change rows in an open transaction; `sources` are the tables that the statement reads."""
        ...

    def sought(self, request: R_contra, statement: RowChange | Optimize, table: Table, /) -> str:
        """What is known of the rows that a statement looks for, as a condition. Nothing is run; columns are checked."""
        ...

    def new_rows(self, request: R_contra, statement: Insert, table: Table, /) -> NewRows:
        """What is known of the rows that an INSERT would write. Nothing is written."""
        ...
