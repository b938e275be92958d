"""The proof: what must hold when all jobs are done, each statement checked by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from sluice import HistoryEntry, Table
from sluice.storage.stores.location import open_store

from .engines import ENGINES
from .flights import KEY, WITHDRAWN, expected

_UNITED = "deletion vector of "
"""How the history describes deletion vectors of two transactions that were united."""
_COMMIT_NAME = re.compile(r"_delta_log/(\d{20})\.json")


class ProofFailed(Exception):
    """Raised by a check; the text says what was found instead."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement, and whether it holds; `detail` says what was counted or what is wrong."""

    statement: str
    holds: bool
    detail: str


class Evidence:
    """The input of the checks: the table, the flights of the CSV file, and the jobs' acknowledgements.

    `acknowledged` are the transactions acknowledged to Python jobs, `repeats` how many of them were sent again;
    `withdrawals` are those that deleted at once; `appends` is how many appends each Spark application made without an error.
    """

    def __init__(
        self,
        table: Table,
        storage_options: Mapping[str, str],
        flights: pa.Table,
        *,
        acknowledged: Sequence[str],
        withdrawals: Sequence[str],
        repeats: int,
        appends: Mapping[str, int],
    ) -> None:
        self.table = table.refresh()
        self.storage_options = storage_options
        self.acknowledged = acknowledged
        self.withdrawals = withdrawals
        self.repeats = repeats
        self.appends = appends
        self.expected = expected(flights)
        self.history: list[HistoryEntry] = table.history(None)

    @cached_property
    def rows(self) -> pa.Table:
        """The table's rows as sluice reads them."""
        return self.table.snapshot().to_arrow()


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in KEY]).combine_chunks()


def difference(actual: pa.Table, wanted: pa.Table) -> str | None:
    """How `actual` differs from `wanted` (sorted by KEY, each key once) as a multiset of rows; None if it does not.

    Sorting by the key is enough: with unique keys the order is unique, and otherwise the tables differ.
    """
    if set(actual.schema.names) != set(wanted.schema.names):
        return f"the columns are {', '.join(actual.schema.names)}"
    found = _sorted(actual.select(wanted.schema.names).cast(wanted.schema))
    if found.equals(wanted.combine_chunks()):
        return None
    keys = list(KEY)
    times = found.group_by(keys).aggregate([([], "count_all")])
    repeated = times.filter(pc.greater(times["count_all"], 1))
    facts = {
        "lost": wanted.select(keys).join(times, keys, join_type="left anti"),
        "too many": times.join(wanted.select(keys), keys, join_type="left anti"),
        "there more than once": repeated,
    }
    said = [f"{len(some):,} flights {what} (such as {_example(some)})" for what, some in facts.items() if len(some)]
    if not said:
        columns = [name for name in wanted.schema.names if not found[name].equals(wanted[name])]
        said = [f"other values in {', '.join(columns)}"]
    return f"{len(found):,} rows instead of {len(wanted):,}: {'; '.join(said)}"


def _example(flights: pa.Table) -> str:
    row = flights.slice(0, 1).to_pylist()[0]
    return " ".join(str(row[name]) for name in KEY)


def log_faults(commits: Sequence[tuple[int, bytes]], version: int) -> list[str]:
    """The faults of a log: versions must be dense from 0 to `version`, commitInfo first, and its timestamps strictly increasing."""
    faults = []
    numbers = [number for number, _ in commits]
    if numbers != list(range(version + 1)):
        missing = sorted(set(range(version + 1)) - set(numbers))[:3]
        faults.append(f"it has {len(numbers)} versions, the latest is {version}; missing: {missing}")
    before = 0
    for number, content in commits:
        first: dict[str, Any] = orjson.loads(content.split(b"\n", 1)[0])
        timestamp = first.get("commitInfo", {}).get("inCommitTimestamp", 0)
        if timestamp <= before:
            faults.append(f"version {number} has the in-commit timestamp {timestamp}, the one before it {before}")
        before = timestamp
    return faults


def _flights_once(evidence: Evidence) -> str:
    _raise_if(difference(evidence.rows, evidence.expected))
    return f"{len(evidence.expected):,} rows, compared in all columns with the CSV file, corrections applied"


def _log_in_order(evidence: Evidence) -> str:
    store = open_store(evidence.table.location, evidence.storage_options)
    names = [match for each in store.list_from("_delta_log/") if (match := _COMMIT_NAME.fullmatch(each.key))]
    commits = [(int(name[1]), store.get(name[0])) for name in names]
    _raise_if("; ".join(log_faults(commits, evidence.table.version)[:3]))
    return f"{len(commits):,} versions, 0 to {evidence.table.version}"


def _acknowledged_once(evidence: Evidence) -> str:
    logged = Counter(entry.transaction_id for entry in evidence.history)
    wrong = [name for name, times in logged.items() if times > 1] + [name for name in evidence.acknowledged if name not in logged]
    _raise_if(f"{len(wrong)} transactions are missing or duplicate, such as {wrong[0]}" if wrong else None)
    appended = Counter(entry.application for entry in evidence.history)
    counts = evidence.appends.items()
    _raise_if("; ".join(f"{name} made {made} appends, {appended[name]} are in the log" for name, made in counts if appended[name] != made))
    return f"{len(evidence.acknowledged) + sum(evidence.appends.values()):,} transactions, {evidence.repeats:,} of them sent twice"


def _deleted_by_vectors(evidence: Evidence) -> str:
    deletes = [entry for entry in evidence.history if entry.operation == "DELETE"]
    wrote = [entry for entry in deletes if int(entry.metrics["numAddedFiles"]) or int(entry.metrics["numCopiedRows"])]
    _raise_if(f"version {wrote[0].version} deleted rows by writing {wrote[0].metrics['numAddedFiles']} files" if wrote else None)
    files = evidence.table.snapshot().files()
    masked = files.num_rows - files["deletion_vector"].null_count
    _raise_if(None if masked else "no file has a deletion vector")
    rows = sum(int(entry.metrics["numDeletedRows"]) for entry in deletes)
    return f"{rows:,} rows in {len(deletes):,} transactions; {masked:,} of {files.num_rows:,} files have deletion vectors"


def _deleted_at_once(evidence: Evidence) -> str:
    entries = sorted((each for each in evidence.history if each.transaction_id in evidence.withdrawals), key=lambda each: each.version)
    if len(entries) != len(WITHDRAWN):
        raise ProofFailed(f"{len(entries)} of {len(WITHDRAWN)} transactions are in the log")
    first, second = entries
    united = sum(each.startswith(_UNITED) for each in second.rebased)
    _raise_if(None if united else f"version {second.version} was not united with version {first.version} in any file")
    rows = " and ".join(f"{int(each.metrics['numDeletedRows']):,}" for each in entries)
    return f"{rows} rows, versions {first.version} and {second.version}, deletion vectors of {united:,} files united"


def _read_by(engine: str, evidence: Evidence) -> str:
    version, rows = ENGINES[engine](evidence.table.location, evidence.storage_options)
    if version not in (None, evidence.table.version):
        raise ProofFailed(f"it reads version {version}, the latest is {evidence.table.version}")
    _raise_if(difference(rows, _sorted(evidence.rows)))
    return f"{len(rows):,} rows"


def _raise_if(fault: str | None) -> None:
    if fault:
        raise ProofFailed(fault)


_CHECKS: Mapping[str, Callable[[Evidence], str]] = {
    "every surviving flight is there exactly once": _flights_once,
    "the log is dense from version 0, its in-commit timestamps strictly increase": _log_in_order,
    "every acknowledged commit is in the log exactly once": _acknowledged_once,
    "deletes rewrite no data file: rows are listed in deletion vectors": _deleted_by_vectors,
    "two transactions that delete different rows of one file at once both succeed": _deleted_at_once,
    **{f"{name} reads the same rows": partial(_read_by, name) for name in ENGINES},
}


def prove(evidence: Evidence, only: Collection[str] = _CHECKS) -> Iterator[Finding]:
    """Check each statement in turn; a failed check does not stop the others."""
    for statement in only:
        try:
            detail = _CHECKS[statement](evidence)
        except ProofFailed as failed:
            yield Finding(statement, False, str(failed))
        except Exception as error:  # noqa: BLE001 (an engine that cannot read the table is a finding too)
            yield Finding(statement, False, f"{type(error).__name__}: {error}")
        else:
            yield Finding(statement, True, detail)
