"""The table's rows that a MERGE may change, as a DataFrame in which each has its place: its file, and its position in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame

from ...coordinator.api import Reads
from ...storage.actions.filetable import picked
from ...storage.dataclass import dataclass
from ...storage.pruning.predicate import Predicate
from ...tables.write.row_operations import Target, target_of
from ..jvm import analysed, items, quoted
from ..scan.native import Layout, rows_of_files, why_not_native
from ..scan.python_scan import rows_by_python
from .analysis import AnalysedMerge
from .conditions import numbered_as
from .source import CachedSource, key_values
from .writer import HelperColumns

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Located:
    """Rows of the table with their places."""

    frame: DataFrame
    """The rows."""
    columns: Mapping[str, Column]
    """The table's columns in the frame, by name."""
    file: Column
    """The name of a row's file in the frame."""
    position: Column
    """The row's position in it."""
    paths: Mapping[str, str]
    """The files' paths in the log, by their names in the frame."""
    files: pa.Table
    """The files, in `filetable.FILES_SCHEMA`."""
    read: frozenset[str]
    """The columns that are read: others are null."""
    ids: Mapping[str, Column]
    """The rows' ids, by the name of the files' column for them, if the rows keep theirs."""


def target_in(merge: AnalysedMerge, source: CachedSource | None) -> Target:
    """The files that may have rows to change or to match, and what is read of the table."""
    if source is None:
        return target_of(merge.draft, merge.unmatched, merge.unmatched)
    values = key_values(source, merge.schema)
    if values.nothing and not merge.keeps_target:
        return Target(target_of(merge.draft, None, None).files.slice(0, 0), {}, Reads())
    skipping, read = Predicate.all_of([merge.matching, values.skipping]), Predicate.all_of([merge.matching, values.remembered])
    if merge.keeps_target:
        skipping, read = Predicate.any_of([skipping, merge.unmatched]), Predicate.any_of([read, merge.unmatched])
    return target_of(merge.draft, skipping, read)


def without_whole_files(merge: AnalysedMerge, target: Target) -> tuple[Target, int]:
    """For a DELETE: remove the files of which certainly all rows satisfy its condition, unread.

    Returns the target with the other files, and the number of removed rows.
    """
    draft, files = merge.draft, target.files
    if not merge.is_exact:
        return target, 0
    if target.predicate is None:
        surely = pa.repeat(pa.scalar(True), files.num_rows)
    else:
        surely = target.predicate.matches_all(files, schema=draft.schema, partition_columns=draft.partition_columns)
    surely = pc.fill_null(surely, False)
    if draft.captures_changes and not pc.all(surely).as_py():
        return target, 0  # change data files tell all of a version's changes, or none
    whole = picked(files, surely)
    rows = draft.count(whole, exactly=True)
    draft.drop_all(whole)
    return replace(target, files=picked(files, pc.invert(surely))), rows


def locate(merge: AnalysedMerge, target: Target, helpers: HelperColumns) -> Located:
    """The rows of a target. Unless they get new values, they come without their ids."""
    layout, names = layout_of(merge), (helpers.file or "", helpers.position or "")
    layout, files = layout if merge.renews else replace(layout, row_ids=None), target.files
    frame, read = _by_spark(merge, layout, target, names), frozenset(merge.schema.names)
    if isinstance(frame, str):
        _log.info("%s is read by Python tasks: %s", layout.location, frame)
        read = read if merge.records else merge.columns_used()
        frame = rows_by_python(merge.session, layout, files, target.lost, names, columns=read, predicate=target.predicate)
    attributes = dict(zip(merge.columns.columns, items(analysed(merge.columns).output()), strict=True))
    frame = numbered_as(frame, attributes)
    columns = {name: frame[quoted(name)] for name in merge.schema.names}
    ids = {} if layout.row_ids is None else {layout.row_ids.row_id: frame[quoted(layout.row_ids.row_id)]}
    paths = {str(number): uri for number, uri in enumerate(files["path"].to_pylist())}
    return Located(frame, columns, frame[names[0]], frame[names[1]], paths, files, read, ids)


def layout_of(merge: AnalysedMerge) -> Layout:
    """What a scan of the table needs to know."""
    address, draft = merge.plan.address, merge.draft
    options = dict(address.storage_options)
    return Layout(address.location, options, merge.schema, draft.partition_columns, draft.base.version, draft.row_ids)


def _by_spark(merge: AnalysedMerge, layout: Layout, target: Target, names: tuple[str, str]) -> DataFrame | str:
    """The rows by Spark's own scan, or the reason why it cannot read them."""
    reason = why_not_native(merge.session, layout.location, layout.storage_options, merge.schema)
    if reason is not None:
        return reason
    return rows_of_files(merge.session, layout, target.files, (lambda _: target.lost) if target.lost else None, names)
