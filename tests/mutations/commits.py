"""Committing to one table: filing, ratifying, publishing, answers that are lost, generations of slots."""

from __future__ import annotations

from typing import Final

from .mutation import COORDINATOR, SEEDS, TABLES, Mutation, edit

__all__ = ["MUTATIONS"]

_PROTOCOL = "tests/coordinator/test_commit_protocol.py::"
_INVARIANTS = "tests/coordinator/test_invariants.py::"
_LATE = "tests/coordinator/test_lost_and_late.py::"
_OVERTAKEN = "tests/coordinator/test_overtaken.py::"
_ONCE = "tests/coordinator/test_once.py::"
_JOINT_LOST = "tests/coordinator/test_joint_lost.py::"
_PRUNED = "tests/coordinator/test_joint_pruned.py::"
_PUT_AWAY = "tests/coordinator/test_pruning.py::"
_GROUPING = "tests/coordinator/test_grouping.py::"

_COMMITTER = f"{COORDINATOR}commit/committer.py"
_CLAIMS = f"{COORDINATOR}commit/claims.py"
_DIRECT = f"{COORDINATOR}commit/fast_path.py"
_PUBLISHER = f"{COORDINATOR}commit/publisher.py"
_PRUNING = f"{COORDINATOR}commit/pruning.py"
_RESOLVE = f"{COORDINATOR}commit/decision.py"

_RATIFYING: Final = (
    Mutation(
        "head-is-compared",
        "I1",
        "a batch is recorded on whatever head there is by now",
        edit(f"{COORDINATOR}commit/queue.py", "Write(tree.head, after.encode(), before.version)", "Write(tree.head, after.encode(), -1)"),
        tests=(
            f"{_INVARIANTS}test_i1_a_version_is_ratified_at_most_once[queue]",
            f"{_OVERTAKEN}test_the_head_never_goes_back_to_who_was_overtaken",
        ),
        worlds=("queue",),
        seeds=SEEDS,
    ),
    Mutation(
        "head-is-compared-on-the-fast-path",
        "I1",
        "the same for a transaction without a slot",
        edit(
            _DIRECT,
            "Write(context.tree.head, after.encode(), state.head_node.version)",
            "Write(context.tree.head, after.encode(), -1)",
        ),
        tests=(f"{_INVARIANTS}test_i1_a_version_is_ratified_at_most_once[fast path]",),
    ),
    Mutation(
        "published-tells-of-its-own-slots",
        "I3",
        "what `published` says of a transaction is taken for every slot that bears its name",
        edit(
            f"{COORDINATOR}commit/outcomes.py",
            "if told is not None and (published.generation, told[0]) == (claim.generation, claim.slot):",
            "if told is not None:",
        ),
        tests=(
            "tests/coordinator/test_published.py::test_a_slot_that_only_bears_the_name_of_a_transaction_is_not_told_that_this_is_committed",
        ),
    ),
    Mutation(
        "published-tells-of-commits-only",
        "I3",
        "`published` tells repetitions as commits of their own",
        edit(
            f"{COORDINATOR}nodes/records.py",
            "v.refusal is None and not v.repeats and v.version in timestamps",
            "v.refusal is None and v.version in timestamps",
        ),
        tests=("tests/coordinator/test_published.py::test_what_is_refused_or_repeated_is_told_by_its_record",),
    ),
    Mutation(
        "batch-is-recognised",
        "I1",
        "after a lost reply, whatever record stands there is taken for one's own",
        edit(_COMMITTER, " or not is_batch(node.data, record.batch_id)", ""),
        tests=(f"{_OVERTAKEN}test_a_record_of_the_same_name_that_somebody_else_wrote",),
    ),
    Mutation(
        "batch-is-recognised-on-the-fast-path",
        "I1",
        "the same for a transaction without a slot",
        edit(_DIRECT, "return is_batch(node.data, record.batch_id)", "return True"),
        tests=(f"{_OVERTAKEN}test_a_record_of_the_same_name_on_the_fast_path",),
    ),
    Mutation(
        "barrier-after-a-lost-reply",
        "I12",
        "a server that is behind tells what became of a request whose reply was lost",
        edit(
            f"{COORDINATOR}nodes/context.py",
            "                self.coordination.barrier()\n                return look()",
            "                return look()",
        ),
        tests=(f"{_OVERTAKEN}test_a_lost_claim_is_looked_for_after_a_barrier",),
    ),
    Mutation(
        "barrier-after-a-lost-ratification",
        "I12",
        "the same for a ratifying multi",
        edit(
            _COMMITTER,
            "            coordination.barrier()\n            node = coordination.read(self.context.tree.verdict(name))",
            "            node = coordination.read(self.context.tree.verdict(name))",
        ),
        accepted="the claim is looked at again until the head shows that it is decided, and its record tells how: it takes longer",
    ),
    Mutation(
        "versions-are-dense",
        "I2",
        "a decision that leaves a version out is recorded",
        edit(_RESOLVE, 'invariant("I2", ', 'invariant("I2", True or '),
        tests=(f"{_INVARIANTS}test_i2_versions_are_dense",),
    ),
    Mutation(
        "backlog-is-bounded",
        "liveness",
        "any number of versions is ratified before they are published",
        edit(_RESOLVE, "            if len(self.groups) >= self.room:\n                return False\n", ""),
        tests=("tests/coordinator/test_resolve.py::test_versions_are_dense_times_increase_and_room_is_kept",),
    ),
    Mutation(
        "slot-order-is-checked",
        "I3",
        "a queue that is out of order, or holds a slot twice, is decided",
        edit(_RESOLVE, 'invariant("I3", ', 'invariant("I3", True or '),
        tests=(f"{_INVARIANTS}test_i3_slots_are_decided_in_slot_order_each_once",),
    ),
    Mutation(
        "slots-are-sorted",
        "I3",
        "later slots are decided before earlier ones",
        edit(_CLAIMS, "for slot in sorted(s for s", "for slot in reversed([s for s")
        + edit(_CLAIMS, "s.sequence > head.slot):", "s.sequence > head.slot]):")
        + edit(_RESOLVE, 'invariant("I3", ', 'invariant("I3", True or ')
        + edit(_RESOLVE, "        last = queued.slot\n", "        last = max(last, queued.slot)\n"),
        tests=(f"{_PROTOCOL}test_slots_are_decided_in_slot_order",),
        worlds=("queue",),
        seeds=SEEDS,
    ),
    Mutation(
        "slots-that-vanish-stop-the-look",
        "I3",
        "of a queue in which a slot is not there any more, the others are decided",
        edit(f"{COORDINATOR}commit/queue.py", "            return ()\n        try:", "            continue\n        try:"),
        accepted="a slot goes when it is published, so that the head has moved, and the comparison of the head stops the decision",
    ),
    Mutation(
        "one-slot-of-each-number",
        "I3",
        "of two slots with one number both are decided",
        edit(
            _CLAIMS,
            "        found.setdefault(slot.sequence, slot)\n    return list(found.values())",
            "        found[hash(slot)] = slot\n    return list(found.values())",
        ),
        tests=("tests/tables/test_hostile_intents.py::test_two_slots_of_one_number_are_decided_once",),
    ),
    Mutation(
        "history-is-complete",
        "I4",
        "a version that is needed to decide and was not given is passed over",
        edit(_RESOLVE, 'invariant("I4", ', 'invariant("I4", True or '),
        tests=(f"{_INVARIANTS}test_i4_nothing_is_decided_without_the_history_it_depends_on",),
    ),
    Mutation(
        "who-waits-is-not-passed",
        "order",
        "the fast path is taken though somebody waits in the queue",
        edit(
            _DIRECT,
            "    if undecided(state.slots, head):\n        return None\n",
            "",
        ),
        tests=(f"{_PROTOCOL}test_who_waits_in_the_queue_is_not_passed",),
    ),
    Mutation(
        "fast-path-when-idle",
        "order",
        "the fast path is taken though a version waits to be published",
        edit(_DIRECT, "state is None or not state.is_published or", "state is None or"),
        tests=("tests/coordinator/test_published.py::test_no_more_is_ratified_than_may_wait[fast path]",),
    ),
    Mutation(
        "trouble-with-deciding-is-waited-out",
        "I12",
        "an object store that is away while a queue is decided fails whoever decides",
        edit(
            _COMMITTER,
            "            except _TROUBLE as trouble:\n                unknown",
            "            except ZeroDivisionError as trouble:\n                unknown",
        ),
        tests=(f"{_PROTOCOL}test_an_unavailable_store_during_a_decision_only_delays",),
        seeds=SEEDS,
    ),
)

_LOST: Final = (
    Mutation(
        "slot-is-looked-for",
        "I12",
        "a slot whose reply was lost is made again without a look",
        edit(_CLAIMS, "            if found is not None:\n", "            if found is not None and not found:\n"),
        tests=(f"{_PROTOCOL}test_the_slot_of_a_lost_reply_is_found_by_its_guid",),
    ),
    Mutation(
        "refused-stays-refused",
        "I12",
        "what was refused is filed again by an owner who heard no answer, and may be committed then",
        edit(_CLAIMS, "        raise_refusal(transaction_id)\n", "        _ = raise_refusal\n"),
        tests=("tests/coordinator/test_refused_once.py::test_a_refusal_that_was_cleaned_up_before_its_owner_looks_is_told",),
    ),
    Mutation(
        "filed-again-is-said",
        "I12",
        "who files again after a lost reply does not say so, and is not looked for in the log",
        edit(_CLAIMS, "intent, doubt = replace(intent, filed_again=True), is_decided", "doubt = is_decided"),
        tests=(f"{_PROTOCOL}test_a_claim_whose_slot_was_decided_before_the_lost_reply_was_noticed",),
    ),
    Mutation(
        "filed-again-is-said-after-the-fast-path",
        "I12",
        "the same for who was on the fast path before",
        edit(_COMMITTER, "commit, intent = None, replace(intent, filed_again=True)", "commit, intent = None, intent"),
        tests=(f"{_ONCE}test_a_lost_reply_of_the_fast_path_whose_record_is_pruned_when_its_owner_looks",),
    ),
    Mutation(
        "lost-on-the-fast-path-is-told",
        "I12",
        "on the fast path, no record is taken for no commit",
        edit(_DIRECT, "            raise  # it never took effect", "            return False  # it never took effect"),
        tests=(f"{_ONCE}test_a_lost_reply_of_the_fast_path_whose_record_is_pruned_when_its_owner_looks",),
    ),
    Mutation(
        "committed-once-by-id",
        "I12",
        "the log is not searched for a transaction that was filed again",
        edit(_RESOLVE, "            if ordinal is not None:\n                return version, ordinal\n", ""),
        tests=(f"{_PROTOCOL}test_a_claim_whose_slot_was_decided_before_the_lost_reply_was_noticed",),
    ),
    Mutation(
        "committed-once-in-a-batch",
        "I12",
        "two slots of one transaction in one batch are both committed",
        edit(
            _RESOLVE,
            "        if intent.transaction_id in self.placed:\n            return self.placed[intent.transaction_id]\n",
            "",
        ),
        tests=(f"{_ONCE}test_two_slots_of_one_transaction_in_one_batch",),
    ),
    Mutation(
        "application-number-once",
        "I12",
        "an application's transaction is committed as often as it is filed",
        edit(_RESOLVE, "winner.app_versions.get(app) == number", "False"),
        tests=(f"{_PROTOCOL}test_an_application_transaction_twice_in_one_batch",),
        seeds=SEEDS,
    ),
    Mutation(
        "applications-are-depended-on",
        "serial",
        "an application that wrote another number since is no conflict",
        edit(f"{COORDINATOR}rules/conflicts.py", " if theirs.get(app, number) != number}", " if False}"),
        tests=(f"{_PROTOCOL}test_an_application_that_went_on_refuses_another_number",),
    ),
    Mutation(
        "numbered-appends-are-compared",
        "serial",
        "a plain append that an application numbers is grouped without a look at what that application wrote",
        edit(
            _RESOLVE,
            "groupable(intent) and not intent.footprint.app_versions\n            if plain",
            "groupable(intent)\n            if plain",
        ),
        tests=(f"{_GROUPING}test_of_two_numbers_of_one_application_in_a_batch_the_later_is_refused",),
    ),
    Mutation(
        "applications-are-depended-on-from-the-plan-on",
        "serial",
        "a plan's application may have gone on between planning and committing",
        edit(f"{TABLES}write/commit_change.py", "        _require_number(access, change, attempt)\n", "        pass\n"),
        tests=("tests/tables/test_applications.py::test_a_checkpoint_that_was_started_twice",),
    ),
    Mutation(
        "repeated-before-refused",
        "I12",
        "what an application committed already under this number is refused for what it conflicts with",
        edit(
            f"{TABLES}write/commit_change.py",
            "            if repeated is None:\n                raise\n            return repeated\n        except",
            "            raise\n        except",
        ),
        tests=("tests/tables/test_applications.py::test_the_same_number_that_is_committed_between_two_looks",),
    ),
    Mutation(
        "undecided-is-decided-by-who-asks",
        "I10",
        "who asks for an outcome does not decide an undecided slot",
        edit(
            _COMMITTER,
            "            if state is not None and claim is not None and node is not None:\n"
            "                break\n            if claim is None:",
            "            if True:",
        ),
        tests=(f"{_INVARIANTS}test_i10_every_outcome_can_be_asked_for_by_anyone",),
        seeds=SEEDS,
    ),
    Mutation(
        "barrier-before-an-outcome",
        "I10",
        "an outcome is told by a server that is behind",
        edit(
            _COMMITTER,
            "            self.context.coordination.barrier()\n            state = self.context.read_head()",
            "            state = self.context.read_head()",
        ),
        tests=(f"{_OVERTAKEN}test_who_asks_a_server_that_is_behind_is_not_told_that_there_is_nothing",),
    ),
    Mutation(
        "records-are-kept",
        "I10",
        "verdict records go when there are enough later ones, whether their versions are published or not",
        edit(_PRUNING, " if (name.generation, name.slot, name.version) <= reached]", "]"),
        tests=(f"{_PRUNED}test_what_waits_to_be_published_keeps_its_record_whatever_else_is_decided",),
    ),
    Mutation(
        "refusals-are-kept",
        "I10",
        "the records of refusals go, and nothing of them is put away",
        edit(_PUBLISHER, "[raised, *kept, *with_it, *context", "[raised, *with_it, *context"),
        tests=(f"{_PUT_AWAY}test_refusals_leave_the_records_and_are_told_with_their_reason",),
    ),
    Mutation(
        "refusals-stay",
        "I12",
        "who lost the reply to filing does not look for a refusal that was put away meanwhile, and files again",
        edit(f"{COORDINATOR}commit/outcomes.py", " if name.refusals)) or self._put_away(transaction_id)", " if name.refusals))"),
        tests=(f"{_PUT_AWAY}test_what_was_refused_stays_so_for_an_owner_that_slept",),
    ),
    Mutation(
        "refusals-are-found",
        "I10",
        "who asks for an outcome looks among what was put away first, and then in the records, which go there meanwhile",
        edit(
            f"{COORDINATOR}commit/outcomes.py",
            "self._on_record(transaction_id, self._names()) or self._put_away(transaction_id)",
            "self._put_away(transaction_id) or self._on_record(transaction_id, self._names())",
        ),
        tests=(f"{_PUT_AWAY}test_a_record_that_is_put_away_between_two_requests_is_found",),
    ),
    Mutation(
        "records-go",
        "I10",
        "verdict records stay for ever",
        edit(_PRUNING, "[: max(0, len(names) - kept)]", "[:0]"),
        tests=(f"{_PUT_AWAY}test_the_nodes_of_a_table_stay_below_a_bound_whatever_batches_are_like[appends-7]",),
    ),
    Mutation(
        "refusals-of-this-tree",
        "I10",
        "who is about to raise `published` does so, and puts refusals away, in a tree that was rebuilt meanwhile",
        edit(_PUBLISHER, "[raised, *kept, *with_it, *context.standing()]", "[raised, *kept, *with_it]"),
        tests=(f"{_PUT_AWAY}test_nothing_is_put_away_in_a_tree_that_was_rebuilt",),
    ),
    Mutation(
        "records-outlast-the-backlog",
        "I10",
        "limits are taken by which records would be pruned before their versions are published",
        edit(f"{COORDINATOR}limits.py", "            and self.verdicts_kept > self.backlog_versions_max\n", ""),
        tests=(f"{_ONCE}test_limits_by_which_a_record_could_go_before_its_version_is_published_are_none",),
    ),
    Mutation(
        "trees-are-made-once",
        "I12",
        "who makes the tree of a table and hears no answer takes it for made",
        edit(
            f"{COORDINATOR}nodes/creation.py",
            "            coordination.barrier()  # it took effect or it did not: then it is done now\n            continue\n",
            "            coordination.barrier()\n",
        ),
        tests=(f"{_LATE}test_a_tree_is_made_although_an_answer_is_lost",),
    ),
    Mutation(
        "lost-session-is-replaced",
        "I12",
        "a session that expired fails whoever reads",
        edit(
            f"{COORDINATOR}nodes/context.py",
            "        except SessionLost:\n            return look(self.coordination)\n",
            "        except SessionLost:\n            raise\n",
        ),
        tests=(f"{_ONCE}test_an_expired_session_is_no_trouble_of_who_reads",),
    ),
)

_PUBLISHING: Final = (
    Mutation(
        "content-has-its-digest",
        "I5",
        "what was tampered with after it was ratified is published",
        edit(f"{COORDINATOR}commit/ratified_log.py", 'invariant("I5", ', 'invariant("I5", True or '),
        tests=(f"{_INVARIANTS}test_i5_what_is_published_is_what_was_ratified",),
    ),
    Mutation(
        "foreign-commits-are-noticed",
        "I5",
        "a version that stands in the log is taken for the one that was ratified",
        edit(_PUBLISHER, "if digest(found) != plan.digest:", "if False:"),
        tests=(f"{_PROTOCOL}test_a_foreign_commit_is_named",),
    ),
    Mutation(
        "publication-order-is-checked",
        "I6",
        "a version is published though the one before is not",
        edit(_PUBLISHER, 'invariant("I6", plan', 'invariant("I6", True or plan'),
        tests=(f"{_INVARIANTS}test_i6_a_version_is_published_only_after_the_one_before",),
    ),
    Mutation(
        "first-pending-batch-first",
        "I6",
        "of what waits to be published, the last batch is taken",
        edit(_PUBLISHER, "pending = min(", "pending = max(") + edit(_PUBLISHER, 'invariant("I6", plan', 'invariant("I6", True or plan'),
        tests=(f"{_OVERTAKEN}test_of_two_batches_that_wait_the_first_is_published_first",),
        seeds=SEEDS,
    ),
    Mutation(
        "own-batch-in-its-turn",
        "I6",
        "who ratified a batch publishes it at once, whatever is before it",
        edit(
            _COMMITTER,
            "        if before.is_published and self.publisher.publish(",
            "        if self.publisher.publish(",
        )
        + edit(_PUBLISHER, 'invariant("I6", plan', 'invariant("I6", True or plan'),
        tests=(f"{_PROTOCOL}test_a_batch_on_top_of_an_unpublished_direct_version_waits_for_it",),
        seeds=SEEDS,
    ),
    Mutation(
        "published-when-it-is-there",
        "I6",
        "`published` is raised before the files are put",
        edit(
            _PUBLISHER,
            "            if not self._put(record, plan.version):\n                return False\n            version = plan.version\n",
            "            version = plan.version\n",
        )
        + edit(
            _PUBLISHER,
            "        raised = self._raise(record, reached, node, oldest)\n",
            "        raised = self._raise(record, reached, node, oldest)\n"
            "        raised = raised and all([self._put(record, plan.version) for plan in record.versions])\n",
        ),
        tests=("tests/coordinator/test_published.py::test_published_is_raised_when_the_files_are_there",),
        seeds=SEEDS,
    ),
    Mutation(
        "published-is-compared",
        "I6",
        "a publisher that slept moves `published` back",
        edit(
            _PUBLISHER,
            "Write(context.tree.published, reached.encode(), node.version)",
            "Write(context.tree.published, reached.encode(), -1)",
        ),
        tests=(f"{_INVARIANTS}test_i6_published_only_moves_up",),
        seeds=SEEDS,
    ),
    Mutation(
        "publisher-has-its-session",
        "I6",
        "who lost the session goes on publishing",
        edit(_PUBLISHER, "        if not context.coordination.connected:", "        if False:"),
        tests=(f"{_INVARIANTS}test_i6_who_lost_the_session_stops_publishing",),
    ),
    Mutation(
        "slots-stay-until-published",
        "I5",
        "slots are removed when they are decided",
        edit(
            _COMMITTER,
            '        point("after-ratify")\n        return True',
            '        point("after-ratify")\n'
            "        for verdict in record.verdicts:\n"
            "            name = SlotName(verdict.slot, verdict.transaction_id)\n"
            "            self.context.coordination.delete(self.context.tree.slot(record.generation, name))\n"
            "        return True",
        )
        + edit(_COMMITTER, "from ..nodes.layout import VerdictName", "from ..nodes.layout import SlotName, VerdictName"),
        tests=(f"{_PROTOCOL}test_a_ratified_version_is_published_by_others_when_its_ratifier_dies",),
    ),
    Mutation(
        "answered-when-published",
        "I12",
        "who asked for `published` is answered when it is ratified",
        edit(
            _COMMITTER,
            "        return self._publish_in_time(commit, publish)\n\n    def see",
            "        self.background.submit(publish)\n        return replace(commit, published=True)\n\n    def see",
        ),
        tests=("tests/coordinator/test_published.py::test_who_is_answered_finds_the_file",),
    ),
    Mutation(
        "trouble-with-publishing-is-no-failure",
        "I12",
        "an object store that is away fails a commit that is ratified",
        edit(
            _COMMITTER,
            '            except _TROUBLE as trouble:\n                _log.info("version %d waits',
            '            except ZeroDivisionError as trouble:\n                _log.info("version %d waits',
        ),
        tests=(f"{_PROTOCOL}test_no_right_to_publish_is_no_failure_of_what_is_ratified",),
    ),
    Mutation(
        "gaps-are-looked-at-again",
        "I12",
        "a publisher that slept while others published and pruned takes what it finds for a broken invariant",
        edit(_PUBLISHER, " and looked_again_at != node.version:", " and False:"),
        tests=(f"{_OVERTAKEN}test_a_publisher_that_slept_while_others_published_and_pruned",),
    ),
    Mutation(
        "ids-are-looked-for-before-they-were-made",
        "I10",
        "who asks for a transaction that nobody knows reads the whole log",
        edit(
            f"{COORDINATOR}commit/outcomes.py",
            "            if made is not None and winner",
            "            if False and made is not None and winner",
        ),
        tests=("tests/coordinator/test_asking_late.py::test_an_unknown_transaction_is_looked_for_where_it_can_be[client]",),
    ),
    Mutation(
        "clocks-may-differ",
        "I10",
        "a transaction whose id was made by a clock that is ahead is not found in the log",
        edit(f"{COORDINATOR}commit/outcomes.py", "winner.timestamp_ms < made - CLOCKS_DIFFER_MS", "winner.timestamp_ms < made"),
        tests=("tests/coordinator/test_asking_late.py::test_a_transaction_is_found_though_the_clock_that_made_its_id_was_ahead[20]",),
    ),
    Mutation(
        "who-reads-helps-to-publish",
        "I8",
        "what a dead writer ratified stays unpublished while others only read",
        edit(f"{TABLES}client/access.py", "                self.committer.help_to_publish(head)\n", ""),
        tests=("tests/tables/test_consistency.py::test_who_reads_what_a_dead_writer_ratified_sees_it_published",),
    ),
    Mutation(
        "published-though-a-slot-is-gone",
        "I8",
        "a slot that was removed by hand keeps a version from being published",
        edit(_PUBLISHER, "            if not self._one_by_one([*kept, raised], rest):\n", "            if kept is not None:\n"),
        tests=("tests/coordinator/test_published.py::test_published_is_raised_though_one_of_the_slots_is_gone",),
    ),
    Mutation(
        "late-publishers-find-it-published",
        "I12",
        "a publisher who is late takes staged actions that were collected for lost ones",
        edit(
            f"{COORDINATOR}commit/ratified_log.py",
            "            if state is not None and state[0].version >= plan.version:\n                return None\n",
            "",
        ),
        tests=("tests/coordinator/test_published.py::test_a_publisher_who_is_late_finds_what_was_staged_gone",),
    ),
    Mutation(
        "patience-decides",
        "I8",
        "who waits for a dead owner waits for ever",
        edit(
            _COMMITTER,
            "elif against is not None or self._my_turn(claim, intent, state) or patience.left_s == 0:",
            "elif against is not None or self._my_turn(claim, intent, state):",
        ),
        tests=(f"{_PROTOCOL}test_a_dead_writers_intent_is_decided_by_others",),
    ),
    Mutation(
        "patience-publishes",
        "I8",
        "what a dead ratifier decided stays unpublished",
        edit(
            _COMMITTER,
            "                    if patience.left_s == 0:\n                        self.publisher.publish_pending()\n"
            "                        patience.used()\n                        continue\n",
            "",
        ),
        tests=(f"{_INVARIANTS}test_i8_what_a_dead_ratifier_decided_is_published_by_who_waits",),
    ),
    Mutation(
        "patience-ends",
        "I8",
        "patience never ends",
        edit(f"{COORDINATOR}commit/patience.py", "return max(0.0,", "return max(1.0,"),
        tests=(f"{_INVARIANTS}test_i8_no_step_waits_for_another_client_to_be_alive",),
        seeds=SEEDS,
    ),
)

_GENERATIONS: Final = (
    Mutation(
        "too-late-is-filed-again",
        "I10",
        "a slot that came too late for its generation is taken for one that was decided",
        edit(_COMMITTER, "        if published.generation == claim.generation:", "        if True:"),
        tests=(f"{_PROTOCOL}test_an_intent_that_arrives_in_a_closed_generation_is_filed_again",),
        seeds=SEEDS,
    ),
    Mutation(
        "closed-generations-are-decided-no-more",
        "I3",
        "the number of a slot is compared with that of another generation",
        edit(
            _CLAIMS,
            "        return head.generation == self.generation and head.slot >= self.slot\n",
            "        return head.slot >= self.slot\n",
        ),
        tests=(f"{_ONCE}test_the_number_of_a_slot_counts_within_its_generation",),
    ),
    Mutation(
        "generations-end",
        "liveness",
        "the counter of a generation runs on without end",
        edit(_RESOLVE, "    if last >= limits.generation_slots_max:", "    if False:"),
        tests=(f"{_PROTOCOL}test_generations_rotate_and_lose_nothing",),
    ),
    Mutation(
        "closed-generation-is-passed-on",
        "liveness",
        "who publishes the last batch of a generation does not say that it was",
        edit(_PUBLISHER, "        if record.closes_generation:", "        if False:"),
        tests=(f"{_ONCE}test_a_slot_that_comes_too_late_when_nobody_else_comes_any_more",),
    ),
    Mutation(
        "orphans-of-old-generations-are-found",
        "I10",
        "who asks for an outcome looks for slots in the present generation alone",
        edit(
            _COMMITTER,
            "find_slot(self.context, transaction_id, state[0])",
            "find_slot(self.context, transaction_id, state[0], oldest=state[0].generation)",
        ),
        tests=(f"{_LATE}test_a_slot_in_a_generation_long_closed_is_found_and_decided",),
    ),
    Mutation(
        "an-old-slot-is-no-sign-of-a-new-one",
        "I12",
        "a slot that came too late is taken for the one that is filed in its stead",
        edit(_CLAIMS, "head, oldest=head.generation)", "head)"),
        accepted="a slot that is found in an older generation is seen to have come too late there, and is moved",
    ),
    Mutation(
        "moved-slot-leaves-its-place",
        "I12",
        "a slot that is filed again in another generation stands in both",
        edit(_CLAIMS, "[*context.standing(), Delete(claim.path(context.tree)), create]", "[*context.standing(), create]"),
        tests=(f"{_ONCE}test_a_slot_that_is_filed_again_leaves_its_old_place",),
    ),
    Mutation(
        "moved-slot-says-so",
        "I12",
        "a slot that is filed again in another generation is not looked for in the log",
        edit(_CLAIMS, "replace(intent, filed_again=True).encode()", "intent.encode()"),
        tests=(f"{_ONCE}test_a_decided_slot_that_was_left_behind_is_not_decided_again",),
    ),
)

_WITHDRAWN: Final = (
    Mutation(
        "taken-back-though-committed",
        "I10",
        "what was committed from an earlier slot is taken back in a later one",
        edit(_RESOLVE, "before = None if member is None else self", "before = None if member is None or queued.against else self"),
        tests=(f"{_JOINT_LOST}test_what_is_committed_is_not_taken_back_by_the_slots_it_was_filed_in_again",),
    ),
    Mutation(
        "taken-back-alone",
        "I10",
        "who takes back a transaction refuses what else is queued",
        edit(
            _COMMITTER,
            "    return replace(queued, against=against) if mine else queued",
            "    return replace(queued, against=against)",
        ),
        tests=("tests/tables/test_unanswered.py::test_what_stands_before_it_is_decided_as_ever",),
    ),
    Mutation(
        "taken-back-by-a-verdict",
        "I10",
        "who takes back what may be filed does not see to a verdict",
        edit(f"{TABLES}write/transaction_end.py", " if self._state == _UNDECIDED else None", " if False else None"),
        tests=("tests/tables/test_unanswered.py::test_what_is_filed_and_undecided_is_taken_back_for_ever",),
    ),
    Mutation(
        "too-late-to-take-back",
        "I10",
        "who takes back what was committed is told that it is not there",
        edit(f"{TABLES}write/transaction_end.py", "            if known is not None:\n                return self._won(known)\n", ""),
        tests=("tests/tables/test_unanswered.py::test_it_may_have_been_too_late",),
    ),
    Mutation(
        "verdicts-are-looked-for-again",
        "I12",
        "a verdict that a server does not show is taken for forgotten",
        edit(
            f"{COORDINATOR}commit/outcomes.py",
            "            self._context.barrier()\n            told = self._look(claim, hint, after)\n",
            "",
        ),
        tests=(f"{_ONCE}test_a_verdict_is_not_forgotten_because_the_next_server_is_behind",),
    ),
)

_READING: Final = (
    Mutation(
        "latest-asks-for-what-is-known-to-anybody",
        "reads",
        "`latest` is what a server that is behind shows",
        edit(f"{TABLES}client/access.py", "        return self.ours.context.up_to_date(self.head)", "        return self.head()"),
        tests=("tests/tables/test_consistency.py::test_latest_shows_what_anybody_was_told_of_though_the_server_is_behind",),
    ),
    Mutation(
        "the-first-batch-of-a-number-made-it",
        "reads",
        "a version that waits to be published is looked for in the record of what was refused behind it",
        edit(f"{COORDINATOR}commit/ratified_log.py", "holding = min((n for n", "holding = max((n for n"),
        tests=("tests/coordinator/test_published.py::test_what_waits_to_be_published_is_found_whatever_was_refused_behind_it",),
    ),
    Mutation(
        "barriers-count-for-their-session",
        "reads",
        "a barrier of a session that is over counts for the next one, whose server is behind",
        edit(
            f"{COORDINATOR}nodes/context.py",
            "            if self.coordination.session_id == session:\n                return found\n",
            "            return found\n",
        ),
        tests=("tests/tables/test_consistency.py::test_a_session_that_ends_between_the_barrier_and_the_look",),
    ),
    Mutation(
        "sessions-show-their-own",
        "reads",
        "`session` shows a snapshot that is older than what was committed here",
        edit(
            f"{TABLES}client/access.py",
            "        if mine <= known.version:\n            return known\n",
            "        if True:\n            return known\n",
        ),
        tests=(
            "tests/tables/test_consistency.py::test_session_shows_what_others_wrote_before_my_own",
            "tests/tables/test_consistency.py::test_session_shows_my_writes_that_are_not_published",
        ),
    ),
    Mutation(
        "what-is-in-hand-is-of-this-tree",
        "reads",
        "`session`, and a version by its number, are shown from what is in hand, though the session is over in which that was ratified",
        edit(f"{TABLES}client/access.py", "                if not self.committer.context.same_session:\n", "                if False:\n"),
        tests=("tests/tables/test_recovery.py::test_what_is_in_hand_of_a_lost_tree_is_not_shown",),
    ),
    Mutation(
        "serial-settles-the-queue",
        "reads",
        "`serial` does not wait for what is queued",
        edit(f"{TABLES}client/access.py", "                self.committer.settle_queue(", "                (lambda *_: None)("),
        tests=("tests/tables/test_consistency.py::test_serial_first_decides_what_a_dead_writer_left",),
        seeds=SEEDS,
    ),
)

MUTATIONS: Final = (*_RATIFYING, *_LOST, *_PUBLISHING, *_GENERATIONS, *_WITHDRAWN, *_READING)
