from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.storage.actions import (
    Action,
    AddFile,
    CheckpointMetadata,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Sidecar,
    Txn,
    encode_all,
)
from sluice.storage.actions.file_removals import Removals
from sluice.storage.actions.filetable import FILES_SCHEMA, LayeredTable, add_rows
from sluice.storage.constants import LAST_CHECKPOINT, SIDECAR_FOLDER
from sluice.storage.errors import CorruptLogFile, InvalidRequest, MissingObject, StorageUnavailable, VersionNotFound
from sluice.storage.log.checkpoint_part import struct_to_json
from sluice.storage.log.checkpoint_writer import CHECKPOINT_SCHEMA, write_checkpoint
from sluice.storage.log.paths import checkpoint_path, commit_path, version_prefix
from sluice.storage.log.replay import ReplayState
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.times import interval_ms
from tests.storage.logs import (
    METADATA,
    PROTOCOL,
    START,
    add,
    checkpoint_part_path,
    counted,
    parquet,
    paths,
    put_commit,
    remove,
    removed_files,
    store_of,
)

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
V2 = f"{version_prefix(2)}.checkpoint.{UUID}"
PROTOCOL_ROW = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA_ROW = {
    "metaData": {
        "id": METADATA.id,
        "format": {"provider": "parquet", "options": []},
        "schemaString": METADATA.schema_string,
        "partitionColumns": [],
        "configuration": [],
    }
}


def add_row(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": [], "size": 1, "modificationTime": 1, "dataChange": True, **more}}


def remove_row(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 2**45}}


def only_checkpoint(*files: tuple[str, bytes]) -> MemoryStore:
    """A log of versions 0 to 2 whose first commits are gone, so that version 2 stands on these checkpoint files alone."""
    store = counted(3)
    for version in (0, 1):
        store.delete(commit_path(version))
    for key, data in files:
        store.put(key, data)
    return store


def of_rows(rows: list[dict[str, Any]], schema: pa.Schema) -> Snapshot:
    """The snapshot of version 2 from a classic checkpoint of these rows, beside protocol and metadata."""
    return Snapshot.load(only_checkpoint((checkpoint_path(2), parquet([PROTOCOL_ROW, METADATA_ROW, *rows], schema))))


def with_add(*fields: pa.Field, lacking: str = "") -> pa.Schema:
    """The schema of a checkpoint whose adds have more fields, and perhaps one less."""
    own = [each for each in CHECKPOINT_SCHEMA.field("add").type if each.name != lacking]
    return pa.schema([pa.field("add", pa.struct([*own, *fields])), *CHECKPOINT_SCHEMA.remove(1)])


# ---------------------------------------------------------------------------------------------------- reading


def test_a_multi_part_checkpoint_is_the_sum_of_its_parts() -> None:
    rows = [
        [PROTOCOL_ROW, add_row("a"), {"txn": {"appId": "x", "version": 4}}],
        [METADATA_ROW, remove_row("r")],
        [add_row("b"), add_row("c", stats="{}", baseRowId=5)],
    ]
    parts = [(checkpoint_part_path(2, number, 3), parquet(part, CHECKPOINT_SCHEMA)) for number, part in enumerate(rows, start=1)]
    snapshot = Snapshot.load(only_checkpoint(*parts))
    assert list(snapshot.add_files()) == [add("a"), add("b"), add("c", stats="{}", base_row_id=5)]
    assert list(removed_files(snapshot)) == [remove("r")]
    assert (snapshot.protocol, snapshot.metadata, snapshot.app_transactions) == (PROTOCOL, METADATA, {"x": Txn("x", 4)})


V2_PROTOCOL = Protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint",))
V2_SMALL: list[Action] = [V2_PROTOCOL, METADATA, CheckpointMetadata(2), DomainMetadata("d", "{}", False)]


def v2_store(suffix: str, sidecars: dict[str, list[dict[str, Any]]], inline: list[AddFile]) -> MemoryStore:
    contents = [(SIDECAR_FOLDER + name, parquet(rows, CHECKPOINT_SCHEMA)) for name, rows in sidecars.items()]
    named = [Sidecar(name, len(data), 1) for name, (_, data) in zip(sidecars, contents, strict=True)]
    actions = [*V2_SMALL, *named, *inline]
    if suffix == "json":
        main = encode_all(actions)
    else:
        extra = [
            pa.field("checkpointMetadata", pa.struct([("version", pa.int64()), ("tags", pa.map_(pa.string(), pa.string()))])),
            pa.field("sidecar", pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])),
        ]
        rows: list[dict[str, Any]] = [json.loads(line) for line in encode_all(actions).splitlines()]
        for row in rows:
            for body in row.values():
                for name in ("partitionValues", "configuration"):
                    if isinstance(body.get(name), dict):
                        body[name] = list(body[name].items())
                if "format" in body:
                    body["format"]["options"] = []
        main = parquet(rows, pa.schema([*CHECKPOINT_SCHEMA, *extra]))
    return only_checkpoint((f"{V2}.{suffix}", main), *contents)


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_v2_checkpoint_reads_its_sidecars(suffix: str) -> None:
    store = v2_store(suffix, {"s1.parquet": [add_row("a"), remove_row("r")], "s2.parquet": [add_row("b")]}, [])
    snapshot = Snapshot.load(store)
    assert list(snapshot.add_files()) == [add("a"), add("b")]
    assert list(removed_files(snapshot)) == [remove("r")]
    assert (snapshot.protocol, set(snapshot.domains)) == (V2_PROTOCOL, {"d"})
    put_commit(store, 3, remove("a"), add("c"))
    assert paths(Snapshot.load(store)) == ["b", "c"]


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_v2_checkpoint_may_hold_its_files_itself(suffix: str) -> None:
    inline = [add("a", partition_values={"p": "1", "q": None}), add("b")]
    assert list(Snapshot.load(v2_store(suffix, {}, inline)).add_files()) == inline


def test_a_missing_sidecar_is_named() -> None:
    store = v2_store("json", {"s1.parquet": [add_row("a")]}, [])
    store.delete(SIDECAR_FOLDER + "s1.parquet")
    with pytest.raises(MissingObject, match=r"_sidecars/s1\.parquet is not there"):
        _ = Snapshot.load(store).files


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def overwritten(data: bytes) -> bytes:
    return data[:4] + b"\xff" * (len(data) - 8) + data[-4:]


def garbled_pages(data: bytes) -> bytes:
    """The footer is whole, the pages are not."""
    length = int.from_bytes(data[-8:-4], "little")
    return data[:4] + b"\xff" * (len(data) - length - 12) + data[-length - 8 :]


@pytest.mark.parametrize("damage", [truncated, overwritten, garbled_pages, lambda _: b"", lambda _: b"PAR1", lambda data: data[:-1]])
@pytest.mark.parametrize("kind", ["classic", "part", "sidecar", "v2"])
def test_a_damaged_checkpoint_is_named_and_never_skipped(kind: str, damage: Any) -> None:
    store = counted(3)
    rows: list[dict[str, Any]] = [PROTOCOL_ROW, METADATA_ROW, *(add_row(f"f{number}" * 50) for number in range(50))]
    data = parquet(rows, CHECKPOINT_SCHEMA)
    if kind == "classic":
        bad = checkpoint_path(2)
    elif kind == "part":
        bad = checkpoint_part_path(2, 2, 2)
        store.put(checkpoint_part_path(2, 1, 2), data)
    elif kind == "v2":
        bad = f"{V2}.parquet"
    else:
        bad = SIDECAR_FOLDER + "s.parquet"
        store.put(f"{V2}.json", encode_all([*V2_SMALL, Sidecar("s.parquet", 1, 1)]))
    store.put(bad, damage(data))
    with pytest.raises(CorruptLogFile, match=bad) as caught:
        _ = Snapshot.load(store).files
    assert caught.value.file == bad


def test_a_single_wrong_byte_in_our_own_checkpoint_is_found() -> None:
    store = counted(3)
    write_checkpoint(store, Snapshot.load(store))
    data = store.get(checkpoint_path(2))
    # A path that reads well, but is not the one that was written.
    position = data.index(b"f1", data.index(b"PAR1"))
    store.put(checkpoint_path(2), data[:position] + b"f7" + data[position + 2 :])
    with pytest.raises(CorruptLogFile, match=checkpoint_path(2)):
        _ = Snapshot.load(store).files


def test_a_damaged_json_checkpoint_is_named() -> None:
    store = counted(3)
    store.put(f"{V2}.json", encode_all(V2_SMALL)[:-4])
    with pytest.raises(CorruptLogFile, match=UUID):
        Snapshot.load(store)


def test_an_action_without_its_fields_is_corrupt() -> None:
    store = only_checkpoint((checkpoint_path(2), parquet([PROTOCOL_ROW, {"metaData": {"name": "x"}}], CHECKPOINT_SCHEMA)))
    with pytest.raises(CorruptLogFile, match="metaData: lacks id"):
        Snapshot.load(store)


def test_a_checkpoint_with_columns_of_another_type_is_no_damaged_one() -> None:
    state = [CHECKPOINT_SCHEMA.field(name) for name in ("protocol", "metaData")]
    schema = pa.schema([*state, ("add", pa.struct([("path", pa.struct([("x", pa.int64())]))]))])
    with pytest.raises(CorruptLogFile, match=r"breaks the Delta protocol: path is struct<x: int64> and not string .* ask the engine"):
        _ = of_rows([{"add": {"path": {"x": 1}}}], schema).files


def test_trouble_with_the_store_is_no_corruption() -> None:
    store = counted(3)
    write_checkpoint(store, Snapshot.load(store))
    store.disk.fail_before("get", checkpoint_path(2))
    with pytest.raises(StorageUnavailable):
        Snapshot.load(store)


def test_columns_nobody_knows_are_passed_over() -> None:
    schema = with_add(pa.field("new", pa.struct([("x", pa.int64())]))).append(pa.field("future", pa.struct([("y", pa.string())])))
    rows = [add_row("a", new={"x": 1}, partitionValues_parsed=None), {"future": {"y": "z"}}]
    assert list(of_rows(rows, schema).add_files()) == [add("a")]


def test_columns_that_are_left_out_are_null() -> None:
    needed = ("path", "partitionValues", "size", "modificationTime", "dataChange")
    kind = pa.struct([each for each in CHECKPOINT_SCHEMA.field("add").type if each.name in needed])
    schema = pa.schema([pa.field("add", kind), CHECKPOINT_SCHEMA.field("protocol"), CHECKPOINT_SCHEMA.field("metaData")])
    snapshot = of_rows([add_row("a")], schema)
    assert (list(snapshot.add_files()), snapshot.tombstones.num_rows) == ([add("a")], 0)


# ------------------------------------------------------------------------------------- statistics kept as columns

UTC = dt.timezone.utc
LEAVES = pa.struct(
    [
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("m", pa.decimal128(10, 2)),
        ("inner", pa.struct([("x", pa.int64()), ("y", pa.binary())])),
    ]
)
STATS = pa.struct(
    [("numRecords", pa.int64()), ("minValues", LEAVES), ("nullCount", pa.struct([("i", pa.int64())])), ("tightBounds", pa.bool_())]
)
SAME = {"i": -3, "f": 0.5, "s": 'a "quoted" \\ é\n\u0001'}
VALUES = {
    **SAME,
    "d": dt.date(2024, 2, 29),
    "t": dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "n": dt.datetime.fromisoformat("1969-12-31T23:59:59.999000"),
    "m": Decimal("12.30"),
    "inner": {"x": 2**62, "y": b"ab"},
}
JSON = {
    "numRecords": 3,
    "minValues": {
        **SAME,
        "d": "2024-02-29",
        "t": "2024-01-02T03:04:05.678Z",
        "n": "1969-12-31T23:59:59.999",
        "m": 12.3,
        "inner": {"x": 2**62},
    },
    "nullCount": {"i": 0},
    "tightBounds": True,
}


def test_statistics_kept_as_columns_become_the_json_of_the_log() -> None:
    schema = with_add(pa.field("stats_parsed", STATS), pa.field("partitionValues_parsed", pa.struct([("p", pa.int32())])), lacking="stats")
    whole = {"numRecords": 3, "minValues": VALUES, "nullCount": {"i": 0}, "tightBounds": True}
    first = add_row("a", stats_parsed=whole, partitionValues=[("p", "1")], partitionValues_parsed={"p": 7})
    snapshot = of_rows([first, add_row("none"), add_row("few", stats_parsed={"numRecords": 1})], schema)
    files = {each.path: each for each in snapshot.add_files()}
    assert json.loads(files["a"].stats or "") == JSON
    assert files["a"].partition_values == {"p": "1"}, "the parsed form is a convenience; the text is what counts"
    assert (files["none"].stats, files["few"].stats) == (None, '{"numRecords":1}')


def test_the_json_of_the_log_is_preferred_to_columns() -> None:
    both = add_row("both", stats='{"numRecords":1,"x":2}', stats_parsed={"numRecords": 1})
    schema = with_add(pa.field("stats_parsed", pa.struct([("numRecords", pa.int64())])))
    snapshot = of_rows([both, add_row("one", stats_parsed={"numRecords": 2})], schema)
    assert {each.path: each.stats for each in snapshot.add_files()} == {"both": '{"numRecords":1,"x":2}', "one": '{"numRecords":2}'}


def test_statistics_kept_as_something_else_than_columns_end_no_reading() -> None:
    schema = with_add(pa.field("stats_parsed", pa.string()), lacking="stats")
    snapshot = of_rows([add_row("odd", stats_parsed="many")], schema)
    assert {each.path: each.stats for each in snapshot.add_files()} == {"odd": '"many"'}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), None])
def test_numbers_without_a_json_form_are_left_out(value: float | None) -> None:
    array = pa.array([{"a": value, "b": 1e300}, None], pa.struct([("a", pa.float64()), ("b", pa.float64())]))
    first, second = struct_to_json(array).to_pylist()
    assert (json.loads(first), second) == ({"b": 1e300}, None)


# ---------------------------------------------------------------------------------------------------- writing


def test_a_checkpoint_has_the_rows_and_columns_of_the_protocol() -> None:
    vector = DeletionVector("u", "ab", 3, 4, 1)
    history: list[list[Action]] = [
        [*START, add("a", partition_values={"p": None}, tags={"t": "1"}, deletion_vector=vector, stats="{}"), add("b"), Txn("x", 1, 2)],
        [remove("b", stats="{}", tags={"t": "1"}, size=3), DomainMetadata("d", "c", False), DomainMetadata("gone", "c", False)],
        [DomainMetadata("gone", "", True), remove("old", deletion_timestamp=5)],
    ]
    store = store_of(history)
    write_checkpoint(store, Snapshot.load(store))
    table = pq.read_table(io.BytesIO(store.get(checkpoint_path(2))))
    assert table.schema.names == ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"]
    rows = [{name: body for name, body in row.items() if body is not None} for row in table.to_pylist()]
    assert all(len(row) == 1 for row in rows), "each row holds exactly one action"
    assert sorted(name for row in rows for name in row) == ["add", "domainMetadata", "metaData", "protocol", "remove", "txn"]
    found = {name: {key: value for key, value in body.items() if value is not None} for row in rows for name, body in row.items()}
    assert found["remove"] == {"path": "b", "dataChange": True, "deletionTimestamp": 2**45, "size": 3}
    assert found["domainMetadata"] == {"domain": "d", "configuration": "c", "removed": False}
    assert found["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}
    wire = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 3, "cardinality": 4}
    assert found["add"]["deletionVector"] == wire
    assert found["add"]["partitionValues"] == [("p", None)]
    hint = json.loads(store.get(LAST_CHECKPOINT))
    assert hint == {"version": 2, "size": 6, "sizeInBytes": len(store.get(checkpoint_path(2))), "numOfAddFiles": 1}


@pytest.mark.parametrize(
    ("protocol", "readers", "writers"),
    [
        (Protocol(1, 2), None, None),
        (Protocol(1, 7, None, ("sluice",)), None, ["sluice"]),
        (Protocol(3, 7, (), ("appendOnly",)), [], ["appendOnly"]),
        (Protocol(3, 7, ("timestampNtz",), ("timestampNtz",)), ["timestampNtz"], ["timestampNtz"]),
        (Protocol(1, 2, None, ()), None, None),
    ],
)
def test_features_are_listed_exactly_when_the_versions_ask_for_them(
    protocol: Protocol, readers: list[str] | None, writers: list[str] | None
) -> None:
    store = store_of([[protocol, METADATA]])
    write_checkpoint(store, Snapshot.load(store))
    table = pq.read_table(io.BytesIO(store.get(checkpoint_path(0))))
    (row,) = (each for each in table.column("protocol").to_pylist() if each is not None)
    assert (row["readerFeatures"], row["writerFeatures"]) == (readers, writers)
    store.delete(commit_path(0))
    loaded = Snapshot.load(store).protocol
    wanted = tuple(None if each is None else tuple(each) for each in (readers, writers))
    assert (loaded.reader_features, loaded.writer_features) == wanted


def test_tombstones_are_kept_as_long_as_the_table_says() -> None:
    day = 24 * 3600 * 1000
    history: list[list[Action]] = [[*START], [remove(f"r{age}", deletion_timestamp=100 * day - age * day) for age in range(10)]]
    history.append([remove("never", deletion_timestamp=None)])
    store = store_of(history)

    def kept() -> list[str]:
        write_checkpoint(store, Snapshot.load(store), now_ms=100 * day)
        return sorted(each.path for each in removed_files(Snapshot.load(store)))

    assert kept() == [f"r{age}" for age in range(7)]
    put_commit(store, 3, Metadata(METADATA.id, METADATA.schema_string, (), {"delta.deletedFileRetentionDuration": "interval 2 days"}))
    assert kept() == ["r0", "r1"]
    put_commit(store, 4, Metadata(METADATA.id, METADATA.schema_string, (), {"delta.deletedFileRetentionDuration": "soon"}))
    with pytest.raises(InvalidRequest, match=r"delta\.deletedFileRetentionDuration is 'soon'"):
        kept()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 1 week", 604_800_000),
        ("INTERVAL 30 Days", 2_592_000_000),
        ("7 days", 604_800_000),
        ("interval 1 day 12 hours 3 minutes 4 seconds 5 milliseconds", 129_784_005),
        (" 0 hours ", 0),
        ("1500 microseconds", 1),
        ("2000000 nanoseconds", 2),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert interval_ms(text, name="x") == milliseconds


@pytest.mark.parametrize(
    "text", ["", "interval", "7", "days", "1 month", "interval 1 year", "-1 days", "1.5 days", "1 day 2", "1 day, 2 hours"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="x is"):
        interval_ms(text, name="x")


def test_a_big_table_is_written_in_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.storage.log.checkpoint_writer._ROW_GROUP_ROWS", 1000)
    rows = add_rows([add(f"f{number}", partition_values={"p": str(number % 7)}, stats="{}") for number in range(3500)])
    store = store_of([list(START)])
    chunked = pa.concat_tables([rows.slice(start, 700) for start in range(0, 3500, 700)])
    state = ReplayState(protocol=PROTOCOL, metadata=METADATA, files=LayeredTable(chunked, add_rows))
    write_checkpoint(store, Snapshot(store.location, 0, 0, state))
    file = pq.ParquetFile(io.BytesIO(store.get(checkpoint_path(0))))
    assert max(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)) == 1000
    read = Snapshot.load(store).files
    assert read.schema == FILES_SCHEMA
    assert read.to_pylist() == rows.to_pylist()


def test_racing_checkpoints_do_no_harm() -> None:
    store = counted(5)
    older, newer = Snapshot.load(store, version=2), Snapshot.load(store)
    write_checkpoint(store, newer)
    before = store.get(checkpoint_path(4))
    write_checkpoint(store, newer)
    assert store.get(checkpoint_path(4)) == before
    write_checkpoint(store, older)
    assert json.loads(store.get(LAST_CHECKPOINT))["version"] == 4, "the hint never goes back"
    assert paths(Snapshot.load(store, version=3)) == ["f0", "f1", "f2", "f3"]


@pytest.mark.parametrize("verb", ["upload", "put"])
def test_a_checkpoint_that_fails_half_way_leaves_the_table_as_it_was(verb: Any) -> None:
    store = counted(3)
    store.disk.fail_before(verb)
    with pytest.raises(StorageUnavailable):
        write_checkpoint(store, Snapshot.load(store))
    assert paths(Snapshot.load(store)) == ["f0", "f1", "f2"]


def test_only_published_versions_get_a_checkpoint() -> None:
    store = counted(3)
    ahead = Snapshot.load(store).advance([(3, [add("x")])])
    with pytest.raises(VersionNotFound, match=r"version 3 .* cannot have a checkpoint"):
        write_checkpoint(store, ahead)
    assert not any("checkpoint" in key for key in store.disk.objects)


def test_partition_values_may_be_null_where_there_are_no_partitions() -> None:
    store = store_of([[*START, add("f0"), add("f1")]])
    write_checkpoint(store, Snapshot.load(store))
    whole = pq.read_table(io.BytesIO(store.get(checkpoint_path(0))))
    rows = whole.to_pylist(maps_as_pydicts="strict")
    rows = [{**row, "add": row["add"] and {**row["add"], "partitionValues": None}} for row in rows]
    store.put(checkpoint_path(0), parquet(rows, whole.schema))
    snapshot = Snapshot.load(store)
    assert [each.partition_values for each in snapshot.add_files()] == [{}, {}]
    assert [each.partition_values for each in Removals(snapshot.files, 5)] == [{}, {}]
