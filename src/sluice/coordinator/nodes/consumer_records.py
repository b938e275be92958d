"""Positions of named consumers: how far each has read a table's changes.

::

    /tables/<key>/consumers/<name>     data: ConsumerRecord; written only in a multi that checks its holder's lease
    /names/<place>/leases              the lease of the consumer: its holder is the consumer
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from ..formats import CONSUMER_FORMAT, Record, node_data
from ..rules.intent import ClientName
from .lease_places import Place


@node_data
class ConsumerRecord(Record):
    """A consumer's position: `version` is the last version of the table that it consumed, -1 for none.

    Of the version after it, it consumed the first `files` of the files in which that version's changes lie.
    `run` is raised by each reset, so that positions that outputs recorded before do not count any more. `into` are the locations
    of its outputs, which record the position, too. `client` moved it last, at `moved_ms` by its clock (both are only shown).
    """

    KIND: ClassVar = "consumer"
    FORMAT: ClassVar = CONSUMER_FORMAT

    name: str
    version: int
    files: int = 0
    run: int = 0
    into: tuple[str, ...] = ()
    moved_ms: int = 0
    client: ClientName = field(default_factory=ClientName)
    format: int = CONSUMER_FORMAT


def place_of_consumer(table_id: str, name: str) -> Place:
    """What the lease of a consumer is taken on."""
    return Place.of_name(f"consumer {name} of {table_id}")
