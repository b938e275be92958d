"""Two concurrent transactions withdraw an airline: they delete different rows of the same files, and both succeed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from ..coordinator.facade.values import Commit
from ..tables.table import Table
from .flights import WITHDRAWN
from .workspace import Workspace

APPLICATION = "withdrawals"


def withdraw(place: Workspace) -> list[Commit]:
    """Begin both transactions on one version, let each delete its rows, and commit them concurrently."""
    with ExitStack() as opened:
        tables = [opened.enter_context(_open(place)) for _ in WITHDRAWN]
        version = tables[0].version
        begun = [table.begin(read_version=version) for table in tables]
        for transaction, where in zip(begun, WITHDRAWN, strict=True):
            transaction.delete(where)
        with ThreadPoolExecutor(len(begun)) as pool:
            commits = list(pool.map(lambda transaction: transaction.commit(), begun))
    return [commit for commit in commits if commit is not None]


def _open(place: Workspace) -> Table:
    return Table.open(place.location, coordinator=place.coordinator, storage_options=place.storage_options, application=APPLICATION)
