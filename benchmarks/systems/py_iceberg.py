"""PyIceberg with its SQL catalog in an SQLite file."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

from .base import SCHEMA, Append, Target

__all__ = ["PyIceberg"]

_TABLE = "bench.commits"
_PROPERTIES = {
    # A retry by PyIceberg itself writes new manifests, but not the data again. With 8 writers, 10 s and 30 ms per request on a
    # shared machine: these short waits 1.4 to 1.6/s and a p99 of 20 s (four runs); its default waits 1.2 to 1.5/s and 59 to
    # 70 s (two runs); no retries of its own and the loop below instead 1.1 to 1.4/s and 17 to 20 s (two runs).
    "commit.retry.num-retries": "1000000",
    "commit.retry.min-wait-ms": "10",
    "commit.retry.max-wait-ms": "200",
    "commit.retry.total-timeout-ms": "3600000",
}


class PyIceberg:
    """One table of a catalog that all writers share."""

    def __init__(self, target: Target) -> None:
        logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # every retry is a warning
        self._catalog = SqlCatalog(
            "bench",
            **{
                "uri": f"sqlite:///{Path(target.folder) / 'catalog.db'}?timeout=60",  # seconds to wait for SQLite's lock
                "warehouse": target.location,
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
                "s3.endpoint": target.endpoint_url,
                "s3.region": target.region,
                "s3.access-key-id": target.access_key_id,
                "s3.secret-access-key": target.secret_access_key,
            },
        )

    def create(self) -> None:
        """Make the namespace and the empty table."""
        self._catalog.create_namespace("bench")
        self._catalog.create_table(_TABLE, SCHEMA, properties=_PROPERTIES)

    def writer(self) -> Append:
        """The table object is kept between appends, and refreshed after a conflict."""
        table = self._catalog.load_table(_TABLE)

        def append(rows: pa.Table) -> int | None:
            while True:
                try:
                    table.append(rows)
                except (CommitFailedException, OperationalError):  # lost to another writer; or SQLite stayed locked, nothing done
                    table.refresh()
                else:
                    return None

        return append

    def await_published(self, version: int) -> None:
        """An acknowledgement means that it is."""

    def row_ids(self) -> pa.ChunkedArray:
        """Read by PyIceberg itself."""
        return self._catalog.load_table(_TABLE).scan(selected_fields=("id",)).to_arrow()["id"]

    def close(self) -> None:
        """Let go of the catalog's connections."""
        self._catalog.close()
