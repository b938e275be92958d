"""What would happen to a transaction: a case decided offline, by the rules and the engine that decide commits.

Only the case itself is known. Deletion vectors in the log are read; the rows of vectors in files are unknown, so two changes
of such a file count as changes of the same row. A compaction of sluice keeps the order of rows and records where they went;
cases written by hand do not. So a compaction in a case is treated as one of sluice's, unless it says that it orders rows anew
(z-order).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ....storage.actions import Action, AddFile, CommitInfo, DeletionVector, RemoveFile
from ....storage.actions.features import reader_features, writer_features
from ....storage.actions.lineage import Moved, moved_rows, with_moves
from ....storage.actions.wide_statistics import record_count
from ....storage.data.vectors import Rows, read_vector
from ....storage.dataclass import dataclass
from ....storage.errors import MissingObject
from ....storage.stores.memory import MemoryStore
from ..conflicts import Conflict, effective_level, refusal
from ..isolation import IsolationLevel
from ..rebase import Candidate, check_against
from ..refusal import Refusal
from ..winner import Footprint, Winner, winner_of
from .case_footprints import BACKFILLS, CaseTable, footprint_of_case, named_operation, winner_of_case
from .cases import Case

# The assumed number of rows of a file that does not say it.
_ROWS: Final = 1 << 20
# Delta Lake 4 implements these; its verdict about a table that needs anything else is that the client is too old.
_DELTA_FEATURES: Final = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "catalogManaged",
        "catalogOwned-preview",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "collations-preview",
        "columnMapping",
        "coordinatedCommits-preview",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "icebergWriterCompatV1",
        "identityColumns",
        "inCommitTimestamp",
        "inCommitTimestamp-preview",
        "invariants",
        "materializePartitionColumns",
        "redirectReaderWriter-preview",
        "redirectWriterOnly-preview",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would happen to a case's transaction: "ok", or its error, the rule, and why.

    `isolation` is the level it was compared at; `rebased` lists its adaptations; `notes` list what the case left open.
    `winner_did` says of a refused one in words what the winner did: "concerns row 3 of file a".
    """

    verdict: str
    rule: str | None
    because: str
    winning_version: int | None
    winning_operation: str | None
    isolation: str
    policy: str
    case: str
    rebased: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    winner_did: str = ""


def explain(case: Case, *, strict: bool = False) -> Explanation:
    """Decide a case; `strict` gives Delta Lake's own verdict, without sluice's refinements.

    Raises InvalidRequest, naming the field, for a malformed predicate and the like.
    """
    read = table = CaseTable.of(case, strict=strict)
    operation, _ = named_operation(case.own_operation)
    footprint, notes = footprint_of_case(table)
    own, _ = _traced(table, case.own_operation, case.own_actions)
    candidate = Candidate("explain", operation, footprint, table.level, actions=own)
    level = effective_level(footprint, table.level, operation)
    explained = Explanation("ok", None, "", None, None, level.value, table.policy.value, case.name, notes=(*case.notes, *notes))
    repeats = None if table.strict else _repeats(footprint, case)
    if repeats is not None:
        return replace(explained, because=repeats)
    for version, commit in enumerate(case.winning_commits, start=1):
        actions, note = _traced(table, case.winning_operation, commit, touched=candidate.footprint.removes or ())
        explained = replace(explained, notes=(*explained.notes, *note))
        winner = winner_of_case(table, read, version, actions, skip_adds=operation in BACKFILLS)
        refused, winner_did = _unsupported(read, winner) if table.strict else None, ""
        if refused is None:
            checked = check_against(candidate, winner, _inline_rows)
            if isinstance(checked, Conflict):
                refused, winner_did = refusal(checked), f"concerns {checked.what}"
            else:
                candidate = checked
        if refused is not None:
            return replace(
                explained,
                verdict=refused.error,
                rule=refused.rule,
                because=refused.message,
                winning_version=version,
                winning_operation=refused.winning_operation or None,
                notes=(*explained.notes, *_unknown_rows(candidate, winner, refused.rule)),
                winner_did=winner_did,
            )
        table = table.after(actions)
    return replace(explained, because=_why_not(candidate, table, level), rebased=candidate.rebased)


def _repeats(mine: Footprint, case: Case) -> str | None:
    """Why nothing is compared: a winner wrote the same number of the same application."""
    for version, commit in enumerate(case.winning_commits, start=1):
        written = winner_of(version, commit).app_versions
        for app, number in mine.app_versions.items():
            if written.get(app) == number:
                return f"version {version} wrote number {number} of application {app} already: that commit is the answer"
    return None


def _traced(
    table: CaseTable, operation: str, actions: tuple[Action, ...], *, touched: Collection[str] = ()
) -> tuple[tuple[Action, ...], list[str]]:
    """A commit's actions, completed with what a compaction of sluice would have recorded; with a remark if that matters for
    `touched` files.
    """
    if not table.row_level or _is_z_order(operation, actions):
        return actions, []
    completed, assumed = with_lineage(actions, {add.path: add for add in table.files()})
    files = sorted(assumed.intersection(touched))
    return completed, [
        f"the case does not say where the rows of {', '.join(files)} went; the compaction is assumed to keep their order"
    ] if files else []


def _why_not(candidate: Candidate, table: CaseTable, level: IsolationLevel) -> str:
    """Why nothing stops the transaction."""
    count = len(table.case.winning_commits)
    if not count:
        return "no commit came first"
    came = f"the {count} commits that came first" if count > 1 else "the commit that came first"
    if candidate.rebased:
        return f"no rule applies to {came}; {'; '.join(candidate.rebased)}"
    if table.policy.by_classes:
        return f"the matrix of {table.policy.value} allows a later {candidate.footprint.kind} after {came}"
    if candidate.footprint.plain_append:
        return f"it only adds files and read nothing, so nothing that {came} added or removed matters"
    if level is not table.level:
        return f"it changes no data, so only the writes of both are compared, and no rule applies to {came}"
    return f"no rule applies to {came}"


def _unsupported(read: CaseTable, winner: Winner) -> Refusal | None:
    """Delta Lake's refusal of a protocol that it does not implement; what the table had before counts as implemented."""
    protocol = winner.protocol
    if protocol is None:
        return None
    needed = reader_features(protocol) | writer_features(protocol)
    before = reader_features(read.protocol) | writer_features(read.protocol)
    lacking = sorted(needed - _DELTA_FEATURES - before)
    if protocol.min_reader_version > 3 or protocol.min_writer_version > 7:
        error, what = "InvalidProtocolVersion", f"versions {protocol.min_reader_version} and {protocol.min_writer_version}"
    elif lacking:
        error, what = "UnsupportedTableFeature", f"the features {', '.join(lacking)}"
    else:
        return None
    return Refusal(
        rule="protocol-unsupported",
        error=error,
        message=f"protocol-unsupported: version {winner.version} came first and needs {what}, which Delta Lake does not implement",
        winning_version=winner.version,
        winning_operation=winner.operation,
    )


def _inline_rows(vector: DeletionVector) -> Rows:
    """The rows of a vector in the log. Raises MissingObject for a vector in a file."""
    if vector.storage_type != "i":
        raise MissingObject(f"a case has no files, so the rows of deletion vector {vector.unique_id} are not known")
    return read_vector(MemoryStore.open("no-files"), vector)


def _unknown_rows(candidate: Candidate, winner: Winner, rule: str) -> list[str]:
    """A remark if the verdict depends on rows, which a case does not have."""
    if not candidate.footprint.row_level:
        return []
    if rule == "appended-what-i-read":
        return ["a commit would read the added files, and be refused only if they contain rows that were read"]
    both = winner.removed.keys() & {a.path for a in candidate.decoded() if isinstance(a, RemoveFile)}
    files = [a for a in (*candidate.decoded(), *winner.adds) if isinstance(a, AddFile) and a.path in both]
    if not any(add.deletion_vector is not None and add.deletion_vector.storage_type != "i" for add in files):
        return []
    return ["deletion vectors in files are not read here: write them inline (storageType i) to have rows compared"]


def _is_z_order(operation: str, actions: Sequence[Action] = ()) -> bool:
    """Whether an operation's name, or a commit's own parameters, say that rows were ordered anew."""
    info = next((each for each in actions if isinstance(each, CommitInfo)), None)
    parameters = info.fields.get("operationParameters") if info is not None else None
    columns = [parameters.get(name) for name in ("zOrderBy", "clusterBy")] if isinstance(parameters, Mapping) else []
    named = (operation, "" if info is None or info.operation is None else info.operation)
    return any(each not in (None, "", "[]", []) for each in columns) or any("ORDER" in name.upper() for name in named)


def with_lineage(actions: Sequence[Action], files: Mapping[str, AddFile]) -> tuple[tuple[Action, ...], frozenset[str]]:
    """The actions, with the new place of its rows in each removed source of a compaction; and the sources that did not say it.

    `files` are those of the table, for the number of their rows.
    """
    outputs = [each for each in actions if isinstance(each, AddFile) and not each.data_change]
    added = {each.path for each in actions if isinstance(each, AddFile)}
    filled: dict[str, int] = {}
    completed: list[Action] = []
    assumed: set[str] = set()
    for each in actions:
        if isinstance(each, RemoveFile) and not each.data_change and each.path not in added and moved_rows(each) is None and outputs:
            source = files.get(each.path)
            values = each.partition_values if source is None else source.partition_values
            output = next((add for add in outputs if add.partition_values == values), outputs[0])
            count = _live_rows(each, source)
            completed.append(with_moves(each, [Moved(output.path, 0, count, filled.get(output.path, 0))]))
            filled[output.path] = filled.get(output.path, 0) + count
            assumed.add(each.path)
        else:
            completed.append(each)
    return tuple(completed), frozenset(assumed)


def _live_rows(remove: RemoveFile, source: AddFile | None) -> int:
    count = record_count(remove.stats) or (None if source is None else record_count(source.stats))
    dead = 0 if remove.deletion_vector is None else remove.deletion_vector.cardinality
    return _ROWS if count is None else max(count - dead, 0)
