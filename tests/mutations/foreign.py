"""What is checked of tables that other engines wrote."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation, edit

__all__ = ["MUTATIONS"]

_FEATURES: Final = "src/sluice/storage/actions/features.py"
_TEST_FEATURES: Final = "tests/storage/test_features.py::"
_FOREIGN: Final = "tests/tables/test_foreign_tables.py::"

MUTATIONS: Final = (
    Mutation(
        "the-mode-maps-columns",
        "reads",
        "a table whose columns are mapped is read as nulls when its protocol does not list the feature",
        edit(_FEATURES, 'mapped = {"columnMapping"} if _maps_columns(metadata, None) else set[str]()', "mapped = set[str]()"),
        tests=(f"{_TEST_FEATURES}test_unreadable", f"{_FOREIGN}test_a_mapped_table_is_refused_whatever_its_protocol_lists"),
    ),
    Mutation(
        "properties-ask-for-features",
        "reads",
        "a table is written without what its properties switch on when its protocol does not list it",
        edit(_FEATURES, "    lacking |= _switched_on_by(metadata.configuration) - _WRITABLE\n", ""),
        tests=(f"{_TEST_FEATURES}test_a_property_asks_for_its_feature_whether_the_protocol_lists_it_or_not",),
    ),
    Mutation(
        "compactions-are-reconciled",
        "reads",
        "a log compaction file that holds a key twice counts for the commits it covers",
        edit("src/sluice/storage/log/deltas.py", "file.path.kind is LogKind.COMPACTED and not _is_reconciled(actions)", "False"),
        tests=("tests/storage/test_snapshot.py::test_a_compacted_file_with_one_key_twice_counts_for_nothing",),
    ),
    Mutation(
        "spellings-are-one-file",
        "reads",
        "a file that was removed under another spelling of its path is still read",
        edit(
            "src/sluice/storage/log/replay.py",
            "                            changed[spelled, action.key[1]] = None\n",
            "                            pass\n",
        ),
        tests=("tests/storage/test_uris.py::test_a_file_that_is_removed_under_another_spelling_is_gone",),
    ),
    Mutation(
        "upserts-bring-every-column",
        "reads",
        "an upsert of rows that lack a column replaces what is there by nulls",
        edit("src/sluice/tables/transaction.py", "(schema_of(rows)).gather(rows, whole=True)", "(schema_of(rows)).gather(rows)"),
        tests=("tests/tables/test_upsert.py::test_data_that_does_not_fit_is_refused",),
    ),
)
