"""MaxCompute's overwrite: the later one replaces all that is there when its turn comes, at the level of metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sluice.coordinator.rules.conflicts import Conflict
from sluice.coordinator.rules.isolation import IsolationLevel
from sluice.coordinator.rules.operation_kinds import Kind
from sluice.coordinator.rules.rebase import Candidate, check_against_all
from sluice.coordinator.rules.winner import Footprint, Winner, winner_of
from sluice.storage.actions import Action, AddFile, RemoveFile, encode_all
from sluice.storage.data.vectors import Rows, plan_vector
from tests.coordinator.world import no_vectors

POLICIES = ("maxcompute-table", "maxcompute-transactional", "maxcompute-delta")


def added(path: str, p: str = "1") -> AddFile:
    return AddFile(path, {"p": p}, 10, 1, True, stats='{"numRecords":3}')


def removed(path: str, p: str = "1") -> RemoveFile:
    return RemoveFile(path, True, deletion_timestamp=1, partition_values={"p": p}, extended_file_metadata=True, size=10)


def overwrite(actions: Sequence[Action], scope: str, policy: str) -> Candidate:
    footprint = Footprint(
        predicates=(scope,),
        partition_types={"p": "integer"},
        removes=tuple(a.path for a in actions if isinstance(a, RemoveFile)),
        kind=Kind.OVERWRITE.value,
        policy=policy,
        partitions=None if not scope else ('{"p":"1"}',),
        scope=scope,
    )
    return Candidate("me", "WRITE", footprint, IsolationLevel.WRITE_SERIALIZABLE, encode_all(actions), now_ms=9)


def after(attempt: Candidate, *winners: Winner) -> tuple[set[str], set[str]]:
    """What the overwrite removes and adds after it is committed."""
    met = check_against_all(attempt, winners, no_vectors)
    assert isinstance(met, Candidate)
    removes = {a.path for a in met.decoded() if isinstance(a, RemoveFile)}
    return removes, {a.path for a in met.decoded() if isinstance(a, AddFile)}


@pytest.mark.notices("replacing-replaces")
@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_appended_meanwhile_goes_too(policy: str) -> None:
    append = winner_of(8, [added("late")])
    assert after(overwrite([removed("old"), added("new")], "", policy), append) == ({"old", "late"}, {"new"})


@pytest.mark.parametrize("policy", POLICIES)
def test_what_another_overwrite_left_goes_and_what_it_removed_is_not_removed_again(policy: str) -> None:
    other = winner_of(8, [removed("old"), added("theirs")])
    assert after(overwrite([removed("old"), added("new")], "", policy), other) == ({"theirs"}, {"new"})


@pytest.mark.parametrize("policy", POLICIES)
def test_several_in_between(policy: str) -> None:
    winners = [winner_of(8, [added("a")]), winner_of(9, [removed("a"), added("b")]), winner_of(10, [added("c")])]
    assert after(overwrite([removed("old"), added("new")], "", policy), *winners) == ({"old", "b", "c"}, {"new"})


def test_only_inside_the_scope() -> None:
    winners = [winner_of(8, [added("here", "1"), added("there", "2")])]
    assert after(overwrite([removed("old"), added("new")], "p = 1", "maxcompute-table"), *winners) == ({"old", "here"}, {"new"})


def test_a_file_that_got_a_vector_is_removed_with_it() -> None:
    vector, _ = plan_vector(Rows([1]), owner="t")
    winner = winner_of(8, [removed("old"), replace(added("old"), deletion_vector=vector)])
    met = check_against_all(overwrite([removed("old"), added("new")], "", "maxcompute-delta"), [winner], no_vectors)
    assert isinstance(met, Candidate)
    (remove,) = [a for a in met.decoded() if isinstance(a, RemoveFile)]
    assert (remove.path, remove.deletion_vector) == ("old", vector)


def test_under_delta_rules_a_later_overwrite_is_compared_with_what_it_read() -> None:
    attempt = overwrite([removed("old"), added("new")], "", "delta")
    met = check_against_all(attempt, [winner_of(8, [removed("old"), added("theirs")])], no_vectors)
    assert isinstance(met, Conflict)


def test_what_was_replaced_is_told() -> None:
    met = check_against_all(overwrite([removed("old"), added("new")], "", "maxcompute-table"), [winner_of(8, [added("late")])], no_vectors)
    assert isinstance(met, Candidate)
    assert met.rebased == ("files of version 8 replaced (1 files)",)


@pytest.mark.notices("coarse-footprints-are-made-exact")
@pytest.mark.parametrize(("theirs", "stands"), [("600", True), ("7", False)])
def test_an_insert_into_more_partitions_than_a_footprint_lists_is_compared_with_those_it_writes(theirs: str, stands: bool) -> None:
    actions = [added(f"f{n}", str(n)) for n in range(600)]
    footprint = Footprint(
        partition_types={"p": "integer"}, blind_append=True, kind=Kind.APPEND.value, policy="maxcompute-delta", partitions=None
    )
    attempt = Candidate("me", "WRITE", footprint, IsolationLevel.WRITE_SERIALIZABLE, encode_all(actions), now_ms=9)
    winner = replace(winner_of(8, [added("late", theirs)]), kind=Kind.APPEND)
    assert isinstance(check_against_all(attempt, [winner], no_vectors), Candidate) == stands
