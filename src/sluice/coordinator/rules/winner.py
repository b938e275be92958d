"""A transaction and the winners (commits that came first), as the conflict rules see them.

The footprint of a transaction is what it read, as its intent declares, and what it does, as its actions say. Everybody derives the second
half from the actions themselves, so an intent cannot hide what it does.

A transaction compares the files of a window of winners with its conditions together: Arrow takes about as long for one file as for a
hundred. A file's answer never depends on other files, so a window changes how long a decision takes, and never what is decided.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import field, fields
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from ...storage.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    decode,
    decode_text,
    encode,
)
from ...storage.actions.texts import Text
from ...storage.dataclass import dataclass
from ...storage.pruning.files import AddedFiles
from .intent import DeclaredReads, Intent, Kind, class_of

_WINNERS_MAX: Final = 256
"""The most winners whose files are looked at together: work that is wasted if the first of them stops the transaction."""

_BLOCK_FILES: Final = 4096
"""Up to this number of removed files are kept as objects, more in blocks of this size."""
_PLACE_BITS: Final = 28
_HASH_MASK: Final = (1 << (63 - _PLACE_BITS)) - 1

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
    """A partition in a footprint: compact JSON with sorted keys, "{}" for a table without partitions. The log's empty text is null."""
    return orjson.dumps({name: value or None for name, value in values.items()}, option=orjson.OPT_SORT_KEYS).decode()


_DECLARED: Final = fields(DeclaredReads)


def footprint_of(declared: DeclaredReads, actions: Iterable[Action], *, lists_all: bool = False) -> Footprint:
    """The footprint of a transaction with these actions, which are seen one after the other: there may be millions.

    Unless it `lists_all` removed files, it says of very many that they may be any.
    """
    removes: list[str] | None = []
    partitions: set[str] | None = None if declared.scope == "" else set()
    app_versions: dict[str, int] = {}
    domains: list[str] = []
    last: Mapping[str, str | None] | None = None
    metadata = protocol = data_change = False
    adds_only = True
    for action in actions:
        if not isinstance(action, (AddFile, RemoveFile, AddCDCFile)):
            match action:
                case Txn():
                    app_versions[action.app_id] = action.version
                case DomainMetadata():
                    domains.append(action.domain)
                case Metadata():
                    metadata = True
                case Protocol():
                    protocol = True
            continue
        data_change = data_change or action.data_change
        adds_only = adds_only and isinstance(action, AddFile)
        if isinstance(action, RemoveFile) and removes is not None:
            removes.append(action.path)
            # check: many-removed-files-are-all-files (if lists_all or len(removes) <= LISTED_MAX else None -> [:LISTED_MAX])
            removes = removes if lists_all or len(removes) <= LISTED_MAX else None
        if partitions is not None:
            if action.partition_values is not None and action.partition_values != last:
                last = action.partition_values
                partitions.add(partition_key(last))
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
    """An intent with its actions (newline-delimited JSON): those filed, or adapted by rebasing, which `rebased` describes."""

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
        return {remove.path: None for remove in removed.values() if remove.data_change}.keys()

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
        """The files of one of the winners' `candidates` that `pick` selects; it judges each file by itself, and gets those of all at
        once."""
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


# -- the removed files of a commit: a dictionary, or for very many of them compressed blocks with an index -----------------


class Removals:
    """Collects the removals of a commit one by one, and returns them as a mapping by path."""

    def __init__(self) -> None:
        self._listed: dict[str, RemoveFile] = {}
        self._blocks: list[_Block] = []
        self._index: list[int] = []
        self._changing = 0

    def add(self, remove: RemoveFile) -> None:
        """Add one; the later of two with one path counts."""
        self._listed[remove.path] = remove
        if len(self._listed) > _BLOCK_FILES:
            self._pack()

    def files(self) -> Mapping[str, RemoveFile]:
        """All of them. Nothing may be added afterwards."""
        if not self._blocks:
            return self._listed
        self._pack()
        self._index.sort()
        return RemovedFiles(self._blocks, array("q", self._index), self._changing)

    def _pack(self) -> None:
        place = len(self._blocks) * (_BLOCK_FILES + 1)
        self._index += [_hashed(path) << _PLACE_BITS | place + number for number, path in enumerate(self._listed)]
        self._changing += sum(remove.data_change for remove in self._listed.values())
        lines, paths = b"\n".join(map(encode, self._listed.values())), "\0".join(self._listed).encode("utf-8", "surrogatepass")
        self._blocks.append(_Block(zlib.compress(lines, 1), zlib.compress(paths, 1)))
        self._listed = {}


class _Block(NamedTuple):
    """Up to 4097 removals, as their compressed log lines and paths."""

    packed_lines: bytes
    packed_paths: bytes

    def lines(self) -> list[bytes]:
        return zlib.decompress(self.packed_lines).split(b"\n")

    def paths(self) -> list[str]:
        return zlib.decompress(self.packed_paths).decode("utf-8", "surrogatepass").split("\0")


class RemovedFiles(Mapping[str, RemoveFile]):
    """Very many removals by path; made by `Removals`. A million are 1.5 GB of Python objects, but some 50 MB in this form.

    Rules look up only a few paths. Who needs all removals takes `values`: each look-up unpacks a block.
    """

    def __init__(self, blocks: list[_Block], index: array[int], changing: int) -> None:
        self._blocks, self._index, self._changing = blocks, index, changing
        self._looked_at: tuple[int, list[str]] = (-1, [])

    @property
    def changes_data(self) -> bool | None:
        """Whether they are removed together with their rows: all (True), none (False), or some (None)."""
        return self._changing == len(self) if self._changing in (0, len(self)) else None

    @property
    def nbytes(self) -> int:
        """Its approximate size in memory."""
        return self._index.itemsize * len(self._index) + sum(len(packed) for block in self._blocks for packed in block)

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block.paths()

    def __contains__(self, path: object) -> bool:
        return self._place(path) is not None

    def __getitem__(self, path: str) -> RemoveFile:
        place = self._place(path)
        if place is None:
            raise KeyError(path)
        return _removal(self._blocks[place[0]].lines()[place[1]])

    def values(self) -> ValuesView[RemoveFile]:
        """The removals, in the order of the commit."""
        return _Values(self, self._blocks)

    def _place(self, path: object) -> tuple[int, int] | None:
        if not isinstance(path, str):
            return None
        prefix = _hashed(path)
        at = bisect_left(self._index, prefix << _PLACE_BITS)
        while at < len(self._index) and self._index[at] >> _PLACE_BITS == prefix:
            block, number = divmod(self._index[at] & ((1 << _PLACE_BITS) - 1), _BLOCK_FILES + 1)
            looked_at, paths = self._looked_at
            if looked_at != block:
                paths = self._blocks[block].paths()
                self._looked_at = block, paths
            if paths[number] == path:
                return block, number
            at += 1
        return None


class _Values(ValuesView[RemoveFile]):
    """Unpacks each block once."""

    def __init__(self, files: RemovedFiles, blocks: list[_Block]) -> None:
        super().__init__(files)
        self._blocks = blocks

    def __iter__(self) -> Iterator[RemoveFile]:
        for block in self._blocks:
            yield from map(_removal, block.lines())


def _removal(line: bytes) -> RemoveFile:
    action = decode(line)
    assert isinstance(action, RemoveFile)
    return action


def _hashed(path: str) -> int:
    """An index only: paths with equal hashes are compared."""
    return hash(path) & _HASH_MASK
