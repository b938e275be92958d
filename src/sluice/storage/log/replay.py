"""Action reconciliation ("Action Reconciliation" in PROTOCOL.md): the state that a sequence of actions leaves.

It has the newest protocol and metadata, the newest transaction of each application and configuration of each domain, and for
each file (path and deletion vector) the newest add or remove; two spellings of an absolute path may name one file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Final

from ..actions.features import in_commit_timestamps
from ..actions.filetable import FILES_SCHEMA, TOMBSTONES_SCHEMA, LayeredTable, add_rows, remove_rows
from ..actions.records import Action, AddFile, CommitInfo, DomainMetadata, FileKey, Metadata, Protocol, RemoveFile, Txn
from ..actions.uris import spellings
from ..dataclass import dataclass

# Maximum number of changed files held as records: a commit may change millions.
_CHANGES_MAX: Final = 65_536

_NO_FILES: Final[LayeredTable[AddFile]] = LayeredTable(FILES_SCHEMA.empty_table(), add_rows)
_NO_TOMBSTONES: Final[LayeredTable[RemoveFile]] = LayeredTable(TOMBSTONES_SCHEMA.empty_table(), remove_rows)


@dataclass(frozen=True, slots=True)
class ReplayState:
    """The state after the actions so far; `commit_info` belongs to the last commit, if it had one.

    `disorder` says which commit has an in-commit timestamp that is not later than its predecessor's; "" if none has.
    `lists_at` is the version whose `files` and `tombstones` are read on first use, before known changes are merged in; -1 if
    nothing is read for them.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_transactions: Mapping[str, Txn] = field(default_factory=dict[str, Txn])
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict[str, DomainMetadata])
    commit_info: CommitInfo | None = None
    files: LayeredTable[AddFile] = _NO_FILES
    tombstones: LayeredTable[RemoveFile] = _NO_TOMBSTONES
    lists_at: int = -1
    disorder: str = ""

    def after(self, commits: Iterable[Iterable[Action]]) -> ReplayState:
        """The state after these commits, each given by its actions, in order."""
        protocol, metadata, info = self.protocol, self.metadata, self.commit_info
        transactions: dict[str, Txn] = {}
        domains: dict[str, DomainMetadata] = {}
        changed: dict[FileKey, AddFile | RemoveFile | None] = {}
        state = self
        timed = _timed(protocol, metadata)
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
            timed = _timed(protocol, metadata)
            if timed:
                # check: timestamps-grow
                state = _compared(state, info, former)
        state = replace(state, protocol=protocol, metadata=metadata, commit_info=info)
        if transactions:
            state = replace(state, app_transactions={**self.app_transactions, **transactions})
        if domains:
            live = {name: domain for name, domain in {**self.domains, **domains}.items() if not domain.removed}
            state = replace(state, domains=live)
        return state._with_files(changed) if changed else state

    def _with_files(self, changed: Mapping[FileKey, AddFile | RemoveFile | None]) -> ReplayState:
        return replace(
            self,
            files=self.files.apply({key: each if isinstance(each, AddFile) else None for key, each in changed.items()}),
            tombstones=self.tombstones.apply({key: each if isinstance(each, RemoveFile) else None for key, each in changed.items()}),
        )


def _timed(protocol: Protocol | None, metadata: Metadata | None) -> bool:
    return protocol is not None and metadata is not None and in_commit_timestamps(protocol, metadata)


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
