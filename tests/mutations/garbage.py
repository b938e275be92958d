"""Who is there, what may be deleted, and what is rebuilt after a loss."""

from __future__ import annotations

from typing import Final

from .mutation import COORDINATOR, TABLES, Mutation, edit

__all__ = ["MUTATIONS"]

DROPPING = f"{COORDINATOR}nodes/removal.py"
_OVERWRITTEN_LOG = "tests/tables/test_overwritten_log.py::"
_FOREIGN_FILES = "tests/tables/test_foreign_files.py::"
_CHECKPOINTS = "tests/tables/test_checkpoints.py::"
_TWICE = "tests/tables/test_dropping_twice.py::"
_VACUUM = "tests/tables/test_vacuum.py::"
_PRESENCE = "tests/coordinator/test_presence.py::"
_RECOVERY = "tests/tables/test_recovery.py::"

_RAISED = "    if not dry_run:\n        raise_horizon(access, cutoff_ms, horizon)\n"
_PINNED = "    if not _add_pinned(access, shown):\n        return []\n"

_LISTED: Final = (
    Mutation(
        "hidden-commits-are-looked-for",
        "reads",
        "a version is missing when a listing does not show it",
        edit("src/sluice/storage/log/segment.py", "    _add_hidden(store, listing, start)\n", ""),
        tests=("tests/storage/test_listings.py::test_a_commit_that_a_listing_hides_is_found_by_its_name[hidden0]",),
    ),
    Mutation(
        "two-listings-agree",
        "reads",
        "one listing is enough to refuse a log that a clean-up is changing",
        edit("src/sluice/storage/log/segment.py", "            if str(refusal) == doubt:\n", "            if str(refusal):\n"),
        tests=("tests/storage/test_listings.py::test_a_clean_up_during_a_listing_makes_no_gap",),
    ),
    Mutation(
        "ranges-are-of-one-version",
        "reads",
        "the footer of a checkpoint is read from one object, and its columns from the one that replaced it",
        edit("src/sluice/storage/stores/s3.py", '            parameters["IfMatch"] = version\n', "            pass\n"),
        tests=("tests/storage/test_state_and_files.py::test_a_checkpoint_that_is_replaced_between_two_ranges_is_read_anew",),
    ),
    Mutation(
        "lists-are-of-the-checkpoint-of-the-state",
        "reads",
        "the files of another table's checkpoint of the same name and size go with the state of the first",
        edit("src/sluice/storage/log/checkpoint_part.py", "        if self._version not in (None, found):\n", "        if False:\n"),
        tests=("tests/storage/test_state_and_files.py::test_nor_does_one_of_the_same_size_go_with_the_state_of_another",),
    ),
)

_LOST: Final = (
    Mutation(
        "lost-data-are-noticed",
        "liveness",
        "a living client goes on asking an ensemble that lost its data for its former session",
        edit(f"{COORDINATOR}service/zookeeper/loss.py", "if found is not None and found < seen:", "if False:"),
        tests=("tests/coordinator/test_lost_ensemble.py::test_a_session_ends_with_the_data_it_was_opened_on",),
    ),
)

_OVERWRITTEN: Final = (
    Mutation(
        "timestamps-grow",
        "order",
        "a reader takes a log file that holds another version's copy",
        edit("src/sluice/storage/log/replay.py", "                _require_later(info, former)\n", "                pass\n"),
        tests=(f"{_OVERWRITTEN_LOG}test_a_copy_over_another_version_is_refused_by_readers[3-5]",),
    ),
    Mutation(
        "damage-stops-writers",
        "I5",
        "a writer goes on behind a log file that is not what was ratified",
        edit(f"{COORDINATOR}commit/committer.py", "        self.publisher.neighbourhood.require_sound()\n", ""),
        tests=(f"{_OVERWRITTEN_LOG}test_living_writers_stop_behind_a_damaged_file_and_go_on_when_it_is_restored[an older one]",),
    ),
)

_BURIED: Final = (
    Mutation(
        "filed-while-the-owner-stands",
        "I7",
        "a transaction is filed though its client was buried",
        edit(f"{COORDINATOR}commit/claims.py", "[*context.standing(intent.transaction_id), create]", "[*context.standing(), create]"),
        tests=("tests/coordinator/test_owners.py::test_a_transaction_of_nobody_is_not_filed[client-queue]",),
    ),
    Mutation(
        "filed-while-the-owner-stands-on-the-fast-path",
        "I7",
        "the same for a transaction without a slot",
        edit(
            f"{COORDINATOR}commit/fast_path.py", "    ops += context.standing(intent.transaction_id)\n", "    ops += context.standing()\n"
        ),
        tests=("tests/coordinator/test_owners.py::test_a_transaction_of_nobody_is_not_filed[client-fast path]",),
    ),
    Mutation(
        "the-buried-stay-away",
        "I7",
        "a client that was buried comes back",
        edit(
            f"{COORDINATOR}nodes/presence.py",
            "    ops: list[Op] = [Create(grave), Delete(grave), Create(path, body, ephemeral=True)]\n",
            "    ops: list[Op] = [Create(path, body, ephemeral=True)]\n",
        ),
        tests=(f"{_PRESENCE}test_whoever_was_buried_does_not_come_back",),
    ),
    Mutation(
        "the-living-are-not-buried",
        "I7",
        "a client that is there is buried",
        edit(
            f"{COORDINATOR}nodes/presence.py",
            "session.apply([Create(owner.path), Delete(owner.path), Create(grave, body)])",
            "session.apply([Create(grave, body)])",
        ),
        tests=(f"{_PRESENCE}test_whoever_is_there_cannot_be_buried",),
    ),
    Mutation(
        "away-for-too-long-is-away",
        "I7",
        "a client comes back after its grave may have been cleared",
        edit(
            f"{COORDINATOR}nodes/presence.py",
            "        if self._now_ms() - life.seen_ms > _AWAY_MAX_MS and life.session is not None:\n            return False\n",
            "",
        ),
        tests=(f"{_PRESENCE}test_a_client_that_was_away_for_very_long_does_not_come_back",),
    ),
    Mutation(
        "terms-are-held",
        "I7",
        "a client gives up terms of which transactions are still held",
        edit(
            f"{COORDINATOR}nodes/presence.py", "            if self.held[term] or term == self.term:", "            if term == self.term:"
        ),
        tests=(f"{_PRESENCE}test_a_term_is_given_up_when_the_last_transaction_begun_in_it_is_forgotten",),
    ),
)

_COLLECTED: Final = (
    Mutation(
        "present-terms-are-kept",
        "I7",
        "of a client that lives, what it is about to file is taken for garbage",
        edit(f"{TABLES}maintain/garbage.py", "            if before is None or each.term < before:", "            if True:"),
        tests=(f"{_VACUUM}test_a_writer_that_is_slow_keeps_its_files_however_old_they_are",),
    ),
    Mutation(
        "open-plans-are-kept",
        "I7",
        "the files of a plan that is not committed yet are taken for garbage",
        edit(f"{TABLES}maintain/vacuum.py", "            if node is None or owner in old_plans:", "            if True:"),
        tests=(f"{_VACUUM}test_a_plan_stands_until_it_is_committed_whoever_planned_it",),
    ),
    Mutation(
        "filed-is-kept",
        "I7",
        "the files of an undecided transaction are taken for garbage",
        edit(
            f"{TABLES}maintain/vacuum.py",
            "ids.update(slot.transaction_id for slot in slots if slot is not None and slot.transaction_id not in refused)",
            "ids.update(())",
        ),
        tests=(f"{_VACUUM}test_what_is_filed_is_nobodys_garbage_though_its_owner_is_dead",),
    ),
    Mutation(
        "late-slots-are-decided-first",
        "I7",
        "the files of a transaction whose slot came too late are judged though nobody decided it",
        edit(
            f"{TABLES}maintain/vacuum.py",
            "                refused |= {slot.transaction_id} if outcome.error is not None else set()\n",
            "                refused |= {slot.transaction_id}\n",
        )
        + edit(
            f"{TABLES}maintain/vacuum.py",
            "                outcome = committer.outcome(slot.transaction_id, deadline)\n",
            "                _ = deadline\n",
        ),
        tests=(f"{_VACUUM}test_a_slot_that_came_too_late_is_decided_before_its_files_are_judged",),
    ),
    Mutation(
        "ratified-is-kept",
        "I7",
        "the staged actions of what is ratified and not published are taken for garbage",
        edit(
            f"{TABLES}maintain/vacuum.py",
            "            ids.update(verdict.transaction_id for verdict in BatchRecord.decode(node.data).verdicts)\n",
            "            continue\n",
        ),
        tests=("tests/tables/test_collecting_order.py::test_what_a_ratified_version_needs_to_be_published_stays_though_it_has_no_slot",),
    ),
    Mutation(
        "busy-is-asked-after-gone",
        "I7",
        "what is filed is asked for before it is certain that nothing more is filed",
        edit(
            f"{TABLES}maintain/vacuum.py",
            "            return _gone(context, session, owners, plans_before_ms, dry_run=dry_run), _busy(context, session, refused)\n",
            "            busy = _busy(context, session, refused)\n"
            "            return _gone(context, session, owners, plans_before_ms, dry_run=dry_run), busy\n",
        ),
        tests=("tests/tables/test_collecting_order.py::test_what_is_filed_or_committed_right_before_its_owner_is_buried_stays[filed]",),
    ),
    Mutation(
        "looking-only-buries-nobody",
        "I7",
        "who only looks for garbage takes clients for dead for good",
        edit(f"{TABLES}maintain/vacuum.py", "        elif dry_run or bury(", "        elif bury("),
        tests=("tests/tables/test_collecting_order.py::test_looking_for_garbage_without_deleting_it_changes_nothing_for_anybody",),
    ),
    Mutation(
        "looking-only-closes-no-plan",
        "I7",
        "who only looks for garbage closes plans",
        edit(f"{TABLES}maintain/vacuum.py", "    for owner in () if dry_run else old_plans:", "    for owner in old_plans:"),
        tests=("tests/tables/test_collecting_order.py::test_looking_for_garbage_without_deleting_it_changes_nothing_for_anybody",),
    ),
    Mutation(
        "latest-is-read-last",
        "I7",
        "what was committed while garbage was looked for is taken for garbage",
        edit(
            f"{TABLES}maintain/vacuum.py", '    last = access.read(consistency="latest")\n    shown.add_files(last)\n', "    last = first\n"
        ),
        tests=("tests/tables/test_collecting_order.py::test_what_is_filed_or_committed_right_before_its_owner_is_buried_stays[committed]",),
    ),
    Mutation(
        "replaced-files-are-kept-for-a-time",
        "I7",
        "what a removal tells of its time does not count, and what was removed by a clock that is ahead goes too early",
        edit(
            f"{TABLES}maintain/garbage.py",
            '        recent = pc.greater(pc.fill_null(removed.column("deletion_timestamp"), 0), cutoff_ms)',
            '        recent = pc.greater(pc.fill_null(removed.column("deletion_timestamp"), 0), 2**62)',
        ),
        tests=(f"{_VACUUM}test_a_removal_that_tells_a_later_time_than_its_version_counts_from_that",),
    ),
    Mutation(
        "short-retentions-are-refused",
        "I7",
        "a retention shorter than the table's is taken without force",
        edit(f"{TABLES}maintain/vacuum.py", "    if asked_ms < own_ms and not force:", "    if False:"),
        tests=(f"{_VACUUM}test_a_retention_that_is_too_short_is_refused",),
    ),
    Mutation(
        "pins-are-kept",
        "I7",
        "the files of a version that somebody pinned are deleted",
        edit(f"{TABLES}maintain/vacuum.py", "            shown.add_files(access.at(version))\n", "            access.at(version)\n"),
        tests=(f"{_VACUUM}test_a_pinned_version_keeps_its_files",),
    ),
    Mutation(
        "unreadable-pins-keep-everything",
        "I7",
        "a pin that cannot be read keeps nothing",
        edit(f"{COORDINATOR}leases/pins.py", "        return EVERYTHING\n", "        return 2**62\n"),
        tests=("tests/tables/test_collecting_order.py::test_a_pin_that_cannot_be_read_keeps_everything",),
    ),
    Mutation(
        "pins-are-above-the-horizon",
        "I7",
        "a version that garbage collection gave up is pinned",
        edit(f"{TABLES}client/horizon.py", "    if version < horizon:\n", "    if False:\n"),
        tests=(f"{_VACUUM}test_a_version_that_was_given_up_cannot_be_pinned",),
    ),
    Mutation(
        "horizon-before-pins",
        "I7",
        "who pins a version while garbage is looked for is told that it can be read",
        edit(
            f"{TABLES}maintain/vacuum.py",
            f"{_RAISED}{_PINNED}",
            f"{_PINNED}{_RAISED}",
        ),
        tests=("tests/tables/test_collecting_order.py::test_who_pins_after_pins_were_looked_for_is_told_that_it_is_too_late",),
    ),
    Mutation(
        "a-removal-counts-from-its-version",
        "I7",
        "files that were removed a moment ago are deleted on the word of a writer whose clock is behind",
        edit(f"{TABLES}maintain/vacuum.py", "    shown.keep_what_went_after(horizon)\n", ""),
        tests=(f"{_VACUUM}test_a_removal_counts_from_its_version_whatever_its_writers_clock_says",),
    ),
    Mutation(
        "change-data-is-kept",
        "I7",
        "change data that the log names is taken for garbage",
        edit(
            f"{TABLES}maintain/vacuum.py",
            "    shown.add_names(named_by(actions for _, actions in access.ours.log.commits(versions)))\n",
            "",
        ),
        tests=(f"{_VACUUM}test_change_data_of_the_log_is_kept_and_that_of_dead_writers_goes",),
    ),
    Mutation(
        "files-of-others-go-by-age",
        "I7",
        "files whose names tell no owner go at once",
        edit(f"{TABLES}maintain/garbage.py", "            if each.info.modified_ms < ", "            if True or each.info.modified_ms < "),
        tests=(f"{_VACUUM}test_foreign_files_go_by_age_and_hidden_ones_never",),
    ),
    Mutation(
        "a-table-has-one-coordinator",
        "I1",
        "a client of another coordinator opens the table, and two coordinators give out its versions",
        edit("src/sluice/coordinator/nodes/coordinator_id.py", "    if found == owner:\n", "    if True or found == owner:\n"),
        tests=("tests/tables/test_whose.py::test_clients_of_another_coordinator_are_refused_with_both_names",),
    ),
    Mutation(
        "a-living-coordinator-keeps-its-tables",
        "I1",
        "a table is recovered though the coordinator that it names answers",
        edit(f"{TABLES}manage/recovery.py", "    if found == owner:\n", "    if False:\n"),
        tests=("tests/tables/test_whose.py::test_a_living_coordinator_is_not_robbed_of_a_table_by_naming_it",),
    ),
    Mutation(
        "a-dropped-tree-is-closed-at-once",
        "I1",
        "the nodes that every commit checks go with the others, after the head: a former client ratifies meanwhile",
        (
            *edit(DROPPING, '            Delete(tree.incarnation(told["incarnation"])),\n', ""),
            *edit(DROPPING, '            Write(tree.root, orjson.dumps({**told, "closed": True}), root.version),\n', ""),
        ),
        tests=("tests/tables/test_dropping.py::test_a_tree_is_closed_by_the_first_step_of_its_removal",),
    ),
    Mutation(
        "removals-are-of-the-closed-tree",
        "I7",
        "who removes the nodes of a dropped table goes on in the tree that was made in its place",
        edit(DROPPING, "session.apply([Check(mark, ANY_VERSION), *gone])", "session.apply(gone)"),
        tests=("tests/tables/test_dropping.py::test_who_removes_a_former_tree_does_not_touch_the_one_in_its_place",),
    ),
    Mutation(
        "a-drop-deletes-its-own-table",
        "I7",
        "who was paused in a drop goes on with the table that was made in the place",
        edit(
            f"{COORDINATOR}nodes/deletion_claim.py",
            "if grave is None or Tombstone(**orjson.loads(grave.data)) != tombstone:",
            "if grave is None:",
        ),
        tests=("tests/tables/test_dropping.py::test_one_who_was_paused_in_a_drop_leaves_the_next_table_alone[read_tombstone]",),
    ),
    Mutation(
        "who-may-delete-is-looked-at-again",
        "I7",
        "who was paused in a drop while its session expired goes on deleting data",
        edit(f"{TABLES}manage/dropping.py", "    held.require()\n    _delete(", "    _delete(")
        + edit(f"{TABLES}manage/dropping.py", ", first=held.require)", ")"),
        tests=("tests/tables/test_dropping.py::test_one_who_was_paused_in_a_drop_leaves_the_next_table_alone[inner_tables]",),
    ),
    Mutation(
        "the-place-rests-after-a-deleter-that-vanished",
        "I7",
        "a table is created where a client that was paused in a drop may still delete log files",
        edit(f"{TABLES}manage/creation.py", "    require_no_deleter(context)\n    store", "    store"),
        tests=(f"{_TWICE}test_where_one_who_deleted_went_without_a_word_the_place_rests[False]",),
    ),
    Mutation(
        "a-stray-version-is-removed-under-a-claim",
        "I7",
        "who removes a version that a client of a dropped table put late is paused, and removes the next table's",
        edit(f"{TABLES}manage/creation.py", "    with deletion(context, tombstone) as held:\n", "    with nullcontext():\n")
        + edit(
            f"{TABLES}manage/creation.py",
            "            held.require()\n            store.delete(stray)\n",
            "            store.delete(stray)\n",
        )
        + edit(f"{TABLES}manage/creation.py", "import logging\n", "import logging\nfrom contextlib import nullcontext\n"),
        tests=(f"{_TWICE}test_who_removes_a_version_of_the_former_table_removes_none_of_the_next_one[False]",),
    ),
    Mutation(
        "damage-is-no-clean-up",
        "I5",
        "writers take a version that a clean-up of the log removed for damage, and stop",
        edit(
            f"{COORDINATOR}commit/neighbourhood.py",
            "return bool(list_versions(self._context.objects, sealed.version).checkpoints)",
            "return False",
        ),
        tests=(f"{_OVERWRITTEN_LOG}test_a_log_that_was_cleaned_up_is_no_damage",),
    ),
    Mutation(
        "no-version-without-the-one-before",
        "I6",
        "a version is put into a folder that was deleted",
        edit("src/sluice/coordinator/commit/publisher.py", "        self.log_presence.require(version - 1)\n", ""),
        tests=("tests/tables/test_dropping.py::test_nor_does_one_that_was_about_to_publish",),
    ),
    Mutation(
        "foreign-files-need-a-word",
        "I7",
        "old files that nothing accounts for are deleted though nobody said so",
        edit(f"{TABLES}maintain/garbage.py", "each.reason if ours else Reason.FOREIGN", "each.reason"),
        tests=("tests/tables/test_foreign_files.py::test_an_old_thesis_outlives_the_table",),
    ),
    Mutation(
        "the-log-of-pinned-versions-is-kept",
        "I7",
        "the log is cleaned up below what pinned versions and undecided transactions need",
        edit(f"{TABLES}maintain/log_cleanup.py", "    needed = min([last, *_needed(access)])\n", "    needed = last\n"),
        tests=(f"{_VACUUM}test_a_pinned_version_can_be_read_after_the_log_was_cleaned",),
    ),
    Mutation(
        "the-log-of-undecided-transactions-is-kept",
        "I7",
        "the log is cleaned up below what undecided transactions are compared with",
        edit(
            f"{TABLES}maintain/log_cleanup.py",
            "            yield read_intent(node.data, head[0]).validated_through\n",
            "            read_intent(node.data, head[0])\n",
        ),
        tests=("tests/tables/test_collecting_order.py::test_the_log_that_an_undecided_transaction_is_compared_with_stays",),
    ),
    Mutation(
        "the-log-is-cleaned-in-order",
        "I7",
        "of the log, later commits go before earlier ones",
        edit(
            f"{TABLES}maintain/log_cleanup.py",
            "            list(pool.map(delete, run[1:]))",
            "            list(pool.map(delete, reversed(run[1:])))",
        )
        + edit(f"{TABLES}maintain/log_cleanup.py", "        for run in _runs(files):", "        for run in reversed(list(_runs(files))):"),
        tests=(f"{_VACUUM}test_a_log_can_be_read_whenever_its_cleaning_stops",),
    ),
)

_REBUILT: Final = (
    Mutation(
        "former-trees-are-noticed",
        "I1",
        "a client of a tree that was lost goes on with the one that was rebuilt",
        edit(f"{COORDINATOR}nodes/context.py", "        if known and found and found != known:", "        if False:"),
        tests=(f"{_RECOVERY}test_a_client_of_the_former_tree_is_told_to_open_the_table_again",),
    ),
    Mutation(
        "multis-are-of-one-tree",
        "I1",
        "what was decided on a tree that was lost is recorded in the one that was rebuilt",
        edit(
            f"{COORDINATOR}nodes/context.py",
            "            ops.append(Check(self.tree.incarnation(self._known.incarnation), ANY_VERSION))\n",
            "            pass\n",
        ),
        tests=(f"{_RECOVERY}test_nodes_that_were_deleted_by_hand_under_living_clients",),
    ),
    Mutation(
        "multis-are-of-one-protocol",
        "I4",
        "a client goes on though the table is kept by another node protocol by now",
        edit(
            f"{COORDINATOR}nodes/context.py",
            "            ops.append(Check(self.tree.root, self._known.version))\n",
            "            pass\n",
        ),
        tests=("tests/coordinator/test_protocol_number.py::test_a_tree_that_is_raised_under_an_open_table_is_left_alone",),
    ),
    Mutation(
        "former-clients-are-waited-for",
        "I1",
        "a tree is rebuilt while clients of the former one may still publish",
        edit(f"{TABLES}manage/recovery.py", "            context.clock.sleep(patience_s)\n", "            pass\n"),
        tests=(f"{_RECOVERY}test_it_is_waited_for_every_former_session_and_put",),
    ),
    Mutation(
        "who-goes-on-publishing-is-told",
        "I1",
        "a tree is rebuilt though somebody goes on publishing",
        edit(f"{TABLES}manage/recovery.py", "        if latest_version(store) == before:\n            return\n", "        return\n"),
        tests=(f"{_RECOVERY}test_a_writer_that_goes_on_publishing_is_told",),
    ),
    Mutation(
        "stragglers-are-taken-in",
        "I1",
        "the version that seals the log replaces what a straggler put there",
        edit(
            f"{TABLES}manage/recovery.py",
            "        if store.put_if_absent(commit_path(version), content):\n",
            "        store.put(commit_path(version), content)\n        if True:\n",
        ),
        tests=(f"{_RECOVERY}test_a_straggler_in_the_very_moment_is_taken_in_too",),
    ),
    Mutation(
        "one-rebuilds-at-a-time",
        "I1",
        "a tree is made by who lost the right to rebuild it",
        edit(
            f"{TABLES}manage/recovery.py",
            "make_tree(context, head, while_standing=[Check(claim, ANY_VERSION)])",
            "make_tree(context, head)",
        ),
        tests=("tests/tables/test_collecting_order.py::test_who_lost_the_right_to_rebuild_a_tree_makes_none",),
    ),
)

_CREATED: Final = (
    Mutation(
        "a-loss-is-told-by-most-hosts",
        "liveness",
        "a server that left its ensemble with its old data is taken for the ensemble, which has lost its data",
        edit(
            f"{COORDINATOR}service/zookeeper/session.py",
            "return max(found) if 2 * len(found) > len(hosts) else None",
            "return max(found, default=None)",
        ),
        tests=("tests/coordinator/test_lost_ensemble.py::test_a_server_that_left_with_its_old_data_is_no_ensemble_that_lost_them",),
    ),
    Mutation(
        "old-data-are-no-foreign-commit",
        "I5",
        "versions that the coordinator lost are to be moved out of the log, as if another engine had written them",
        edit("src/sluice/tables/client/access.py", "            refuse_old_data(self.store, now.version + 1)\n", ""),
        tests=("tests/tables/test_whose.py::test_a_coordinator_with_old_data_is_told_from_another_engine",),
    ),
    Mutation(
        "the-node-for-refusals-is-made-again",
        "I10",
        "where somebody removed the node for refusals, they are forgotten, or stop publication",
        edit(f"{COORDINATOR}commit/pruning.py", "if known is None]\n    ops +=", "if known is None][-1:]\n    ops +="),
        tests=("tests/coordinator/test_pruning.py::test_refusals_are_put_away_although_somebody_removed_the_node_for_them",),
    ),
    Mutation(
        "no-table-among-files",
        "I7",
        "a table is created in a folder that holds other files, which a vacuum takes for its own later",
        edit(f"{TABLES}manage/creation.py", "    if not allow_nonempty:\n        require_empty(store)\n", ""),
        tests=(f"{_FOREIGN_FILES}test_a_table_is_not_created_in_a_folder_that_holds_files",),
    ),
    Mutation(
        "no-table-around-a-table",
        "I7",
        "a table is created in a folder in which another one lives",
        edit(f"{TABLES}maintain/garbage.py", '(not hidden or "/" + LOG_FOLDER in each.key)', "not hidden"),
        tests=(f"{_FOREIGN_FILES}test_a_table_is_not_created_in_a_folder_that_holds_files",),
    ),
    Mutation(
        "a-creating-write-looks-for-files",
        "I7",
        "a write that creates its table in a folder with other files is refused only after its rows were written",
        edit(f"{TABLES}planned_writes.py", "        require_empty(address.store())\n", "        pass\n"),
        tests=(f"{_FOREIGN_FILES}test_nor_by_a_write_that_creates_it_and_that_is_told_before_rows_are_written",),
    ),
    Mutation(
        "one-writes-a-checkpoint",
        "work",
        "everybody who sees that a checkpoint is due writes it",
        edit(
            f"{COORDINATOR}nodes/checkpoint_claim.py",
            "    if attempt is not None and attempt.counts(version, last, interval, now_ms):\n        return False\n",
            "",
        ),
        tests=(f"{_CHECKPOINTS}test_many_writers_write_each_checkpoint_once",),
    ),
    Mutation(
        "the-claim-of-a-checkpoint-is-compared",
        "work",
        "of several who see at once that a checkpoint is due all write it",
        edit(f"{COORDINATOR}nodes/checkpoint_claim.py", "Write(path, data, node.version)", "Write(path, data, -1)"),
        tests=(f"{_CHECKPOINTS}test_of_two_who_see_at_once_that_one_is_due_one_writes_it",),
    ),
)

MUTATIONS: Final = (*_LISTED, *_LOST, *_OVERWRITTEN, *_BURIED, *_COLLECTED, *_REBUILT, *_CREATED)
