"""Row tracking: which tables number their rows, and the highest number so far ("Row Tracking" in PROTOCOL.md).

A table that names the feature needs a base row id for every file, whether or not row tracking is enabled; a metadata domain
records the highest id given so far. Enabling it adds two column names: files with copied rows keep the rows' former ids
there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from ..constants import LONG_MAX
from ..errors import CorruptLogFile
from ..jsontext import dumps, loads
from .features import writer_features
from .records import DomainMetadata, Metadata, Protocol

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
