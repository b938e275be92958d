"""Actions lose nothing in JSON; texts that are read in pieces say the same as their bytes."""

from __future__ import annotations

import hashlib
import io
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    Txn,
    UnknownAction,
    decode,
    decode_commit,
    encode,
    encode_all,
    texts,
)
from sluice.storage.actions.features import ROW_TRACKING_DOMAIN, first_domain, materialized_columns, row_id_high_water_mark, tracks_rows
from sluice.storage.actions.records import record_count, wide
from sluice.storage.actions.texts import LongText, concatenated, lines, pieces, put_text, sha256, stored_text, stream_of
from sluice.storage.errors import BadChecksum, CorruptLogFile, InvalidRequest
from tests.storage.logs import EXTRA, JSON, LONGS, TEXTS, VALUES, VECTORS, add, new_store, statistics_of
from tests.storage.strategies import schemas, tables, unhurried

MAYBE_LONG = st.none() | LONGS
MAYBE_TEXT = st.none() | TEXTS
TAGS = st.none() | VALUES
FEATURES = st.none() | st.lists(TEXTS, max_size=3).map(tuple)
STRINGS = st.dictionaries(TEXTS, TEXTS, max_size=3)
FLAGS = st.booleans()
VECTOR = st.none() | VECTORS

ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(AddFile, TEXTS, VALUES, LONGS, LONGS, FLAGS, MAYBE_TEXT, TAGS, VECTOR, MAYBE_LONG, MAYBE_LONG, MAYBE_TEXT, EXTRA),
    st.builds(
        RemoveFile, TEXTS, FLAGS, MAYBE_LONG, st.none() | FLAGS, TAGS, MAYBE_LONG, MAYBE_TEXT, TAGS, VECTOR, MAYBE_LONG, MAYBE_LONG, EXTRA
    ),
    st.builds(AddCDCFile, TEXTS, VALUES, LONGS, FLAGS, TAGS, EXTRA),
    st.builds(
        Metadata, TEXTS, TEXTS, st.lists(TEXTS, max_size=3).map(tuple), STRINGS, MAYBE_TEXT, MAYBE_TEXT, TEXTS, STRINGS, MAYBE_LONG, EXTRA
    ),
    st.builds(Protocol, LONGS, LONGS, FEATURES, FEATURES, EXTRA),
    st.builds(Txn, TEXTS, LONGS, MAYBE_LONG, EXTRA),
    st.builds(DomainMetadata, TEXTS, TEXTS, FLAGS, EXTRA),
    st.builds(CheckpointMetadata, LONGS, TAGS, EXTRA),
    st.builds(Sidecar, TEXTS, LONGS, LONGS, TAGS, EXTRA),
    st.builds(CommitInfo, st.dictionaries(TEXTS, JSON, max_size=4)),
    st.builds(UnknownAction, TEXTS.map(lambda name: "x-" + name), JSON),
)

# One whole object of each kind, as other writers write them.
BODIES: dict[str, dict[str, Any]] = {
    "add": {
        "path": "a%20b.parquet",
        "partitionValues": {"p": None, "q": ""},
        "size": 1,
        "modificationTime": 2,
        "dataChange": True,
        "stats": "{}",
        "tags": {"t": "u"},
        "deletionVector": {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 3, "cardinality": 4},
        "baseRowId": 5,
        "defaultRowCommitVersion": 6,
        "clusteringProvider": "liquid",
    },
    "remove": {"path": "a", "deletionTimestamp": 1, "dataChange": False, "extendedFileMetadata": True, "partitionValues": {}, "size": 3},
    "cdc": {"path": "a", "partitionValues": {}, "size": 1, "dataChange": False},
    "metaData": {
        "id": "i",
        "format": {"provider": "parquet", "options": {"a": "b"}},
        "schemaString": "{}",
        "partitionColumns": ["p"],
        "configuration": {"k": "v"},
        "createdTime": 7,
    },
    "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["a"]},
    "txn": {"appId": "a", "version": 1, "lastUpdated": 2},
    "domainMetadata": {"domain": "d", "configuration": "{}", "removed": False},
    "checkpointMetadata": {"version": 1},
    "sidecar": {"path": "s", "sizeInBytes": 1, "modificationTime": 2},
}


@given(ACTIONS)
def test_what_is_encoded_decodes_to_the_same(action: Action) -> None:
    line = encode(action)
    assert b"\n" not in line
    assert decode(line) == action


@given(st.sampled_from(sorted(BODIES)), EXTRA)
def test_fields_nobody_knows_survive(name: str, extra: dict[str, Any]) -> None:
    whole = {name: {**BODIES[name], **extra}}
    assert json.loads(encode(decode(json.dumps(whole).encode()))) == whole


@pytest.mark.parametrize(("name", "inner"), [("add", "deletionVector"), ("metaData", "format")])
def test_unknown_fields_of_nested_objects_survive(name: str, inner: str) -> None:
    body = BODIES[name]
    whole = {name: {**body, inner: {**body[inner], "new": [1]}}}
    assert json.loads(encode(decode(json.dumps(whole).encode()))) == whole


def test_an_explicit_null_means_absent() -> None:
    action = decode(b'{"txn":{"appId":"a","version":1,"lastUpdated":null},"add":null}')
    assert action == Txn("a", 1)
    assert encode(action) == b'{"txn":{"appId":"a","version":1}}'


@pytest.mark.parametrize("number", [2**63, 2**64 + 1, -(2**63) - 1, 10**40])
def test_numbers_beyond_64_bits_stay_exact(number: int) -> None:
    line = encode(CommitInfo({"n": number}))
    assert str(number).encode() in line
    assert decode(line) == CommitInfo({"n": number})


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    "wrap", [lambda n: CommitInfo({"a": [n]}), lambda n: add("f", extra={"x": {"y": n}}), lambda n: UnknownAction("u", n)]
)
def test_numbers_that_json_lacks_are_refused(number: float, wrap: Any) -> None:
    with pytest.raises(InvalidRequest, match=str(number)):
        encode(wrap(number))


@pytest.mark.parametrize("value", [{1: 2}, b"x", "\ud800", {1, 2}, 2**70 * 1j])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        encode(CommitInfo({"a": value}))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "empty"),
        (b'{"add":{"path":"a"', "end of data|unexpected"),
        (b"[1]", "must be an object"),
        (b"{}", "exactly one action"),
        (b'{"add":null}', "exactly one action"),
        (b'{"txn":{"appId":"a","version":1},"cdc":{}}', "exactly one action"),
        (b'{"txn":{"appId":"a"}}', "txn: lacks version"),
        (b'{"txn":{"appId":"a","version":9223372036854775808}}', "version must be a 64-bit integer"),
        (b'{"txn":{"appId":"a","version":1.5}}', "version must be a 64-bit integer"),
        (b'{"txn":{"appId":"a","version":true}}', "version must be a 64-bit integer"),
        (b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2,"writerFeatures":"all"}}', "list of text"),
        (b'{"commitInfo":[]}', "must be an object"),
        (b'{"commitInfo":{"a":NaN}}', "unexpected|NaN"),
        (b'{"commitInfo":{"a":[1234567890123456789,NaN]}}', "unexpected|NaN"),
        (b'{"x":"\xff"}', "UTF-8|utf-8"),
    ],
)
def test_a_damaged_line_is_refused_with_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(CorruptLogFile, match=reason):
        decode(line)


@pytest.mark.parametrize("order", [1, -1])
def test_unknown_keys_beside_a_known_action_are_kept_and_mean_nothing(order: int) -> None:
    """ "Readers must ignore unknown actions": such a line is one known action, and others that nobody here knows."""
    keys = {"txn": {"appId": "a", "version": 1}, "new": {"a": [1]}, "newer": 2, "absent": None}
    line = json.dumps(dict(list(keys.items())[::order])).encode()
    assert decode(line) == Txn("a", 1)
    actions = decode_commit(line, name="c")
    assert actions[0] == Txn("a", 1)
    assert sorted(actions[1:], key=repr) == [UnknownAction("new", {"a": [1]}), UnknownAction("newer", 2)]
    assert decode_commit(encode_all(actions), name="c") == actions
    assert decode_commit(b'{"new":{},"newer":{}}', name="c") == (UnknownAction("new", {}), UnknownAction("newer", {}))


def test_metadata_without_a_schema_is_that_of_a_table_that_has_none_yet() -> None:
    body = {name: value for name, value in BODIES["metaData"].items() if name != "schemaString"}
    for more in ({}, {"schemaString": None}):
        action = decode(json.dumps({"metaData": {**body, **more}}).encode())
        assert isinstance(action, Metadata)
        assert action.schema_string == ""
        assert json.loads(encode(action)) == {"metaData": body}


def test_a_line_that_breaks_the_protocol_does_not_make_the_file_a_damaged_one() -> None:
    """A copy of the file would say the same; only its writer knows."""
    with pytest.raises(CorruptLogFile, match=r"line 2 of 7\.json breaks the Delta protocol: txn: lacks version") as caught:
        decode_commit(b'{"commitInfo":{}}\n{"txn":{"appId":"a"}}\n', name="7.json")
    assert "the engine that wrote it" in caught.value.message
    for word in ("damaged", "truncated", "copy"):
        assert word not in caught.value.message


def test_a_file_that_ends_inside_a_line_is_truncated_and_another_is_damaged() -> None:
    with pytest.raises(CorruptLogFile, match=r"line 2 of c .*the file is truncated: restore it from a copy"):
        decode_commit(b'{"commitInfo":{}}\n{"txn":', name="c")
    with pytest.raises(CorruptLogFile, match=r"line 1 of c .*the file is damaged: restore it from a copy"):
        decode_commit(b'{"txn":\n{"commitInfo":{}}\n', name="c")


def test_a_commit_is_one_line_for_each_action() -> None:
    actions: tuple[Action, ...] = (CommitInfo({}), add("f"), UnknownAction("new", {"a": 1}), UnknownAction("bare", None))
    data = encode_all(actions)
    assert data.count(b"\n") == 4
    assert decode_commit(data, name="c") == actions
    assert decode_commit(data.rstrip(b"\n"), name="c") == actions
    assert decode_commit(data.replace(b"\n", b"\r\n\n"), name="c") == actions


@pytest.mark.parametrize("kept", range(1, 40))
def test_a_truncated_commit_names_file_and_line(kept: int) -> None:
    whole = encode_all([Txn("a", 1)])
    cut = encode_all([Txn("b", 22222222)])[:-2]
    with pytest.raises(CorruptLogFile, match=r"line 2 of _delta_log/7\.json") as caught:
        decode_commit(whole + cut[: min(kept, len(cut))], name="_delta_log/7.json")
    assert (caught.value.file, caught.value.line) == ("_delta_log/7.json", 2)


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\n"])
def test_an_empty_commit_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptLogFile, match="c is empty"):
        decode_commit(data, name="c")


def test_commit_info_answers_only_with_what_has_the_right_type() -> None:
    whole = CommitInfo({"operation": "WRITE", "inCommitTimestamp": 5, "timestamp": 6})
    assert (whole.operation, whole.in_commit_timestamp, whole.timestamp) == ("WRITE", 5, 6)
    odd = CommitInfo({"operation": 1, "inCommitTimestamp": True, "timestamp": 1.5})
    assert (odd.operation, odd.in_commit_timestamp, odd.timestamp) == (None,) * 3


def test_the_key_of_a_file_has_its_deletion_vector() -> None:
    assert add("f").key == ("f", "")
    assert add("f", deletion_vector=DeletionVector("u", "ab", 1, 2, 3)).key == ("f", "uab@3")
    assert RemoveFile("f", True, deletion_vector=DeletionVector("i", "ab", 1, 2)).key == ("f", "iab")


TRACKING = Protocol(1, 7, None, ("domainMetadata", "rowTracking"))
PLAIN = Protocol(1, 7, None, ("domainMetadata",))
TABLE = Metadata("id", '{"type":"struct","fields":[]}', (), {})
SUSPENDED = Metadata("id", '{"type":"struct","fields":[]}', (), {"delta.rowTrackingSuspended": "true"})


def domain(configuration: str) -> dict[str, DomainMetadata]:
    return {ROW_TRACKING_DOMAIN: DomainMetadata(ROW_TRACKING_DOMAIN, configuration, False)}


def test_a_table_that_names_the_feature_tracks_rows_enabled_or_not() -> None:
    assert tracks_rows(TABLE, TRACKING)
    assert not tracks_rows(TABLE, PLAIN)
    assert not tracks_rows(SUSPENDED, TRACKING)
    assert not tracks_rows(TABLE, Protocol(1, 6)), "no version number implies it"


def test_the_high_water_mark() -> None:
    assert row_id_high_water_mark(domain('{"rowIdHighWaterMark":41}'), TABLE, TRACKING) == 41
    assert row_id_high_water_mark({}, TABLE, TRACKING) == -1
    assert row_id_high_water_mark({ROW_TRACKING_DOMAIN: first_domain()}, TABLE, TRACKING) == -1
    assert row_id_high_water_mark(domain('{"rowIdHighWaterMark":41}'), TABLE, PLAIN) is None
    assert row_id_high_water_mark(domain("broken"), SUSPENDED, TRACKING) is None


@pytest.mark.parametrize(
    "configuration", ["", "broken", "[]", "{}", '{"rowIdHighWaterMark":"1"}', '{"rowIdHighWaterMark":true}', '{"rowIdHighWaterMark":-2}']
)
def test_a_high_water_mark_that_is_none_is_corrupt(configuration: str) -> None:
    with pytest.raises(CorruptLogFile, match="rowIdHighWaterMark"):
        row_id_high_water_mark(domain(configuration), TABLE, TRACKING)


def test_names_of_columns_are_of_one_table_only() -> None:
    first, second = materialized_columns(), materialized_columns()
    assert set(first) == set(second)
    assert len({*first.values(), *second.values()}) == 4


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PIECE_BYTES", 7)


def long_text(content: bytes, before: bytes = b"") -> LongText:
    store = new_store()
    store.put("text", content)
    text = concatenated([before, stored_text(store, "text")])
    assert isinstance(text, LongText)
    return text


@given(st.lists(st.binary(max_size=20)), st.integers(1, 9))
def test_lines_are_those_of_the_bytes(parts: list[bytes], size: int) -> None:
    class Pieces:
        def __len__(self) -> int:
            return len(content)

        def pieces(self):  # type: ignore[no-untyped-def]
            return (content[at : at + size] for at in range(0, len(content), size))

    content = b"\n".join(parts)
    assert list(lines(LongText((b"a\nb", Pieces())))) == (b"a\nb" + content).split(b"\n")
    assert list(lines(content)) == content.split(b"\n")


def test_a_small_text_is_its_bytes() -> None:
    store = new_store()
    store.put("text", b"a few")
    assert concatenated([b"of ", stored_text(store, "text")]) == b"of a few"


def test_a_long_text_is_read_in_pieces(short_pieces: None) -> None:
    text = long_text(b"0123456789" * 3, b"begin ")
    assert b"".join(pieces(text)) == b"begin " + b"0123456789" * 3
    assert max(map(len, pieces(text))) == 7
    assert len(text) == 36
    assert sha256(text) == hashlib.sha256(b"begin " + b"0123456789" * 3).hexdigest()
    copy = new_store()
    put_text(copy, "copy", text)
    assert copy.get("copy") == b"begin " + b"0123456789" * 3


def test_a_stream_of_a_text_can_be_read_again_and_from_anywhere(short_pieces: None) -> None:
    content = bytes(range(100))
    stream = stream_of(long_text(content), hashlib.sha256(content).hexdigest())
    assert stream.seek(0, io.SEEK_END) == 100
    stream.seek(0)
    assert stream.read() == content
    stream.seek(90)
    assert stream.read(5) == content[90:95]
    stream.seek(3)
    assert stream.read() == content[3:]
    assert stream.read() == b""


def test_a_stream_of_a_text_that_changed_never_ends(short_pieces: None) -> None:
    stream = stream_of(long_text(bytes(100)), hashlib.sha256(bytes(99) + b"x").hexdigest())
    with pytest.raises(BadChecksum):
        stream.read()


def test_an_object_that_became_shorter_is_noticed(short_pieces: None) -> None:
    store = new_store()
    store.put("text", bytes(30))
    text = stored_text(store, "text")
    store.put("text", bytes(20))
    with pytest.raises(BadChecksum, match="shorter"):
        sha256(text)


# -- statistics of files with deletion vectors ----------------------------------------------------------------------------


def exactly(text: str) -> object:
    return json.loads(text, parse_float=Decimal)


@unhurried
@given(st.data())
def test_only_the_mark_is_new_and_comes_once(data: st.DataObject) -> None:
    schema, partitions = data.draw(schemas())
    stats = statistics_of(data.draw(tables(schema)), schema, partitions)
    marked = wide(stats)
    assert marked is not None
    assert wide(marked) == marked
    assert list(exactly(marked).items()) == [*exactly(stats).items(), ("tightBounds", False)]  # type: ignore[attr-defined]
    assert record_count(marked) == record_count(stats) == exactly(stats)["numRecords"]  # type: ignore[index]


def test_digits_that_a_float_lacks_stay() -> None:
    text = '{"numRecords":1,"minValues":{"d":12345678901234567890.120,"tightBounds":true,"i":9223372036854775807},"tightBounds":true}'
    assert wide(text) == text[: text.rindex("true")] + "false}"


@pytest.mark.parametrize("text", [None, "", "[]", "no JSON", '{"numRecords":', '{"a":NaN}', '{"a":"\\ud800"}'])
def test_what_is_no_statistics_stays_and_counts_nothing(text: str | None) -> None:
    assert wide(text) == text
    assert record_count(text) is None


@pytest.mark.parametrize("count", ["true", "-1", "1.0", '"1"', "null"])
def test_a_count_is_a_number_of_rows(count: str) -> None:
    assert record_count(f'{{"numRecords":{count}}}') is None
