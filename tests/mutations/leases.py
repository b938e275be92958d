"""Leases, and moments of several tables."""

from __future__ import annotations

from typing import Final

from .mutation import COORDINATOR, SEEDS, TABLES, Mutation, edit

__all__ = ["MUTATIONS"]

_TESTS = "tests/coordinator/test_leases.py::"
_TURNS = "tests/tables/test_turns.py::"
_GUARD = f"{COORDINATOR}leases/guard.py"
_QUEUE = f"{COORDINATOR}leases/queue.py"

MUTATIONS: Final = (
    Mutation(
        "grants-are-compared",
        "I9",
        "a commit is ratified on a view of the leases that is older than a grant",
        edit(_GUARD, "return [Check(self.path, self.version), *(", "return [*("),
        tests=(f"{_TESTS}test_a_grant_between_decision_and_ratification_stops_the_commit",),
        worlds=("lease",),
        seeds=SEEDS,
    ),
    Mutation(
        "leases-relied-on-are-checked",
        "I9",
        "the multi that ratifies does not check that the lease still exists",
        edit(_GUARD, "for path in sorted(relied_on | in_the_way))]", "for path in sorted(in_the_way))]"),
        tests=(f"{_TESTS}test_i9_a_lease_that_is_lost_between_decision_and_ratification",),
    ),
    Mutation(
        "leases-in-the-way-are-checked",
        "I4",
        "a transaction is refused for a lease that was released meanwhile",
        edit(_GUARD, "for path in sorted(relied_on | in_the_way))]", "for path in sorted(relied_on))]"),
        tests=("tests/coordinator/test_lease_checks.py::test_nobody_is_refused_for_a_lease_that_went_before_the_verdict",),
    ),
    Mutation(
        "leases-are-checked-on-the-fast-path",
        "I9",
        "the fast path checks no leases",
        edit(f"{COORDINATOR}commit/fast_path.py", "    ops += leases.checks((intent,), ())\n", ""),
        tests=(f"{_TESTS}test_i9_a_lease_that_is_lost_between_decision_and_ratification[fast path]",),
    ),
    Mutation(
        "leases-are-checked-over-several-tables",
        "I9",
        "the multi over several heads checks no leases",
        edit(f"{COORDINATOR}commit/joint_decide.py", "        ops += checks\n", ""),
        tests=("tests/coordinator/test_lease_checks.py::test_i9_a_lease_that_is_lost_before_several_heads_move",),
    ),
    Mutation(
        "lost-leases-are-found",
        "I9",
        "a lease that is gone counts as held when a commit is decided",
        edit(_GUARD, "frozenset(needed) - self._holding(needed, granted)", "frozenset()"),
        tests=(f"{_TESTS}test_of_a_batch_only_the_one_without_its_lease_is_refused",),
        worlds=("lease",),
    ),
    Mutation(
        "commits-name-their-leases",
        "I9",
        "a commit does not say which leases it depends on",
        edit(f"{TABLES}write/commit_change.py", "leases=tuple(dict.fromkeys((*change.leases, *lease_paths(access)))),", "leases=(),"),
        tests=("tests/tables/test_leases.py::test_a_commit_under_a_lease_whose_session_expired_is_refused",),
    ),
    Mutation(
        "others-leases-object",
        "lease",
        "a lease of somebody else stops nobody",
        edit(f"{COORDINATOR}commit/decision.py", "        return self.leases.objection(intent)\n", "        return None\n"),
        tests=(f"{_TESTS}test_a_grant_between_decision_and_ratification_stops_the_commit",),
        worlds=("lease",),
        seeds=SEEDS,
    ),
    Mutation(
        "outdated-views-are-forgotten",
        "liveness",
        "a view of the leases that was found outdated is used again",
        edit(_GUARD, "        if outdated:\n            self._free = None\n", ""),
        tests=(f"{_TESTS}test_a_grant_between_decision_and_ratification_stops_the_commit",),
    ),
    Mutation(
        "nearest-in-the-way-is-waited-for",
        "lease",
        "only the first in the queue is looked at, not everybody who asked before",
        edit(_QUEUE, "for name in reversed(before):", "for name in reversed(before[:1]):"),
        tests=(f"{_TESTS}test_shared_leases_stand_together_and_nobody_overtakes",),
    ),
    Mutation(
        "who-asked-before-is-before",
        "lease",
        "a request waits only for those that came after it",
        edit(_QUEUE, "any(name < my_name and clash(", "any(name > my_name and clash("),
        tests=(f"{_TESTS}test_exclusive_leases_are_granted_in_the_order_of_asking_with_growing_tokens",),
    ),
    Mutation(
        "grants-are-of-requests-that-stand",
        "lease",
        "a request that was broken is granted",
        edit(_QUEUE, "ops: list[Op] = [Check(path, ANY_VERSION) for path in self.nodes]", "ops: list[Op] = []"),
        tests=(f"{_TESTS}test_a_request_that_is_broken_right_before_its_grant_is_not_granted",),
    ),
    Mutation(
        "grants-are-written-by-comparison",
        "lease",
        "of two grants at once one is forgotten",
        edit(
            _QUEUE,
            "grants.with_granted(names, existing=children).encode(), node.version)",
            "grants.with_granted(names, existing=children).encode(), ANY_VERSION)",
        ),
        tests=(f"{_TESTS}test_two_who_are_granted_at_once_are_both_on_record",),
    ),
    Mutation(
        "lost-grant-is-looked-for",
        "lease",
        "a grant whose reply was lost counts as made",
        edit(_QUEUE, "            return self._was_granted()\n", "            return True\n"),
        tests=(f"{_TESTS}test_losing_the_reply_of_every_call_in_turn",),
    ),
    Mutation(
        "lost-request-is-looked-for",
        "lease",
        "a request whose reply was lost is filed once more",
        edit(_QUEUE, "                if not self._found():\n                    continue\n", "                continue\n"),
        tests=(f"{_TESTS}test_losing_the_reply_of_every_call_in_turn",),
    ),
    Mutation(
        "circles-are-found",
        "liveness",
        "those who wait for each other wait for ever",
        edit(_QUEUE, "                self._refuse_cycle()\n", ""),
        tests=(f"{_TESTS}test_asking_for_more_of_the_same_behind_somebody_who_waits_is_a_circle",),
    ),
    Mutation(
        "the-youngest-gives-in",
        "liveness",
        "everybody in a circle is told, and nobody gets through",
        edit(f"{COORDINATOR}leases/deadlocks.py", "                if youngest < born:", "                if True:"),
        tests=(f"{_TESTS}test_of_a_circle_only_the_youngest_has_to_give_in",),
    ),
    Mutation(
        "shared-stand-together",
        "lease",
        "an exclusive lease is granted beside a shared one",
        edit(
            f"{COORDINATOR}leases/scopes.py",
            "    return scopes_meet(mine.where, mine.partition_types, theirs.where, theirs.partition_types)\n",
            "    return SHARED not in (mine.mode, theirs.mode)\n",
        ),
        tests=(f"{_TESTS}test_shared_leases_stand_together_and_nobody_overtakes",),
    ),
    Mutation(
        "unlike-conditions-meet-when-in-doubt",
        "lease",
        "conditions that cannot be told apart are taken for different partitions",
        edit(
            f"{COORDINATOR}leases/scopes.py",
            "        return True  # the table is partitioned otherwise by now\n    return _meet",
            "        return False  # the table is partitioned otherwise by now\n    return _meet",
        ),
        tests=(f"{_TESTS}test_conditions_over_another_partitioning_meet",),
    ),
    Mutation(
        "loss-is-told-at-the-end",
        "lease",
        "a block whose lease was lost ends as if nothing had happened",
        edit(f"{COORDINATOR}leases/lease.py", "lost = self.counts and (self.lost.is_set() or self._certainly_lost())", "lost = False"),
        tests=(f"{_TESTS}test_an_expired_holder_is_told_and_the_next_one_gets_it",),
    ),
    Mutation(
        "one-moment-of-several-heads",
        "reads",
        "of several tables the newest version is read that each shows",
        edit(f"{COORDINATOR}commit/consistent_cut.py", " if zxid <= moment]", "]"),
        tests=("tests/coordinator/test_instants.py::test_versions_of_two_tables_are_those_of_one_moment_however_busy_they_are",),
        seeds=SEEDS,
    ),
    Mutation(
        "a-moment-before-all-ends",
        "reads",
        "of tables that are read later, a version is shown that came after the others had moved on",
        edit(f"{COORDINATOR}commit/consistent_cut.py", "node.created_zxid < min(known)", "node.created_zxid <= max(known)"),
        tests=("tests/coordinator/test_instants.py::test_a_version_beside_others_is_one_that_stood_with_all_of_them",),
    ),
    Mutation(
        "a-moment-that-is-known",
        "reads",
        "the moment at which a table went on is taken from a later commit, where the record of the next one was pruned",
        edit(
            f"{COORDINATOR}commit/consistent_cut.py",
            "None if node is None or _first_version(node) != version + 1 else",
            "None if node is None else",
        ),
        tests=("tests/coordinator/test_instants.py::test_a_moment_whose_records_were_pruned_is_not_guessed",),
    ),
    Mutation(
        "losers-have-their-turn",
        "liveness",
        "a transaction that lost begins again like any other",
        edit(f"{TABLES}write/turn_after_loss.py", "        if wanted and not ", "        if not wanted and not "),
        tests=(f"{_TURNS}test_after_a_loss_nobody_changes_what_was_read",),
    ),
    Mutation(
        "turns-stop-others",
        "liveness",
        "a turn that is granted stops nobody",
        edit(
            _GUARD,
            "            return not intent.footprint.plain_append and writes_in(intent.footprint, theirs)",
            "            return False",
        ),
        tests=(f"{_TURNS}test_after_a_loss_nobody_changes_what_was_read",),
    ),
    Mutation(
        "appends-pass-turns",
        "liveness",
        "plain appends wait for a turn",
        edit(_GUARD, "not intent.footprint.plain_append and writes_in", "writes_in"),
        tests=(f"{_TURNS}test_after_a_loss_nobody_changes_what_was_read",),
    ),
    Mutation(
        "turns-end",
        "liveness",
        "a turn lasts as long as its attempt, though that may never end",
        edit(f"{COORDINATOR}leases/reserved_turns.py", "while turn() is not None and not ends.over:", "while turn() is not None:"),
        tests=(f"{_TURNS}test_a_turn_ends_though_its_attempt_does_not",),
    ),
)
