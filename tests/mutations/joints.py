"""Transactions over several tables."""

from __future__ import annotations

from typing import Final

from .mutation import COORDINATOR, SEEDS, TABLES, Mutation, edit

__all__ = ["MUTATIONS"]

_TESTS = "tests/coordinator/test_joint.py::"
_LOST = "tests/coordinator/test_joint_lost.py::"
_PRUNED = "tests/coordinator/test_joint_pruned.py::"
_DECIDE = f"{COORDINATOR}commit/joint_decide.py"
_JOINT = f"{COORDINATOR}commit/joint.py"
_COMMITTER = f"{COORDINATOR}commit/committer.py"

MUTATIONS: Final = (
    Mutation(
        "all-heads-in-one-multi",
        "I11",
        "the heads of several tables are moved one after the other",
        edit(
            _DECIDE,
            "            lead.coordination.apply(ops)\n",
            "            for n in range(0, len(ops), 2):\n                lead.coordination.apply(ops[n : n + 2])\n",
        ),
        tests=(f"{_TESTS}test_one_multi_files_it_and_one_ratifies_it",),
        worlds=("joint",),
        seeds=SEEDS,
    ),
    Mutation(
        "all-tables-or-none",
        "I11",
        "a decision that commits in some of the tables is recorded",
        edit(_DECIDE, 'invariant("I11", committed in', 'invariant("I11", True or committed in'),
        tests=(f"{_TESTS}test_i11_a_decision_that_leaves_a_table_out_is_not_recorded",),
    ),
    Mutation(
        "never-with-one-table-alone",
        "I11",
        "a slot of a transaction over several tables is decided with one of them",
        edit(f"{COORDINATOR}commit/decision.py", 'invariant("I11", jointly', 'invariant("I11", True or jointly'),
        tests=(f"{_TESTS}test_i11_a_joint_slot_is_never_decided_with_one_table",),
    ),
    Mutation(
        "the-queue-ends-before-it",
        "I11",
        "what stands behind such a slot is decided with what stands before it",
        edit(
            _COMMITTER,
            "        queue = tuple(takewhile(lambda each: each.joint is None, queue))\n",
            "        queue = tuple(each for each in queue if each.joint is None)\n",
        )
        + edit(_COMMITTER, "from itertools import takewhile\n", ""),
        tests=(f"{_LOST}test_what_stands_behind_it_is_decided_behind_it",),
    ),
    Mutation(
        "refused-in-one-refused-in-all",
        "I11",
        "what one table refuses is committed in the others",
        edit(f"{COORDINATOR}commit/joint_resolve.py", "        if refusal is not None:\n", "        if False:\n"),
        tests=(f"{_TESTS}test_refused_in_one_table_is_refused_in_all_and_names_it",),
        seeds=SEEDS,
    ),
    Mutation(
        "repeated-in-one-is-said",
        "I12",
        "an application number that one table has already is committed in the others",
        edit(f"{COORDINATOR}commit/joint_resolve.py", "    if repeated and len(repeated) < len(decisions):", "    if False:"),
        tests=(f"{_TESTS}test_an_application_number_that_one_table_has_already",),
    ),
    Mutation(
        "half-is-not-told-to-be-done",
        "I11",
        "one that is repeated, and of which a part was lost with the coordinator's data, is told to be committed",
        edit(f"{TABLES}write/repeated_writes.py", "    if missing:\n", "    if False:\n"),
        tests=("tests/tables/test_done_before.py::test_a_lost_part_is_told_and_can_be_written_alone",),
    ),
    Mutation(
        "joint-committed-before",
        "I10",
        "one that was committed before is refused for the sake of a table that it only read",
        edit(f"{COORDINATOR}commit/joint_resolve.py", "    if _was_committed(parts, decisions):", "    if False:"),
        tests=(f"{_LOST}test_what_was_only_read_may_have_changed_since_it_was_committed",),
    ),
    Mutation(
        "forgotten-where-it-was-read",
        "I12",
        "what a table that was only read does not tell any more was refused",
        edit(
            _JOINT,
            "        if not commits and any(leg.claim",
            "        if any(leg.location not in commits for leg in legs) and any(leg.claim",
        ),
        tests=(f"{_PRUNED}test_it_is_committed_though_the_table_that_it_read_has_forgotten_it",),
    ),
    Mutation(
        "any-table-may-know-it",
        "I12",
        "whether it may have been filed is asked of one of its tables, which it may only read",
        edit(
            _JOINT,
            "return any(self._neighbours.at(location).verdicts.knows(transaction_id) for location in locations)",
            "return self._neighbours.at(locations[0]).verdicts.knows(transaction_id)",
        ),
        tests=(f"{_PRUNED}test_its_owner_whose_time_is_over_is_not_told_that_nothing_was_filed",),
    ),
    Mutation(
        "too-late-the-second-time",
        "I12",
        "one that was committed is refused, because the slots in which it was filed again came too late",
        edit(_DECIDE, "        if before is not None:\n", "        if False:\n"),
        tests=(f"{_PRUNED}test_what_is_committed_is_so_though_the_slots_it_was_filed_in_again_come_too_late",),
    ),
    Mutation(
        "what-stands-before-is-decided-before",
        "I3",
        "such a transaction passes what stands before it in its other tables",
        edit(_DECIDE, "(share.front for share in shares.values() if not share.is_first), None)", "(share.front for share in ()), None)"),
        tests=(f"{_TESTS}test_what_stands_before_it_anywhere_is_decided_first",),
    ),
    Mutation(
        "siblings-were-made-together",
        "I11",
        "slots that were made one by one pass for those of one transaction",
        edit(
            _DECIDE,
            "        if name is None or node is None or node.created_zxid != origin.created_zxid:",
            "        if name is None or node is None:",
        ),
        tests=(f"{_TESTS}test_slots_made_one_by_one_in_opposite_orders_are_no_circle",),
    ),
    Mutation(
        "siblings-say-the-same",
        "I11",
        "slots that name different tables pass for those of one transaction",
        edit(_DECIDE, " or theirs.joint != intent.joint:", ":"),
        tests=(f"{_TESTS}test_lists_that_differ_are_refused",),
    ),
    Mutation(
        "not-refused-by-who-is-behind",
        "I10",
        "a transaction is refused because a server that is behind does not show its other slots",
        edit(_DECIDE, "        if problem is not None and not up_to_date:", "        if False:"),
        tests=(f"{_LOST}test_it_is_not_refused_because_a_server_that_is_behind_shows_one_of_its_slots_only",),
    ),
    Mutation(
        "closed-generations-refuse-it",
        "I3",
        "its slot in a generation that was closed is looked for in the present one",
        edit(_DECIDE, "        if front.head.generation > table.generation:\n            return closed(table.location)\n", ""),
        tests=(f"{_TESTS}test_it_came_too_late_for_a_generation",),
    ),
    Mutation(
        "its-slots-are-looked-for",
        "I12",
        "slots whose reply was lost are made again without a look",
        edit(_JOINT, "                if any(leg.claim is not None for leg in found):\n", "                if not found:\n"),
        tests=(f"{_LOST}test_slots_whose_reply_was_lost_are_not_made_again",),
    ),
    Mutation(
        "it-says-that-it-was-filed-again",
        "I12",
        "who files again after a lost reply does not say so",
        edit(_JOINT, "again, doubt = True, partial(", "doubt = partial("),
        tests=(f"{_LOST}test_slots_that_are_decided_and_gone_when_their_owner_looks",),
    ),
    Mutation(
        "its-batch-is-recognised",
        "I1",
        "after a lost reply, whatever record stands there is taken for one's own",
        edit(_DECIDE, " or not is_batch(node.data, batch_id):", ":"),
        tests=(f"{_LOST}test_a_record_of_the_same_name_that_somebody_else_wrote",),
    ),
    Mutation(
        "its-owner-stands",
        "I7",
        "a transaction over several tables is filed though its client was buried",
        edit(_JOINT, "context.standing(None if slots else intent.transaction_id)", "context.standing()"),
        tests=("tests/coordinator/test_owners.py::test_a_transaction_of_nobody_is_filed_in_none_of_several_tables",),
    ),
    Mutation(
        "slots-in-all-tables-or-none",
        "I11",
        "the slots of one transaction are made one after the other",
        edit(
            _JOINT,
            "                results = lead.coordination.apply(self._filing(intents, generations, filed_again=again))\n",
            "                filing = self._filing(intents, generations, filed_again=again)\n"
            "                results = [made for op in filing for made in lead.coordination.apply([op])]\n",
        ),
        tests=(f"{_TESTS}test_one_multi_files_it_and_one_ratifies_it",),
        worlds=("joint",),
        seeds=SEEDS,
    ),
    Mutation(
        "others-backlog-is-kept-to",
        "liveness",
        "such a transaction is ratified though one of its tables has a full backlog",
        edit(_DECIDE, "        if not full:\n            self._ratify", "        if True:\n            self._ratify"),
        accepted="what filled the backlog was published right before, or that raised: the slot is only looked at once more",
    ),
)
