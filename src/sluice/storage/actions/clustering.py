"""Clustered tables: by which columns, and which files are clustered ("Clustered Table" in PROTOCOL.md).

A metadata domain names the columns. A file that an OPTIMIZE has clustered names who did so, and its tags say in which run and by which
columns. The tags are Delta Lake's own, so each knows the other's clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from ..errors import CorruptLogFile
from ..jsontext import dumps, loads
from .records import DomainMetadata

CLUSTERING_DOMAIN: Final = "delta.clustering"
CLUSTERING_FEATURE: Final = "clustering"
CLUSTERING_PROVIDER: Final = "sluice"
"""The name of this implementation in the add actions of files that it has clustered."""
CLUSTER_TAG: Final = "ZCUBE_ID"
"""The tag that identifies the run that clustered a file."""
CLUSTER_COLUMNS_TAG: Final = "ZCUBE_ZORDER_BY"
_CURVE_TAG: Final = "ZCUBE_ZORDER_CURVE"
_COLUMNS: Final = "clusteringColumns"

Path: TypeAlias = tuple[str, ...]
"""The names that lead to a column, through structs."""


def clustering_columns(domains: Mapping[str, DomainMetadata]) -> tuple[Path, ...]:
    """The columns by which a table with these domains is clustered; () if it is not. Raises CorruptLogFile."""
    domain = domains.get(CLUSTERING_DOMAIN)
    if domain is None:
        return ()
    try:
        parsed: Any = loads(domain.configuration.encode())
    except ValueError:
        parsed = None
    listed = parsed.get(_COLUMNS) if isinstance(parsed, dict) else None
    # PROTOCOL.md shows names, Delta Lake writes lists of names
    paths = [[each] if isinstance(each, str) else each for each in listed] if isinstance(listed, list) else [[]]
    if not all(isinstance(path, list) and path and all(isinstance(name, str) for name in path) for path in paths):
        raise CorruptLogFile(
            f"the metadata domain {CLUSTERING_DOMAIN} is {domain.configuration!r}, which names no columns; ask the engine that wrote it",
            domain=CLUSTERING_DOMAIN,
        )
    return tuple(tuple(path) for path in paths)


def clustering_domain(columns: Sequence[Path]) -> DomainMetadata:
    """The domain of a table that is clustered by these columns."""
    configuration = {_COLUMNS: [list(path) for path in columns], "domainName": CLUSTERING_DOMAIN}
    return DomainMetadata(CLUSTERING_DOMAIN, dumps(configuration).decode(), removed=False)


def cluster_tags(cluster: str, columns: Sequence[Path]) -> dict[str, str]:
    """The tags of a file that the run `cluster` has put into the Z-order of these columns."""
    return {CLUSTER_TAG: cluster, CLUSTER_COLUMNS_TAG: columns_tag(columns), _CURVE_TAG: "zorder"}


def columns_tag(columns: Sequence[Path]) -> str:
    """The columns, as a tag names them."""
    return dumps([dotted(path) for path in columns]).decode()


def dotted(path: Path) -> str:
    """A column's path as SQL writes it."""
    return ".".join(name if name.isidentifier() else f"`{name.replace('`', '``')}`" for name in path)
