"""The terms of a commit mean the same for every operation that takes them.

A text of the user's with a commit, which the history shows (Delta's userMetadata).
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.storage.errors import InvalidRequest
from sluice.tables.write.terms import ChangeArgs, OnceArgs, WriteArgs
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.pictures import files_below

NEW = flights(("LGA", 5, 50))


def data_files(place: Place) -> set[str]:
    """The paths of all data files below the table."""
    return {path for path in map(str, files_below(Path(place.location))) if path.endswith(".parquet")}


def begun(table: sluice.Table, **terms: Any) -> sluice.Commit | None:
    with table.begin(**terms) as part:
        part.update({"delay": "delay + 1"}, "origin = 'JFK'")
    return part.commit()


def planned(mode: str) -> Callable[..., sluice.Commit | None]:
    def write(table: sluice.Table, **terms: Any) -> sluice.Commit | None:
        plan = table.plan_write(FLIGHTS, mode=mode, **terms)
        return table.commit_write(plan, plan.write(NEW))

    return write


def transacted(table: sluice.Table, **terms: Any) -> sluice.Commit | None:
    parts: list[sluice.Transaction] = []

    def work(part: sluice.Transaction) -> None:
        parts.append(part)
        part.delete("origin = 'JFK'")

    table.transact(work, attempts=1, **terms)
    return parts[-1].commit()


WRITES: Mapping[str, Callable[..., sluice.Commit | None]] = {
    "append": lambda table, **terms: table.append(NEW, **terms),
    "overwrite": lambda table, **terms: table.overwrite(NEW, **terms),
    "replace": lambda table, **terms: table.replace(rows=NEW, **terms),
    "delete": lambda table, **terms: table.delete("origin = 'JFK'", **terms),
    "update": lambda table, **terms: table.update({"delay": "delay + 1"}, "origin = 'JFK'", **terms),
    "upsert": lambda table, **terms: table.upsert(flights(("JFK", 1, 9)), ["origin", "month"], **terms),
    "truncate": lambda table, **terms: table.truncate(**terms),
    "begin": begun,
    "transact": transacted,
    "a planned append": planned("append"),
    "a planned overwrite": planned("overwrite"),
}
CHANGES: Mapping[str, Callable[..., sluice.Commit | None]] = {
    "set_properties": lambda table, **terms: table.set_properties({"owner": "ops"}, **terms),
    "unset_properties": lambda table, **terms: table.unset_properties(["delta.checkpointInterval"], **terms),
    "add_columns": lambda table, **terms: table.add_columns([sluice.NewColumn(pa.field("gate", pa.string()))], **terms),
    "alter_columns": lambda table, **terms: table.alter_columns([sluice.ColumnChange(("delay",), comment="minutes")], **terms),
    "cluster_by": lambda table, **terms: table.cluster_by("month", **terms),
    "set_domain": lambda table, **terms: table.set_domain("mine", "text", **terms),
    "remove_domain": lambda table, **terms: table.remove_domain("old", **terms),
    "add_feature": lambda table, **terms: table.add_feature("changeDataFeed", **terms),
    "drop_feature": lambda table, **terms: table.drop_feature("appendOnly", **terms),
    "compact": lambda table, **terms: table.compact(**terms),
    "restore": lambda table, **terms: table.restore(1, **terms),
    "upgrade_protocol": lambda table, **terms: table.upgrade_protocol(3, 7, **terms),
    "analyze": lambda table, **terms: table.analyze("delay", **terms).commit,
}


@pytest.fixture
def table(place: Place) -> sluice.Table:
    """Rows in versions 1 and 2, and a domain in version 3, with what the changes below change."""
    properties = {"delta.checkpointInterval": "50", "delta.dataSkippingNumIndexedCols": "2"}
    table = place.filled(("JFK", 1, 10), ("EWR", 2, 20), partition_by=[], properties=properties)
    table.append(flights(("JFK", 3, 30)))
    table.set_domain("old", "text")
    return table


@pytest.mark.parametrize("name", WRITES)
def test_a_write_takes_every_term(table: sluice.Table, name: str) -> None:
    terms = {"isolation": "Serializable", "key": "once", "user_metadata": "why", "if_version": table.version, "ack": "ratified"}
    assert present(WRITES[name](table, timeout_s=60, **terms)).version == table.refresh().version == 4
    [entry] = table.history(1)
    assert (entry.isolation, entry.user_metadata, entry.read_version) == ("Serializable", "why", 3)
    assert table.snapshot().raw.app_transactions["sluice.key:once"].version == 0


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("once", [{"key": "nightly"}, {"transaction": ("loader", 7)}], ids=["key", "transaction"])
def test_a_write_happens_once(place: Place, table: sluice.Table, name: str, once: dict[str, Any]) -> None:
    first = present(WRITES[name](table, **once))
    rows, files = rows_of(table.snapshot().to_arrow()), data_files(place)
    again = present(WRITES[name](place.open(), **once))
    assert (first.version, first.repeated) == (4, False)
    assert (again.version, again.repeated, again.transaction_id) == (4, True, first.transaction_id)
    assert (table.refresh().version, rows_of(table.snapshot().to_arrow())) == (4, rows)
    if name not in ("begin", "transact", "a planned append", "a planned overwrite"):
        assert data_files(place) == files, "nothing is written for what was done before"


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_read_an_earlier_version_is_refused_when_that_changed(place: Place, table: sluice.Table, name: str) -> None:
    version = table.version
    place.open().delete("origin = 'JFK' AND month = 1")
    with pytest.raises(sluice.errors.ConcurrentModification):
        WRITES[name](table, read_version=version)
    assert table.refresh().version == version + 1


@pytest.mark.parametrize("name", WRITES)
def test_a_write_commits_only_as_the_next_version(place: Place, table: sluice.Table, name: str) -> None:
    version = table.version
    place.open(application="other").append(NEW)  # of all changes the one that is in nobody's way
    with pytest.raises(sluice.errors.VersionNotFound):
        WRITES[name](table, if_version=version + 2)
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"expected-version: version 4 \(.* by other on .*came first"):
        WRITES[name](table, if_version=version)
    assert table.refresh().version == version + 1
    assert present(WRITES[name](table, if_version=version + 1)).version == version + 2


@pytest.mark.parametrize("name", WRITES)
def test_terms_that_contradict_or_are_too_weak_are_refused_before_anything_is_written(place: Place, table: sluice.Table, name: str) -> None:
    before = data_files(place)
    for terms, rule in (
        ({"isolation": "SnapshotIsolation"}, "is weaker than the table's"),
        ({"key": "a", "transaction": ("a", 1)}, "give one of them"),
        ({"read_version": 1, "if_version": 2}, "give one of them, or the same version"),
        ({"ack": "heard"}, "give one of published, ratified"),
        ({"timeout_s": -1}, "timeout_s is -1"),
        ({"user_metadata": "x" * 8193}, "user_metadata is"),
        ({"user_metadata": 7}, "user_metadata is"),
        ({"user_metadata": b"x"}, "user_metadata is"),
        ({"key": ""}, "key is"),
        ({"key": 7}, "key is"),
        ({"key": "k" * 1001}, "key is"),
    ):
        with pytest.raises(sluice.errors.InvalidRequest, match=rule):
            WRITES[name](table, **terms)
    assert (table.refresh().version, data_files(place)) == (3, before)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_table_takes_its_terms(place: Place, table: sluice.Table, name: str) -> None:
    with pytest.raises(InvalidRequest, match="user_metadata is"):
        CHANGES[name](table, user_metadata="x" * 8193)
    with pytest.raises(sluice.errors.VersionNotFound):
        CHANGES[name](table, if_version=4)
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"expected-version: version 3 \(.* by .*came first"):
        CHANGES[name](place.open(), if_version=2)
    assert table.refresh().version == 3
    assert CHANGES[name](table, if_version=3, user_metadata="why", ack="ratified", timeout_s=60) is not None
    [entry] = table.history(1)
    assert (entry.version, entry.user_metadata) == (4, "why")


def test_what_the_change_needs_itself_stays(table: sluice.Table) -> None:
    """A new constraint reads all rows at the strictest level, whatever terms its caller gives."""
    table.set_properties({"delta.constraints.known": "delay < 1000"}, user_metadata="why")
    assert table.history(1)[0].isolation == "Serializable"


def test_an_unknown_keyword_is_refused_by_the_name_of_the_call(table: sluice.Table) -> None:
    calls: dict[str, Callable[..., Any]] = {
        "append": lambda **terms: table.append(NEW, **terms),
        "delete": lambda **terms: table.delete("true", **terms),
        "begin": table.begin,
        "set_properties": lambda **terms: table.set_properties({"owner": "ops"}, **terms),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'keey'"):
            call(keey="nightly")
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'read_version'"):
        sluice.transaction(read_version=1)  # type: ignore[call-arg]
    assert table.refresh().version == 3


@pytest.mark.parametrize(
    ("call", "terms"),
    [
        (sluice.Table.append, WriteArgs),
        (sluice.Table.update, WriteArgs),
        (sluice.Table.begin, WriteArgs),
        (sluice.Table.compact, ChangeArgs),
        (sluice.transaction, OnceArgs),
        (sluice.transact, OnceArgs),
    ],
)
def test_help_shows_the_keywords(call: Callable[..., Any], terms: Any) -> None:
    shown = inspect.signature(call).parameters
    assert set(terms.__annotations__) <= set(shown)


def test_a_call_says_when_it_is_acknowledged_and_how_long_it_may_take(table: sluice.Table) -> None:
    cases: list[tuple[dict[str, Any], str, float]] = [
        ({}, "published", 120.0),
        ({"ack": "ratified", "timeout_s": 7.0}, "ratified", 7.0),
    ]
    for terms, ack, timeout_s in cases:
        assert table.plan_write(FLIGHTS, **terms).terms.ack == ack
        with table.begin(**terms) as part:
            assert part.timeout_s == timeout_s


TEXT = 'run 7, "nightly" — später'


def test_every_write_takes_a_text_that_the_history_shows(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)), user_metadata=TEXT)
    table.append(flights(("JFK", 1, 2)), if_version=1, user_metadata="b")
    with table.begin(user_metadata="c") as part:
        part.delete("delay = 2")
    table.overwrite(flights(("JFK", 1, 3)), user_metadata="d")
    table.replace(FLIGHTS, user_metadata="e")
    plan = pickle.loads(pickle.dumps(table.plan_write(FLIGHTS, user_metadata="f")))
    table.commit_write(plan, plan.write(flights(("JFK", 1, 4))))
    table.append(flights(("JFK", 1, 5)))
    texts = [each.user_metadata for each in reversed(table.history())]
    assert texts == [None, TEXT, "b", "c", "d", "e", "f", None]
    shown = deltalake.DeltaTable(place.location).history()
    assert [each.get("userMetadata") for each in reversed(shown)] == texts


def test_all_tables_of_a_transaction_show_the_text(place: Place) -> None:
    first = place.create()
    second = sluice.Table.create(place.location + "-2", FLIGHTS, coordinator=place.coordinator)
    with sluice.transaction(place.coordinator, user_metadata=TEXT) as both:
        both[first].append(flights(("JFK", 1, 1)))
        both[second].append(flights(("JFK", 1, 1)))
    assert [each.history(1)[0].user_metadata for each in (first, second)] == [TEXT, TEXT]
