"""Checks that the published logs have every transaction over several tables in all of its tables.

While the coordinator has its data they do, or soon will: any client publishes what is ratified. After a loss of the data
only the logs are left, and each version's `commitInfo` names those that belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from sluice.coordinator.rules.winner import transactions_of
from sluice.storage.actions import CommitInfo, actions_of
from sluice.storage.actions.texts import stored_text
from sluice.storage.dataclass import dataclass
from sluice.storage.errors import ObjectNotFound
from sluice.storage.log.paths import commit_path
from sluice.storage.log.segment import list_versions
from sluice.storage.stores.objects import ObjectStore

_VERSIONS_LOOKED_AT: Final = 1000


@dataclass(frozen=True, slots=True)
class IncompleteJoint:
    """A transaction of which only some tables have their version: `present` and `missing` map locations to versions.

    `unknown` are the tables whose logs were not given.
    """

    transaction_id: str
    present: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)


def incomplete_joints(stores: Mapping[str, ObjectStore], *, versions: int = _VERSIONS_LOOKED_AT) -> list[IncompleteJoint]:
    """The transactions in the last `versions` of each log, by location, that some table lacks.

    A table whose log was not given does not make a transaction incomplete, but is named.
    """
    joints: dict[str, Mapping[str, int]] = {}
    found: dict[str, set[str]] = {}
    ends: dict[str, tuple[int, int]] = {}
    for location, store in stores.items():
        commits = list_versions(store).commits  # earlier ones were cleaned up
        ends[location] = (max(min(commits), max(commits) - versions + 1), max(commits)) if commits else (-1, -1)
        for transaction_id, joint in _joints(store, *ends[location]):
            joints[transaction_id] = joint
            found.setdefault(transaction_id, set()).add(location)
    incomplete: list[IncompleteJoint] = []
    for transaction_id, joint in joints.items():
        lacking = {at: version for at, version in joint.items() if at in stores and at not in found[transaction_id]}
        missing = {at: version for at, version in lacking.items() if version >= ends[at][0]}  # earlier versions were not examined
        if missing:
            present = {at: version for at, version in joint.items() if at in found[transaction_id]}
            unknown = {at: version for at, version in joint.items() if at not in stores}
            incomplete.append(IncompleteJoint(transaction_id, present, missing, unknown))
    return incomplete


def _joints(store: ObjectStore, first: int, last: int) -> Iterable[tuple[str, Mapping[str, int]]]:
    for version in range(max(first, 0), last + 1):
        try:
            actions = actions_of(stored_text(store, commit_path(version)), name=commit_path(version))
        except ObjectNotFound:
            continue  # cleaned up
        info = next((action for action in actions if isinstance(action, CommitInfo)), None)
        for entry in transactions_of(info):
            joint = entry.get("joint")
            if isinstance(joint, Mapping):
                yield str(entry.get("id")), {str(at): int(number) for at, number in joint.items()}
