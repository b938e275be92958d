"""Logs made by hand for tests: actions in their shortest form, and stores that hold them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from sluice.storage.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    encode_all,
)
from sluice.storage.constants import CHECKPOINT_PART_DIGITS, VERSION_DIGITS
from sluice.storage.data.statistics import INDEXED_COLUMNS_DEFAULT, StatsCollector
from sluice.storage.jsontext import loads
from sluice.storage.log.paths import commit_path, version_prefix
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.schema.datatypes import StructType
from sluice.storage.stores.memory import MemoryStore

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = Protocol(1, 2)
METADATA = Metadata("5fba94ed-9794-4965-ba6e-6ee3c0d22af9", SCHEMA, (), {})
START: tuple[Action, ...] = (PROTOCOL, METADATA)

_names = count()


def new_store() -> MemoryStore:
    """An empty store that no other test sees."""
    return MemoryStore.open(f"log-{next(_names)}")


def store_of(commits: Iterable[Iterable[Action]]) -> MemoryStore:
    """A store whose log has these commits, from version 0 on."""
    store = new_store()
    for version, actions in enumerate(commits):
        put_commit(store, version, *actions)
    return store


def put_commit(store: MemoryStore, version: int, *actions: Action) -> None:
    store.put(commit_path(version), encode_all(actions))


def statistics_of(
    table: pa.Table, schema: StructType, partition_columns: Sequence[str], indexed_columns: int = INDEXED_COLUMNS_DEFAULT
) -> str:
    """The text of `add.stats` of a file with these rows."""
    collector = StatsCollector(schema, partition_columns, indexed_columns)
    collector.update(table)
    return collector.to_json()


def add(path: str, **more: Any) -> AddFile:
    return AddFile(path, **{"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True, **more})


def remove(path: str, **more: Any) -> RemoveFile:
    return RemoveFile(path, **{"data_change": True, "deletion_timestamp": 2**45, **more})


def counted(versions: int) -> MemoryStore:
    """A log of `versions` versions, each of which adds file `f<version>`."""
    return store_of([[*START, add("f0")], *([add(f"f{version}")] for version in range(1, versions))])


def parquet(rows: list[dict[str, Any]], schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    return sink.getvalue()


def paths(snapshot: Any) -> list[str]:
    return sorted(snapshot.files.column("path").to_pylist())


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LONGS = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
VALUES = st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3)
EXTRA = st.dictionaries(TEXTS.map(lambda name: "x-" + name), JSON, max_size=2)
VECTORS = st.builds(DeletionVector, st.sampled_from("upi"), TEXTS, st.integers(0, 2**31 - 1), LONGS, st.none() | st.integers(0, 2**31 - 1))


def commit_sequences() -> st.SearchStrategy[list[list[Action]]]:
    """Legal histories: each commit changes some files, and perhaps other things."""
    return st.lists(st.integers(0, 2**32), min_size=1, max_size=9).map(_history)


def _history(seeds: list[int]) -> list[list[Action]]:
    """A history in which each number decides what one commit does; numbers so that shrinking stays simple."""
    live: dict[tuple[str, str], AddFile] = {}
    gone: list[AddFile] = []
    history: list[list[Action]] = [list(START)]
    for version, seed in enumerate(seeds, start=1):
        commit: list[Action] = [CommitInfo({"operation": "WRITE", "timestamp": version})]
        commit += list(_file_changes(version, seed, live, gone))
        if seed % 3 == 0:
            commit.append(Txn(f"app-{seed % 2}", version, seed % 100 or None))
        if seed % 5 == 0:
            commit.append(DomainMetadata(f"domain-{seed % 2}", str(version), removed=seed % 4 == 0))
        if seed % 7 == 0:
            commit.append(Metadata(METADATA.id, SCHEMA, (), {"version": str(version)}))
        history.append(commit)
    return history


def _file_changes(version: int, seed: int, live: dict[tuple[str, str], AddFile], gone: list[AddFile]) -> Iterator[Action]:
    victims = [each for index, each in enumerate(live.values()) if (seed >> index) % 3 == 0]
    for victim in victims:
        del live[victim.key]
        yield remove(victim.path, deletion_vector=victim.deletion_vector, size=victim.size, partition_values=victim.partition_values)
    fresh = [add(f"f{version}-{index}", size=seed % 1000, stats='{"numRecords":1}') for index in range(seed % 4)]
    if victims and seed % 2:
        # The same file with another deletion vector: removed and added in one commit, under two keys.
        vector = DeletionVector("u", f"v{version}", 4, seed % 9 + 1, version)
        fresh.append(add(victims[0].path, deletion_vector=vector, tags={"a": None}))
    elif gone and seed % 5 == 1:
        fresh.append(gone.pop())
    if live and seed % 11 == 0:
        # Added again with other statistics.
        first = next(iter(live.values()))
        fresh.append(add(first.path, deletion_vector=first.deletion_vector, data_change=False, stats="{}", base_row_id=seed))
    gone += [each for each in victims if all(each.path != other.path for other in fresh)]
    live.update({each.key: each for each in fresh})
    yield from fresh


def model(history: Iterable[Iterable[Action]]) -> dict[str, Mapping[Any, Action]]:
    """What is left of a history, in plain dicts: the definition that everything else is compared to."""
    found: dict[str, dict[Any, Action]] = {"files": {}, "tombstones": {}, "txns": {}, "domains": {}, "last": {}}
    for action in (each for commit in history for each in commit):
        match action:
            case AddFile():
                found["tombstones"].pop(action.key, None)
                found["files"][action.key] = action
            case RemoveFile():
                found["files"].pop(action.key, None)
                found["tombstones"][action.key] = action
            case Txn():
                found["txns"][action.app_id] = action
            case DomainMetadata():
                found["domains"][action.domain] = action
            case Protocol() | Metadata():
                found["last"][type(action)] = action
            case _:
                assert isinstance(action, CommitInfo)
    found["domains"] = {name: each for name, each in found["domains"].items() if isinstance(each, DomainMetadata) and not each.removed}
    return dict(found)


def removed_files(snapshot: Snapshot) -> Iterator[RemoveFile]:
    """The tombstones as records."""
    for row in snapshot.tombstones.to_pylist():
        values, vector, extra = row["partition_values"], row["deletion_vector"], row.pop("extra_json")
        row["partition_values"] = None if values is None else dict(values)
        row["deletion_vector"] = None if vector is None else DeletionVector(**vector)
        yield RemoveFile(**row, extra={} if extra is None else loads(extra.encode()))


def checkpoint_part_path(version: int, part: int, parts: int) -> str:
    """The key of one part (from 1) of a multi-part checkpoint."""
    digits = CHECKPOINT_PART_DIGITS
    return f"{version_prefix(version)}.checkpoint.{part:0{digits}d}.{parts:0{digits}d}.parquet"


def crc_path(version: int) -> str:
    return f"{version_prefix(version)}.crc"


def compacted_path(start: int, end: int) -> str:
    """The key of the file with the reconciled actions of versions `start` to `end`, both included."""
    return f"{version_prefix(start)}.{end:0{VERSION_DIGITS}d}.compacted.json"
