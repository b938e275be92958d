"""`sluice.Catalog`: names of tables, kept by the coordinator and shared by all that use it."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ..coordinator import api
from ..coordinator.api import Timeout
from ..coordinator.errors import CoordinatorUnavailable, NamespaceExists, NamespaceNotEmpty, NamespaceNotFound
from ..storage.arguments import checked
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, SluiceError, TableNotFound
from ..storage.schema.schema import StructType
from ..storage.stores.location import normalise
from ..storage.times import Moment
from .client.open_table import Opening, open_coordinated, open_table
from .manage import creation
from .manage.cloning import CloneArgs, purpose_of
from .manage.creation import NewName, TableArgs
from .manage.dropping import DropReport, drop
from .manage.naming import close_by_name, describe_in_log, give_name, note_name
from .table import Table

if TYPE_CHECKING:
    from typing_extensions import Unpack

_UNSAFE: Final = re.compile(r"[^a-z0-9_-]")
_KEPT_HOURS: Final = 168.0
_HOUR_MS: Final = 3600 * 1000


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace; `location` is where its managed tables are made, None without a root. `created_ms`: ms since 1970, 0 for `default`."""

    name: str
    location: str | None
    comment: str
    properties: Mapping[str, str]
    created_ms: int


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table and its name. `managed`: the catalog chose its location. `named_ms`: when it got this name (ms since 1970)."""

    namespace: str
    name: str
    location: str
    managed: bool
    named_ms: int

    @property
    def full_name(self) -> str:
        """The name with its namespace."""
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A dropped table that can be brought back; `id` names this drop. `deleting`: its data are being deleted, so it cannot."""

    id: str
    namespace: str
    name: str
    location: str
    managed: bool
    dropped_ms: int
    by: str
    deleting: bool

    @property
    def full_name(self) -> str:
        """The name that it had, with its namespace."""
        return f"{self.namespace}.{self.name}"


@checked
class Catalog:
    """The names of a coordinator's tables: namespaces, and tables in them, the same for every client of the coordinator.

    A name is like "sales.orders", or "orders" in the namespace `default`; case does not matter, and the spelling is kept. Each
    change is atomic: of two clients that create, rename or drop one name at once, one succeeds and the other gets an error.
    Thread-safe.
    """

    def __init__(
        self,
        coordinator: str | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        application: str | None = None,
    ) -> None:
        """`root` is the location below which managed tables are made; the coordinator keeps the one that was given first.

        `coordinator`, `storage_options` and `application` mean the same as for `Table.open`. Raises InvalidRequest for another root
        than the coordinator's, CoordinatorUnavailable.
        """
        self._coordinator = coordinator
        self._address = Opening(coordinator, dict(storage_options or {}), application).at
        self._names = api.CatalogClient.at(coordinator)
        if root is not None:
            api.set_root(self._names, _root(root), replacing=False)

    # -- namespaces --------------------------------------------------------------------------------------------------

    @property
    def root(self) -> str | None:
        """The location below which managed tables are made; None if none is set."""
        return api.root_of(self._names) or None

    def set_root(self, root: str | os.PathLike[str]) -> None:
        """Let managed tables be made below another location, for all clients; tables that exist stay where they are."""
        api.set_root(self._names, _root(root), replacing=True)

    def namespaces(self) -> list[Namespace]:
        """All namespaces, by name."""
        root = api.root_of(self._names)
        return [_namespace(each, root) for each in api.list_namespaces(self._names)]

    def namespace(self, name: str) -> Namespace:
        """One namespace. Raises NamespaceNotFound, InvalidName."""
        return _namespace(api.read_namespace(self._names, name), api.root_of(self._names))

    def create_namespace(
        self,
        name: str,
        *,
        comment: str = "",
        properties: Mapping[str, str] | None = None,
        location: str | os.PathLike[str] | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Create a namespace; returns whether it did. Raises NamespaceExists, unless `if_not_exists`; InvalidName.

        Its managed tables are made below `location`, by default in a folder of its name below the root.
        """
        record = api.NamespaceRecord(
            name, "" if location is None else normalise(location), comment, dict(properties or {}), api.SystemClock().now_ms()
        )
        if if_not_exists and any(each.name.lower() == name.lower() for each in api.list_namespaces(self._names)):
            return False
        try:
            api.create_namespace(self._names, record)
        except NamespaceExists:  # another client was faster
            if not if_not_exists:
                raise
            return False
        return True

    def alter_namespace(
        self, name: str, *, comment: str | None = None, properties: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> Namespace:
        """Change a namespace's comment, set some of its properties, remove others; returns it as it is then."""
        changed, removed = dict(properties or {}), frozenset(unset)

        def change(record: api.NamespaceRecord) -> api.NamespaceRecord:
            remaining = {key: value for key, value in {**record.properties, **changed}.items() if key not in removed}
            return replace(record, comment=record.comment if comment is None else comment, properties=remaining)

        return _namespace(api.alter_namespace(self._names, name, change), api.root_of(self._names))

    def drop_namespace(self, name: str, *, cascade: bool = False, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S) -> None:
        """Remove a namespace. Raises NamespaceNotFound; NamespaceNotEmpty if it has tables, without `cascade`.

        With `cascade` it first drops the tables one by one, as `drop` does. If one of them cannot be dropped, those before it stay dropped;
        `undrop` brings them back, with `new_name` into another namespace.
        """
        with api.bounding(timeout_s) as limit:
            for last in (not cascade, False, True):  # others may make a table meanwhile
                try:
                    api.drop_namespace(self._names, name)
                    return
                except NamespaceNotEmpty:
                    if last:
                        raise
                for each in self.tables(name):
                    with suppress(TableNotFound):  # another client dropped it
                        self.drop(each.full_name, timeout_s=limit)

    # -- looking -----------------------------------------------------------------------------------------------------

    def tables(self, namespace: str = "default") -> list[NamedTable]:
        """The tables of a namespace, by name. Raises NamespaceNotFound."""
        return [_table(each) for each in api.list_names(self._names, namespace)]

    def describe(self, name: str) -> NamedTable:
        """The table of a name. Raises TableNotFound, NamespaceNotFound; TableDropped for one that can be brought back."""
        return _table(api.find_name(self._names, api.TableName.parse(name)))

    def locate(self, name: str) -> str:
        """The location of the table of a name, normalised. Raises what `describe` does."""
        return self.describe(name).location

    def exists(self, name: str) -> bool:
        """Whether a name means a table. Raises InvalidName."""
        try:
            self.describe(name)
        except (TableNotFound, NamespaceNotFound):
            return False
        return True

    def open(self, name: str, *, consistency: str = "latest", ack: str = "published", timeout_s: float = api.DEFAULT_TIMEOUT_S) -> Table:
        """Open the table of a name; the arguments are those of `Table.open`. Raises what `describe` and `Table.open` do."""
        with api.bounding(timeout_s):
            return Table(open_table(self._address(self.locate(name)), None, consistency), ack=ack, timeout_s=timeout_s)

    # -- tables come -------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        schema: pa.Schema | StructType,
        *,
        location: str | os.PathLike[str] | None = None,
        allow_nonempty: bool = False,
        ack: str = "published",
        timeout_s: float = api.DEFAULT_TIMEOUT_S,
        **definition: Unpack[TableArgs],
    ) -> Table:
        """Create a table under a name: at `location`, or else in a new folder below its namespace's location (a managed table).

        `comment` is its description; the other arguments are those of `Table.create`. Raises TableExists if the name or the location is
        taken, also for the slower of two clients; NamespaceNotFound; InvalidName; InvalidRequest if no root is set.
        """
        table_name = api.TableName.parse(name)
        table_name = api.TableName(self.namespace(table_name.namespace).name, table_name.name)
        address = self._address(self.new_location(name) if location is None else location)
        with api.bounding(timeout_s) as limit:
            new = creation.new_table(schema, **definition)
            named = NewName(table_name, location is None, api.SystemClock().now_ms())
            table, _ = creation.create(address, new, name=named, allow_nonempty=allow_nonempty, timeout_s=limit)
            give_name(table, named, timeout_s=limit)
        return Table(table, ack=ack, timeout_s=timeout_s)

    def clone(
        self,
        source: Table,
        name: str,
        version: int | None = None,
        timestamp: Moment | None = None,
        *,
        location: str | os.PathLike[str] | None = None,
        timeout_s: Timeout | None = None,
        **how: Unpack[CloneArgs],
    ) -> Table:
        """Make a clone of a table under a name, at `location` or else in a new folder below its namespace's location (`Table.clone`).

        With `replace` it replaces the table that has the name. A deep clone that did not finish goes on where it was. Raises TableExists
        if the name or the location is taken; NamespaceNotFound; InvalidName; InvalidRequest if the table to replace has another
        location than `location`.
        """
        table_name = api.TableName.parse(name)
        if how.get("replace") and self.exists(name):
            there = self.locate(name)
            if location is not None and normalise(location) != there:
                raise InvalidRequest(f"the table {name} is at {there}: leave the location out, or name another table", name=name)
            return source._cloned(self._address(there), version, timestamp, how, timeout_s=timeout_s)
        named = NewName(
            api.TableName(self.namespace(table_name.namespace).name, table_name.name), location is None, api.SystemClock().now_ms()
        )
        # check: managed-clones-go-on (location is None and how.get("deep") -> False)
        if location is None and how.get("deep"):
            location = self._names.fresh(partial(api.place_of_plan, purpose=purpose_of(source.location, named)))
        address = self._address(self.new_location(name) if location is None else location)
        return source._cloned(address, version, timestamp, how, named, timeout_s)

    def new_location(self, name: str) -> str:
        """A location for a new managed table of this name: the folder's name ends in a unique part, so that no table ever had it.

        Raises InvalidRequest if neither the namespace nor the catalog has a root.
        """
        table_name = api.TableName.parse(name)
        home = self.namespace(table_name.namespace)
        if home.location is None:
            raise InvalidRequest(
                f"the managed table {table_name} has no place: give it one (CREATE TABLE ... LOCATION '...'), or all such tables a root "
                "(sluice namespaces root LOCATION, or sluice.Catalog(root=...))",
                name=name,
            )
        return f"{home.location}/{_folder(table_name.name)}-{uuid.uuid4().hex[:8]}"

    def register(self, name: str, location: str | os.PathLike[str], *, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S) -> NamedTable:
        """Give a name to the table at a location; a Delta table that sluice does not manage yet is attached first.

        Raises TableExists if the name is taken; InvalidRequest if the table has another name; what `Table.attach` raises.
        """
        table_name, address = api.TableName.parse(name), self._address(location)
        with api.bounding(timeout_s) as limit:
            creation.attach(address, timeout_s=limit)
            return self._noted(api.register_name(self._names, table_name, address.location), limit)

    def comment(self, name: str) -> str | None:
        """A table's comment, which is its description in the Delta log; None without one. Raises what `describe` and `Table.open` do."""
        return open_coordinated(self._address(self.locate(name))).latest().metadata.description

    def set_comment(self, name: str, comment: str | None, *, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S) -> None:
        """Set or remove a table's comment, by a commit. Raises MetadataChangedException if another client changed the metadata first."""
        with api.bounding(timeout_s) as limit:
            describe_in_log(open_coordinated(self._address(self.locate(name))), comment, limit)

    # -- names change, tables go -------------------------------------------------------------------------------------

    def rename(self, name: str, new_name: str, *, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S) -> NamedTable:
        """Give a table another name, in the same or another namespace; its data stay where they are.

        Readers and writers that have the table open notice nothing. Raises TableNotFound, also if another client renamed or dropped
        the table first; TableExists if the new name is taken; NamespaceNotFound.
        """
        old, new = api.TableName.parse(name), api.TableName.parse(new_name)
        api.find_name(self._names, old)  # says more of a table that was dropped
        with api.bounding(timeout_s) as limit:
            return self._noted(api.rename_table(self._names, old, new), limit)

    def drop(self, name: str, *, keep_data: bool | None = None, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S) -> DroppedTable | None:
        """Drop a table; `undrop` brings it back until `vacuum` deletes its data. Everything filed before is decided first.

        All clients that have it open get TableDropped. With `keep_data` only the name goes, and the table stays under sluice at its
        location (then returns None): the default for a table at a location of its own, as in Spark. Raises TableNotFound, also if
        another client dropped or renamed it first; LeaseHeld while somebody holds a lease on it.
        """
        table_name = api.TableName.parse(name)
        record = api.find_name(self._names, table_name).record
        assert record is not None
        with api.bounding(timeout_s) as limit:
            if keep_data or (keep_data is None and not record.managed):
                gone = api.remove_name(self._names, table_name)
                note_name(
                    self._address(gone.location), "", max(gone.named_ms + 1, api.SystemClock().now_ms()), managed=False, timeout_s=limit
                )
                return None
            identity, dropped = close_by_name(open_coordinated(self._address(record.location)), table_name, limit)
        return _dropped(identity, dropped)

    def dropped(self) -> list[DroppedTable]:
        """The dropped tables whose data are still there, latest first."""
        return [_dropped(identity, record) for identity, record in api.dropped_tables(self._names)]

    def undrop(
        self, name: str, *, new_name: str | None = None, drop_id: str | None = None, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S
    ) -> NamedTable:
        """Bring a dropped table back: the one dropped last under this name, or the drop of this id (`dropped` lists them).

        It gets its former name, or `new_name`. Clients that have it open go on. Raises TableNotFound if there is none, TableExists if
        the name is taken, NamespaceNotFound.
        """
        old, new = api.TableName.parse(name), api.TableName.parse(new_name or name)
        drops = [(each, record) for each, record in api.dropped_as(self._names, old) if drop_id in (None, each)]
        if not drops:
            raise TableNotFound(f"no table dropped as {old} can be brought back: its data were deleted, or it was never dropped", name=name)
        identity, dropped = drops[0]
        if new_name is None:
            new = api.TableName(dropped.namespace, dropped.name)
        with api.bounding(timeout_s) as limit:
            return self._noted(api.reopen_dropped(self._names, identity, new), limit)

    def vacuum(
        self, retain_hours: float = _KEPT_HOURS, *, name: str | None = None, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S
    ) -> list[DropReport]:
        """Delete the data of tables dropped longer than `retain_hours` ago (of this `name` only, if given): they cannot be brought back.

        Finishes interrupted deletions. `timeout_s` bounds each table's requests to the coordinator. A table that cannot be deleted keeps
        no other: the first such error is raised at the end.
        """
        before_ms = self._names.fresh(api.write_through)[1] - int(retain_hours * _HOUR_MS)
        key = None if name is None else api.TableName.parse(name).key
        reports, failures = list[DropReport](), list[SluiceError]()
        for identity, record in api.dropped_tables(self._names):
            ours = key is None or api.TableName(record.namespace, record.name).key == key
            if ours and (record.purging or record.dropped_ms <= before_ms):
                try:
                    reports.append(drop(self._address(api.schedule_removal(self._names, identity).location), timeout_s=timeout_s))
                    api.forget_dropped(self._names, identity)
                except SluiceError as failure:
                    failures.append(failure)
                    if isinstance(failure, CoordinatorUnavailable):
                        break
        if failures:
            raise failures[0]
        return reports

    def _noted(self, named: tuple[api.TableName, api.NameRecord], limit: api.Deadline) -> NamedTable:
        """A name that was given, after the table's log repeats it."""
        name, record = named
        note_name(self._address(record.location), str(name), record.named_ms, managed=record.managed, timeout_s=limit)
        return NamedTable(name.namespace, name.name, record.location, record.managed, record.named_ms)

    def __repr__(self) -> str:
        return f"Catalog({self._coordinator!r})"


def _namespace(record: api.NamespaceRecord, root: str) -> Namespace:
    location = record.location or (f"{root}/{_folder(record.name)}" if root else None)
    return Namespace(record.name, location, record.comment, dict(record.properties), record.created_ms)


def _table(entry: api.NameState) -> NamedTable:
    assert entry.record is not None
    spelled = entry.spelled
    return NamedTable(spelled.namespace, spelled.name, entry.record.location, entry.record.managed, entry.record.named_ms)


def _dropped(identity: str, record: api.DroppedRecord) -> DroppedTable:
    return DroppedTable(
        identity, record.namespace, record.name, record.location, record.managed, record.dropped_ms, record.by, record.purging
    )


def _root(root: str | os.PathLike[str]) -> str:
    """The location of a root. Raises InvalidRequest for a file."""
    location = normalise(root)
    if Path(location.removeprefix("file://")).is_file():
        raise InvalidRequest(f"the root {location} is a file; give a folder, below which tables are made", location=location)
    return location


def _folder(name: str) -> str:
    """The part of a folder's name that people recognise: any store takes it."""
    return _UNSAFE.sub("_", name.lower())
