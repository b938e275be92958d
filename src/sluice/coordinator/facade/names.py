"""Names of tables, for the floors above."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ...storage.errors import SluiceError, TableNotFound
from ..catalog import dropped
from ..catalog.dropped import (
    dropped_as,
    dropped_tables,
    hand_to_removal,
    reopen,
    require_not_dropped,
    strike_out,
)
from ..catalog.meaning import Found, Home, look_at
from ..catalog.names import TableName, check_namespace
from ..catalog.namespaces import (
    alter_namespace,
    create_namespace,
    drop_namespace,
    names_in,
    namespace,
    namespaces,
    root_of,
    set_root,
)
from ..catalog.naming import NewName, claim_name, make_named, register, rename, require_table, take_back, unname
from ..errors import OutcomeUnknown
from ..nodes.catalog_records import DroppedRecord, NameRecord, NamespaceRecord
from ..nodes.identity import owner_of
from ..service.connect import connect
from .table import CoordinatedTable, of_table

__all__ = [
    "DroppedRecord",
    "Found",
    "Home",
    "NameRecord",
    "NamespaceRecord",
    "NewName",
    "TableName",
    "alter_namespace",
    "check_namespace",
    "claim_name",
    "close_named",
    "create_namespace",
    "drop_namespace",
    "dropped_as",
    "dropped_tables",
    "find",
    "hand_to_removal",
    "home_of",
    "make_with_name",
    "names_in",
    "namespace",
    "namespaces",
    "register",
    "rename",
    "reopen",
    "root_of",
    "set_root",
    "strike_out",
    "taken_back_on_failure",
    "unname",
]

close_named = of_table(dropped.close_named)

_log = logging.getLogger(__name__)


def home_of(coordinator: str | None) -> Home:
    """The names at a coordinator. Raises CoordinatorUnavailable."""
    connect(coordinator)
    return Home(partial(connect, coordinator))


def find(home: Home, name: TableName) -> Found:
    """The table or view of a name, with its record. Raises NamespaceNotFound, TableNotFound; TableDropped if it can be brought back."""
    [found] = home.fresh(lambda session: look_at(session, name))
    try:
        require_table(found)
    except TableNotFound:
        require_not_dropped(home, name)
        raise
    return found


def make_with_name(table: CoordinatedTable, new: NewName) -> None:
    """Make a new table's nodes together with its name. Raises NamespaceNotFound, TableExists."""
    owner = owner_of(table.context.new_transaction_id())
    make_named(table.context, new, creator="" if owner is None else owner.path)


@contextmanager
def taken_back_on_failure(table: CoordinatedTable, new: NewName | None) -> Iterator[None]:
    """Take the new table's name back if the block fails and no version of the table was ratified.

    Nothing is taken back while the outcome of the first version is unknown: the name goes with it, or is taken back by the
    next client that wants it once this one is gone.
    """
    try:
        yield
    except OutcomeUnknown:
        raise
    except BaseException:
        if new is not None:
            try:
                take_back(table.context, new)
            except SluiceError as trouble:
                _log.warning("the name %s, of a table that was not created, was not taken back: %s", new.name, trouble)
        raise
