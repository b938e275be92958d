"""Row tracking: which tables number their rows, and the ids that rows keep ("Row Tracking" in PROTOCOL.md).

A table that names the feature needs a base row id for every file, whether or not row tracking is enabled; a metadata domain records the
highest id given so far. Enabling it adds two column names: files with copied rows keep the rows' former ids there.

A row's id is the value of the file's column, and where it is null, or the file has no such column, the file's base row id plus
the row's position. In the same way its commit version, in which it was inserted or last updated, is by default the file's. The
table's schema does not have these columns; its configuration names them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..actions.features import writer_features
from ..actions.records import DomainMetadata, Metadata, Protocol
from ..constants import LONG_MAX
from ..dataclass import dataclass
from ..errors import CorruptLogFile, InvalidRequest, SchemaMismatch
from ..jsontext import dumps, loads
from ..schema.datatypes import PrimitiveType, StructField, StructType

ROW_TRACKING_DOMAIN: Final = "delta.rowTracking"
ROW_TRACKING_KEY: Final = "delta.enableRowTracking"
ROW_ID_COLUMN_KEY: Final = "delta.rowTracking.materializedRowIdColumnName"
COMMIT_VERSION_COLUMN_KEY: Final = "delta.rowTracking.materializedRowCommitVersionColumnName"
_SUSPENDED_KEY: Final = "delta.rowTrackingSuspended"
_MARK: Final = "rowIdHighWaterMark"


def tracks_rows(metadata: Metadata, protocol: Protocol) -> bool:
    """Whether every new file needs row ids: the table names the feature, and it is not suspended."""
    return "rowTracking" in writer_features(protocol) and metadata.configuration.get(_SUSPENDED_KEY, "false").lower() != "true"


def row_id_high_water_mark(domains: Mapping[str, DomainMetadata], metadata: Metadata, protocol: Protocol) -> int | None:
    """The highest row id given so far, -1 if none; None if the table does not track rows. Raises CorruptLogFile."""
    if not tracks_rows(metadata, protocol):
        return None
    domain = domains.get(ROW_TRACKING_DOMAIN)
    if domain is None:
        return -1
    try:
        parsed: Any = loads(domain.configuration.encode())
    except ValueError:
        parsed = None
    mark = parsed.get(_MARK) if isinstance(parsed, dict) else None
    if type(mark) is not int or not -1 <= mark <= LONG_MAX:
        raise CorruptLogFile(
            f"the metadata domain {ROW_TRACKING_DOMAIN} is {domain.configuration!r}, without {_MARK}: no row id is known to be free; "
            "ask the engine that wrote it",
            domain=ROW_TRACKING_DOMAIN,
        )
    return mark


def first_domain() -> DomainMetadata:
    """The domain of a new table, in which no row has an id yet."""
    return DomainMetadata(ROW_TRACKING_DOMAIN, dumps({_MARK: -1}).decode(), removed=False)


def materialized_columns() -> dict[str, str]:
    """The properties that name the columns for copied rows' ids and commit versions; no other column can have these names."""
    return {
        ROW_ID_COLUMN_KEY: f"_row-id-col-{uuid.uuid4()}",
        COMMIT_VERSION_COLUMN_KEY: f"_row-commit-version-col-{uuid.uuid4()}",
    }


ROW_ID: Final = "_row_id"
"""The name under which users get a row's id (int64)."""
COMMIT_VERSION: Final = "_row_commit_version"
"""The name under which users get the version that inserted or last updated a row (int64)."""


@dataclass(frozen=True, slots=True)
class RowIdColumns:
    """The names of the columns in a table's data files: of the rows' ids, and of their commit versions."""

    row_id: str
    commit_version: str

    @staticmethod
    def of(metadata: Metadata, protocol: Protocol) -> RowIdColumns | None:
        """Those of a table; None if its rows do not keep their ids: row tracking is not enabled, or the names are missing."""
        told = metadata.configuration
        names = told.get(ROW_ID_COLUMN_KEY), told.get(COMMIT_VERSION_COLUMN_KEY)
        if told.get(ROW_TRACKING_KEY, "false").lower() != "true" or not tracks_rows(metadata, protocol) or not (names[0] and names[1]):
            return None
        return RowIdColumns(names[0], names[1])

    @staticmethod
    def to_show(metadata: Metadata, protocol: Protocol, schema: StructType) -> RowIdColumns:
        """Those of a table whose users ask for ids. Raises InvalidRequest if there are none, or a column has the name of one."""
        found = RowIdColumns.of(metadata, protocol)
        if found is None:
            raise InvalidRequest(
                f"row_ids=True: the rows of this table keep no ids, for {ROW_TRACKING_KEY} is not true; it can be enabled only when a "
                "table is created",
                property=ROW_TRACKING_KEY,
            )
        if taken := [name for name in (ROW_ID, COMMIT_VERSION) if schema.get(name) is not None]:
            raise InvalidRequest(f"row_ids=True: its columns {', '.join(taken)} have the ids' names; leave row_ids out", columns=taken)
        return found

    @property
    def names(self) -> tuple[str, str]:
        """Both names."""
        return self.row_id, self.commit_version

    def beside(self, schema: StructType) -> StructType:
        """The columns of a schema and, after them, both of these, as files with copied rows have them."""
        return _beside(schema, self)

    def filled(self, rows: pa.Table, positions: pa.Array, base_row_id: int | None, commit_version: int | None) -> pa.Table:
        """The rows of one file, with what its columns leave open: these get the file's `base_row_id` and `commit_version`.

        Rows of files without them, which are not committed yet, stay null. `rows` has one of the columns, or both.
        """
        ids = pc.add(positions, pa.scalar(base_row_id, pa.int64()))  # null if there is none
        for name, default in ((self.row_id, ids), (self.commit_version, pa.scalar(commit_version, pa.int64()))):
            place = rows.schema.get_field_index(name)
            if place >= 0:
                rows = rows.set_column(place, rows.schema.field(place), pc.coalesce(rows.column(place), default))
        return rows

    def shown(self, names: Iterable[str]) -> list[str]:
        """Names of columns, with those that users see in place of these."""
        return [{self.row_id: ROW_ID, self.commit_version: COMMIT_VERSION}.get(name, name) for name in names]


def refuse_reserved(configuration: Mapping[str, str], schema: StructType) -> None:
    """Raise SchemaMismatch if the schema has a column whose name belongs to the rows' ids."""
    for key in (ROW_ID_COLUMN_KEY, COMMIT_VERSION_COLUMN_KEY):
        if (name := configuration.get(key)) and schema.get(name) is not None:
            raise SchemaMismatch(f"the column name {name!r} is reserved for the rows' ids ({key}); rename the column", column=name)


@lru_cache(maxsize=256)
def _beside(schema: StructType, ids: RowIdColumns) -> StructType:
    return StructType([*schema.fields, *(StructField(name, PrimitiveType("long")) for name in ids.names)])
