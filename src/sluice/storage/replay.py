"""Action reconciliation ("Action Reconciliation" in PROTOCOL.md): what is left of a sequence of actions.

The newest protocol and metadata count, the newest transaction of each application and configuration of each domain, and
for each file (path and deletion vector) the newest add or remove.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from .filetable import FILES_SCHEMA, TOMBSTONES_SCHEMA, LayeredTable, add_rows, remove_rows
from .records import Action, AddFile, CommitInfo, DomainMetadata, FileKey, Metadata, Protocol, RemoveFile, Txn

__all__ = ["ReplayState"]


_NO_FILES: Final = FILES_SCHEMA.empty_table()
_NO_TOMBSTONES: Final = TOMBSTONES_SCHEMA.empty_table()


def _no_files() -> LayeredTable[AddFile]:
    return LayeredTable(_NO_FILES, add_rows)


def _no_tombstones() -> LayeredTable[RemoveFile]:
    return LayeredTable(_NO_TOMBSTONES, remove_rows)


@dataclass(frozen=True, slots=True)
class ReplayState:
    """What the actions so far leave behind; `commit_info` is that of the last commit, if it had one."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    app_transactions: Mapping[str, Txn] = field(default_factory=dict[str, Txn])
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict[str, DomainMetadata])
    commit_info: CommitInfo | None = None
    files: LayeredTable[AddFile] = field(default_factory=_no_files)
    tombstones: LayeredTable[RemoveFile] = field(default_factory=_no_tombstones)

    def after(self, commits: Iterable[Iterable[Action]]) -> ReplayState:
        """The state after these commits, each given by its actions, in order."""
        protocol, metadata, info = self.protocol, self.metadata, self.commit_info
        transactions: dict[str, Txn] = {}
        domains: dict[str, DomainMetadata] = {}
        changed: dict[FileKey, AddFile | RemoveFile] = {}
        for actions in commits:
            info = None
            for action in actions:
                match action:
                    case AddFile() | RemoveFile():
                        changed[action.key] = action
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
                        # Row changes belong to one version only; unknown actions mean nothing to a reader.
                        continue
        state = replace(self, protocol=protocol, metadata=metadata, commit_info=info)
        if transactions:
            state = replace(state, app_transactions={**self.app_transactions, **transactions})
        if domains:
            live = {name: domain for name, domain in {**self.domains, **domains}.items() if not domain.removed}
            state = replace(state, domains=live)
        if changed:
            state = replace(
                state,
                files=self.files.apply({key: each if isinstance(each, AddFile) else None for key, each in changed.items()}),
                tombstones=self.tombstones.apply({key: each if isinstance(each, RemoveFile) else None for key, each in changed.items()}),
            )
        return state
