"""The state of a table after the files of a log segment; its lists of files and tombstones are read on first use.

Action reconciliation ("Action Reconciliation" in PROTOCOL.md) keeps the newest protocol and metadata, the newest transaction of each
application and configuration of each domain, and for each file (path and deletion vector) the newest add or remove; two spellings of an
absolute path may name one file.

A checkpoint (classic, multi-part, or V2 in JSON or Parquet with sidecars, "Checkpoints" in PROTOCOL.md) has this state, which is small,
and its list of files, which may be large. The commits after it are read one by one, or many of them from one log compaction file, which has
the reconciled actions of its versions ("Log Compaction Files" in PROTOCOL.md). Nothing says that such a file is right, and readers do not
need it. So some of its commits, spread evenly, are read with it. If it lacks a key of theirs, has one twice or cannot be read, all its
commits are read instead. What this does not find, `sluice doctor` does.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

import pyarrow as pa

from ..actions import texts
from ..actions.codec import actions_of, decode_commit, without_files
from ..actions.features import in_commit_timestamps
from ..actions.filetable import FILES_SCHEMA, TOMBSTONES_SCHEMA, Deferred, LayeredTable, add_rows, remove_rows
from ..actions.records import Action, AddFile, CommitInfo, DomainMetadata, FileKey, Metadata, Protocol, RemoveFile, Sidecar, Txn
from ..actions.texts import stored_text
from ..actions.uris import spellings
from ..caches import Once, at_once, threads
from ..constants import SIDECAR_FOLDER
from ..dataclass import dataclass
from ..errors import CorruptLogFile, MissingObject, ObjectNotFound
from ..stores.objects import ObjectStore
from .checkpoint_part import CheckpointPart, FileColumn
from .paths import LogFile, LogKind
from .segment import Checkpoint, LogSegment

_log = logging.getLogger(__name__)

# Maximum number of changed files held as records: a commit may change millions.
_CHANGES_MAX: Final = 65_536

_NO_FILES: Final[LayeredTable[AddFile]] = LayeredTable(FILES_SCHEMA.empty_table(), add_rows)
_NO_TOMBSTONES: Final[LayeredTable[RemoveFile]] = LayeredTable(TOMBSTONES_SCHEMA.empty_table(), remove_rows)


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The state after the actions so far; `commit_info` belongs to the last commit, if it had one.

    `disorder` says which commit has an in-commit timestamp that is not later than its predecessor's; "" if none has. `lists_at` is the
    version whose `files` and `tombstones` are read on first use, before known changes are merged in; -1 if nothing is read for them.
    `lists_held` says whether all bytes that they are read from are in memory.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_transactions: Mapping[str, Txn] = field(default_factory=dict[str, Txn])
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict[str, DomainMetadata])
    commit_info: CommitInfo | None = None
    files: LayeredTable[AddFile] = _NO_FILES
    tombstones: LayeredTable[RemoveFile] = _NO_TOMBSTONES
    lists_at: int = -1
    lists_held: bool = True
    disorder: str = ""

    def after(self, commits: Iterable[Iterable[Action]]) -> ReplayState:
        """The state after these commits, each given by its actions, in order."""
        protocol, metadata, info = self.protocol, self.metadata, self.commit_info
        transactions: dict[str, Txn] = {}
        domains: dict[str, DomainMetadata] = {}
        changed: dict[FileKey, AddFile | RemoveFile | None] = {}
        state = self
        timed = in_commit_timestamps(protocol, metadata)
        for actions in commits:
            former, info = info if timed else None, None
            for action in actions:
                match action:
                    case AddFile() | RemoveFile():
                        changed[action.key] = action
                        for spelled in spellings(action.path):
                            # check: spellings-are-one-file
                            changed[spelled, action.key[1]] = None
                        if len(changed) >= _CHANGES_MAX:  # as rows they take a tenth of the memory
                            state, changed = state._with_files(changed), {}
                    case Protocol():
                        protocol = action
                    case Metadata():
                        metadata = action
                    case Txn():
                        transactions[action.app_id] = action
                    case DomainMetadata():
                        domains[action.domain] = action
                    case CommitInfo():
                        info = action
                    case _:
                        # Row changes belong to one version only; readers ignore unknown actions.
                        continue
            if timed := in_commit_timestamps(protocol, metadata):
                # check: timestamps-grow
                state = _compared(state, info, former)
        state = replace(state, protocol=protocol, metadata=metadata, commit_info=info)
        if transactions:
            state = replace(state, app_transactions={**self.app_transactions, **transactions})
        if domains:
            state = replace(state, domains={name: domain for name, domain in {**self.domains, **domains}.items() if not domain.removed})
        return state._with_files(changed) if changed else state

    def _with_files(self, changed: Mapping[FileKey, AddFile | RemoveFile | None]) -> ReplayState:
        return replace(
            self,
            files=self.files.apply({key: each if isinstance(each, AddFile) else None for key, each in changed.items()}),
            tombstones=self.tombstones.apply({key: each if isinstance(each, RemoveFile) else None for key, each in changed.items()}),
        )


def _compared(state: ReplayState, info: CommitInfo | None, former: CommitInfo | None) -> ReplayState:
    """The state, which notes the first commit whose in-commit timestamp is not later than its predecessor's.

    While they are on they grow strictly ("In-Commit Timestamps" in PROTOCOL.md). A file that was edited, or overwritten with another
    version's copy, breaks that.
    """
    if info is None or former is None or info.in_commit_timestamp is None or former.in_commit_timestamp is None or state.disorder:
        return state
    if info.in_commit_timestamp > former.in_commit_timestamp:
        return state
    return replace(
        state,
        disorder=f"a commit of the log has the in-commit timestamp {info.in_commit_timestamp}, not later than its predecessor's, "
        f"{former.in_commit_timestamp} (here {info.fields.get('operation')}, transaction {info.fields.get('txnId')})",
    )


# -- checkpoints -----------------------------------------------------------------------------------------------------------

# A checkpoint up to this total size is fetched with one request per file, whatever part of it is needed.
_WHOLE_BYTES: Final = 4 * 1024 * 1024
_THREADS: Final = 4, "sluice-checkpoint-part"


def read_checkpoint(store: ObjectStore, checkpoint: Checkpoint) -> ReplayState:
    """The state in a checkpoint; its files and tombstones are read later, each on first use.

    Raises CorruptLogFile, naming the file, if it cannot be read, and ObjectNotFound if the checkpoint was removed since it
    was listed. Later reads raise the same, and MissingObject for a missing sidecar.
    """
    whole = sum(part.size for part in checkpoint.parts) <= _WHOLE_BYTES
    actions, parts = main_actions(store, checkpoint, whole=whole)
    sources: tuple[CheckpointPart | Sidecar, ...] = (*parts, *(each for each in actions if isinstance(each, Sidecar)))
    adds = add_rows([each for each in actions if isinstance(each, AddFile)])
    removes = remove_rows([each for each in actions if isinstance(each, RemoveFile)])
    files = Once(partial(_list_of, store, checkpoint, sources, "add", adds))
    tombstones = Once(partial(_list_of, store, checkpoint, sources, "remove", removes))
    return replace(
        ReplayState().after([[each for each in actions if not isinstance(each, (AddFile, RemoveFile))]]),
        files=LayeredTable(Deferred(files, partial(LayeredTable, make=add_rows)), add_rows),
        tombstones=LayeredTable(Deferred(tombstones, partial(LayeredTable, make=remove_rows)), remove_rows),
        lists_at=checkpoint.version,
        lists_held=whole and len(sources) == len(parts),
    )


def main_actions(store: ObjectStore, checkpoint: Checkpoint, *, whole: bool) -> tuple[list[Action], list[CheckpointPart]]:
    """The actions in a checkpoint's own files, and its files in Parquet, of which those of files are read later. Raises the same."""
    in_json = [part.key for part in checkpoint.parts if part.kind is LogKind.V2_CHECKPOINT and part.key.endswith(".json")]
    actions: list[Action] = [action for key in in_json for action in decode_commit(store.get(key), name=key)]

    def opened(file: LogFile) -> tuple[CheckpointPart, list[Action]]:
        part = CheckpointPart(store, file.key, whole=whole, size=file.size)
        return part, part.actions()

    read = at_once(opened, [part for part in checkpoint.parts if part.key not in in_json], *_THREADS)
    return [*actions, *(action for _, of_part in read for action in of_part)], [part for part, _ in read]


def _list_of(
    store: ObjectStore, checkpoint: Checkpoint, sources: Sequence[CheckpointPart | Sidecar], column: FileColumn, first: pa.Table
) -> pa.Table:
    """The adds or removes of a checkpoint, the `first` of which its main file in JSON may have. Raises the same as `read_checkpoint`."""

    def batches_of(source: CheckpointPart | Sidecar) -> list[pa.RecordBatch]:
        if isinstance(source, CheckpointPart):
            return source.files(column)
        key = SIDECAR_FOLDER + source.path
        try:
            return CheckpointPart(store, key, whole=source.size_in_bytes <= _WHOLE_BYTES).files(column)
        except ObjectNotFound as cause:
            raise MissingObject(
                f"{key} is not there, but checkpoint {checkpoint.parts[0].key} refers to it; restore it from a copy",
                key=key,
                version=checkpoint.version,
            ) from cause

    read = at_once(batches_of, sources, *_THREADS)
    return pa.Table.from_batches([*first.to_batches(), *(batch for batches in read for batch in batches)], first.schema)


# -- segments --------------------------------------------------------------------------------------------------------------

# Concurrent requests for log files; they are small, so latency dominates.
_FETCHES_MAX: Final = 8
# So many of the commits of a log compaction file are compared with it.
_COMPARED: Final = 7


def read_deltas(store: ObjectStore, segment: LogSegment) -> Iterator[Iterable[Action]]:
    """The actions after the segment's checkpoint, in the order of the versions.

    Raises CorruptLogFile for a file that cannot be decoded, and ObjectNotFound for one removed since it was listed.
    """
    for is_compacted, files in groupby(segment.deltas, key=lambda each: each.kind is LogKind.COMPACTED):
        if not is_compacted:
            yield from fetch_actions(store, list(files))
            continue
        for file in files:
            yield from _compacted(store, file, [each for each in segment.commits if file.version <= each.version <= file.end_version])


def _compacted(store: ObjectStore, file: LogFile, commits: Sequence[LogFile]) -> Iterator[Iterable[Action]]:
    """The actions of a log compaction file, then those of its last commit; of all commits if it cannot stand for them."""
    last, read = len(commits) - 1, list[Iterable[Action]]()
    some = [commits[each] for each in sorted({number * last // (_COMPARED - 1) for number in range(_COMPARED)})]
    try:
        read = list(fetch_actions(store, [file, *some]))
        flaw = compaction_flaw(read[0], read[1:])
    except (CorruptLogFile, ObjectNotFound) as damage:
        flaw = damage.message
    # check: compactions-are-reconciled
    if flaw:
        _log.warning("%s of %s is not used, and its commits are read: %s", file.key, store.location, flaw)
        yield from fetch_actions(store, commits)
        return
    yield read[0]
    yield read[-1]  # its commitInfo; the rest is the same


def compaction_flaw(actions: Iterable[Action], commits: Sequence[Iterable[Action]], *, whole: bool = False) -> str:
    """Why a log compaction file cannot stand for its commits, some of which these are, the last one included (`whole`: all); "" if it can.

    It has each key once, every key of the commits, and what the last one says of its keys. What it has to say of others, a commit may say
    that is not among these. Raises CorruptLogFile.
    """
    has: dict[Hashable, object] = {}
    for key, what in _keyed(actions):
        if key in has:
            return f"it has {key} twice"
        has[key] = what
    newest: dict[Hashable, object] = {}
    for commit in commits:
        of_commit = dict(_keyed(commit))
        newest = {**newest, **of_commit} if whole else {**dict.fromkeys(newest), **of_commit}
    for key, what in newest.items():
        if key not in has:
            return f"it lacks {key}"
        if what is not None and has[key] != what:
            return f"it has another action of {key} than the last commit of it"
    surplus = next((key for key in has if key not in newest), None) if whole else None
    return "" if surplus is None else f"it has {surplus}, and none of its commits has"


def _keyed(actions: Iterable[Action]) -> Iterator[tuple[Hashable, object]]:
    """The keys of reconciliation, each with what its action says; of a file, whether it is added: other engines do not keep the rest."""
    for action in actions:
        match action:
            case AddFile() | RemoveFile():
                yield ("file", action.key), isinstance(action, AddFile)
            case Txn():
                yield ("txn", action.app_id), action
            case DomainMetadata():
                yield ("domainMetadata", action.domain), action
            case Protocol() | Metadata():
                yield type(action).__name__, action
            case _:
                continue  # it is not reconciled


def fetch_actions(store: ObjectStore, files: Sequence[LogFile]) -> Iterator[Iterable[Action]]:
    """The actions of each file, in order, fetched several at once, and long ones during iteration. Raises like `read_deltas`."""
    if len(files) <= 1:
        for each in files:
            yield actions_of(stored_text(store, each.key), name=each.key)
        return
    with threads(min(_FETCHES_MAX, len(files)), "sluice-log") as pool:
        for each, text in zip(files, pool.map(partial(stored_text, store), [each.key for each in files]), strict=True):
            yield actions_of(text, name=each.key)


def read_state(store: ObjectStore, segment: LogSegment) -> ReplayState:
    """The state that a segment describes. Of long commits, such as one that removes a million files, file actions are not decoded.

    Raises CorruptLogFile for a damaged file, ObjectNotFound for one removed since it was listed. Reading the lists raises
    the same, and the errors of reading a checkpoint's lists.
    """
    begun = ReplayState() if segment.checkpoint is None else read_checkpoint(store, segment.checkpoint)
    if all(each.size <= texts.PIECE_BYTES for each in segment.deltas):
        return _replayed(store, segment, begun)
    replayed = Once(partial(_replayed, store, segment, begun))  # with all actions
    return replace(
        begun.after(without_files(actions) for actions in read_deltas(store, segment)),
        files=LayeredTable(Deferred(replayed, attrgetter("files")), add_rows),
        tombstones=LayeredTable(Deferred(replayed, attrgetter("tombstones")), remove_rows),
        lists_at=segment.version,
        lists_held=False,
    )


def _replayed(store: ObjectStore, segment: LogSegment, begun: ReplayState) -> ReplayState:
    return begun.after(read_deltas(store, segment))
