"""By which columns a table can be clustered, and by which it is.

As in Delta Lake: up to four columns, whose files have the lowest and highest value of each, and no partitions beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...storage.actions import DomainMetadata, Metadata
from ...storage.actions.clustering import Path, clustering_columns, clustering_domain, dotted
from ...storage.data.statistics import leaves
from ...storage.errors import InvalidRequest
from ...storage.log.snapshot import Snapshot
from ...storage.schema.evolution import field_at
from ...storage.schema.schema import StructType, parse_schema
from .property_rules import indexed_columns_of

CLUSTER_COLUMNS_MAX: Final = 4
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def clustered_by(
    names: str | Iterable[str], schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> tuple[Path, ...]:
    """The columns of these names (`a`, or `a.b` in a struct), as the schema spells them; () for none.

    Raises InvalidRequest for columns by which a table cannot be clustered.
    """
    column_names = [names] if isinstance(names, str) else list(names)
    paths = tuple(path_of(name, schema) for name in column_names)
    check_clustering(paths, schema, partition_columns, configuration)
    return paths


def check_clustering(paths: Sequence[Path], schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str]) -> None:
    """Raise InvalidRequest unless a table of this schema can be clustered by these columns; by none every table can."""
    if not paths:
        return
    names = [dotted(path) for path in paths]
    if partition_columns:
        raise InvalidRequest(
            f"the table would be clustered by {', '.join(names)} and partitioned by {', '.join(partition_columns)}: choose one of them, "
            "and give the columns of both to it",
            columns=names,
        )
    if len(paths) > CLUSTER_COLUMNS_MAX:
        raise InvalidRequest(
            f"{', '.join(names)} are {len(paths)} columns to cluster by, and {CLUSTER_COLUMNS_MAX} are possible: leave out those that "
            "queries filter least by",
            columns=names,
        )
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise InvalidRequest(f"the table would be clustered by {twice} twice: name it once", column=twice)
    indexed = indexed_columns_of(configuration)
    every = {leaf.path: leaf for leaf in leaves(schema, (), -1)}
    known = {leaf.path for leaf in leaves(schema, (), indexed)}
    for path, name in zip(paths, names, strict=True):
        leaf = every.get(path)
        if leaf is None or leaf.kind is None:
            raise InvalidRequest(
                f"the table cannot be clustered by {name} of type {field_at(schema, path).type}, which has no lowest and highest value in "
                "the statistics of files: cluster by columns of numbers, dates, times or text",
                column=name,
            )
        if path not in known:
            raise InvalidRequest(
                f"the table cannot be clustered by {name}: files have statistics of the first {indexed} columns only "
                "(delta.dataSkippingNumIndexedCols); move the column forward, or raise the property",
                column=name,
            )


def clustering_names(snapshot: Snapshot) -> tuple[str, ...]:
    """The columns by which a version is clustered, as SQL writes them; () if it is not."""
    return tuple(dotted(path) for path in clustering_columns(snapshot.domains))


def first_clustering(names: str | Iterable[str], metadata: Metadata) -> tuple[DomainMetadata, ...]:
    """The domain of a new table that is clustered by these columns; none if there are no columns. Raises InvalidRequest."""
    paths = clustered_by(names, parse_schema(metadata.schema_string), metadata.partition_columns, metadata.configuration)
    return (clustering_domain(paths),) if paths else ()


def path_of(name: object, schema: StructType) -> Path:
    """The path of the column `a`, or `a.b` in a struct, as the schema spells it. Raises InvalidRequest."""
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{name!r} is not the name of a column; give a text", column=name)
    whole = schema.get(name)
    if whole is not None:
        return (whole.name,)
    parts = [quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(name)]
    found: list[str] = []
    for depth in range(1, len(parts) + 1):
        found.append(field_at(schema, [*found, parts[depth - 1]]).name)
    return tuple(found)
