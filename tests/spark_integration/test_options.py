"""Options are read from texts; what is not known or cannot be is refused by name."""

from __future__ import annotations

import datetime as dt
import re

import pytest

import sluice
from sluice.spark_integration.active_session import STORAGE_OPTIONS_VARIABLE
from sluice.spark_integration.option_tables import parse_timestamp
from sluice.spark_integration.options import ChangesOptions, ReadOptions, WriteOptions
from sluice.spark_integration.stream_options import StreamReadOptions, asked_of
from sluice.spark_integration.streams import require_batches
from sluice.tables.client.property_rules import spelled
from sluice.tables.read.streams.offsets import Limits, Start, StreamRules

PLACE = {"path": "/data/t"}


def test_all_that_a_write_may_be_told() -> None:
    told = {
        "path": "/data/t",
        "COORDINATOR": "zk://h1/x",
        "application": "job",
        "PartitionBy": " a , b",
        "clusterBy": '["a,b", "c"]',
        "properties": '{"delta.appendOnly": "false"}',
        "mergeschema": "TRUE",
        "Compression": "LZ4_raw",
        "replacewhere": "a = 1",
        "readversion": "7",
        "isolation": "Serializable",
        "txnappid": "app",
        "txnVersion": "42",
        "ack": "ratified",
        "commitTimeout": "1.5",
        "s3.endpoint_url": "http://localhost:1",
        "region": "eu-1",
    }
    options = WriteOptions.parse(told, overwrite=True)
    assert options.address.location == "file:///data/t"
    assert (options.address.coordinator, options.address.application) == ("zk://h1/x", "job")
    assert options.address.storage_options == {"endpoint_url": "http://localhost:1", "region": "eu-1"}
    assert (options.partition_by, options.cluster_by) == (("a", "b"), ("a,b", "c")), "names with commas are given as JSON"
    assert options.properties == {"delta.appendOnly": "false"}
    assert (options.mode, options.where, options.merge_schema, options.terms.read_version) == ("overwrite", "a = 1", True, 7)
    assert (options.terms.isolation, options.compression) == ("Serializable", "lz4")
    assert (options.terms.once, options.terms.ack, options.terms.timeout_s) == (("app", 42), "ratified", 1.5)


def test_properties_are_options_too() -> None:
    told = {"delta.appendonly": "true", "Delta.constraints.Late": "n < 9", "delta.nothing": "1", "properties": '{"owner": "ops"}'}
    found = WriteOptions.parse({**PLACE, **told}, overwrite=False).properties
    assert found == {"owner": "ops", **{key: value for key, value in told.items() if key != "properties"}}
    assert [spelled(key) for key in found] == ["owner", "delta.appendOnly", "delta.constraints.Late", "delta.nothing"]


def test_triggers_without_batches_are_refused() -> None:
    require_batches({"availableNow": True, "continuous": None})
    for name in ("continuous", "realTime"):
        with pytest.raises(sluice.errors.InvalidRequest, match=rf"trigger\({name}='1 second'\) .*use trigger\(processingTime"):
            require_batches({name: "1 second"})


def test_the_lease_of_a_driver() -> None:
    nodes = ("/names/load/leases/l-a-0000000001", "/tables/x%2Cy/leases/l-a-0000000002")
    assert WriteOptions.parse({**PLACE, "lease": ",".join(nodes)}, overwrite=False).leases == nodes
    with pytest.raises(sluice.errors.InvalidRequest, match="the option lease is"):
        WriteOptions.parse({**PLACE, "lease": "/tables/../head"}, overwrite=False)


@pytest.mark.parametrize(("told", "mode"), [("dynamic", "dynamic"), ("static", "overwrite")])
def test_the_mode_of_an_overwrite(told: str, mode: str) -> None:
    assert WriteOptions.parse({**PLACE, "partitionOverwriteMode": told}, overwrite=True).mode == mode
    assert WriteOptions.parse({**PLACE, "partitionOverwriteMode": told}, overwrite=False).mode == "append"


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ({"replaceWere": "a = 1"}, "replaceWere"),
        ({"versionAsOf": "1"}, "versionAsOf"),
        ({"paths": '["/a","/b"]'}, "several paths"),
        ({"mergeSchema": "yes"}, "mergeSchema"),
        ({"compression": "lzo"}, "the option compression is 'lzo'; it may be zstd"),
        ({"dataChange": "false"}, "no option dataChange, leave it out: DeltaTable.optimize"),
        ({"datachange": "false"}, "no option dataChange"),
        ({"delta.appendOnly": "true", "properties": '{"delta.appendOnly": "false"}'}, "give it once"),
        ({"txnAppId": "a"}, "txnVersion"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion"),
        ({"txnAppId": "a", "txnVersion": "1", "idempotencyKey": "k"}, "idempotencyKey"),
        ({"idempotencyKey": ""}, "key is ''"),
        ({"properties": "{"}, "properties"),
        ({"properties": '{"a": 1}'}, "properties"),
        ({"partitionBy": "[1]"}, "partitionBy"),
        ({"partitionBy": "[1"}, "partitionBy"),
        ({"commitTimeout": "0"}, "commitTimeout"),
        ({"commitTimeout": "soon"}, "commitTimeout"),
        ({"ack": "never"}, "published or ratified"),
        ({"maxFilesPerTrigger": "1"}, "maxFilesPerTrigger is not for writing"),
        ({"partitionOverwriteMode": "dynamic", "replaceWhere": "a = 1"}, "give one of them"),
        ({"path": "ftp://x/y"}, "ftp"),
        ({"path": ""}, "no path"),
    ],
)
def test_what_a_write_refuses(told: dict[str, str], names: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=names):
        WriteOptions.parse({**PLACE, **told}, overwrite=True)


@pytest.mark.parametrize("name", ["replaceWhere", "readWhere"])
def test_an_append_replaces_nothing(name: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=name):
        WriteOptions.parse({**PLACE, name: "1"}, overwrite=False)


def test_all_that_a_read_may_be_told() -> None:
    options = ReadOptions.parse({**PLACE, "versionasof": "3", "consistency": "published", "where": "a = 1 OR b = 2"})
    assert (options.version, options.timestamp_ms, options.consistency, options.where) == (3, None, "published", "a = 1 OR b = 2")
    for level in ("latest", "published", "serial", "session"):
        assert ReadOptions.parse({**PLACE, "consistency": level.upper()}).consistency == level


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ({"versionAsOf": "1", "timestampAsOf": "2020"}, "give one of them"),
        ({"versionAsOf": "latest"}, "versionAsOf"),
        ({"timestampAsOf": "yesterday"}, "timestampAsOf"),
        ({"consistency": "eventual"}, "latest or published or serial or session"),
        ({"readChangeFeed": "true"}, "startingVersion"),
        ({"readChangeFeed": "true", "endingVersion": "3"}, "startingVersion"),
        ({"readChangeFeed": "true", "startingVersion": "-1"}, "startingVersion"),
        ({"readChangeFeed": "true", "startingTimestamp": "soon"}, "startingTimestamp"),
        ({"readChangeFeed": "true", "startingVersion": "1", "endingTimestamp": "2020"}, "endingTimestamp"),
        ({"readChangeFeed": "true", "startingVersion": "1", "startingTimestamp": "2020"}, "startingVersion"),
        ({"readChangeFeed": "true", "startingVersion": "1", "versionAsOf": "2"}, "versionAsOf"),
        ({"startingVersion": "1"}, "readChangeFeed"),
        ({"mergeSchema": "true"}, "not for reading"),
        ({"header": "true"}, "header"),
        ({"versionAsoff": "1"}, "do you mean versionAsOf"),
        ({"maxfilespertrigger": "1"}, "maxFilesPerTrigger is for streams"),
    ],
)
def test_what_a_read_refuses(told: dict[str, str], names: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=names):
        ReadOptions.parse({**PLACE, **told})


@pytest.mark.parametrize(
    ("told", "after", "up_to", "by"),
    [
        ({"startingVersion": "0"}, -1, None, "version"),
        ({"startingVersion": "3", "endingVersion": "7"}, 2, 7, "version"),
        ({"startingTimestamp": "1970-01-01 00:00:01", "endingTimestamp": "12345"}, 999, 12345, "timestamp"),
    ],
)
def test_bounds_of_changes_belong_to_them(told: dict[str, str], after: int, up_to: int | None, by: str) -> None:
    options = ReadOptions.parse({**PLACE, "readChangeFeed": "TRUE", **told})
    assert options.changes == ChangesOptions(after, up_to, by)
    assert ReadOptions.parse({**PLACE, "readChangeFeed": "false"}).changes is None


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("1577836800000", "2020-01-01T00:00:00+00:00"),
        ("2020-01-01", "2020-01-01T00:00:00+00:00"),
        ("2020-01-01 12:30:00", "2020-01-01T12:30:00+00:00"),
        ("2020-01-01T12:30:00.250Z", "2020-01-01T12:30:00.250+00:00"),
        ("2020-01-01 12:30:00 +02:00", "2020-01-01T10:30:00+00:00"),
        ("2020", "2020-01-01T00:00:00+00:00"),
    ],
)
def test_times_are_utc_where_no_zone_is_written(text: str, utc: str) -> None:
    assert parse_timestamp("timestampAsOf", text) == int(dt.datetime.fromisoformat(utc).timestamp() * 1000)


def test_storage_options_come_from_the_environment_and_are_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_OPTIONS_VARIABLE, '{"endpoint_url": "http://a", "region": "eu-1"}')
    assert ReadOptions.parse({**PLACE, "region": "us-1"}).address.storage_options == {"endpoint_url": "http://a", "region": "us-1"}
    monkeypatch.setenv(STORAGE_OPTIONS_VARIABLE, '{"secret_access_key": "hush')
    with pytest.raises(sluice.errors.InvalidRequest) as refused:
        ReadOptions.parse(PLACE)
    assert "hush" not in str(refused.value)


def test_all_that_a_stream_may_be_told() -> None:
    told = {
        "startingversion": "3",
        "maxFilesPerTrigger": "10",
        "MAXBYTESPERTRIGGER": "2m",
        "ignoreDeletes": "true",
        "skipChangeCommits": "TRUE",
        "excludeRegex": "day=1/",
        "failOnDataLoss": "false",
        "withEventTimeOrder": "true",
        "eventTimeColumn": "at",
        "consistency": "published",
        "pollInterval": "0.5",
        "where": "a = 1",
    }
    options = StreamReadOptions.parse({**PLACE, **told})
    assert (options.start, options.limits) == (Start(version=3), Limits(10, 2 << 20))
    rules = options.rules
    assert (rules.ignore_deletes, rules.ignore_changes, rules.skip_change_commits, rules.fail_on_data_loss) == (True, False, True, False)
    assert (rules.exclude, rules.event_time) == (re.compile("day=1/"), "at")
    assert (options.consistency, options.poll_s, options.where) == ("published", 0.5, "a = 1")


def test_what_a_stream_does_by_default() -> None:
    options = StreamReadOptions.parse(PLACE)
    assert (options.start, options.limits, options.rules) == (Start(), Limits(1000), StreamRules())
    assert (options.consistency, options.where) == ("latest", None)
    assert StreamReadOptions.parse({**PLACE, "maxBytesPerTrigger": "1g"}).limits == Limits(None, 1 << 30)
    assert StreamReadOptions.parse({**PLACE, "startingVersion": "Latest"}).start == Start(latest=True)
    assert StreamReadOptions.parse({**PLACE, "startingTimestamp": "1970-01-01 00:00:01"}).start == Start(timestamp_ms=1000)


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ({"readChangeFeed": "true", "ignoreDeletes": "true"}, "readChangeFeed and ignoreDeletes"),
        ({"readChangeFeed": "true", "where": "a = 1"}, "readChangeFeed and where"),
        ({"ignoreChanges": "true", "skipChangeCommits": "true"}, "give one"),
        ({"withEventTimeOrder": "true"}, "eventTimeColumn"),
        ({"eventTimeColumn": "at"}, "withEventTimeOrder"),
        ({"pollInterval": "1"}, "consistency=published"),
        ({"consistency": "serial"}, "latest or published"),
        ({"startingVersion": "1", "startingTimestamp": "2020"}, "give one of them"),
        ({"startingVersion": "newest"}, "0 or more: a version; for a stream also latest"),
        ({"maxFilesPerTrigger": "0"}, "from 1|1 or more"),
        ({"maxFilesPerTrigger": "1.5"}, "'1.5': give a whole number, 1 or more"),
        ({"maxBytesPerTrigger": "much"}, "128mb"),
        ({"maxBytesPerTrigger": "0"}, "1 or more"),
        ({"excludeRegex": "("}, "no regular expression"),
        ({"versionAsOf": "1"}, "not for streams"),
        ({"mergeSchema": "true"}, "not for streams"),
        ({"skipChangeCommit": "true"}, "do you mean skipChangeCommits"),
    ],
)
def test_what_a_stream_refuses(told: dict[str, str], names: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=names):
        StreamReadOptions.parse({**PLACE, **told})


NUMBERED = dict.fromkeys(("TXNAPPID", "txnVersion", "idempotencyKey", "readVersion", "readWhere"), "whose batches have their own numbers")
WHOLE = dict.fromkeys(("replaceWhere", "partitionOverwriteMode", "overwriteSchema"), "which replaces the whole table")


@pytest.mark.parametrize(("name", "why"), [*NUMBERED.items(), *WHOLE.items()])
def test_a_stream_that_writes_numbers_its_batches_itself_and_replaces_all_or_nothing(name: str, why: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=f"(?i)the option {name} was given for a stream, {why}"):
        WriteOptions.refuse_for_streams({**PLACE, name: "1"})


def test_what_is_read_is_a_stream_if_only_a_stream_can_be_told_so() -> None:
    assert isinstance(asked_of(PLACE), ReadOptions)
    assert isinstance(asked_of({**PLACE, "readChangeFeed": "true", "startingVersion": "1"}), ReadOptions)
    assert isinstance(asked_of({**PLACE, "startingVersion": "1"}), StreamReadOptions)
    assert isinstance(asked_of({**PLACE, "readChangeFeed": "true"}), StreamReadOptions)
    with pytest.raises(sluice.errors.InvalidRequest, match="maxFilesPerTrigger is"):
        asked_of({**PLACE, "maxFilesPerTrigger": "none"})
    with pytest.raises(sluice.errors.InvalidRequest, match="give one of them"):
        asked_of({**PLACE, "versionAsOf": "1", "timestampAsOf": "2020"})
