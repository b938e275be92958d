"""Version checksums: what they count, and that they decide nothing."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import Action, AddFile, CommitInfo, DomainMetadata, Metadata, Protocol, Txn
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.checksum import disagreements, write_checksum
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import METADATA, START, add, commit_sequences, counted, crc_path, model, paths, put_commit, remove, store_of

TIMED = replace(METADATA, configuration={"delta.enableInCommitTimestamps": "true"})
TIMES = Protocol(1, 7, None, ("domainMetadata", "inCommitTimestamp"))


def of_version(store: MemoryStore, version: int) -> dict[str, Any]:
    says: dict[str, Any] = json.loads(store.get(crc_path(version)))
    return says


def write_now(store: MemoryStore, snapshot: Snapshot) -> bool:
    return write_checksum(store, snapshot.version, snapshot.summary())


def summed(store: MemoryStore) -> dict[str, Any]:
    """The checksum of the latest version, which is written now."""
    snapshot = Snapshot.load(store)
    assert write_now(store, snapshot)
    return of_version(store, snapshot.version)


def test_a_checksum_has_the_fields_of_the_protocol() -> None:
    info = CommitInfo({"inCommitTimestamp": 9, "txnId": "t-1"})
    store = store_of([[CommitInfo({"inCommitTimestamp": 5}), TIMES, TIMED, add("a", size=3), Txn("x", 1)]])
    put_commit(store, 1, info, add("b", size=4), remove("a", size=3), Txn("x", 2, 7), DomainMetadata("d", "c", False))
    put_commit(store, 2, replace(info, fields={"inCommitTimestamp": 10, "txnId": "t-2"}), add("c", size=5))
    says = summed(store)
    assert (says["numFiles"], says["tableSizeBytes"], says["numMetadata"], says["numProtocol"]) == (2, 9, 1, 1)
    assert (says["txnId"], says["inCommitTimestampOpt"]) == ("t-2", 10)
    assert says["setTransactions"] == [{"appId": "x", "version": 2, "lastUpdated": 7}]
    assert says["domainMetadata"] == [{"domain": "d", "configuration": "c", "removed": False}]
    assert says["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata", "inCommitTimestamp"]}
    assert says["metadata"]["configuration"] == TIMED.configuration
    assert says["metadata"]["format"] == {"provider": "parquet", "options": {}}


def test_without_in_commit_timestamps_there_is_none() -> None:
    assert not {"inCommitTimestampOpt", "txnId"} & summed(counted(2)).keys()


@given(commit_sequences(), st.integers(0, 8))
def test_a_checksum_says_what_the_log_gives_however_it_is_read(history: list[list[Action]], middle: int) -> None:
    store = store_of(history)
    says, left = summed(store), model(history)
    sizes = [each.size for each in left["files"].values() if isinstance(each, AddFile)]
    assert (says["numFiles"], says["tableSizeBytes"]) == (len(sizes), sum(sizes))
    versions = {each.app_id: each.version for each in left["txns"].values() if isinstance(each, Txn)}
    assert {each["appId"]: each["version"] for each in says["setTransactions"]} == versions
    at = min(middle, len(history) - 1)
    write_checkpoint(store, Snapshot.load(store, version=at), now_ms=0)
    assert disagreements(says, Snapshot.load(store).summary()) == []
    assert disagreements(says, Snapshot.load(store, version=at).refresh(store).summary()) == []


@pytest.mark.notices("checksums-are-not-replaced")
def test_a_checksum_is_never_replaced() -> None:
    store = counted(3)
    store.put(crc_path(2), b'{"made":"by another engine"}')
    assert not write_now(store, Snapshot.load(store))
    assert store.get(crc_path(2)) == b'{"made":"by another engine"}'


def test_more_transactions_than_a_checksum_lists_are_left_out() -> None:
    store = store_of([[*START, *(Txn(f"a{number}", 1) for number in range(101)), DomainMetadata("d", "", False)]])
    says = summed(store)
    assert "setTransactions" not in says
    assert len(says["domainMetadata"]) == 1
    assert disagreements(says, Snapshot.load(store).summary()) == []


# ---------------------------------------------------------------------------------------------------- comparing


def changed(**fields: Any) -> dict[str, Any]:
    return {
        "tableSizeBytes": 3,
        "numFiles": 3,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": {
            "id": METADATA.id,
            "schemaString": METADATA.schema_string,
            "partitionColumns": [],
            "configuration": {},
            "format": {"provider": "parquet", "options": {}},
        },
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
        **fields,
    }


WRONG: dict[str, dict[str, Any]] = {
    "numFiles is 4 in it and 3 in the log": {"numFiles": 4},
    "tableSizeBytes is 1000 in it and 3 in the log": {"tableSizeBytes": 1000},
    "numFiles is None in it": {"numFiles": None},
    "numMetadata is 2 in it": {"numMetadata": 2},
    "metadata is Metadata(id='other'": {"metadata": {"id": "other", "schemaString": "", "partitionColumns": [], "configuration": {}}},
    "protocol is (1, 7, ": {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["x"]}},
    "setTransactions is {'app': 7} in it and {} in the log": {"setTransactions": [{"appId": "app", "version": 7}]},
    "domainMetadata is {'d': 'c'} in it": {"domainMetadata": [{"domain": "d", "configuration": "c", "removed": False}]},
    "it cannot be read (metaData: lacks id": {"metadata": {"schemaString": ""}},
    "is no list of actions": {"setTransactions": {"appId": 1}},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_disagrees_is_named_and_the_log_counts(what: str, caplog: pytest.LogCaptureFixture) -> None:
    store = counted(3)
    store.put(crc_path(2), json.dumps(changed(**WRONG[what])).encode())
    snapshot = Snapshot.load(store)
    assert not caplog.records, "the state takes no look at it"
    assert paths(snapshot) == ["f0", "f1", "f2"]
    assert (snapshot.num_files, snapshot.metadata, snapshot.app_transactions) == (3, METADATA, {})
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert crc_path(2) in record.getMessage()
    assert what in record.getMessage()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff"])
def test_a_checksum_that_cannot_be_read_is_named_and_ends_no_reading(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = counted(3)
    store.put(crc_path(2), content)
    assert paths(Snapshot.load(store)) == ["f0", "f1", "f2"]
    assert "it cannot be read" in caplog.text


@pytest.mark.parametrize(
    "says",
    [
        {},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, "new": 1}, "allFiles": [], "histogramOpt": {}},
        {"setTransactions": None, "domainMetadata": None},
        {"metadata": {**changed()["metadata"], "name": None, "createdTime": None, "new": 1}},
    ],
)
def test_what_says_the_same_in_other_words_is_no_disagreement(says: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    store = counted(3)
    store.put(crc_path(2), json.dumps(changed(**says)).encode())
    assert Snapshot.load(store).num_files == 3
    assert not caplog.records


def test_the_order_of_features_means_nothing() -> None:
    store = store_of([[Protocol(1, 7, None, ("a", "b")), METADATA, *(add(f"f{n}") for n in range(3))]])
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["b", "a"]}
    assert disagreements(changed(protocol=protocol), Snapshot.load(store).summary()) == []


def test_transactions_that_another_engine_may_have_forgotten_do_not_count() -> None:
    kept = Metadata(METADATA.id, METADATA.schema_string, (), {"delta.setTransactionRetentionDuration": "interval 1 day"})
    store = store_of([[START[0], kept, add("f0"), Txn("old", 1)]])
    assert "setTransactions" not in summed(store), "Delta Lake counts those that it has not forgotten"
    metadata = {**changed()["metadata"], "configuration": kept.configuration}
    assert disagreements(changed(metadata=metadata, numFiles=1, tableSizeBytes=1), Snapshot.load(store).summary()) == []


def test_trouble_with_the_store_is_no_disagreement(caplog: pytest.LogCaptureFixture) -> None:
    store = counted(3)
    write_now(store, Snapshot.load(store))
    store.disk.fail_before("get", "*.crc")
    assert paths(Snapshot.load(store)) == ["f0", "f1", "f2"]
    assert not caplog.records


def test_a_version_without_a_checksum_costs_no_request() -> None:
    store = counted(3)
    write_now(store, Snapshot.load(store, version=1))
    store.disk.calls.clear()
    assert Snapshot.load(store).num_files == 3
    assert not [key for _, key in store.disk.calls if key.endswith(".crc")]


def test_a_client_that_appends_never_reads_one() -> None:
    store = counted(3)
    write_now(store, Snapshot.load(store))
    store.disk.calls.clear()
    assert Snapshot.load(store).advance([(3, [add("f3")])]).num_files == 4
    assert not [key for _, key in store.disk.calls if key.endswith(".crc")]
