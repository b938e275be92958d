"""What a system that is measured has to offer, and the rows that are written to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Protocol

import pyarrow as pa

__all__ = ["ROWS", "SCHEMA", "Append", "System", "Target", "batch", "transaction_of"]

ROWS: Final = 10
"""Rows of one transaction: tiny on purpose, the commit is what is measured."""

SCHEMA: Final = pa.schema([pa.field("id", pa.int64()), pa.field("writer", pa.int32()), pa.field("payload", pa.string())])

_SEQUENCES: Final = 10_000_000
"""More transactions than one writer can make."""


def batch(writer: int, sequence: int) -> pa.Table:
    """The rows of one transaction; their ids are unique per writer, sequence and row."""
    first = (writer * _SEQUENCES + sequence) * ROWS
    ids = list(range(first, first + ROWS))
    return pa.table([ids, [writer] * ROWS, [f"row {i}" for i in ids]], schema=SCHEMA)


def transaction_of(row_id: int) -> tuple[int, int]:
    """(writer, sequence) of the transaction that wrote a row."""
    return divmod(row_id // ROWS, _SEQUENCES)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a system works: a prefix of its own on the shared S3 server, and a local folder of its own."""

    location: str
    """s3://bucket/prefix"""
    folder: str
    """A local folder, for catalogs and coordinators."""
    endpoint_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    ack: str
    """When sluice acknowledges: published or ratified. The peers know only published."""

    def to_json(self) -> str:
        """As text, for the writer processes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Target:
        """The inverse of `to_json`."""
        return cls(**json.loads(text))

    @property
    def object_store_options(self) -> dict[str, str]:
        """The storage options of delta-rs, which also reads what sluice wrote."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_ALLOW_HTTP": "true",
            "AWS_CONDITIONAL_PUT": "etag",
        }


Append = Callable[[pa.Table], int | None]
"""Appends rows and returns when they are acknowledged, with the version where the system tells it. Retries until it succeeds."""


class System(Protocol):
    """One way of writing a table. Each process makes its own."""

    def create(self) -> None:
        """Make the empty table, once."""
        ...

    def writer(self) -> Append:
        """Open the table for appending."""
        ...

    def await_published(self, version: int) -> None:
        """Return when every engine finds this version; at once for systems that acknowledge nothing before that."""
        ...

    def row_ids(self) -> pa.ChunkedArray:
        """The `id` column of every row the table holds now, read from what is published."""
        ...

    def close(self) -> None:
        """Let go of what `create` keeps running."""
        ...
