"""sluice, through its public interface only."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import sluice

from .base import SCHEMA, Append, Target
from .delta_rs import read_ids

__all__ = ["Sluice"]


class Sluice:
    """One table, ordered by an embedded ZooKeeper server that the measuring process keeps alive."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._coordinator = f"embedded://{Path(target.folder) / 'zookeeper'}"
        self._options = {
            "endpoint_url": target.endpoint_url,
            "region": target.region,
            "path_style": "true",
            "access_key_id": target.access_key_id,
            "secret_access_key": target.secret_access_key,
        }

    def create(self) -> None:
        """Start the coordinator and make the empty table."""
        sluice.Table.create(self._target.location, SCHEMA, coordinator=self._coordinator, storage_options=self._options)

    def writer(self) -> Append:
        """Nothing is retried here: an append either commits or raises."""
        table = sluice.Table.open(self._target.location, coordinator=self._coordinator, storage_options=self._options, ack=self._target.ack)
        return lambda rows: table.append(rows).version

    def row_ids(self) -> pa.ChunkedArray:
        """Read by delta-rs, which knows nothing of the coordinator."""
        return read_ids(self._target)

    def close(self) -> None:
        """The coordinator stops with its last client."""
        sluice.release()
