"""The footprint of a transaction: what it read and writes, as far as conflicts are concerned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Final

from ...storage.dataclass import dataclass
from .isolation import ConflictPolicy
from .operation_kinds import Kind

__all__ = ["OWN_PARTITIONS", "Footprint"]

OWN_PARTITIONS: Final = "*"
"""The scope of a dynamic overwrite: all partitions in which it adds files."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a transaction read and writes, as far as conflicts are concerned.

    `predicates` are the conditions under which it read (SQL text; "" is the whole table as a filter), `partition_types` the
    table's partition columns with their types, `column_types` the data columns named by the conditions, with their types as
    in Delta's schema JSON. `read_files` are the log paths of the files it read as a whole (None: too many to list, so every
    removal counts as read), `read_rows` the rows it read of further files, as `vectors.to_text` writes them. `locks` are
    those predicates that are compared as under Serializable at every level. `whole_table` says whether it depends on the
    complete table, `read_apps` are the application ids whose `txn` it read. `kind` is the sort of operation, `policy` the
    table's conflict policy, `row_level` whether deletion vectors may be merged and carried over, `partitions` those it
    touches, as compact JSON objects with sorted keys (None: too many to list, or all). `scope` is what an overwrite
    replaces: "" the table, a condition, OWN_PARTITIONS, None if it does not matter. `removes`, `app_versions`, `domains`,
    `metadata`, `protocol`, `data_change` restate its own actions; `blind_append` is Delta's term for a commit that reads
    nothing, here or in other tables, and only adds files; `keeps_row_ids` is false if rows were copied to new files.
    """

    predicates: tuple[str, ...] = ()
    partition_types: Mapping[str, str] = field(default_factory=dict)
    read_files: tuple[str, ...] | None = ()
    read_rows: Mapping[str, str] = field(default_factory=dict)
    locks: tuple[str, ...] = ()
    whole_table: bool = False
    read_apps: tuple[str, ...] = ()
    removes: tuple[str, ...] | None = ()
    app_versions: Mapping[str, int] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    metadata: bool = False
    protocol: bool = False
    data_change: bool = True
    blind_append: bool = False
    column_types: Mapping[str, str] = field(default_factory=dict)
    kind: Annotated[str, tuple(kind.value for kind in Kind)] = Kind.OTHER.value
    policy: Annotated[str, tuple(policy.value for policy in ConflictPolicy)] = ConflictPolicy.DELTA.value
    row_level: bool = False
    partitions: tuple[str, ...] | None = None
    scope: str | None = None
    keeps_row_ids: bool = True

    @property
    def plain_append(self) -> bool:
        """Whether it only appends, so that commits of others hardly matter to it."""
        return self.blind_append and not (self.metadata or self.protocol or self.domains)

    @property
    def reads_nothing_here(self) -> bool:
        """Whether files that others add cannot matter to it: a blind append, or an append whose transaction read other tables only."""
        here = self.predicates or self.read_files != () or self.read_rows or self.whole_table
        return self.blind_append or (self.kind == Kind.APPEND.value and not here)

    @property
    def compares_rows(self) -> bool:
        """Whether changes of one file are compared row by row. Databricks does so only in tables without partitions."""
        return self.row_level and not (self.policy == ConflictPolicy.DATABRICKS.value and self.partition_types)

    @property
    def by_partitions(self) -> bool:
        """Whether files added by others count by partition, whatever their statistics say: Databricks' rule where rows are not compared."""
        return self.policy == ConflictPolicy.DATABRICKS.value and not self.compares_rows
