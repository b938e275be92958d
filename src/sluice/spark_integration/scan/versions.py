"""Finds the versions of tables that a DataFrame reads: Spark's plans keep them in the options of their scans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame

from ...storage.dataclass import dataclass
from ...storage.stores.location import normalise
from ..jvm import analysed, items

_LOCATION: Final = "sluice.location"
_VERSION: Final = "sluice.version"
_ASKED: Final = ("path", "versionAsOf", "timestampAsOf", "readChangeFeed")


@dataclass(frozen=True, slots=True)
class VersionRead:
    """A version of the table at a `location`. None: the latest one at the time of reading."""

    location: str
    version: int | None


def options_of_scan(location: str, version: int) -> dict[str, str]:
    """Options by which a scan of files says whose they are."""
    return {_LOCATION: location, _VERSION: str(version)}


def versions_read(frame: DataFrame) -> Iterator[VersionRead]:
    """What the frame reads when it is evaluated, subqueries included, of tables whose scan says it. Rows that were kept say nothing."""
    plan = analysed(frame)
    for each in (plan, *items(plan.subqueriesAll())):
        for leaf in items(each.collectLeaves()):
            found = _version_read(leaf)
            if found is not None:
                yield found


def is_of_files(leaf: Any) -> bool:
    """Whether a leaf of a plan is Spark's own scan of files."""
    return bool(leaf.nodeName() == "LogicalRelation" and leaf.relation().getClass().getSimpleName() == "HadoopFsRelation")


def _version_read(leaf: Any) -> VersionRead | None:
    if is_of_files(leaf):
        location, version = (leaf.relation().options().get(name) for name in (_LOCATION, _VERSION))
        return VersionRead(str(location.get()), int(version.get())) if location.isDefined() and version.isDefined() else None
    if leaf.nodeName() != "DataSourceV2Relation" or leaf.table().name() != "sluice":
        return None
    options = leaf.options()
    place, version, time, changes = (options.get(name) for name in _ASKED)
    if place is None or time is not None or changes is not None:  # times are in the past, and changes are no state of the table
        return None
    return VersionRead(normalise(str(place)), None if version is None else int(version))
