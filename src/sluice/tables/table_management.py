"""The managing half of `sluice.Table`: what replaces, copies and describes a table as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ..coordinator.api import Commit, Timeout, bounding
from ..coordinator.times import Moment
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest
from ..storage.schema.schema import StructType
from .client.address import TableAddress
from .client.open_table import OpenArgs, Opening
from .manage.analyzing import Analysis, analyze
from .manage.cloning import clone
from .manage.converting import convert
from .manage.manifests import MODE, generate
from .manage.protocol_changes import add_feature, drop_feature, upgrade_protocol
from .manage.restoring import lacking, repair, restore
from .read.table_snapshot import asked_version
from .table_writes import TableWrites
from .write.terms import ChangeArgs

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T", bound="TableManagement")


@checked
class TableManagement(TableWrites):
    """The operations of `sluice.Table` on the table as a whole."""

    @classmethod
    def convert(
        cls,
        location: str | os.PathLike[str],
        partition_schema: pa.Schema | StructType | None = None,
        properties: Mapping[str, str] | None = None,
        **opening: Unpack[OpenArgs],
    ) -> Self:
        """Make a table of the Parquet files in a folder, in place: no row is read or written.

        `partition_schema` has the columns of the folders (`origin=JFK/month=1/...`), in their order and with their types. The table's
        schema has the columns of all files, and their statistics come from their footers. Files and folders whose names begin with `_`
        or `.` are ignored. Nobody must write there meanwhile. Raises TableExists, TableNotFound, and InvalidRequest or SchemaMismatch,
        naming a file that does not fit, before anything is written.
        """
        how = Opening(**opening)
        with bounding(how.timeout_s) as limit:
            table, _ = convert(how.at(location), partition_schema, properties or {}, timeout_s=limit)
        return cls(table, ack=how.ack, timeout_s=how.timeout_s)

    def clone(
        self,
        target: str | os.PathLike[str],
        version: int | None = None,
        timestamp: Moment | None = None,
        *,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        coordinator: str | None = None,
        timeout_s: Timeout | None = None,
    ) -> Self:
        """Make a shallow clone at `target`: a table of its own with the rows of a version (by default the latest), whose files it shares.

        The clone names the original's data files by absolute URIs, and never deletes them. A vacuum of the original does delete those that
        the original no longer needs, which breaks the clone: keep its retention longer than the clone lives. With `replace` the clone
        replaces a table at `target` in one commit. `properties` are set in addition to the original's; `coordinator` is by default the
        original's. Raises TableExists, UnsupportedFeature, and InvalidRequest for a target in another kind of store.
        """
        table = self._access
        own = table.address
        address = TableAddress.of(target, own.coordinator if coordinator is None else coordinator, own.storage_options, own.application)
        with bounding(self._limit(timeout_s)) as limit:
            chosen = asked_version(table.store, version, timestamp)
            at = table.read(None, timeout_s=limit).version if chosen is None else chosen
            made, _ = clone(table, at, address, over=replace, properties=properties, timeout_s=limit)
        return type(self)(made, ack=self._ack, timeout_s=self._timeout_s)

    def restore(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        *,
        ignore_missing_files: bool = False,
        **terms: Unpack[ChangeArgs],
    ) -> Commit | None:
        """Make the table what it was at a version, or at a time (see `snapshot`): files, schema, partitioning, properties.

        The versions since then stay in the history. Applications' numbers, keys, and users' metadata domains stay as they are, and the
        protocol is never lowered. Returns None, and makes no version, if nothing differs. An exclusive lease keeps others' commits waiting
        meanwhile. Raises MissingObject, naming data files that are gone, before anything is written; with `ignore_missing_files` the table
        is restored without them. Raises VersionNotFound, UnsupportedFeature for an append-only table, LeaseHeld.
        """
        chosen = asked_version(self._access.store, version, timestamp)
        if chosen is None:
            raise InvalidRequest("restore() needs to know what to restore: give a version or a timestamp")
        ignores = ignore_missing_files
        return self.noted(restore(self.coordinated, chosen, self._terms(terms), timestamp=timestamp, ignore_missing_files=ignores))

    def missing_files(self, *, timeout_s: Timeout | None = None) -> Mapping[str, str]:
        """Why files of the latest version cannot be read, by their path in the log; {} if all are there. One request for each file."""
        return lacking(self._access, self._access.read(None, timeout_s=self._limit(timeout_s)))

    def repair(self, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Take data files that the store lacks out of the table, so that the others can be read. Returns None if none is missing.

        The rows of these files are lost, or were before. Raises UnsupportedFeature for an append-only table.
        """
        return self._change(repair, terms)

    def analyze(self, columns: str | Sequence[str] | None = None, **terms: Unpack[ChangeArgs]) -> Analysis:
        """Give data files the statistics that they lack, from their footers or else from their rows, so that readers can skip them.

        Files of sluice's have them. Those of converted tables and other engines may lack them, and so may older files after
        `delta.dataSkippingNumIndexedCols` was raised. `columns` (`a`, `a.b`; all fields of a struct) are by default those that files have
        statistics of. No row changes: the same files are added again, and changes that others make meanwhile are kept. The last commit
        is None if nothing was to be done; there is one for every 10,000 files, and `timeout_s` bounds each.
        """
        done = analyze(self.coordinated, columns, self._terms(terms))
        self.noted(done.commit)
        return done

    def generate(self, mode: str = MODE, *, timeout_s: Timeout | None = None) -> int:
        """Write manifests of the latest version for engines that read files by lists; returns how many ("symlink_format_manifest" only).

        `_symlink_format_manifest/<partition>/manifest` names the partition's files. Nothing keeps it up to date: generate it again after
        changes. Raises UnsupportedFeature for files with deletion vectors.
        """
        return generate(self._access.store, self._access.read(None, timeout_s=self._limit(timeout_s)), mode)

    def add_feature(self, name: str, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Add a table feature to the protocol, and those that it needs. Returns None if it has them.

        Raises UnsupportedFeature for a feature that sluice does not implement.
        """
        return self._change(lambda table: add_feature(table, name), terms)

    def drop_feature(self, name: str, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Take a table feature out of the protocol, which nothing uses. Returns None if the protocol lacks it.

        Raises UnsupportedFeature, naming those that can be dropped, InvalidRequest for one in use, and ConcurrentModification if
        anything was committed in between.
        """
        return self._change(lambda table: drop_feature(table, name), terms)

    def upgrade_protocol(self, reader: int, writer: int, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Raise the protocol to at least these versions (3 and 7 at most). Returns None if it has them; nothing is ever lowered."""
        return self._change(lambda table: upgrade_protocol(table, reader, writer), terms)
