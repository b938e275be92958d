"""Properties of tables: what may be set, what comes with it, and what other engines then read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.admission import submission
from sluice.coordinator.api import submit
from sluice.storage.actions import Protocol
from sluice.storage.actions.codec import decode_commit
from sluice.storage.errors import InvalidRequest
from sluice.tables.client.property_rules import HANDED_ON, PROPERTIES
from sluice.tables.manage.definition import add_columns, set_properties
from tests.tables.conftest import FLIGHTS, Place, flights, present

Change = Callable[[sluice.Table], object]
ALWAYS = {"appendOnly", "inCommitTimestamp", "invariants", "sluice"}
POLICY = "sluice.conflictPolicy"
KEY = "sluice.primaryKey"
VECTORS = "delta.enableDeletionVectors"


def protocol_of(table: sluice.Table) -> Protocol:
    return table.refresh().snapshot().raw.protocol


def features_of(table: sluice.Table) -> set[str]:
    """The writer features beyond those of every table of sluice's."""
    return set(protocol_of(table).writer_features or ()) - ALWAYS


def commit_info(place: Place, version: int) -> dict[str, Any]:
    first = (Path(place.location) / "_delta_log" / f"{version:020}.json").read_text().splitlines()[0]
    info: dict[str, Any] = json.loads(first)["commitInfo"]
    return info


def actions_of(place: Place, version: int) -> list[object]:
    name = f"_delta_log/{version:020}.json"
    return list(decode_commit((Path(place.location) / name).read_bytes(), name=name))


# -- setting and unsetting ---------------------------------------------------------------------------------------------


def test_what_is_set_holds_for_everybody(place: Place) -> None:
    table, other = place.create(properties={"owner": "ops"}), place.open()
    assert present(table.set_properties({"owner": "flights team", "delta.targetFileSize": "1mb"})).version == 1
    assert {"owner": "flights team", "delta.targetFileSize": "1mb"}.items() <= dict(other.refresh().properties).items()
    info = commit_info(place, 1)
    assert (info["operation"], json.loads(info["operationParameters"]["properties"])) == (
        "SET TBLPROPERTIES",
        {"owner": "flights team", "delta.targetFileSize": "1mb"},
    )
    assert not any(isinstance(each, Protocol) for each in actions_of(place, 1)), "no feature was added"
    assert other.unset_properties(["owner", "never there"]) is not None
    assert "owner" not in table.refresh().properties
    assert commit_info(place, 2)["operation"] == "UNSET TBLPROPERTIES"
    assert table.properties["delta.targetFileSize"] == "1mb"


def test_nothing_new_is_no_version(place: Place) -> None:
    table = place.create(properties={"owner": "ops"})
    assert table.set_properties({"owner": "ops"}) is None
    assert table.set_properties({}) is None
    assert table.unset_properties(["nobody", "delta.constraints.none", "delta.targetFileSize"]) is None
    assert table.set_properties({"delta.feature.appendOnly": "supported"}) is None
    assert table.refresh().version == 0


def test_a_table_opened_to_read_changes_nothing(place: Place) -> None:
    place.create()
    reader = place.open(consistency="published")
    changes: list[Change] = [
        lambda t: t.set_properties({"owner": "x"}),
        lambda t: t.unset_properties(["owner"]),
        lambda t: t.set_domain("mine", "{}"),
        lambda t: t.remove_domain("mine"),
        lambda t: t.compact(),
    ]
    for change in changes:
        with pytest.raises(InvalidRequest, match="only reads"):
            change(reader)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"delta.appendonly": "true"}, ["'delta.appendonly'", "did you mean delta.appendOnly"]),
        ({"Delta.AppendOnly": "true"}, ["did you mean delta.appendOnly"]),
        ({"delta.targetFilesize": "1mb"}, ["did you mean delta.targetFileSize"]),
        ({"sluice.primarykey": "origin"}, ["did you mean sluice.primaryKey"]),
        ({"sluice.policy": "delta"}, ["'sluice.policy'", "sluice.conflictPolicy"]),
        ({"delta.constraints.": "a > 0"}, ["'delta.constraints.'"]),
        ({"delta.x": "1"}, ["'delta.x'", "delta.isolationLevel", "are free"]),
        ({"delta.appendOnly": "yes"}, ["delta.appendOnly", "'yes'", "true or false"]),
        ({"delta.enableChangeDataFeed": ""}, ["delta.enableChangeDataFeed", "''", "true or false"]),
        ({"delta.isolationLevel": "serializable"}, ["delta.isolationLevel", "'serializable'", "Serializable, WriteSerializable"]),
        ({POLICY: "maxcompute"}, [POLICY, "'maxcompute'", "maxcompute-table"]),
        ({"delta.checkpointInterval": "0"}, ["delta.checkpointInterval", "'0'", "from 1 to"]),
        ({"delta.checkpointPolicy": "V2"}, ["delta.checkpointPolicy", "'V2'", "use classic or v2"]),
        ({"delta.targetFileSize": "-1"}, ["delta.targetFileSize", "'-1'"]),
        ({"delta.dataSkippingNumIndexedCols": "-2"}, ["delta.dataSkippingNumIndexedCols", "'-2'"]),
        ({"delta.deletedFileRetentionDuration": "1 month"}, ["delta.deletedFileRetentionDuration", "'1 month'", "not a duration"]),
        ({"delta.logRetentionDuration": "long"}, ["delta.logRetentionDuration", "'long'"]),
        ({"delta.constraints.a": " "}, ["delta.constraints.a", "empty"]),
        ({"delta.feature.changeDataFeed": "enabled"}, ["delta.feature.changeDataFeed", "'supported'"]),
        ({"delta.enableInCommitTimestamps": "false"}, ["delta.enableInCommitTimestamps", "sluice sets it"]),
        ({"delta.inCommitTimestampEnablementVersion": "3"}, ["delta.inCommitTimestampEnablementVersion", "sluice sets it"]),
        ({"delta.rowTracking.materializedRowIdColumnName": "x"}, ["materializedRowIdColumnName", "delta.enableRowTracking"]),
        ({"delta.rowTrackingSuspended": "true"}, ["delta.rowTrackingSuspended", "sluice sets it"]),
        ({"delta.columnMapping.maxColumnId": "3"}, ["delta.columnMapping.maxColumnId", "sluice counts the columns"]),
        ({"delta.minReaderVersion": "3"}, ["delta.minReaderVersion", "delta.feature.<name>"]),
        ({"owner": 5}, ["'owner'", "5", "properties are text"]),
        ({5: "owner"}, ["5", "properties are text"]),
        (["owner"], ["list", "mapping"]),
    ],
)
def test_what_is_no_property_is_refused_at_creation_and_later(place: Place, properties: Any, words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        place.create(properties=properties)
    assert [word for word in words if word not in caught.value.message] == []
    assert not (Path(place.location) / "_delta_log").exists()
    table = place.create()
    with pytest.raises(InvalidRequest) as caught:
        table.set_properties(properties)
    assert [word for word in words if word not in caught.value.message] == []
    assert table.refresh().version == 0


def test_protected_properties_cannot_be_set_even_to_what_they_are(place: Place) -> None:
    table = place.create(properties={"delta.enableInCommitTimestamps": "true"})
    with pytest.raises(InvalidRequest, match="sluice sets it"):
        table.set_properties({"delta.enableInCommitTimestamps": "true"})
    with pytest.raises(InvalidRequest, match="sluice sets it"):
        table.unset_properties(["delta.enableInCommitTimestamps"])
    with pytest.raises(sluice.errors.UnsupportedFeature, match="variantShredding"):
        place.open().set_properties({"delta.feature.variantShredding": "supported"})
    with pytest.raises(InvalidRequest, match="sluice writes variants in one piece"):
        table.set_properties({"delta.enableVariantShredding": "true"})
    with pytest.raises(InvalidRequest, match="sluice counts the columns"):
        table.set_properties({"delta.columnMapping.maxColumnId": "7"})


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("owner", "names is 'owner'"),
        (5, "names is 5"),
        ([5], r"names is \[5\]"),
        (["delta.appendonly"], "did you mean delta.appendOnly"),
        (["delta.feature.domainMetadata"], "stays in the protocol"),
    ],
)
def test_names_that_cannot_be_unset(place: Place, names: Any, words: str) -> None:
    table = place.create(properties={"owner": "ops"})
    with pytest.raises(InvalidRequest, match=words):
        table.unset_properties(names)
    assert table.refresh().version == 0


def test_other_engines_properties_are_kept(place: Place) -> None:
    table = place.create(properties=dict.fromkeys(HANDED_ON, "x"))
    table.set_properties({"anything.at.all": "y"})
    assert {**dict.fromkeys(HANDED_ON, "x"), "anything.at.all": "y"}.items() <= dict(table.refresh().properties).items()


def test_what_another_engine_left_can_be_unset(place: Place) -> None:
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 1)), configuration={"delta.checkpointInterval": "7"})
    add_property(place, {"delta.unheardOf": "1"})
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert table.properties["delta.unheardOf"] == "1"
    assert table.unset_properties(["delta.unheardOf"]) is not None
    assert "delta.unheardOf" not in table.refresh().properties
    with pytest.raises(InvalidRequest, match=r"delta\.unheardOf"):
        table.unset_properties(["delta.unheardOf"])


def add_property(place: Place, properties: dict[str, str]) -> None:
    """Write properties into the first version of a table that is not sluice's, as an engine that knows them would have."""
    first = Path(place.location) / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] |= properties
    first.write_text("\n".join(map(json.dumps, lines)) + "\n")


# -- what the properties do --------------------------------------------------------------------------------------------


def test_append_only_comes_and_goes(place: Place) -> None:
    table, other = place.create(), place.open()
    table.append(flights(("JFK", 1, 5), ("EWR", 2, None)))
    table.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(sluice.errors.UnsupportedFeature, match="append-only"):
        other.delete("month = 1")
    table.set_properties({"delta.appendOnly": "false"})
    assert other.delete("month = 1") is not None
    assert features_of(table) == set()


def test_a_feature_of_old_tables_is_added_when_it_is_used(place: Place) -> None:
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 1)))
    lines = (Path(place.location) / "_delta_log" / f"{0:020}.json").read_text().replace('"minWriterVersion":2', '"minWriterVersion":1')
    (Path(place.location) / "_delta_log" / f"{0:020}.json").write_text(lines)
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert "appendOnly" not in (protocol_of(table).writer_features or ())
    table.set_properties({"delta.appendOnly": "true"})
    assert "appendOnly" in (protocol_of(table).writer_features or ())


def test_a_constraint_is_checked_against_the_rows_that_are_there(place: Place) -> None:
    table = place.filled(("JFK", 1, 5), ("EWR", 2, -7))
    words = r"constraint sane \(delay >= 0\) was not added, for version 1 of the table has rows .* one with delay = -7; correct"
    with pytest.raises(sluice.errors.ConstraintViolated, match=words) as caught:
        table.set_properties({"delta.constraints.sane": "delay >= 0"})
    assert (caught.value.constraint, caught.value.values, caught.value.version) == ("sane", {"delay": -7}, 1)
    assert table.refresh().version == 1
    table.delete("delay < 0")
    table.set_properties({"delta.constraints.sane": "delay >= 0"})
    assert "checkConstraints" in features_of(table)
    with pytest.raises(sluice.errors.ConstraintViolated, match="sane"):
        place.open().append(flights(("JFK", 1, -5)))
    table.set_properties({"owner": "a change beside it reads no rows"})
    table.unset_properties(["delta.constraints.sane"])
    assert place.open().append(flights(("JFK", 1, -5))) is not None


def test_a_constraint_without_columns_and_one_on_partitions(place: Place) -> None:
    table = place.create()
    table.set_properties({"delta.constraints.never": "1 > 2"})
    table.unset_properties(["delta.constraints.never"])
    table.append(flights(("JFK", 1, 5)))
    with pytest.raises(sluice.errors.ConstraintViolated, match=r"never .* breaks it: .* it is never true"):
        table.set_properties({"delta.constraints.never": "1 > 2"})
    with pytest.raises(sluice.errors.ConstraintViolated, match="origin = 'JFK'"):
        table.set_properties({"delta.constraints.home": "origin = 'EWR'"})
    with pytest.raises(sluice.errors.UnsupportedFeature, match="my_function"):
        table.set_properties({"delta.constraints.odd": "my_function(delay) = 1"})
    assert table.refresh().version == 3


def test_rows_that_are_marked_as_deleted_break_no_constraint(place: Place) -> None:
    table = place.filled(("JFK", 1, 5), ("EWR", 2, -7), ("LGA", 3, -8), properties={VECTORS: "true"}, partition_by=[])
    table.delete("delay = -7")
    assert any(add.deletion_vector for add in table.snapshot().raw.add_files())
    with pytest.raises(sluice.errors.ConstraintViolated) as caught:
        table.set_properties({"delta.constraints.sane": "delay >= 0"})
    assert caught.value.values == {"delay": -8}
    table.delete("delay = -8")
    assert table.set_properties({"delta.constraints.sane": "delay >= 0"}) is not None


def test_a_changed_constraint_is_checked_again(place: Place) -> None:
    table = place.filled(("JFK", 1, -5), properties={"delta.constraints.sane": "delay > -1000"})
    with pytest.raises(sluice.errors.ConstraintViolated, match="sane"):
        table.set_properties({"delta.constraints.sane": "delay > 0"})
    assert table.set_properties({"delta.constraints.sane": "delay > -10"}) is not None


SANE = {"delta.constraints.sane": "delay >= 0"}
POLICIES = ("delta", "maxcompute-table", "maxcompute-transactional", "maxcompute-delta")


@pytest.mark.parametrize("isolation", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
@pytest.mark.parametrize(("policy", "change"), [*((policy, SANE) for policy in POLICIES), ("maxcompute-delta", {KEY: "origin, month"})])
def test_rows_that_come_while_a_constraint_or_a_key_is_set_are_not_overlooked(
    place: Place, monkeypatch: pytest.MonkeyPatch, isolation: str, policy: str, change: dict[str, str]
) -> None:
    table, other = place.create(properties={"delta.isolationLevel": isolation, POLICY: policy}), place.open()
    if change is SANE:
        table.append(flights(("JFK", 1, 5)))
    before_commit(monkeypatch, lambda: other.append(flights(("EWR", 2, -7))))
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.set_properties(change)
    assert not change.keys() & table.refresh().properties.keys()


def before_commit(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Let something happen after the next change of properties was planned and before it is committed."""

    proper = submission.submit_together

    def commit(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(submission, "submit_together", proper)
        meanwhile()
        return proper(*arguments, **options)

    monkeypatch.setattr(submission, "submit_together", commit)


def test_appends_do_not_stop_a_change_of_properties(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = sluice.Table.create(place.location, FLIGHTS, coordinator=place.coordinator)
    other = place.open()
    before_commit(monkeypatch, lambda: other.append(flights(("EWR", 2, -7))))
    assert present(table.set_properties({"owner": "ops"})).version == 2


def test_whoever_did_not_know_of_a_change_is_stopped_unless_it_only_switches_something_on(place: Place) -> None:
    table, other = place.create(), place.open()
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 5)))
    other.set_properties({VECTORS: "true"})
    assert table.commit_write(plan, files) is not None
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 6)))
    other.set_properties({"owner": "ops"})
    with pytest.raises(sluice.errors.MetadataChangedException) as caught:
        table.commit_write(plan, files)
    assert (caught.value.winning_version, caught.value.winning_operation) == (3, "SET TBLPROPERTIES")


def test_two_changes_of_properties_meet(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = place.create(), place.open()
    before_commit(monkeypatch, lambda: other.set_properties({"a": "1"}))
    with pytest.raises(sluice.errors.MetadataChangedException):
        table.set_properties({"b": "1"})
    table.set_properties({"b": "1"})
    assert (table.refresh().properties["a"], table.properties["b"]) == ("1", "1")


# -- metadata domains --------------------------------------------------------------------------------------------------


def test_domains_of_users(place: Place) -> None:
    table, other = place.create(), place.open()
    assert table.domains == {}
    assert table.set_domain("mine", '{"a": 1}') is not None
    assert features_of(table) == {"domainMetadata"}
    assert protocol_of(table).min_reader_version == 1
    assert table.set_domain("mine", '{"a": 1}') is None
    other.refresh()
    assert other.set_domain("yours", "any text") is not None
    assert table.refresh().domains == {"mine": '{"a": 1}', "yours": "any text"}
    table.checkpoint()
    assert sluice.Table.open(place.location, consistency="published").domains == table.domains
    assert table.remove_domain("mine") is not None
    assert table.remove_domain("mine") is None
    assert table.refresh().domains == {"yours": "any text"}
    assert commit_info(place, 3)["operation"] == "REMOVE DOMAIN"


@pytest.mark.parametrize(("name", "configuration"), [("delta.rowTracking", "{}"), ("Delta.x", "{}"), ("", "{}"), (None, "{}"), ("a", {})])
def test_domains_that_are_none(place: Place, name: Any, configuration: Any) -> None:
    table = place.create()
    with pytest.raises(InvalidRequest, match=r"domain|name|configuration"):
        table.set_domain(name, configuration)
    if isinstance(configuration, str):
        with pytest.raises(InvalidRequest, match=r"domain|name"):
            table.remove_domain(name)
    assert table.refresh().version == 0


def test_two_writers_of_one_domain(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = place.create(properties={"delta.feature.domainMetadata": "supported"}), place.open()
    before_commit(monkeypatch, lambda: other.set_domain("mine", "theirs"))
    with pytest.raises(sluice.errors.ConcurrentTransactionException, match="mine"):
        table.set_domain("mine", "ours")
    assert table.refresh().domains == {"mine": "theirs"}
    before_commit(monkeypatch, lambda: other.set_domain("yours", "theirs"))
    table.set_domain("mine", "ours")
    assert table.refresh().domains == {"mine": "ours", "yours": "theirs"}
    before_commit(monkeypatch, lambda: other.append(flights(("EWR", 2, 1))))
    assert table.set_domain("mine", "again") is not None


@pytest.mark.parametrize("name", ["yours", "mine"])
def test_of_two_first_domains_at_once_the_second_is_repeated(place: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The first one adds a table feature; the repetition finds it there."""
    table, other = place.create(), place.open()
    before_commit(monkeypatch, lambda: other.set_domain(name, "theirs"))
    with pytest.raises(sluice.errors.ProtocolChangedException, match="repeat the operation"):
        table.set_domain("mine", "ours")
    assert table.refresh().domains == {name: "theirs"}
    assert table.set_domain("mine", "ours") is not None
    assert table.refresh().domains == {name: "theirs", "mine": "ours"}


# -- the table of properties -------------------------------------------------------------------------------------------


def test_names_are_known_once() -> None:
    names = [each.name for each in PROPERTIES] + list(HANDED_ON)
    assert len({name.lower() for name in names}) == len(names)


def test_defaults_are_what_is_accepted() -> None:
    """What the documentation calls a default can be set, and is no other value than that."""
    for each in PROPERTIES:
        default = each.default.split(";")[0].strip("`")
        if default:
            each.check(each.name, default)


@pytest.mark.parametrize("first", ["set_properties", "add_columns"])
def test_properties_set_beside_added_columns_both_hold_after_the_loser_repeats(place: Place, first: str) -> None:
    table, other = place.create(), place.open()

    def set_one() -> Any:
        return set_properties(table.coordinated, {"owner": "ops"})

    def add_one() -> Any:
        return add_columns(other.coordinated, [sluice.NewColumn(pa.field("gate", pa.string()))])

    winner, loser = (set_one, add_one) if first == "set_properties" else (add_one, set_one)
    late = loser()  # made on version 0, and filed after the other's commit
    submit(table.coordinated, winner())
    with pytest.raises(sluice.errors.MetadataChangedException, match="came first and concerns the table's metadata"):
        submit(table.coordinated, late)
    assert place.open().version == 1
    submit(table.coordinated, loser())
    shown = place.open()
    assert shown.properties["owner"] == "ops"
    assert "gate" in shown.schema.names
