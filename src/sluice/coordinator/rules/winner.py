"""A transaction and the winners (commits that came first), as the conflict rules see them.

The footprint of a transaction is what it read, as its intent declares, and what it does, as its actions say. Everybody derives the second
half from the actions themselves, so an intent cannot hide what it does.

A transaction is checked against winners one after the other, and compares the files of a window of them with its conditions together: Arrow
takes about as long for one file as for a hundred. A file's answer never depends on other files, so a window changes how long a
decision takes, and never what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import field, fields
from itertools import islice
from typing import Any, Final

import orjson

from ...storage.actions import Action, AddCDCFile, AddFile, CommitInfo, DomainMetadata, Metadata, Protocol, RemoveFile, Txn, decode_text
from ...storage.actions.texts import Text
from ...storage.dataclass import dataclass
from ...storage.pruning.files import AddedFiles
from .intent import DeclaredReads, Intent, Kind, class_of
from .removed_files import Removals, RemovedFiles

_WINNERS_MAX: Final = 256
"""The most winners whose files are looked at together: work that is wasted if the first of them stops the transaction."""

LISTED_MAX: Final = 500
"""A footprint lists no more removed files and partitions. Every client has the same limit, since leases are compared with them."""


@dataclass(frozen=True, slots=True)
class Footprint(DeclaredReads):
    """What a transaction read and does, as the conflict rules and leases compare it."""

    removes: tuple[str, ...] | None = ()
    """The log paths of the files it removes; None: too many to list."""
    app_versions: Mapping[str, int] = field(default_factory=dict)
    """The application transactions it writes: number by application id."""
    domains: tuple[str, ...] = ()
    metadata: bool = False
    protocol: bool = False
    data_change: bool = True
    blind_append: bool = False
    """Delta's term for a commit that reads nothing, here or in other tables, and only adds files."""
    partitions: tuple[str, ...] | None = None
    """The partitions it touches, as compact JSON objects with sorted keys; None: all, or too many to list."""

    @property
    def declared(self) -> DeclaredReads:
        """The half of it that an intent declares."""
        return DeclaredReads(**{each.name: getattr(self, each.name) for each in _DECLARED})

    @property
    def plain_append(self) -> bool:
        """Whether it only appends, so that commits of others hardly matter to it."""
        return self.blind_append and not (self.metadata or self.protocol or self.domains)

    @property
    def reads_nothing_here(self) -> bool:
        """Whether files that others add cannot matter to it: a blind append, or an append whose transaction read other tables only."""
        return self.blind_append or (self.kind == Kind.APPEND.value and not self.reads_here)


def partition_key(values: Mapping[str, str | None]) -> str:
    """A partition in a footprint: compact JSON with sorted keys, "{}" for a table without partitions.

    The log's empty text is null.
    """
    return orjson.dumps({name: value or None for name, value in values.items()}, option=orjson.OPT_SORT_KEYS).decode()


_DECLARED: Final = fields(DeclaredReads)


def footprint_of(declared: DeclaredReads, actions: Iterable[Action]) -> Footprint:
    """The footprint of a transaction with these actions, which are seen one after the other: there may be millions."""
    removes: list[str] | None = []
    partitions: set[str] | None = None if declared.scope == "" else set()
    app_versions: dict[str, int] = {}
    domains: list[str] = []
    metadata = protocol = data_change = False
    adds_only = True
    for action in actions:
        match action:
            case Txn():
                app_versions[action.app_id] = action.version
            case DomainMetadata():
                domains.append(action.domain)
            case Metadata():
                metadata = True
            case Protocol():
                protocol = True
        if not isinstance(action, (AddFile, RemoveFile, AddCDCFile)):
            continue
        data_change = data_change or action.data_change
        adds_only = adds_only and isinstance(action, AddFile)
        if isinstance(action, RemoveFile) and removes is not None:
            removes.append(action.path)
            # check: many-removed-files-are-all-files (if len(removes) <= LISTED_MAX else None -> [:LISTED_MAX])
            removes = removes if len(removes) <= LISTED_MAX else None
        if partitions is not None:
            if action.partition_values is not None:
                partitions.add(partition_key(action.partition_values))
            # check: many-partitions-are-all (without or len(partitions) > LISTED_MAX)
            if action.partition_values is None or len(partitions) > LISTED_MAX:
                partitions = None
    return Footprint(
        **{each.name: getattr(declared, each.name) for each in _DECLARED},
        removes=None if removes is None else tuple(removes),
        app_versions=app_versions,
        domains=tuple(domains),
        metadata=metadata,
        protocol=protocol,
        data_change=data_change,
        blind_append=declared.nothing and adds_only and not declared.reads_here,
        partitions=None if partitions is None else tuple(sorted(partitions)),
    )


@dataclass(frozen=True, slots=True)
class Member:
    """An intent together with its actions (newline-delimited JSON), wherever they were kept.

    The actions are those filed, or adapted by rebasing; `rebased` describes the changes.
    """

    intent: Intent
    actions: Text
    rebased: tuple[str, ...] = ()
    _footprint: Footprint | None = field(default=None, repr=False, compare=False)
    """Known already, or derived when it is first needed."""

    @property
    def footprint(self) -> Footprint:
        """What it read and does. Raises CorruptLogFile for actions that do not parse."""
        footprint = self._footprint
        if footprint is None:
            actions = decode_text(self.actions, name=f"transaction {self.intent.transaction_id}") if self.actions else ()
            footprint = footprint_of(self.intent.reads, actions)
            object.__setattr__(self, "_footprint", footprint)
        return footprint


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit that came first, as the conflict rules see it; derived from its actions only.

    `metadata_change` and `protocol_change` describe the difference to the table before, if the commit says it (see
    `storage.actions.metadata_change`); `kind` is the kind it names, or the one its actions suggest.
    """

    version: int
    operation: str = ""
    blind_append: bool = False
    adds: tuple[AddFile, ...] = ()
    removed: Mapping[str, RemoveFile] = field(default_factory=dict)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    app_versions: Mapping[str, int] = field(default_factory=dict)
    domains: frozenset[str] = frozenset()
    transactions: tuple[Mapping[str, Any], ...] = ()
    kind: Kind = Kind.OTHER
    metadata_change: Mapping[str, Any] | None = None
    protocol_change: Mapping[str, Any] | None = None
    timestamp_ms: int | None = None
    """Its in-commit timestamp; None for a version that has none."""

    @property
    def removes(self) -> KeysView[str]:
        """The log paths of the removed files."""
        return self.removed.keys()

    @property
    def lost(self) -> KeysView[str]:
        """The log paths of the files removed with their rows, not those whose rows were moved."""
        removed = self.removed
        if isinstance(removed, RemovedFiles) and removed.changes_data is not None:
            return removed.keys() if removed.changes_data else {}.keys()
        return {path: None for path, remove in removed.items() if remove.data_change}.keys()

    def ordinal_of(self, transaction_id: str) -> int | None:
        """The ordinal of a transaction in this version, or None if it is not part of it."""
        return next((int(t["ordinal"]) for t in self.transactions if t.get("id") == transaction_id), None)

    def entry(self, ordinal: int) -> Mapping[str, Any]:
        """What this version says of one of its transactions; empty when it lists none."""
        return next((t for t in self.transactions if t.get("ordinal") == ordinal), {})

    def ordinal_of_app(self, app_id: str) -> int:
        """The ordinal of the transaction that wrote this application id (0 if the commit does not say)."""
        return next((int(t["ordinal"]) for t in self.transactions if app_id in t.get("apps", {})), 0)


def transactions_of(info: CommitInfo | None) -> tuple[Mapping[str, Any], ...]:
    """The transactions that a commit's commitInfo lists; none for a commit that sluice did not make."""
    ours = info.fields.get("sluice") if info is not None else None
    listed = ours.get("transactions") if isinstance(ours, Mapping) else None
    return tuple(t for t in listed if isinstance(t, Mapping)) if isinstance(listed, list) else ()


def winner_of(version: int, actions: Iterable[Action]) -> Winner:
    """Sum up one commit. A commit without `isBlindAppend` counts as not blind, as in Delta."""
    adds: list[AddFile] = []
    removals = Removals()
    domains: list[str] = []
    apps: dict[str, int] = {}
    info: CommitInfo | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    for action in actions:
        match action:
            case AddFile():
                adds.append(action)
            case RemoveFile():
                removals.add(action)
            case Txn():
                apps[action.app_id] = action.version
            case DomainMetadata():
                domains.append(action.domain)
            case Metadata():
                metadata = action
            case Protocol():
                protocol = action
            case CommitInfo():
                info = action
            case _:
                continue
    removed = removals.files()
    listed = transactions_of(info)
    said = {} if info is None else info.fields
    operation, parameters, stamp = str(said.get("operation", "")), said.get("operationParameters"), said.get("inCommitTimestamp")
    mode = str(parameters.get("mode", "")) if isinstance(parameters, Mapping) else ""
    named = listed[0].get("kind") if listed else None  # all members of a group have the same kind
    kind = Kind(named) if named in {each.value for each in Kind} else class_of(operation, adds, removed.values(), mode=mode)
    return Winner(
        version=version,
        operation=operation,
        blind_append=said.get("isBlindAppend") is True,
        adds=AddedFiles(adds),
        removed=removed,
        metadata=metadata,
        protocol=protocol,
        app_versions=apps,
        domains=frozenset(domains),
        transactions=listed,
        kind=kind,
        metadata_change=_described(listed, "metadataChange"),
        protocol_change=_described(listed, "protocolChange"),
        timestamp_ms=stamp if isinstance(stamp, int) else None,
    )


def _described(transactions: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """A description given by the version's only transaction."""
    described = transactions[0].get(name) if len(transactions) == 1 else None
    return described if isinstance(described, Mapping) else None


class Window:
    """Winners in the order of their versions."""

    __slots__ = ("_picked", "winners")

    def __init__(self, winners: Sequence[Winner]) -> None:
        self.winners = winners
        self._picked: dict[Hashable, Mapping[int, list[AddFile]]] = {}

    def picked(
        self,
        winner: Winner,
        question: Hashable,
        candidates: Callable[[Winner], Sequence[AddFile]],
        pick: Callable[[Sequence[AddFile]], list[AddFile]],
    ) -> Sequence[AddFile]:
        """The files that `pick` selects from the `candidates` of one of the winners.

        The first call with a question selects from the candidates of all winners; `pick` judges each file by itself.
        """
        if question not in self._picked:
            named = {id(each): files for each in self.winners if (files := candidates(each))}
            if len(named) < 2:
                self._picked[question] = {each: pick(files) for each, files in named.items()}
            else:
                picked = {id(add) for add in pick([add for files in named.values() for add in files])}
                by_winner = {each: [add for add in files if id(add) in picked] for each, files in named.items()} if picked else {}
                self._picked[question] = by_winner
        return self._picked[question].get(id(winner), ())


def windows(winners: Iterable[Winner]) -> Iterator[Window]:
    """The winners in windows, in their order."""
    left = iter(winners)
    while some := tuple(islice(left, _WINNERS_MAX)):
        yield Window(some)
