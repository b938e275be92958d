"""Deciding: what is known of the winners, the rules, changes of rows that go together, footprints, what is believed."""

from __future__ import annotations

from typing import Final

from .mutation import COORDINATOR, SEEDS, TABLES, Mutation, edit

__all__ = ["MUTATIONS"]

_PROTOCOL = "tests/coordinator/test_commit_protocol.py::"
_RESOLVING = "tests/coordinator/test_resolve.py::"
_ROWS = "tests/coordinator/test_rows.py::"
_HOSTILE = "tests/tables/test_hostile_intents.py::"
_LYING = "tests/coordinator/test_slots_that_lie.py::"
_GROUPING = "tests/coordinator/test_grouping.py::"
_READING = "tests/coordinator/test_reading_on.py::"
_FOOTPRINT_TESTS = "tests/tables/test_footprints.py::"

_RESOLVE = f"{COORDINATOR}commit/decision.py"
_CONFLICTS = f"{COORDINATOR}rules/conflicts.py"


def _silenced(rule: str, name: str, what: str, *tests: str, seeds: str = "") -> Mutation:
    """A rule whose answer is always no."""
    head = f"def {rule}(at: Encounter) -> str | None:\n"
    return Mutation(name, "serial", what, edit(_CONFLICTS, head, f"{head}    return None\n"), tests=tests, seeds=seeds)


_WINDOW: Final = (
    Mutation(
        "first-unseen-winner-counts",
        "I4",
        "the first version an intent was not validated against is passed over",
        edit(
            _RESOLVE,
            "range(member.intent.validated_through + 1, self.head.version + 1)",
            "range(member.intent.validated_through + 2, self.head.version + 1)",
        ),
        tests=(f"{_PROTOCOL}test_the_later_of_two_rewrites_of_a_file_is_refused",),
        seeds=SEEDS,
    ),
    Mutation(
        "known-beyond-the-head-is-refused",
        "I4",
        "an intent may say that it knows versions there are not yet",
        edit(_RESOLVE, "        if intent.validated_through > self.head.version:", "        if False:"),
        tests=(f"{_HOSTILE}test_numbers_that_cannot_be_are_refused",),
    ),
    Mutation(
        "validated-up-to-the-head",
        "I4",
        "its owner compares a transaction with all versions but the last, and says that it knows them all",
        edit(
            f"{TABLES}write/commit_change.py",
            "    versions = range(_read_version(change) + 1, head.version + 1)",
            "    versions = range(_read_version(change) + 1, head.version)",
        ),
        tests=("tests/tables/test_overtaken.py::test_the_last_version_before_it_counts",),
        seeds=SEEDS,
    ),
    Mutation(
        "validated-is-what-was-looked-at",
        "I4",
        "a transaction says that it knows what came after it was validated",
        edit(
            f"{TABLES}write/commit_change.py",
            "if change.expected_version is not None else head.version,",
            "if change.expected_version is not None else access.head().version,",
        ),
        tests=("tests/tables/test_overtaken.py::test_what_comes_after_it_was_compared_counts[intent_of]",),
        seeds=SEEDS,
    ),
    Mutation(
        "window-reaches-back",
        "I4",
        "only the last version is read to decide by",
        edit(
            _RESOLVE,
            "max(min(head.version, intent.validated_through), -1)",
            "max(min(head.version, intent.validated_through), head.version - 1)",
        )
        + edit(_RESOLVE, 'invariant("I4", ', 'invariant("I4", True or '),
        tests=(f"{_GROUPING}test_all_versions_that_it_was_not_validated_against_are_looked_at",),
        seeds=SEEDS,
    ),
    Mutation(
        "appends-look-at-the-metadata",
        "serial",
        "a blind append is taken in though the schema changed since it was made",
        edit(
            _RESOLVE,
            "            if plain and self.head.metadata_version <= intent.validated_through:",
            "            if plain:",
        ),
        tests=(f"{_GROUPING}test_an_append_that_was_made_before_the_metadata_changed_is_refused",),
    ),
    Mutation(
        "head-knows-the-metadata",
        "serial",
        "the head does not tell that metadata changed",
        edit(
            _RESOLVE,
            "metadata_version=group.version if _changes_metadata(intent) else self.head.metadata_version",
            "metadata_version=self.head.metadata_version",
        ),
        tests=(f"{_GROUPING}test_the_head_tells_which_version_changed_the_metadata",),
    ),
    Mutation(
        "winners-of-the-same-batch-count",
        "I4",
        "what stands before it in the same batch is no winner",
        edit(
            _RESOLVE,
            "        if version < first_new:\n            return self.winners.get(version)\n",
            "        if version < first_new:\n            return self.winners.get(version)\n        return Winner(version)\n",
        ),
        tests=(f"{_PROTOCOL}test_conflicts_inside_one_batch_are_seen",),
        seeds=SEEDS,
    ),
    Mutation(
        "only-blind-appends-share-a-version",
        "serial",
        "whatever reads nothing is grouped, changes of metadata too",
        edit(_RESOLVE, "    return mine.plain_append and not special and", "    return mine.blind_append and not special and"),
        tests=(f"{_GROUPING}test_what_is_more_than_an_append_has_a_version_of_its_own",),
    ),
    Mutation(
        "special-commits-stand-alone",
        "serial",
        "a commit that creates, attaches or gives back the table shares a version",
        edit(
            _RESOLVE,
            "    special = intent.expected_version is not None or intent.staged or intent.detach\n",
            "    special = False\n",
        ),
        tests=(f"{_GROUPING}test_what_is_more_than_an_append_has_a_version_of_its_own",),
    ),
    Mutation(
        "expected-version-is-compared",
        "serial",
        "a table is created although somebody created it first",
        edit(
            _RESOLVE,
            "        if intent.expected_version is not None and intent.expected_version != self.head.version + 1:",
            "        if False:",
        ),
        tests=(f"{_PROTOCOL}test_of_two_creators_one_is_told",),
    ),
    Mutation(
        "detached-tables-refuse",
        "serial",
        "a table that was given to other engines is written",
        edit(_RESOLVE, "        if self.head.detached and not attaches:", "        if False:"),
        tests=("tests/coordinator/test_lost_and_late.py::test_nobody_commits_to_a_table_that_is_about_to_be_brought_in_again",),
    ),
    Mutation(
        "brought-in-again-when-attached",
        "serial",
        "a table that is about to be attached again is written before",
        edit(f"{COORDINATOR}nodes/creation.py", "slot=head.slot, detached=True, intents", "slot=head.slot, detached=False, intents"),
        tests=("tests/coordinator/test_lost_and_late.py::test_nobody_commits_to_a_table_that_is_about_to_be_brought_in_again",),
    ),
    Mutation(
        "stricter-levels-count",
        "serial",
        "a transaction that asks for a stricter level than the table's is compared at the table's",
        edit(
            f"{TABLES}write/commit_change.py",
            "        level=stricter(table_isolation(configuration), change.isolation),",
            "        level=table_isolation(configuration),",
        ),
        tests=("tests/tables/test_transaction.py::test_isolation_may_be_stricter_than_the_tables",),
    ),
    Mutation(
        "times-increase",
        "order",
        "a version has the time of its transactions, which may be earlier than the last one's",
        edit(_RESOLVE, "self.head.timestamp_ms + 1, open", "0, open"),
        tests=(f"{_RESOLVING}test_a_clock_that_is_ahead_moves_time_only_forward",),
        seeds=SEEDS,
    ),
    Mutation(
        "row-ids-go-on",
        "serial",
        "row ids that were given are given again",
        edit(_RESOLVE, "row_ids=self._row_ids(intent) + rows_to_number(member.actions)", "row_ids=self._row_ids(intent)"),
        tests=(f"{_GROUPING}test_row_ids_are_not_given_twice_in_one_batch",),
    ),
    Mutation(
        "no-rights-are-no-verdict",
        "I4",
        "who may not read what is needed to decide refuses other people's transactions",
        edit(
            _RESOLVE,
            "        except (AccessDenied, NoSuchBucket):  # it says something of this client; others may see more\n            raise\n",
            "",
        ),
        tests=(f"{_GROUPING}test_who_cannot_read_what_it_takes_decides_nothing",),
    ),
)

_RULES: Final = (
    _silenced(
        "_appended_what_i_read",
        "rule-appended-what-i-read",
        "rows that were added where a transaction read are no conflict",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    _silenced(
        "_removed_what_i_read",
        "rule-removed-what-i-read",
        "files that were removed after a transaction read them are no conflict",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    _silenced(
        "_appended_what_i_lock",
        "rule-appended-what-i-lock",
        "rows that were added where a transaction read for update are no conflict",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    Mutation(
        "rows-that-were-read-count",
        "serial",
        "rows that were deleted after a transaction read them are no conflict",
        edit(
            f"{COORDINATOR}rules/row_changes.py",
            "        if count:\n            lost[path] = count",
            "        if count < 0:\n            lost[path] = count",
        ),
        tests=(f"{_READING}test_who_read_rows_depends_on_these_rows_alone",),
    ),
    Mutation(
        "rows-that-were-read-are-followed",
        "serial",
        "rows that a transaction read do not count any more once they were compacted",
        edit(f"{COORDINATOR}rules/rebase.py", "for output, text in followed.items():", "for output, text in ():"),
        tests=(f"{_READING}test_rows_that_were_read_are_followed_through_compactions",),
    ),
    _silenced(
        "_removed_what_i_remove",
        "rule-removed-what-i-remove",
        "what two transactions delete is no conflict",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    _silenced(
        "_metadata_changed",
        "rule-metadata-changed",
        "a change of metadata is no conflict",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    _silenced(
        "_protocol_changed",
        "rule-protocol-changed",
        "a change of the protocol is no conflict",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    _silenced(
        "_protocol_unsupported",
        "rule-protocol-unsupported",
        "a protocol that sluice does not know is written on",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    _silenced(
        "_same_domain",
        "rule-same-domain",
        "two changes of one metadata domain are no conflict",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    _silenced(
        "_application_advanced",
        "rule-application-advanced",
        "an application that went on since it was read is no conflict",
        "tests/coordinator/test_conflicts.py::test_case",
    ),
    _silenced(
        "_class_refused",
        "rule-class-refused",
        "the matrices of MaxCompute refuse nothing",
        "tests/coordinator/test_policy_rule.py::test_a_matrix_refuses_a_kind_of_operation_after_another",
    ),
    Mutation(
        "serializable-is-strict",
        "serial",
        "Serializable lets blind appends pass as WriteSerializable does",
        edit(_CONFLICTS, "(at.level is IsolationLevel.WRITE_SERIALIZABLE and", "(True and"),
        tests=("tests/coordinator/test_conflicts.py::test_case",),
    ),
    Mutation(
        "the-same-row-is-a-conflict",
        "serial",
        "two transactions that delete the same row both succeed",
        edit(f"{COORDINATOR}rules/row_changes.py", "        if both or base - self._rows(again", "        if base - self._rows(again"),
        tests=(f"{_ROWS}test_random_transactions_leave_exactly_the_rows_they_should",),
        seeds=SEEDS,
    ),
    Mutation(
        "vectors-are-united",
        "serial",
        "of two transactions that delete rows of one file only the later one's rows are deleted",
        edit(f"{COORDINATOR}rules/row_changes.py", "base | theirs | deleted)", "base | deleted)"),
        tests=(f"{_ROWS}test_random_transactions_leave_exactly_the_rows_they_should",),
        seeds=SEEDS,
    ),
    Mutation(
        "vectors-have-one-base",
        "serial",
        "vectors that were made on different ones are united",
        edit(
            f"{COORDINATOR}rules/row_changes.py",
            "        if _id(mine.deletion_vector) != _id(theirs.deletion_vector):\n            raise _Irreconcilable\n",
            "",
        ),
        tests=(f"{_READING}test_vectors_that_were_made_on_different_ones_are_not_united",),
    ),
    Mutation(
        "deleted-rows-leave-a-compaction",
        "serial",
        "a compaction brings back rows that were deleted meanwhile",
        edit(
            f"{COORDINATOR}rules/row_changes.py",
            "        output = self.adds.get(path)\n        if output is not None:\n",
            "        output = self.adds.get(path)\n        if False and output is not None:\n",
        ),
        tests=(f"{_ROWS}test_random_transactions_leave_exactly_the_rows_they_should",),
    ),
    Mutation(
        "rows-are-followed-by-rank",
        "serial",
        "a deletion is carried over to a compacted file as if no row of the source had been dead",
        edit(f"{COORDINATOR}rules/row_changes.py", "live = row - base.rank(row)", "live = row"),
        tests=(f"{_ROWS}test_random_transactions_leave_exactly_the_rows_they_should",),
    ),
    Mutation(
        "what-was-adapted-is-committed",
        "serial",
        "a transaction that was adapted is committed as it was filed",
        edit(_RESOLVE, "        return attempt.member(member.intent)", "        return member"),
        tests=("tests/tables/test_queue_races.py::test_deletions_of_different_rows_of_one_file_all_stand",),
    ),
    Mutation(
        "replacing-replaces",
        "serial",
        "an overwrite under a policy of MaxCompute leaves what came meanwhile",
        edit(f"{COORDINATOR}rules/rebase.py", "    if replaces(mine):", "    if False and replaces(mine):"),
        tests=("tests/coordinator/test_replacing.py::test_what_was_appended_meanwhile_goes_too",),
    ),
    Mutation(
        "what-was-read-follows-a-compaction",
        "serial",
        "who read a file that was compacted depends on nothing any more",
        edit(f"{COORDINATOR}rules/rebase.py", "    if not files and not rows:\n        return attempt\n", "    return attempt\n"),
        tests=(f"{_READING}test_who_read_a_file_depends_on_what_a_compaction_made_of_it",),
    ),
    Mutation(
        "looking-into-files-finds-rows",
        "serial",
        "every file that is looked into is said to hold nothing that was read",
        edit(f"{TABLES}write/added_rows.py", "        if not found:\n", "        if True:\n"),
        tests=("tests/tables/test_row_level.py::test_an_update_into_what_another_deletes_is_noticed",),
    ),
)

_FOOTPRINTS: Final = (
    Mutation(
        "many-read-files-are-all-files",
        "serial",
        "of very many files that were read only the first are said",
        edit(
            f"{TABLES}write/footprints.py",
            "None if files is None or len(files) > files_max else files",
            "None if files is None else files[:files_max]",
        ),
        tests=(f"{_FOOTPRINT_TESTS}test_of_too_many_files_and_partitions_none_is_told",),
    ),
    Mutation(
        "many-removed-files-are-all-files",
        "serial",
        "of very many files that are removed only the first are said",
        edit(f"{TABLES}write/footprints.py", "self.removes if len(self.removes) <= self._most else None", "self.removes[: self._most]"),
        tests=(f"{_FOOTPRINT_TESTS}test_of_too_many_files_and_partitions_none_is_told",),
    ),
    Mutation(
        "many-partitions-are-all",
        "serial",
        "of very many partitions that are touched only the first are said",
        edit(
            f"{TABLES}write/footprints.py",
            "file.partition_values is None or len(self.partitions) > self._most:",
            "file.partition_values is None:",
        ),
        tests=(f"{_FOOTPRINT_TESTS}test_of_too_many_files_and_partitions_none_is_told",),
    ),
    Mutation(
        "long-conditions-are-everything",
        "serial",
        "a condition that is too long is left out",
        edit(
            f"{TABLES}write/footprints.py",
            'tuple(p if len(p) <= _PREDICATE_CHARACTERS_MAX else "" for p in predicates)',
            "tuple(p for p in predicates if len(p) <= _PREDICATE_CHARACTERS_MAX)",
        ),
        tests=(f"{_FOOTPRINT_TESTS}test_a_condition_that_is_too_long_reads_everything",),
    ),
    Mutation(
        "coarse-footprints-are-made-exact",
        "serial",
        "what a footprint leaves out for its length is not looked up in the actions",
        edit(f"{COORDINATOR}rules/rebase.py", "    if not _is_coarse(attempt.footprint, winner):\n", "    if True:\n"),
        tests=(
            "tests/coordinator/test_replacing.py::test_an_insert_into_more_partitions_than_a_footprint_lists_is_compared_with_those_it_writes",
        ),
    ),
    Mutation(
        "scans-are-remembered",
        "serial",
        "files that a transaction scanned are not among those it read",
        edit(f"{TABLES}transaction.py", "files=tuple(path for path in paths if not draft.is_own(path))", "files=()"),
        tests=("tests/tables/test_scans_depend.py::test_rows_that_were_scanned_are_deleted_with_their_whole_file",),
    ),
)

_BELIEVED: Final = (
    Mutation(
        "intents-are-compared-with-their-actions",
        "I4",
        "an intent is believed, whatever its actions do",
        edit(f"{COORDINATOR}commit/queue.py", "        require_sound(intent, member.actions)\n", ""),
        tests=(f"{_HOSTILE}test_what_contradicts_its_own_actions_is_refused",),
    ),
    Mutation(
        "large-intents-are-not-read",
        "I8",
        "an intent of any size, and a staged name of any form, is looked up",
        edit(f"{COORDINATOR}commit/queue.py", "        require_readable(node.data)\n", "")
        + edit(f"{COORDINATOR}commit/queue.py", "        require_readable(node.data, intent)\n", ""),
        tests=(f"{_HOSTILE}test_what_is_no_intent_is_refused",),
    ),
    Mutation(
        "slot-and-intent-are-of-one-id",
        "I10",
        "an intent may name another transaction than its slot",
        edit(f"{COORDINATOR}commit/queue.py", "        if intent.transaction_id != name.transaction_id:", "        if False:"),
        tests=(f"{_LYING}test_an_intent_of_another_transaction_than_its_slot",),
    ),
    Mutation(
        "staged-actions-are-there",
        "I8",
        "an intent whose staged actions are missing stops the queue",
        edit(
            f"{COORDINATOR}commit/queue.py",
            "    except (MalformedRecord, MissingObject, BadChecksum,",
            "    except (MalformedRecord, BadChecksum,",
        ),
        tests=(f"{_LYING}test_staged_actions_that_are_missing",),
    ),
    Mutation(
        "actions-have-their-digest",
        "I5",
        "staged actions are taken as they are found",
        edit(f"{COORDINATOR}commit/ratified_log.py", "    if digest(actions) != seal:", "    if False:"),
        tests=(
            f"{_LYING}test_staged_actions_that_were_changed",
            f"{_LYING}test_actions_that_are_not_those_of_the_digest",
        ),
    ),
    Mutation(
        "unjudgeable-is-refused",
        "I8",
        "an intent that cannot be judged stops the queue",
        edit(_RESOLVE, "        except UNJUDGEABLE as problem:", "        except ZeroDivisionError as problem:"),
        tests=(f"{_GROUPING}test_what_cannot_be_judged_is_refused_and_stops_nobody",),
    ),
    Mutation(
        "made-up-slot-is-not-mine",
        "I12",
        "the verdict on a slot that somebody made up is told to the owner of another of the same number",
        edit(
            f"{COORDINATOR}commit/outcomes.py",
            "        if verdict is not None and verdict.transaction_id != claim.transaction_id:",
            "        if False:",
        ),
        tests=("tests/coordinator/test_once.py::test_the_verdict_on_a_slot_of_the_same_number_is_not_mine",),
    ),
)

_DATABRICKS = "tests/tables/test_policy_databricks.py::"
_POLICY: Final = (
    Mutation(
        "databricks-refuses-all-beside-changes",
        "serial",
        "under databricks, changes of protocol and properties stop only those that Delta Lake stops",
        edit(_CONFLICTS, "        return self.mine.policy == ConflictPolicy.DATABRICKS.value\n", "        return False\n"),
        tests=(f"{_DATABRICKS}test_whoever_changes_the_table_stops_all_that_is_written_beside",),
    ),
    Mutation(
        "databricks-compares-partitions",
        "serial",
        "under databricks, statistics tell changes of one partition apart where no rows are compared",
        edit(_CONFLICTS, "by_partitions = mine.by_partitions and not at.strict", "by_partitions = False"),
        tests=(f"{_DATABRICKS}test_a_cell",),
    ),
    Mutation(
        "databricks-compares-files-in-partitioned-tables",
        "serial",
        "under databricks, rows are compared in partitioned tables, too",
        edit(f"{COORDINATOR}rules/rebase.py", "    if _compares_files(attempt.footprint, winner):\n", "    if False:\n"),
        tests=(f"{_DATABRICKS}test_rows_are_compared_in_tables_without_partitions_only",),
    ),
    Mutation(
        "databricks-minds-z-orders",
        "serial",
        "under databricks, a compaction stands after a z-order of the same files",
        edit(f"{COORDINATOR}rules/rebase.py", " and _ordered_anew(mine, winner):", " and False:"),
        tests=(f"{_DATABRICKS}test_a_cell",),
    ),
)

MUTATIONS: Final = (*_WINDOW, *_RULES, *_POLICY, *_FOOTPRINTS, *_BELIEVED)
