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
_CHOSEN: Final = "sluice.chosen"


@dataclass(frozen=True, slots=True)
class VersionRead:
    """A version of the table at a `location`. None: the latest one at the time of reading.

    `chosen`: the reader named the version or its time; otherwise it was the latest one when the frame was made.
    """

    location: str
    version: int | None
    chosen: bool


def options_of_scan(location: str, version: int, *, chosen: bool) -> dict[str, str]:
    """Options by which a scan of files says whose they are."""
    return {_LOCATION: location, _VERSION: str(version), _CHOSEN: str(chosen).lower()}


def versions_read(frame: DataFrame) -> Iterator[VersionRead]:
    """What the frame reads when it is evaluated, subqueries included, of tables whose scan says it. Rows that were kept say nothing."""
    plan = analysed(frame)
    for each in (plan, *items(plan.subqueriesAll())):
        for leaf in items(each.collectLeaves()):
            found = version_read(leaf)
            if found is not None:
                yield found


def is_of_files(leaf: Any) -> bool:
    """Whether a leaf of a plan is Spark's own scan of files."""
    return bool(leaf.nodeName() == "LogicalRelation" and leaf.relation().getClass().getSimpleName() == "HadoopFsRelation")


def version_read(leaf: Any) -> VersionRead | None:
    """What a leaf of a plan reads; None if it is no scan of a table's version."""
    if is_of_files(leaf):
        location, version, chosen = (leaf.relation().options().get(name) for name in (_LOCATION, _VERSION, _CHOSEN))
        if not (location.isDefined() and version.isDefined()):
            return None
        return VersionRead(str(location.get()), int(version.get()), chosen.isDefined() and chosen.get() == "true")
    if leaf.nodeName() != "DataSourceV2Relation" or leaf.table().name() != "sluice":
        return None
    options = leaf.options()
    place, chosen, loaded, time, changes = (
        options.get(name) for name in ("path", "versionAsOf", "loadedVersion", "timestampAsOf", "readChangeFeed")
    )
    if place is None or time is not None or changes is not None:  # times are in the past, and changes are no state of the table
        return None
    version = loaded if chosen is None else chosen
    return VersionRead(normalise(str(place)), None if version is None else int(version), chosen is not None)
