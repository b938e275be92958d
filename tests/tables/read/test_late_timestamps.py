"""In-commit timestamps that were switched on late: history, time travel and attaching across the switch, whatever the files' times say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.statements.duckdb.engine import run
from sluice.storage.actions import Action, CommitInfo, Metadata, Protocol, encode_all
from sluice.storage.errors import VersionNotFound
from tests.tables.conftest import Place

ICT = "delta.enableInCommitTimestamps"
VERSION, TIMESTAMP = "delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp"
SWITCHED_MS = 1_600_000_000_000
BEFORE, AFTER = (10_000, 20_000), (2_000_000, 3_000_000)
"""When the files of the versions 0 and 1 were written, in ms from the switch: before it, as is usual, or after it, as after a copy."""


def switched(place: Place, written: tuple[int, int], sign: int) -> None:
    """A table of another engine whose version 2 switched them on; version 3 came a second later."""
    for number in (0, 1):
        deltalake.write_deltalake(place.location, pa.table({"id": [number]}), mode="append")
    raw = sluice.Table.open(place.location, consistency="published").snapshot().raw
    on = {ICT: "true", VERSION: "2", TIMESTAMP: str(SWITCHED_MS)}
    log = Path(place.location, "_delta_log")
    metadata = Metadata(raw.metadata.id, raw.metadata.schema_string, (), on)
    features = ("appendOnly", "inCommitTimestamp", "invariants")
    commits: tuple[list[Action], ...] = (
        [CommitInfo({"inCommitTimestamp": SWITCHED_MS, "operation": "SET TBLPROPERTIES"}), Protocol(1, 7, None, features), metadata],
        [CommitInfo({"inCommitTimestamp": SWITCHED_MS + 1000, "operation": "NOTHING"})],
    )
    for version, actions in enumerate(commits, 2):
        (log / f"{version:020}.json").write_bytes(encode_all(actions))
    for version, after in enumerate(written):
        seconds = (SWITCHED_MS + sign * after) / 1000
        os.utime(log / f"{version:020}.json", (seconds, seconds))


def test_each_side_of_the_switch_has_its_own_times(place: Place) -> None:
    switched(place, (BEFORE[1], BEFORE[0]), -1)
    table = sluice.Table.open(place.location, consistency="published")
    asked = {-20_000: 0, -15_000: 0, -10_000: 1, -1: 1, 0: 2, 999: 2, 1000: 3}
    assert {after: table.snapshot(timestamp=SWITCHED_MS + after).version for after in asked} == asked
    for beyond in (-20_001, 1001):
        with pytest.raises(VersionNotFound):
            table.snapshot(timestamp=SWITCHED_MS + beyond)


def test_the_history_has_the_times_by_which_versions_are_selected(place: Place) -> None:
    switched(place, (BEFORE[1], BEFORE[0]), -1)
    times = {0: SWITCHED_MS - 20_000, 1: SWITCHED_MS - 10_000, 2: SWITCHED_MS, 3: SWITCHED_MS + 1000}
    published = sluice.Table.open(place.location, consistency="published")
    assert {each.version: each.timestamp for each in published.history()} == times
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert {each.version: each.timestamp for each in table.history() if each.version < 4} == times
    assert {version: table.snapshot(timestamp=at).version for version, at in times.items()} == {each: each for each in times}
    rows = run(f"DESCRIBE HISTORY sluice.`{place.location}`", coordinator=place.coordinator).to_pylist()
    assert {row["version"]: round(row["timestamp"].timestamp() * 1000) for row in rows if row["version"] < 4} == times


def test_files_of_the_time_before_may_be_younger_than_the_switch(place: Place) -> None:
    switched(place, AFTER, 1)
    table = sluice.Table.open(place.location, consistency="published")
    assert {after: table.snapshot(timestamp=SWITCHED_MS + after).version for after in (0, 999, 1000)} == {0: 2, 999: 2, 1000: 3}
    for beyond in (-1, 2_000_000):  # at a time from the switch on only versions with times of their own count
        with pytest.raises(VersionNotFound):
            table.snapshot(timestamp=SWITCHED_MS + beyond)
    for version in range(4):
        assert table.snapshot(version).version == version


@pytest.mark.parametrize(("written", "sign"), [((BEFORE[1], BEFORE[0]), -1), (AFTER, 1)])
def test_such_tables_are_attached_and_written(place: Place, written: tuple[int, int], sign: int) -> None:
    switched(place, written, sign)
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert {key: table.properties[key] for key in (ICT, VERSION, TIMESTAMP)} == {ICT: "true", VERSION: "2", TIMESTAMP: str(SWITCHED_MS)}
    table.append(pa.table({"id": [7]}))
    times = [each.timestamp for each in table.history()][:4]
    assert times == sorted(times, reverse=True)
    assert times[-1] == SWITCHED_MS
    assert [each.version for each in table.history()] == [5, 4, 3, 2, 1, 0]
    assert table.snapshot(timestamp=SWITCHED_MS).version == 2
    assert table.snapshot(timestamp=times[0]).to_arrow().num_rows == 3
    table.checkpoint()
    again = place.open()
    assert again.snapshot(timestamp=SWITCHED_MS + 1000).version == 3
    assert deltalake.DeltaTable(place.location).to_pyarrow_table().num_rows == 3
    table.detach()
    third = sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert third.properties[VERSION] == str(third.version)
    assert json.loads(Path(place.location, "_delta_log", f"{third.version:020}.json").read_text().splitlines()[0])["commitInfo"]
