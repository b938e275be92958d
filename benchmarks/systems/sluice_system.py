"""sluice, through its public interface only."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
from pyarrow.fs import FileType, S3FileSystem

import sluice
from sluice.coordinator.service.connect import release

from .base import SCHEMA, Append, Target
from .delta_rs import read_ids

__all__ = ["Sluice"]

_PUBLISH_LIMIT_S = 60.0


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

        def append(rows: pa.Table) -> int | None:
            commit = table.append(rows)
            return None if commit is None else commit.version

        return append

    def await_published(self, version: int) -> None:
        """Look for the version's log file, as any other engine would."""
        target = self._target
        files = S3FileSystem(
            access_key=target.access_key_id,
            secret_key=target.secret_access_key,
            endpoint_override=target.endpoint_url,
            region=target.region,
        )
        path = f"{target.location.removeprefix('s3://')}/_delta_log/{version:020}.json"
        deadline = time.monotonic() + _PUBLISH_LIMIT_S
        while version >= 0 and files.get_file_info(path).type == FileType.NotFound:
            if time.monotonic() > deadline:
                raise SystemExit(f"version {version} was acknowledged and is not published after {_PUBLISH_LIMIT_S:g} s")

    def row_ids(self) -> pa.ChunkedArray:
        """Read by delta-rs, which knows nothing of the coordinator."""
        return read_ids(self._target)

    def close(self) -> None:
        """The coordinator stops with its last client."""
        release(self._coordinator)
