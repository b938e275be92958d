"""What a lease covers: whether two leases meet, and whether a commit touches one.

Both answers are sound: "no" means that no partition can satisfy both conditions. Conditions that constants alone do not
separate count as meeting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from ...storage.caches import cached_by_size
from ...storage.pruning.skipping import Skipper
from ..nodes.lease_records import PASSING, SHARED, LeaseNode, Place
from ..rules.footprint import Footprint
from ..rules.read_scope import condition, schema_of
from .overlap import overlap

__all__ = ["clash", "reads_in", "scopes_meet", "writes_in"]

_CACHED_BYTES_MAX: Final = 16 * 1024 * 1024
_Types = tuple[tuple[str, str], ...]


def clash(mine: LeaseNode, theirs: LeaseNode, their_path: str) -> bool:
    """Whether a request has to wait for an earlier one (whose node is `their_path`).

    A commit may be waiting for the very lease that this request's owner holds; such a commit is not waited for.
    """
    if (mine.mode == theirs.mode and mine.mode in (SHARED, PASSING)) or their_path in mine.holds:
        return False
    if theirs.mode == PASSING and any(Place.of_node(held) == Place.of_node(their_path) for held in mine.holds):
        return False
    # check: shared-stand-together (return -> return SHARED not in (mine.mode, theirs.mode) and)
    return scopes_meet(mine.where, mine.partition_types, theirs.where, theirs.partition_types)


def scopes_meet(one: str, one_types: Mapping[str, str], other: str, other_types: Mapping[str, str]) -> bool:
    """Whether a partition could satisfy both conditions ("" is everything). The mappings give the columns' Delta types."""
    if not one or not other:
        return True
    if any(other_types.get(name, kind) != kind for name, kind in one_types.items()):
        # check: unlike-conditions-meet-when-in-doubt (True -> False)
        return True  # the table is partitioned differently by now
    return _meet(one, other, tuple(sorted({**one_types, **other_types}.items())))


def writes_in(footprint: Footprint, lease: LeaseNode) -> bool:
    """Whether a commit changes something that the lease covers."""
    if not lease.where or footprint.metadata or footprint.protocol or footprint.partitions is None:
        return True
    if footprint.scope is not None and scopes_meet(footprint.scope, footprint.partition_types, lease.where, lease.partition_types):
        return True
    types = tuple(lease.partition_types.items())
    return any(_in_partition(key, lease.where, types) for key in footprint.partitions)


def reads_in(footprint: Footprint, lease: LeaseNode) -> bool:
    """Whether a commit depends on something that the lease covers."""
    if footprint.blind_append:
        return False
    if footprint.whole_table or (footprint.read_files is None and not footprint.predicates):
        return True
    return any(scopes_meet(sql, footprint.partition_types, lease.where, lease.partition_types) for sql in footprint.predicates)


@cached_by_size(_CACHED_BYTES_MAX)
def _meet(one: str, other: str, types: _Types) -> bool:
    columns = dict(types)
    return overlap(condition(one, columns), condition(other, columns), schema_of(columns))


@cached_by_size(_CACHED_BYTES_MAX)
def _skipper(where: str, types: _Types) -> Skipper:
    columns = dict(types)
    return Skipper(condition(where, columns), schema_of(columns), tuple(columns))


@cached_by_size(_CACHED_BYTES_MAX)
def _in_partition(key: str, where: str, types: _Types) -> bool:
    values = orjson.loads(key)
    if not isinstance(values, dict) or not all(v is None or isinstance(v, str) for v in values.values()):
        return True
    if not {name for name, _ in types} <= values.keys():
        return True  # the table is partitioned differently by now
    return _skipper(where, types).in_partition(values)
